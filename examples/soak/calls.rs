//! The calls of the mixed traffic, and the errors with which each of them may fail.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use speeddial::{Body, Client, ErrorKind, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::answers::{PIECE, PIECES, SMALL};
use crate::names;
use crate::world::Places;

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Get,
    GetHttp2,
    GetTlsHttp1,
    Post,
    Upload,
    Download,
    Redirect,
    Busy,
    Cancel,
    Abandon,
    Switch,
    Host,
}

/// The kinds of calls, each with its share in a hundred calls.
const SHARES: [(Kind, u32); 12] = [
    (Kind::Get, 24),
    (Kind::GetHttp2, 20),
    (Kind::GetTlsHttp1, 10),
    (Kind::Post, 10),
    (Kind::Upload, 6),
    (Kind::Download, 6),
    (Kind::Redirect, 6),
    (Kind::Busy, 4),
    (Kind::Cancel, 3),
    (Kind::Abandon, 3),
    (Kind::Switch, 2),
    (Kind::Host, 6),
];

/// The reason why a call has not succeeded.
pub(crate) enum Failure {
    /// The client's error.
    Error(speeddial::Error),
    /// The stream of another protocol broke.
    Stream(std::io::Error),
    /// The call succeeded with an answer that no server gave.
    Wrong(String),
}

impl From<speeddial::Error> for Failure {
    fn from(error: speeddial::Error) -> Self {
        Self::Error(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Stream(error)
    }
}

impl Failure {
    /// Returns the failure's kind as a word, and its text.
    pub(crate) fn shown(&self) -> (&'static str, String) {
        match self {
            Self::Error(error) => {
                let word = if error.is_timeout() { "timeout" } else { error.kind().as_str() };
                let timings = error.timings().map(|timings| format!(" ({timings})")).unwrap_or_default();
                (word, format!("{error:#}{timings}"))
            }
            Self::Stream(error) => ("stream", error.to_string()),
            Self::Wrong(text) => ("wrong answer", text.clone()),
        }
    }
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; SHARES.len()] = {
        let mut all = [Self::Get; SHARES.len()];
        let mut index = 0;
        while index < SHARES.len() {
            all[index] = SHARES[index].0;
            index += 1;
        }
        all
    };

    /// Chooses a kind of call.
    pub(crate) fn choose(random: &mut fastrand::Rng) -> Self {
        let mut left = random.u32(..100);
        for (kind, share) in SHARES {
            if left < share {
                return kind;
            }
            left -= share;
        }
        Self::Get
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET, HTTP/1.1",
            Self::GetHttp2 => "GET, HTTP/2 over TLS",
            Self::GetTlsHttp1 => "GET, HTTP/1.1 over TLS",
            Self::Post => "POST",
            Self::Upload => "streamed upload",
            Self::Download => "streamed download",
            Self::Redirect => "redirect",
            Self::Busy => "retry after a 503",
            Self::Cancel => "call that is cancelled",
            Self::Abandon => "body that is not read",
            Self::Switch => "upgrade",
            Self::Host => "GET to a host that comes and goes",
        }
    }

    /// Returns true if the call may fail so.
    ///
    /// What is cut while a server acts on it is not sent again unless it is idempotent, and cannot be if it is a stream. Bodies are
    /// cut as well. A host that comes and goes has one address, or no name, and its name is not known yet when DNS fails.
    pub(crate) fn may_fail(self, failure: &Failure) -> bool {
        let kind = match failure {
            Failure::Error(error) => error.kind(),
            Failure::Stream(_) => return self == Self::Switch,
            Failure::Wrong(_) => return false,
        };
        match self {
            Self::Post | Self::Upload | Self::Switch => matches!(kind, ErrorKind::Exchange | ErrorKind::Body),
            Self::Download => kind == ErrorKind::Body,
            Self::Host => matches!(kind, ErrorKind::Resolve | ErrorKind::Connect | ErrorKind::Exchange),
            _ => false,
        }
    }
}

/// A call that is to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    /// The number of the host, of those that come and go.
    pub(crate) host: u64,
    /// A number that decides the rest, such as the length of a body.
    pub(crate) dice: u64,
}

