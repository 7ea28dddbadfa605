//! The addresses of a host, each connected to by itself.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::future::join_all;

use super::failure::{Failure, FailureKind};
#[cfg(feature = "__tls")]
use super::handshakes::{add_chain, shake_hands};
#[cfg(feature = "__tls")]
use super::report::TlsReport;
use super::report::{AddressReport, NameReport};
use crate::clock::now;
use crate::connect::{Connector, ProbeTarget};
use crate::doctor::finding::timed;
use crate::origin::Host;
use crate::transport::Stream;

/// The most addresses that are connected to.
const MAX_ADDRESSES: usize = 16;

/// Connects to each address of `target`, all at the same time, and shakes hands. Those that the client may not connect to are the
/// last of the list.
pub(super) async fn dial_all(
    connector: &Connector,
    target: ProbeTarget<'_>,
    names: Option<&NameReport>,
    limit: Duration,
) -> Vec<AddressReport> {
    let ips = addresses(target, names);
    let mut order = connector.dial_order(target, (&ips, &sockets(names)), now());
    order.truncate(MAX_ADDRESSES);
    let dials = order.iter().map(|address| dial(connector, target, *address, limit));
    let mut reports = join_all(dials).await;
    let denied = ips.into_iter().filter(|ip| !connector.may_dial(target, *ip));
    reports.extend(denied.map(|ip| denied_report(target, ip)).take(MAX_ADDRESSES - order.len()));
    reports
}

fn addresses(target: ProbeTarget<'_>, names: Option<&NameReport>) -> Vec<IpAddr> {
    if let Host::Ip(ip) = target.origin.host() {
        return vec![*ip];
    }
    let lookups = names.iter().flat_map(|names| &names.lookups);
    lookups.filter_map(|lookup| lookup.answer.as_ref().ok()).flat_map(|answer| answer.addresses.clone()).collect()
}

/// Returns the addresses with ports that the resolver has named.
fn sockets(names: Option<&NameReport>) -> Vec<SocketAddr> {
    let lookups = names.iter().flat_map(|names| &names.lookups);
    lookups.filter_map(|lookup| lookup.answer.as_ref().ok()).flat_map(|answer| answer.sockets.clone()).collect()
}

fn denied_report(target: ProbeTarget<'_>, ip: IpAddr) -> AddressReport {
    let failure = Failure::new(FailureKind::NotAllowed, "a rule of the client excludes this address");
    AddressReport {
        address: SocketAddr::new(ip, target.origin.port()),
        is_proxy: target.is_proxy,
        source: None,
        elapsed: Duration::ZERO,
        failure: Some(failure),
        #[cfg(feature = "__tls")]
        tls: None,
    }
}

async fn dial(connector: &Connector, target: ProbeTarget<'_>, address: SocketAddr, limit: Duration) -> AddressReport {
    let (elapsed, connected) = connect(connector, address, limit).await;
    let (stream, failure) = match connected {
        Ok(stream) => (Some(stream), None),
        Err(failure) => (None, Some(failure)),
    };
    #[cfg(feature = "__tls")]
    let tls = match stream {
        Some(stream) => secure(connector, target, address, stream, limit).await,
        None => None,
    };
    #[cfg(not(feature = "__tls"))]
    drop(stream);
    AddressReport {
        address,
        is_proxy: target.is_proxy,
        source: connector.probed_source(address).ok().flatten(),
        elapsed,
        failure,
        #[cfg(feature = "__tls")]
        tls,
    }
}

async fn connect(
    connector: &Connector,
    address: SocketAddr,
    limit: Duration,
) -> (Duration, Result<Box<dyn Stream>, Failure>) {
    let (elapsed, connected) = timed(limit, connector.dial_alone(address)).await;
    let connected = match connected {
        Some(connected) => connected.map_err(|error| Failure::of_io(&error)),
        None => Err(Failure::timed_out(limit)),
    };
    (elapsed, connected)
}

/// Shakes hands over a connection, and over a second one if the certificates have to be fetched. Returns `None` if no TLS is
/// spoken.
#[cfg(feature = "__tls")]
async fn secure(
    connector: &Connector,
    target: ProbeTarget<'_>,
    address: SocketAddr,
    stream: Box<dyn Stream>,
    limit: Duration,
) -> Option<TlsReport> {
    let tls = connector.probed_tls(target)?;
    let host = target.origin.host();
    let (mut report, is_refused) = shake_hands(tls, host, stream, limit).await;
    if is_refused && let (_, Ok(stream)) = connect(connector, address, limit).await {
        add_chain(&mut report, tls, host, stream, limit).await;
    }
    Some(report)
}
