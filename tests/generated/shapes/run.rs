//! Makes the calls of shapes, and compares what came of them with the oracle.

use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use speeddial::token::{Token, TokenSource};
use speeddial::trace::Phase;
use speeddial::{Client, ClientBuilder, HedgePolicy, Proxy, RetryPolicy};
use tokio::time::timeout;
use tower::ServiceBuilder;

use super::given::{self, EXPECTED_PANIC};
use super::oracle::{self, Expected};
use super::{Around, Body, Protocol, Shape, Way};
use crate::factors;
use crate::strict::{Seen, Strict};

/// The calls that are made at the same time.
const AT_ONCE: usize = 16;
/// The time after which a shape hangs.
const TOO_LONG: Duration = Duration::from_secs(30);

/// Tries shapes, and returns what is wrong with each that fails.
pub(super) fn run(shapes: Vec<Shape>) -> Vec<String> {
    silence_expected_panics();
    let directory = std::env::temp_dir().join(format!("speeddial-shapes-{}-{}", std::process::id(), unique()));
    std::fs::create_dir_all(&directory).unwrap();
    given::prepare(&directory);
    let server = Strict::start(&directory);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut failed: Vec<String> = runtime.block_on(async {
        let (server, directory) = (&server, directory.as_path());
        let calls = shapes.iter().map(|shape| async move {
            let result = timeout(TOO_LONG, try_shape(*shape, server, directory)).await;
            let result = result.unwrap_or_else(|_| Err("it hangs".to_owned()));
            result.err().map(|what| format!("{shape}: {what}"))
        });
        let results: Vec<_> = stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
        results.into_iter().flatten().collect()
    });
    failed.extend(server.violations());
    drop(runtime);
    let _ = std::fs::remove_dir_all(directory);
    failed
}

fn unique() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn silence_expected_panics() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<&str>().copied();
        let text = text.or(info.payload().downcast_ref::<String>().map(String::as_str));
        if text != Some(EXPECTED_PANIC) {
            usual(info);
        }
    }));
}

async fn try_shape(shape: Shape, server: &Strict, directory: &Path) -> Result<(), String> {
    let client = builder(shape, server).build().map_err(|error| format!("{error:?}"))?;
    let id = format!("s{}", unique());
    let version = if shape.protocol == Protocol::Http10 { "v10" } else { "v11" };
    let origin = match shape.way {
        Way::Direct => format!("http://{}", server.address()),
        Way::Tls => format!("https://{}", server.address()),
        Way::Forward | Way::Unix => "http://origin.test".to_owned(),
        Way::Tunnel => "https://origin.test".to_owned(),
    };
    let url = |id: &str, step: &str| format!("{origin}/{id}/{version}/{step}");
    if matches!(shape.around, Around::Closed | Around::Hedge) {
        let warm = client.get(url(&format!("{id}-warm"), "plain")).send().await;
        warm.map_err(|error| format!("the first call: {error:?}"))?
            .bytes()
            .await
            .map_err(|error| format!("{error:?}"))?;
        // Its connection is kept by then.
        factors::settles(&client).await?;
    }
    let request = client.request(shape.method.name().parse().unwrap(), url(&id, shape.around.step()));
    let source = url(&format!("{id}-source"), "source");
    let (mut request, given) = given::give(request, shape, &client, &source, directory).await;
    if shape.around == Around::Expect {
        request = request.expect_continue();
    }
    if shape.body == Body::Stalls {
        request = request.timeout(Duration::from_millis(300));
    } else if shape.around == Around::Deadline {
        request = request.timeout(Duration::from_secs(20));
    }
    let expected = oracle::expected(shape, &given);
    let sent = request.send().await;
    let status = sent.as_ref().ok().map(|response| response.status().as_u16());
    let told = match sent {
        Ok(response) => {
            let timings = response.timings();
            let body = response.bytes().await.map_err(|error| format!("the response: {error:?}"))?;
            let wanted: &[u8] = if shape.method.name() == "HEAD" && status != Some(200) { b"" } else { b"ok" };
            if status == Some(200) && shape.method.name() != "HEAD" && body != wanted {
                return Err(format!("the response has the body {body:?}"));
            }
            let sum: Duration = Phase::ALL.map(|phase| timings.spent(phase)).iter().sum();
            if sum != timings.total() {
                return Err(format!("the phases are {sum:?} of {:?}", timings.total()));
            }
            format!("{status:?}")
        }
        Err(error) => format!("{error:?}"),
    };
    let seen = server.seen(&id);
    if !expected.status.contains(&status) {
        return Err(format!("{told} in place of {:?}, with {seen:?}", expected.status));
    }
    check_requests(shape, &given, &expected, &seen)?;
    let next = client.get(url(&format!("{id}-next"), "plain")).send().await;
    let next = next.map_err(|error| format!("the next call: {error:?}"))?.text().await;
    if next.as_deref().ok() != Some("ok") {
        return Err(format!("the next response: {next:?}"));
    }
    factors::settles(&client).await
}

fn check_requests(shape: Shape, given: &given::Given, expected: &Expected, seen: &[Seen]) -> Result<(), String> {
    if !(expected.least..=expected.requests.len()).contains(&seen.len()) {
        return Err(format!("{} requests in place of {:?}: {seen:?}", seen.len(), expected.requests));
    }
    let pairs = expected.requests.iter().zip(seen);
    pairs.filter_map(|(expected, seen)| oracle::difference(shape, given, *expected, seen)).next().map_or(Ok(()), Err)
}

fn builder(shape: Shape, server: &Strict) -> ClientBuilder {
    let mut builder = Client::builder().tls_certs_only([server.trusted()]);
    let is_secure = matches!(shape.way, Way::Tls | Way::Tunnel);
    builder = match shape.protocol {
        Protocol::Http2 if is_secure => builder,
        Protocol::Http2 => builder.http2_prior_knowledge(),
        Protocol::Http10 | Protocol::Http11 => builder.http1_only(),
    };
    builder = match shape.way {
        Way::Forward | Way::Tunnel => builder.proxy(Proxy::all(format!("http://{}", server.address())).unwrap()),
        Way::Unix => builder.no_proxy().unix_socket(server.unix()),
        Way::Direct | Way::Tls => builder.no_proxy(),
    };
    let wait = || ServiceBuilder::new().timeout(Duration::from_secs(60)).into_inner();
    match shape.around {
        Around::Layer => builder.layer(wait()),
        Around::AttemptLayer => builder.attempt_layer(wait()),
        Around::Hedge => builder.hedge(HedgePolicy::new().min_samples(1).budget(1.0).floor(Duration::from_millis(10))),
        Around::Retry => {
            let at_once = Duration::from_millis(1);
            builder.retry(RetryPolicy::new().backoff(at_once, at_once).no_budget())
        }
        Around::Token => {
            let next = AtomicUsize::new(0);
            builder.token_source(TokenSource::new(move || {
                let number = next.fetch_add(1, Ordering::Relaxed);
                async move { Ok::<_, std::convert::Infallible>(Token::new(format!("t{number}"))) }
            }))
        }
        _ => builder,
    }
}
