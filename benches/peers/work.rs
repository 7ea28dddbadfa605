//! The rows of the tables (which requests, how many at a time), and the code that measures a row.

use std::time::Instant;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};

use super::{Ask, Clients, HAS_TLS, Header, Server, Setup, Took, name, thread_time, with};
use support::canned::HEADERS;
use support::process::set_descriptor_limit;

/// A row: the requests of a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) setup: Setup,
    pub(crate) kind: Kind,
    pub(crate) in_flight: usize,
    headers: &'static [Header],
    /// The length of the request's body.
    up: usize,
    /// The length of the response's body.
    down: usize,
    /// The requests of a round.
    pub(crate) requests: usize,
}

/// The state of the client when a round begins, and the way it makes the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A client that has made requests before.
    Warm,
    /// A new client makes all requests at once.
    ColdBurst,
    /// A client that has made all requests at once before does so again.
    WarmBurst,
    /// A new client makes requests to as many names as are in flight.
    Names,
}

const ONE: Setup = Setup { http2: false, secure: false, cold: false, no_tickets: false };
const TWO: Setup = Setup { http2: true, ..ONE };
const TLS: Setup = Setup { secure: true, ..ONE };
const TLS_TWO: Setup = Setup { secure: true, ..TWO };
const COLD: Setup = Setup { cold: true, ..ONE };
const COLD_TLS: Setup = Setup { cold: true, ..TLS };
const WHOLE_TLS: Setup = Setup { no_tickets: true, ..COLD_TLS };

const fn gets(name: &'static str, setup: Setup, in_flight: usize, requests: usize) -> Work {
    Work { name, setup, kind: Kind::Warm, in_flight, headers: &[], up: 0, down: 12, requests }
}

const fn megabytes(name: &'static str, setup: Setup) -> Work {
    Work { down: 1 << 20, ..gets(name, setup, 4, 300) }
}

const fn posts(name: &'static str, setup: Setup) -> Work {
    Work { up: 16 << 10, ..gets(name, setup, 64, 6_400) }
}

const WORK: [Work; 20] = [
    gets("HTTP/1.1, 1 in flight", ONE, 1, 4_000),
    gets("HTTP/1.1, 64 in flight", ONE, 64, 12_800),
    Work { headers: &HEADERS, ..gets("HTTP/1.1, eight headers, 64 in flight", ONE, 64, 12_800) },
    gets("HTTP/1.1, 1,000 in flight", ONE, 1_000, 12_000),
    posts("HTTP/1.1, POST of 16 KiB, 64 in flight", ONE),
    megabytes("HTTP/1.1, 1 MiB back, 4 in flight", ONE),
    gets("HTTP/1.1, TLS, 64 in flight", TLS, 64, 12_800),
    megabytes("HTTP/1.1, TLS, 1 MiB back, 4 in flight", TLS),
    gets("HTTP/2, 1 in flight", TWO, 1, 4_000),
    gets("HTTP/2, 64 in flight", TWO, 64, 12_800),
    gets("HTTP/2, 1,000 in flight", TWO, 1_000, 12_000),
    posts("HTTP/2, POST of 16 KiB, 64 in flight", TWO),
    megabytes("HTTP/2, 1 MiB back, 4 in flight", TWO),
    gets("HTTP/2, TLS, 64 in flight", TLS_TWO, 64, 12_800),
    gets("a connection each, 16 in flight", COLD, 16, 3_200),
    gets("a connection each, TLS resumed, 16 in flight", COLD_TLS, 16, 800),
    gets("a connection each, whole TLS handshakes, 16 in flight", WHOLE_TLS, 16, 480),
    Work { kind: Kind::ColdBurst, ..gets("3,000 at once, cold", ONE, 3_000, 3_000) },
    Work { kind: Kind::WarmBurst, ..gets("3,000 at once, warm", ONE, 3_000, 3_000) },
    Work { kind: Kind::Names, ..gets("200 names, 5 requests each", ONE, 200, 1_000) },
];

