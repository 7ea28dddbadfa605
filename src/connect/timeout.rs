//! The error of a dial that took longer than the connect timeout: its events show what it was doing.

use std::time::Duration;

use super::error::ConnectError;
use crate::clock::Instant;
use crate::trace::{Event, Phase, exact};

/// Describes a dial whose time limit, `after`, has passed. `phase` is the one that it was in.
pub(super) fn timed_out(events: Vec<(Instant, Event)>, phase: Phase, after: Duration) -> ConnectError {
    let failed = events.into_iter().filter_map(|(_, event)| match event {
        Event::AttemptEnd { address, error: Some(error), .. } => Some((address, error)),
        Event::TlsFailed { address, error } => Some((address?, error)),
        _ => None,
    });
    ConnectError::Timeout { after, phase, failed: failed.collect() }
}

/// Describes a dial to a Unix domain socket whose time limit has passed. Unless the TLS handshake had begun, it can
/// only have waited for room in the socket's backlog.
pub(super) fn unix_timed_out(
    path: &std::sync::Arc<std::path::Path>,
    events: Vec<(Instant, Event)>,
    phase: Phase,
    after: Duration,
) -> ConnectError {
    let is_tls = |event: &Event| matches!(event, Event::TlsStart { .. } | Event::TlsEnd(_) | Event::TlsFailed { .. });
    if events.iter().any(|(_, event)| is_tls(event)) {
        return timed_out(events, phase, after);
    }
    let message = format!("its backlog was full for {}", exact(after));
    ConnectError::Unix(path.clone(), std::io::Error::new(std::io::ErrorKind::TimedOut, message).into())
}

/// Returns the phase that the last events of a dial belong to.
pub(super) fn last_phase(events: &[(Instant, Event)]) -> Phase {
    let mut open_attempts = 0;
    let mut is_in_proxy = false;
    let mut is_in_tls = false;
    for (_, event) in events {
        match event {
            Event::AttemptStart { .. } | Event::UnixStart { .. } => {
                open_attempts += 1;
                is_in_proxy = false;
            }
            Event::AttemptEnd { .. } | Event::AttemptCancelled { .. } => open_attempts -= 1,
            Event::ProxyStart { .. } => is_in_proxy = true,
            Event::ProxyEnd => is_in_proxy = false,
            Event::TlsStart { .. } => is_in_tls = true,
            Event::TlsEnd(_) | Event::TlsFailed { .. } => is_in_tls = false,
            _ => {}
        }
    }
    if is_in_tls {
        Phase::Tls
    } else if is_in_proxy {
        Phase::Proxy
    } else if open_attempts > 0 {
        Phase::Connect
    } else {
        // No attempt was open, so the dial waited for addresses.
        Phase::Dns
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use super::*;

    fn phase_after(events: impl IntoIterator<Item = Event>) -> Phase {
        let now = crate::clock::now();
        last_phase(&events.into_iter().map(|event| (now, event)).collect::<Vec<_>>())
    }

    #[test]
    fn the_phase_is_that_of_the_last_events() {
        let address = SocketAddr::from(([192, 0, 2, 1], 443));
        let start = || Event::AttemptStart { address };
        let end = || Event::AttemptEnd { address, error: None };
        let tls = || Event::TlsStart { address: Some(address) };
        let tls_failed = || {
            let error = Arc::new(std::io::Error::from(std::io::ErrorKind::TimedOut));
            Event::TlsFailed { address: Some(address), error }
        };
        assert_eq!(phase_after([]), Phase::Dns);
        assert_eq!(phase_after([start()]), Phase::Connect);
        assert_eq!(phase_after([start(), end()]), Phase::Dns, "other addresses are waited for");
        assert_eq!(phase_after([start(), end(), tls()]), Phase::Tls);
        assert_eq!(phase_after([start(), end(), tls(), tls_failed(), start()]), Phase::Connect);
    }
}
