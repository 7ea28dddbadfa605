//! Who is told what happens, and of which part of it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::event::{Asked, Record};
use super::timings::Timings;

/// Sees what happens to a client's calls and connections, in the task that caused it and outside of every lock.
///
/// It runs on the request's path, so it should be quick. One that panics is contained: the request goes on.
///
/// ```
/// use speeddial::trace::{Event, Observer, Record};
///
/// struct Attempts;
/// impl Observer for Attempts {
///     fn observe(&self, record: &Record) {
///         if let Event::AttemptStart { address, .. } = record.event {
///             println!("{:?} dials {address}", record.subject);
///         }
///     }
/// }
/// let client = speeddial::Client::builder().observer(Attempts).build();
/// ```
pub trait Observer: Send + Sync + 'static {
    /// What it is told of: everything, unless it is implemented. What nobody wants costs nothing. It is asked once, when it is
    /// given to a client or a request.
    fn wants(&self) -> Wants {
        Wants::EVERYTHING
    }

    /// Is told one event. It does nothing unless it is implemented.
    fn observe(&self, record: &Record) {
        let _ = record;
    }

    /// Is told that a call is over, right after its last event, and where its time went: once for each call, however it
    /// ended. It does nothing unless it is implemented.
    fn ended(&self, call: &EndedCall<'_>) {
        let _ = call;
    }
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn wants(&self) -> Wants {
        (**self).wants()
    }

    fn observe(&self, record: &Record) {
        (**self).observe(record);
    }

    fn ended(&self, call: &EndedCall<'_>) {
        (**self).ended(call);
    }
}

/// What an [`Observer`] is told of.
///
/// ```
/// use speeddial::trace::{EndedCall, Observer, Wants};
///
/// struct Slow;
/// impl Observer for Slow {
///     fn wants(&self) -> Wants {
///         Wants::ENDS
///     }
///     fn ended(&self, call: &EndedCall<'_>) {
///         if call.timings.total().as_secs() > 1 {
///             println!("{} {}: {}", call.request.method, call.request.origin, call.timings);
///         }
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wants(u8);

impl Wants {
    /// Nothing at all.
    pub const NOTHING: Self = Self(0);
    /// The events of calls, but for those of the next two.
    pub const CALLS: Self = Self(1);
    /// Interim responses: [`Event::Informational`](super::Event::Informational).
    pub const INTERIM: Self = Self(2);
    /// Each piece of a body: [`Event::BodyChunk`](super::Event::BodyChunk).
    pub const CHUNKS: Self = Self(4);
    /// The events of connections.
    pub const CONNECTIONS: Self = Self(8);
    /// The end of each call, with its timings: [`Observer::ended`].
    pub const ENDS: Self = Self(16);
    /// The events of the DNS resolver: [`Event::ConfigSkipped`](super::Event::ConfigSkipped).
    pub const RESOLVER: Self = Self(32);
    /// All of it.
    pub const EVERYTHING: Self = Self(63);

    /// This and that.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it has any of that.
    pub const fn includes(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A call that is over: it has its whole response, or failed, or was given up.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct EndedCall<'a> {
    /// Its number, as in [`Subject::Call`](super::Subject::Call).
    pub number: u64,
    /// What it asked, first of all.
    pub request: &'a Asked,
    /// Where its time went, and what came of it.
    pub timings: &'a Timings,
}

/// An observer, and what it wants.
#[derive(Clone)]
pub(crate) struct Own {
    wants: Wants,
    observer: Arc<dyn Observer>,
}

impl Own {
    pub(crate) fn new(observer: impl Observer) -> Self {
        Self { wants: observer.wants(), observer: Arc::new(observer) }
    }

    pub(super) fn wants(&self) -> Wants {
        self.wants
    }

    /// A panic in somebody's hook must not take the request, or a connection's books, with it.
    pub(super) fn tell(&self, record: &Record) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.observer.observe(record)));
    }

    fn tell_end(&self, call: &EndedCall<'_>) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.observer.ended(call)));
    }
}

/// A client's observers, and the numbers its calls get. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Hooks(Arc<Shared>);

#[derive(Default)]
struct Shared {
    observers: Vec<Own>,
    wants: Wants,
    calls: AtomicU64,
}

impl Default for Wants {
    fn default() -> Self {
        Self::NOTHING
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("observers", &self.0.observers.len()).finish()
    }
}

impl Hooks {
    pub(crate) fn new(observers: Vec<Own>) -> Self {
        let wants = observers.iter().fold(Wants::NOTHING, |all, observer| all.and(observer.wants));
        Self(Arc::new(Shared { observers, wants, calls: AtomicU64::new(0) }))
    }

    /// What any observer wants to be told of.
    pub(super) fn wants(&self) -> Wants {
        self.0.wants
    }

    pub(super) fn next_call(&self) -> u64 {
        self.0.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Tells who wants to know, the observer of one call last.
    pub(super) fn tell(&self, own: Option<&Own>, what: Wants, record: &Record) {
        self.wanting(own, what).for_each(|observer| observer.tell(record));
    }

    pub(super) fn tell_end(&self, own: Option<&Own>, call: &EndedCall<'_>) {
        self.wanting(own, Wants::ENDS).for_each(|observer| observer.tell_end(call));
    }

    fn wanting<'a>(&'a self, own: Option<&'a Own>, what: Wants) -> impl Iterator<Item = &'a Own> {
        self.0.observers.iter().chain(own).filter(move |observer| observer.wants.includes(what))
    }
}
