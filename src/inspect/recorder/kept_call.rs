//! A call as the recorder keeps it.

use std::sync::Arc;

use crate::trace::Timings;
use crate::trace::{RequestInfo, TlsFacts};
use crate::trace::{bounded_request, shared_timings};

/// The most bytes of a target that are kept.
const MAX_TARGET: usize = 512;

/// A call that is kept. Its clones share it.
#[derive(Debug, Clone)]
pub(super) struct KeptCall {
    pub(super) request: Arc<RequestInfo>,
    pub(super) timings: Arc<Timings>,
}

impl KeptCall {
    /// Returns what is kept of a call. `tls` replaces the result of its TLS handshake.
    pub(super) fn new(
        request: &Arc<RequestInfo>,
        timings: &Arc<Timings>,
        tls: impl FnOnce(&Arc<TlsFacts>) -> Arc<TlsFacts>,
    ) -> Self {
        Self { request: bounded_request(request, MAX_TARGET), timings: shared_timings(timings, tls) }
    }
}
