//! A strict server, which shares no code with hyper: it takes requests over HTTP/1 and HTTP/2, with and without TLS and as a proxy, writes
//! down what was sent, and names what RFC 9112 and RFC 9113 forbid.
//!
//! The path of a request is `/id/version/step`. Requests are kept by `id`. `version` is that of the answers over HTTP/1, `v10` or `v11`, and
//! [`Step::parse`] has the steps.

mod h1;
mod h2;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use speeddial::tls::Certificate;
use support::certs::Authority;
use support::process::accepted;

/// A request as it came.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub framing: Framing,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    /// True if the request has come to its end, as its framing says.
    pub complete: bool,
    /// The address of the server to which the connection leads. `None` for one by a Unix domain socket.
    pub local: Option<IpAddr>,
    pub is_secure: bool,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, target, headers, framing, body, trailers, complete, local: _, is_secure } = self;
        let body = String::from_utf8_lossy(body);
        write!(
            f,
            "{method} {target} {headers:?} {framing:?} {body:?} {trailers:?} complete: {complete}, by TLS: {is_secure}"
        )
    }
}

impl Seen {
    /// Returns the values of a header.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str()).collect()
    }
}

/// The way in which the end of a request's content is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Framing {
    /// The request says nothing about content.
    #[default]
    None,
    Length(u64),
    Chunked,
    /// HTTP/2: the content ends with its stream.
    Frames,
}

/// What the server does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Response(Response),
    /// The connection closes when the head has come.
    Close,
}

/// A response.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// True if the length of the body is not told beforehand.
    pub is_unsized: bool,
    /// The time that the answer takes.
    pub after: Duration,
    pub is_http10: bool,
    /// The end of the answer over HTTP/2.
    pub end: StreamEnd,
}

/// The end of an answer over HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// END_STREAM is a flag of the last frame.
    Stream,
    Trailers,
    /// END_STREAM is a flag of a frame without content.
    EmptyData,
    /// RST_STREAM with this code.
    Reset(u32),
    /// A GOAWAY, and then the end as usual. Over HTTP/1 the connection closes after the answer, which does not say so.
    Goaway,
    /// The connection closes.
    Closes,
}

/// The server.
pub(crate) struct Strict {
    shared: Arc<Shared>,
    address: SocketAddr,
    unix: PathBuf,
    authority: Authority,
}

/// The parts of the server that its connections share.
pub(crate) struct Shared {
    requests: Mutex<HashMap<String, Vec<Seen>>>,
    violations: Mutex<Vec<String>>,
    steps: Mutex<HashMap<String, usize>>,
    /// The answers to requests with the step `given`, by id.
    given: Mutex<HashMap<String, Response>>,
    connections: AtomicUsize,
    tls: Arc<ServerConfig>,
}

trait Duplex: Read + Write + Send {}
impl<S: Read + Write + Send> Duplex for S {}

/// A connection: its number, and the address of the server to which it leads.
#[derive(Clone, Copy)]
struct Conn {
    number: usize,
    local: Option<IpAddr>,
    is_secure: bool,
}

/// A stream of which the first byte can be looked at.
struct Peeked(BufReader<Box<dyn Duplex>>);

impl Read for Peeked {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for Peeked {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

impl Strict {
    /// Starts a server on loopback and on a Unix domain socket in `directory`.
    pub(crate) fn start(directory: &Path) -> Self {
        let authority = Authority::new();
        let names = ["127.0.0.1", "origin.test"];
        let shared = Arc::new(Shared {
            requests: Mutex::default(),
            violations: Mutex::default(),
            steps: Mutex::default(),
            given: Mutex::default(),
            connections: AtomicUsize::new(0),
            tls: authority.server(&names, &["h2", "http/1.1"]),
        });
        let listeners = support::listeners_at_two_addresses();
        let address = listeners[0].local_addr().unwrap();
        for listener in listeners {
            let accepting = shared.clone();
            std::thread::spawn(move || {
                for socket in accepted(listener) {
                    let _ = socket.set_nodelay(true);
                    let _ = socket.set_read_timeout(Some(IDLE));
                    let local = socket.local_addr().ok().map(|address| address.ip());
                    accepting.clone().spawn(local, Box::new(socket));
                }
            });
        }
        let unix = directory.join("strict.sock");
        // A process that failed may have left one behind, and this one may have its number.
        let _ = std::fs::remove_file(&unix);
        let listener = UnixListener::bind(&unix).unwrap();
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let _ = socket.set_read_timeout(Some(IDLE));
                accepting.clone().spawn(None, Box::new(socket));
            }
        });
        Self { shared, address, unix, authority }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn unix(&self) -> &Path {
        &self.unix
    }

    /// Returns the certificate that a client of the server trusts.
    pub(crate) fn trusted(&self) -> Certificate {
        Certificate::from_pem(self.authority.pem().as_bytes()).unwrap()
    }

    /// Returns the requests with this id, in the order in which they began.
    pub(crate) fn seen(&self, id: &str) -> Vec<Seen> {
        self.shared.requests.lock().unwrap().get(id).cloned().unwrap_or_default()
    }

