//! Streams to DNS servers, of this world or of a simulated one.

use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes that are read and written.
#[cfg_attr(not(feature = "__simulation"), allow(unreachable_pub, reason = "simulations implement it"))]
pub trait ReadWrite: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> ReadWrite for S {}
