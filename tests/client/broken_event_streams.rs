//! Event sources whose stream breaks off, or meets a limit: what is opened again, and what is not.

#[cfg(feature = "gzip")]
use std::sync::{Arc, Mutex};
#[cfg(feature = "gzip")]
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use speeddial::sse::ReadyState;
use speeddial::{Error, ErrorKind};
#[cfg(feature = "gzip")]
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

#[cfg(feature = "gzip")]
use super::event_streams::{HEAD, header};
use super::event_streams::{URL, builder, events, seconds, server, source};
use support::h2_peer::{CANCEL, DATA, END_HEADERS, H2Peer, HEADERS, INTERNAL_ERROR, NO_ERROR};
#[cfg(feature = "gzip")]
use support::read_request_head;
use support::scripted_net::ScriptedNet;

const END: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// Returns a gzip body that is not complete: a member's head, and each text as a stored block.
#[cfg(feature = "gzip")]
fn gzip_start(texts: &[&str]) -> Vec<u8> {
    let mut body = b"\x1f\x8b\x08\0\0\0\0\0\0\xff".to_vec();
    for text in texts {
        let length = text.len() as u16;
        body.push(0);
        body.extend([length.to_le_bytes(), (!length).to_le_bytes()].concat());
        body.extend(text.as_bytes());
    }
    body
}

/// Returns a network whose first connection brings an event stream in gzip that is cut, and whose later ones bring its end, and
/// the `Last-Event-ID` of the last request.
#[cfg(feature = "gzip")]
fn cut_gzip_net(body: Vec<u8>) -> (ScriptedNet, Arc<Mutex<Option<String>>>) {
    let last_id: Arc<Mutex<Option<String>>> = Arc::default();
    let id = Arc::clone(&last_id);
    let net = ScriptedNet::new(move |number, mut stream| {
        let (body, id) = (body.clone(), id.clone());
        async move {
            let Some(head) = read_request_head(&mut stream).await else { return };
            *id.lock().unwrap() = header(&head, "last-event-id").map(str::to_owned);
            let answer = if number == 0 {
                [format!("{HEAD}content-encoding: gzip\r\n\r\n").into_bytes(), body].concat()
            } else {
                END.into()
            };
            let _ = stream.write_all(&answer).await;
        }
    });
    (net, last_id)
}

#[cfg(feature = "gzip")]
#[tokio::test(start_paused = true)]
async fn a_compressed_stream_that_is_cut_is_opened_again() {
    let (net, last_id) = cut_gzip_net(gzip_start(&["id:1\ndata:a\n\n", "id:2\ndata:not complete"]));
    let mut source = source(&net);
    assert_eq!(source.try_next().await.unwrap().unwrap().data, "a");
    assert!(timeout(Duration::from_millis(100), source.next()).await.is_err());
    assert_eq!(source.last_error().map(Error::kind), Some(ErrorKind::Decode));
    assert!(source.next().await.is_none(), "the server says that there is no more");
    assert_eq!((net.connections(), last_id.lock().unwrap().as_deref()), (2, Some("1")));
}

#[cfg(feature = "gzip")]
#[tokio::test(start_paused = true)]
async fn the_clients_limits_of_decompression_do_not_end_a_stream_and_the_requests_own_do() {
    let texts = vec!["id:1\ndata:0123456789\n\n"; 1_000];
    let limits = speeddial::settings::Decompression::default().max_bytes(1_000).max_ratio(1);
    for own in [false, true] {
        let (net, _) = cut_gzip_net(gzip_start(&texts));
        let client = builder(&net).decompress(limits).build().unwrap();
        let request = if own { client.get(URL).decompress(limits) } else { client.get(URL) };
        let events = request.event_source().unwrap().try_collect::<Vec<_>>().await.unwrap();
        assert_eq!(events.len() == 1_000, !own, "{}", events.len());
        assert_eq!(net.connections(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn the_clients_limit_of_a_body_does_not_cut_a_stream_and_the_requests_own_does() {
    let event = format!("id:1\ndata:{}\n\n", "x".repeat(200));
    for own in [false, true] {
        let (net, _) = server(vec![events(&event.repeat(10)), END.to_owned()]);
        let client = builder(&net).max_body_size(100).build().unwrap();
        let request = if own { client.get(URL).max_body_size(1_000) } else { client.get(URL) };
        let events = request.event_source().unwrap().try_collect::<Vec<_>>().await.unwrap();
        assert_eq!((events.len() == 10, net.connections()), (!own, 2), "{}", events.len());
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_long_id_ends_the_event_source_and_is_sent_to_no_server() {
    let (net, seen) = server(vec![events(&format!("id:a\ndata:x\n\nid:{}\ndata:y\n\n", "1".repeat(100_000)))]);
    let mut source = source(&net);
    assert_eq!(source.try_next().await.unwrap().unwrap().id, "a");
    let error = source.try_next().await.unwrap_err();
    assert!(error.to_string().contains("the ID of an event is longer than 4096 bytes"), "{error}");
    assert_eq!((source.ready_state(), source.last_event_id()), (ReadyState::Closed, "a"));
    assert_eq!(seen.lock().unwrap().len(), 1);
}

/// Answers the n-th request of an HTTP/2 connection with event n and the beginning of the next one, and resets its stream.
async fn resetting_peer(mut peer: H2Peer, code: u32) -> std::io::Result<()> {
    // `:status: 200`, and `content-type` with the index 31 (RFC 7541, appendix A).
    let head = [&[0x88, 0x0f, 31 - 15, 17][..], b"text/event-stream"].concat();
    for number in 1.. {
        let stream = peer.request().await?;
        peer.send(HEADERS, END_HEADERS, stream, &head).await?;
        let events = format!("id:{number}\ndata:{number}\n\nid:{0}\ndata:{0}", number + 1);
        peer.send(DATA, 0, stream, events.as_bytes()).await?;
        // A reset discards what was not read.
        let _ = timeout(seconds(1), async { while peer.next().await.is_ok() {} }).await;
        peer.reset(stream, code).await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_reset_in_the_middle_of_an_event_over_http2_loses_and_doubles_nothing() {
    for code in [CANCEL, INTERNAL_ERROR, NO_ERROR] {
        let net = ScriptedNet::new(move |_, stream| async move {
            if let Ok(peer) = H2Peer::accept(stream, Some(100)).await {
                let _ = resetting_peer(peer, code).await;
            }
        });
        let client = builder(&net).http2_prior_knowledge().build().unwrap();
        let mut source = client.get(URL).event_source().unwrap();
        for number in 1..=5 {
            let event = source.try_next().await.unwrap().unwrap();
            assert_eq!((event.data, source.last_event_id()), (number.to_string(), event.id.as_str()), "{code}");
        }
        assert!(timeout(seconds(2), source.next()).await.is_err());
        assert_eq!(source.last_error().map(Error::kind), Some(ErrorKind::Body), "{code}");
        assert_eq!(net.connections(), 1);
        drop(source);
        sleep(seconds(1)).await;
        assert_eq!(client.pool_stats().leased, 0);
    }
}
