//! Files as bodies: sent with their length, and read anew for each attempt.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;
use speeddial::{Body, Client, ErrorKind, RetryPolicy};
use tokio::sync::mpsc;

use super::common::{Scratch, body_mirror, clients};
use support::full;
use support::http_server::HttpServer;
use support::scripted_peer::{ScriptedPeer, read_head};

/// Returns bytes that differ from place to place.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 251 + at) as u8).collect()
}

/// Returns the body of a file, by its path and by a handle.
async fn both(path: &Path) -> [Body; 2] {
    [Body::file(path).await.unwrap(), tokio::fs::File::open(path).await.unwrap().into()]
}

/// The requests of a server: their path, announced length, and body.
type Seen = Arc<Mutex<Vec<(String, Option<u64>, Vec<u8>)>>>;

/// Starts a server that records requests. It redirects from `/moved` (307) and `/gone` (308) to `/`, and calls `first`
/// with the path before it answers.
fn recording_server(
    http2: bool,
    seen: Seen,
    first: impl Fn(&str) -> u16 + Clone + Send + Sync + 'static,
) -> HttpServer {
    HttpServer::start_as(http2, move |request: hyper::Request<hyper::body::Incoming>| {
        let (seen, first) = (seen.clone(), first.clone());
        async move {
            let (head, body) = request.into_parts();
            let length = head.headers.get("content-length").map(|length| length.to_str().unwrap().parse().unwrap());
            let path = head.uri.path().to_owned();
            let body = body.collect().await.map(|all| all.to_bytes().to_vec()).unwrap_or_default();
            let status = first(&path);
            seen.lock().unwrap().push((path, length, body));
            hyper::Response::builder().status(status).header("location", "/").body(full("")).unwrap()
        }
    })
    .unwrap()
}

#[tokio::test]
async fn files_are_sent_with_their_length() {
    for (http2, client) in clients() {
        let server = body_mirror(http2);
        let url = format!("http://{}/", server.address());
        let version = if http2 { "HTTP/2.0" } else { "HTTP/1.1" };
        for length in [0, 1, 65_536, 131_072, 131_073, 1_000_000] {
            let text = "x".repeat(length);
            let file = Scratch::new(&text);
            for body in both(file.path()).await {
                let answer = client.put(&url).body(body).send().await.unwrap().text().await.unwrap();
                assert_eq!(answer, format!("{version} {length} - {text} "));
            }
        }
        assert_eq!(server.connections(), 1);
    }
}

#[tokio::test]
async fn a_file_survives_redirects_and_retries() {
    for http2 in [false, true] {
        let content = content(700_000);
        let file = Scratch::new(&content);
        let seen = Seen::default();
        let busy = Arc::new(AtomicUsize::new(0));
        let server = recording_server(http2, seen.clone(), move |path| match path {
            "/moved" => 307,
            "/gone" => 308,
            _ if busy.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) => 503,
            _ => 200,
        });
        let retries = RetryPolicy::new().backoff(Duration::from_millis(1), Duration::from_millis(1));
        let builder = Client::builder().no_proxy().retry(retries);
        let client = if http2 { builder.http2_prior_knowledge().build().unwrap() } else { builder.build().unwrap() };
        for path in ["/moved", "/gone"] {
            for body in both(file.path()).await {
                let url = format!("http://{}{path}", server.address());
                let response = client.put(url).body(body).send().await.unwrap();
                assert_eq!((response.status().as_u16(), response.redirects().len()), (200, 1));
                let seen = std::mem::take(&mut *seen.lock().unwrap());
                assert_eq!(seen.iter().map(|(path, ..)| path.as_str()).collect::<Vec<_>>(), [path, "/", "/"]);
                assert!(seen.iter().all(|(_, length, body)| *length == Some(700_000) && *body == content));
            }
        }
    }
}

