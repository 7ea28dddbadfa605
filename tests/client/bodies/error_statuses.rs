//! Responses with an error status: the start of their bodies and the reason phrase, in errors.

use std::time::Duration;

use speeddial::{Client, ErrorKind, Version};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep};

use super::common::{URL, client_over, clients, request};
use support::full;
use support::http_server::HttpServer;
use support::scripted_net::ScriptedNet;

/// The head of a response with a body of 11 bytes.
const HEAD: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 11\r\n\r\n";

/// The parts of a response, each with the pause before it in milliseconds.
type Parts = &'static [(u64, &'static str)];

/// Returns a network whose server writes these parts, each after so many milliseconds, and then nothing more.
fn parts(parts: Parts) -> ScriptedNet {
    ScriptedNet::new(move |_, mut stream| async move {
        while request(&mut stream).await {
            for (pause, part) in parts {
                if *pause > 0 {
                    sleep(Duration::from_millis(*pause)).await;
                }
                if stream.write_all(part.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
}

/// Returns a client whose connection to the server is open already, so that calls take only the server's time.
async fn warm_client(net: &ScriptedNet) -> Client {
    let client = client_over(net);
    client.warm_up(URL, 1).await.unwrap();
    client
}

#[tokio::test(start_paused = true)]
async fn an_error_status_whose_body_never_comes_is_returned_at_once() {
    let client = warm_client(&parts(&[(0, HEAD)])).await;
    let start = Instant::now();
    let response = client.get(URL).send().await.unwrap();
    assert!(response.error_for_status_ref().unwrap_err().body_start().is_empty());
    let error = response.error_for_status().unwrap_err();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(
        (error.body_start(), error.to_string().as_str()),
        (&b""[..], "GET http://api.test/: status 404 Not Found")
    );
}

#[tokio::test(start_paused = true)]
async fn the_start_of_a_body_that_comes_with_the_head_is_in_the_error() {
    const WHOLE: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 11\r\n\r\nno such one";
    let client = warm_client(&parts(&[(0, WHOLE)])).await;
    let start = Instant::now();
    let response = client.get(URL).send().await.unwrap();
    let shown = "GET http://api.test/: status 404 Not Found, and the body begins with `no such one`";
    assert_eq!(response.error_for_status_ref().unwrap_err().to_string(), shown);
    assert_eq!(response.text().await.unwrap(), "no such one", "it can be read all the same");
    let error = client.get(URL).send().await.unwrap().error_for_status().unwrap_err();
    assert_eq!((error.body_start(), error.to_string().as_str()), (&b"no such one"[..], shown));
    let error = client.get(URL).send().await.unwrap().error_for_status_with_body().await.unwrap_err();
    assert_eq!((error.body_start(), start.elapsed()), (&b"no such one"[..], Duration::ZERO));
    let stats = client.pool_stats();
    assert_eq!((stats.opened, stats.idle), (1, 1), "the bodies were read to their ends");
}

#[tokio::test(start_paused = true)]
async fn the_start_of_a_body_that_has_come_by_the_time_of_the_check_is_in_the_error() {
    let client = warm_client(&parts(&[(0, HEAD), (30, "no such one")])).await;
    let response = client.get(URL).send().await.unwrap();
    sleep(Duration::from_millis(31)).await;
    assert_eq!(response.error_for_status().unwrap_err().body_start(), b"no such one");
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_body_that_was_read_in_part_is_not_shown_as_its_start() {
    let client = warm_client(&parts(&[(0, HEAD), (1, "no such"), (1, " one")])).await;
    for with_body in [false, true] {
        let mut response = client.get(URL).send().await.unwrap();
        assert_eq!(response.chunk().await.unwrap().unwrap(), "no such");
        sleep(Duration::from_millis(2)).await;
        let checked = if with_body { response.error_for_status_with_body().await } else { response.error_for_status() };
        assert!(checked.unwrap_err().body_start().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn the_start_of_a_late_body_is_waited_for_by_choice_and_not_for_long() {
    // The parts of the response, how long it takes, and what is shown.
    let cases: [(Parts, u128, &str); 4] = [
        (&[(0, HEAD), (300, "no such"), (300, " one")], 600, "no such one"),
        (&[(0, HEAD), (300, "no such")], 1_000, "no such"),
        (&[(0, HEAD)], 1_000, ""),
        (&[(0, HEAD), (300, "no such"), (900, " one")], 1_000, "no such"),
    ];
    for (script, takes, shown) in cases {
        let client = warm_client(&parts(script)).await;
        let response = client.get(URL).send().await.unwrap();
        let start = Instant::now();
        let error = response.error_for_status_with_body().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Status(http::StatusCode::NOT_FOUND), "{script:?}");
        assert_eq!((error.body_start(), start.elapsed().as_millis()), (shown.as_bytes(), takes), "{script:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_timeout_ends_the_wait_for_the_start_of_a_body_and_the_error_is_that_of_the_status() {
    let client = warm_client(&parts(&[(0, HEAD), (100, "no such")])).await;
    let response = client.get(URL).timeout(Duration::from_millis(200)).send().await.unwrap();
    let start = Instant::now();
    let error = response.error_for_status_with_body().await.unwrap_err();
    assert_eq!((error.body_start(), start.elapsed().as_millis()), (&b"no such"[..], 200));
    assert!(error.is_status() && !error.is_timeout());
}

#[tokio::test(start_paused = true)]
async fn a_late_read_of_an_error_body_is_not_taken_for_a_slow_server() {
    let client = warm_client(&parts(&[(0, HEAD), (400, "no such one")])).await;
    let response = client.get(URL).body_idle_timeout(Duration::from_millis(300)).send().await.unwrap();
    // The limit counts from the moment when the user waits for the body, not from the look at it in `send`.
    sleep(Duration::from_millis(350)).await;
    assert_eq!(response.text().await.unwrap(), "no such one");
}

#[tokio::test]
async fn an_error_for_a_status_keeps_the_start_of_the_body_over_both_protocols() {
    for (http2, client) in clients() {
        let server = HttpServer::start_as(http2, |request: hyper::Request<hyper::body::Incoming>| async move {
            let length: usize = request.uri().path()[1..].parse().unwrap();
            hyper::Response::builder().status(422).body(full("no such field; ".repeat(length))).unwrap()
        })
        .unwrap();
        let url = format!("http://{}", server.address());
        let get = async |length: usize| client.get(format!("{url}/{length}")).send().await.unwrap();
        assert!(get(1).await.error_for_status_ref().is_err());
        let error = get(1).await.error_for_status_with_body().await.unwrap_err();
        assert_eq!(error.body_start(), b"no such field; ");
        let expected =
            format!("GET {url}/1: status 422 Unprocessable Entity, and the body begins with `no such field; `");
        assert_eq!(error.to_string(), expected);
        let error = get(10_000).await.error_for_status_with_body().await.unwrap_err();
        assert_eq!(error.body_start().len(), 1_024);
        let empty = get(0).await.error_for_status_with_body().await.unwrap_err();
        assert_eq!(empty.body_start(), b"");
        // Reading the body itself still returns all of it.
        assert_eq!(get(100).await.text().await.unwrap().len(), 1_500);
        assert!(get(1).await.bytes_with_limit(15).await.is_ok());
    }
}

#[tokio::test]
async fn a_response_without_an_error_status_is_not_read_by_the_check() {
    let server = HttpServer::start(|_| async { hyper::Response::new(full("fine")) }).unwrap();
    let client = Client::builder().no_proxy().build().unwrap();
    let response = client.get(format!("http://{}/", server.address())).send().await.unwrap();
    let response = response.error_for_status().unwrap().error_for_status_with_body().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "fine");
}

#[tokio::test(start_paused = true)]
async fn the_reason_phrase_is_the_servers_own() {
    // The status line, the phrase, and the status in the error.
    let cases = [
        ("HTTP/1.1 404 Not Found", Some("Not Found"), "404 Not Found"),
        ("HTTP/1.1 404 No Such Order", Some("No Such Order"), "404 No Such Order"),
        ("HTTP/1.0 503 Slow\tDown", Some("Slow\tDown"), "503 Slow Down"),
        ("HTTP/1.1 599 Out Of Tea", Some("Out Of Tea"), "599 Out Of Tea"),
        ("HTTP/1.1 404 ", None, "404 Not Found"),
        ("HTTP/1.1 404", None, "404 Not Found"),
        ("HTTP/1.1 404 Caf\u{e9}", None, "404 Not Found"),
    ];
    for (status_line, phrase, shown) in cases {
        let net = ScriptedNet::new(move |_, mut stream| async move {
            request(&mut stream).await;
            stream.write_all(format!("{status_line}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await.unwrap();
        });
        let response = client_over(&net).get(URL).send().await.unwrap();
        assert_eq!(response.reason(), phrase, "{status_line}");
        let error = response.error_for_status().unwrap_err().to_string();
        assert_eq!(error, format!("GET http://api.test/: status {shown}"), "{status_line}");
    }
}

#[tokio::test]
async fn there_is_no_reason_phrase_over_http2() {
    for (http2, client) in clients() {
        let server = HttpServer::start_as(http2, |_| async { hyper::Response::new(full("fine")) }).unwrap();
        let response = client.get(format!("http://{}/", server.address())).send().await.unwrap();
        assert_eq!((response.version() == Version::HTTP_2, response.reason().is_none()), (http2, http2));
    }
}
