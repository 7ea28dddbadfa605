use std::error::Error as _;
use std::io;
use std::sync::Arc;

use super::*;
use crate::connect::ConnectError;

fn about(error: Error, url: &str, discreet: bool) -> Error {
    let left_out = LeftOut { queries: discreet, bodies: false };
    let context = Context { method: Method::GET, url: Url::parse(url).unwrap(), until: None, left_out };
    error.about(&context, Timings::new(clock::now()))
}

fn refused() -> ConnectError {
    let address = ([192, 0, 2, 7], 443).into();
    ConnectError::Unreachable(vec![(address, Arc::new(io::ErrorKind::ConnectionRefused.into()))])
}

#[test]
fn an_error_is_one_word() {
    assert_eq!(size_of::<Error>(), size_of::<usize>());
}

#[test]
fn the_request_comes_before_the_clause_without_credentials_and_without_a_hidden_query() {
    let status = |discreet| {
        let error = Error::from_status(StatusCode::NOT_FOUND, None, Bytes::new());
        about(error, "http://user:pass@host/x?token=secret#part", discreet).to_string()
    };
    assert_eq!(status(false), "GET http://host/x?token=secret: status 404 Not Found");
    assert_eq!(status(true), "GET http://host/x: status 404 Not Found");
}

#[test]
fn a_url_that_is_set_is_shown_without_credentials() {
    let url = Url::parse("http://user:pass@host/x?q=1#part").unwrap();
    let error = Error::refused_request("no").with_url(url);
    assert_eq!(error.to_string(), "http://host/x?q=1: no");
    assert_eq!(error.url().unwrap().as_str(), "http://host/x?q=1");
}

#[test]
fn the_clause_of_a_status_shows_the_servers_own_phrase_in_one_line_of_80_characters() {
    let status = |phrase| {
        let status = StatusCode::from_u16(599).unwrap();
        Error::from_status(status, phrase, Bytes::new()).to_string()
    };
    assert_eq!(status(Some("Out of\ttea")), "status 599 Out of tea");
    assert_eq!(status(None), "status 599 <unknown status code>");
    assert_eq!(status(Some(&"x".repeat(200))), format!("status 599 {}…", "x".repeat(80)));
}

#[test]
fn the_alternate_form_is_the_chain_of_clauses() {
    let error = about(Error::no_connection(refused()), "https://api.example.com/items", false);
    assert_eq!(error.to_string(), "GET https://api.example.com/items: connect to 192.0.2.7 failed");
    assert_eq!(format!("{error:#}"), format!("{error}: connection refused"));
}

#[test]
fn the_error_of_the_operating_system_is_the_source_though_it_is_shared() {
    let error = Error::no_connection(refused());
    let io = error.source().unwrap().downcast_ref::<io::Error>().unwrap();
    assert_eq!(io.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn an_error_that_belongs_to_no_request_is_a_clause_alone() {
    let error = Error::refused_request("no");
    assert_eq!((error.to_string().as_str(), error.method(), error.url()), ("no", None, None));
}

#[test]
fn debug_is_a_struct_in_one_line() {
    let error = about(Error::no_connection(refused()), "http://host/x", false);
    let shown = "speeddial::Error { kind: Connect, method: GET, url: http://host/x, \
                 message: \"connect to 192.0.2.7 failed\", source: Kind(ConnectionRefused) }";
    assert_eq!(format!("{error:?}"), shown);
}

#[test]
fn a_time_limit_of_the_operating_system_is_a_timeout_of_no_phase() {
    let address = ([192, 0, 2, 7], 443).into();
    let late = ConnectError::Unreachable(vec![(address, Arc::new(io::ErrorKind::TimedOut.into()))]);
    let error = Error::no_connection(late);
    assert_eq!((error.kind(), error.is_timeout(), error.is_connect()), (ErrorKind::Connect, true, true));
    assert!(!Error::no_connection(refused()).is_timeout());
}

/// A text of a peer's that steers a terminal, turns text around, and is longer than any message.
#[cfg(feature = "json")]
fn hostile() -> String {
    format!("\u{1b}[2J\u{202e}\u{2066}\u{200f}\u{61c}{}", "k".repeat(1_000_000))
}

#[cfg(feature = "json")]
#[test]
fn texts_of_peers_are_short_and_have_no_characters_that_steer() {
    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Empty {}
    let body = format!("{{\"{}\": 1}}", hostile().replace('\u{1b}', "\\u001b"));
    let json = |body: &str| {
        let error = serde_json::from_str::<Empty>(body).unwrap_err();
        Error::json(Some(hostile()), error, body.as_bytes())
    };
    let status = Error::from_status(StatusCode::NOT_FOUND, Some(&hostile()), hostile().into());
    let layer = Error::layer(hostile().into());
    for error in [json(&body), status, layer, Error::refused_request(hostile())] {
        let source = error.source().map_or(String::new(), ToString::to_string);
        let source = if error.kind() == ErrorKind::Layer { String::new() } else { source };
        for text in [error.to_string(), format!("{error:#}"), format!("{error:?}"), source] {
            assert!(text.len() < 8_000, "{} bytes", text.len());
            assert!(!text.chars().any(crate::redact::is_hidden), "{text}");
        }
    }
    let error = json(&body);
    let source = error.source().unwrap().downcast_ref::<serde_json::Error>().unwrap();
    assert!(source.is_data() && source.to_string().starts_with("unknown field `\u{fffd}[2J\u{fffd}"), "{source}");
    assert_eq!((source.line(), source.column()), (1, body.len() - 4));
    let known = serde_json::from_str::<Vec<u8>>("[1, \"a at line 7 column 9\"]").unwrap_err();
    let text = known.to_string();
    let source = Error::json(None, known, b"[").source().unwrap().to_string();
    assert_eq!(source, text, "a short text stays as it is");
}

#[cfg(feature = "json")]
#[test]
fn nothing_of_a_hidden_body_is_shown() {
    let error = serde_json::from_str::<std::collections::BTreeMap<String, u8>>("{\"secret\": \"secret\"}").unwrap_err();
    let error = Error::json(Some("secret".to_owned()), error, b"{\"secret\": \"secret\"}");
    let left_out = LeftOut { queries: false, bodies: true };
    let context = Context { method: Method::GET, url: Url::parse("http://a/").unwrap(), until: None, left_out };
    let error = error.about(&context, Timings::new(clock::now()));
    assert_eq!(error.to_string(), "GET http://a/: the body is not the expected JSON (line 1, column 19)");
    assert!(!format!("{error:#} {error:?}").contains("secret") && error.source().is_none());
}
