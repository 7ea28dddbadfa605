//! Converts hickory's messages and errors to answers and errors of this crate.

use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::{DNSClass, Name, RData, Record};

use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind, Source};
use crate::os;

/// The words about an address that was left out.
pub(crate) const NOT_OF_A_HOST: &str = "no host can have the address";

/// Reads the addresses of `owner`, or of the name at the end of its chain of aliases, with the smallest TTL of the chain.
/// `name` is the name that was looked up. Records of other names are left out: the answer is not about them.
///
/// # Errors
/// The failure of a server that says so, and "does not exist" or "no addresses", if the message has no addresses that a host can have.
pub(in crate::dns) fn answer(
    message: &Message,
    owner: &Name,
    name: &str,
    family: Family,
) -> Result<Answer, ResolveError> {
    let kind = match message.metadata.response_code {
        ResponseCode::NoError => ResolveErrorKind::NoData,
        ResponseCode::NXDomain => ResolveErrorKind::NxDomain,
        code => return Err(failure(code, name, family)),
    };
    // NXDOMAIN means that there are no addresses, even if the message lists some.
    let none = ResolveError::new(kind, name, family);
    match addresses(&message.answers, owner, family).filter(|_| kind == ResolveErrorKind::NoData) {
        None => {
            // What an alias leads to is known for no longer than the alias.
            let (_, of_alias) = end_of_chain(&message.answers, owner);
            Err(none.with_negative_ttl(negative_ttl(message).map(|ttl| ttl.min(of_alias))))
        }
        Some(answer) if answer.addresses().iter().any(can_be_of_host) => Ok(answer.keep(can_be_of_host)),
        Some(useless) => {
            let cause = format!("{NOT_OF_A_HOST} {}", useless.addresses()[0]);
            Err(none.with_negative_ttl(Some(useless.ttl())).with_cause(cause))
        }
    }
}

/// Returns the time for which the absence of records may be kept (RFC 2308 §5).
pub(in crate::dns::hickory) fn negative_ttl(message: &Message) -> Option<Duration> {
    message.authorities.iter().find_map(|record| match &record.data {
        RData::SOA(soa) if record.dns_class == DNSClass::IN => Some(ttl(record.ttl).min(ttl(soa.minimum))),
        _ => None,
    })
}

/// Returns true if a record says something about a name on the internet. Other classes have the same names.
fn is_of(record: &Record, name: &Name) -> bool {
    record.dns_class == DNSClass::IN && record.name == *name
}

/// The most aliases that are followed, as many as common resolvers do. Each costs a look at all records of the message.
const MAX_ALIASES: usize = 16;

/// Follows the chain of aliases from `name`. Returns the name at its end, and the smallest TTL of the chain.
pub(in crate::dns::hickory) fn end_of_chain<'a>(records: &'a [Record], name: &'a Name) -> (&'a Name, Duration) {
    let mut owner = name;
    let mut smallest = Duration::MAX;
    for _ in 0..MAX_ALIASES {
        let alias = records.iter().find_map(|record| match &record.data {
            RData::CNAME(target) if is_of(record, owner) => Some((&target.0, ttl(record.ttl))),
            _ => None,
        });
        let Some((target, ttl)) = alias else { break };
        owner = target;
        smallest = smallest.min(ttl);
    }
    (owner, smallest)
}

/// Returns the name at the end of the chain of aliases from `name`, if that is another one and the message says nothing about it.
pub(super) fn unanswered_alias(message: &Message, name: &Name) -> Option<Name> {
    let says_no = message.metadata.response_code != ResponseCode::NoError || negative_ttl(message).is_some();
    let (end, _) = end_of_chain(&message.answers, name);
    let is_answered = says_no || end == name || message.answers.iter().any(|record| is_of(record, end));
    if is_answered { None } else { Some(end.clone()) }
}

/// Returns the addresses at the end of the chain of aliases from `name`.
fn addresses(records: &[Record], name: &Name, family: Family) -> Option<Answer> {
    let (owner, mut smallest) = end_of_chain(records, name);
    let mut addresses = Vec::new();
    for record in records.iter().filter(|record| is_of(record, owner)) {
        if let Some(ip) = record.data.ip_addr().filter(|ip| Family::of(*ip) == family) {
            addresses.push(ip);
            smallest = smallest.min(ttl(record.ttl));
        }
    }
    if addresses.is_empty() {
        return None;
    }
    Some(Answer::new(addresses, smallest, Source::Miss))
}

/// Returns true if a host can have this address. DNS may list unspecified and multicast addresses, and link-local ones,
/// which need a scope that DNS cannot give.
fn can_be_of_host(ip: &IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_unicast_link_local(),
    }
}

/// Converts a TTL. One with its high bit set counts as zero (RFC 2181 §8).
pub(in crate::dns::hickory) fn ttl(seconds: u32) -> Duration {
    Duration::from_secs(if seconds > i32::MAX as u32 { 0 } else { seconds.into() })
}

