//! Requests that ask for another protocol.

use super::RequestBuilder;

impl RequestBuilder {
    /// Makes a CONNECT request an extended one (RFC 8441): over HTTP/2, it asks the server to speak this protocol on the request's
    /// stream, for example `websocket`. [`Response::upgrade`](crate::Response::upgrade) returns the stream.
    ///
    /// The call fails with [`ErrorKind::Upgrade`](crate::ErrorKind::Upgrade) if the connection speaks HTTP/1.1, or if
    /// the server's settings do not allow extended CONNECT. The request waits for these settings, as long as for the
    /// [headers](Self::headers_timeout) of a response.
    ///
    /// ```no_run
    /// # async fn run(client: speeddial::Client) -> speeddial::Result<()> {
    /// use speeddial::Method;
    ///
    /// let request = client.request(Method::CONNECT, "https://api.example.com/chat").protocol("websocket");
    /// let response = request.header("sec-websocket-version", "13").send().await?.error_for_status()?;
    /// let stream = response.upgrade().await?;
    /// # Ok(()) }
    /// ```
    pub fn protocol(self, name: &str) -> Self {
        self.with(|request| {
            request.options = std::mem::take(&mut request.options).protocol(name);
            Ok(())
        })
    }
}