impl Call {
    /// Makes the call.
    pub(crate) async fn make(self, client: &Client, places: &Places) -> Result<(), Failure> {
        let plain = format!("http://plain.soak.test:{}", places.plain);
        let tls = format!("https://tls.soak.test:{}", places.tls);
        let tls1 = format!("https://old.soak.test:{}", places.tls1);
        let either = if self.dice.is_multiple_of(2) { &plain } else { &tls };
        match self.kind {
            Kind::Get => get_small(client, &plain).await,
            Kind::GetHttp2 => get_small(client, &tls).await,
            Kind::GetTlsHttp1 => get_small(client, &tls1).await,
            Kind::Host => get_small(client, &format!("http://{}:{}", names::host(self.host), places.plain)).await,
            Kind::Post => post(client, either, (self.dice % 65_536) as usize).await,
            Kind::Upload => upload(client, either).await,
            Kind::Download => download(client, either).await,
            Kind::Redirect => {
                let to = client.get(format!("{plain}/redirect")).header("x-to", format!("{tls}/small"));
                is_small(to.send().await?.text().await?)
            }
            Kind::Busy => {
                let response = client.get(format!("{either}/busy")).send().await?;
                if response.status() == StatusCode::SERVICE_UNAVAILABLE {
                    return Ok(()); // each of its attempts met one, or the budget of retries was spent
                }
                is_small(response.text().await?)
            }
            Kind::Cancel => {
                let time = Duration::from_millis(self.dice % 50);
                let call = client.get(format!("{either}/slow")).send();
                if let Ok(answer) = tokio::time::timeout(time, call).await {
                    answer?;
                }
                Ok(())
            }
            Kind::Abandon => {
                client.get(format!("{either}/big")).send().await?;
                Ok(())
            }
            Kind::Switch => switch(client, &plain).await,
        }
    }
}

fn is_small(text: String) -> Result<(), Failure> {
    if text == SMALL { Ok(()) } else { Err(Failure::Wrong(text)) }
}

async fn get_small(client: &Client, origin: &str) -> Result<(), Failure> {
    is_small(client.get(format!("{origin}/small")).send().await?.text().await?)
}

async fn post(client: &Client, origin: &str, length: usize) -> Result<(), Failure> {
    let sent = Bytes::from(vec![b'x'; length]);
    let response = client.post(format!("{origin}/echo")).body(sent.clone()).send().await?;
    // The server says so of a body that was cut.
    let status = response.status();
    let received = response.bytes().await?;
    if received == sent {
        Ok(())
    } else {
        Err(Failure::Wrong(format!("{status}, {} bytes of {length}", received.len())))
    }
}

async fn upload(client: &Client, origin: &str) -> Result<(), Failure> {
    let pieces = (0..PIECES).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(&[b'.'; PIECE])));
    let body = Body::wrap_stream(stream::iter(pieces));
    let text = client.put(format!("{origin}/count")).body(body).send().await?.text().await?;
    if text == (PIECE * PIECES).to_string() { Ok(()) } else { Err(Failure::Wrong(text)) }
}

async fn download(client: &Client, origin: &str) -> Result<(), Failure> {
    let mut response = client.get(format!("{origin}/big")).send().await?;
    let mut length = 0;
    while let Some(chunk) = response.chunk().await? {
        length += chunk.len();
    }
    if length == PIECE * PIECES { Ok(()) } else { Err(Failure::Wrong(format!("{length} bytes"))) }
}

/// Switches to another protocol, and has something sent back.
async fn switch(client: &Client, origin: &str) -> Result<(), Failure> {
    let request = client.get(format!("{origin}/switch")).header("connection", "upgrade").header("upgrade", "echo");
    let mut stream = request.send().await?.upgrade().await?;
    stream.write_all(b"hello").await?;
    stream.flush().await?;
    let mut received = [0; 5];
    stream.read_exact(&mut received).await?;
    stream.shutdown().await?;
    if received == *b"hello" { Ok(()) } else { Err(Failure::Wrong(String::from_utf8_lossy(&received).into_owned())) }
}
