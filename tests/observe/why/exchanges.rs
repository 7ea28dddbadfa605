//! Causes in the exchange: the request, the wait for the server, the response.

use std::convert::Infallible;

use futures_util::StreamExt;
use speeddial::Body;
use speeddial::trace::{Cause, Timings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

use super::common::{Act, URL, assert_why, get, ms, over, server, timings_of};
use support::fake_net::{FakeNet, Host};
use support::scripted_net::ScriptedNet;
use support::{read_request_head, v4};

/// Reads a whole upload of `length` bytes, each 16 KiB after `pause` milliseconds, and answers.
fn upload_server(length: usize, pause: u64) -> ScriptedNet {
    ScriptedNet::new(move |_, mut stream| async move {
        while read_request_head(&mut stream).await.is_some() {
            let mut piece = vec![0; 16_384];
            for _ in 0..length / piece.len() {
                sleep(ms(pause)).await;
                stream.read_exact(&mut piece).await.unwrap();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        }
    })
}

const LENGTH: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn send_slow() {
    let client = over(upload_server(LENGTH, 10)).build().unwrap();
    let length = [("content-length", LENGTH.to_string())];
    let request = client.post(URL).header(length[0].0, &length[0].1).body(vec![0; LENGTH]);
    assert_why(
        &timings_of(request).await,
        &[Cause::SendSlow, Cause::ServerSlow],
        "The server took 480 ms of 650 ms to take 1.0 MB of the request, 2.2 MB/s. The server took 160 ms of 650 ms to \
         answer.",
    );
}

#[tokio::test(start_paused = true)]
async fn request_body_late() {
    let client = over(upload_server(LENGTH, 0)).build().unwrap();
    let pieces = futures_util::stream::iter(0..16).then(|_| async {
        sleep(ms(20)).await;
        Ok::<_, Infallible>(vec![0; LENGTH / 16])
    });
    let request = client.post(URL).header("content-length", LENGTH).body(Body::wrap_stream(pieces));
    assert_why(
        &timings_of(request).await,
        &[Cause::RequestBodyLate],
        "The program took 320 ms of 330 ms to provide the request's body; have the body ready before the request is \
         sent.",
    );
}

#[tokio::test(start_paused = true)]
async fn server_slow() {
    let client = over(server(|_| Act::ok(200))).build().unwrap();
    assert_why(&get(&client).await, &[Cause::ServerSlow], "The server took 200 ms of 210 ms to answer.");
}

#[tokio::test(start_paused = true)]
async fn no_answer() {
    let client = over(server(|_| Act::ok(20_000))).timeout(ms(210)).build().unwrap();
    assert_why(
        &get(&client).await,
        &[Cause::NoAnswer],
        "200 ms of 210 ms were spent waiting for an answer that had not come.",
    );
}

#[tokio::test(start_paused = true)]
async fn server_timing() {
    const PARTS: &str =
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nserver-timing: cache;desc=miss, db;dur=380, app;dur=12\r\n\r\nok";
    let client = over(server(|_| Act::new(400, PARTS))).build().unwrap();
    assert_why(
        &get(&client).await,
        &[Cause::ServerSlow, Cause::ServerTiming],
        "The server took 400 ms of 410 ms to answer. The server says db took 380 ms.",
    );
}

#[tokio::test(start_paused = true)]
async fn body_slow() {
    let net = FakeNet::new([(v4(1), Host::Serves { connect: 10, think: 10, body: 200 })]);
    assert_why(
        &get(&over(net).build().unwrap()).await,
        &[Cause::BodySlow],
        "The response took 200 ms of 220 ms to arrive (5 B).",
    );
}

#[tokio::test(start_paused = true)]
async fn reader_slow() {
    let client = over(server(|_| Act::ok(10))).build().unwrap();
    let response = client.get(URL).send().await.unwrap();
    let handle = response.timings_handle();
    sleep(ms(300)).await;
    response.bytes().await.unwrap();
    let timings: Timings = handle.timings();
    assert_why(
        &timings,
        &[Cause::ReaderSlow],
        "The program took 300 ms of 320 ms to read the response's body; read the body as soon as the response is \
         there.",
    );
}
