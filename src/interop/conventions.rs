//! Attributes by [OpenTelemetry's conventions](https://opentelemetry.io/docs/specs/semconv/http/) for HTTP clients.

use std::borrow::Cow;

use http::{Method, Version};

use crate::origin::Scheme;
use crate::trace::Timings;

/// Returns the name of a method, or `_OTHER` for one that the conventions do not know, so that the number of attributes stays
/// bounded.
pub(super) fn method_name(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        "TRACE" => "TRACE",
        "PATCH" => "PATCH",
        _ => "_OTHER",
    }
}

/// Returns the value of `network.protocol.version`.
pub(super) fn protocol_version(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

/// Returns the value of `url.scheme`.
pub(super) fn scheme_name(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Http => "http",
        Scheme::Https => "https",
    }
}

/// Returns the value of `error.type`: the kind of a failure, or a status of 400 or above.
pub(super) fn error_type(timings: &Timings) -> Option<Cow<'static, str>> {
    // A caller that has seen the headers and drops the body has not failed.
    let has_headers = timings.status().is_some();
    if let Some(why) = timings.failure()
        && !(why == "cancelled" && has_headers)
    {
        return Some(Cow::Borrowed(why));
    }
    let status = timings.status().filter(|status| status.is_client_error() || status.is_server_error())?;
    Some(status.as_u16().to_string().into())
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::trace::{Event, Phase, samples};

    #[test]
    fn a_dropped_body_is_no_error_and_a_dropped_call_is_one() {
        let cancelled = || Event::CallFailed { phase: Phase::Receive, why: "cancelled" };
        let headers = |status| Event::Headers { status, version: Version::HTTP_11 };
        let error_type = |events: &[(u64, Event)]| error_type(&samples::folded(events)).map(Cow::into_owned);
        assert_eq!(error_type(&[(1, cancelled())]).as_deref(), Some("cancelled"));
        assert_eq!(error_type(&[(1, headers(StatusCode::OK)), (2, cancelled())]), None);
        assert_eq!(error_type(&[(1, headers(StatusCode::NOT_FOUND)), (2, cancelled())]).as_deref(), Some("404"));
    }
}
