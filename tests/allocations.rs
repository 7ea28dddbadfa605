//! What the warm paths allocate, and what is kept for a name: counted, not guessed. Alone in its process, because its
//! allocator counts.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allocation_counter::measure;
use speeddial::dns::{Answer, CachedResolver, Family, Resolve, ResolveError, ResolveErrorKind, Resolving, Source};

/// Answers at once, with one address in each family.
struct Instantly;

impl Resolve for Instantly {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a> {
        let address: IpAddr = match family {
            Family::V4 => Ipv4Addr::LOCALHOST.into(),
            Family::V6 => Ipv6Addr::LOCALHOST.into(),
        };
        let answer = match name.starts_with("none") {
            true => Err(ResolveError::new(ResolveErrorKind::NxDomain, name, family)),
            false => Ok(Answer::new([address], Duration::from_secs(3_600), Source::Miss)),
        };
        Box::pin(std::future::ready(answer))
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

/// A name as long as names of services are.
fn name(number: usize) -> String {
    format!("service-{number:07}.internal")
}

fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it had to wait"),
    }
}

#[test]
fn a_dns_hit_allocates_nothing_and_does_not_wait() {
    let cache = CachedResolver::new(Instantly);
    cache.pin("pinned.test", [IpAddr::from(Ipv4Addr::LOCALHOST)]);
    runtime().block_on(async {
        cache.lookup("api.test", Family::V4).await.unwrap();
        cache.lookup("none.test", Family::V4).await.unwrap_err();
    });
    let counted = measure(|| {
        for _ in 0..1_000 {
            assert!(at_once(cache.lookup("api.test", Family::V4)).is_ok());
            assert!(at_once(cache.lookup("none.test", Family::V4)).is_err());
            cache.touch("api.test");
        }
    });
    assert_eq!(counted.count_total, 0);
}

/// The bytes a full cache holds for each name.
fn bytes_a_name(names: usize) -> u64 {
    let runtime = runtime();
    let cache = CachedResolver::builder().max_names(names).build(Instantly);
    let counted = measure(|| {
        runtime.block_on(async {
            for number in 0..names {
                for family in Family::BOTH {
                    cache.lookup(&name(number), family).await.unwrap();
                }
            }
        });
    });
    assert_eq!(cache.stats().names, names);
    u64::try_from(counted.bytes_current).unwrap() / names as u64
}

#[test]
fn a_name_costs_400_bytes() {
    for names in [1_024, 10_000, 100_000] {
        let bytes = bytes_a_name(names);
        println!("{names} names: {bytes} bytes a name");
        assert!(bytes <= 400, "{bytes} bytes a name with {names} of them");
    }
}

#[test]
fn a_million_names_leave_nothing_behind() {
    let runtime = runtime();
    let cache = CachedResolver::new(Instantly);
    let look_up = |numbers: std::ops::Range<usize>| {
        measure(|| {
            runtime.block_on(async {
                for number in numbers {
                    cache.lookup(&name(number), Family::V4).await.unwrap();
                }
            });
        })
    };
    look_up(0..2_000);
    let grown = look_up(2_000..1_000_000).bytes_current;
    assert!(grown.abs() < 64 * 1024, "{grown} bytes more than after 2,000 names");
    assert_eq!(cache.stats().names, 1_024);
}