    /// Has the request with this id, and the step `given`, answered so.
    pub(crate) fn answer_with(&self, id: &str, response: Response) {
        self.shared.given.lock().unwrap().insert(id.to_owned(), response);
    }

    /// Returns what the client did against the rules so far, and forgets it.
    pub(crate) fn violations(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.violations.lock().unwrap())
    }
}

/// The longest time for which a connection waits for bytes. A busy machine may leave a connection alone for a minute.
const IDLE: Duration = Duration::from_secs(300);

impl Shared {
    fn spawn(self: Arc<Self>, local: Option<IpAddr>, stream: Box<dyn Duplex>) {
        let conn = Conn { number: self.connections.fetch_add(1, Ordering::Relaxed), local, is_secure: false };
        std::thread::spawn(move || drop(self.serve(conn, stream)));
    }

    /// Serves a connection, or what comes out of a tunnel on it.
    fn serve(&self, conn: Conn, stream: Box<dyn Duplex>) -> io::Result<()> {
        let mut stream = Peeked(BufReader::new(stream));
        if stream.0.fill_buf()?.first() != Some(&TLS_HANDSHAKE) {
            return h1::serve(self, conn, stream);
        }
        let conn = Conn { is_secure: true, ..conn };
        let mut session = ServerConnection::new(self.tls.clone()).unwrap();
        session.complete_io(&mut stream)?;
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        let mut stream: Box<dyn Duplex> = Box::new(StreamOwned::new(session, stream));
        if is_http2 {
            let mut preface = [0; h2::PREFACE.len()];
            stream.read_exact(&mut preface)?;
            if preface != *h2::PREFACE {
                self.violation(conn, "no preface");
            }
            return h2::serve(self, conn, &mut stream);
        }
        h1::serve(self, conn, Peeked(BufReader::new(stream)))
    }

    fn violation(&self, conn: Conn, what: impl fmt::Display) {
        self.violations.lock().unwrap().push(format!("connection {}: {what}", conn.number));
    }

    /// Keeps a request whose head has come, and returns its number among those with the same id.
    fn begin(&self, conn: Conn, seen: &mut Seen) -> (String, usize) {
        (seen.local, seen.is_secure) = (conn.local, conn.is_secure);
        let id = path(&seen.target).split('/').nth(1).unwrap_or_default().to_owned();
        let mut requests = self.requests.lock().unwrap();
        let of_id = requests.entry(id.clone()).or_default();
        of_id.push(seen.clone());
        (id, of_id.len() - 1)
    }

    /// Replaces what is known of a request.
    fn update(&self, (id, number): &(String, usize), seen: &Seen) {
        if let Some(known) = self.requests.lock().unwrap().get_mut(id) {
            known[*number] = seen.clone();
        }
    }

    /// Returns the answer to a request.
    fn answer(&self, seen: &Seen) -> Answer {
        let path = path(&seen.target);
        let mut parts = path.split('/').skip(1);
        let [id, version, step] = [(); 3].map(|()| parts.next().unwrap_or_default());
        let nth = {
            let mut steps = self.steps.lock().unwrap();
            let count = steps.entry(path.to_owned()).or_default();
            *count += 1;
            *count
        };
        let plain = Response {
            status: 200,
            headers: Vec::new(),
            body: b"ok".to_vec(),
            is_unsized: false,
            after: Duration::ZERO,
            is_http10: version == "v10",
            end: StreamEnd::Stream,
        };
        if step == "given" {
            return Answer::Response(self.given.lock().unwrap()[id].clone());
        }
        let onward = || vec![("location", format!("/{id}/{version}/plain"))];
        Answer::Response(match (step, nth) {
            ("301" | "303" | "307" | "308", _) => {
                Response { status: step.parse().unwrap(), headers: onward(), ..plain }
            }
            ("503", 1) => Response { status: 503, ..plain },
            ("401", _) if seen.values("authorization") != ["Bearer t1"] => {
                Response { status: 401, headers: vec![("www-authenticate", "Bearer".to_owned())], ..plain }
            }
            ("slow", 1) => Response { after: Duration::from_millis(300), ..plain },
            ("slowest", 1) => Response { after: Duration::from_millis(900), ..plain },
            // Long enough for a timer to end the call first, however late it is.
            ("longest", 1) => Response { after: Duration::from_secs(4), ..plain },
            ("restart", _) => Response { end: StreamEnd::Goaway, ..plain },
            ("drop", 1) => return Answer::Close,
            ("source", _) => Response { body: b"passed on".to_vec(), is_unsized: version != "v10", ..plain },
            _ => plain,
        })
    }
}

/// The first byte of a TLS record with a handshake message (RFC 8446 §5.1).
const TLS_HANDSHAKE: u8 = 22;

/// Returns the path of a target in whatever form.
fn path(target: &str) -> &str {
    let target = target.split('?').next().unwrap_or_default();
    let after_scheme = target.split_once("://").map_or(target, |(_, rest)| rest);
    if after_scheme == target {
        return target;
    }
    after_scheme.find('/').map_or("/", |slash| &after_scheme[slash..])
}
