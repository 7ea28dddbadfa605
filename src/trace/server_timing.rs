//! A core: the metrics of a response's `Server-Timing` header (W3C Server Timing).

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName};

use super::text::cut;
use crate::redact::shown;

/// The header's name.
pub(crate) static SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// The most metrics of a response that are kept.
const MAX_METRICS: usize = 32;
/// The most bytes of a response's headers of this name that are read.
const MAX_BYTES: usize = 4096;
/// The longest duration that is believed.
const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 3600);
/// The most characters of a duration.
const MAX_DIGITS: usize = 32;
/// The most characters of a name that are kept.
const MAX_NAME: usize = 64;
/// The most characters of a description that are kept.
const MAX_DESCRIPTION: usize = 256;

/// A part of the time that a server took for a response, as the server tells it in a `Server-Timing` header
/// (<https://www.w3.org/TR/server-timing/>).
///
/// The server does not tell when the part began. Parts may overlap, and may be longer together than the client waited.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerTiming {
    /// The metric's name, such as `db`: a token (RFC 9110 §5.6.2), cut to 64 characters. Never empty.
    pub name: String,
    /// The duration; `None` if the server sent none, or one that is negative, no number, or longer than a year.
    pub duration: Option<Duration>,
    /// The description, cut to 256 characters; `None` if the server sent none.
    pub description: Option<String>,
}

/// Returns the metrics of a response with these headers, `None` if there are none.
///
/// At most 32 metrics in at most 4 KiB are read. Parameters are read as the standard says: unknown ones are skipped, and of
/// several with one name the first counts. In descriptions control characters and those that change the direction of text are
/// replaced.
pub(crate) fn metrics_of(headers: &HeaderMap) -> Option<Arc<[ServerTiming]>> {
    let values = headers.get_all(&SERVER_TIMING).iter();
    let mut rest = MAX_BYTES;
    let mut metrics = Vec::new();
    for value in values {
        let bytes = value.as_bytes();
        let whole = bytes.len() <= rest;
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(rest)]);
        rest -= bytes.len().min(rest);
        let mut entries = split_unquoted(&text, ',');
        if !whole {
            entries.pop(); // it is cut
        }
        metrics.extend(entries.into_iter().filter_map(metric));
        if !whole || metrics.len() >= MAX_METRICS {
            break;
        }
    }
    metrics.truncate(MAX_METRICS);
    if metrics.is_empty() { None } else { Some(metrics.into()) }
}

/// Splits a text at a character that is not within a quoted string.
fn split_unquoted(text: &str, at: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut begin = 0;
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (place, char) in text.char_indices() {
        if is_escaped {
            is_escaped = false;
        } else if is_quoted && char == '\\' {
            is_escaped = true;
        } else if char == '"' {
            is_quoted = !is_quoted;
        } else if char == at && !is_quoted {
            parts.push(&text[begin..place]);
            begin = place + char.len_utf8();
        }
    }
    parts.push(&text[begin..]);
    parts
}

/// Reads one metric. Returns `None` if its name is no token: names go into sentences and log lines, into which a server must not
/// put words of its own.
fn metric(entry: &str) -> Option<ServerTiming> {
    let mut parts = split_unquoted(entry, ';').into_iter();
    let name = trim(parts.next()?);
    if !is_token(name) {
        return None;
    }
    // The outer option is set by the first parameter of its name, though its value may be none.
    let mut duration = None;
    let mut description = None;
    for part in parts {
        let (parameter, value) = part.split_once('=').unwrap_or((part, ""));
        let parameter = trim(parameter);
        if parameter.eq_ignore_ascii_case("dur") {
            duration.get_or_insert_with(|| milliseconds(&unquoted(value)));
        } else if parameter.eq_ignore_ascii_case("desc") {
            description.get_or_insert_with(|| cut(shown(&unquoted(value), MAX_DESCRIPTION + 1), MAX_DESCRIPTION));
        }
    }
    let description = description.filter(|text| !text.is_empty());
    let name = name[..name.len().min(MAX_NAME)].to_owned(); // a token is ASCII
    Some(ServerTiming { name, duration: duration.flatten(), description })
}

/// Returns true if the text is a token (RFC 9110 §5.6.2).
fn is_token(text: &str) -> bool {
    let is_token_char = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token_char)
}

