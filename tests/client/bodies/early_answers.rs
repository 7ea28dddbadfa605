//! Responses that come before the whole request body was sent, over real sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use socket2::SockRef;
use speeddial::{Body, Client, PoolConfig};

use support::scripted_peer::{ScriptedPeer, read_head};

/// Reads the head of a request over HTTP/2. Returns false if the client closed instead.
fn read_http2_head(socket: &mut TcpStream) -> bool {
    const HEADERS: u8 = 1;
    let mut frame = [0; 9];
    if socket.read_exact(&mut [0; 24]).is_err() {
        return false;
    }
    while socket.read_exact(&mut frame).is_ok() {
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        if socket.read_exact(&mut vec![0; length as usize]).is_err() {
            return false;
        }
        if frame[3] == HEADERS {
            return true;
        }
    }
    false
}

/// Starts a peer that answers 413 to the head of a request and ends the connection before it has read the rest.
///
/// Consecutive connections end in different ways.
fn early_answering_peer(http2: bool) -> ScriptedPeer {
    // SETTINGS; HEADERS with `:status: 413` and `content-length: 2`; DATA with END_STREAM; GOAWAY with last stream 1.
    let frames = [
        &[0, 0, 0, 4, 0, 0, 0, 0, 0][..],
        &[0, 0, 9, 1, 4, 0, 0, 0, 1, 0x08, 3, b'4', b'1', b'3', 0x0f, 28 - 15, 1, b'2'],
        &[0, 0, 2, 0, 1, 0, 0, 0, 1, b'n', b'o'],
        &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
    ];
    let says = if http2 { frames.concat() } else { b"HTTP/1.1 413 No\r\ncontent-length: 2\r\n\r\nno".to_vec() };
    ScriptedPeer::start(move |number, mut socket| {
        let began = if http2 { read_http2_head(&mut socket) } else { read_head(&mut socket) };
        if !began || socket.write_all(&says).is_err() {
            return;
        }
        match number % 4 {
            // The unread bytes turn the close into a reset.
            0 => {}
            1 => drop(socket.shutdown(Shutdown::Write)),
            2 => drop(SockRef::from(&socket).set_linger(Some(Duration::ZERO))),
            _ => {
                // Without unread bytes a FIN comes first, and a reset answers what the client sends after it.
                let _ = socket.set_nonblocking(true);
                while socket.read(&mut [0; 1 << 16]).is_ok_and(|read| read > 0) {}
            }
        }
    })
}

#[tokio::test]
async fn hazard_a_response_before_the_end_of_the_request_is_never_lost() {
    let endless = || {
        let pieces = stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[0; 16 * 1024])));
        Body::wrap_stream(pieces)
    };
    for http2 in [false, true] {
        // Each request gets a new connection, because a reused one could be closed for other reasons.
        let builder = Client::builder().no_proxy().pool(PoolConfig::new().max_requests_per_connection(1));
        let builder = if http2 { builder.http2_prior_knowledge() } else { builder };
        let client = builder.build().unwrap();
        let peer = early_answering_peer(http2);
        let put = async |body: Body| -> speeddial::Result<(u16, String)> {
            let response = client.put(peer.url()).body(body).send().await?;
            Ok((response.status().as_u16(), response.text().await?))
        };
        let mut lost = Vec::new();
        for round in 0..250 {
            for body in [Body::from(vec![0; 2 << 20]), endless()] {
                match put(body).await {
                    Ok((413, text)) if text == "no" => {}
                    other => lost.push(format!("{round}: {other:?}")),
                }
            }
        }
        assert_eq!(lost, Vec::<String>::new(), "HTTP/2: {http2}");
    }
}
