//! Measures speeddial beside hyper's bare connection, hyper-util's client and reqwest: the claim of BENCHMARKS.md, section Requests
//! beside other clients.
//!
//! All clients send the same requests to the same server, in turn, in one run. The client has one thread and the server another
//! one. The median round of each client counts.
//!
//! Prints a table of CPU time and wall time per request. `-- --write` writes it into BENCHMARKS.md, and a chart into
//! `docs/compare.svg`. `-- WORDS` runs only the rows whose names contain all of these words.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

mod machine;
mod peers;

use std::fmt::Write as _;
use std::time::Duration;

use peers::work::{Bench, Work, possible};
use peers::{CLIENTS, Took, median};
use plotters::prelude::*;
use support::page;

/// Runs `rounds` rounds of each client, in turn, and returns the median of each, per request.
fn compare(work: Work, rounds: usize, each: usize) -> [Took; 4] {
    let bench = Bench::new(work);
    let mut took = [(); 4].map(|()| Vec::new());
    for number in (0..rounds).flat_map(|_| 0..CLIENTS.len()) {
        took[number].push(bench.round(number, each));
    }
    let count = (each * work.in_flight) as u32;
    took.map(|rounds| Took {
        cpu: median(rounds.iter().map(|took| took.cpu)) / count,
        wall: median(rounds.iter().map(|took| took.wall)) / count,
    })
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1_000.0
}

/// Returns the results as a Markdown table.
fn table(results: &[(Work, [Took; 4])]) -> String {
    let mut text = String::from(
        "| CPU time a request, µs (wall time) | hyper's bare connection | speeddial | hyper-util's client | reqwest | speeddial to hyper | to \
         hyper-util | to reqwest |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (work, took) in results {
        let cell = |took: &Took| format!("{:.1} ({:.1})", micros(took.cpu), micros(took.wall));
        let ratio = |other: usize| format!("{:.2}", micros(took[1].cpu) / micros(took[other].cpu));
        let cells: Vec<_> = took.iter().map(cell).chain([0, 2, 3].map(ratio)).collect();
        let _ = writeln!(text, "| {} | {} |", work.name, cells.join(" | "));
    }
    text
}

/// Draws the CPU times as bars, relative to hyper's bare connection.
fn chart(results: &[(Work, [Took; 4])], path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let row = 56;
    let left = 360;
    let right = 60;
    let top = 60;
    let height = top + row * results.len() as i32 + 20;
    let area = SVGBackend::new(path, (1_000, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let part = |took: &[Took; 4], number: usize| micros(took[number].cpu) / micros(took[0].cpu);
    let most = results.iter().flat_map(|(_, took)| (0..4).map(|number| part(took, number))).fold(1.0, f64::max);
    let scale = f64::from(1_000 - left - right) / most;
    let colors = [RGBColor(150, 150, 150), RGBColor(200, 60, 40), RGBColor(70, 110, 170), RGBColor(90, 150, 90)];
    let text = |size: i32| ("sans-serif", size).into_font();
    area.draw(&Text::new("CPU time a request; hyper's bare connection = 1", (20, 14), text(18)))?;
    for (number, client) in CLIENTS.iter().enumerate() {
        let x = left + 140 * number as i32;
        area.draw(&Rectangle::new([(x, 38), (x + 12, 50)], colors[number].filled()))?;
        area.draw(&Text::new(*client, (x + 18, 38), text(13)))?;
    }
    for (at, (work, took)) in results.iter().enumerate() {
        let y = top + row * at as i32;
        area.draw(&Text::new(work.name, (20, y + 18), text(13)))?;
        for (number, color) in colors.iter().enumerate() {
            let part = part(took, number);
            let y = y + 4 + 12 * number as i32;
            let end = left + (part * scale) as i32;
            area.draw(&Rectangle::new([(left, y), (end, y + 10)], color.filled()))?;
            area.draw(&Text::new(format!("{part:.2}"), (end + 4, y), text(10)))?;
        }
    }
    area.present()?;
    Ok(())
}

/// Writes the table into BENCHMARKS.md, and the chart.
fn write(text: &str, results: &[(Work, [Took; 4])]) -> Result<(), Box<dyn std::error::Error>> {
    page::write("compare", text)?;
    chart(results, concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/compare.svg"))
}

/// Returns the package and the version of it that Cargo.lock names.
fn version(package: &str) -> String {
    let locked = include_str!("../Cargo.lock").split("[[package]]");
    let mut versions =
        locked.filter_map(|entry| entry.split_once(&format!("name = \"{package}\"\nversion = \""))?.1.split_once('"'));
    format!("{package} {}", versions.next().map_or("?", |(version, _)| version))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let words: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let is_test = has("--test");
    let mut results = Vec::new();
    let wanted = |work: &Work| words.iter().all(|word| work.name.contains(*word));
    for work in possible().filter(wanted) {
        let (rounds, each) = if is_test { (1, 1) } else { (9, work.requests.div_ceil(work.in_flight)) };
        let took = compare(work, rounds, each);
        results.push((work, took));
        println!("{}", table(&results).lines().last().unwrap_or_default());
    }
    let versions = ["speeddial", "hyper", "hyper-util", "reqwest", "rustls", "tokio"].map(version).join(", ");
    let text = format!(
        "{}\n{}, {}; {versions}; medians of nine alternating rounds (`cargo bench --bench compare`; `-- --write` writes this table \
         and `docs/compare.svg`).\n",
        table(&results),
        machine::name(),
        machine::today(),
    );
    println!("{text}");
    if has("--write") {
        write(&text, &results)?;
    }
    Ok(())
}
