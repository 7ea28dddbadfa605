//! Calls that are given up in the middle: whose doing it is that their connections close.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use futures_util::future::join_all;
use speeddial::trace::CloseCause;
use speeddial::{Client, Response};
use tokio::time::timeout;

use super::common::ms;
use support::scripted_peer::ScriptedPeer;

/// The way in which a call is given up.
#[derive(Debug, Clone, Copy)]
enum GivenUp {
    /// The response is dropped, and its body is too long to be read to its end.
    LongBody,
    /// The response is dropped, and its body is long and has not come yet.
    AbsentBody,
    /// The response is dropped, and its body turns out to be too long.
    EndlessBody,
    /// The response is dropped, and the rest of its body does not come.
    LateBody,
    /// The response is dropped in the middle of its body.
    ReadInPart,
    /// The body does not come in time.
    BodyTimeout,
    /// The call is dropped before the head of the response has come.
    NoHead,
    /// The head of the response does not come in time.
    HeadersTimeout,
}

const ALL: [GivenUp; 8] = [
    GivenUp::LongBody,
    GivenUp::AbsentBody,
    GivenUp::EndlessBody,
    GivenUp::LateBody,
    GivenUp::ReadInPart,
    GivenUp::BodyTimeout,
    GivenUp::NoHead,
    GivenUp::HeadersTimeout,
];

/// A short time limit, in which nothing more comes.
const SHORT: Duration = ms(5);

/// Starts a peer that closes no connection before the client does.
fn patient_peer() -> ScriptedPeer {
    ScriptedPeer::start(|_, mut socket| {
        while let Some(path) = read_path(&mut socket) {
            let _ = match path.as_str() {
                "/long" => write_long(&mut socket),
                "/absent" => socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n"),
                "/endless" => write_endless(&mut socket),
                "/late" => socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello"),
                _ => Ok(()),
            };
        }
    })
}

fn write_long(socket: &mut TcpStream) -> std::io::Result<()> {
    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n")?;
    socket.write_all(&[b'x'; 200_000])
}

fn write_endless(socket: &mut TcpStream) -> std::io::Result<()> {
    socket.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
    loop {
        socket.write_all(b"400\r\n")?;
        socket.write_all(&[b'x'; 0x400])?;
        socket.write_all(b"\r\n")?;
    }
}

/// Reads a request, and returns its path; `None` if the client closed instead.
fn read_path(socket: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&head).split(' ').nth(1)?.to_owned())
}

/// Makes a call that is to be given up. Returns the response, if that is to be dropped.
async fn call(client: &Client, url: &str, how: GivenUp) -> Option<Response> {
    let get = |path: &str| client.get(format!("{url}{path}"));
    match how {
        GivenUp::LongBody => get("long").send().await.ok(),
        GivenUp::AbsentBody => get("absent").send().await.ok(),
        GivenUp::EndlessBody => get("endless").send().await.ok(),
        GivenUp::LateBody => get("late").send().await.ok(),
        GivenUp::ReadInPart => {
            let mut response = get("long").send().await.unwrap();
            response.chunk().await.unwrap();
            Some(response)
        }
        GivenUp::BodyTimeout => {
            let response = get("late").body_idle_timeout(SHORT).send().await.unwrap();
            assert!(response.bytes().await.unwrap_err().is_timeout());
            None
        }
        GivenUp::NoHead => {
            assert!(timeout(SHORT, get("never").send()).await.is_err());
            None
        }
        GivenUp::HeadersTimeout => {
            assert!(get("never").headers_timeout(SHORT).send().await.unwrap_err().is_timeout());
            None
        }
    }
}

/// Gives up calls in every way, and checks that no close is put down to the peer.
///
/// The caller's thread serves no connections if the runtime has others. Those notice at once that a response is dropped.
async fn assert_no_close_is_the_peers() {
    let peer = patient_peer();
    let client = Client::builder().no_proxy().build().unwrap();
    let url = peer.url();
    for how in ALL {
        for _ in 0..3 {
            let responses = join_all((0..40).map(|_| call(&client, &url, how))).await;
            responses.into_iter().for_each(drop);
        }
        let stats = client.pool_stats();
        assert_eq!(
            stats.closed_by(CloseCause::Peer),
            0,
            "{how:?}: {} of {}",
            stats.closed_by(CloseCause::Peer),
            stats.closed
        );
    }
    client.drain().await;
    let stats = client.pool_stats();
    assert_eq!((stats.closed_by(CloseCause::Peer), stats.opened), (0, stats.closed));
    // A call that is dropped before it is sent leaves its connection idle.
    assert!(stats.closed_by(CloseCause::Unfinished) >= 700, "{stats:?}");
}

#[tokio::test]
async fn a_connection_whose_call_is_given_up_is_not_closed_by_the_peer() {
    assert_no_close_is_the_peers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connection_whose_call_is_given_up_is_not_closed_by_the_peer_on_several_threads() {
    assert_no_close_is_the_peers().await;
}
