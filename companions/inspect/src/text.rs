//! Times, sizes, shares and origins as short text.

use std::time::{Duration, SystemTime};

use speeddial::origin::{Origin, Scheme};

/// Formats a time in the unit that leaves at most three digits before the point, as speeddial's own texts do.
pub(crate) fn span(time: Duration) -> String {
    let micros = time.as_nanos() as f64 / 1e3;
    match micros {
        0.0 => "0".to_owned(),
        ..9.95 => format!("{micros:.1} µs"),
        ..999.5 => format!("{micros:.0} µs"),
        ..9_995.0 => format!("{:.2} ms", micros / 1e3),
        ..99_950.0 => format!("{:.1} ms", micros / 1e3),
        ..999_500.0 => format!("{:.0} ms", micros / 1e3),
        ..9_995_000.0 => format!("{:.2} s", micros / 1e6),
        ..99_950_000.0 => format!("{:.1} s", micros / 1e6),
        _ => format!("{:.0} s", micros / 1e6),
    }
}

/// Formats a number of bytes with a decimal prefix.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        ..=999 => format!("{bytes} B"),
        1_000..=999_999 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..=999_999_999 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Cuts a text to `room` characters, the last of which is an ellipsis then.
pub(crate) fn cut(text: String, room: usize) -> String {
    if text.chars().count() <= room {
        return text;
    }
    let mut cut: String = text.chars().take(room.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Returns a date with its time of day (RFC 9110 §5.6.7).
pub(crate) fn date(at: SystemTime) -> String {
    // httpdate has no years beyond 9999.
    let end = Duration::from_secs(253_402_300_800);
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) if since < end => httpdate::fmt_http_date(at).replace("GMT", "UTC"),
        _ => "an unknown time".to_owned(),
    }
}

/// Returns a time of day to the millisecond.
pub(crate) fn time_of_day(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let second = since.as_secs() % 86_400;
    let [hour, minute] = [second / 3_600, second / 60 % 60];
    format!("{hour:02}:{minute:02}:{:02}.{:03}", second % 60, since.subsec_millis())
}

/// Returns a part of a whole in per cent.
pub(crate) fn share(part: u64, whole: u64) -> String {
    per_cent(part as f64, whole as f64)
}

/// Returns a part of a time in per cent.
pub(crate) fn share_of_time(part: Duration, whole: Duration) -> String {
    per_cent(part.as_secs_f64(), whole.as_secs_f64())
}

fn per_cent(part: f64, whole: f64) -> String {
    let share = if whole == 0.0 { 0.0 } else { 100.0 * part / whole };
    match share {
        0.0 => "0 %".to_owned(),
        ..1.0 => "< 1 %".to_owned(),
        99.0..100.0 => "> 99 %".to_owned(),
        _ => format!("{share:.0} %"),
    }
}

/// Returns a count with a narrow space between groups of three digits.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Returns an origin as a URL has it, with the port if it is not the scheme's default.
pub(crate) fn origin_url(origin: &Origin) -> String {
    let scheme = origin.scheme();
    match (scheme, origin.port()) {
        (Scheme::Http, 80) | (Scheme::Https, 443) => format!("{scheme}://{}", origin.host()),
        _ => format!("{scheme}://{origin}"),
    }
}

#[cfg(test)]
mod tests {
    use speeddial::url::Url;

    use super::*;

    #[test]
    fn spans_and_sizes_have_about_three_digits() {
        let spans = [0, 40, 999_900, 1_250_000, 31_000_000, 1_500_000_000, 125_000_000_000].map(Duration::from_nanos);
        assert_eq!(spans.map(span), ["0", "0.0 µs", "1.00 ms", "1.25 ms", "31.0 ms", "1.50 s", "125 s"]);
        assert_eq!([999, 262_144, 5_000_000].map(size), ["999 B", "262.1 kB", "5.0 MB"]);
        assert_eq!((cut("äöü".to_owned(), 3), cut("äöüß".to_owned(), 3)), ("äöü".to_owned(), "äö…".to_owned()));
    }

    #[test]
    fn times_shares_and_counts_are_short() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_045);
        assert_eq!((date(at).as_str(), time_of_day(at).as_str()), ("Tue, 14 Nov 2023 22:13:20 UTC", "22:13:20.045"));
        assert_eq!(date(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40)), "an unknown time");
        let shares = [(0, 5), (1, 1_000), (1, 3), (999, 1_000), (5, 5), (0, 0)].map(|(part, whole)| share(part, whole));
        assert_eq!(shares, ["0 %", "< 1 %", "33 %", "> 99 %", "100 %", "0 %"]);
        assert_eq!([999, 1_000, 1_234_567].map(grouped), ["999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]);
    }

    #[test]
    fn an_origin_has_its_scheme_and_an_unusual_port() {
        let shown = |url: &str| origin_url(&Origin::from_url(&Url::parse(url).unwrap()).unwrap());
        assert_eq!(shown("http://api.test:80/x"), "http://api.test");
        assert_eq!(shown("http://[::1]:8080/x"), "http://[::1]:8080");
    }
}
