//! From an address to a byte stream: the [`Transport`] trait, TCP, and Unix domain sockets.

mod late_options;
mod probe;
mod tcp;
#[cfg(target_os = "linux")]
mod tcp_info;
mod tcp_stream;
mod traits;
#[cfg(unix)]
mod unix;

pub(crate) use probe::{Liveness, Probe};
pub use tcp::TcpTransport;
pub use traits::{Connecting, Stream, Transport};
#[cfg(unix)]
pub(crate) use unix::connect_unix;
