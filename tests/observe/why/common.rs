//! Servers in memory that do as a test says, and the check of a call's reasons.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use speeddial::dns::FixedResolver;
use speeddial::trace::{Cause, Timings};
use speeddial::transport::Transport;
use speeddial::{Client, ClientBuilder, RequestBuilder};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use support::scripted_net::ScriptedNet;
use support::{read_request_head, v4};

pub(super) const URL: &str = "http://api.test/";

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What a server does with a request.
#[derive(Clone, Copy)]
pub(super) struct Act {
    /// The milliseconds before the response.
    after: u64,
    response: &'static str,
    /// The milliseconds after which the connection closes behind the response; `None` if it stays open.
    closes: Option<u64>,
}

impl Act {
    pub(super) const fn new(after: u64, response: &'static str) -> Self {
        Self { after, response, closes: None }
    }

    pub(super) const fn ok(after: u64) -> Self {
        Self::new(after, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
    }

    pub(super) const fn busy(after: u64) -> Self {
        Self::new(after, "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")
    }

    pub(super) const fn closing(self) -> Self {
        self.closing_after(0)
    }

    pub(super) const fn closing_after(mut self, ms: u64) -> Self {
        self.closes = Some(ms);
        self
    }
}

/// Returns a network whose server does `act` with each request. Connecting takes 10 ms.
///
/// `act` gets the number of requests before this one, over all connections.
pub(super) fn server(act: impl Fn(usize) -> Act + Send + Sync + 'static) -> ScriptedNet {
    let act = Arc::new(act);
    let count = Arc::new(AtomicUsize::new(0));
    ScriptedNet::new(move |_, mut stream| {
        let (act, count) = (act.clone(), count.clone());
        async move {
            while read_request_head(&mut stream).await.is_some() {
                let act = act(count.fetch_add(1, Ordering::SeqCst));
                sleep(ms(act.after)).await;
                if stream.write_all(act.response.as_bytes()).await.is_err() {
                    return;
                }
                if let Some(pause) = act.closes {
                    if pause > 0 {
                        sleep(ms(pause)).await;
                    }
                    return;
                }
            }
        }
    })
}

/// Returns a client over a network, where `api.test` and `other.test` have an address each, which no lookup is needed for.
pub(super) fn over(transport: impl Transport) -> ClientBuilder {
    let names = FixedResolver::new().with("api.test", [v4(1)]).with("other.test", [v4(2)]);
    Client::builder().no_proxy().dns_resolver(names).transport(transport)
}

/// Makes a request, reads the body, and returns the timings, of a call that failed as well.
pub(super) async fn timings_of(request: RequestBuilder) -> Timings {
    let response = match request.send().await {
        Ok(response) => response,
        Err(error) => return error.timings().expect("the call began").clone(),
    };
    let handle = response.timings_handle();
    match response.bytes().await {
        Ok(_) => handle.timings(),
        Err(error) => error.timings().expect("the call began").clone(),
    }
}

/// Makes a GET, as [`timings_of`].
pub(super) async fn get(client: &Client) -> Timings {
    timings_of(client.get(URL)).await
}

pub(super) fn causes(timings: &Timings) -> Vec<Cause> {
    timings.why().reasons().iter().map(|reason| reason.cause).collect()
}

/// Checks that these are the causes, the one that took most of the time first, and the sentences about them.
#[track_caller]
pub(super) fn assert_why(timings: &Timings, expected: &[Cause], text: &str) {
    let why = timings.why();
    assert_eq!((causes(timings), why.to_string().as_str()), (expected.to_vec(), text), "{}", timings.waterfall());
    assert!(why.reasons().iter().all(|reason| reason.share > 0.0 && reason.share <= 1.0), "{why:?}");
}