/// Converts the error of a try without a response.
pub(in crate::dns::hickory) fn lookup_error(error: NetError, name: &str, family: Family) -> ResolveError {
    let kind = match &error {
        NetError::Timeout => ResolveErrorKind::Timeout,
        NetError::Io(error) if is_local(error) => ResolveErrorKind::Local,
        NetError::Io(_) => ResolveErrorKind::Unreachable,
        _ => ResolveErrorKind::Other,
    };
    let converted = ResolveError::new(kind, name, family);
    match error {
        // The kind says all of it.
        NetError::Timeout => converted,
        // hickory hides the cause of this error from `source()`, for instance that there are no more sockets.
        NetError::Io(error) => converted.with_cause(own(&error)),
        error => converted.with_cause(error),
    }
}

/// Copies an error of a socket.
pub(in crate::dns::hickory) fn own(error: &std::io::Error) -> std::io::Error {
    match error.raw_os_error() {
        Some(code) => std::io::Error::from_raw_os_error(code),
        None => std::io::Error::new(error.kind(), error.to_string()),
    }
}

/// Returns true if a socket failed for a reason of this machine: no network, no route, no permission, no more descriptors. A
/// server's closed port is not such a reason (RFC 9520 §2.3).
fn is_local(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{
        AddrInUse, AddrNotAvailable, HostUnreachable, NetworkDown, NetworkUnreachable, OutOfMemory, PermissionDenied,
    };
    let kinds =
        [AddrInUse, AddrNotAvailable, HostUnreachable, NetworkDown, NetworkUnreachable, OutOfMemory, PermissionDenied];
    kinds.contains(&error.kind()) || os::lacks_descriptors(error) || os::lacks_buffers(error) || os::lacks_family(error)
}

