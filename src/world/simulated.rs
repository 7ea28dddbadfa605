//! A world that a test makes, for all code of one thread.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use super::stream::ReadWrite;

/// A connection to a DNS server that is being opened.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn ReadWrite>>> + Send>>;

/// The time of day, the files and the DNS sockets of a simulation.
#[allow(missing_docs, reason = "private: for `tests/simulation`")]
pub trait World {
    fn time_of_day(&self) -> SystemTime;
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Returns how often a file has changed; `None` if there is none.
    fn changes(&self, path: &Path) -> Option<u64>;
    fn udp(&self, server: SocketAddr) -> io::Result<Box<dyn Datagrams>>;
    fn tcp(&self, server: SocketAddr) -> Connecting;
}

/// A UDP socket that is connected to one address.
#[allow(missing_docs, reason = "private: for `tests/simulation`")]
pub trait Datagrams: Send + Sync {
    fn poll_receive(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;
    fn send(&self, packet: &[u8]) -> io::Result<usize>;
}

thread_local! {
    static ENTERED: RefCell<Option<Rc<dyn World>>> = const { RefCell::new(None) };
}

/// Puts a world in place of the real one, for this thread. `None` puts the real one back.
pub fn enter(world: Option<Rc<dyn World>>) {
    ENTERED.set(world);
}

pub(super) fn entered() -> Option<Rc<dyn World>> {
    ENTERED.with_borrow(Clone::clone)
}
