//! Resolvers that are asked by name alone, as those written for reqwest are, and what makes a [`Resolver`] of one.

use std::fmt;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use tokio::runtime;

use super::answer::Answer;
use super::error::{ResolveError, ResolveErrorKind};
use super::resolve::{Resolver, ResolverFuture};
use crate::clock::now;
use crate::memory::Bounded;
use crate::sync::{current_runtime, lock_quick};
use crate::trace::{Family, Source};

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The addresses of a name, of both families. A port other than 0 is used where the URL names none (see [`Answer::of_sockets`]).
pub type Addrs = Box<dyn Iterator<Item = SocketAddr> + Send>;

/// The future of a lookup, returned by [`Resolve::resolve`].
pub type Resolving = Pin<Box<dyn Future<Output = Result<Addrs, Cause>> + Send>>;

/// Resolves a name to the addresses of both families at once, without a TTL: the trait of resolvers that were written for reqwest.
///
/// [`ClientBuilder::dns_resolver`](crate::ClientBuilder::dns_resolver) takes one. The client's cache keeps its answers for 30 s, or as
/// long as [`ResolveAdapter::with_ttl`] says. A [`Resolver`], which is asked for one family and answers with a TTL, lets the cache
/// follow DNS.
///
/// ```
/// use std::{net::SocketAddr, sync::Arc};
/// use speeddial::dns::{Addrs, Name, Resolve, Resolving};
///
/// struct Local;
/// impl Resolve for Local {
///     fn resolve(&self, name: Name) -> Resolving {
///         Box::pin(async move {
///             match name.as_str() {
///                 "api.test" => Ok(Box::new([SocketAddr::from(([127, 0, 0, 1], 0))].into_iter()) as Addrs),
///                 other => Err(format!("{other} is unknown").into()),
///             }
///         })
///     }
/// }
/// let client = speeddial::Client::builder().dns_resolver(Arc::new(Local)).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
pub trait Resolve: Send + Sync {
    /// Asks for the addresses of `name`.
    ///
    /// # Errors
    /// The lookup failed. A name without addresses is an empty answer.
    fn resolve(&self, name: Name) -> Resolving;
}

/// A name that a [`Resolve`] is asked for: text of at least one character and at most 255.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name(Box<str>);

/// The error of text that cannot be a [`Name`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a name has 1 to 255 characters")]
pub struct InvalidNameError(());

impl Name {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = InvalidNameError;

    fn from_str(host: &str) -> Result<Self, InvalidNameError> {
        match host.len() {
            1..=255 => Ok(Self(host.into())),
            _ => Err(InvalidNameError(())),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A [`Resolver`] made of a [`Resolve`]: it splits each answer by family and gives it a TTL.
///
/// Lookups of a name that overlap, as those of its two families mostly do, are one question to the [`Resolve`].
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use speeddial::dns::{CachedResolver, Resolve, ResolveAdapter};
///
/// fn client(resolver: Arc<dyn Resolve>) -> speeddial::Result<speeddial::Client> {
///     let resolver = ResolveAdapter::new(resolver).with_ttl(Duration::from_secs(5));
///     speeddial::Client::builder().dns_cache(CachedResolver::new(resolver)).build()
/// }
/// ```
pub struct ResolveAdapter<R: ?Sized> {
    resolver: Arc<R>,
    ttl: Duration,
    /// The questions that are under way, by name and by the runtime that answers them.
    asked: Mutex<Bounded<Question, WeakShared<Asking>>>,
}

type Question = (Box<str>, Option<runtime::Id>);

/// A question under way, to which several lookups wait for the answer.
type Asking = BoxFuture<'static, Result<Arc<[SocketAddr]>, Arc<dyn std::error::Error + Send + Sync>>>;

/// The TTL of answers by default, as that of the platform's resolver.
const TTL: Duration = Duration::from_secs(30);
/// The most questions that lookups share, and the longest time for which one takes others in.
const MAX_ASKED: usize = 1_024;
const LONGEST: Duration = Duration::from_secs(60);

impl<R: Resolve + ?Sized + 'static> ResolveAdapter<R> {
    /// Creates a resolver whose answers have a TTL of 30 s.
    pub fn new(resolver: Arc<R>) -> Self {
        Self { resolver, ttl: TTL, asked: Mutex::new(Bounded::new(MAX_ASKED, LONGEST)) }
    }

    /// Sets the TTL of answers.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Returns the question for a name that is under way, or asks it.
    fn asking(&self, name: &str) -> Shared<Asking> {
        let question: Question = (name.into(), current_runtime());
        let mut asked = lock_quick(&self.asked);
        let under_way = asked.get(now(), &question).and_then(WeakShared::upgrade);
        if let Some(asking) = under_way.filter(|asking| asking.peek().is_none()) {
            return asking;
        }
        let (resolver, parsed) = (self.resolver.clone(), Name::from_str(name));
        let asking = async move {
            let parsed = parsed.map_err(|error| Arc::new(error) as Arc<_>)?;
            let addresses = resolver.resolve(parsed).await.map_err(Arc::from)?;
            Ok(addresses.collect())
        };
        // A panic would stay in what is shared, for all who look at it.
        let asking = AssertUnwindSafe(asking).catch_unwind();
        let asking = asking.map(|asked| asked.unwrap_or_else(|_| Err(Arc::from(Cause::from("the resolver panicked")))));
        let asking = asking.boxed().shared();
        if let Some(weak) = asking.downgrade() {
            asked.insert(now(), question, weak);
        }
        asking
    }
}

impl<R: Resolve + ?Sized + 'static> Resolver for ResolveAdapter<R> {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        let asking = self.asking(name);
        Box::pin(async move {
            let failed = |kind| ResolveError::new(kind, name, family);
            let all = asking.await.map_err(|error| {
                failed(if error.is::<InvalidNameError>() {
                    ResolveErrorKind::InvalidName
                } else {
                    ResolveErrorKind::Other
                })
                .with_shared_cause(error)
            })?;
            let answer = Answer::of_sockets(all.iter().copied(), self.ttl, Source::Miss).in_family(family);
            if answer.addresses().is_empty() {
                // One answer is of both families.
                return Err(failed(ResolveErrorKind::NoData).with_negative_ttl(Some(self.ttl)));
            }
            Ok(answer)
        })
    }
}

