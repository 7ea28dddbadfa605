//! Bars as SVG, which scale with the page. Their colours come from the page's style by the names of phases.

use std::fmt::Write;
use std::time::Duration;

use crate::trace::Phase;

/// The width of a whole bar in its own units.
const WIDTH: f64 = 1_000.0;
/// The shortest part that is drawn.
const SHORTEST: f64 = 3.0;

/// A bar over a time axis. The texts beside it say the same, so it is hidden from screen readers.
pub(super) struct Bar {
    svg: String,
    end: Duration,
}

impl Bar {
    /// Starts a bar over a time axis from zero to `end`. `class` is a class of the style, or empty.
    pub(super) fn new(end: Duration, class: &str) -> Self {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let svg = format!(
            "<svg{class} viewBox=\"0 0 {WIDTH} 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\" focusable=\"false\">"
        );
        Self { svg, end }
    }

    /// Draws lines at the quarters of the axis.
    pub(super) fn quarters(mut self) -> Self {
        for x in [250, 500, 750] {
            let _ = write!(self.svg, "<line class=\"grid\" x1=\"{x}\" x2=\"{x}\" y1=\"0\" y2=\"10\"/>");
        }
        self
    }

    /// Draws parts one after the other, the first of which begins at `from`. Any time above zero is visible.
    pub(super) fn parts(mut self, from: Duration, parts: &[(Phase, Duration)]) -> Self {
        let mut before = from;
        for (phase, spent) in parts.iter().filter(|(_, spent)| !spent.is_zero()) {
            self.rect(phase.as_str(), self.x(before), self.x(before + *spent));
            before += *spent;
        }
        self
    }

    pub(super) fn finish(mut self) -> String {
        self.svg.push_str("</svg>");
        self.svg
    }

    fn x(&self, at: Duration) -> f64 {
        if self.end.is_zero() {
            return 0.0;
        }
        WIDTH * (at.as_secs_f64() / self.end.as_secs_f64()).min(1.0)
    }

    fn rect(&mut self, class: &str, from: f64, to: f64) {
        let width = (to - from).max(SHORTEST);
        let x = from.min(WIDTH - width);
        let _ = write!(self.svg, "<rect class=\"{class}\" x=\"{x:.1}\" y=\"0\" width=\"{width:.1}\" height=\"10\"/>");
    }
}

/// Returns a bar for a part of a whole that is no time.
pub(super) fn count_bar(part: u64, whole: u64) -> String {
    let mut bar = Bar::new(Duration::ZERO, "slim");
    if part > 0 {
        bar.rect("count", 0.0, WIDTH * (part as f64 / whole.max(part) as f64));
    }
    bar.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::timings::samples::ms;

    #[test]
    fn parts_are_placed_by_their_time_and_stay_inside() {
        let bar = |parts: &[(Phase, Duration)]| Bar::new(ms(100), "").parts(ms(50), parts).finish();
        let svg = bar(&[(Phase::Dns, ms(25)), (Phase::Tls, ms(0)), (Phase::Wait, ms(25))]);
        assert!(svg.contains("<rect class=\"dns\" x=\"500.0\" y=\"0\" width=\"250.0\""), "{svg}");
        assert!(svg.contains("<rect class=\"wait\" x=\"750.0\"") && !svg.contains("tls"), "{svg}");
        let short = bar(&[(Phase::Wait, ms(50)), (Phase::Receive, Duration::from_nanos(1))]);
        assert!(short.contains("<rect class=\"receive\" x=\"997.0\" y=\"0\" width=\"3.0\""), "{short}");
        assert!(!Bar::new(Duration::ZERO, "").parts(ms(0), &[(Phase::Wait, ms(0))]).finish().contains("rect"));
        assert!(count_bar(1, 4).contains("width=\"250.0\"") && !count_bar(0, 0).contains("rect"));
    }
}
