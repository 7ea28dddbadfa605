//! The sizes that a client sets for HTTP/2, as their effect on connections shows them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream;
use speeddial::{Body, Client, ClientBuilder, PoolConfig};

use super::common::{URL, client, ms};
use support::full;
use support::h2_peer::{DATA, H2Peer, HEADERS, SETTINGS, WINDOW_UPDATE};
use support::http_server::HttpServer;
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;

/// The bytes of a piece of a body.
const PIECE: usize = 1_024;
/// The bytes that the pipe of [`ScriptedNet`] takes.
const PIPE: usize = 256 << 10;

/// Returns the bytes of an endless body that are read for a server with wide windows that takes none of them.
async fn read_ahead(set: fn(ClientBuilder) -> ClientBuilder) -> usize {
    let net = ScriptedNet::new(|_, stream| async {
        let mut peer = H2Peer::accept(stream, None).await.unwrap();
        let window: u32 = 64 << 20;
        let mut initial_window_size = vec![0, 4];
        initial_window_size.extend_from_slice(&window.to_be_bytes());
        peer.send(SETTINGS, 0, 0, &initial_window_size).await.unwrap();
        peer.send(WINDOW_UPDATE, 0, 0, &window.to_be_bytes()).await.unwrap();
        std::future::pending().await
    });
    let resolver = speeddial::dns::FixedResolver::new().with("api.test", [support::v4(1)]);
    let builder = Client::builder().no_proxy().http2_prior_knowledge().dns_resolver(resolver).transport(net);
    let client = set(builder).build().unwrap();
    let pieces = Arc::new(AtomicUsize::new(0));
    let read = pieces.clone();
    let endless = stream::repeat_with(move || {
        read.fetch_add(1, Ordering::SeqCst);
        Ok::<_, std::io::Error>(vec![0; PIECE])
    });
    let _ = client.post(URL).body(Body::wrap_stream(endless)).timeout(ms(1_000)).send().await;
    pieces.load(Ordering::SeqCst) * PIECE
}

#[tokio::test(start_paused = true)]
async fn a_request_body_is_read_as_far_ahead_as_the_send_buffer_allows() {
    let usual = read_ahead(|builder| builder).await;
    assert!(usual > 1 << 20, "{usual}");
    let small = read_ahead(|builder| builder.http2_max_send_buf_size(16 << 10)).await;
    assert!(small < PIPE + (64 << 10), "{small}");
    assert_eq!(read_ahead(|builder| builder.http2_max_send_buf_size(None)).await, usual);
    assert!(read_ahead(|builder| builder.http2_max_send_buf_size(1)).await < small);
}

#[tokio::test]
async fn headers_are_read_right_with_every_size_of_the_header_table() {
    let server = HttpServer::start_as(true, |_| async {
        let mut response = hyper::Response::new(full("ok"));
        for number in 0..40 {
            let name = hyper::header::HeaderName::try_from(format!("x-number-{number}")).unwrap();
            response.headers_mut().insert(name, format!("{number:0500}").try_into().unwrap());
        }
        response
    })
    .unwrap();
    for size in [None, Some(0), Some(1_000), Some(65_536), Some(1 << 20)] {
        let builder = Client::builder().no_proxy().http2_prior_knowledge().http2_header_table_size(size);
        let client = builder.build().unwrap();
        for _ in 0..3 {
            let response = client.get(format!("http://{}/", server.address())).send().await.unwrap();
            for number in 0..40 {
                let expected = format!("{number:0500}");
                assert_eq!(response.headers()[format!("x-number-{number}")], expected, "{size:?}");
            }
        }
    }
    assert_eq!(server.connections(), 5);
}

#[tokio::test(start_paused = true)]
async fn hazard_other_tasks_have_turns_while_a_body_of_tiny_frames_is_read() {
    const FRAMES: usize = 20_000;
    let net = ScriptedNet::new(|_, stream| async {
        let mut peer = H2Peer::accept(stream, None).await.unwrap();
        let stream = peer.request().await.unwrap();
        peer.send(HEADERS, 4, stream, &[0x88]).await.unwrap();
        for left in (0..FRAMES).rev() {
            peer.send(DATA, u8::from(left == 0), stream, b"x").await.unwrap();
        }
        std::future::pending().await
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let response = client.get(URL).send().await.unwrap();
    // All of it arrives meanwhile.
    tokio::time::sleep(ms(1_000)).await;
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = turns.clone();
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(response.bytes().await.unwrap().len(), FRAMES);
    other.abort();
    let turns = turns.load(Ordering::SeqCst);
    assert!(turns > FRAMES / 256, "{turns} turns");
}
