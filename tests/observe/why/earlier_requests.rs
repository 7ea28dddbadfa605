//! Causes in a call's earlier requests, and in the waits between them.

use std::convert::Infallible;

use speeddial::token::{Token, TokenSource};
use speeddial::trace::Cause;
use speeddial::{HedgePolicy, RetryPolicy};
use tokio::time::sleep;

use super::common::{Act, assert_why, causes, get, ms, over, server};

#[tokio::test(start_paused = true)]
async fn retried() {
    let net = server(|before| if before == 0 { Act::busy(160) } else { Act::ok(20) });
    let client = over(net).retry(RetryPolicy::new().backoff(ms(0), ms(0))).build().unwrap();
    assert_why(
        &get(&client).await,
        &[Cause::Retried, Cause::ServerSlow],
        "170 ms of 190 ms went to a request that was retried (status 503).",
    );
}

#[tokio::test(start_paused = true)]
async fn what_explains_the_last_request_does_not_explain_an_earlier_one() {
    const PARTS: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nserver-timing: db;dur=30\r\n\r\nok";
    let net = server(|before| if before == 0 { Act::busy(160) } else { Act::new(40, PARTS) });
    let client = over(net).retry(RetryPolicy::new().backoff(ms(0), ms(0))).build().unwrap();
    assert_why(
        &get(&client).await,
        &[Cause::Retried, Cause::ServerSlow, Cause::ServerTiming],
        "170 ms of 210 ms went to a request that was retried (status 503).",
    );
}

#[tokio::test(start_paused = true)]
async fn resent() {
    let net = server(|before| if before == 1 { Act::new(160, "").closing() } else { Act::ok(20) });
    let client = over(net).build().unwrap();
    get(&client).await;
    assert_why(
        &get(&client).await,
        &[Cause::Resent, Cause::ServerSlow, Cause::ConnectSlow, Cause::ServerClosed],
        "160 ms of 190 ms went to a request that was sent again (the server closed its connection).",
    );
}

#[tokio::test(start_paused = true)]
async fn redirected() {
    const MOVED: &str = "HTTP/1.1 302 Found\r\nlocation: /there\r\ncontent-length: 0\r\n\r\n";
    let net = server(|before| if before == 0 { Act::new(160, MOVED) } else { Act::ok(20) });
    assert_why(
        &get(&over(net).build().unwrap()).await,
        &[Cause::Redirected, Cause::ServerSlow],
        "170 ms of 190 ms went to a request that was redirected (status 302).",
    );
}

#[tokio::test(start_paused = true)]
async fn hedged_late() {
    let policy = HedgePolicy::new().min_samples(1).budget(1.0).floor(ms(100));
    let net = server(|before| Act::ok(if before == 1 { 10_000 } else { 20 }));
    let client = over(net).hedge(policy).build().unwrap();
    get(&client).await;
    assert_why(
        &get(&client).await,
        &[Cause::HedgedLate, Cause::ServerSlow, Cause::ConnectSlow, Cause::AllInUse],
        "100 ms of 130 ms went to a request that was not answered, and was sent once more to another connection.",
    );
}

#[tokio::test(start_paused = true)]
async fn backoff() {
    const BUSY: &str = "HTTP/1.1 503 Busy\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";
    let net = server(|before| if before == 0 { Act::new(20, BUSY) } else { Act::ok(20) });
    let timings = get(&over(net).retry(RetryPolicy::new()).build().unwrap()).await;
    // The wait is lengthened by chance.
    assert_eq!(causes(&timings), [Cause::Backoff]);
    let why = timings.why().to_string();
    assert!(why.starts_with("1.0") && why.ends_with(" were spent waiting before the next attempt."), "{why}");
}

#[tokio::test(start_paused = true)]
async fn token_wait() {
    let source = TokenSource::new(|| async {
        sleep(ms(160)).await;
        Ok::<_, Infallible>(Token::new("secret").expires_in(ms(3_600_000)))
    });
    let client = over(server(|_| Act::ok(20))).token_source(source).build().unwrap();
    assert_why(
        &get(&client).await,
        &[Cause::TokenWait, Cause::ServerSlow, Cause::ConnectSlow, Cause::FirstConnection],
        "160 ms of 190 ms were spent waiting for a token; have the token refreshed before it expires.",
    );
    assert_why(&get(&client).await, &[Cause::ServerSlow], "The server took all 20.0 ms to answer.");
}
