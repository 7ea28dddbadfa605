//! The client's side of a [`fault_proxy`](crate::fault_proxy): a transport that begins each connection with its name, by which the
//! proxy chooses the connection's script.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use speeddial::trace::{Event, Observer, Record, Subject, Wants};
use speeddial::transport::{Connecting, Stream, TcpTransport, Transport};
use tokio::io::AsyncWriteExt;

use super::fault_script::{Opening, Script, Tag};

/// Returns the script of a connection to the address.
pub type ScriptOf = Arc<dyn Fn(SocketAddr, Tag) -> Script + Send + Sync>;

/// What has happened to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Struck {
    /// It was refused or not made.
    Opening,
    /// The fault of its script.
    Fault,
    /// The server ended it in an orderly way.
    Retired,
}

/// The connections that something has happened to, each with the address that it leads to. Clones share it.
#[derive(Clone, Default)]
pub struct Strikes(Arc<Mutex<HashMap<Tag, (Struck, SocketAddr)>>>);

impl Strikes {
    /// Records what is about to happen to a connection. A fault takes the place of an orderly end.
    pub fn record(&self, address: SocketAddr, tag: Tag, struck: Struck) {
        let mut strikes = self.0.lock().unwrap();
        if struck != Struck::Retired || !strikes.contains_key(&tag) {
            strikes.insert(tag, (struck, address));
        }
    }

    /// Returns what has happened to a connection.
    pub fn of(&self, tag: Tag) -> Option<Struck> {
        self.0.lock().unwrap().get(&tag).map(|(struck, _)| *struck)
    }

    /// Returns all of them.
    pub fn all(&self) -> Vec<(Tag, Struck, SocketAddr)> {
        self.0.lock().unwrap().iter().map(|(tag, (struck, address))| (*tag, *struck, *address)).collect()
    }
}

/// The transport. It is the client's observer as well, to learn the numbers of connections; both are clones of one value.
#[derive(Clone)]
pub struct FaultTransport {
    client: u64,
    tcp: TcpTransport,
    script_of: ScriptOf,
    strikes: Strikes,
    /// The connections that are dialled, by the task that dials them.
    dials: Arc<Mutex<HashMap<tokio::task::Id, u64>>>,
}

impl FaultTransport {
    /// Creates the transport and observer of a client.
    pub fn new(client: u64, script_of: ScriptOf, strikes: Strikes) -> Self {
        Self { client, tcp: TcpTransport::new(), script_of, strikes, dials: Arc::default() }
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<Box<dyn Stream>> {
        let task = tokio::task::id();
        let connection = self.dials.lock().unwrap().remove(&task).expect("the task's dial was observed");
        let tag = Tag { client: self.client, connection };
        match (self.script_of)(address, tag).opening {
            Opening::Refused => {
                self.strikes.record(address, tag, Struck::Opening);
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            Opening::Silent => {
                self.strikes.record(address, tag, Struck::Opening);
                std::future::pending().await
            }
            Opening::SlowConnect(after) => tokio::time::sleep(after).await,
            Opening::AtOnce | Opening::SlowAccept(_) => {}
        }
        let mut stream = self.tcp.connect(address).await?;
        stream.write_all(&tag.to_bytes()).await?;
        Ok(stream)
    }
}

impl Transport for FaultTransport {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(self.dial(address))
    }
}

impl Observer for FaultTransport {
    fn wants(&self) -> Wants {
        Wants::CONNECTIONS
    }

    fn observe(&self, record: &Record) {
        if let (Subject::Connection(number), Event::AttemptStart { .. }) = (record.subject, &record.event) {
            self.dials.lock().unwrap().insert(tokio::task::id(), number);
        }
    }
}
