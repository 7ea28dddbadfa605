//! Waterfalls and reasons as text for a terminal.

use std::time::Duration;

use crate::exchange::Told;

/// The width to which sentences are broken.
const WIDTH: usize = 80;
/// The columns before a sentence, as before the bars of a waterfall.
const INDENT: usize = 12;

/// Prints the waterfall of a request on a scale of at least `scale`, and why it took its time.
pub(crate) fn draw(told: &Told, scale: Duration) {
    if let Some(timings) = &told.timings {
        println!("{}", timings.waterfall().scale(scale));
        println!("  {:<1$}{2}\n", "why", INDENT - 2, broken(&timings.why().to_string()));
    }
}

/// Returns a text in lines, each after the first one with the indentation.
fn broken(text: &str) -> String {
    let mut lines = String::new();
    let mut column = INDENT;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > INDENT && column + 1 + length > WIDTH {
            lines.push_str(&format!("\n{:INDENT$}", ""));
            column = INDENT;
        } else if column > INDENT {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
    }
    lines
}

/// Returns a time with three digits or so.
pub(crate) fn short(time: Duration) -> String {
    match time.as_secs_f64() * 1e3 {
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms if ms < 1_000.0 => format!("{ms:.1} ms"),
        ms => format!("{:.2} s", ms / 1e3),
    }
}
