//! A network of one scripted server, and what several targets read their input by.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use speeddial::dns::{Answer, Family, Resolver, ResolverFuture, Source};
use speeddial::transport::{Connecting, Stream, Transport};
use speeddial::{Client, ClientBuilder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Runs `run` on a runtime whose time is paused.
pub(crate) fn block_on<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(run)
}

/// Splits input into its lines, in which `\r`, `\n` and `\0` are control characters.
pub(crate) fn lines(data: &[u8]) -> Vec<Vec<u8>> {
    data.split(|byte| *byte == b'\n').map(unescaped).collect()
}

fn unescaped(line: &[u8]) -> Vec<u8> {
    let mut bytes = line.iter().copied();
    let mut text = Vec::with_capacity(line.len());
    while let Some(byte) = bytes.next() {
        text.push(match (byte, byte == b'\\') {
            (_, true) => match bytes.next() {
                Some(b'r') => b'\r',
                Some(b'n') => b'\n',
                Some(b'0') => 0,
                Some(other) => other,
                None => byte,
            },
            (other, false) => other,
        });
    }
    text
}

/// Splits a line at the first `separator`. Without one, the second part is empty.
pub(crate) fn split(line: &[u8], separator: u8) -> (&[u8], &[u8]) {
    match line.iter().position(|byte| *byte == separator) {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &[]),
    }
}

/// A server at every address. It keeps the head of each request, and answers with the next of its responses.
#[derive(Clone, Default)]
pub(crate) struct Server(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    responses: Vec<Vec<u8>>,
    requests: Vec<Vec<u8>>,
}

/// The answer after the last one of the script.
const NO_CONTENT: &[u8] = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";

impl Server {
    pub(crate) fn new(responses: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut responses: Vec<_> = responses.into_iter().collect();
        responses.reverse();
        Self(Arc::new(Mutex::new(Script { responses, requests: Vec::new() })))
    }

    /// Returns the builder of a client for which every name leads to this server.
    pub(crate) fn client(&self) -> ClientBuilder {
        Client::builder().dns_resolver(Everywhere).transport(self.clone()).no_proxy().timeout(Duration::from_secs(5))
    }

    /// Returns all that was received, one for each connection.
    pub(crate) fn requests(&self) -> Vec<Vec<u8>> {
        self.0.lock().expect("no panic").requests.clone()
    }
}

impl Transport for Server {
    fn connect(&self, _: SocketAddr) -> Connecting<'_> {
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        let script = self.0.clone();
        tokio::spawn(async move {
            let number = {
                let mut script = script.lock().expect("no panic");
                script.requests.push(Vec::new());
                script.requests.len() - 1
            };
            let mut piece = [0; 4096];
            let mut received = Vec::new();
            while let Ok(count @ 1..) = far.read(&mut piece).await {
                received.extend_from_slice(&piece[..count]);
                let response = {
                    let mut script = script.lock().expect("no panic");
                    script.requests[number].clone_from(&received);
                    let is_whole = received.windows(4).any(|end| end == b"\r\n\r\n");
                    is_whole.then(|| script.responses.pop().unwrap_or_else(|| NO_CONTENT.to_vec()))
                };
                if let Some(response) = response {
                    let _ = far.write_all(&response).await;
                    break;
                }
            }
            // What comes after a request is kept as well.
            let _ = far.shutdown().await;
            while let Ok(count @ 1..) = far.read(&mut piece).await {
                script.lock().expect("no panic").requests[number].extend_from_slice(&piece[..count]);
            }
        });
        Box::pin(std::future::ready(Ok::<_, io::Error>(Box::new(near) as Box<dyn Stream>)))
    }
}

/// Every name has one address.
struct Everywhere;

impl Resolver for Everywhere {
    fn resolve<'a>(&'a self, _: &'a str, family: Family) -> ResolverFuture<'a> {
        let addresses = match family {
            Family::V4 => vec![IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))],
            _ => Vec::new(),
        };
        Box::pin(std::future::ready(Ok(Answer::new(addresses, Duration::from_secs(60), Source::Miss))))
    }
}

/// Returns the lines of a request's head. What is on the wire must be one request, and no line may hold another one.
pub(crate) fn head(received: &[u8]) -> Vec<Vec<u8>> {
    let end = received.windows(4).position(|end| end == b"\r\n\r\n").expect("a whole head");
    let mut rest = &received[..end];
    let mut lines = Vec::new();
    loop {
        let at = rest.windows(2).position(|end| end == b"\r\n");
        let line = &rest[..at.unwrap_or(rest.len())];
        assert!(!line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "a line break or NUL in {line:?}");
        assert!(!line.is_empty(), "an empty line within a head");
        lines.push(line.to_vec());
        match at {
            Some(at) => rest = &rest[at + 2..],
            None => return lines,
        }
    }
}

/// Returns true if `text` contains `part`.
pub(crate) fn contains(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && text.windows(part.len()).any(|window| window == part)
}