fn failure(code: ResponseCode, name: &str, family: Family) -> ResolveError {
    let error = |kind| ResolveError::new(kind, name, family);
    match code {
        ResponseCode::ServFail => error(ResolveErrorKind::ServFail),
        ResponseCode::Refused => error(ResolveErrorKind::Refused),
        code => error(ResolveErrorKind::Other).with_cause(format!("the DNS server answered {code}")),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::net::IpAddr;

    use hickory_resolver::proto::rr::rdata::{A, CNAME, SOA};

    use super::*;

    #[test]
    fn the_error_of_the_operating_system_is_among_the_causes() {
        let error = lookup_error(std::io::Error::from_raw_os_error(24).into(), "a.test", Family::V4);
        let causes = std::iter::successors(error.source(), |error| (*error).source());
        let mut codes = causes.filter_map(|error| error.downcast_ref::<std::io::Error>()?.raw_os_error());
        assert_eq!(codes.next(), Some(24));
    }

    #[cfg(unix)]
    #[test]
    fn failures_of_this_machine_are_told_apart_from_those_of_servers() {
        use rustix::io::Errno;
        let local = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NETUNREACH, Errno::NETDOWN, Errno::HOSTUNREACH];
        let servers = [Errno::CONNREFUSED, Errno::CONNRESET, Errno::PIPE];
        let kind = |errno: Errno| {
            let error = std::io::Error::from_raw_os_error(errno.raw_os_error());
            lookup_error(error.into(), "a.test", Family::V4).kind()
        };
        assert!(local.iter().all(|errno| kind(*errno) == ResolveErrorKind::Local));
        assert!(servers.iter().all(|errno| kind(*errno) == ResolveErrorKind::Unreachable));
    }

    #[test]
    fn a_ttl_with_its_high_bit_set_is_zero() {
        assert_eq!(ttl(60), Duration::from_secs(60));
        assert_eq!(ttl(i32::MAX as u32), Duration::from_secs(i32::MAX as u64));
        assert_eq!(ttl(1 << 31), Duration::ZERO);
    }

    fn record(name: &str, seconds: u32, data: RData) -> Record {
        Record::from_rdata(Name::from_ascii(name).unwrap(), seconds, data)
    }

    fn alias(name: &str, seconds: u32, target: &str) -> Record {
        record(name, seconds, RData::CNAME(CNAME(Name::from_ascii(target).unwrap())))
    }

    fn address(name: &str, seconds: u32, last: u8) -> Record {
        record(name, seconds, RData::A(A([192, 0, 2, last].into())))
    }

    fn answered(records: &[Record]) -> Option<(Vec<u8>, u64)> {
        let answer = addresses(records, &Name::from_ascii("a.test.").unwrap(), Family::V4)?;
        let last = |ip: &IpAddr| ip.to_string().rsplit('.').next().unwrap().parse().unwrap();
        Some((answer.addresses().iter().map(last).collect(), answer.ttl().as_secs()))
    }

    #[test]
    fn addresses_that_no_host_can_have_are_left_out() {
        let useless = ["0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1", "fe80::1", "::ffff:0.0.0.0"];
        assert!(useless.iter().all(|ip| !can_be_of_host(&ip.parse().unwrap())));
        let useful = ["127.0.0.1", "10.0.0.1", "::1", "2001:db8::1", "fd00::1", "::ffff:192.0.2.1"];
        assert!(useful.iter().all(|ip| can_be_of_host(&ip.parse().unwrap())));
        let read = |addresses: &[[u8; 4]]| {
            let owner = Name::from_ascii("a.test.").unwrap();
            let mut message = Message::response(0, hickory_resolver::proto::op::OpCode::Query);
            message.answers.extend(addresses.iter().map(|ip| record("a.test.", 60, RData::A(A((*ip).into())))));
            answer(&message, &owner, "a.test", Family::V4)
        };
        let answer = read(&[[0, 0, 0, 0], [192, 0, 2, 1]]).unwrap();
        assert_eq!(answer.addresses()[..], [IpAddr::from([192, 0, 2, 1])]);
        let error = read(&[[0, 0, 0, 0]]).unwrap_err();
        assert_eq!((error.kind(), error.negative_ttl()), (ResolveErrorKind::NoData, Some(Duration::from_secs(60))));
        assert_eq!(error.source().unwrap().to_string(), "no host can have the address 0.0.0.0");
    }

    #[test]
    fn that_an_alias_leads_nowhere_is_known_for_no_longer_than_the_alias() {
        let owner = Name::from_ascii("a.test.").unwrap();
        for (of_alias, of_zone, kept) in [(5, 300, 5), (300, 5, 5), (0, 300, 0)] {
            for code in [ResponseCode::NXDomain, ResponseCode::NoError] {
                let mut message = Message::response(0, hickory_resolver::proto::op::OpCode::Query);
                message.metadata.response_code = code;
                message.answers.push(alias("a.test.", of_alias, "gone.test."));
                let soa = SOA::new(owner.clone(), owner.clone(), 1, 60, 60, 60, of_zone);
                message.authorities.push(record("test.", of_zone, RData::SOA(soa)));
                let error = answer(&message, &owner, "a.test", Family::V4).unwrap_err();
                assert_eq!(error.negative_ttl(), Some(Duration::from_secs(kept)), "{of_alias} and {of_zone}");
            }
        }
    }

    #[test]
    fn records_for_other_names_are_left_out() {
        let records = [address("A.test.", 60, 1), address("other.test.", 5, 66), address("a.test.", 50, 2)];
        assert_eq!(answered(&records), Some((vec![1, 2], 50)));
        assert_eq!(answered(&[address("other.test.", 60, 66)]), None);
    }

    #[test]
    fn records_of_another_class_are_left_out() {
        let mut records = [address("a.test.", 60, 66), alias("a.test.", 30, "b.test."), address("b.test.", 50, 2)];
        records[0].dns_class = DNSClass::CH;
        assert_eq!(answered(&records), Some((vec![2], 30)));
        records[1].dns_class = DNSClass::CH;
        assert_eq!(answered(&records), None);
    }

    #[test]
    fn an_alias_without_an_answer_is_known() {
        let name = Name::from_ascii("a.test.").unwrap();
        let unanswered = |records: Vec<Record>| {
            let mut message = Message::response(0, hickory_resolver::proto::op::OpCode::Query);
            message.answers = records;
            unanswered_alias(&message, &name).map(|alias| alias.to_string())
        };
        let chain = || vec![alias("a.test.", 30, "b.test."), alias("b.test.", 30, "c.test.")];
        assert_eq!(unanswered(chain()), Some("c.test.".to_owned()));
        assert_eq!(unanswered([chain(), vec![address("c.test.", 5, 1)]].concat()), None);
        assert_eq!(unanswered([chain(), vec![alias("c.test.", 5, "a.test.")]].concat()), None, "a circle");
        assert_eq!(unanswered(vec![address("a.test.", 5, 1)]), None);
        assert_eq!(unanswered(Vec::new()), None);
    }

    #[test]
    fn a_chain_is_followed_in_any_order_with_its_smallest_ttl() {
        let records = [address("c.test.", 60, 1), alias("b.test.", 5, "c.test."), alias("a.test.", 30, "b.test.")];
        assert_eq!(answered(&records), Some((vec![1], 5)));
    }

    #[test]
    fn at_most_16_aliases_are_followed() {
        let link = |at: usize| alias(&format!("{at}.test."), 5, &format!("{}.test.", at + 1));
        for (links, found) in [(16, true), (17, false), (3_000, false)] {
            let mut records: Vec<_> = (0..links).map(link).collect();
            records.push(address(&format!("{links}.test."), 60, 1));
            records[0].name = Name::from_ascii("a.test.").unwrap();
            assert_eq!(answered(&records).is_some(), found, "{links}");
        }
    }

    #[test]
    fn a_chain_that_loops_or_dangles_has_no_addresses() {
        assert_eq!(answered(&[alias("a.test.", 5, "b.test."), alias("b.test.", 5, "a.test.")]), None);
        assert_eq!(answered(&[alias("a.test.", 5, "b.test."), address("c.test.", 5, 1)]), None);
    }
}
