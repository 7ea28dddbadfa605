//! Steps under time limits.

use std::pin::pin;
use std::time::Duration;

use crate::clock::{before, now};

/// The longest that a step takes, unless the client's connect timeout is shorter.
const LONGEST_STEP: Duration = Duration::from_secs(5);
/// The longest that a request takes.
pub(super) const LONGEST_REQUEST: Duration = Duration::from_secs(10);

/// Returns the time limit of a step for a client with this connect timeout.
pub(super) fn step_limit(connect_timeout: Duration) -> Duration {
    connect_timeout.min(LONGEST_STEP)
}

/// Runs a step for at most `limit`. Returns the time that it took, and its result; `None` if it was not over by then.
pub(super) async fn timed<T>(limit: Duration, step: impl Future<Output = T>) -> (Duration, Option<T>) {
    let start = now();
    let outcome = before(start.checked_add(limit), pin!(step)).await;
    (now() - start, outcome)
}
