//! Runs a client for minutes or hours under mixed traffic, and checks that its memory, descriptors and tasks stay the same, and that no
//! connection outlives its idle timeout: while DNS answers change, servers restart, and certificates are replaced. The claim of BENCHMARKS.md, section Soak.
//!
//! The servers run in a process of their own, so that what is counted is the client's.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program prints")]

mod answers;
mod calls;
#[path = "../../benches/machine.rs"]
mod machine;
mod names;
mod report;
mod sample;
mod servers;
mod tally;
mod traffic;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use report::Report;
use support::page;
use traffic::Traffic;
use world::World;

/// Runs a client under mixed traffic, and checks that its memory, descriptors and tasks stay the same
#[derive(Parser)]
#[command(name = "soak", version)]
struct Options {
    /// Minutes to run
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = minutes)]
    minutes: f64,
    /// Calls per second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Seed of the choice of calls
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the table into BENCHMARKS.md
    #[arg(long)]
    write: bool,
    /// Be the servers, with certificates in this folder
    #[arg(long, value_name = "FOLDER", hide = true)]
    serve: Option<PathBuf>,
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=10_000.0).contains(&minutes) { Ok(minutes) } else { Err("not between 0.1 and 10000".to_owned()) }
}

/// The looks at the process, in equal times.
const SAMPLES: u32 = 20;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = match &options.serve {
        Some(folder) => servers::run(folder).await,
        // An end by a signal would leave the files of the run behind.
        None => tokio::select! {
            outcome = soak(&options) => outcome,
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn soak(options: &Options) -> Result<()> {
    let world = World::start().await?;
    let mut traffic = Traffic::new(world.client()?, world.places().clone(), options);
    traffic.fill().await?;
    let length = Duration::from_secs_f64(options.minutes * 60.0);
    let mut report = Report::new(length, traffic.start());
    if cfg!(not(target_os = "linux")) {
        println!("Memory and descriptors are not measured on this system, only tasks.");
    }
    println!("{}", Report::HEADER);
    for number in 1..=SAMPLES {
        traffic.run_until(length * number / SAMPLES).await;
        traffic.settle().await?;
        println!("{}", report.add(sample::take(traffic.client()), traffic.tally()));
    }
    let text = report.text(traffic.tally());
    println!("\n{text}");
    traffic.cool().await?;
    report.verdict(traffic.tally())?;
    println!("What was measured stayed the same in the second half, and no call failed that must not.");
    if options.write {
        page::write("soak", &text)?;
    }
    Ok(())
}