#[tokio::test]
async fn a_file_is_resent_when_a_kept_connection_closes() {
    let content = content(300_000);
    let expected = content.clone();
    let (whole, mut bodies) = mpsc::unbounded_channel();
    // Each connection answers its first request, reads the head of the second one and a part of its body, and closes.
    let peer = ScriptedPeer::start(move |_, mut socket| {
        let mut body = vec![0; 300_000];
        if read_head(&mut socket) && socket.read_exact(&mut body).is_ok() {
            let _ = whole.send(body.clone());
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
        if read_head(&mut socket) {
            let _ = socket.read_exact(&mut body);
        }
    });
    let client = Client::builder().no_proxy().build().unwrap();
    let file = Scratch::new(&content);
    let put = async |body: Body| client.put(peer.url()).body(body).send().await.unwrap().text().await.unwrap();
    let [by_path, open] = both(file.path()).await;
    for body in [by_path.try_clone().unwrap(), by_path, open] {
        assert_eq!(put(body).await, "ok");
        assert_eq!(bodies.recv().await.unwrap(), expected);
    }
    assert_eq!(peer.connections(), 3, "the second and the third one were resent");
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_sent_fails_the_request() {
    const LENGTH: usize = 64 << 20;
    let file = Scratch::sparse(LENGTH as u64);
    let path = file.path().to_owned();
    // More than the buffers of sockets hold is left to be sent when the file shrinks.
    let peer = ScriptedPeer::start(move |_, mut socket| {
        if read_head(&mut socket) {
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5).unwrap();
            let _ = std::io::copy(&mut socket, &mut std::io::sink());
        }
    });
    let client = Client::builder().no_proxy().build().unwrap();
    let error = client.put(peer.url()).body(Body::file(file.path()).await.unwrap()).send().await.unwrap_err();
    let text = format!("{error:#}");
    let expected = format!("{} has shrunk: it has 5 of the announced {LENGTH} bytes", file.path().display());
    assert_eq!(error.kind(), ErrorKind::Exchange);
    assert!(text.ends_with(&expected), "{text}");
}

#[tokio::test]
async fn a_file_that_is_gone_when_it_is_sent_again_is_named_and_not_retried() {
    for http2 in [false, true] {
        let file = Scratch::new("content");
        let path = file.path().to_owned();
        let removed = path.clone();
        let seen = Seen::default();
        let server = recording_server(http2, seen.clone(), move |_| {
            let _ = std::fs::remove_file(&removed);
            307
        });
        let retries = RetryPolicy::new().backoff(Duration::from_secs(3_600), Duration::from_secs(3_600));
        let builder = Client::builder().no_proxy().retry(retries);
        let client = if http2 { builder.http2_prior_knowledge().build().unwrap() } else { builder.build().unwrap() };
        let url = format!("http://{}/moved", server.address());
        let error = client.put(&url).body(Body::file(&path).await.unwrap()).send().await.unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.contains(&format!("the body of the request failed: {} cannot be opened: ", path.display())),
            "{text}"
        );
        let body = Body::file(&path).await;
        assert_eq!(body.unwrap_err().kind(), std::io::ErrorKind::NotFound);
        // The client goes on.
        assert!(client.get(&url).send().await.is_err_and(|error| error.is_redirect()));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_replaced_between_attempts_is_not_sent_cut_off() {
    for (http2, client) in clients() {
        let file = Scratch::new("v1");
        let (path, next) = (file.path().to_owned(), file.path().with_extension("next"));
        std::fs::write(&next, "version 2").unwrap();
        let seen = Seen::default();
        let server = recording_server(http2, seen.clone(), move |_| {
            std::fs::rename(&next, &path).unwrap();
            307
        });
        let url = format!("http://{}/moved", server.address());
        let error = client.put(&url).body(Body::file(file.path()).await.unwrap()).send().await.unwrap_err();
        let expected = format!("{} was replaced after the body was created", file.path().display());
        assert!(format!("{error:#}").ends_with(&expected), "{error:#}");
        assert_eq!(seen.lock().unwrap()[0].2, b"v1");
    }
}

/// Returns the number of open handles on a file.
#[cfg(target_os = "linux")]
fn handles(path: &PathBuf) -> usize {
    let open =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    open.filter(|target| target == path).count()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_upload_that_is_cancelled_at_any_piece_leaves_no_file_open() {
    let file = Scratch::new(content(400_000));
    let path = file.path().canonicalize().unwrap();
    let open = std::fs::File::open(&path).unwrap();
    assert_eq!(handles(&path), 1);
    drop(open);
    for (http2, client) in clients() {
        let server = HttpServer::start_as(http2, |request: hyper::Request<hyper::body::Incoming>| async move {
            let _ = request.into_body().collect().await;
            std::future::pending().await
        })
        .unwrap();
        for last in 0..8 {
            let (sent, mut pieces) = mpsc::unbounded_channel();
            let body = Body::file(&path).await.unwrap().on_progress(move |bytes, _| {
                let _ = sent.send(bytes);
            });
            let call = tokio::spawn(client.put(format!("http://{}/", server.address())).body(body).send());
            for _ in 0..last {
                // HTTP/2 may have no window for the last pieces.
                if pieces.recv().await.is_none_or(|bytes| bytes == 400_000) {
                    break;
                }
            }
            call.abort();
            assert!(call.await.is_err_and(|error| error.is_cancelled()));
            // A read that was under way ends in a thread of its own.
            let closed = async {
                while handles(&path) > 0 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), closed).await.expect("the file is closed");
        }
    }
}
