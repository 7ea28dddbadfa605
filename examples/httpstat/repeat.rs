//! Many requests: a line for each, a summary, and the slowest one.

use std::collections::BTreeMap;
use std::time::Duration;

use speeddial::Client;

use crate::exchange::{Told, exchange};
use crate::options::Options;
use crate::{json, words};

/// Makes `count` requests to each URL, one after the other.
pub(crate) async fn run(options: &Options, client: &Client, urls: &[String], count: u32) -> Vec<Told> {
    let mut all = Vec::new();
    for url in urls {
        let before = all.len();
        for number in 1..=count {
            pause(options, number).await;
            let told = exchange(options, client, url, number).await;
            match options.json {
                true => println!("{}", json::object(&told)),
                false => println!("{}", line(&told)),
            }
            all.push(told);
        }
        if !options.json {
            sum_up(&all[before..]);
        }
    }
    all
}

/// Waits before a request that is not the first one.
pub(crate) async fn pause(options: &Options, number: u32) {
    if let Some(interval) = options.interval.filter(|_| number > 1) {
        tokio::time::sleep(Duration::from_millis(interval)).await;
    }
}

fn line(told: &Told) -> String {
    let number = told.number;
    match (&told.outcome, &told.timings) {
        (Ok((status, ..)), Some(timings)) => format!("#{number}: {} in {timings}", status.as_u16()),
        _ => format!("#{number}: {}", told.result()),
    }
}

fn sum_up(told: &[Told]) {
    let answered = told.iter().filter(|told| told.outcome.is_ok()).count();
    let reused = told.iter().filter_map(|told| told.timings.as_ref()).filter(|timings| timings.reused()).count();
    let requests = if told.len() == 1 { "request" } else { "requests" };
    println!("\n{} {requests}: {answered} answered, {reused} on a reused connection", told.len());
    let ranked = by_total(told);
    let ([(fastest, _), ..], [.., (slowest, last)]) = (&ranked[..], &ranked[..]) else { return };
    let (median, _) = ranked[(ranked.len() - 1) / 2];
    let [fastest, median, slowest] = [*fastest, median, *slowest].map(words::short);
    println!("fastest {fastest}, median {median}, slowest {slowest} (#{})", last.number);
    let causes = main_causes(told);
    if !causes.is_empty() {
        println!("most of the time went to {causes}");
    }
    println!("\n#{}, the slowest: {}", last.number, last.result());
    words::draw(last, Duration::ZERO);
}

/// Returns the requests with their durations, the fastest one first: those that were answered, or all of them if none was. A request
/// that fails at once is not the fastest one.
pub(crate) fn by_total(told: &[Told]) -> Vec<(Duration, &Told)> {
    let has_answer = told.iter().any(|told| told.outcome.is_ok());
    let ranked = told.iter().filter(|told| told.outcome.is_ok() || !has_answer);
    let mut ranked: Vec<_> = ranked.filter_map(|told| Some((told.timings.as_ref()?.total(), told))).collect();
    ranked.sort_by_key(|(total, _)| *total);
    ranked
}

/// Returns the main causes of the requests' times with the number of requests of each, the most frequent one first.
fn main_causes(told: &[Told]) -> String {
    let mut counts = BTreeMap::new();
    for timings in told.iter().filter_map(|told| told.timings.as_ref()) {
        if let Some(reason) = timings.why().main() {
            *counts.entry(reason.cause.as_str()).or_insert(0_usize) += 1;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let parts: Vec<_> = counts.into_iter().map(|(cause, count)| format!("{cause} ({count}×)")).collect();
    parts.join(", ")
}
