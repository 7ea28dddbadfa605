//! The times at which a call's last request reached its milestones.

use crate::clock::Instant;

/// The milestones that a call's last request has reached.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Milestones {
    /// The start of the dial of its own connection.
    pub(super) dial_started: Option<Instant>,
    /// The start of the first attempt, when the name was resolved.
    pub(super) resolved: Option<Instant>,
    /// The end of the attempt that connected.
    pub(super) connected: Option<Instant>,
    /// The end of the TLS handshake.
    pub(super) secured: Option<Instant>,
    /// The lease of a connection.
    pub(super) leased: Option<Instant>,
    /// The first byte of the response.
    pub(super) answered: Option<Instant>,
    /// The end of the response's head.
    pub(super) head_read: Option<Instant>,
}
