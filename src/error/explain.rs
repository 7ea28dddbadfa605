//! hyper's errors in words. hyper and h2 often say only that there was an error; the reason is among the causes.

use std::error::Error as _;
use std::io;

use crate::connect::reason;

/// The addition to a message if no byte of a response came.
const MAYBE_ARRIVED: &str = "; it is not known whether the request arrived";

/// Explains why an exchange failed. `answered` is true if the response had begun.
pub(super) fn explain(error: &hyper::Error, answered: bool) -> String {
    if let Some(io) = io_cause(error) {
        return match io.kind() {
            // TLS without close_notify: the end of the connection, as FIN is without TLS.
            io::ErrorKind::UnexpectedEof => closed_early(answered),
            _ if answered => reason(io),
            _ => format!("{}{MAYBE_ARRIVED}", reason(io)),
        };
    }
    // hyper's method for this is part of its server only.
    if error.is_parse() && error.to_string() == "message head is too large" {
        return "the head of the response is too large".to_owned();
    }
    if error.is_user() {
        return "the connection is gone, and it is not known whether the request was sent".to_owned();
    }
    if error.is_timeout() {
        return "the connection is dead: a ping was not answered".to_owned();
    }
    if let Some(reason) = stream_error(error) {
        return reason;
    }
    if error.is_parse() {
        return format!("the server's answer is not HTTP/1.1: {error}");
    }
    if error.is_canceled() {
        return "the connection closed before the request was sent".to_owned();
    }
    if answered || error.is_incomplete_message() {
        return closed_early(answered);
    }
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Explains why a connection ended before it took a request. `None` if all that is known is that it closed.
pub(super) fn explain_end(error: &hyper::Error) -> Option<String> {
    if error.is_canceled() {
        // The request was not taken. The error of the connection may be behind that.
        return explain_end(error.source()?.downcast_ref()?);
    }
    if error.is_incomplete_message() {
        return None; // the end of the stream
    }
    match io_cause(error) {
        Some(io) if matches!(io.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) => None,
        Some(io) => Some(reason(io)),
        None => Some(stream_error(error).unwrap_or_else(|| error.to_string())),
    }
}

/// Explains that the server closed the connection before its response was complete.
fn closed_early(answered: bool) -> String {
    if answered {
        "the server closed the connection in the middle of its response".to_owned()
    } else {
        format!("the server closed the connection without a response{MAYBE_ARRIVED}")
    }
}

/// Explains an error of an HTTP/2 stream, or of all of a connection's streams (RFC 9113 §5.4).
pub(super) fn stream_error(error: &hyper::Error) -> Option<String> {
    let cause = error.source()?.downcast_ref::<h2::Error>()?;
    if cause.is_io() {
        return None;
    }
    let reason = match cause.reason() {
        Some(reason) => format!("{reason:?}"),
        None => cause.to_string(),
    };
    Some(if !cause.is_remote() {
        format!("the server's answer is not HTTP/2 ({reason})")
    } else if cause.is_go_away() {
        format!("the peer closed the connection (GOAWAY, {reason})")
    } else {
        format!("the peer reset the stream (RST_STREAM, {reason})")
    })
}

/// Returns the error of the operating system among the causes of hyper's error.
pub(crate) fn io_cause(error: &hyper::Error) -> Option<&io::Error> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref() {
            return Some(io);
        }
        // h2 has one as well, and does not return it as its source.
        if let Some(io) = error.downcast_ref::<h2::Error>().and_then(h2::Error::get_io) {
            return Some(io);
        }
        cause = error.source();
    }
    None
}
