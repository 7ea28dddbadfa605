//! The connections that a call had, for an adapter that tells another library of them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::SmallVec;

use crate::sync::lock;

/// A connection that a call had.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotedConn {
    /// The connection's number.
    pub(crate) number: u64,
    pub(crate) remote: Option<SocketAddr>,
    /// True if the peer is a proxy that takes requests in absolute form.
    pub(crate) is_forwarded: bool,
    /// The number of requests that the connection carried before.
    pub(crate) requests: u64,
    /// The time for which the call was queued.
    pub(crate) waited: Duration,
}

/// Notes of the connections that a call got, in the order in which it got them. Clones share the notes.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeaseNotes(Arc<Mutex<SmallVec<[NotedConn; 1]>>>);

impl LeaseNotes {
    /// Adds the connection that the call has from now on.
    pub(in crate::client) fn add(&self, conn: NotedConn) {
        lock(&self.0).push(conn);
    }

    /// Returns the connection that the call got last.
    pub(crate) fn last(&self) -> Option<NotedConn> {
        lock(&self.0).last().copied()
    }

    /// Returns true if the call had more than one connection.
    pub(crate) fn has_several(&self) -> bool {
        lock(&self.0).len() > 1
    }

    /// Makes the connection with this number the last one: of two attempts at a time, the first one was answered.
    pub(crate) fn put_last(&self, number: u64) {
        lock(&self.0).sort_by_key(|conn| conn.number == number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_connection_counts_unless_another_one_answered() {
        let notes = LeaseNotes::default();
        assert!(notes.last().is_none() && !notes.has_several());
        for number in [3, 5] {
            let conn = NotedConn { number, remote: None, is_forwarded: false, requests: 0, waited: Duration::ZERO };
            notes.clone().add(conn);
        }
        assert_eq!((notes.last().map(|conn| conn.number), notes.has_several()), (Some(5), true));
        notes.put_last(3);
        assert_eq!(notes.last().map(|conn| conn.number), Some(3));
    }
}
