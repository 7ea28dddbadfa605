//! The times at which a call's last request reached its milestones.

use crate::clock::Instant;

/// The milestones that a call's last request has reached.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Milestones {
    /// The start of the dial of its own connection.
    pub(in crate::trace) dial_started: Option<Instant>,
    /// The start of the first attempt, when the name was resolved.
    pub(in crate::trace) resolved: Option<Instant>,
    /// The end of the attempt that connected.
    pub(in crate::trace) connected: Option<Instant>,
    /// The end of the TLS handshake.
    pub(crate) secured: Option<Instant>,
    /// The lease of a connection.
    pub(in crate::trace) leased: Option<Instant>,
    /// The first byte of the response.
    pub(in crate::trace) answered: Option<Instant>,
    /// The end of the response's head.
    pub(in crate::trace) head_read: Option<Instant>,
}
