//! The upgrade of a response's connection to another protocol.

use super::Response;
use crate::client::upgraded::{PendingUpgrade, Upgraded};
use crate::error::{Error, Result};

impl Response {
    /// Returns the byte stream of the protocol that the connection has switched to: after a 101 to a request with an `Upgrade`
    /// header (HTTP/1.1, RFC 9110 §7.8), or a 2xx to CONNECT (RFC 9110 §9.3.6; over HTTP/2 a 200, and RFC 8441 with
    /// [`protocol`](crate::RequestBuilder::protocol)).
    ///
    /// Any other response is an ordinary one, and means that the server declined: check the [status](Self::status) first. If an
    /// upgraded response is dropped instead, its connection closes. The [guide](crate::guide::upgrades) has more.
    ///
    /// # Errors
    /// [`ErrorKind::Upgrade`](crate::ErrorKind::Upgrade) if the response switches to no other protocol, if the
    /// connection failed, or if the server agreed before it had read the request's body, and the rest of that is not written
    /// within 60 s, or is not sent at all because the server did not ask for it
    /// ([`expect_continue`](crate::RequestBuilder::expect_continue)).
    pub async fn upgrade(mut self) -> Result<Upgraded> {
        let upgraded = match self.data.head.extensions.remove::<PendingUpgrade>() {
            Some(pending) => pending.take().await,
            None => Err(Error::no_upgrade(self.status())),
        };
        upgraded.map_err(|error| self.about(error))
    }
}
