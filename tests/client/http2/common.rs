//! The client, the scripted peers and the bodies that the tests of HTTP/2 share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use speeddial::dns::FixedResolver;
use speeddial::{Body, Client, PoolConfig};
use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep};

use support::h2_peer::{DATA, H2Peer, HEADERS, REFUSED_STREAM};
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::v4;

pub(super) const URL: &str = "http://api.test/";

/// Returns a client that uses HTTP/2 over `net`, where it finds api.test.
pub(super) fn client(net: &ScriptedNet, pool: PoolConfig, recorder: &Recorder) -> Client {
    let resolver = FixedResolver::new().with("api.test", [v4(1)]);
    let builder = Client::builder().no_proxy().http2_prior_knowledge().dns_resolver(resolver).transport(net.clone());
    builder.pool(pool).observer(recorder.clone()).build().unwrap()
}

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Makes a GET and returns the body.
pub(super) async fn get(client: &Client) -> speeddial::Result<String> {
    client.get(URL).send().await?.text().await
}

/// Answers each request after 50 ms. Requests above `max_streams` are refused. `peak` is the highest number at once.
pub(super) async fn service(stream: DuplexStream, max_streams: Option<u32>, peak: Arc<AtomicUsize>) {
    let Ok(mut peer) = H2Peer::accept(stream, max_streams).await else { return };
    let mut due: Vec<(Instant, u32)> = Vec::new();
    loop {
        let next = due.first().map_or(Instant::now() + ms(1_000_000), |(at, _)| *at);
        // At that time only whole frames are in the pipe, so cancelling the read loses no part of a frame.
        tokio::select! {
            biased;
            request = peer.request() => {
                let Ok(stream) = request else { return };
                due.push((Instant::now() + ms(50), stream));
                peak.fetch_max(due.len(), Ordering::SeqCst);
                if max_streams.is_some_and(|max| due.len() > max as usize) {
                    peer.reset(stream, REFUSED_STREAM).await.unwrap();
                    due.pop();
                }
            }
            () = tokio::time::sleep_until(next) => {
                let (_, stream) = due.remove(0);
                let _ = peer.answer(stream).await;
            }
        }
    }
}

/// Returns a body whose first piece comes at once and the rest after `rest` milliseconds.
pub(super) fn slow_body(rest: u64) -> Body {
    let first = futures_util::stream::once(async { Ok::<_, std::io::Error>("first") });
    let rest = futures_util::stream::once(async move {
        sleep(ms(rest)).await;
        Ok("rest")
    });
    Body::wrap_stream(first.chain(rest))
}

/// Reads the head of the next request and returns its stream.
pub(super) async fn head(peer: &mut H2Peer) -> std::io::Result<u32> {
    loop {
        let frame = peer.next().await?;
        if frame.kind == HEADERS {
            return Ok(frame.stream);
        }
    }
}

/// Returns a network whose peers answer each request at its head and count the bytes of bodies.
pub(super) fn answers_heads(received: Arc<AtomicUsize>) -> ScriptedNet {
    ScriptedNet::new(move |_, stream| {
        let received = received.clone();
        async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            while let Ok(frame) = peer.next().await {
                match frame.kind {
                    HEADERS => drop(peer.answer(frame.stream).await),
                    DATA => drop(received.fetch_add(frame.payload.len(), Ordering::SeqCst)),
                    _ => {}
                }
            }
        }
    })
}
