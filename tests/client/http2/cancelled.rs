//! Calls that are dropped before the server has read their requests.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use speeddial::PoolConfig;
use speeddial::trace::{CloseCause, Event};
use support::full;
use support::h2_peer::H2Peer;
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use tokio::io::{DuplexStream, copy_bidirectional};
use tokio::sync::watch;
use tokio::time::timeout;

use super::common::{URL, client, get, ms};

/// A real HTTP/2 server, which reads nothing while `is_held_up`. Counts the connections that it closes as those of an attacker.
async fn stalling_server(
    mut stream: DuplexStream,
    mut is_held_up: watch::Receiver<bool>,
    complaints: Arc<AtomicUsize>,
) {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    tokio::spawn(async move {
        let service = service_fn(|_| async { Ok::<_, Infallible>(hyper::Response::new(full("ok"))) });
        let served = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(near), service).await;
        let complains = format!("{served:?}").contains("ENHANCE_YOUR_CALM");
        complaints.fetch_add(usize::from(complains), Ordering::SeqCst);
    });
    tokio::select! {
        _ = copy_bidirectional(&mut stream, &mut far) => return,
        // Nothing is on its way at that moment, so no bytes are lost.
        _ = is_held_up.wait_for(|is_held_up| *is_held_up) => {}
    }
    let _ = is_held_up.wait_for(|is_held_up| !is_held_up).await;
    let _ = copy_bidirectional(&mut stream, &mut far).await;
}

#[tokio::test(start_paused = true)]
async fn hazard_calls_dropped_while_the_server_is_held_up_do_not_end_the_others() {
    let (hold_up, is_held_up) = watch::channel(false);
    let complaints = Arc::new(AtomicUsize::new(0));
    let counter = complaints.clone();
    let net = ScriptedNet::new(move |_, stream| stalling_server(stream, is_held_up.clone(), counter.clone()));
    let recorder = Recorder::default();
    let client = client(&net, PoolConfig::new(), &recorder);
    assert_eq!(get(&client).await.unwrap(), "ok");
    hold_up.send_replace(true);
    let post = || tokio::spawn(client.post(URL).body("once").send());
    let mut posts = vec![post()];
    for number in 0..64 {
        timeout(ms(20), client.get(URL).send()).await.unwrap_err();
        if number % 16 == 8 {
            posts.push(post());
        }
    }
    hold_up.send_replace(false);
    for answer in join_all(posts).await {
        assert_eq!(answer.unwrap().unwrap().status(), 200);
    }
    assert_eq!(complaints.load(Ordering::SeqCst), 0, "of {} connections", net.connections());
    let retired = |event: &Event| matches!(event, Event::Retired { cause: CloseCause::Unfinished, .. });
    // The others have not announced their streams.
    assert_eq!(recorder.count(retired), 1);
    assert!(net.connections() <= 8, "{} connections", net.connections());
}

#[tokio::test(start_paused = true)]
async fn calls_dropped_after_a_sign_of_the_server_keep_the_connection() {
    // Of 16 requests the last one is answered.
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        for number in 1.. {
            let Ok(stream) = peer.request().await else { return };
            if number % 16 == 0 {
                peer.answer(stream).await.unwrap();
            }
        }
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    for _ in 0..5 {
        let mut rest = pin!(join_all((0..15).map(|_| client.get(URL).send())));
        timeout(ms(100), &mut rest).await.unwrap_err();
        assert_eq!(get(&client).await.unwrap(), "ok");
    }
    assert_eq!(net.connections(), 1);
}
