//! The policy for hedging, and what it decides by: the time that an origin's answers take, and the budget of each origin. A core.

use std::time::Duration;

use crate::clock::Instant;
use crate::memory::Bounded;
use crate::origin::Origin;

/// A policy for hedging: a request whose answer takes longer than those of its origin mostly do is sent once more, on
/// another connection. The answer that comes first counts, and the other attempt is cancelled. A client has no such policy
/// by default.
///
/// Hedging shortens the longest waits where single requests stall now and then: because of a garbage collection, a lost
/// packet, or a slow replica behind a load balancer. It does not help where a whole service is slow, and the budget keeps it
/// from making that worse.
///
/// * Only idempotent requests are hedged: by their method (RFC 9110 §9.2.2) or by an `Idempotency-Key` header. A body that
///   is a stream is sent once. Upgrades and event sources are not hedged, and
///   [`RequestBuilder::hedge`](crate::RequestBuilder::hedge) can exclude a request.
/// * Writes under a condition (`If-Match`, `If-None-Match`, `If-Unmodified-Since`) are not hedged: the attempt that the server
///   processes first makes the condition false for the other one.
/// * A `DELETE` that is hedged may get the answer 404, although the resource was there: the other attempt has deleted it.
/// * The wait is measured from the time at which the request has its connection. The time of opening a connection and of
///   waiting in the queue does not count.
/// * The wait is [fixed](Self::after), or the [quantile](Self::quantile) of the times that the origin took for its last 256 answers to such requests.
///   The 1,024 origins that were used last are remembered.
/// * The second attempt never takes the connection of the first one. It takes an idle connection, or over HTTP/2 one with a
///   free stream: one to another address if there is one, or else one to the same address. If there is none, it opens a
///   connection, to another address if the name has one. Where the limits of the pool allow no other connection, it is not
///   made, and costs nothing of the budget.
/// * An answer of the second attempt with status 429 or 5xx does not count while the first attempt goes on. If one attempt
///   fails, the other goes on.
/// * An HTTP/1.1 connection closes when the attempt on it is cancelled. Over HTTP/2 only the stream is reset.
///
/// [`Timings::hedges`](crate::trace::Timings::hedges) and [`Event::Hedged`](crate::trace::Event::Hedged) show what was done.
///
/// ```
/// use std::time::Duration;
/// use speeddial::{Client, HedgePolicy};
///
/// let policy = HedgePolicy::new().floor(Duration::from_millis(20)).budget(0.02);
/// let client = Client::builder().hedge(policy).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct HedgePolicy {
    /// The wait, if it is not computed from the times of answers.
    after: Option<Duration>,
    quantile: f64,
    floor: Duration,
    /// The share of an origin's requests that may be sent twice.
    budget: f64,
    min_samples: usize,
}

impl Default for HedgePolicy {
    fn default() -> Self {
        Self::new()
    }
}

impl HedgePolicy {
    /// Creates a policy with these defaults:
    ///
    /// * the quantile 0.95, with a floor of 10 ms;
    /// * a budget of 5 % of the requests to an origin;
    /// * at least 20 answers of an origin before one of its requests is hedged.
    pub fn new() -> Self {
        Self { after: None, quantile: 0.95, floor: Duration::from_millis(10), budget: 0.05, min_samples: 20 }
    }

    /// Creates a policy with a fixed wait, also for the first request to an origin. The budget is that of [`new`](Self::new). The
    /// quantile, the floor and the number of samples have no effect.
    pub fn after(wait: Duration) -> Self {
        Self { after: Some(wait), ..Self::new() }
    }

    /// Creates a policy by which no request is hedged.
    pub fn none() -> Self {
        Self::new().budget(0.0)
    }

    /// Returns true if requests may be hedged.
    pub(in crate::client) fn is_active(&self) -> bool {
        self.budget > 0.0
    }

    /// Sets the share of answers that are waited for: 0.95 by default, so that a request is hedged if it has waited for
    /// longer than 95 % of the origin's answers took. From 0.5 to 0.999; other values become the nearest of these.
    #[must_use]
    pub fn quantile(self, quantile: f64) -> Self {
        Self { quantile: within(quantile, 0.5, 0.999), ..self }
    }

