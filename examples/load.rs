//! Loads a server with many requests at once and prints rate, latencies, connections and errors, like ab and wrk.
//!
//! Without a URL it loads an embedded HTTP server on loopback.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program prints")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use futures_util::StreamExt;
use hdrhistogram::Histogram;
use http_body_util::{BodyExt, Full};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use speeddial::dns::{HickoryResolver, Source};
use speeddial::trace::Latency;
use speeddial::trace::{Event, Observer, Record, Timings};
use speeddial::{Client, ErrorKind, PoolConfig, Response};
use speeddial_inspect::{Advice, Har};
use support::http_server::HttpServer;

/// Loads a server with requests and measures them
#[derive(Parser)]
#[command(version)]
struct Options {
    /// URL to request [default: an embedded server on loopback]
    url: Option<String>,
    /// Number of requests
    #[arg(short = 'n', value_name = "TOTAL", default_value_t = 10_000)]
    total: u64,
    /// Number of requests in flight, up to their responses' headers
    #[arg(short = 'c', value_name = "CONCURRENCY", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    concurrency: u64,
    /// Timeout of a request [default: none]
    #[arg(long, value_name = "MS")]
    timeout: Option<u64>,
    /// Most connections to a host [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_per_host: Option<u32>,
    /// Most connections in total [default: 70 % of the descriptors allowed, at most 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_total: Option<u32>,
    /// Idle timeout of connections [default: 50000]
    #[arg(long, value_name = "MS")]
    idle_timeout: Option<u64>,
    /// Most idle connections to a host [default: no limit]
    #[arg(long, value_name = "N")]
    max_idle_per_host: Option<usize>,
    /// DNS server to ask instead of the system's
    #[arg(long, value_name = "IP:PORT", requires = "url")]
    dns: Option<SocketAddr>,
    /// Print advice on the limits of the pool after the load
    #[arg(long, conflicts_with = "json")]
    advise: bool,
    /// Write the slowest requests into a HAR file, which browsers show
    #[arg(long, value_name = "FILE")]
    har: Option<PathBuf>,
    /// Number of requests in the HAR file
    #[arg(long, value_name = "N", requires = "har", default_value_t = 50)]
    slowest: usize,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options).await {
        Ok(report) => {
            if options.json {
                println!("{}", report.to_json());
            } else {
                report.print();
            }
            if let Some(advice) = &report.advice {
                println!("\n{advice:#}\n\n{}", advice.to_code());
            }
            if report.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<Report, Box<dyn std::error::Error>> {
    let embedded = match options.url {
        Some(_) => None,
        None => Some(HttpServer::start(|_| async {
            hyper::Response::new(Full::new("hello".into()).map_err(|error| match error {}).boxed())
        })?),
    };
    let own = embedded.as_ref().map(|server| format!("http://{}/", server.address()));
    let url = options.url.clone().or(own).ok_or("no URL")?;
    let counts = Arc::new(Counts::default());
    let har = options.har.as_ref().map(|_| Har::slowest(options.slowest));
    let client = client(options, counts.clone(), har.clone())?;
    let mut report = load(options, &client, &url).await?;
    if let (Some(file), Some(har)) = (&options.har, har) {
        std::fs::write(file, har.to_json()).map_err(|error| format!("write {}: {error}", file.display()))?;
    }
    report.counts = counts;
    report.queue = client.pool_stats().queue_time;
    report.advice = options.advise.then(|| Advice::of(&client));
    if let Some(server) = embedded {
        report.accepted = Some(server.connections());
    }
    Ok(report)
}

fn client(options: &Options, counts: Arc<Counts>, har: Option<Har>) -> speeddial::Result<Client> {
    let mut pool = PoolConfig::new();
    if let Some(limit) = options.max_per_host {
        pool = pool.max_connections_per_host(limit as usize);
    }
    if let Some(limit) = options.max_total {
        pool = pool.max_connections(limit as usize);
    }
    if let Some(timeout) = options.idle_timeout {
        pool = pool.idle_timeout(Duration::from_millis(timeout));
    }
    if let Some(limit) = options.max_idle_per_host {
        pool = pool.max_idle_per_host(limit);
    }
    let mut builder = Client::builder().pool(pool).observer(Watch(counts));
    if let Some(har) = har {
        builder = builder.observer(har);
    }
    if let Some(timeout) = options.timeout {
        builder = builder.timeout(Duration::from_millis(timeout));
    }
    if let Some(server) = options.dns {
        builder = builder.dns_resolver(HickoryResolver::with_servers([server]));
    }
    builder.build()
}

/// Counts of connections and lookups.
#[derive(Default)]
struct Counts {
    opened: AtomicU64,
    open: AtomicU64,
    peak: AtomicU64,
    hit: AtomicU64,
    coalesced: AtomicU64,
    miss: AtomicU64,
    other: AtomicU64,
}

struct Watch(Arc<Counts>);

impl Observer for Watch {
    fn observe(&self, record: &Record) {
        let counts = &self.0;
        match &record.event {
            Event::Opened { .. } => {
                counts.opened.fetch_add(1, Ordering::Relaxed);
                let open = counts.open.fetch_add(1, Ordering::Relaxed) + 1;
                counts.peak.fetch_max(open, Ordering::Relaxed);
            }
            Event::Closed { .. } => drop(counts.open.fetch_sub(1, Ordering::Relaxed)),
            Event::DnsEnd(lookup) => {
                let source = match lookup.source {
                    Source::Hit => &counts.hit,
                    Source::Coalesced => &counts.coalesced,
                    Source::Miss => &counts.miss,
                    _ => &counts.other,
                };
                source.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

struct Report {
    elapsed: Duration,
    /// Latencies in microseconds.
    latency: Histogram<u64>,
    ok: u64,
    reused: u64,
    bytes: u64,
    errors: BTreeMap<&'static str, (u64, String)>,
    counts: Arc<Counts>,
    accepted: Option<usize>,
    /// Times that requests waited in the queue.
    queue: Latency,
    /// Advice on the limits of the pool, if it was asked for.
    advice: Option<Advice>,
}

impl Report {
    fn new() -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self {
            elapsed: Duration::ZERO,
            latency: Histogram::new(3)?,
            ok: 0,
            reused: 0,
            bytes: 0,
            errors: BTreeMap::new(),
            counts: Arc::default(),
            accepted: None,
            queue: Latency::default(),
            advice: None,
        })
    }

    fn add(&mut self, outcome: Result<(usize, Timings), speeddial::Error>) {
        match outcome {
            Ok((bytes, timings)) => {
                self.ok += 1;
                self.bytes += bytes as u64;
                self.reused += u64::from(timings.reused());
                self.latency += timings.total().as_micros() as u64;
            }
            Err(error) => {
                let kind = match error.kind() {
                    ErrorKind::Timeout(phase) => phase_timeout(phase),
                    kind => kind.as_str(),
                };
                self.errors.entry(kind).or_insert_with(|| (0, format!("{error:#}"))).0 += 1;
            }
        }
    }

    fn merge(&mut self, other: Self) -> Result<(), hdrhistogram::AdditionError> {
        self.latency.add(&other.latency)?;
        self.ok += other.ok;
        self.reused += other.reused;
        self.bytes += other.bytes;
        for (kind, (count, example)) in other.errors {
            self.errors.entry(kind).or_insert((0, example)).0 += count;
        }
        Ok(())
    }

    fn rate(&self) -> f64 {
        (self.ok + self.failed()) as f64 / self.elapsed.as_secs_f64()
    }

    fn failed(&self) -> u64 {
        self.errors.values().map(|(count, _)| count).sum()
    }

    fn reused_share(&self) -> f64 {
        if self.ok == 0 { 0.0 } else { self.reused as f64 / self.ok as f64 }
    }

    fn print(&self) {
        let counts = &self.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        println!("requests     {} ok, {} failed in {:.2?}", self.ok, self.failed(), self.elapsed);
        println!("rate         {:.0} requests/s, {:.1} MB/s", self.rate(), self.megabytes_per_second());
        let [p50, p90, p99, p999, max] = self.percentiles().map(|(_, us)| us as f64 / 1e3);
        println!("latency      p50 {p50:.2} ms, p90 {p90:.2} ms, p99 {p99:.2} ms, p99.9 {p999:.2} ms, max {max:.2} ms");
        let (opened, peak) = (read(&counts.opened), read(&counts.peak));
        println!("connections  {opened} opened, at most {peak} at once, {:.1} % reused", self.reused_share() * 100.0);
        if let Some(accepted) = self.accepted {
            println!("             {accepted} accepted by the server");
        }
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| self.queue.quantile(share).unwrap_or_default());
        println!("queue        p50 {p50:.0?}, p99 {p99:.0?}, max {max:.0?} (rounded up to powers of two)");
        let [hit, coalesced, miss, other] = [&counts.hit, &counts.coalesced, &counts.miss, &counts.other].map(read);
        println!("DNS          {hit} hits, {coalesced} coalesced, {miss} misses, {other} without DNS");
        for (kind, (count, example)) in &self.errors {
            println!("error        {count} × {kind}, such as: {example}");
        }
    }

    fn percentiles(&self) -> [(&'static str, u64); 5] {
        let at = |percentile| self.latency.value_at_percentile(percentile);
        [("p50", at(50.0)), ("p90", at(90.0)), ("p99", at(99.0)), ("p999", at(99.9)), ("max", self.latency.max())]
    }

    fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.elapsed.as_secs_f64()
    }

    fn to_json(&self) -> Value {
        let counts = &self.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let latency: serde_json::Map<_, _> =
            self.percentiles().into_iter().map(|(name, us)| (format!("{name}_us"), us.into())).collect();
        let errors: serde_json::Map<_, _> =
            self.errors.iter().map(|(kind, (count, _))| ((*kind).to_owned(), (*count).into())).collect();
        json!({
            "ok": self.ok,
            "errors": errors,
            "elapsed_s": self.elapsed.as_secs_f64(),
            "requests_per_s": self.rate(),
            "bytes": self.bytes,
            "latency": latency,
            "connections": {
                "opened": read(&counts.opened),
                "peak": read(&counts.peak),
                "accepted": self.accepted,
                "reused_share": self.reused_share(),
            },
            "queue": {
                "p50_us": micros(self.queue.quantile(0.5)),
                "p99_us": micros(self.queue.quantile(0.99)),
                "max_us": micros(self.queue.quantile(1.0)),
            },
            "dns": {
                "hit": read(&counts.hit),
                "coalesced": read(&counts.coalesced),
                "miss": read(&counts.miss),
                "other": read(&counts.other),
            },
        })
    }
}

/// A bound of a histogram in microseconds; its bounds are powers of two.
fn micros(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| time.as_micros() as u64)
}

fn phase_timeout(phase: speeddial::trace::Phase) -> &'static str {
    use speeddial::trace::Phase;
    match phase {
        Phase::Backoff => "timeout (backoff)",
        Phase::Queue => "timeout (queue)",
        Phase::Dns => "timeout (dns)",
        Phase::Connect => "timeout (connect)",
        Phase::Proxy => "timeout (proxy)",
        Phase::Tls => "timeout (tls)",
        Phase::Send => "timeout (send)",
        Phase::Wait => "timeout (wait)",
        Phase::Receive => "timeout (receive)",
        _ => "timeout",
    }
}

async fn load(options: &Options, client: &Client, url: &str) -> Result<Report, Box<dyn std::error::Error>> {
    let progress = if options.json { ProgressBar::hidden() } else { ProgressBar::new(options.total) };
    progress.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len}  {per_sec}  {eta} left")?);
    let tasks = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let tasks = tasks.min(options.concurrency).min(options.total);
    let start = Instant::now();
    let share = |all: u64, task: u64| (all / tasks + u64::from(task < all % tasks)) as usize;
    let tasks: Vec<_> = (0..tasks)
        .map(|task| (share(options.total, task), share(options.concurrency, task)))
        .map(|(total, concurrency)| {
            tokio::spawn(work(client.clone(), url.to_owned(), total, concurrency, progress.clone()))
        })
        .collect();
    let mut report = Report::new()?;
    for task in tasks {
        report.merge(task.await??)?;
    }
    report.elapsed = start.elapsed();
    progress.finish_and_clear();
    Ok(report)
}

/// Makes `total` requests, up to `concurrency` of them at a time. Bodies are read beside the next requests.
async fn work(
    client: Client,
    url: String,
    total: usize,
    concurrency: usize,
    progress: ProgressBar,
) -> Result<Report, hdrhistogram::CreationError> {
    let mut report = Report::new()?;
    let requests = std::iter::repeat_with(|| client.get(&url)).take(total);
    let responses = client.send_all(requests).concurrency(concurrency);
    let mut outcomes = pin!(responses.map(|(_, response)| read(response)).buffer_unordered(concurrency));
    while let Some(outcome) = outcomes.next().await {
        report.add(outcome);
        progress.inc(1);
    }
    Ok(report)
}

async fn read(response: speeddial::Result<Response>) -> speeddial::Result<(usize, Timings)> {
    let response = response?;
    let handle = response.timings_handle();
    let body = response.bytes().await?;
    Ok((body.len(), handle.timings()))
}
