//! The slot of a connection, from the start of its service until its socket is closed.

use std::sync::{Arc, Weak};

use super::state::ConnId;
use crate::trace::{self, CloseCause, Hooks};

/// The owner of slots: the driver, which takes reports about connections.
pub(super) trait SlotOwner: Send + Sync {
    /// Frees the slot of a connection whose socket is closed. Returns the cause of the close.
    fn free_slot(self: Arc<Self>, id: ConnId) -> CloseCause;
    /// Takes note of the number of concurrent requests that a peer allows.
    fn announce_streams(self: Arc<Self>, id: ConnId, streams: usize);
    /// Gives a connection no more requests.
    fn retire(self: Arc<Self>, id: ConnId, cause: CloseCause);
    /// Gives a connection no more requests, and opens no other one to its host for a while.
    fn back_off(self: Arc<Self>, id: ConnId);
}

/// The slot of a connection. Its holder serves the connection, and drops the slot when the socket is closed.
pub(crate) struct Slot {
    owner: Weak<dyn SlotOwner>,
    hooks: Hooks,
    id: ConnId,
}

impl Slot {
    pub(super) fn new(owner: Weak<dyn SlotOwner>, hooks: Hooks, id: ConnId) -> Self {
        Self { owner, hooks, id }
    }

    /// Returns the connection's number.
    pub(crate) fn connection(&self) -> u64 {
        self.id.serial
    }

    /// Returns a reporter of the connection's capacity.
    pub(crate) fn capacity_reporter(&self) -> CapacityReporter {
        CapacityReporter { owner: self.owner.clone(), id: self.id }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let cause = match self.owner.upgrade() {
            Some(owner) => owner.free_slot(self.id),
            None => CloseCause::Program,
        };
        trace::connection_closed(&self.hooks, self.id.serial, cause);
    }
}

/// Reports to the pool the number of requests that a connection takes.
pub(crate) struct CapacityReporter {
    owner: Weak<dyn SlotOwner>,
    id: ConnId,
}

impl CapacityReporter {
    /// Reports the number of concurrent requests that the peer allows.
    pub(crate) fn announce_streams(&self, streams: usize) {
        if let Some(owner) = self.owner.upgrade() {
            owner.announce_streams(self.id, streams);
        }
    }

    /// Reports that the peer takes no new requests.
    pub(crate) fn take_no_more(&self) {
        self.retire(CloseCause::PeerAnnounced);
    }

    /// Reports that the runtime which serves the connection ends. The pool hears it before the socket is closed, and does not
    /// take that for a close by the peer.
    pub(crate) fn abandon(&self) {
        self.retire(CloseCause::Program);
    }

    fn retire(&self, cause: CloseCause) {
        if let Some(owner) = self.owner.upgrade() {
            owner.retire(self.id, cause);
        }
    }

    /// Reports that the peer takes no new requests, and asks for fewer of them (ENHANCE_YOUR_CALM, RFC 9113 §7).
    pub(crate) fn back_off(&self) {
        if let Some(owner) = self.owner.upgrade() {
            owner.back_off(self.id);
        }
    }
}
