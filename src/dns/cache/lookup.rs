//! A lookup that has to wait for a query.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::driver::{CacheDriver, Outcome, Told};
use super::state::Lookup;
use crate::clock::now;
use crate::dns::{Family, ResolveError, ResolveErrorKind, Source};
use crate::sync::landing::Landing;

/// The longest a lookup waits for a fresh answer before it gets a stale one (RFC 8767 §5).
pub(super) const STALE_ANSWER_TIMEOUT: Duration = Duration::from_millis(1_800);

/// The time for which a lookup waits for the query of another runtime alone.
const HEAD_START: Duration = Duration::from_millis(300);

/// A lookup whose answer is not known yet.
pub(crate) struct PendingLookup<'a> {
    pub(super) driver: &'a Arc<CacheDriver>,
    pub(super) name: Cow<'a, str>,
    pub(super) family: Family,
    pub(super) lookup: Lookup<Landing<Told>>,
}

impl PendingLookup<'_> {
    /// Waits for the query, or for a limited time if there is a stale answer.
    ///
    /// A query is lost when the runtime of its task is shut down, or when its resolver panics. The lookup then asks the cache
    /// once more. It does so as well if the answer is that of a resolver that was replaced, or of files that have changed, and if the query
    /// of another runtime does not end soon: that may be blocked.
    pub(crate) async fn wait(self) -> Outcome {
        let Self { driver, name, family, mut lookup } = self;
        let (mut is_last_try, mut has_waited_elsewhere) = (false, false);
        loop {
            let (query, source, stale) = match lookup {
                Lookup::Known(outcome, _) => return outcome,
                Lookup::Start(query, stale) => (query, Source::Miss, stale),
                Lookup::Join(query, stale) => (query, Source::Coalesced, stale),
            };
            let has_head_start = query.handle.is_elsewhere() && !std::mem::replace(&mut has_waited_elsewhere, true);
            let limit = match &stale {
                _ if has_head_start => HEAD_START,
                Some(_) => STALE_ANSWER_TIMEOUT,
                None => driver.max_query_time,
            };
            match (tokio::time::timeout(limit, query.handle.wait()).await, stale) {
                (Ok(Some((outcome, counts))), _) if counts || is_last_try => {
                    return with_source_of_lookup(outcome, source);
                }
                (Err(_), stale) if has_head_start => {
                    lookup = match driver.ask_beside(&name, family, query.serial) {
                        Some(query) => Lookup::Start(query, stale),
                        None => driver.get(now(), &name, family),
                    };
                }
                (Err(_), Some(stale)) => return Ok(stale),
                (Err(_), None) => {
                    // Removed, so that the next lookup starts another one.
                    driver.lock().abandon(now(), &name, family, query.serial);
                    return Err(ResolveError::new(ResolveErrorKind::Timeout, &name, family));
                }
                (Ok(_), Some(stale)) if is_last_try => return Ok(stale),
                (Ok(_), None) if is_last_try => {
                    let lost = ResolveError::new(ResolveErrorKind::Other, &name, family);
                    return Err(lost.with_cause("the resolver gave up its query"));
                }
                (Ok(_), _) => {
                    is_last_try = true;
                    lookup = driver.get(now(), &name, family);
                }
            }
        }
    }
}

/// Replaces the source of a query's outcome by the lookup's, unless no DNS query was made for it, as for the hosts file.
fn with_source_of_lookup(outcome: Outcome, source: Source) -> Outcome {
    match outcome {
        Ok(answer) if answer.source() == Source::Miss => Ok(answer.with_source(source)),
        Ok(answer) => Ok(answer),
        Err(error) if error.answered_from() == Source::Miss => Err(error.with_source(source)),
        Err(error) => Err(error),
    }
}
