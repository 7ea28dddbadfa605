//! Events that belong to no call and no dial: the end of a lease or a connection, a skipped word of resolv.conf, files of
//! certificates that were read again, and a setting without effect.

use super::hooks::{Hooks, ObserverHandle};
use super::observer::Wants;
use crate::clock::{Instant, now};
use crate::trace::events::causes::CloseCause;
use crate::trace::events::event::{Event, Record, Subject};

/// Tells the observers that a connection's socket was closed.
pub(crate) fn connection_closed(hooks: &Hooks, connection: u64, cause: CloseCause) {
    if hooks.wants().intersects(Wants::CONNECTIONS) {
        tell_connection(hooks, None, connection, now(), Event::Closed { cause });
    }
}

/// Tells the observers, and the call's own one, that a request released its connection.
pub(crate) fn connection_released(hooks: &Hooks, own: Option<&ObserverHandle>, connection: u64, kept: bool) {
    tell_end_of_use(hooks, own, connection, || Event::Released { kept });
}

/// Tells the observers that the client of another crate began to use a connection.
#[cfg(feature = "hyper-util")]
pub(crate) fn connection_active(hooks: &Hooks, connection: u64) {
    if hooks.wants().intersects(Wants::CONNECTIONS) {
        tell_connection(hooks, None, connection, now(), Event::Active);
    }
}

/// Tells the observers, and the call's own one, that the stream of another protocol was dropped.
pub(crate) fn upgrade_ended(hooks: &Hooks, own: Option<&ObserverHandle>, connection: u64, received: u64, sent: u64) {
    tell_end_of_use(hooks, own, connection, || Event::UpgradeEnd { received, sent });
}

fn tell_end_of_use(hooks: &Hooks, own: Option<&ObserverHandle>, connection: u64, event: impl FnOnce() -> Event) {
    let own = own.filter(|own| own.wants().intersects(Wants::CONNECTIONS));
    if own.is_some() || hooks.wants().intersects(Wants::CONNECTIONS) {
        tell_connection(hooks, own, connection, now(), event());
    }
}

/// Tells the observers that a connection takes no new requests.
pub(crate) fn connection_retired(hooks: &Hooks, connection: u64, cause: CloseCause) {
    if hooks.wants().intersects(Wants::CONNECTIONS) {
        tell_connection(hooks, None, connection, now(), Event::Retired { cause });
    }
}

/// Tells the observers that a word of resolv.conf was left out.
pub(crate) fn config_skipped(hooks: &Hooks, line: usize, word: &str) {
    if hooks.wants().intersects(Wants::RESOLVER) {
        let event = Event::ConfigSkipped { line, word: word.into() };
        let record = Record { subject: Subject::Resolver, at: now().into_std(), event };
        hooks.tell(None, Wants::RESOLVER, &record);
    }
}

/// Tells the observers that files of certificates or keys cannot be used.
pub(crate) fn tls_files_refused(hooks: &Hooks, reason: &str) {
    if hooks.wants().intersects(Wants::SETTINGS) {
        let event = Event::TlsFilesRefused { reason: reason.into() };
        let record = Record { subject: Subject::Client, at: now().into_std(), event };
        hooks.tell(None, Wants::SETTINGS, &record);
    }
}

/// Tells the observers that files of certificates or keys have changed, and are used.
pub(crate) fn tls_files_reloaded(hooks: &Hooks) {
    if hooks.wants().intersects(Wants::SETTINGS) {
        let record = Record { subject: Subject::Client, at: now().into_std(), event: Event::TlsFilesReloaded };
        hooks.tell(None, Wants::SETTINGS, &record);
    }
}

/// Tells the observers that one setting of a client leaves another one without effect.
pub(crate) fn setting_ignored(hooks: &Hooks, setting: &'static str, beside: &'static str) {
    if hooks.wants().intersects(Wants::SETTINGS) {
        let event = Event::SettingIgnored { setting, beside };
        hooks.tell(None, Wants::SETTINGS, &Record { subject: Subject::Client, at: now().into_std(), event });
    }
}

/// Tells the observers an event of a connection.
pub(in crate::trace) fn tell_connection(
    hooks: &Hooks,
    own: Option<&ObserverHandle>,
    connection: u64,
    at: Instant,
    event: Event,
) {
    let record = Record { subject: Subject::Connection(connection), at: at.into_std(), event };
    hooks.tell(own, Wants::CONNECTIONS, &record);
}
