//! A core: a call as the recorder keeps it, of bounded size, whatever the peer or the program put into it.

use std::sync::Arc;

use http::{Extensions, Method, Uri};

use crate::trace::event::{RequestInfo, TlsFacts};
use crate::trace::timings::Timings;

/// The most bytes of a target that are kept.
pub(super) const MAX_TARGET: usize = 512;
/// The most bytes of a method that are kept.
const MAX_METHOD: usize = 32;
/// The most lookups, dialled addresses, earlier requests and hedges that are kept of a call.
pub(super) const MAX_HISTORY: usize = 8;

/// A call that is kept.
#[derive(Debug, Clone)]
pub(super) struct KeptCall {
    /// The number of the call among those to its origin, from 1. The same call in two lists has the same number.
    pub(super) number: u64,
    pub(super) request: Arc<RequestInfo>,
    pub(super) timings: Timings,
}

impl KeptCall {
    /// Copies what is kept of a call. `tls` replaces the result of its TLS handshake.
    pub(super) fn new(
        number: u64,
        request: &Arc<RequestInfo>,
        timings: &Timings,
        tls: impl FnOnce(&Arc<TlsFacts>) -> Arc<TlsFacts>,
    ) -> Self {
        let mut timings = timings.clone();
        if let Some(history) = &mut timings.history {
            history.truncate(MAX_HISTORY);
        }
        if let Some(facts) = &mut timings.request.tls {
            *facts = tls(facts);
        }
        Self { number, request: bounded(request), timings }
    }
}

/// Returns the request, or a shorter one with the same origin if it is long or has values of the program.
fn bounded(request: &Arc<RequestInfo>) -> Arc<RequestInfo> {
    let RequestInfo { method, origin, target, extensions } = &**request;
    let is_short = target_len(target) <= MAX_TARGET && method.as_str().len() <= MAX_METHOD;
    if is_short && extensions.is_empty() {
        return request.clone();
    }
    Arc::new(RequestInfo {
        method: cut_method(method),
        origin: origin.clone(),
        target: cut_target(target),
        extensions: Extensions::new(),
    })
}

/// Returns the length of a target, without putting its parts together.
fn target_len(target: &Uri) -> usize {
    let path = target.path_and_query().map_or(0, |path| path.as_str().len());
    path + target.authority().map_or(0, |authority| authority.as_str().len())
}

fn cut_target(target: &Uri) -> Uri {
    if target_len(target) <= MAX_TARGET {
        return target.clone();
    }
    let path = target.path_and_query().map_or("/", |path| path.as_str());
    let end = boundary(path, MAX_TARGET - 3);
    format!("{}...", &path[..end]).parse().unwrap_or_default()
}

fn cut_method(method: &Method) -> Method {
    match method.as_str().get(..MAX_METHOD) {
        Some(start) => Method::from_bytes(start.as_bytes()).unwrap_or_default(),
        None => method.clone(),
    }
}

/// Returns the last place up to `at` at which a character begins.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::samples::{cold_call, origin};

    fn request(target: &str) -> RequestInfo {
        RequestInfo {
            method: Method::GET,
            origin: origin(),
            target: target.parse().unwrap(),
            extensions: Extensions::new(),
        }
    }

    fn kept(request: RequestInfo) -> KeptCall {
        KeptCall::new(1, &Arc::new(request), &cold_call(), Arc::clone)
    }

    #[test]
    fn a_usual_request_is_shared_and_not_copied() {
        let usual = Arc::new(request("/v1/items?page=1"));
        let call = KeptCall::new(1, &usual, &cold_call(), Arc::clone);
        assert!(Arc::ptr_eq(&call.request, &usual));
    }

    #[test]
    fn long_targets_and_methods_are_cut_and_values_of_the_program_are_let_go() {
        let long = kept(request(&format!("/{}?secret=1", "a".repeat(60_000))));
        assert_eq!(long.request.target.to_string().len(), MAX_TARGET);
        assert!(long.request.target.path().ends_with("aaa..."));

        let value = Arc::new(());
        let mut with_value = request("/v1/items");
        with_value.extensions.insert(value.clone());
        with_value.method = Method::from_bytes(&b"X".repeat(10_000)).unwrap();
        let call = kept(with_value);
        assert_eq!((call.request.method.as_str().len(), call.request.target.path()), (MAX_METHOD, "/v1/items"));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_target_is_cut_between_characters() {
        assert_eq!(boundary("aé", 2), 1);
        assert_eq!(boundary("aé", 9), 3);
    }
}
