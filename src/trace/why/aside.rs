//! The time spent in the program's own code, and on HTTPS records, in phases that are about something else.

use super::super::timings::Timings;
use super::{Cause, Found};
use crate::trace::timings::hops::Aside;
use crate::trace::timings::phase::Phase;

/// Finds what of the last request's phases was spent aside.
pub(super) fn find(timings: &Timings, found: &mut Found) {
    for aside in [Aside::OwnCode, Aside::HttpsRecords] {
        let parts = || timings.history().asides().iter().filter(|(known, ..)| *known == aside);
        let time = parts().map(|(_, phase, time)| (*time).min(timings.spent_last(*phase))).sum();
        let phase = parts().max_by_key(|(_, _, time)| *time).map_or(Phase::Queue, |(_, phase, _)| *phase);
        match aside {
            Aside::OwnCode => {
                let before = "the program's own code around requests took";
                found.add_around(Cause::OwnCode, phase, time, before, "");
            }
            Aside::HttpsRecords => found.add(Cause::HttpsRecords, phase, time, "were spent waiting for HTTPS records"),
        }
    }
}
