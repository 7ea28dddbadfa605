//! The progress of uploads and downloads, and responses that are sent on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use speeddial::{Body, Client, RetryPolicy};

use super::common::{Scratch, body_mirror, clients, pieces};
use support::full;
use support::http_server::HttpServer;

/// The calls of a callback.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Progress>>>);

/// The bytes so far, and the total.
type Progress = (u64, Option<u64>);

impl Told {
    fn callback(&self) -> impl FnMut(u64, Option<u64>) + Send + 'static {
        let told = self.0.clone();
        move |bytes, total| told.lock().unwrap().push((bytes, total))
    }

    fn take(&self) -> Vec<(u64, Option<u64>)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Checks that counts rise from one piece to the next, end at the length, and name this total.
fn assert_rises(told: &[(u64, Option<u64>)], length: u64, total: Option<u64>) {
    assert!(told.windows(2).all(|pair| pair[0].0 < pair[1].0), "{told:?}");
    assert!(told.iter().all(|(_, told)| *told == total), "{told:?}");
    assert_eq!(told.last().map(|(bytes, _)| *bytes), Some(length), "{told:?}");
}

const LENGTH: usize = 300_000;

#[tokio::test]
async fn the_progress_of_an_upload_rises_piece_by_piece_to_its_length() {
    let file = Scratch::new(vec![b'x'; LENGTH]);
    for (http2, client) in clients() {
        let server = body_mirror(http2);
        let url = format!("http://{}/", server.address());
        let piece = || Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; LENGTH / 3]));
        let bodies = [
            (Body::from(vec![b'x'; LENGTH]), true),
            (Body::file(file.path()).await.unwrap(), true),
            (Body::sized(LENGTH as u64, stream::iter([piece(), piece(), piece()])), true),
            (Body::wrap_stream(stream::iter([piece(), piece(), piece()])), false),
        ];
        for (body, is_known) in bodies {
            let told = Told::default();
            let body = body.on_progress(told.callback());
            let response = client.put(&url).body(body).send().await.unwrap();
            assert!(response.text().await.unwrap().len() > LENGTH);
            let told = told.take();
            assert_rises(&told, LENGTH as u64, is_known.then_some(LENGTH as u64));
            let steps = told.iter().scan(0, |last, (bytes, _)| Some(bytes - std::mem::replace(last, *bytes)));
            assert!(steps.max().unwrap() <= 64 * 1024, "{told:?}");
        }
        let told = Told::default();
        for body in [Body::default(), Body::sized(0, pieces(&[])), Body::wrap_stream(pieces(&["", ""]))] {
            client.put(&url).body(body.on_progress(told.callback())).send().await.unwrap();
        }
        assert_eq!(told.take(), [], "an empty body has no pieces");
    }
}

#[tokio::test]
async fn bytes_with_progress_stay_bytes() {
    let body = Body::from("hello").on_progress(|_, _| {});
    assert_eq!((body.as_bytes(), body.content_length()), (Some(&b"hello"[..]), Some(5)));
    assert!(body.try_clone().is_some());
    assert!(Body::wrap_stream(pieces(&["x"])).on_progress(|_, _| {}).try_clone().is_none());
}

