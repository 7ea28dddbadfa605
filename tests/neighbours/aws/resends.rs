//! Kept connections that the peer closes: the client sends the request again, and the SDK, whose retries are off, does not
//! notice.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_s3::error::SdkError;
use aws_sdk_s3::primitives::ByteStream;
use speeddial::Client;
use speeddial_aws::Http;
use support::scripted_peer::ScriptedPeer;

use crate::fakes::{dynamodb, s3, update_with};

/// Reads a request with a `Content-Length`, and returns its body.
fn read_request(socket: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    if head.contains("expect: 100-continue") {
        socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    socket.read_exact(&mut body).ok()?;
    Some(body)
}

fn answer(socket: &mut TcpStream) {
    let _ =
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: 2\r\n\r\n{}");
}

fn peers_url(peer: &ScriptedPeer) -> String {
    peer.url().trim_end_matches('/').to_owned()
}

#[tokio::test]
async fn an_update_goes_out_on_a_new_connection_if_the_kept_one_was_closed() {
    let (closed, was_closed) = mpsc::channel();
    let peer = ScriptedPeer::start(move |_, mut socket| {
        read_request(&mut socket).unwrap();
        answer(&mut socket);
        drop(socket);
        let _ = closed.send(());
    });
    let config = dynamodb(Http::new(Client::new()), &peers_url(&peer)).retry_config(RetryConfig::disabled());
    let client = aws_sdk_dynamodb::Client::from_conf(config.build());
    for _ in 0..4 {
        update_with(&client).await.unwrap();
        was_closed.recv().unwrap();
    }
    assert_eq!(peer.connections(), 4);
}

/// Returns a peer that closes its first connection under the second request, and the connections and body lengths of requests.
fn closing_peer() -> (ScriptedPeer, mpsc::Receiver<(usize, usize)>) {
    let (sender, bodies) = mpsc::channel();
    let peer = ScriptedPeer::start(move |number, mut socket| {
        let answered = if number == 0 { 1 } else { usize::MAX };
        for at in 0.. {
            let Some(body) = read_request(&mut socket) else { return };
            sender.send((number, body.len())).unwrap();
            if at == answered {
                return; // closes the socket under the request
            }
            answer(&mut socket);
        }
    });
    (peer, bodies)
}

#[tokio::test]
async fn a_body_that_can_be_read_again_is_sent_again_if_the_kept_connection_closes_under_it() {
    for length in [1_000, 200_000] {
        let (peer, bodies) = closing_peer();
        let config = s3(Http::new(Client::new()), &peers_url(&peer)).retry_config(RetryConfig::disabled());
        let client = aws_sdk_s3::Client::from_conf(config.build());
        for _ in 0..2 {
            let body = ByteStream::from(vec![7; length]);
            client.put_object().bucket("bucket").key("key").body(body).send().await.unwrap();
        }
        let received: Vec<_> = bodies.try_iter().collect();
        assert_eq!(received, [(0, length), (0, length), (1, length)]);
    }
}

#[tokio::test]
async fn a_write_with_a_condition_is_not_sent_again_by_the_client() {
    let (peer, bodies) = closing_peer();
    let config = s3(Http::new(Client::new()), &peers_url(&peer)).retry_config(RetryConfig::disabled());
    let client = aws_sdk_s3::Client::from_conf(config.build());
    let put =
        || client.put_object().bucket("bucket").key("key").if_none_match("*").body(ByteStream::from_static(b"new"));
    put().send().await.unwrap();
    // The peer may have made the object before it closed the connection, and would refuse a second copy.
    let error = put().send().await.unwrap_err();
    assert!(matches!(error, SdkError::DispatchFailure(_)), "{error:?}");
    assert_eq!(bodies.try_iter().collect::<Vec<_>>(), [(0, 3), (0, 3)]);
}