    /// Sets the shortest wait before a request is hedged, however fast the origin is. 10 ms by default.
    #[must_use]
    pub fn floor(self, floor: Duration) -> Self {
        Self { floor, ..self }
    }

    /// Sets the share of an origin's requests that may be sent twice: 0.05 by default, so that an origin gets at most 5 %
    /// more requests, even when it is overloaded. From 0 to 1. Up to 10 unused hedges of an origin are kept.
    #[must_use]
    pub fn budget(self, share: f64) -> Self {
        Self { budget: within(share, 0.0, 1.0), ..self }
    }

    /// Sets the number of answers of an origin that are measured before one of its requests is hedged. 20 by default; from
    /// 1 to 256.
    #[must_use]
    pub fn min_samples(self, count: usize) -> Self {
        Self { min_samples: count.clamp(1, WINDOW), ..self }
    }
}

/// Returns the number from `low` to `high` that is nearest to `value`; `low` for NaN.
fn within(value: f64, low: f64, high: f64) -> f64 {
    if value > low { value.min(high) } else { low }
}

/// The answers of an origin that its quantile is computed from.
const WINDOW: usize = 256;
/// The answers after which an origin's quantile is computed anew.
const ANSWERS_PER_UPDATE: usize = 16;
/// The most origins that are measured.
const MAX_ORIGINS: usize = 1_024;
/// The most unused hedges of an origin that are kept.
const MAX_SAVED: u32 = 10;
/// The parts that one hedge is counted in: whole numbers add up exactly.
const HEDGE: u32 = 1_000_000;

/// The origins that are measured.
#[derive(Debug)]
pub(in crate::client) struct MeasuredOrigins(Bounded<Origin, MeasuredOrigin>);

impl Default for MeasuredOrigins {
    fn default() -> Self {
        Self(Bounded::new(MAX_ORIGINS, Duration::MAX))
    }
}

/// The recent answers of an origin, and its budget.
#[derive(Debug, Default)]
struct MeasuredOrigin {
    /// The times of the last answers in microseconds, in no order.
    times: Vec<u32>,
    /// The place of the oldest time, once the window is full.
    oldest: usize,
    /// The answers since the quantile was computed.
    answers: usize,
    /// The quantile, and the policy's share and number of samples that it was computed for.
    quantile: Option<(Duration, f64, usize)>,
    /// The hedges that may be made, in parts of one.
    saved: u32,
}

impl MeasuredOrigins {
    /// Counts a request. Returns the wait after which it is hedged; `None` if too little is known of the origin.
    pub(in crate::client) fn begin(&mut self, now: Instant, policy: &HedgePolicy, origin: &Origin) -> Option<Duration> {
        // With a fixed wait the first request may be hedged, for which nothing was saved by then.
        let first = if policy.after.is_some() { HEDGE } else { 0 };
        let new = || MeasuredOrigin { saved: first, ..MeasuredOrigin::default() };
        let measured = self.0.note(now, origin, new);
        let share = (policy.budget * f64::from(HEDGE)) as u32;
        measured.saved = (measured.saved + share).min(MAX_SAVED * HEDGE);
        if share == 0 {
            return None;
        }
        policy.after.or_else(|| Some(measured.quantile_for(policy)?.max(policy.floor)))
    }

    /// Takes a hedge out of an origin's budget. Returns false if there is none left.
    pub(in crate::client) fn withdraw(&mut self, now: Instant, origin: &Origin) -> bool {
        let Some(measured) = self.0.get_mut(now, origin) else { return false };
        if measured.saved < HEDGE {
            return false;
        }
        measured.saved -= HEDGE;
        true
    }

    /// Takes the time that an answer took.
    pub(in crate::client) fn record(&mut self, now: Instant, policy: &HedgePolicy, origin: &Origin, took: Duration) {
        // An origin may have been forgotten meanwhile.
        if let Some(measured) = self.0.get_mut(now, origin) {
            measured.record(policy, took);
        }
    }
}

