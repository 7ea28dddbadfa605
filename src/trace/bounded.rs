//! A core: the timings of a call as a program keeps them, of bounded size, whatever the peer or the program put into them.

use std::sync::Arc;

use super::events::event::TlsFacts;
use super::timings::Timings;

/// The most lookups, dialled addresses, earlier requests and hedges that are kept of a call.
pub(crate) const MAX_HISTORY: usize = 8;
/// The most addresses of a lookup that are kept.
const MAX_ADDRESSES: usize = 16;

impl Timings {
    /// Returns a copy of bounded size, for a program that keeps the timings of many calls: without the server's certificates, with at
    /// most the last 8 lookups, each with 16 addresses, the last 8 dialled addresses and hedges, and 8 earlier requests, into which
    /// further ones are [joined](super::Hop::joined), so that the times still add up.
    ///
    /// It takes about 1 kB; at worst 25 kB, with a `Server-Timing` header of 4 KiB and the most lookups. Errors of lookups and dialled
    /// addresses are shared, and are not in these figures.
    pub fn bounded(&self) -> Self {
        let mut timings = self.clone();
        let remote = timings.remote_addr().map(|remote| remote.ip());
        if let Some(history) = &mut timings.history {
            history.truncate(MAX_HISTORY);
            history.cut_addresses(MAX_ADDRESSES, remote);
        }
        if let Some(facts) = timings.request.tls.as_mut().filter(|facts| !facts.peer_certificates.is_empty()) {
            *facts = Arc::new(TlsFacts { peer_certificates: Vec::new(), alpn: facts.alpn.clone(), ..**facts });
        }
        timings
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use bytes::Bytes;

    use super::*;
    use crate::trace::events::event::Event;
    use crate::trace::events::lookup::{DnsLookup, Family, Source};
    use crate::trace::timings::samples::{SENT, address, cold_call, dns_start, folded, leased, ms};

    #[test]
    fn certificates_are_let_go_and_the_rest_of_a_handshake_is_kept() {
        let facts = Arc::new(TlsFacts {
            version: "TLSv1_3",
            cipher_suite: "TLS13_AES_128_GCM_SHA256",
            alpn: Some("h2".into()),
            resumed: false,
            verified: true,
            peer_certificates: vec![Bytes::from_static(&[7; 2_000])],
        });
        let mut timings = cold_call();
        timings.request.tls = Some(facts.clone());
        let kept = timings.bounded();
        drop(timings);
        assert_eq!(Arc::strong_count(&facts), 1, "the chain can be freed");
        let without = TlsFacts { peer_certificates: Vec::new(), ..(*facts).clone() };
        assert_eq!(kept.tls_facts(), Some(&without));
        let again = kept.bounded();
        assert!(std::ptr::eq(kept.tls_facts().unwrap(), again.tls_facts().unwrap()), "there is nothing to let go");
    }

    #[test]
    fn of_many_addresses_of_a_name_that_of_the_connection_is_kept() {
        let lookup = |count: u16, last: IpAddr| {
            let others = (0..count).map(|number| IpAddr::from([10, 0, (number >> 8) as u8, number as u8]));
            let all: Arc<[IpAddr]> = others.chain([last]).collect();
            let end = DnsLookup::answered("api.test".into(), Family::V4, all.clone(), ms(2_000), Source::Miss);
            let call = folded(&[(0, dns_start(Family::V4)), (5, Event::DnsEnd(end)), (5, leased(0)), (5, SENT)]);
            let kept = call.bounded().lookups()[0].addresses.clone();
            (all, kept)
        };
        let (_, kept) = lookup(5_000, address().ip());
        assert_eq!((kept.len(), kept.last()), (MAX_ADDRESSES, Some(&address().ip())));
        let (all, kept) = lookup(5_000, IpAddr::from([10, 1, 1, 1]));
        assert_eq!(kept[..], all[..MAX_ADDRESSES], "no connection has one of them");
        let (all, kept) = lookup(15, address().ip());
        assert!(Arc::ptr_eq(&all, &kept), "a usual answer is shared");
    }
}
