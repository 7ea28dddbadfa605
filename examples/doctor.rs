//! A report of how the client reaches an origin: each step by itself, with what is wrong and advice.
//!
//! `cargo run --features doctor --example doctor -- https://example.com/` examines that origin, and fails if something is wrong.
//! Without a URL it examines three setups on loopback, with DNS and HTTP servers of its own: a healthy one and two broken ones. It
//! fails if the findings are not those that are built into them.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;

use hickory_proto::op::{Message, Query};
use speeddial::Client;
use speeddial::dns::HickoryResolver;
use speeddial::doctor::Problem;
use support::dns_server::{DnsServer, add_address};
use support::http_server::HttpServer;
use support::{full, ok_server};

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    if let Some(url) = std::env::args().nth(1) {
        let report = Client::new().doctor(url).await?;
        println!("{report}");
        return Ok(if report.findings().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let dns = DnsServer::start(loopback)?;
    let found =
        [healthy(dns.address()).await?, broken_names(dns.address()).await?, broken_server(dns.address()).await?];
    let expected = [
        vec![],
        vec![Problem::DnsServerUnreachable, Problem::AddressRefuses],
        vec![Problem::ConnectionNotKept, Problem::ClockSkew],
    ];
    if found != expected {
        eprintln!("found {found:?} instead of {expected:?}");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Answers each question for an IPv4 address with 127.0.0.1.
fn loopback(question: &Query, response: &mut Message) {
    add_address(response, question, question.name(), Ipv4Addr::LOCALHOST.into(), 60);
}

/// The problems of a report, in their order.
type Problems = Vec<Problem>;

async fn examine(
    title: &str,
    servers: impl IntoIterator<Item = SocketAddr>,
    port: u16,
) -> Result<Problems, Box<dyn Error>> {
    let client = Client::builder().no_proxy().dns_resolver(HickoryResolver::with_servers(servers)).build()?;
    let report = client.doctor(format!("http://api.test:{port}/")).await?;
    println!("----- {title}\n{report}\n");
    // On a busy machine steps can be slow.
    Ok(report.findings().iter().map(|finding| finding.problem()).filter(|problem| !problem.is_slow()).collect())
}

async fn healthy(dns: SocketAddr) -> Result<Problems, Box<dyn Error>> {
    let server = ok_server();
    examine("a healthy setup", [dns], server.address().port()).await
}

/// Examines a server that is not there, by two DNS servers of which the first is not there either.
async fn broken_names(dns: SocketAddr) -> Result<Problems, Box<dyn Error>> {
    let (_socket, closed) = support::refusing();
    // A socket that is connected elsewhere keeps its port, which is closed to all others.
    let no_dns = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    no_dns.connect((Ipv4Addr::LOCALHOST, 9))?;
    examine("no DNS server at the first address, and no HTTP server", [no_dns.local_addr()?, dns], closed.port()).await
}

/// Examines a server that closes each connection and whose clock stopped in 1994.
async fn broken_server(dns: SocketAddr) -> Result<Problems, Box<dyn Error>> {
    let server = HttpServer::start(|_| async {
        let head =
            hyper::Response::builder().header("connection", "close").header("date", "Tue, 15 Nov 1994 08:12:31 GMT");
        head.body(full("")).expect("valid headers")
    })?;
    examine("a server without keep-alive and with a clock that is wrong", [dns], server.address().port()).await
}