#[tokio::test]
async fn the_progress_of_an_upload_that_is_sent_again_begins_at_0_again() {
    let busy = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let server = HttpServer::start(move |request: hyper::Request<hyper::body::Incoming>| {
        let busy = busy.clone();
        async move {
            let _ = request.into_body().collect().await;
            let status = if busy.swap(false, std::sync::atomic::Ordering::SeqCst) { 503 } else { 200 };
            hyper::Response::builder().status(status).body(full("")).unwrap()
        }
    })
    .unwrap();
    let retries = RetryPolicy::new().backoff(Duration::from_millis(1), Duration::from_millis(1));
    let client = Client::builder().no_proxy().retry(retries).build().unwrap();
    let told = Told::default();
    let body = Body::from("x".repeat(100_000)).on_progress(told.callback());
    let response = client.put(format!("http://{}/", server.address())).body(body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let total = Some(100_000);
    assert_eq!(told.take(), [(65_536, total), (100_000, total), (65_536, total), (100_000, total)]);
}

#[tokio::test]
async fn the_progress_of_clones_that_are_sent_at_once_is_that_of_the_last_one() {
    let told = Told::default();
    let first = Body::from(vec![b'x'; 3 * 65_536]).on_progress(told.callback());
    let second = first.try_clone().unwrap();
    let mut bodies = [first, second];
    for number in [0, 1, 0, 0, 1, 1] {
        bodies[number].frame().await.unwrap().unwrap();
    }
    let bytes: Vec<_> = told.take().into_iter().map(|(bytes, _)| bytes / 65_536).collect();
    assert_eq!(bytes, [1, 1, 2, 3]);
}

#[cfg(feature = "gzip")]
#[tokio::test]
async fn the_progress_of_a_compressed_download_behind_a_layer_counts_what_is_read() {
    let compressed = include_bytes!("x.gz");
    let server = HttpServer::start(move |_| async move {
        let response = hyper::Response::builder().header("content-encoding", "gzip");
        response.body(full(&compressed[..])).unwrap()
    })
    .unwrap();
    let client = Client::builder().no_proxy().layer(tower::layer::util::Identity::new()).build().unwrap();
    let told = Told::default();
    let response = client.get(format!("http://{}/", server.address())).send().await.unwrap();
    assert_eq!(response.on_progress(told.callback()).bytes().await.unwrap().len(), 100_000);
    assert_rises(&told.take(), 100_000, None);
}

#[tokio::test]
async fn a_callback_that_panics_fails_nothing() {
    for (http2, client) in clients() {
        let server = body_mirror(http2);
        let url = format!("http://{}/", server.address());
        let panics = |_, _| std::panic::resume_unwind(Box::new("a bug in a callback"));
        let body = Body::from("x".repeat(LENGTH)).on_progress(panics);
        let request = client.put(&url).body(body).send();
        let (answer, other) = tokio::join!(request, client.put(&url).body("x").send());
        let answer = answer.unwrap().on_progress(panics).text().await.unwrap();
        assert!(answer.ends_with("xxx ") && answer.len() > LENGTH, "{}", answer.len());
        assert!(other.unwrap().text().await.unwrap().ends_with(" x "));
        assert!(client.put(&url).body("x").send().await.is_ok());
        if http2 {
            assert_eq!(client.pool_stats().closed, 0, "the connection goes on");
        }
    }
}

/// Starts a server whose bodies have a length (`/sized`) or none.
fn download_server(http2: bool) -> HttpServer {
    HttpServer::start_as(http2, |request: hyper::Request<hyper::body::Incoming>| async move {
        if request.uri().path() == "/sized" {
            return hyper::Response::new(full(vec![b'x'; LENGTH]));
        }
        let pieces = (0..3).map(|_| Ok(Frame::data(Bytes::from(vec![b'x'; LENGTH / 3]))));
        hyper::Response::new(BodyExt::boxed(StreamBody::new(stream::iter(pieces))))
    })
    .unwrap()
}

#[tokio::test]
async fn the_progress_of_a_download_rises_to_its_length() {
    for (http2, client) in clients() {
        let server = download_server(http2);
        for (path, total) in [("sized", Some(LENGTH as u64)), ("endless", None)] {
            let url = format!("http://{}/{path}", server.address());
            let told = Told::default();
            let response = client.get(&url).send().await.unwrap().on_progress(told.callback());
            assert_eq!(response.bytes().await.unwrap().len(), LENGTH);
            assert_rises(&told.take(), LENGTH as u64, total);

            // The same as a message of the http crate.
            let response = client.get(&url).send().await.unwrap().on_progress(told.callback());
            let body = speeddial::http::Response::<Body>::from(response).into_body();
            assert_eq!(body.collect().await.unwrap().to_bytes().len(), LENGTH);
            assert_rises(&told.take(), LENGTH as u64, total);
        }
    }
}

#[cfg(feature = "gzip")]
#[tokio::test]
async fn the_progress_of_a_compressed_download_counts_what_is_sent() {
    // gzip of 100,000 times "x".
    let compressed = include_bytes!("x.gz");
    let server = HttpServer::start(move |_| async move {
        let response = hyper::Response::builder().header("content-encoding", "gzip");
        response.body(full(&compressed[..])).unwrap()
    })
    .unwrap();
    let client = Client::builder().no_proxy().build().unwrap();
    let told = Told::default();
    let response = client.get(format!("http://{}/", server.address())).send().await.unwrap();
    let response = response.on_progress(told.callback());
    assert_eq!(response.bytes().await.unwrap().len(), 100_000);
    let length = compressed.len() as u64;
    assert_rises(&told.take(), length, Some(length));
}

#[tokio::test]
async fn the_progress_of_a_body_that_a_layer_replaced_is_that_of_the_new_body() {
    let server = download_server(false);
    let layer = tower::util::MapResponseLayer::new(|response: speeddial::http::Response<Body>| {
        response.map(|_| Body::from("replaced"))
    });
    let client = Client::builder().no_proxy().layer(layer).build().unwrap();
    let told = Told::default();
    let response = client.get(format!("http://{}/sized", server.address())).send().await.unwrap();
    assert_eq!(response.on_progress(told.callback()).text().await.unwrap(), "replaced");
    assert_rises(&told.take(), 8, Some(8));
}

#[tokio::test]
async fn a_response_is_sent_on_as_the_body_of_a_request() {
    for (http2, client) in clients() {
        let (from, to) = (download_server(http2), body_mirror(http2));
        for (path, framing) in [("sized", LENGTH.to_string()), ("endless", "-".to_owned())] {
            let mut response = client.get(format!("http://{}/{path}", from.address())).send().await.unwrap();
            let body = Body::from(response);
            assert_eq!(body.content_length().map_or("-".to_owned(), |length| length.to_string()), framing);
            let answer = client.put(format!("http://{}/", to.address())).body(body).send().await.unwrap();
            let answer = answer.text().await.unwrap();
            assert!(answer.contains(&format!(" {framing} ")) && answer.len() > LENGTH, "{}", &answer[..40]);

            // A part of it may have been read.
            response = client.get(format!("http://{}/{path}", from.address())).send().await.unwrap();
            let read = response.chunk().await.unwrap().unwrap().len();
            let rest = Body::from(response);
            assert_eq!(rest.collect().await.unwrap().to_bytes().len(), LENGTH - read);
        }
    }
}
