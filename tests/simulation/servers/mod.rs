//! Servers of HTTP/1.0, HTTP/1.1 and HTTP/2, with TLS or without, that do what a path says and what the world has in store for them.

mod h1;
mod h2;
pub(crate) mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::net::End;
use crate::outside::{Outside, Owner, Request, current};
use crate::plan::Protocol;

pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// A server's side of a connection.
#[derive(Clone)]
pub(crate) struct Side {
    pub(crate) outside: Arc<Outside>,
    pub(crate) conn: usize,
    pub(crate) owner: Owner,
    pub(crate) address: SocketAddr,
}

/// The head of a request as it came.
pub(crate) struct Head {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) authority: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

/// What a server does with a request.
pub(crate) struct Script {
    pub(crate) interims: u32,
    pub(crate) after: Duration,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
    /// The connection closes in place of a response.
    pub(crate) loses: bool,
    /// The connection breaks in the middle of the body.
    pub(crate) dies: bool,
    pub(crate) ends_late: bool,
    /// The connection closes after it, and says so.
    pub(crate) is_last: bool,
}

/// Returns the bytes that belong to a call.
pub(crate) fn content(call: u64, length: usize) -> Bytes {
    (0..length).map(|at| (call.wrapping_mul(31).wrapping_add(at as u64 * 7) & 0xff) as u8).collect()
}

/// Serves a connection until it ends.
pub(crate) async fn serve(
    outside: &Arc<Outside>,
    conn: usize,
    owner: Owner,
    address: SocketAddr,
    stream: End,
) -> io::Result<()> {
    let side = Side { outside: outside.clone(), conn, owner, address };
    let protocol = outside.protocol(owner);
    if address.port() != 443 {
        return match protocol {
            Protocol::Http2 => h2::serve(side, stream).await,
            _ => h1::serve(side, Box::new(stream)).await,
        };
    }
    let is_renewed = outside.state().is_renewed;
    let stream = outside.tls.accept(is_renewed, protocol == Protocol::Http2, stream).await?;
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => h2::serve(side, stream).await,
        _ => h1::serve(side, Box::new(stream)).await,
    }
}

impl Side {
    /// Writes a request down. Returns its number.
    fn begin(&self, head: &Head) -> usize {
        let now = self.outside.now();
        let mut state = self.outside.state();
        let conn = &mut state.conns[self.conn];
        let idle = conn.idle_since.filter(|_| conn.open_streams == 0).map(|since| now - since);
        conn.open_streams += 1;
        conn.requests += 1;
        conn.idle_since = None;
        let (age, client) = (now - conn.opened, conn.client);
        let number = state.requests.len();
        let call = head.values("x-call").next().and_then(|call| call.parse().ok());
        state.requests.push(Request {
            at: now,
            owner: self.owner,
            address: self.address,
            client,
            call,
            target: head.target.clone(),
            secret: head.values("authorization").next().map(str::to_owned),
            cookies: head.values("cookie").map(str::to_owned).collect(),
            idle,
            age,
            processed: false,
            content: None,
            status: None,
        });
        drop(state);
        self.outside.tell(
            self.owner.host(),
            format_args!("request {call:?} {} {}{} on {}", head.method, head.authority, head.target, self.conn),
        );
        number
    }

    /// Decides on the response to a request whose content has come.
    fn decide(&self, number: usize, head: &Head, content: Option<(u64, bool)>) -> Script {
        let now = self.outside.now();
        let mut state = self.outside.state();
        let request = &mut state.requests[number];
        request.content = content;
        let conn_requests = state.conns[self.conn].requests;
        let machine = state.machines.get_mut(&self.address.ip()).unwrap();
        machine.served += 1;
        let refusal = current(machine.status, now);
        let slow = current(machine.slow, now).unwrap_or_default();
        let dies = current(machine.dies, now).is_some_and(|every| machine.served.is_multiple_of(every.into()));
        let loses = current(machine.loses, now).is_some_and(|every| machine.served.is_multiple_of(every.into()));
        let says_timeout_0 = std::mem::take(&mut machine.says_timeout_0);
        let interims = std::mem::take(&mut machine.interims);
        let host = self.owner.host().map(|host| &self.outside.plan.hosts[host]);
        let mut parts = head.target.split('/').skip(1);
        let [kind, call, amount] = [(); 3].map(|()| parts.next().unwrap_or_default());
        let call = call.parse().unwrap_or_default();
        let amount: u64 = amount.split('?').next().unwrap_or_default().parse().unwrap_or(5);
        let mut script = Script {
            interims,
            after: host.map_or(Duration::ZERO, |host| host.think) + slow,
            status: 200,
            headers: Vec::new(),
            body: Bytes::new(),
            loses,
            dies,
            ends_late: host.is_some_and(|host| host.ends_late),
            is_last: host.is_some_and(|host| conn_requests >= host.max_requests),
        };
        if let Some(host) = host {
            if says_timeout_0 {
                script.headers.push(("keep-alive", "timeout=0".to_owned()));
                script.is_last = true;
            } else if host.says_keep_alive && host.protocol != Protocol::Http2 {
                script.headers.push(("keep-alive", format!("timeout={}", host.keep_alive.as_secs())));
            }
        }
        if let Some(status) = refusal {
            script.status = status;
        } else {
            match kind {
                "slow" => script.after += Duration::from_millis(amount),
                "cookie" => script.headers.push(("set-cookie", format!("session=of{call}; Path=/"))),
                _ => {}
            }
            script.body = self::content(call, if kind == "slow" { 5 } else { amount as usize });
            let request = &mut state.requests[number];
            request.processed = content.is_none_or(|(_, is_whole)| is_whole);
        }
        state.requests[number].status = Some(script.status);
        script
    }

    /// Notes the end of a response.
    fn end(&self) {
        let now = self.outside.now();
        let mut state = self.outside.state();
        let conn = &mut state.conns[self.conn];
        conn.open_streams -= 1;
        if conn.open_streams == 0 {
            conn.idle_since = Some(now);
        }
    }

    fn keep_alive(&self) -> Duration {
        self.owner.host().map_or(Duration::from_secs(60), |host| self.outside.plan.hosts[host].keep_alive)
    }

    /// Completes when the server begins to restart.
    async fn restarted(&self) {
        let restart = self.outside.state().conns[self.conn].restart.clone();
        restart.notified().await;
    }
}
