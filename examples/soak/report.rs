//! The progress lines, the table, and the verdict.

use std::fmt::Write;
use std::time::{Duration, Instant};

use speeddial::trace::CloseCause;

use crate::calls::Kind;
use crate::machine;
use crate::sample::Sample;
use crate::tally::Tally;
use crate::{Result, SAMPLES};

/// The growth of memory from the third quarter to the last that is allowed: this share, or this number of KiB if that is more. The
/// allocator keeps freed memory.
const MEMORY_TOLERANCE: (f64, f64) = (0.05, 4_096.0);
/// The descriptors and the tasks that may be more or fewer, beside those of connections.
const COUNT_TOLERANCE: f64 = 4.0;

/// The looks at the process so far.
pub(crate) struct Report {
    length: Duration,
    start: Instant,
    samples: Vec<Sample>,
}

/// A figure that must stay the same.
struct Row {
    name: &'static str,
    of: fn(&Sample) -> Option<f64>,
    /// The most by which the last quarter may differ, given the one before it. `None` for a figure that may go up and down.
    tolerance: Option<fn(f64) -> f64>,
}

const ROWS: [Row; 6] = [
    Row {
        name: "resident memory, MiB",
        of: |sample| sample.memory.map(|kib| kib as f64 / 1_024.0),
        tolerance: Some(|before| (before * MEMORY_TOLERANCE.0).max(MEMORY_TOLERANCE.1 / 1_024.0)),
    },
    Row {
        name: "descriptors, beside those of connections",
        of: |sample| sample.descriptors.map(|count| count as f64 - sample.connections() as f64),
        tolerance: Some(|_| COUNT_TOLERANCE),
    },
    Row {
        name: "tasks, beside those of connections",
        of: |sample| Some(sample.tasks as f64 - sample.connections() as f64),
        tolerance: Some(|_| COUNT_TOLERANCE),
    },
    Row {
        name: "connections",
        of: |sample| Some(sample.connections() as f64),
        // As many as the last calls have left idle. At the end all must be gone.
        tolerance: None,
    },
    Row {
        name: "names in the DNS cache",
        of: |sample| Some(sample.names as f64),
        tolerance: Some(|before| before / 20.0),
    },
    Row { name: "connections opened so far", of: |sample| Some(sample.pool.opened as f64), tolerance: None },
];

impl Report {
    pub(crate) const HEADER: &str = "   time    calls  failed     memory  descriptors  tasks  connections   opened  names  queries  failed, by error";

    pub(crate) fn new(length: Duration, start: Instant) -> Self {
        Self { length, start, samples: Vec::new() }
    }

    /// Adds a look at the process, and returns the line that shows it.
    pub(crate) fn add(&mut self, sample: Sample, tally: &Tally) -> String {
        let time = (sample.at - self.start).as_secs();
        let errors: Vec<_> = tally.by_error().iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let line = format!(
            "{:>4}:{:02} {:>8} {:>7} {:>10} {:>12} {:>6} {:>12} {:>8} {:>6} {:>8}  {}",
            time / 60,
            time % 60,
            tally.calls(),
            tally.failures(),
            sample.memory.map_or("-".to_owned(), |kib| format!("{:.1} MiB", kib as f64 / 1_024.0)),
            sample.descriptors.map_or("-".to_owned(), |count| count.to_string()),
            sample.tasks,
            sample.connections(),
            sample.pool.opened,
            sample.names,
            sample.queries,
            errors.join(", "),
        );
        self.samples.push(sample);
        line
    }

    /// Returns the medians of a figure in each quarter, if the system shows it.
    fn quarters(&self, row: &Row) -> Option<[f64; 4]> {
        let figures: Vec<_> = self.samples.iter().map(row.of).collect::<Option<_>>()?;
        let mut quarters = figures.chunks(SAMPLES as usize / 4).map(median);
        Some([(); 4].map(|()| quarters.next().unwrap_or_default()))
    }

    /// Returns the table, and what stands under it.
    pub(crate) fn text(&self, tally: &Tally) -> String {
        let mut text = self.table();
        let minutes = self.length.as_secs_f64() / 60.0;
        let _ = writeln!(text, "\n{minutes} min, {} calls, of which {} failed:\n", tally.calls(), tally.failures());
        for (kind, word, failed) in tally.failed() {
            let _ = writeln!(text, "* {} × {} ({word})", failed.count, kind.name());
        }
        let causes = CloseCause::ALL.map(|cause| (cause, self.closed_by(cause)));
        let causes = causes.iter().filter(|(_, count)| *count > 0);
        let causes: Vec<_> = causes.map(|(cause, count)| format!("{} {count}", cause.as_str())).collect();
        let _ = writeln!(text, "\nConnections closed, by cause: {}.", causes.join(", "));
        let _ = writeln!(text, "\n{}, {}.", machine::name(), machine::today());
        text
    }

    fn table(&self) -> String {
        let mut text = "| median of | 1st quarter | 2nd | 3rd | 4th |\n|---|---|---|---|---|\n".to_owned();
        for row in &ROWS {
            let decimals = usize::from(row.name.ends_with("MiB"));
            let figures = match self.quarters(row) {
                Some(quarters) => quarters.map(|figure| format!("{figure:.decimals$}")),
                None => [(); 4].map(|()| "not measured".to_owned()),
            };
            let _ = writeln!(text, "| {} | {} |", row.name, figures.join(" | "));
        }
        text
    }

    fn closed_by(&self, cause: CloseCause) -> u64 {
        self.samples.last().map_or(0, |last| last.pool.closed_by(cause))
    }

    /// Returns an error that says what has not stayed the same, which call failed that must not, or what was not tried.
    pub(crate) fn verdict(&self, tally: &Tally) -> Result<()> {
        let mut faults = Vec::new();
        for row in &ROWS {
            let (Some([.., third, fourth]), Some(tolerance)) = (self.quarters(row), row.tolerance) else { continue };
            // Memory that is given back is no fault.
            if fourth - third > tolerance(third) {
                faults.push(format!("{} went from {third:.1} to {fourth:.1} in the second half", row.name));
            }
        }
        for (kind, word, failed) in tally.failed().filter(|(.., failed)| !failed.is_expected) {
            faults.push(format!("{} × {} ({word}), such as: {}", failed.count, kind.name(), failed.example));
        }
        for kind in Kind::ALL.into_iter().filter(|kind| tally.succeeded(*kind) == 0) {
            faults.push(format!("no call succeeded: {}", kind.name()));
        }
        for cause in [CloseCause::Peer, CloseCause::IdleTimeout, CloseCause::Reconfigured] {
            if self.closed_by(cause) == 0 {
                faults.push(format!("no connection was closed by this cause: {}", cause.as_str()));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults.join("\n").into()) }
    }
}

fn median(figures: &[f64]) -> f64 {
    let mut figures = figures.to_vec();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
