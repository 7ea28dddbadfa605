//! The targets of fuzzing over the public API, run over their seeds and over changes of these. The changes are the same each time.
//!
//! `fuzz/` has the same targets for a fuzzer that looks for changes which reach other code.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../fuzz/bodies/common.rs"]
mod common;
#[path = "../../fuzz/bodies/cookies.rs"]
mod cookies;
#[path = "../../fuzz/bodies/events.rs"]
mod events;
#[path = "../../fuzz/bodies/forms.rs"]
mod forms;
mod mutations;
#[path = "../../fuzz/bodies/redirects.rs"]
mod redirects;
#[path = "../../fuzz/bodies/reports.rs"]
mod reports;
#[path = "../../fuzz/bodies/snapshots.rs"]
mod snapshots;
#[path = "../../fuzz/bodies/urls.rs"]
mod urls;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mutations::mutated;

/// Runs a target over its seeds, and `changes` times over a changed one. `CHANGES` in the environment multiplies them.
fn run_over_seeds(target: &str, changes: u64, run: fn(&[u8])) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/");
    let mut files: Vec<_> =
        fs::read_dir(format!("{folder}{target}")).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let seeds: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(seeds.len() >= 4, "{} seeds", seeds.len());
    let times = std::env::var("CHANGES").map_or(1, |times| times.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(26);
    let changed = (0..changes * times).map(|_| mutated(&seeds, &mut random));
    for input in seeds.iter().cloned().chain(changed.collect::<Vec<_>>()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&input))) {
            // As it can be written into a file of the seeds' folder.
            panic!("{target}: {:?}: {:?}", String::from_utf8_lossy(&input), panic.downcast_ref::<String>());
        }
    }
}

#[test]
fn cookies_go_where_they_belong() {
    run_over_seeds("cookies", 3_000, cookies::run);
}

#[test]
fn events_do_not_depend_on_the_pieces_in_which_they_come() {
    run_over_seeds("events", 2_000, events::run);
}

#[test]
fn forms_are_read_by_another_parser_as_they_were_written() {
    run_over_seeds("forms", 1_500, forms::run);
}

#[test]
fn redirects_lead_to_http_and_take_no_secrets_along() {
    run_over_seeds("redirects", 700, redirects::run);
}

#[test]
fn reports_hold_no_secrets_and_no_markup_of_a_server() {
    run_over_seeds("reports", 300, reports::run);
}

#[test]
fn what_was_learned_is_bounded_and_the_same_after_saving() {
    run_over_seeds("snapshots", 700, snapshots::run);
}

#[test]
fn one_request_is_on_the_wire_for_each_url_and_headers() {
    run_over_seeds("urls", 1_000, urls::run);
}
