//! TLS with an encrypted hello, on the winner of a race: once more with other keys if the server says so (RFC 9849 §6.1.6).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Connector;
use super::secure::{Secured, Security};
use crate::origin::Origin;
use crate::tls::{HelloRejected, hello_rejected};
use crate::trace::{DialTrace, Event};
use crate::transport::{Probe, Stream};

impl Connector {
    /// Shakes hands with `origin` over `stream`, with a hello that is encrypted for `keys`. If the server rejects it, there is one
    /// more handshake on another connection to the same address: with the keys that the server has sent, or with a hello as usual
    /// if it has sent none. The server has proved by then that it speaks for the public name of the first keys.
    pub(super) async fn secure_encrypted(
        &self,
        origin: &Origin,
        remote: SocketAddr,
        (stream, probe): (Box<dyn Stream>, Option<Probe>),
        keys: &[u8],
        limit: Option<Duration>,
        trace: &DialTrace,
    ) -> Result<(Secured, Option<Probe>), Arc<io::Error>> {
        let security = Security { hello_keys: Some(keys), ..self.security() };
        let error = match security.secure(origin, Some(remote), stream, limit, trace).await {
            Ok(secured) => return Ok((secured, probe)),
            Err(error) => error,
        };
        let keys = match hello_rejected(&error) {
            None => return Err(error),
            Some(HelloRejected::UseKeys(keys)) => Some(keys),
            Some(HelloRejected::NotUsed) => None,
        };
        let stream = self.dial_again(remote, trace).await?;
        let probe = Probe::of(&*stream);
        let security = Security { hello_keys: keys.as_deref(), ..self.security() };
        let secured = security.secure(origin, Some(remote), stream, limit, trace).await?;
        Ok((secured, probe))
    }

    async fn dial_again(&self, remote: SocketAddr, trace: &DialTrace) -> Result<Box<dyn Stream>, Arc<io::Error>> {
        trace.emit(Event::AttemptStart { address: remote });
        let connected = self.transport.connect(remote).await.map_err(Arc::new);
        trace.emit(Event::AttemptEnd { address: remote, error: connected.as_ref().err().cloned() });
        connected
    }
}