/// Returns the value of a parameter: that of its quoted string, or the text as it is.
fn unquoted(value: &str) -> String {
    let value = trim(value);
    let Some(quoted) = value.strip_prefix('"') else { return value.to_owned() };
    let mut text = String::new();
    let mut chars = quoted.chars();
    while let Some(char) = chars.next() {
        match char {
            '"' => break, // what follows the string does not count
            // A backslash at the end is one itself.
            '\\' => text.push(chars.next().unwrap_or('\\')),
            char => text.push(char),
        }
    }
    text
}

/// Reads a number of milliseconds. Text after the number does not count, as in HTML.
fn milliseconds(text: &str) -> Option<Duration> {
    let is_of_number = |char: &char| char.is_ascii_digit() || matches!(char, '.' | '+' | '-' | 'e' | 'E');
    let number: String = text.chars().take_while(is_of_number).take(MAX_DIGITS).collect();
    let millis = (1..=number.len()).rev().find_map(|end| number[..end].parse::<f64>().ok())?;
    let duration = Duration::try_from_secs_f64(millis / 1e3).ok()?;
    (duration <= MAX_DURATION).then_some(duration)
}

fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn parse(fields: &[&[u8]]) -> Vec<ServerTiming> {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(&SERVER_TIMING, HeaderValue::from_bytes(field).unwrap());
        }
        metrics_of(&headers).map(|metrics| metrics.to_vec()).unwrap_or_default()
    }

    /// Returns the metrics as `name duration description`, with the duration in milliseconds.
    fn lines(field: &str) -> Vec<String> {
        let line = |metric: &ServerTiming| {
            let duration = metric.duration.map_or("-".to_owned(), |time| (time.as_nanos() as f64 / 1e6).to_string());
            format!("{} {duration} {}", metric.name, metric.description.as_deref().unwrap_or("-"))
        };
        parse(&[field.as_bytes()]).iter().map(line).collect()
    }

    #[test]
    fn the_examples_of_the_standard_are_read() {
        assert_eq!(lines("miss, db;dur=53, app;dur=47.2"), ["miss - -", "db 53 -", "app 47.2 -"]);
        assert_eq!(lines("customView, dc;desc=atl"), ["customView - -", "dc - atl"]);
        assert_eq!(lines("cache;desc=\"Cache Read\";dur=23.2"), ["cache 23.2 Cache Read"]);
        assert_eq!(lines("total;dur=123.4"), ["total 123.4 -"]);
    }

    #[test]
    fn space_case_and_order_of_parameters_do_not_matter() {
        assert_eq!(lines(" db ; DUR = 1.5 ;\tDesc = \" a b \" "), ["db 1.5  a b "]);
        assert_eq!(lines("db;desc=fast;dur=2"), ["db 2 fast"]);
    }

    #[test]
    fn quoted_strings_may_contain_separators_and_escapes() {
        assert_eq!(lines(r#"a;desc="x, y; z=\"q\\\"";dur=1, b"#), [r#"a 1 x, y; z="q\""#, "b - -"]);
        assert_eq!(lines(r#"a;desc="open, b;dur=1"#), ["a - open, b;dur=1"], "a string without an end");
        assert_eq!(lines(r#"a;desc="x" junk;dur=1"#), ["a 1 x"], "text after a string does not count");
        assert_eq!(lines(r#"a;desc="x\"#), [r"a - x\"]);
    }

    #[test]
    fn the_first_of_several_parameters_counts_and_bad_ones_are_skipped() {
        assert_eq!(lines("a;dur=1;dur=2;desc=x;desc=y"), ["a 1 x"]);
        assert_eq!(lines("a;dur;dur=2"), ["a - -"]);
        assert_eq!(lines("a;;=;foo;foo=1;=2;dur=3;"), ["a 3 -"]);
        assert_eq!(lines(",, ;dur=1, a,"), ["a - -"], "a metric without a name is none");
        assert_eq!(lines(""), Vec::<String>::new());
    }

    #[test]
    fn durations_that_are_no_times_are_refused() {
        for text in ["-1", "NaN", "inf", "1e400", "9e99", "31536000001", "x", "", ".", "e5", "--1"] {
            assert_eq!(lines(&format!("a;dur={text}")), ["a - -"], "{text}");
        }
        let good =
            [("0", "0"), ("5e2", "500"), ("12ms", "12"), ("1e", "1"), (".5", "0.5"), ("\"7\"", "7"), ("+3", "3")];
        for (text, millis) in good {
            assert_eq!(lines(&format!("a;dur={text}")), [format!("a {millis} -")], "{text}");
        }
        assert_eq!(lines("a;dur=0.0000001"), ["a 0 -"]);
    }

    #[test]
    fn text_that_would_steer_a_terminal_is_replaced() {
        let [metric] = &parse(&["a;desc=\"x\u{9b}31m\ty\u{2066}\"".as_bytes()])[..] else { panic!() };
        assert_eq!(metric.description.as_deref(), Some("x\u{fffd}31m\u{fffd}y\u{fffd}"));
        let [latin] = &parse(&[b"a;desc=\xe9t\xe9"])[..] else { panic!() };
        assert_eq!(latin.description.as_deref(), Some("\u{fffd}t\u{fffd}"), "bytes that are no UTF-8");
        assert_eq!(parse(&["a;desc=été".as_bytes()])[0].description.as_deref(), Some("été"));
    }

    #[test]
    fn a_name_that_is_no_token_is_refused() {
        assert_eq!(lines("a.b-c_1;dur=1, !#$%&'*+-.^_`|~;dur=2"), ["a.b-c_1 1 -", "!#$%&'*+-.^_`|~ 2 -"]);
        for name in ["a b", "a: the call was refused", "a(b)", "\"a\"", "é", "a\u{202e}b", "a/b", "<b>", "a\tb"] {
            assert_eq!(lines(&format!("{name};dur=1, c")), ["c - -"], "{name}");
        }
    }

    #[test]
    fn long_names_and_descriptions_are_cut() {
        let [metric] = &parse(&[format!("{};desc=\"{}\"", "n".repeat(500), "é".repeat(1_000)).as_bytes()])[..] else {
            panic!("one metric")
        };
        assert_eq!(metric.name, "n".repeat(MAX_NAME));
        let description = metric.description.as_deref().unwrap();
        assert_eq!(description, format!("{}…", "é".repeat(MAX_DESCRIPTION - 1)));
        let fits = "d".repeat(MAX_DESCRIPTION);
        assert_eq!(parse(&[format!("a;desc={fits}").as_bytes()])[0].description, Some(fits));
    }

    #[test]
    fn several_headers_are_one_list_within_bounds() {
        let names = |metrics: &[ServerTiming]| metrics.iter().map(|metric| metric.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&parse(&[b"a, b", b"c;desc=\"open", b"d"])), ["a", "b", "c", "d"]);
        let many = (0..20).map(|n| format!("m{n}")).collect::<Vec<_>>().join(",");
        let kept = parse(&[many.as_bytes(), many.as_bytes()]);
        assert_eq!((kept.len(), kept[31].name.as_str()), (MAX_METRICS, "m11"));
        let long = format!("a, b;desc={}, c", "x".repeat(MAX_BYTES));
        assert_eq!(names(&parse(&[long.as_bytes(), b"d"])), ["a"], "the metric that is cut does not count");
    }

    #[test]
    fn random_bytes_neither_panic_nor_exceed_the_bounds() {
        let mut random = fastrand::Rng::with_seed(7);
        let alphabet = b"ab \t,;=\"\\.-+e0123456789durdescDUR\x80\xc3\xa9\xff";
        for _ in 0..20_000 {
            let mut headers = HeaderMap::new();
            for _ in 0..random.usize(1..4) {
                let longest = if random.u8(..) == 0 { 6_000 } else { 80 };
                let length = random.usize(0..longest);
                let field: Vec<u8> = (0..length).map(|_| alphabet[random.usize(..alphabet.len())]).collect();
                headers.append(&SERVER_TIMING, HeaderValue::from_bytes(&field).unwrap());
            }
            let metrics = metrics_of(&headers).map(|metrics| metrics.to_vec()).unwrap_or_default();
            assert!(metrics.len() <= MAX_METRICS);
            let mut characters = 0;
            for ServerTiming { name, duration, description } in &metrics {
                assert!(is_token(name) && name.len() <= MAX_NAME && duration.is_none_or(|time| time <= MAX_DURATION));
                let text = name.chars().chain(description.iter().flat_map(|text| text.chars()));
                characters += text.inspect(|char| assert!(!char.is_control())).count();
            }
            assert!(characters <= MAX_BYTES);
        }
    }
}
