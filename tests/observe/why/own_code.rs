//! The program's own code around requests: layers, functions of `before_attempt`, observers.

use speeddial::http::HeaderMap;
use speeddial::trace::{Cause, Observer, Phase, StartedRequest, Wants, Why};

use super::common::{Act, get, ms, over, server};

/// The time that the functions here take. A busy machine adds less to the time of other causes.
const TAKES: std::time::Duration = ms(300);

/// Returns true if a cause has the time of the functions here. A busy machine may take some of its own for it.
fn is_blamed(why: &Why, cause: Cause) -> bool {
    why.reasons().iter().any(|reason| reason.cause == cause && reason.time >= TAKES)
}

// The functions block their thread, so time is not paused.
#[tokio::test]
async fn a_function_before_attempts_is_named_and_not_the_server() {
    let slow = |_: &mut speeddial::layers::AttemptHead<'_>| {
        std::thread::sleep(TAKES);
        Ok::<_, std::convert::Infallible>(())
    };
    let timings = get(&over(server(|_| Act::ok(1))).before_attempt(slow).build().unwrap()).await;
    let why = timings.why();
    let main = why.main().unwrap();
    assert_eq!((main.cause, main.phase), (Cause::OwnCode, Phase::Send), "{why}");
    assert!(main.time >= TAKES && !is_blamed(&why, Cause::SendSlow), "{why}");
}

/// An observer that takes its time in one method.
struct Slow {
    in_propagate: bool,
}

impl Observer for Slow {
    fn wants(&self) -> Wants {
        Wants::REQUESTS
    }

    fn request_started(&self, _: &StartedRequest<'_>) {
        if !self.in_propagate {
            std::thread::sleep(TAKES);
        }
    }

    fn propagate(&self, _: &StartedRequest<'_>, _: &HeaderMap) -> HeaderMap {
        if self.in_propagate {
            std::thread::sleep(TAKES);
        }
        HeaderMap::new()
    }
}

#[tokio::test]
async fn observers_are_named_and_neither_the_queue_nor_the_server() {
    for (in_propagate, phase) in [(true, Phase::Send), (false, Phase::Queue)] {
        let timings = get(&over(server(|_| Act::ok(1))).observer(Slow { in_propagate }).build().unwrap()).await;
        let why = timings.why();
        let main = why.main().unwrap();
        assert_eq!((main.cause, main.phase), (Cause::OwnCode, phase), "{why}");
        assert!(!is_blamed(&why, Cause::SendSlow) && !is_blamed(&why, Cause::AwaitedDial), "{why}");
    }
}

// One request right after another, on the same connection.
#[tokio::test]
async fn observers_are_told_once_where_a_call_gets_its_connection_at_once() {
    let client = over(server(|_| Act::ok(1))).observer(Slow { in_propagate: false }).build().unwrap();
    for _ in 0..3 {
        let timings = get(&client).await;
        let why = timings.why();
        assert_eq!(why.main().unwrap().cause, Cause::OwnCode, "{why}");
        assert!(!is_blamed(&why, Cause::SendSlow), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_is_named_where_a_layer_waits_for_a_body() {
    use http_body_util::BodyExt;
    use support::scripted_net::ScriptedNet;
    use tokio::io::AsyncWriteExt;

    let net = ScriptedNet::new(|_, mut stream| async move {
        while support::read_request_head(&mut stream).await.is_some() {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhe").await.unwrap();
            tokio::time::sleep(ms(500)).await;
            stream.write_all(b"re").await.unwrap();
        }
    });
    let collects = tower::layer::layer_fn(|inner: speeddial::layers::AttemptService| {
        tower::service_fn(move |request: speeddial::http::Request<speeddial::Body>| {
            let inner = inner.clone();
            async move {
                let (head, body) = tower::ServiceExt::oneshot(inner, request).await?.into_parts();
                let bytes = body.collect().await?.to_bytes();
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(speeddial::http::Response::from_parts(
                    head,
                    speeddial::Body::from(bytes),
                ))
            }
        })
    });
    let timings = get(&over(net).attempt_layer(collects).build().unwrap()).await;
    assert!(!super::common::causes(&timings).contains(&Cause::OwnCode), "{}", timings.why());
}

#[tokio::test(start_paused = true)]
async fn a_timeout_within_a_layer_is_told_as_that() {
    let slow = tower::layer::layer_fn(|inner: speeddial::layers::AttemptService| {
        tower::service_fn(move |request: speeddial::http::Request<speeddial::Body>| {
            let inner = inner.clone();
            async move {
                tokio::time::sleep(ms(1_000)).await;
                tower::ServiceExt::oneshot(inner, request).await
            }
        })
    });
    let client = over(server(|_| Act::ok(20))).attempt_layer(slow).build().unwrap();
    let error = client.get("http://api.test/").timeout(ms(300)).send().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("timed out after 300 ms: the program's own code around requests took all 300 ms"), "{text}");
    let why = error.timings().unwrap().why();
    assert_eq!((why.main().unwrap().cause, why.main().unwrap().time), (Cause::OwnCode, ms(300)), "{why}");
}

#[tokio::test(start_paused = true)]
async fn layers_are_named_and_neither_the_queue_nor_the_reader() {
    use tokio::time::sleep;

    let around = tower::layer::layer_fn(|inner: speeddial::layers::AttemptService| {
        tower::service_fn(move |request: speeddial::http::Request<speeddial::Body>| {
            let inner = inner.clone();
            async move {
                sleep(ms(70)).await;
                let answer = tower::ServiceExt::oneshot(inner, request).await;
                sleep(ms(30)).await;
                answer
            }
        })
    });
    let timings = get(&over(server(|_| Act::ok(20))).attempt_layer(around).build().unwrap()).await;
    let why = timings.why();
    assert_eq!((why.main().unwrap().cause, why.main().unwrap().time), (Cause::OwnCode, ms(100)), "{why}");
    assert!(
        !super::common::causes(&timings).iter().any(|cause| matches!(cause, Cause::AwaitedDial | Cause::ReaderSlow)),
        "{why}"
    );
}
