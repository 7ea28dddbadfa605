//! The kinds of errors, by which object_store and opendal decide about retries.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use ::object_store::client::{HttpErrorKind, HttpRequestBody, HttpService};
use ::opendal::{Buffer, ErrorKind, HttpTransport};
use http::Request;
use speeddial::{Client, PoolConfig};
use speeddial_object_store::Http as ObjectStore;
use speeddial_opendal::Http as OpenDal;

use super::{client, closed_port};

/// Calls `url` by both adapters. Returns the kind for object_store, and for opendal the kind and whether it is temporary.
async fn fail(client: &Client, url: &str) -> (HttpErrorKind, ErrorKind, bool) {
    let request = Request::get(url).body(HttpRequestBody::empty()).unwrap();
    let ours = match ObjectStore::new(client.clone()).call(request).await {
        Ok(response) => response.into_body().bytes().await.unwrap_err(),
        Err(error) => error,
    };
    let names_url = ours.to_string().contains(url) && url.starts_with("http:");
    assert!(!names_url, "object_store names the URL if it is not secret: {ours}");
    let request = Request::get(url).body(Buffer::new()).unwrap();
    let theirs = match OpenDal::new(client.clone()).fetch(request).await {
        Ok(response) => response.into_body().to_buffer().await.unwrap_err(),
        Err(error) => error,
    };
    (ours.kind(), theirs.kind(), theirs.is_temporary())
}

/// Starts a server that reads from each connection once, writes `answer`, and closes it.
fn answer_once(answer: &'static [u8]) -> String {
    serve(move |mut socket| {
        let _ = socket.read(&mut [0; 4096]);
        let _ = socket.write_all(answer);
    })
}

fn serve(each: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(each));
    url
}

#[tokio::test]
async fn a_refused_connection_is_an_error_of_connecting() {
    let failed = fail(&client().build().unwrap(), &closed_port()).await;
    assert_eq!(failed, (HttpErrorKind::Connect, ErrorKind::Unexpected, true));
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_an_error_of_connecting() {
    let names = speeddial::dns::FixedResolver::new();
    let client = client().dns_resolver(names).build().unwrap();
    let failed = fail(&client, "http://store.test/").await;
    assert_eq!(failed, (HttpErrorKind::Connect, ErrorKind::Unexpected, true));
}

#[tokio::test]
async fn a_connection_that_closes_without_a_response_is_interrupted() {
    let failed = fail(&client().build().unwrap(), &answer_once(b"")).await;
    assert_eq!(failed, (HttpErrorKind::Interrupted, ErrorKind::Unexpected, true));
}

#[tokio::test]
async fn a_body_that_breaks_off_is_interrupted() {
    let url = answer_once(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
    let failed = fail(&client().build().unwrap(), &url).await;
    assert_eq!(failed, (HttpErrorKind::Interrupted, ErrorKind::Unexpected, true));
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_not_retried() {
    let failed = fail(&client().build().unwrap(), &answer_once(b"220 mail.test ESMTP ready\r\n")).await;
    assert_eq!(failed, (HttpErrorKind::Decode, ErrorKind::Unexpected, false));
}

#[tokio::test]
async fn a_response_that_does_not_come_is_a_timeout() {
    let url = serve(|mut socket| drop(socket.read_to_end(&mut Vec::new())));
    let client = client().timeout(Duration::from_millis(50)).build().unwrap();
    assert_eq!(fail(&client, &url).await, (HttpErrorKind::Timeout, ErrorKind::Unexpected, true));
}

#[tokio::test]
async fn a_request_that_gets_no_connection_in_time_was_not_sent() {
    let url = serve(|mut socket| {
        let _ = socket.read(&mut [0; 4096]);
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let pool = PoolConfig::new().max_connections_per_host(1);
    let client = client().pool(pool).queue_timeout(Duration::from_millis(20)).build().unwrap();
    let _held = client.get(&url).send().await.unwrap();
    assert_eq!(fail(&client, &url).await, (HttpErrorKind::Request, ErrorKind::Unexpected, true));
}

#[tokio::test]
async fn what_would_fail_again_is_not_retried() {
    let client_for = |url: &str| (client().build().unwrap(), url.to_owned());
    let unknown = (HttpErrorKind::Unknown, ErrorKind::ConfigInvalid, false);
    let (plain, url) = client_for("ftp://store.test/");
    assert_eq!(fail(&plain, &url).await, unknown);
    let secure = client().https_only(true).build().unwrap();
    assert_eq!(fail(&secure, &closed_port()).await, unknown);

    let limited = client().max_body_size(3).build().unwrap();
    let url = answer_once(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfour");
    assert_eq!(fail(&limited, &url).await, (HttpErrorKind::Unknown, ErrorKind::Unexpected, false));

    let drained = client().build().unwrap();
    drained.drain().await;
    assert_eq!(fail(&drained, &closed_port()).await, (HttpErrorKind::Unknown, ErrorKind::Unexpected, false));
}
