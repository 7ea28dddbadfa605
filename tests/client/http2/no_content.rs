//! Responses without content: to HEAD, and 304.

use speeddial::PoolConfig;
use speeddial::http::Method;
use tokio::time::sleep;

use super::common::{URL, client, ms};
use support::h2_peer::{DATA, END_HEADERS, END_STREAM, H2Peer, HEADERS};
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;

#[tokio::test(start_paused = true)]
async fn a_response_without_content_may_announce_a_length_and_end_by_a_frame_of_its_own() {
    // `:status` 200 and 304 (RFC 7541, appendix A).
    for (method, status) in [(Method::HEAD, 0x88), (Method::GET, 0x8b)] {
        for (is_late, has_trailers) in [(false, false), (true, false), (false, true)] {
            let net = ScriptedNet::new(move |_, stream| async move {
                let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
                while let Ok(stream) = peer.request().await {
                    // `content-length: 5`
                    let head = [status, 0x0f, 28 - 15, 1, b'5'];
                    peer.send(HEADERS, END_HEADERS, stream, &head).await.unwrap();
                    if is_late {
                        sleep(ms(10)).await;
                    }
                    let flags = if has_trailers { 0 } else { END_STREAM };
                    peer.send(DATA, flags, stream, b"").await.unwrap();
                    if has_trailers {
                        let trailers = [0, 1, b'x', 1, b'y'];
                        peer.send(HEADERS, END_HEADERS | END_STREAM, stream, &trailers).await.unwrap();
                    }
                }
            });
            let client = client(&net, PoolConfig::new(), &Recorder::default());
            let send = async || client.request(method.clone(), URL).send().await.unwrap();
            for _ in 0..2 {
                let response = send().await;
                assert_eq!(response.content_length(), Some(5));
                assert_eq!(response.bytes_with_limit(1).await.unwrap().len(), 0, "{method}, {is_late}, {has_trailers}");
            }
            drop(send().await);
            sleep(ms(100)).await;
            assert_eq!((net.connections(), client.pool_stats().leased), (1, 0), "{method}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_follows_a_204_is_no_content() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        while let Ok(stream) = peer.request().await {
            // `:status` 204.
            peer.send(HEADERS, END_HEADERS, stream, &[0x89]).await.unwrap();
            peer.send(DATA, END_STREAM, stream, b"none").await.unwrap();
        }
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    for _ in 0..2 {
        let response = client.get(URL).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.bytes().await.unwrap().len()), (204, 0));
    }
    sleep(ms(100)).await;
    assert_eq!((net.connections(), client.pool_stats().leased), (1, 0));
}
