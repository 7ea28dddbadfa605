//! The values that go along with a response.

use http::Extensions;

use super::Response;

impl Response {
    /// Returns the values that go along with the response: those of the request
    /// ([`RequestBuilder::extension`](crate::RequestBuilder::extension)), and what the client and its layers add.
    ///
    /// ```no_run
    /// # async fn run(client: speeddial::Client) -> speeddial::Result<()> {
    /// #[derive(Clone)]
    /// struct Tenant(u32);
    ///
    /// let response = client.get("http://api.example.com/v1/items").extension(Tenant(7)).send().await?;
    /// assert_eq!(response.extensions().get::<Tenant>().map(|tenant| tenant.0), Some(7));
    /// # Ok(()) }
    /// ```
    pub fn extensions(&self) -> &Extensions {
        &self.data.head.extensions
    }

    /// Returns the values that go along with the response, to change them.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.data.head.extensions
    }
}
