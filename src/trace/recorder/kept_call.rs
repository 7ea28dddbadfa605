//! A call as the recorder keeps it.

use std::sync::Arc;

use crate::trace::bounded::{bounded_request, bounded_timings};
use crate::trace::event::{RequestInfo, TlsFacts};
use crate::trace::timings::Timings;

/// The most bytes of a target that are kept.
const MAX_TARGET: usize = 512;

/// A call that is kept.
#[derive(Debug)]
pub(super) struct KeptCall {
    pub(super) request: Arc<RequestInfo>,
    pub(super) timings: Timings,
}

impl KeptCall {
    /// Copies what is kept of a call. `tls` replaces the result of its TLS handshake.
    pub(super) fn new(
        request: &Arc<RequestInfo>,
        timings: &Timings,
        tls: impl FnOnce(&Arc<TlsFacts>) -> Arc<TlsFacts>,
    ) -> Arc<Self> {
        let request = bounded_request(request, MAX_TARGET);
        Arc::new(Self { request, timings: bounded_timings(timings, tls) })
    }
}
