//! Times, sizes and notes as short text, for the line, the waterfall and the pictures of timings.

use std::time::Duration;

/// Formats a time in the unit that leaves at most three digits before the point.
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

/// Formats a time that was set, such as a limit, exactly.
pub(crate) fn exact(time: Duration) -> String {
    let text = format!("{time:?}");
    match text.find(|char: char| char.is_alphabetic()) {
        Some(unit) => format!("{} {}", &text[..unit], &text[unit..]),
        None => text,
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

/// Returns the first variant whose parts, joined by commas, fit in `room` characters, or else the last variant cut to fit.
pub(in crate::trace) fn fit<const PARTS: usize, const VARIANTS: usize>(
    room: usize,
    variants: [[Option<String>; PARTS]; VARIANTS],
) -> String {
    let mut text = String::new();
    for parts in variants {
        text = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        if text.chars().count() <= room {
            return text;
        }
    }
    cut(text, room)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_about_three_digits() {
        let spans = [0, 40, 999_900, 1_250_000, 31_000_000, 1_500_000_000, 125_000_000_000].map(Duration::from_nanos);
        assert_eq!(spans.map(span), ["0", "0.0 µs", "1.00 ms", "1.25 ms", "31.0 ms", "1.50 s", "125 s"]);
    }

    #[test]
    fn sizes_have_decimal_prefixes() {
        assert_eq!([999, 262_144, 5_000_000].map(size), ["999 B", "262.1 kB", "5.0 MB"]);
    }

    #[test]
    fn notes_too_long_leave_out_the_least_important_parts() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(fit(33, [[some("short"), some("and sweet")]]), "short, and sweet");
        let v6 = "2001:db8:1111:2222:3333:4444:5555:6666";
        assert_eq!(fit(33, [[some("new"), some(v6)], [some("192.0.2.1"), None]]), "192.0.2.1");
        let cut = fit(33, [[some(v6)]]);
        assert!(cut.starts_with("2001:db8:1111:2222:3333:") && cut.chars().count() == 33 && cut.ends_with('…'));
    }
}
