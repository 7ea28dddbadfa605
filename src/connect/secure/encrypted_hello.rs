//! TLS with an encrypted hello, on the winner of a race: once more with other keys if the server says so (RFC 9849 §6.1.6).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{Secured, Security};
use crate::origin::Origin;
use crate::tls::{HelloRejected, hello_rejected};
use crate::trace::{DialTrace, Event};
use crate::transport::{Probe, Stream, Transport};

/// Shakes hands with `origin` over `stream`, with a hello that is encrypted for `keys`. If the server rejects it, there is one more
/// handshake on another connection to the same address: with the keys that the server has sent, or with a hello as usual if it has
/// sent none. The server has proved by then that it speaks for the public name of the first keys.
pub(in crate::connect) async fn secure_encrypted(
    security: Security<'_>,
    transport: &dyn Transport,
    origin: &Origin,
    (remote, stream, probe): (SocketAddr, Box<dyn Stream>, Option<Probe>),
    keys: &[u8],
    limit: Option<Duration>,
    trace: &DialTrace,
) -> Result<(Secured, Option<Probe>), Arc<io::Error>> {
    let encrypted = Security { hello_keys: Some(keys), ..security };
    let error = match encrypted.secure(origin, Some(remote), stream, limit, trace).await {
        Ok(secured) => return Ok((secured, probe)),
        Err(error) => error,
    };
    let keys = match hello_rejected(&error) {
        None => return Err(error),
        Some(HelloRejected::UseKeys(keys)) => Some(keys),
        Some(HelloRejected::NotUsed) => None,
    };
    trace.emit(Event::AttemptStart { address: remote });
    let connected = transport.connect(remote).await.map_err(Arc::new);
    trace.emit(Event::AttemptEnd { address: remote, error: connected.as_ref().err().cloned() });
    let stream = connected?;
    let probe = Probe::of(&*stream);
    let again = Security { hello_keys: keys.as_deref(), ..security };
    let secured = again.secure(origin, Some(remote), stream, limit, trace).await?;
    Ok((secured, probe))
}
