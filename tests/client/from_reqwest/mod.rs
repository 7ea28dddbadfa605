//! Lines of programs that use reqwest, compiled and run with reqwest and with speeddial: only the crate's name differs.
//!
//! Each file in `lines/` is about one subject. It is a module of `with_reqwest` and of `with_speeddial`, and finds the crate as
//! `super::http_client`.

use std::cell::Cell;
use std::future::poll_fn;

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use support::http_server::{HttpServer, ServerBody};
use support::{full, refusing};

#[allow(clippy::duplicate_mod, reason = "the same lines with another crate")]
#[path = "lines"]
mod with_reqwest {
    use reqwest as http_client;

    pub(super) mod bodies;
    pub(super) mod clients;
    pub(super) mod errors;
    pub(super) mod libraries;
    pub(super) mod policies;
    pub(super) mod requests;
    pub(super) mod responses;
    pub(super) mod tls;
}

#[allow(clippy::duplicate_mod, reason = "the same lines with another crate")]
#[allow(clippy::unnecessary_fallible_conversions, reason = "reqwest's can fail")]
#[path = "lines"]
mod with_speeddial {
    use speeddial as http_client;

    pub(super) mod bodies;
    pub(super) mod clients;
    pub(super) mod errors;
    pub(super) mod libraries;
    pub(super) mod policies;
    pub(super) mod requests;
    pub(super) mod responses;
    pub(super) mod tls;
}

/// A value as JSON, a form and a query.
#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Item {
    name: String,
    size: u32,
}

/// The lines that did what they should.
#[derive(Default)]
struct Lines(Cell<usize>);

impl Lines {
    /// Counts a line.
    #[track_caller]
    fn done(&self, is_right: bool) {
        assert!(is_right, "line {}", self.0.get() + 1);
        self.0.set(self.0.get() + 1);
    }

    /// Counts a line by its result.
    #[track_caller]
    fn is<T: PartialEq<U> + std::fmt::Debug, U: std::fmt::Debug>(&self, result: T, expected: U) {
        assert_eq!(result, expected, "line {}", self.0.get() + 1);
        self.0.set(self.0.get() + 1);
    }
}

/// The server that the lines talk to, and an address at which there is none.
struct Peers {
    server: HttpServer,
    /// The server's URL, with a slash at its end.
    url: String,
    /// A URL at which connections are refused.
    refused: String,
    _kept: tokio::net::TcpSocket,
}

impl Peers {
    fn start() -> Self {
        let server = HttpServer::start(answer).unwrap();
        let (kept, closed) = refusing();
        let url = format!("http://{}/", server.address());
        Self { server, url, refused: format!("http://{closed}/"), _kept: kept }
    }

    /// Returns the URL of a path.
    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }
}

/// The headers that the server's answer repeats.
const SHOWN: [&str; 8] = ["accept", "authorization", "cookie", "content-type", "referer", "user-agent", "x-a", "x-b"];

/// Answers with the request's method, target, some headers and body; some paths with something else.
async fn answer(mut request: hyper::Request<hyper::body::Incoming>) -> hyper::Response<ServerBody> {
    let path = request.uri().path().to_owned();
    let with = |name: &'static str, value: &'static str, body: &'static str| {
        hyper::Response::builder().header(name, value).body(full(body)).unwrap()
    };
    if path == "/upgrade" {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
            let mut ping = [0; 4];
            io.read_exact(&mut ping).await.unwrap();
            io.write_all(b"pong").await.unwrap();
            poll_fn(|cx| tokio::io::AsyncWrite::poll_shutdown(std::pin::Pin::new(&mut io), cx)).await.unwrap();
        });
        let head = hyper::Response::builder().status(101).header("connection", "upgrade").header("upgrade", "echo");
        return head.body(full("")).unwrap();
    }
    let (head, body) = request.into_parts();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    if let Some(status) = path.strip_prefix("/status/") {
        return hyper::Response::builder().status(status).body(full("sorry")).unwrap();
    }
    if let Some(left) = path.strip_prefix("/moved/").and_then(|left| left.parse::<u32>().ok()) {
        let to = if left <= 1 { "/".to_owned() } else { format!("/moved/{}", left - 1) };
        return hyper::Response::builder().status(302).header("location", to).body(full("")).unwrap();
    }
    match path.as_str() {
        "/never" => std::future::pending().await,
        "/json" => with("content-type", "application/json", r#"{"name":"x","size":3}"#),
        "/kept" => hyper::Response::builder().status(307).header("location", "/").body(full("")).unwrap(),
        "/latin" => {
            let head = hyper::Response::builder().header("content-type", "text/plain; charset=iso-8859-1");
            head.body(full(&b"caf\xe9"[..])).unwrap()
        }
        "/unmarked" => hyper::Response::new(full(&b"caf\xe9"[..])),
        "/cookie" => with("set-cookie", "session=1; Path=/; HttpOnly; Max-Age=60", "set"),
        "/gzip" => with("x-accepted", "none", "plain"),
        _ => {
            let mut named = String::new();
            for name in SHOWN {
                for value in head.headers.get_all(name) {
                    if value != "*/*" {
                        named += &format!("{name}: {}; ", value.to_str().unwrap());
                    }
                }
            }
            // The parts of a form are divided by a random text.
            let body = match body.split("\r\n").next() {
                Some(boundary) if boundary.starts_with("--") => {
                    named = named.replace(boundary.trim_start_matches("--"), "B");
                    body.replace(boundary.trim_start_matches("--"), "B").replace("\r\n", "|")
                }
                _ => body,
            };
            hyper::Response::new(full(format!("{} {} {named}{body}", head.method, head.uri)))
        }
    }
}

/// Runs the lines of one file with both crates.
macro_rules! both {
    ($test:ident, $subject:ident) => {
        #[tokio::test]
        async fn $test() {
            let (theirs, ours) = (Lines::default(), Lines::default());
            with_reqwest::$subject::run(&Peers::start(), &theirs).await.unwrap();
            with_speeddial::$subject::run(&Peers::start(), &ours).await.unwrap();
            let counts = [theirs.0.get(), ours.0.get(), with_speeddial::$subject::LINES];
            assert_eq!(counts, [with_reqwest::$subject::LINES; 3]);
        }
    };
}

both!(lines_about_requests_run_with_either_crate, requests);
both!(lines_about_responses_run_with_either_crate, responses);
both!(lines_about_bodies_run_with_either_crate, bodies);
both!(lines_about_clients_run_with_either_crate, clients);
both!(lines_about_policies_run_with_either_crate, policies);
both!(lines_about_errors_run_with_either_crate, errors);
both!(lines_about_tls_run_with_either_crate, tls);
both!(lines_of_libraries_run_with_either_crate, libraries);

/// The guide and `docs/reqwest.md` name this number.
#[test]
fn the_number_of_lines_is_that_of_the_documents() {
    use with_speeddial::{bodies, clients, errors, libraries, policies, requests, responses, tls};
    let lines = [
        requests::LINES,
        responses::LINES,
        bodies::LINES,
        clients::LINES,
        policies::LINES,
        errors::LINES,
        libraries::LINES,
        tls::LINES,
    ];
    let text = std::fs::read_to_string("../docs/reqwest.md").unwrap();
    assert!(text.contains(&format!("compiles and runs {} lines", lines.iter().sum::<usize>())), "{lines:?}");
}
