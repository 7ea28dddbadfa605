//! The outside of the program that is behind no trait: the time of day, files, seeds of hashes, sockets of DNS, and threads for blocking
//! work.
//!
//! With the private feature `__simulation`, a test may put a world of its own in place of these, for one thread (`simulated.rs`).

#[cfg(feature = "__simulation")]
mod simulated;
mod stream;

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::time::SystemTime;

use tokio::net::UdpSocket;
use tokio::task::JoinError;

use crate::os;

#[cfg_attr(not(feature = "__simulation"), allow(unreachable_pub, reason = "simulations use it"))]
pub use stream::ReadWrite;

#[cfg(feature = "__simulation")]
use simulated::entered;
#[cfg(feature = "__simulation")]
pub use simulated::{Connecting, Datagrams, World, enter};

/// The seeds of hashes: of their own for each map, so that peers cannot choose keys that collide.
#[cfg(not(feature = "__simulation"))]
pub(crate) type RandomState = foldhash::fast::RandomState;
/// The seed of hashes, which is the same each time, so that maps are walked through in the same order.
#[cfg(feature = "__simulation")]
pub(crate) type RandomState = foldhash::fast::FixedState;

/// A UDP socket that is connected to a DNS server.
pub(crate) enum Udp {
    Real(UdpSocket),
    #[cfg(feature = "__simulation")]
    Simulated(Box<dyn Datagrams>),
}

/// The state of a file: another state has at least one other value. The date and length may stay when it is replaced (`cp -p`, Nix, ConfigMaps).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    modified: SystemTime,
    length: u64,
    /// The numbers of the device and of the file, and the time of the last change of either.
    node: ((u64, u64), (i64, i64)),
}

impl Stamp {
    /// Returns the stamp of the file that a path leads to; `None` if there is none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        #[cfg(feature = "__simulation")]
        if let Some(world) = entered() {
            let changes = world.changes(path)?;
            return Some(Self { modified: SystemTime::UNIX_EPOCH, length: changes, node: ((0, 0), (0, 0)) });
        }
        let file = std::fs::metadata(path).ok()?;
        Some(Self {
            modified: file.modified().ok()?,
            length: file.len(),
            node: (os::numbers_of(&file), os::change_of(&file)),
        })
    }
}

/// Reads the first bytes of a file, at most `limit`.
pub(crate) fn read_file(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    #[cfg(feature = "__simulation")]
    if let Some(world) = entered() {
        return world.read(path);
    }
    let mut content = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut content)?;
    Ok(content)
}

/// Returns the time of day.
pub(crate) fn time_of_day() -> SystemTime {
    #[cfg(feature = "__simulation")]
    if let Some(world) = entered() {
        return world.time_of_day();
    }
    SystemTime::now()
}

/// Runs work that blocks its thread, on a thread that runs no tasks.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    #[cfg(feature = "__simulation")]
    if entered().is_some() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}

/// Opens a UDP socket from a local address to a DNS server.
pub(crate) async fn bind_udp(local: SocketAddr, server: SocketAddr) -> io::Result<Udp> {
    #[cfg(feature = "__simulation")]
    if let Some(world) = entered() {
        return world.udp(server).map(Udp::Simulated);
    }
    let socket = UdpSocket::bind(local).await?;
    socket.connect(server).await?;
    Ok(Udp::Real(socket))
}

/// Returns true if the thread is in a simulated world, where real time means nothing.
pub(crate) fn is_simulated() -> bool {
    #[cfg(feature = "__simulation")]
    return entered().is_some();
    #[cfg(not(feature = "__simulation"))]
    false
}

/// Begins to connect to a DNS server over TCP, if the thread is in a simulated world.
#[cfg(feature = "__simulation")]
pub(crate) fn simulated_tcp(server: SocketAddr) -> Option<Connecting> {
    entered().map(|world| world.tcp(server))
}
