//! Two URLs: a waterfall of each on one scale, and what makes the difference.

use std::net::SocketAddr;
use std::time::Duration;

use speeddial::trace::{Phase, Timings};

use crate::exchange::{Told, exchange};
use crate::options::Options;
use crate::repeat::{by_total, pause};
use crate::{client, json, words};

/// The least part of the difference for which a phase is named.
const LEAST_SHARE: f64 = 0.1;

/// Makes requests to the two URLs in turns, each with a client of its own, so that neither finds what the other one left.
pub(crate) async fn run(options: &Options, dns: Option<SocketAddr>, urls: &[String]) -> speeddial::Result<Vec<Told>> {
    let clients = urls.iter().map(|_| client(options, dns)).collect::<speeddial::Result<Vec<_>>>()?;
    let mut told: Vec<Vec<Told>> = urls.iter().map(|_| Vec::new()).collect();
    for number in 1..=options.repeat.unwrap_or(1) {
        for ((url, client), told) in urls.iter().zip(&clients).zip(&mut told) {
            pause(options, number).await;
            let exchange = exchange(options, client, url, number).await;
            if options.json {
                println!("{}", json::object(&exchange));
            }
            told.push(exchange);
        }
    }
    if !options.json {
        print(&told);
    }
    Ok(told.into_iter().flatten().collect())
}

fn print(told: &[Vec<Told>]) {
    let medians: Vec<_> = told.iter().map(|told| median(told)).collect();
    let totals = medians.iter().filter_map(|told| Some(told.timings.as_ref()?.total()));
    let scale = totals.max().unwrap_or_default();
    for ((name, median), told) in ["A", "B"].iter().zip(&medians).zip(told) {
        let ranked = by_total(told).len();
        let of = if ranked > 1 { format!(" (the median of {})", ranked) } else { String::new() };
        println!("{name}: {}{of}\n   {}", median.url, median.result());
        words::draw(median, scale);
    }
    let answered = medians.iter().filter(|told| told.outcome.is_ok()).filter_map(|told| told.timings.as_ref());
    if let [a, b] = &answered.collect::<Vec<_>>()[..] {
        println!("{}\n", difference(a, b));
    }
}

/// Returns the request of median duration among those that were answered, if there are any, or else the first one.
fn median(told: &[Told]) -> &Told {
    let ranked = by_total(told);
    ranked.get(ranked.len().saturating_sub(1) / 2).map_or(&told[0], |(_, told)| *told)
}

/// Returns a sentence about the phases that make the difference.
fn difference(a: &Timings, b: &Timings) -> String {
    let (name, fast, slow) = if b.total() >= a.total() { ("B", a, b) } else { ("A", b, a) };
    let more = slow.total() - fast.total();
    if more.is_zero() {
        return "Both took the same time.".to_owned();
    }
    let mut phases: Vec<_> = Phase::ALL.map(|phase| (phase, slow.spent(phase), fast.spent(phase))).into();
    phases.retain(|(_, slow, fast)| slow.abs_diff(*fast) >= more.mul_f64(LEAST_SHARE));
    phases.sort_by_key(|(_, slow, fast)| std::cmp::Reverse(slow.abs_diff(*fast)));
    let parts: Vec<_> = phases.into_iter().map(|(phase, slow, fast)| part(phase, slow, fast)).collect();
    let times = slow.total().as_secs_f64() / fast.total().max(Duration::from_nanos(1)).as_secs_f64();
    format!("{name} took {} longer, {times:.1} times as long: {}.", words::short(more), parts.join(", "))
}

fn part(phase: Phase, slow: Duration, fast: Duration) -> String {
    let sign = if slow > fast { "+" } else { "−" };
    format!("{phase} {sign}{}", words::short(slow.abs_diff(fast)))
}
