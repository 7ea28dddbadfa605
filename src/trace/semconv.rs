//! Values of attributes by [OpenTelemetry's conventions](https://opentelemetry.io/docs/specs/semconv/http/) for HTTP clients, version
//! 1.42.0: for measurements and spans that an [`Observer`](crate::trace::Observer) makes.

use std::borrow::Cow;
use std::sync::OnceLock;

use http::{Method, Version};

use super::timings::Timings;
use super::timings::requests::{EndedRequest, RequestEnd};
use crate::origin::{Host, Origin};
use crate::trace::observers::EndedCall;

/// The value of `http.request.method` for a method that is not known.
const OTHER_METHOD: &str = "_OTHER";
/// The attribute of a request or a call whose response was dropped before the end of its body.
const UNREAD: &str = "speeddial.unread";
/// The methods that the conventions know.
const KNOWN_METHODS: &str = "CONNECT,DELETE,GET,HEAD,OPTIONS,PATCH,POST,PUT,QUERY,TRACE";
/// The variable that replaces the list of known methods, as the conventions name it.
const METHODS_VARIABLE: &str = "OTEL_INSTRUMENTATION_HTTP_KNOWN_METHODS";

/// Returns the value of `http.request.method`: the name of a method, or `_OTHER` for one that is not known, so that the number of values
/// stays bounded. The environment variable `OTEL_INSTRUMENTATION_HTTP_KNOWN_METHODS` replaces the list of known methods, separated by
/// commas.
pub fn method_name(method: &Method) -> &'static str {
    static KNOWN: OnceLock<Vec<String>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| methods_of(std::env::var(METHODS_VARIABLE).ok()));
    name_among(known, method)
}

/// Returns the known methods: those of the variable, which are separated by commas, or those of the conventions.
fn methods_of(variable: Option<String>) -> Vec<String> {
    let list = variable.filter(|list| !list.is_empty()).unwrap_or_else(|| KNOWN_METHODS.to_owned());
    list.split(',').map(|method| method.trim().to_owned()).collect()
}

fn name_among(known: &'static [String], method: &Method) -> &'static str {
    known.iter().find(|known| **known == method.as_str()).map_or(OTHER_METHOD, |known| known.as_str())
}

/// Returns the value of `http.request.method_original`: the method, if the conventions do not know it.
pub fn original_method(method: &Method) -> Option<&str> {
    if method_name(method) == OTHER_METHOD { Some(method.as_str()) } else { None }
}

/// Returns the name of a span: the method, or `HTTP` for one that the conventions do not know; and the template of the URL, if there is
/// one.
pub fn span_name(method: &Method, template: Option<&str>) -> String {
    let name = match method_name(method) {
        OTHER_METHOD => "HTTP",
        name => name,
    };
    template.map_or_else(|| name.to_owned(), |template| format!("{name} {template}"))
}

/// Returns the value of `server.address`: a name, or an address, which has no brackets here.
pub fn server_address(origin: &Origin) -> String {
    match origin.host() {
        Host::Ip(ip) => ip.to_string(),
        Host::Name(name) => name.to_string(),
    }
}

/// Returns the value of `network.protocol.version`.
pub fn protocol_version(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

impl EndedRequest<'_> {
    /// Returns the value of `error.type`: the kind of the request's failure, a status of 400 or above, or the reason why it was sent again.
    pub fn error_type(&self) -> Option<Cow<'static, str>> {
        let repeated = match self.end {
            RequestEnd::Repeated(cause) => Some(Cow::Borrowed(cause.as_str())),
            _ => None,
        };
        failure_or_status(self.timings, self.failure).or(repeated)
    }

    /// Returns the name of the attribute of a request whose answer was not awaited or not read: `speeddial.unread` or
    /// `speeddial.cancelled` if the caller dropped it, `speeddial.superseded` if another request took its place. Without it, the request
    /// would look like a quick success.
    pub fn dropped(&self) -> Option<&'static str> {
        match self.end {
            RequestEnd::Unread => Some(UNREAD),
            RequestEnd::Superseded => Some("speeddial.superseded"),
            RequestEnd::Answered | RequestEnd::Redirected(_) | RequestEnd::Repeated(_) | RequestEnd::Failed => {
                name_of_cancelled(self.failure)
            }
        }
    }
}

impl EndedCall<'_> {
    /// Returns the value of `error.type`: the kind of the call's failure, or a status of 400 or above.
    pub fn error_type(&self) -> Option<Cow<'static, str>> {
        failure_or_status(self.timings, self.timings.failure())
    }

    /// Returns the name of the attribute of a call that the caller dropped: `speeddial.unread` or `speeddial.cancelled`.
    pub fn dropped(&self) -> Option<&'static str> {
        if self.timings.is_unread() { Some(UNREAD) } else { name_of_cancelled(self.timings.failure()) }
    }
}

fn is_cancelled(failure: Option<&str>) -> bool {
    failure == Some("cancelled")
}

fn name_of_cancelled(failure: Option<&str>) -> Option<&'static str> {
    is_cancelled(failure).then_some("speeddial.cancelled")
}

