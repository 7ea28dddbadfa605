//! The cause why a connection was opened rather than used again.

use super::Cause;
use crate::trace::events::causes::CloseCause;
use crate::trace::events::host_at_dial::HostClose;
use crate::trace::timings::hops::DialFacts;

/// The least number of connections opened in a second from which on a server counts as one that closes each.
const MANY_OPENED: u32 = 2;

/// Returns the cause why a connection was new, and a clause about it. `of_longest` is the cause for which opening it took its time.
pub(super) fn reason(dial: &DialFacts, of_longest: Cause) -> Option<(Cause, String)> {
    if matches!(of_longest, Cause::DnsFailed | Cause::NoAddressConnected) {
        return None; // no connection was opened
    }
    let DialFacts { origin, host } = dial;
    let (cause, because) = match host.last_close {
        _ if host.open == 1 => (Cause::AllInUse, "because the only open one was in use".to_owned()),
        _ if host.open > 1 => (Cause::AllInUse, format!("because all {} open ones were in use", host.open)),
        Some(close) => of_close(close, host.opened_lately),
        // Where an address or DNS fails, an earlier connection would have met that as well.
        None if !matches!(of_longest, Cause::ConnectSlow | Cause::ProxySlow | Cause::TlsHandshake) => return None,
        None => (Cause::FirstConnection, "because no other one was open".to_owned()),
    };
    Some((cause, format!("the connection to {origin} was new {because}")))
}

/// Returns the cause why a host's last connection could not be used again. `opened` connections were opened in the same second.
fn of_close(close: HostClose, opened: u32) -> (Cause, String) {
    let HostClose { cause, requests, was_idle } = close;
    let is_first = requests <= 1;
    match cause {
        CloseCause::Peer | CloseCause::PeerAnnounced if is_first && opened >= MANY_OPENED => {
            let although = "were opened in the last second: the server closes after each answer";
            (Cause::ServerClosesEach, format!("although {opened} {although}"))
        }
        CloseCause::Peer | CloseCause::PeerAnnounced if is_first && !was_idle => {
            (Cause::ServerClosesEach, "because the server had closed the last one after one request".to_owned())
        }
        CloseCause::Peer | CloseCause::PeerAnnounced if was_idle => {
            (Cause::ServerClosedIdle, "because the server had closed the last one, which was idle".to_owned())
        }
        CloseCause::Peer | CloseCause::PeerAnnounced => {
            (Cause::ServerClosed, "because the server had closed the last one".to_owned())
        }
        CloseCause::IdleTimeout => (Cause::IdleTimeout, "because the idle timeout had closed the last one".to_owned()),
        cause => (Cause::ClientClosed, format!("because the last one was closed ({cause})")),
    }
}
