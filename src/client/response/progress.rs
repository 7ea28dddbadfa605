//! The progress of a download.

use super::Response;
use crate::client::answer::Content;

impl Response {
    /// Calls `callback` for each piece of the body that is read, with the bytes received so far, the piece included, and
    /// the length of the body if it is announced. Replaces a callback that was set before.
    ///
    /// The bytes are those that the server sent: of a compressed body those before decompression, so that they can be
    /// compared with the length. With tower layers they are those that the layers pass on, decompressed; the length of a
    /// decompressed body is not known. An empty body has no pieces. The callback runs where the body is read, so it should be quick. If it panics, the panic is
    /// caught, the body can be read on, and the callback is not called again.
    ///
    /// ```no_run
    /// # async fn run(client: speeddial::Client) -> speeddial::Result<()> {
    /// let response = client.get("http://store.example/backup.tar").send().await?.error_for_status()?;
    /// let response = response.on_progress(|received, total| match total {
    ///     Some(total) => println!("{received} of {total} bytes"),
    ///     None => println!("{received} bytes"),
    /// });
    /// response.copy_to(&mut tokio::io::sink()).await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn on_progress<F>(mut self, callback: F) -> Self
    where
        F: FnMut(u64, Option<u64>) + Send + 'static,
    {
        match &mut self.data.content {
            Content::Received(reader) => reader.on_progress(callback),
            Content::Replaced(body, _) => *body = std::mem::take(body).on_progress(callback),
        }
        self
    }
}