fn failure_or_status(timings: &Timings, failure: Option<&'static str>) -> Option<Cow<'static, str>> {
    // That the caller does not want the answer any more is not an error by the conventions.
    if let Some(why) = failure.filter(|why| !is_cancelled(Some(why))) {
        return Some(Cow::Borrowed(why));
    }
    let status = timings.status().filter(|status| status.is_client_error() || status.is_server_error())?;
    Some(status.as_u16().to_string().into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::StatusCode;

    use super::*;
    use crate::trace::timings::requests::StartedRequest;
    use crate::trace::timings::samples;
    use crate::trace::{Event, Phase};

    #[test]
    fn an_ipv6_address_has_no_brackets() {
        let address = |url| server_address(&Origin::from_url(&url::Url::parse(url).unwrap()).unwrap());
        let urls = ["http://[2001:db8::1]:8080/", "http://192.0.2.1/", "http://API.test/"];
        assert_eq!(urls.map(address), ["2001:db8::1", "192.0.2.1", "api.test"]);
    }

    #[test]
    fn an_unknown_method_is_other_with_its_name_beside_it() {
        let names = |method: &str| {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            (method_name(&method), original_method(&method).map(str::to_owned), span_name(&method, Some("/a")))
        };
        assert_eq!(names("GET"), ("GET", None, "GET /a".to_owned()));
        assert_eq!(names("QUERY"), ("QUERY", None, "QUERY /a".to_owned()));
        assert_eq!(names("PURGE"), ("_OTHER", Some("PURGE".to_owned()), "HTTP /a".to_owned()));
        assert_eq!(
            names("get"),
            ("_OTHER", Some("get".to_owned()), "HTTP /a".to_owned()),
            "methods are case-sensitive"
        );
    }

    #[test]
    fn the_known_methods_can_be_replaced() {
        let known = |variable: Option<&str>| -> &'static [String] {
            Box::leak(methods_of(variable.map(str::to_owned)).into_boxed_slice())
        };
        let purge = Method::from_bytes(b"PURGE").unwrap();
        for list in [None, Some("")] {
            assert_eq!([Method::GET, purge.clone()].map(|method| name_among(known(list), &method)), ["GET", "_OTHER"]);
        }
        let own = known(Some("PURGE, GET"));
        let names = [Method::GET, purge, Method::POST].map(|method| name_among(own, &method));
        assert_eq!(names, ["GET", "PURGE", "_OTHER"]);
    }

    /// Returns what is said of a call with these events.
    fn of_call<T>(events: &[(u64, Event)], said: impl Fn(&EndedCall<'_>) -> T) -> T {
        let (request, timings) = (Arc::new(samples::request()), Arc::new(samples::folded(events)));
        said(&EndedCall { number: 1, request: &request, timings: &timings })
    }

    #[test]
    fn a_request_without_an_answer_that_counts_does_not_look_like_a_success() {
        let (info, timings) = (samples::request(), samples::folded(&[]));
        let started = crate::clock::now().into_std();
        let request = StartedRequest { call: 1, number: 0, is_redirected: false, started, request: &info };
        let named = |end, failure| {
            let spent_before = &Default::default();
            let ended = EndedRequest {
                request,
                ended: started,
                end,
                failure,
                timings: &timings,
                spent_before,
                late_before: Duration::ZERO,
            };
            (ended.dropped(), ended.error_type().map(Cow::into_owned))
        };
        assert_eq!(named(RequestEnd::Superseded, None), (Some("speeddial.superseded"), None));
        assert_eq!(named(RequestEnd::Unread, None), (Some("speeddial.unread"), None));
        assert_eq!(named(RequestEnd::Failed, Some("cancelled")), (Some("speeddial.cancelled"), None));
        assert_eq!(named(RequestEnd::Failed, Some("timeout")), (None, Some("timeout".to_owned())));
        assert_eq!(named(RequestEnd::Answered, None), (None, None));
    }

    #[test]
    fn what_the_caller_drops_is_no_error() {
        let cancelled = || Event::CallFailed { phase: Phase::Wait, why: "cancelled", bytes: 0 };
        let dropped = || Event::BodyDropped { bytes: 7 };
        let headers = |status| Event::Headers { status, version: Version::HTTP_11 };
        let error_type = |events: &[(u64, Event)]| of_call(events, |call| call.error_type().map(Cow::into_owned));
        assert_eq!(error_type(&[(1, cancelled())]), None);
        assert_eq!(error_type(&[(1, headers(StatusCode::OK)), (2, dropped())]), None);
        assert_eq!(error_type(&[(1, headers(StatusCode::NOT_FOUND)), (2, dropped())]).as_deref(), Some("404"));
        let named = |events: &[(u64, Event)]| of_call(events, |call| call.dropped());
        assert_eq!(named(&[(1, cancelled())]), Some("speeddial.cancelled"));
        assert_eq!(named(&[(1, headers(StatusCode::OK)), (2, dropped())]), Some("speeddial.unread"));
        assert_eq!(named(&[(1, headers(StatusCode::OK)), (2, Event::BodyEnd { bytes: 7 })]), None);
    }
}
