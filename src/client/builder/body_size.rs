//! The limit of the length of responses.

use super::ClientBuilder;

impl ClientBuilder {
    /// Sets the maximum length of a response's body in bytes, after decompression. No limit by default. A request's own
    /// [`max_body_size`](crate::RequestBuilder::max_body_size) replaces it.
    ///
    /// A longer body is an error of the kind [`ErrorKind::Body`](crate::ErrorKind::Body): of
    /// [`send`](crate::RequestBuilder::send) if its length is announced, else of the read that would exceed the limit.
    /// Decompression has limits of its own. An event source (feature `sse`), whose stream has no end, is not limited.
    ///
    /// ```
    /// let client = speeddial::Client::builder().max_body_size(10 << 20).build()?;
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn max_body_size(mut self, bytes: u64) -> Self {
        self.defaults.max_body_size = Some(bytes);
        self
    }
}
