//! Draws each request as a waterfall: where its time went.
//!
//! Without a URL it starts a DNS server and an HTTP server on loopback and makes three requests: one cold, one on the
//! reused connection, one after the idle timeout and the TTL have passed. With URLs it makes three requests to each.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program prints")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use hickory_proto::rr::rdata::CNAME;
use hickory_proto::rr::{Name, RData, Record};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use speeddial::dns::{HickoryResolver, Source};
use speeddial::http::{HeaderName, HeaderValue, Method, StatusCode, Version};
use speeddial::trace::{AttemptOutcome, Phase, Timings, comparison_svg};
use speeddial::{Client, Error, ErrorKind, PoolConfig};
use support::dns_server::{DnsServer, add_address};
use support::http_server::HttpServer;

/// Draws each HTTP request as a waterfall: where its time went
#[derive(Parser)]
#[command(version)]
struct Options {
    /// URLs to request [default: an embedded server on loopback]
    urls: Vec<String>,
    /// DNS server to ask instead of the system's
    #[arg(long, value_name = "IP:PORT", requires = "urls")]
    dns: Option<SocketAddr>,
    /// Number of requests to each URL [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Pause between requests [default: none; before the last of three or more, until the idle timeout and the TTL have
    /// passed, at most 10 s]
    #[arg(long, value_name = "MS")]
    interval: Option<u64>,
    /// Method of the requests [default: GET, or POST with -d]
    #[arg(short = 'X', value_name = "METHOD")]
    method: Option<Method>,
    /// Header to send; may be repeated
    #[arg(short = 'H', value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Body to send
    #[arg(short = 'd', value_name = "DATA")]
    data: Option<String>,
    /// Idle timeout of connections
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    idle_timeout: u64,
    /// Most connections to a host [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_per_host: Option<u32>,
    /// Print a JSON object for each request
    #[arg(long)]
    json: bool,
    /// Draw the requests into an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("a header is `name: value`")?;
    let name = name.trim().parse::<HeaderName>().map_err(|error| error.to_string())?;
    let value = value.trim().parse::<HeaderValue>().map_err(|error| error.to_string())?;
    Ok((name, value))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = Options::parse();
    let succeeded = if options.urls.is_empty() { embedded(&options).await } else { given(&options).await };
    match succeeded {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes requests to embedded servers: `api.test` is an alias of `edge.test`, which is 127.0.0.1, both with a TTL of 2 s.
async fn embedded(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let (api, edge) = (Name::from_ascii("api.test.")?, Name::from_ascii("edge.test.")?);
    let dns = DnsServer::start(move |question, response| {
        if *question.name() == api {
            response.add_answer(Record::from_rdata(api.clone(), 2, RData::CNAME(CNAME(edge.clone()))));
        }
        add_address(response, question, &edge, Ipv4Addr::LOCALHOST.into(), 2);
    })?;
    let http = HttpServer::start(|_| async {
        tokio::time::sleep(Duration::from_millis(12)).await;
        hyper::Response::new(Full::new(vec![b'.'; 256 * 1024].into()).map_err(|error| match error {}).boxed())
    })?;
    let url = format!("http://api.test:{}/", http.address().port());
    if !options.json {
        println!("DNS server on {}, HTTP server on {}\n", dns.address(), http.address());
    }
    let mut drawn = Vec::new();
    let succeeded = ask(options, &client(options, Some(dns.address()))?, &url, &mut drawn).await;
    draw(options, &drawn)?;
    if !options.json {
        println!("{} DNS queries were sent, {} connections were opened.", dns.queries(), http.connections());
    }
    Ok(succeeded)
}

async fn given(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let client = client(options, options.dns)?;
    let (mut succeeded, mut drawn) = (true, Vec::new());
    for url in &options.urls {
        succeeded &= ask(options, &client, url, &mut drawn).await;
    }
    draw(options, &drawn)?;
    Ok(succeeded)
}

fn draw(options: &Options, calls: &[(String, Timings)]) -> Result<(), Box<dyn std::error::Error>> {
    let Some(file) = &options.svg else { return Ok(()) };
    let picture = match calls {
        [(_, only)] => only.to_svg(),
        calls => comparison_svg(calls.iter().map(|(name, timings)| (name.as_str(), timings))),
    };
    std::fs::write(file, picture).map_err(|error| format!("write {}: {error}", file.display()).into())
}

fn client(options: &Options, dns: Option<SocketAddr>) -> speeddial::Result<Client> {
    let mut pool = PoolConfig::new().idle_timeout(Duration::from_millis(options.idle_timeout));
    if let Some(limit) = options.max_per_host {
        pool = pool.max_connections_per_host(limit as usize);
    }
    let builder = Client::builder().pool(pool);
    match dns {
        Some(server) => builder.dns_resolver(HickoryResolver::with_servers([server])),
        None => builder,
    }
    .build()
}

/// Makes the requests to one URL. Returns true if each had a response.
async fn ask(options: &Options, client: &Client, url: &str, drawn: &mut Vec<(String, Timings)>) -> bool {
    let mut succeeded = true;
    let mut ttl = Duration::ZERO;
    let count = options.count.unwrap_or(3);
    for number in 1..=count {
        let pause = pause(options, number, count, ttl);
        tokio::time::sleep(pause).await;
        let told = exchange(options, client, url).await;
        ttl = ttl.max(told.timings.as_ref().map(longest_ttl).unwrap_or_default());
        succeeded &= told.outcome.is_ok();
        if let Some(timings) = &told.timings {
            let name = without_credentials(url);
            let name = name.split_once("://").map_or(name.as_str(), |(_, rest)| rest);
            drawn.push((format!("#{number} {name}"), timings.clone()));
        }
        if options.json {
            println!("{}", told.to_json(url));
        } else {
            told.print(number, pause);
        }
    }
    succeeded
}

/// The pause before a request: as asked for, or long enough that the last of three requests is cold again.
fn pause(options: &Options, number: u32, count: u32, ttl: Duration) -> Duration {
    let patience = Duration::from_secs(10);
    match options.interval {
        _ if number == 1 => Duration::ZERO,
        Some(interval) => Duration::from_millis(interval),
        None if number < count.max(3) => Duration::ZERO,
        None => ttl.min(patience).max(Duration::from_millis(options.idle_timeout)) + Duration::from_millis(100),
    }
}

fn longest_ttl(timings: &Timings) -> Duration {
    let looked_up = timings.lookups().iter().filter(|lookup| lookup.source != Source::Literal);
    looked_up.map(|lookup| lookup.ttl).max().unwrap_or_default()
}

/// The outcome of a request.
struct Told {
    outcome: Result<(StatusCode, Version, usize), Error>,
    timings: Option<Timings>,
}

async fn exchange(options: &Options, client: &Client, url: &str) -> Told {
    let implied = if options.data.is_some() { Method::POST } else { Method::GET };
    let mut request = client.request(options.method.clone().unwrap_or(implied), url);
    for (name, value) in &options.headers {
        request = request.header(name, value);
    }
    if let Some(data) = &options.data {
        request = request.body(data.clone());
    }
    let response = match request.send().await {
        Ok(response) => response,
        Err(error) => return Told { timings: error.timings().cloned(), outcome: Err(error) },
    };
    let (status, version, handle) = (response.status(), response.version(), response.timings_handle());
    let outcome = response.bytes().await.map(|body| (status, version, body.len()));
    Told { outcome, timings: Some(handle.timings()) }
}

impl Told {
    fn print(&self, number: u32, pause: Duration) {
        let after = if pause.is_zero() { String::new() } else { format!(" after {pause:.1?}") };
        match &self.outcome {
            Ok((status, version, bytes)) => println!("#{number}{after}: {version:?} {status}, {bytes} bytes"),
            Err(error) => println!("#{number}{after}: {error:#}"),
        }
        if let Some(timings) = &self.timings {
            println!("{timings:#}\n");
        }
    }

    fn to_json(&self, url: &str) -> Value {
        let response = self.outcome.as_ref().ok();
        let mut object = json!({
            "url": without_credentials(url),
            "status": response.map(|(status, ..)| status.as_u16()),
            "version": response.map(|(_, version, _)| format!("{version:?}")),
            "bytes": response.map(|(.., bytes)| bytes),
            "error": self.outcome.as_ref().err().map(error_to_json),
        });
        if let (Value::Object(object), Value::Object(timings)) = (&mut object, timings_to_json(self.timings.as_ref())) {
            object.extend(timings);
        }
        object
    }
}

/// The URL without credentials, which may stand before the last `@`.
fn without_credentials(url: &str) -> String {
    let Ok(mut parsed) = speeddial::url::Url::parse(url) else {
        return url.rsplit('@').next().unwrap_or_default().to_owned();
    };
    let _ = (parsed.set_username(""), parsed.set_password(None));
    parsed.into()
}

/// The timings as a JSON object. Without timings, as for a call that never began, every figure is null.
fn timings_to_json(timings: Option<&Timings>) -> Value {
    let us = |time: Duration| time.as_nanos() as f64 / 1e3;
    let attempt = |attempt: &speeddial::trace::Attempt| {
        let error = match &attempt.outcome {
            AttemptOutcome::Failed(error) => Some(error.to_string()),
            AttemptOutcome::Cancelled => Some("cancelled".to_owned()),
            AttemptOutcome::Pending => Some("not finished".to_owned()),
            _ => None,
        };
        json!({ "addr": attempt.address.to_string(), "us": us(attempt.elapsed), "error": error })
    };
    let mut object = json!({
        "reused": timings.map(Timings::reused),
        "remote_addr": timings.and_then(Timings::remote_addr).map(|address| address.to_string()),
        "dns": timings.map(dns_to_json),
        "attempts": timings.map(|timings| timings.attempts().iter().map(attempt).collect::<Vec<_>>()),
        "total_us": timings.map(|timings| us(timings.total())),
    });
    for phase in Phase::ALL {
        object[format!("{phase}_us")] = timings.map(|timings| us(timings.spent(phase))).into();
    }
    object
}

/// The DNS answers of both families together; null if nothing was looked up.
fn dns_to_json(timings: &Timings) -> Value {
    let Some(source) = timings.dns_source() else { return Value::Null };
    let answered = || timings.lookups().iter().filter(|lookup| lookup.error.is_none());
    let addrs: Vec<_> = answered().flat_map(|lookup| lookup.addresses.iter()).map(ToString::to_string).collect();
    let ttl = answered().map(|lookup| lookup.ttl).filter(|_| source != Source::Literal).min();
    json!({ "source": source.as_str(), "ttl_s": ttl.map(|ttl| ttl.as_secs_f64()), "addrs": addrs })
}

fn error_to_json(error: &Error) -> Value {
    let phase = match error.kind() {
        ErrorKind::Timeout(phase) => Some(phase),
        _ => error.timings().map(Timings::phase),
    };
    json!({ "kind": error.kind().as_str(), "phase": phase.map(Phase::as_str), "message": format!("{error:#}") })
}
