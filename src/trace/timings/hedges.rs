//! The timings of both attempts at a request that is hedged.

use std::time::Duration;

use super::Timings;
use super::hops::{Hedge, HopEnd};
use super::late::{LATE, LateKind};
use crate::clock::Instant;
use crate::trace::events::causes::HedgeOutcome;
use crate::trace::events::causes::{Budgeted, NotRetried};
use crate::trace::events::phase::Phase;

impl Timings {
    /// Returns the second attempts that were made while the first one waited, at most one for each request of the call.
    pub fn hedges(&self) -> &[Hedge] {
        self.history().hedges()
    }

    /// Returns what was not made because the origin's budget was used up: resends, retries and hedges. The observers have the same as
    /// [`Event::OverBudget`](crate::trace::Event::OverBudget).
    pub fn over_budget(&self) -> &[Budgeted] {
        self.history().over_budget()
    }

    /// Returns those of them that would have followed the last request.
    pub(crate) fn over_budget_at_last(&self) -> &[Budgeted] {
        self.history().over_budget_at_last()
    }

    /// Returns the reason why there was no retry after the last request, if the policy wants one, and the budget has it.
    pub(crate) fn not_retried(&self) -> Option<NotRetried> {
        self.history().not_retried()
    }

    /// Enters a second attempt that begins at `at`. Returns the timings that the call has if that attempt counts: those
    /// of the call up to now, and the first attempt as a request that has ended. The attempt was due `late` before.
    ///
    /// The call's own timings stay at their last event: the exchange of the first attempt will report earlier times.
    pub(in crate::trace) fn begin_hedge(&mut self, at: Instant, late: Duration) -> Self {
        let started = at - self.start;
        self.history_mut().add_hedge(Hedge { started, outcome: HedgeOutcome::Pending });
        let mut second = self.clone();
        second.advance(at);
        if late >= LATE {
            second.note_late(at, Phase::Wait, LateKind::Hedge, late);
        }
        second.end_request(HopEnd::Hedged);
        second.spent.add_up(second.phase, second.last);
        second
    }

    /// Enters the result of the call's last hedge.
    pub(in crate::trace) fn end_hedge(&mut self, outcome: HedgeOutcome) {
        self.history_mut().end_hedge(outcome);
    }

    /// Returns true if the call's last hedge has no result yet.
    pub(in crate::trace) fn is_hedge_pending(&self) -> bool {
        self.hedges().last().is_some_and(|hedge| hedge.outcome == HedgeOutcome::Pending)
    }

    /// Corrects the time that the first attempt of a hedged request sent and waited, by that attempt's own timings `first`.
    ///
    /// An exchange reports when the request was sent only when it is over. Until then, all of its time counts as sending.
    pub(in crate::trace) fn settle_hedge(&mut self, first: &Self) {
        let hedged = self.history().hops().iter().rposition(|hop| hop.end == HopEnd::Hedged);
        let is_sent = matches!(first.phase, Phase::Wait | Phase::Receive);
        if hedged != Some(first.hops().len()) || !is_sent {
            return; // the first attempt was repeated meanwhile, or was never sent
        }
        let sending = first.spent_last(Phase::Send);
        let waited = self.history_mut().settle_hop(first.hops().len(), sending);
        self.spent.shift(Phase::Send, Phase::Wait, waited);
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{SENT, leased, ms};
    use super::*;
    use crate::trace::events::event::Event;

    fn at(timings: &Timings, millis: u64) -> Instant {
        timings.start + ms(millis)
    }

    fn fold(timings: &mut Timings, events: impl IntoIterator<Item = (u64, Event)>) {
        for (millis, event) in events {
            let at = at(timings, millis);
            timings.fold(at, &event);
        }
    }

    /// A call that has its connection at 5 ms, and a second attempt at 30 ms, which has its connection at 40 ms.
    fn hedged() -> (Timings, Timings) {
        let mut first = Timings::new(crate::clock::now());
        fold(&mut first, [(5, leased(3))]);
        let begun = at(&first, 30);
        let mut second = first.begin_hedge(begun, Duration::ZERO);
        fold(&mut second, [(40, leased(0))]);
        (first, second)
    }

    fn in_ms(spent: impl Fn(Phase) -> Duration) -> [u128; 4] {
        [Phase::Queue, Phase::Send, Phase::Wait, Phase::Receive].map(|phase| spent(phase).as_millis())
    }

    fn adds_up(timings: &Timings) {
        assert_eq!(Phase::ALL.map(|phase| timings.spent(phase)).iter().sum::<Duration>(), timings.total());
        for hop in timings.hops() {
            assert_eq!(Phase::ALL.map(|phase| hop.spent(phase)).iter().sum::<Duration>(), hop.elapsed);
        }
    }

    #[test]
    fn a_lost_hedge_leaves_the_times_as_they_are() {
        let (mut first, _) = hedged();
        fold(&mut first, [(6, SENT), (50, Event::FirstByte), (60, Event::BodyEnd { bytes: 1 })]);
        first.end_hedge(HedgeOutcome::Lost);
        assert_eq!((in_ms(|phase| first.spent(phase)), first.total()), ([5, 1, 44, 10], ms(60)));
        assert_eq!(first.hedges(), [Hedge { started: ms(30), outcome: HedgeOutcome::Lost }]);
        assert!(first.hops().is_empty() && first.reused());
        adds_up(&first);
    }

    #[test]
    fn if_the_hedge_wins_the_first_attempt_is_a_hop_that_ends_where_it_began() {
        let (mut first, mut second) = hedged();
        fold(&mut second, [(42, SENT), (50, Event::FirstByte)]);
        // The first attempt is dropped now, and reports when it was sent.
        fold(&mut first, [(6, SENT)]);
        second.settle_hedge(&first);
        second.end_hedge(HedgeOutcome::Won);
        fold(&mut second, [(60, Event::BodyEnd { bytes: 1 })]);
        let [hop] = second.hops() else { panic!("{second:?}") };
        assert_eq!((hop.end, hop.started, hop.elapsed, hop.reused), (HopEnd::Hedged, ms(0), ms(30), true));
        assert_eq!(in_ms(|phase| hop.spent(phase)), [5, 1, 24, 0]);
        assert_eq!((in_ms(|phase| second.spent(phase)), second.total()), ([15, 3, 32, 10], ms(60)));
        assert_eq!(in_ms(|phase| second.spent_last(phase)), [10, 2, 8, 10]);
        adds_up(&second);
    }

    #[test]
    fn a_first_attempt_that_was_not_sent_whole_or_was_sent_again_is_left_as_it_was() {
        let (mut first, mut second) = hedged();
        second.settle_hedge(&first);
        assert_eq!(in_ms(|phase| second.hops()[0].spent(phase)), [5, 25, 0, 0]);
        fold(&mut first, [(35, SENT)]);
        second.settle_hedge(&first);
        assert_eq!(in_ms(|phase| second.hops()[0].spent(phase)), [5, 25, 0, 0], "sent after the hedge began");
        let repeated = Event::Repeated { cause: crate::trace::events::causes::RepeatCause::Closed };
        fold(&mut first, [(36, repeated), (37, leased(0)), (37, SENT)]);
        second.settle_hedge(&first);
        assert_eq!(in_ms(|phase| second.hops()[0].spent(phase)), [5, 25, 0, 0]);
        adds_up(&second);
        adds_up(&first);
    }
}
