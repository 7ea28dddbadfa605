//! A core: the timings and the request of a call as an observer keeps them, of bounded size, whatever the peer or the program put
//! into them.

use std::sync::{Arc, Weak};

use http::{Extensions, Method, Uri};

use super::events::event::{RequestInfo, TlsFacts};
use super::timings::Timings;

/// The most bytes of a method that are kept.
const MAX_METHOD: usize = 32;
/// The most lookups, dialled addresses, earlier requests and hedges that are kept of a call.
pub(crate) const MAX_HISTORY: usize = 8;
/// The most addresses of a lookup that are kept.
const MAX_ADDRESSES: usize = 16;

/// Returns the timings, or a copy with at most the last 8 lookups, dialled addresses, hedges and earlier requests, and without
/// certificates. Those of a call that was one request on an idle connection without TLS are not copied.
pub(crate) fn shared_timings(
    timings: &Arc<Timings>,
    without_chain: impl FnOnce(&Arc<TlsFacts>) -> Arc<TlsFacts>,
) -> Arc<Timings> {
    if timings.history.is_none() && timings.request.tls.is_none() {
        return timings.clone();
    }
    Arc::new(bounded_timings(timings, without_chain))
}

/// Returns a copy of the timings with at most the last 8 lookups, dialled addresses, hedges and earlier requests, and without
/// certificates.
pub(crate) fn bounded_timings(
    timings: &Timings,
    without_chain: impl FnOnce(&Arc<TlsFacts>) -> Arc<TlsFacts>,
) -> Timings {
    let mut timings = timings.clone();
    let remote = timings.remote_addr().map(|remote| remote.ip());
    if let Some(history) = &mut timings.history {
        history.truncate(MAX_HISTORY);
        history.cut_addresses(MAX_ADDRESSES, remote);
    }
    if let Some(facts) = &mut timings.request.tls {
        *facts = without_chain(facts);
    }
    timings
}

/// Returns the request, or a shorter one with the same origin if its target has more than `max_target` bytes, its method more than
/// 32, or if it has values of the program.
pub(crate) fn bounded_request(request: &Arc<RequestInfo>, max_target: usize) -> Arc<RequestInfo> {
    let RequestInfo { method, origin, target, extensions } = &**request;
    let is_short = target_len(target) <= max_target && method.as_str().len() <= MAX_METHOD;
    if is_short && extensions.is_empty() {
        return request.clone();
    }
    Arc::new(RequestInfo {
        method: cut_method(method),
        origin: origin.clone(),
        target: cut_target(target, max_target),
        extensions: Extensions::new(),
    })
}

/// Returns the length of a target, without putting its parts together.
fn target_len(target: &Uri) -> usize {
    let path = target.path_and_query().map_or(0, |path| path.as_str().len());
    path + target.authority().map_or(0, |authority| authority.as_str().len())
}

/// Returns a target of at most `most` bytes.
pub(crate) fn cut_target(target: &Uri, most: usize) -> Uri {
    if target_len(target) <= most {
        return target.clone();
    }
    let path = target.path_and_query().map_or("/", |path| path.as_str());
    let end = boundary(path, most - 3);
    format!("{}...", &path[..end]).parse().unwrap_or_default()
}

/// Returns a method of at most 32 bytes.
pub(crate) fn cut_method(method: &Method) -> Method {
    match method.as_str().get(..MAX_METHOD) {
        Some(start) => Method::from_bytes(start.as_bytes()).unwrap_or_default(),
        None => method.clone(),
    }
}

/// Returns the last place up to `at` at which a character begins.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// The last TLS handshake seen and the same without its certificates, which would take more memory than all the rest.
#[derive(Debug, Default)]
pub(crate) struct LastHandshake {
    seen: Weak<TlsFacts>,
    kept: Option<Arc<TlsFacts>>,
}

impl LastHandshake {
    /// Returns the facts without the certificates. All calls on one connection in a row share them.
    pub(crate) fn without_chain(&mut self, facts: &Arc<TlsFacts>) -> Arc<TlsFacts> {
        // The weak pointer keeps the memory at this address from being used for other facts.
        if let Some(kept) = self.kept.as_ref().filter(|_| self.seen.as_ptr() == Arc::as_ptr(facts)) {
            return kept.clone();
        }
        let kept = Arc::new(TlsFacts { peer_certificates: Vec::new(), alpn: facts.alpn.clone(), ..**facts });
        self.seen = Arc::downgrade(facts);
        self.kept = Some(kept.clone());
        kept
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::trace::events::event::Event;
    use crate::trace::events::lookup::{DnsLookup, Family, Source};
    use crate::trace::timings::samples::{SENT, address, dns_start, folded, leased, ms, origin};

    const MAX_TARGET: usize = 512;

    fn request(target: &str) -> RequestInfo {
        let target = target.parse().unwrap();
        RequestInfo { method: Method::GET, origin: origin(), target, extensions: Extensions::new() }
    }

    #[test]
    fn a_usual_request_is_shared_and_not_copied() {
        let usual = Arc::new(request("/v1/items?page=1"));
        assert!(Arc::ptr_eq(&bounded_request(&usual, MAX_TARGET), &usual));
    }

    #[test]
    fn long_targets_and_methods_are_cut_and_values_of_the_program_are_let_go() {
        let long = request(&format!("/{}?secret=1", "a".repeat(60_000)));
        let long = bounded_request(&Arc::new(long), MAX_TARGET);
        assert_eq!(long.target.to_string().len(), MAX_TARGET);
        assert!(long.target.path().ends_with("aaa..."));

        let value = Arc::new(());
        let mut with_value = request("/v1/items");
        with_value.extensions.insert(value.clone());
        with_value.method = Method::from_bytes(&b"X".repeat(10_000)).unwrap();
        let kept = bounded_request(&Arc::new(with_value), MAX_TARGET);
        assert_eq!((kept.method.as_str().len(), kept.target.path()), (MAX_METHOD, "/v1/items"));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_target_is_cut_between_characters() {
        assert_eq!(boundary("aé", 2), 1);
        assert_eq!(boundary("aé", 9), 3);
    }

    #[test]
    fn of_many_addresses_of_a_name_that_of_the_connection_is_kept() {
        let lookup = |count: u16, last: IpAddr| {
            let others = (0..count).map(|number| IpAddr::from([10, 0, (number >> 8) as u8, number as u8]));
            let all: Arc<[IpAddr]> = others.chain([last]).collect();
            let end = DnsLookup::answered("api.test".into(), Family::V4, all.clone(), ms(2_000), Source::Miss);
            let call = folded(&[(0, dns_start(Family::V4)), (5, Event::DnsEnd(end)), (5, leased(0)), (5, SENT)]);
            let kept = bounded_timings(&call, Arc::clone).lookups()[0].addresses.clone();
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
