//! The time limits of the steps, in paused time: a report ends, whatever does not answer.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use speeddial::Client;
use speeddial::ClientBuilder;
use speeddial::dns::{Family, Resolver, ResolverFuture};
use speeddial::doctor::{FailureKind, Problem};
use speeddial::transport::{Connecting, Stream, Transport};

use super::common::{knowing, only};

/// A network in which no address answers.
struct Nowhere;

impl Transport for Nowhere {
    fn connect(&self, _: SocketAddr) -> Connecting<'_> {
        Box::pin(std::future::pending())
    }
}

/// A network in which every address accepts connections and stays silent.
struct Silent;

impl Transport for Silent {
    fn connect(&self, _: SocketAddr) -> Connecting<'_> {
        Box::pin(async {
            let (near, far) = tokio::io::duplex(64 * 1024);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(3_600)).await;
                drop(far);
            });
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

/// A resolver that does not answer.
struct Mute;

impl Resolver for Mute {
    fn resolve<'a>(&'a self, _: &'a str, _: Family) -> ResolverFuture<'a> {
        Box::pin(std::future::pending())
    }
}

/// Examines `http://api.test/`, and returns the one problem and the seconds that it took to find it.
async fn found(builder: ClientBuilder, problem: Problem) -> u64 {
    let start = tokio::time::Instant::now();
    let report = builder.build().unwrap().doctor("http://api.test/").await.unwrap();
    only(&report, problem);
    let took = start.elapsed();
    assert!(took >= report.elapsed(), "{report}");
    took.as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_step_ends_after_five_seconds_or_the_connect_timeout() {
    assert_eq!(found(knowing().transport(Nowhere), Problem::AddressSilent).await, 5);
    let hurried = knowing().transport(Nowhere).connect_timeout(Duration::from_secs(2));
    assert_eq!(found(hurried, Problem::AddressSilent).await, 2);
    let mute = Client::builder().no_proxy().dns_resolver(Mute).transport(Nowhere);
    assert_eq!(found(mute, Problem::LookupFails).await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_after_ten_seconds() {
    assert_eq!(found(knowing().transport(Silent), Problem::RequestFails).await, 10);
}

#[cfg(feature = "__tls")]
#[tokio::test(start_paused = true)]
async fn a_handshake_ends_after_five_seconds() {
    let builder = knowing().transport(Silent).tls(super::common::trusting(&support::certs::Authority::new()));
    let start = tokio::time::Instant::now();
    let report = builder.build().unwrap().doctor("https://api.test/").await.unwrap();
    only(&report, Problem::TlsFails);
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_report_ends_it() {
    let client = knowing().transport(Nowhere).build().unwrap();
    let report = tokio::time::timeout(Duration::from_secs(1), client.doctor("http://api.test/")).await;
    assert!(report.is_err());
    // The client goes on: the next report is a full one.
    let report = client.doctor(format!("http://{}/", Ipv4Addr::LOCALHOST)).await.unwrap();
    assert_eq!(report.addresses()[0].failure().unwrap().kind(), FailureKind::TimedOut);
}
