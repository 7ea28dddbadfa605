//! Makes one call as its plan says, and gathers what is known of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use speeddial::trace::{Event, Observer, Record, Subject, Timings};
use speeddial::{Body, Client, RequestBuilder, Response};
use support::fault_script::rng_of;

use crate::judge::{End, Failure, PATIENCE};
use crate::pattern::{self, Part};
use crate::plan::{Cancel, Plan, Reading, Upload};

/// The connections of one call, each with the address that it leads to.
#[derive(Clone, Default)]
pub(crate) struct Used(Arc<Mutex<BTreeMap<u64, SocketAddr>>>);

impl Used {
    pub(crate) fn all(&self) -> BTreeMap<u64, SocketAddr> {
        self.0.lock().unwrap().clone()
    }
}

impl Observer for Used {
    fn observe(&self, record: &Record) {
        let used = match (record.subject, &record.event) {
            (_, Event::Leased { connection, remote: Some(remote), .. }) => (*connection, *remote),
            (Subject::Connection(connection), Event::AttemptStart { address, .. }) => (connection, *address),
            _ => return,
        };
        self.0.lock().unwrap().insert(used.0, used.1);
    }
}

/// Makes the call. Returns its end, its duration and its connections.
pub(crate) async fn make(plan: &Plan, client: &Client, url: &str) -> (End, Duration, Used) {
    let used = Used::default();
    let request = request(plan, client, url).observer(used.clone());
    let start = Instant::now();
    let call = finish(plan, request);
    let patiently = async {
        match plan.cancel {
            Cancel::Never => Some(call.await),
            Cancel::AtAwait(awaits) => support::dropped_at_await(awaits, call).await,
            Cancel::After(time) => tokio::time::timeout(time, call).await.ok(),
        }
    };
    let end = match tokio::time::timeout(plan.deadline + PATIENCE, patiently).await {
        Ok(end) => end.unwrap_or(End::Cancelled),
        Err(_) => End::Hung,
    };
    (end, start.elapsed(), used)
}

fn request(plan: &Plan, client: &Client, url: &str) -> RequestBuilder {
    let url = format!("{url}{}", plan.target());
    let mut request = client.request(plan.method.clone(), url).header("x-id", plan.id).timeout(plan.deadline);
    if plan.keyed {
        request = request.header("idempotency-key", plan.id);
    }
    let upload = |length| pattern::body(Part::Upload, plan.id, length);
    match plan.upload {
        Upload::None => request,
        Upload::Bytes(length) => request.body(upload(length)),
        Upload::Stream(length) => request.body(stream(plan.id, upload(length))),
    }
}

/// Returns the bytes as a body in pieces, some of which come later.
fn stream(id: u64, mut rest: Bytes) -> Body {
    let mut rng = rng_of(&[id]);
    Body::wrap_stream(futures_util::stream::unfold((), move |()| {
        let piece = rest.split_to(rest.len().min(1 + rng.usize(..8_192)));
        let is_late = rng.u32(..4) == 0;
        async move {
            if is_late {
                tokio::task::yield_now().await;
            }
            (!piece.is_empty()).then_some((Ok::<_, std::io::Error>(piece), ()))
        }
    }))
}

/// Sends the request and reads the response.
async fn finish(plan: &Plan, request: RequestBuilder) -> End {
    let mut response = match request.send().await {
        Ok(response) => response,
        Err(error) => return failed(&error, false),
    };
    let status = response.status().as_u16();
    let id = response.headers().get("x-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let url = response.url().to_string();
    let body = match plan.reading {
        Reading::Whole => response.bytes().await.map(Into::into),
        Reading::Pieces => in_pieces(&mut response, false).await,
        Reading::Slowly => in_pieces(&mut response, true).await,
    };
    match body {
        Ok(body) => End::Answered { status, id, url, body },
        Err(error) => failed(&error, true),
    }
}

async fn in_pieces(response: &mut Response, slowly: bool) -> Result<Vec<u8>, speeddial::Error> {
    let mut body = Vec::new();
    let mut pieces = 0;
    while let Some(piece) = response.chunk().await? {
        body.extend_from_slice(&piece);
        pieces += 1;
        // Slow, and not so slow that the deadline comes.
        if slowly && pieces <= 10 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    Ok(body)
}

fn failed(error: &speeddial::Error, has_head: bool) -> End {
    End::Failed(Failure {
        kind: error.kind(),
        is_timeout: error.is_timeout(),
        is_connect: error.is_connect(),
        url: error.url().map(ToString::to_string),
        has_head,
        queued: error.timings().map(Timings::queue).unwrap_or_default(),
        text: format!("{error:#}"),
    })
}
