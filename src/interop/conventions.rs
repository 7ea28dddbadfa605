//! Words of OpenTelemetry's conventions.

use std::borrow::Cow;

use http::{Method, Version};

use crate::trace::Timings;

/// Methods of somebody's own would make attributes without end.
pub(super) fn known(method: &Method) -> &'static str {
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

pub(super) fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

/// The kind of a failure, or a status that says that there was one.
pub(super) fn error_type(timings: &Timings) -> Option<Cow<'static, str>> {
    let status = timings.status().filter(|status| status.is_client_error() || status.is_server_error());
    // Who has seen the headers may have no use for the body.
    let failure = timings.failure().filter(|why| *why != "cancelled" || timings.status().is_none());
    let failure = failure.map(Cow::Borrowed);
    failure.or_else(|| status.map(|status| status.as_u16().to_string().into()))
}
