//! A DNS server whose answers change, fail, and end.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::{Name, RData, Record};
use support::dns_server::{DnsServer, add_address};

use crate::Result;

/// The time after which a name has other addresses.
const CHANGE: u64 = 2;
/// Each answer of so many fails.
const FLAKY: u64 = 30;
/// The seconds between two outages, in which every answer fails.
const OUTAGES: u64 = 20;
/// The seconds that an outage lasts.
const OUTAGE: u64 = 2;

/// Returns the host with this number. Its name has one address, or none if the number ends in 9.
pub(crate) fn host(number: u64) -> String {
    format!("host-{number}.soak.test")
}

/// Returns true if the name of the host with this number does not exist.
pub(crate) fn is_missing(number: u64) -> bool {
    number % 10 == 9
}

/// Starts the server. The names of hosts have one of `addresses`, all others two of them.
pub(crate) fn start(addresses: Vec<Ipv4Addr>) -> Result<DnsServer> {
    let start = Instant::now();
    let queries = AtomicU64::new(0);
    let server = DnsServer::start(move |question, response| {
        let query = queries.fetch_add(1, Ordering::Relaxed);
        let now = start.elapsed();
        if query % FLAKY == FLAKY - 1 || is_outage(now) {
            response.metadata.response_code = ResponseCode::ServFail;
            return;
        }
        answer(question, response, &addresses, now);
    })?;
    Ok(server)
}

fn is_outage(now: Duration) -> bool {
    now.as_secs() % OUTAGES >= OUTAGES - OUTAGE
}

fn answer(question: &Query, response: &mut Message, addresses: &[Ipv4Addr], now: Duration) {
    let label = question.name().iter().next().map(|label| String::from_utf8_lossy(label).to_lowercase());
    let label = label.unwrap_or_default();
    let number = label.strip_prefix("host-").and_then(|number| number.parse::<u64>().ok());
    let turn = now.as_secs() / CHANGE;
    let ttl = 1 + (turn % 3) as u32;
    let mut add = |number: u64| {
        let address = addresses[(number % addresses.len() as u64) as usize];
        add_address(response, question, question.name(), IpAddr::V4(address), ttl);
    };
    match number {
        Some(number) if is_missing(number) => response.metadata.response_code = ResponseCode::NXDomain,
        Some(number) => add(number + turn),
        None => (turn..turn + 2).for_each(add),
    }
    if response.answers.is_empty() {
        let root = Name::root();
        let soa = SOA::new(root.clone(), root.clone(), 1, 60, 60, 60, ttl);
        response.add_authority(Record::from_rdata(root, ttl, RData::SOA(soa)));
    }
}