impl MeasuredOrigin {
    fn record(&mut self, policy: &HedgePolicy, took: Duration) {
        let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        if self.times.len() < WINDOW {
            self.times.push(micros);
        } else {
            self.times[self.oldest] = micros;
            self.oldest = (self.oldest + 1) % WINDOW;
        }
        self.answers += 1;
        if self.answers >= ANSWERS_PER_UPDATE || self.quantile.is_none() {
            self.update(policy);
        }
    }

    fn update(&mut self, policy: &HedgePolicy) {
        self.answers = 0;
        let is_known = self.times.len() >= policy.min_samples;
        let quantile = || quantile(&mut self.times.clone(), policy.quantile);
        self.quantile = if is_known { Some((quantile(), policy.quantile, policy.min_samples)) } else { None };
    }

    /// Returns the quantile that a policy waits for; `None` if too little is known.
    fn quantile_for(&mut self, policy: &HedgePolicy) -> Option<Duration> {
        // Requests of their own policies may go to the same origin.
        if self.quantile.is_none_or(|(_, share, samples)| (share, samples) != (policy.quantile, policy.min_samples)) {
            self.update(policy);
        }
        self.quantile.map(|(quantile, ..)| quantile)
    }
}

/// Returns the smallest of `times`, in microseconds, that is not below a share of them.
fn quantile(times: &mut [u32], share: f64) -> Duration {
    let rank = (share * times.len() as f64).ceil() as usize;
    let index = rank.clamp(1, times.len()) - 1;
    let (_, micros, _) = times.select_nth_unstable(index);
    Duration::from_micros(u64::from(*micros))
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;
    use crate::clock::now;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn origin(number: usize) -> Origin {
        Origin::from_url(&Url::parse(&format!("http://host{number}.test/")).unwrap()).unwrap()
    }

    /// The origins after answers of one origin that took so many milliseconds.
    fn measured(policy: &HedgePolicy, times: impl IntoIterator<Item = u64>) -> MeasuredOrigins {
        let mut origins = MeasuredOrigins::default();
        for time in times {
            origins.begin(now(), policy, &origin(1));
            origins.record(now(), policy, &origin(1), ms(time));
        }
        origins
    }

    #[test]
    fn the_quantile_is_the_time_within_which_that_share_of_answers_came() {
        let at = |count: u32, share| {
            let mut times: Vec<_> = (1..=count).rev().map(|time| time * 1_000).collect();
            quantile(&mut times, share).as_millis()
        };
        assert_eq!([at(20, 0.95), at(100, 0.95), at(100, 0.5), at(100, 0.999), at(1, 0.5)], [19, 95, 50, 100, 1]);
    }

    #[test]
    fn nothing_is_hedged_before_enough_answers_and_never_below_the_floor() {
        let policy = HedgePolicy::new();
        assert_eq!(measured(&policy, [50; 19]).begin(now(), &policy, &origin(1)), None);
        assert_eq!(measured(&policy, [50; 20]).begin(now(), &policy, &origin(1)), Some(ms(50)));
        assert_eq!(measured(&policy, [50; 20]).begin(now(), &policy, &origin(2)), None, "another origin");
        assert_eq!(measured(&policy, [2; 20]).begin(now(), &policy, &origin(1)), Some(ms(10)));
        let policy = policy.min_samples(0).floor(ms(1));
        assert_eq!(measured(&policy, [2]).begin(now(), &policy, &origin(1)), Some(ms(2)));
        for never in [policy.budget(0.0), HedgePolicy::none()] {
            assert_eq!(measured(&never, [2; 40]).begin(now(), &never, &origin(1)), None);
        }
        let fixed = HedgePolicy::after(ms(3)).floor(ms(9));
        assert_eq!(measured(&fixed, []).begin(now(), &fixed, &origin(1)), Some(ms(3)));
    }

    #[test]
    fn each_policy_waits_for_its_own_quantile() {
        let (usual, patient) = (HedgePolicy::new(), HedgePolicy::new().quantile(0.999).min_samples(200));
        let mut origins = measured(&usual, 11..=110);
        for _ in 0..2 {
            assert_eq!(origins.begin(now(), &usual, &origin(1)), Some(ms(105)));
            assert_eq!(origins.begin(now(), &patient, &origin(1)), None);
            assert_eq!(origins.begin(now(), &patient.clone().min_samples(100), &origin(1)), Some(ms(110)));
            origins.record(now(), &patient, &origin(1), ms(50));
        }
    }

    #[test]
    fn a_fixed_wait_applies_to_the_first_request_within_the_budget() {
        let policy = HedgePolicy::after(ms(5));
        let mut origins = MeasuredOrigins::default();
        let mut hedged =
            |_: usize| origins.begin(now(), &policy, &origin(1)).is_some() && origins.withdraw(now(), &origin(1));
        let made = (0..41).filter(|number| hedged(*number)).collect::<Vec<_>>();
        assert_eq!(made, [0, 19, 39], "one at once, and a twentieth of the requests");
    }

    #[test]
    fn the_last_256_answers_count() {
        let policy = HedgePolicy::new();
        let after = |new: usize| {
            let times = std::iter::repeat_n(500, 1_000).chain(std::iter::repeat_n(20, new));
            measured(&policy, times).begin(now(), &policy, &origin(1)).unwrap().as_millis()
        };
        // 12 of 256 answers are below 5 %. The quantile is computed anew after each 16 answers.
        assert_eq!([after(0), after(240), after(256), after(272)], [500, 500, 20, 20]);
        // One answer of a hundred that takes a second does not count.
        let stalls = (0..1_000).map(|number| if number % 100 == 0 { 1_000 } else { 20 + number % 10 });
        let wait = measured(&policy, stalls).begin(now(), &policy, &origin(1)).unwrap();
        assert!((ms(28)..=ms(29)).contains(&wait), "{wait:?}");
    }

    #[test]
    fn the_budget_is_a_share_of_the_requests_to_each_origin() {
        let policy = HedgePolicy::new();
        let mut origins = MeasuredOrigins::default();
        let mut hedges = [0; 2];
        for number in 0..10_000 {
            let busy = origin(usize::from(number % 10 == 0));
            origins.begin(now(), &policy, &busy);
            hedges[number % 10 / 9] += usize::from(origins.withdraw(now(), &busy));
        }
        assert_eq!(hedges.iter().sum::<usize>(), 500, "exactly a twentieth, from the first request on");
        for _ in 0..1_000 {
            origins.begin(now(), &policy, &origin(3));
        }
        assert_eq!(
            (0..100).filter(|_| origins.withdraw(now(), &origin(3))).count(),
            10,
            "unused ones are kept up to a limit"
        );
        assert!(!origins.withdraw(now(), &origin(4)), "an origin without requests");
    }

    #[test]
    fn the_least_recently_used_origins_are_forgotten() {
        let policy = HedgePolicy::new().min_samples(1);
        let mut origins = measured(&policy, [20]);
        for number in 2..2 * MAX_ORIGINS {
            origins.begin(now(), &policy, &origin(number));
            if number % 100 == 0 {
                assert_eq!(origins.begin(now(), &policy, &origin(1)), Some(ms(20)), "it is in use");
            }
        }
        let known = origins.0.len();
        assert!(known <= MAX_ORIGINS, "{known}");
        assert!(origins.0.get(now(), &origin(2)).is_none());
        origins.record(now(), &policy, &origin(2), ms(5));
        assert_eq!(origins.0.len(), known, "an answer of a forgotten origin adds nothing");
    }

    #[test]
    fn settings_out_of_range_become_the_nearest_ones() {
        let policy = HedgePolicy::new();
        assert_eq!(policy.clone().quantile(7.0), policy.clone().quantile(0.999));
        assert_eq!(policy.clone().quantile(f64::NAN), policy.clone().quantile(0.5));
        assert_eq!(policy.clone().budget(-1.0), policy.clone().budget(0.0));
        assert_eq!(policy.clone().budget(f64::NAN), policy.clone().budget(0.0));
        assert_eq!(policy.clone().min_samples(usize::MAX), policy.min_samples(WINDOW));
    }
}
