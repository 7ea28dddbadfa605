//! Additions to hyper's HTTP/2: an executor and a timer for h2's tasks, pings whose answers are timed, and a reader of all frames.
//!
//! | file | what it does |
//! |---|---|
//! | `runtime.rs`, `timer.rs` | the tasks and timers of a connection, run by the connection's own task |
//! | `watch.rs`, `frames.rs` | the frames that pass: SETTINGS, GOAWAY, resets, pings |
//! | `mod.rs` | what the peer's SETTINGS allow |
//! | `frames.rs` | pings by interval |

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::sync::lock;

pub(super) mod frames;
pub(super) mod runtime;
pub(super) mod timer;
pub(super) mod watch;

/// The server's SETTINGS_ENABLE_CONNECT_PROTOCOL, as far as it is known.
#[derive(Debug, Default)]
pub(in crate::connect) struct ExtendedConnect {
    support: Mutex<Support>,
    /// Notified when `support` is no longer unknown.
    known: Notify,
    /// True if `support` may be out of date.
    has_changed: AtomicBool,
}

#[derive(Debug, Clone, Copy, Default)]
enum Support {
    /// The server's settings have not come.
    #[default]
    Unknown,
    Known(bool),
    /// The connection ended before they came.
    Never,
}

impl ExtendedConnect {
    /// Notes that the server has sent settings. It may allow extended CONNECT at any time (RFC 8441 §3).
    pub(in crate::connect) fn note_change(&self) {
        self.has_changed.store(true, Ordering::Relaxed);
    }

    /// Returns true if the server has sent settings since the last call of [`note`](Self::note).
    pub(in crate::connect) fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::Relaxed)
    }

    /// Notes what the server's settings say.
    pub(in crate::connect) fn note(&self, is_supported: bool) {
        self.has_changed.store(false, Ordering::Relaxed);
        *lock(&self.support) = Support::Known(is_supported);
        self.known.notify_waiters();
    }

    /// Notes that no more settings will come.
    pub(in crate::connect) fn note_end(&self) {
        let mut support = lock(&self.support);
        if matches!(*support, Support::Unknown) {
            *support = Support::Never;
        }
        drop(support);
        self.known.notify_waiters();
    }

    /// Waits for the server's settings. Returns true if they allow extended CONNECT, and `None` if the connection ended
    /// before they came.
    pub(in crate::connect) async fn is_supported(&self) -> Option<bool> {
        loop {
            let known = self.known.notified();
            let support = *lock(&self.support);
            match support {
                Support::Unknown => known.await,
                Support::Known(is_supported) => return Some(is_supported),
                Support::Never => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_request_waits_for_the_settings_or_the_end_of_the_connection() {
        let setting = ExtendedConnect::default();
        let mut waiting = Box::pin(setting.is_supported());
        assert_eq!(waiting.as_mut().now_or_never(), None);
        setting.note(true);
        assert_eq!(waiting.now_or_never(), Some(Some(true)));
        setting.note_end();
        assert_eq!(setting.is_supported().now_or_never(), Some(Some(true)), "the end changes nothing");
        let setting = ExtendedConnect::default();
        let mut waiting = Box::pin(setting.is_supported());
        assert_eq!(waiting.as_mut().now_or_never(), None);
        setting.note_end();
        assert_eq!(waiting.now_or_never(), Some(None));
    }
}
