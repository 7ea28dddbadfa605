//! Looks up each name twice through the DNS cache and prints where each answer came from.

#![allow(clippy::print_stdout, reason = "a command-line program prints")]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use speeddial::dns::{Answer, CacheStats, CachedResolver, Family, HickoryResolver, ResolveError, SystemResolver};

/// Looks names up through the DNS cache.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The names to look up
    #[arg(required = true, value_name = "HOST")]
    hosts: Vec<String>,
    /// A DNS server to ask instead of the system's; may be repeated
    #[arg(long, value_name = "IP:PORT")]
    dns: Vec<SocketAddr>,
    /// Ask the platform (getaddrinfo) instead and keep its answers for this many seconds
    #[arg(long, value_name = "TTL", conflicts_with = "dns")]
    platform: Option<u64>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = Options::parse();
    let cache = match options.platform {
        Some(ttl) => CachedResolver::new(SystemResolver::new(Duration::from_secs(ttl))),
        None if options.dns.is_empty() => CachedResolver::new(HickoryResolver::system()),
        None => CachedResolver::new(HickoryResolver::with_servers(options.dns.iter().copied())),
    };
    let mut found = true;
    for host in &options.hosts {
        println!("{host}");
        let mut any = false;
        for _ in 0..2 {
            for family in Family::BOTH {
                let start = Instant::now();
                let outcome = cache.lookup(host, family).await;
                print(family, start.elapsed(), &outcome);
                any |= outcome.is_ok();
            }
        }
        found &= any;
    }
    print_stats(&cache.stats());
    if found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print(family: Family, elapsed: Duration, outcome: &Result<Answer, ResolveError>) {
    match outcome {
        Ok(answer) => {
            let addresses: Vec<_> = answer.addresses().iter().map(ToString::to_string).collect();
            let (source, ttl) = (answer.source(), answer.ttl().as_secs_f64());
            println!("  {family}  {source:<9} {elapsed:>9.1?}  TTL {ttl:<8.1} {}", addresses.join(" "));
        }
        Err(error) => println!("  {family}  {:<9} {elapsed:>9.1?}  {error}", error.answered_from()),
    }
}

fn print_stats(stats: &CacheStats) {
    println!("\n{} names, {} hits, {} negative hits", stats.names, stats.hits, stats.negative_hits);
    println!("{} misses, {} coalesced, {} failures", stats.misses, stats.coalesced, stats.failures);
    let within = |share| stats.upstream_latency.quantile(share).map_or("-".to_owned(), |time| format!("{time:?}"));
    println!("queries took: half of them at most {}, all of them at most {}", within(0.5), within(1.0));
}
