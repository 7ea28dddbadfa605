//! A few requests, one after the other, on the client's own way to the origin.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{AGE, CONNECTION, DATE};

use super::failure::{Failure, FailureKind, Via};
#[cfg(feature = "__tls")]
use super::handshakes;
#[cfg(feature = "__tls")]
use super::report::TlsReport;
use super::report::{ClockReport, RequestReport, ResponseReport};
use crate::client::{Client, ClientBuilder, Response};
use crate::clock::{now, wall};
use crate::connect::Connector;
use crate::doctor::finding::LONGEST_REQUEST;
use crate::error::Result;
use crate::origin::Origin;
use crate::pool::PoolConfig;
use crate::redact::shown;
#[cfg(feature = "__tls")]
use crate::tls::Tls;

/// The number of requests. More than two, because the first connection may close for a reason of its own.
const REQUESTS: usize = 3;
/// The most characters of a header's value that are reported.
const MAX_VALUE: usize = 100;

/// The results of the requests.
#[derive(Default)]
pub(super) struct RequestsSeen {
    pub(super) reports: Vec<RequestReport>,
    pub(super) clock: Option<ClockReport>,
    /// The TLS handshake below the first request.
    #[cfg(feature = "__tls")]
    pub(super) tls: Option<TlsReport>,
}

impl RequestsSeen {
    /// Notes that a request failed where the client spoke HTTP/2 unasked. The failure of a connection is none of this kind.
    pub(super) fn blame_http2(&mut self) {
        if self.reports.iter().any(|request| request.response.is_ok()) {
            return;
        }
        let failures = self.reports.iter_mut().filter_map(|request| request.response.as_mut().err());
        for failure in failures.filter(|failure| matches!(failure.kind, FailureKind::Other | FailureKind::TimedOut)) {
            failure.kind = FailureKind::NoCommonProtocol;
        }
    }
}

/// Sends a few HEAD requests for the root of `origin`. The first failure is the last request.
pub(super) async fn send_some(connector: &Arc<Connector>, origin: &Origin, via: Via) -> RequestsSeen {
    // One connection alone, so that a request waits for that of the one before it.
    let client = ClientBuilder::build_beside(connector.clone(), PoolConfig::new().max_connections_per_host(1));
    let url = format!("{}://{origin}/", origin.scheme());
    let mut requests = RequestsSeen::default();
    for _ in 0..REQUESTS {
        let (start, wall_start) = (now(), wall());
        let outcome = send(&client, &url).await;
        let elapsed = now() - start;
        #[cfg(feature = "__tls")]
        if requests.reports.is_empty() {
            requests.tls = handshake(&connector.tls, origin, &outcome);
        }
        let is_over = outcome.is_err();
        if let Ok(response) = &outcome {
            requests.clock = requests.clock.or_else(|| clock(response.headers(), wall_start, wall()));
        }
        let response = match outcome {
            Ok(response) => Ok(finish(response).await),
            Err(error) => Err(Failure::of_request(error, via)),
        };
        requests.reports.push(RequestReport { elapsed, response });
        if is_over {
            break;
        }
    }
    requests
}

async fn send(client: &Client, url: &str) -> Result<Response> {
    client.head(url).timeout(LONGEST_REQUEST).send().await
}

/// Reads a response to its end, so that its connection may serve the next request.
async fn finish(response: Response) -> ResponseReport {
    let report = ResponseReport {
        status: response.status().as_u16(),
        version: format!("{:?}", response.version()),
        remote: response.remote_addr(),
        reused: response.timings().reused(),
        keep_alive: value(response.headers(), "keep-alive"),
        closes: has_close(response.headers()),
    };
    // A response to HEAD has no body. An error here shows with the next request.
    let _ = response.bytes().await;
    report
}

fn value(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(shown(headers.get(name)?.to_str().ok()?, MAX_VALUE))
}

/// Returns true if a server announces that it closes the connection (RFC 9112 §9.6).
fn has_close(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|option| option.trim().eq_ignore_ascii_case("close"))
}

#[cfg(feature = "__tls")]
fn handshake(tls: &Tls, origin: &Origin, outcome: &Result<Response>) -> Option<TlsReport> {
    match outcome {
        Ok(response) => {
            let facts = response.tls()?;
            Some(handshakes::of_response(tls, origin.host(), &facts, &response.timings()))
        }
        Err(error) => handshakes::of_error(tls, origin.host(), error),
    }
}

/// Returns the server's time by the `Date` of a response that was asked for at `start` and came at `end`.
fn clock(headers: &HeaderMap, start: SystemTime, end: SystemTime) -> Option<ClockReport> {
    let date = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    // A cache repeats the date of its origin, and says how long ago that was (RFC 9111 §5.1).
    let age = headers.get(AGE).and_then(|age| age.to_str().ok()?.trim().parse().ok()).unwrap_or(0);
    let server = date.checked_add(Duration::from_secs(age))?;
    Some(ClockReport { date, skew_secs: skew(server, start, end) })
}

/// Returns the whole seconds between the server's time, which has no fractions, and the time in which it answered.
fn skew(server: SystemTime, start: SystemTime, end: SystemTime) -> i64 {
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    if let Ok(ahead) = server.duration_since(end) {
        return seconds(ahead);
    }
    match start.duration_since(server) {
        Ok(behind) => -seconds(behind.saturating_sub(Duration::from_secs(1))),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn the_skew_is_what_the_fractions_and_the_duration_of_a_request_do_not_explain() {
        let at = |secs: f64| SystemTime::UNIX_EPOCH + Duration::from_secs_f64(secs);
        assert_eq!(skew(at(100.0), at(100.2), at(100.3)), 0);
        assert_eq!(skew(at(100.0), at(99.0), at(109.0)), 0);
        assert_eq!(skew(at(100.0), at(100.9), at(101.2)), 0);
        assert_eq!(skew(at(160.0), at(100.2), at(100.3)), 59);
        assert_eq!(skew(at(40.0), at(100.2), at(100.3)), -59);
    }

    #[test]
    fn a_cached_response_is_as_old_as_it_says() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(3_600);
        let date = ("date", "Thu, 01 Jan 1970 00:50:00 GMT");
        assert_eq!(clock(&headers(&[date]), at, at).unwrap().skew_secs, -599);
        assert_eq!(clock(&headers(&[date, ("age", "600")]), at, at).unwrap().skew_secs, 0);
        assert_eq!(clock(&headers(&[("date", "yesterday")]), at, at), None);
    }

    #[test]
    fn close_is_one_of_the_connections_options() {
        assert!(has_close(&headers(&[("connection", "x, Close")])));
        assert!(!has_close(&headers(&[("connection", "keep-alive, closed")])));
    }
}
