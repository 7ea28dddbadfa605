//! Forms of several parts as bodies.

use http::HeaderValue;
use http::header::CONTENT_TYPE;

use super::RequestBuilder;
use crate::client::body::multipart::Form;

impl RequestBuilder {
    /// Sets the body to a form of several parts, and the `Content-Type` to `multipart/form-data` with the form's boundary
    /// (feature `multipart`). A `Content-Type` that names this boundary already is kept, for other types of multipart.
    ///
    /// ```
    /// use speeddial::multipart::Form;
    ///
    /// let form = Form::new().text("name", "value");
    /// let request = speeddial::Client::new().post("http://127.0.0.1/").multipart(form).build().unwrap();
    /// assert!(request.headers()["content-type"].to_str().unwrap().starts_with("multipart/form-data; boundary="));
    /// ```
    pub fn multipart(self, form: Form) -> Self {
        self.with(|request| {
            let boundary = form.boundary();
            let names_boundary = |value: &HeaderValue| value.to_str().is_ok_and(|value| value.contains(boundary));
            if !request.headers.get(CONTENT_TYPE).is_some_and(names_boundary) {
                let media_type = HeaderValue::try_from(format!("multipart/form-data; boundary={boundary}"));
                request.headers.insert(CONTENT_TYPE, media_type.expect("a boundary is hexadecimal digits"));
            }
            request.body = Some(form.into_body());
            Ok(())
        })
    }
}