impl<R: ?Sized> fmt::Debug for ResolveAdapter<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolveAdapter").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

/// What a client takes as its resolver: a [`Resolver`], a [`Resolve`], or an `Arc` of one. `Kind` is for the compiler alone.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a resolver",
    note = "a resolver implements `dns::Resolver`, which answers with a TTL, or `dns::Resolve`, as those for reqwest do"
)]
pub trait IntoResolver<Kind> {
    #[doc(hidden)]
    type Made: Resolver;

    #[doc(hidden)]
    fn into_resolver(self) -> Self::Made;
}

/// The kinds of [`IntoResolver`].
#[doc(hidden)]
#[derive(Debug)]
pub struct ByFamily;
#[doc(hidden)]
#[derive(Debug)]
pub struct ByName;
#[doc(hidden)]
#[derive(Debug)]
pub struct SharedByName;

impl<R: Resolver> IntoResolver<ByFamily> for R {
    type Made = R;

    fn into_resolver(self) -> R {
        self
    }
}

impl<R: Resolve + 'static> IntoResolver<ByName> for R {
    type Made = ResolveAdapter<R>;

    fn into_resolver(self) -> ResolveAdapter<R> {
        ResolveAdapter::new(Arc::new(self))
    }
}

impl<R: Resolve + ?Sized + 'static> IntoResolver<SharedByName> for Arc<R> {
    type Made = ResolveAdapter<R>;

    fn into_resolver(self) -> ResolveAdapter<R> {
        ResolveAdapter::new(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use std::net::IpAddr;

    use futures_util::future::join;
    use tokio::sync::Notify;

    use super::*;

    /// Answers with these addresses once it is released, and counts how often it was asked.
    #[derive(Default)]
    struct Scripted {
        addresses: Vec<SocketAddr>,
        fails: bool,
        asked: AtomicUsize,
        released: Arc<Notify>,
    }

    impl Resolve for Scripted {
        fn resolve(&self, _: Name) -> Resolving {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let (released, addresses, fails) = (self.released.clone(), self.addresses.clone(), self.fails);
            Box::pin(async move {
                released.notified().await;
                if fails { Err("it is down".into()) } else { Ok(Box::new(addresses.into_iter()) as Addrs) }
            })
        }
    }

    fn scripted(addresses: &[&str]) -> Arc<Scripted> {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Arc::new(Scripted { addresses, ..Scripted::default() })
    }

    #[tokio::test]
    async fn one_question_answers_both_families() {
        let resolve = scripted(&["192.0.2.1:80", "[2001:db8::1]:0", "192.0.2.2:0"]);
        resolve.released.notify_one();
        let resolver = ResolveAdapter::new(resolve.clone()).with_ttl(Duration::from_secs(7));
        let (v4, v6) = join(resolver.resolve("a.test", Family::V4), resolver.resolve("a.test", Family::V6)).await;
        let (v4, v6) = (v4.unwrap(), v6.unwrap());
        assert_eq!(v4.addresses()[..], ["192.0.2.1".parse::<IpAddr>().unwrap(), "192.0.2.2".parse().unwrap()]);
        assert_eq!(v6.addresses()[..], ["2001:db8::1".parse::<IpAddr>().unwrap()]);
        assert_eq!((v4.ttl(), resolve.asked.load(Ordering::Relaxed)), (Duration::from_secs(7), 1));
        resolve.released.notify_one();
        resolver.resolve("a.test", Family::V4).await.unwrap();
        assert_eq!(resolve.asked.load(Ordering::Relaxed), 2, "an answer is not kept here");
    }

    #[tokio::test]
    async fn an_answer_has_the_ports_of_its_addresses() {
        let (one, two) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let resolve = scripted(&["192.0.2.1:81", "192.0.2.2:0", "192.0.2.1:82", "[2001:db8::1]:83"]);
        resolve.released.notify_one();
        let answer = ResolveAdapter::new(resolve).resolve("a.test", Family::V4).await.unwrap();
        assert_eq!(answer.addresses()[..], [one, two], "each address once");
        let ports: Vec<_> = answer.sockets().unwrap().iter().map(SocketAddr::port).collect();
        assert_eq!(ports, [81, 0, 82]);
        let resolve = scripted(&["[fe80::77%3]:0"]);
        resolve.released.notify_one();
        let answer = ResolveAdapter::new(resolve).resolve("a.test", Family::V6).await.unwrap();
        assert_eq!(answer.sockets().unwrap()[..], ["[fe80::77%3]:0".parse().unwrap()], "an address keeps its scope");
        let resolve = scripted(&["192.0.2.1:0"]);
        resolve.released.notify_one();
        assert!(ResolveAdapter::new(resolve).resolve("a.test", Family::V4).await.unwrap().sockets().is_none());
    }

    #[tokio::test]
    async fn an_answer_that_a_slow_lookup_still_holds_is_nothing_to_a_later_one() {
        let resolve = scripted(&["192.0.2.1:0"]);
        let resolver = ResolveAdapter::new(resolve.clone());
        let slow = resolver.asking("a.test");
        resolve.released.notify_one();
        resolver.resolve("a.test", Family::V4).await.unwrap();
        assert!(!slow.ptr_eq(&resolver.asking("a.test")));
        let newer = resolver.asking("a.test");
        assert!(newer.peek().is_none() && slow.peek().is_some());
    }

    #[tokio::test]
    async fn a_resolver_that_panics_fails_the_lookups_of_that_moment() {
        struct Panics(AtomicUsize);
        impl Resolve for Panics {
            fn resolve(&self, _: Name) -> Resolving {
                assert!(self.0.fetch_add(1, Ordering::Relaxed) > 0, "once");
                Box::pin(async { Ok(Box::new(["192.0.2.1:0".parse().unwrap()].into_iter()) as Addrs) })
            }
        }
        let resolver = ResolveAdapter::new(Arc::new(Panics(AtomicUsize::new(0))));
        let slow = resolver.asking("a.test");
        let error = resolver.resolve("a.test", Family::V4).await.unwrap_err();
        assert_eq!(error.kind(), ResolveErrorKind::Other);
        assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "the resolver panicked");
        resolver.resolve("a.test", Family::V4).await.unwrap();
        assert!(slow.await.is_err());
    }

    #[tokio::test]
    async fn the_questions_that_are_known_are_bounded() {
        let resolver = ResolveAdapter::new(scripted(&[]));
        for number in 0..3 * MAX_ASKED {
            drop(resolver.asking(&format!("n{number}.test")));
            assert!(lock_quick(&resolver.asked).len() <= MAX_ASKED);
        }
    }

    #[tokio::test]
    async fn a_name_without_addresses_of_a_family_has_none_and_a_failure_is_one() {
        let resolve = scripted(&["192.0.2.1:0"]);
        resolve.released.notify_one();
        let resolver = ResolveAdapter::new(resolve);
        let error = resolver.resolve("a.test", Family::V6).await.unwrap_err();
        assert_eq!((error.kind(), error.negative_ttl()), (ResolveErrorKind::NoData, Some(TTL)));
        let down = Arc::new(Scripted { fails: true, ..Scripted::default() });
        down.released.notify_one();
        let error = ResolveAdapter::new(down).resolve("a.test", Family::V4).await.unwrap_err();
        assert_eq!(error.kind(), ResolveErrorKind::Other);
        assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "it is down");
        let error = ResolveAdapter::new(scripted(&[])).resolve(&"a".repeat(256), Family::V4).await.unwrap_err();
        assert_eq!(error.kind(), ResolveErrorKind::InvalidName);
        let source = std::error::Error::source(&error).unwrap();
        assert!(
            source.is::<Arc<dyn std::error::Error + Send + Sync>>() || source.is::<InvalidNameError>(),
            "{source:?}"
        );
    }

    #[tokio::test]
    async fn a_question_that_nobody_waits_for_is_given_up_and_asked_anew() {
        let resolve = scripted(&["192.0.2.1:0"]);
        let resolver = ResolveAdapter::new(resolve.clone());
        assert!(resolver.resolve("a.test", Family::V4).now_or_never().is_none());
        resolve.released.notify_one();
        resolver.resolve("a.test", Family::V4).await.unwrap();
        assert_eq!(resolve.asked.load(Ordering::Relaxed), 2);
    }
}