/// Returns the rows that can be measured on this machine, and prints those that cannot.
#[allow(clippy::print_stderr, reason = "skipped rows are printed")]
pub(crate) fn possible() -> impl Iterator<Item = Work> {
    let descriptors = set_descriptor_limit(16_384);
    WORK.into_iter().filter(move |work| {
        // A connection has two ends, and the sockets of the round before may still be open.
        let enough = 4 * work.in_flight as u64 + 100 <= descriptors;
        if !enough {
            eprintln!("!! SKIPPED: {}: {descriptors} descriptors are too few", work.name);
        }
        enough && (HAS_TLS || !work.setup.secure)
    })
}

/// A row with its server. Rounds run on the calling thread, the server runs on another one.
pub(crate) struct Bench {
    runtime: Runtime,
    server: Server,
    work: Work,
    /// The clients that all rounds share, if rounds share them.
    clients: Option<Clients>,
}

impl Work {
    /// Returns true if a request or a response is longer than the buffers of hyper and the kernel.
    pub(crate) fn is_large(&self) -> bool {
        self.up.max(self.down) > 1 << 16
    }
}

impl Bench {
    pub(crate) fn new(work: Work) -> Self {
        Self::of(work, Self::server(work))
    }

    /// Starts the server of a row.
    pub(crate) fn server(work: Work) -> Server {
        Server::start(work.setup, work.up, work.down)
    }

    /// Returns a row whose server has been started.
    pub(crate) fn of(work: Work, server: Server) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let clients = (work.kind == Kind::Warm).then(|| runtime.block_on(Clients::new(&server, work.setup)));
        Self { runtime, server, work, clients }
    }

    /// Makes the requests of a warm round with the client of number `number`. It reads no time: valgrind has no clock of the thread.
    pub(crate) fn requests(&self, number: usize, each: usize) {
        let clients = self.clients.as_ref().expect("a warm row");
        self.runtime.block_on(async { with!(number, clients, client => requests(client, self.work, each).await) });
    }

    /// Runs a round of the client of number `number`, with `each` requests per request in flight, and returns its time.
    pub(crate) fn round(&self, number: usize, each: usize) -> Took {
        let tasks = self.runtime.metrics();
        self.runtime.block_on(async {
            if let Some(clients) = &self.clients {
                return with!(number, clients, client => round(client, self.work, each).await);
            }
            let clients = Clients::new(&self.server, self.work.setup).await;
            let took = with!(number, clients, client => round(client, self.work, each).await);
            // The connections of this client must be closed before the next client is measured.
            drop(clients);
            while tasks.num_alive_tasks() > 0 {
                tokio::task::yield_now().await;
            }
            took
        })
    }
}

/// Makes the requests of a warm round, without measuring them.
async fn requests(client: impl Ask, work: Work, each: usize) {
    let body = Bytes::from(vec![b'x'; work.up]);
    join_all(vec![client; work.in_flight].into_iter().map(|client| share(client, each, work, body.clone()))).await;
}

/// Runs the requests of a round, shared among as many tasks as requests may be in flight.
///
/// In a warm row each task has made a request before.
async fn round(client: impl Ask, work: Work, each: usize) -> Took {
    let body = Bytes::from(vec![b'x'; work.up]);
    let share = |client, count| share(client, count, work, body.clone());
    let clients: Vec<_> = match work.kind {
        Kind::Names => (0..work.in_flight).map(|number| client.named(&name(number))).collect(),
        _ => vec![client; work.in_flight],
    };
    let clients = match work.kind {
        Kind::Warm | Kind::WarmBurst => join_all(clients.into_iter().map(|client| share(client, 1))).await,
        Kind::ColdBurst | Kind::Names => clients,
    };
    let cpu = thread_time();
    let start = Instant::now();
    join_all(clients.into_iter().map(|client| share(client, each))).await;
    Took { cpu: thread_time() - cpu, wall: start.elapsed() }
}

/// Makes the requests of one task and returns the client.
async fn share<A: Ask>(mut client: A, count: usize, work: Work, body: Bytes) -> A {
    for _ in 0..count {
        assert_eq!(client.ask(work.headers, body.clone()).await.expect("a response"), work.down);
    }
    client
}
