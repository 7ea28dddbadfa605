//! The lookup of a name's HTTPS records: its turn, its time, and the full name that it stands for.

use std::pin::pin;

use hickory_resolver::proto::rr::Name;

use super::SearchResolver;
use crate::clock::{Instant, before, now};
use crate::dns::ResolveErrorKind;
use crate::dns::hickory::servers::https_records::https_answer;
use crate::dns::hickory::system::watched_file::CHECK_INTERVAL;
use crate::dns::https::HttpsAnswer;
use crate::sync::lock;

/// The answer for a full name.
struct Found {
    answer: HttpsAnswer,
    name_exists: bool,
}

impl SearchResolver {
    /// Looks up HTTPS records within the limits, once it is its turn. `port` is what stands in front of the host, as in
    /// `_8443._https`. These lookups have turns of their own, and hold up no lookups of addresses.
    ///
    /// With `single-request` in resolv.conf nothing is asked, because the addresses would have to wait.
    pub(in crate::dns::hickory) async fn lookup_https(
        &self,
        host: &Name,
        port: Option<&Name>,
        name: &str,
    ) -> Result<HttpsAnswer, ResolveErrorKind> {
        if self.servers.asks_one_at_a_time() {
            return Ok(HttpsAnswer::absent(Some(CHECK_INTERVAL)));
        }
        let _turn = self.https_turns.acquire().await.expect("the semaphore is never closed");
        let deadline = now() + self.limits.total_timeout;
        let search = pin!(self.search_https(host, port, name, deadline));
        before(Some(deadline), search).await.unwrap_or(Err(ResolveErrorKind::Timeout))
    }

    /// Asks for the candidate whose addresses are used, if it is known by now, or for one candidate after the other until one
    /// exists.
    async fn search_https(
        &self,
        host: &Name,
        port: Option<&Name>,
        name: &str,
        deadline: Instant,
    ) -> Result<HttpsAnswer, ResolveErrorKind> {
        let mut last = HttpsAnswer::absent(None);
        for candidate in self.search_list.candidates(host) {
            let full_name = self.chosen(host).unwrap_or(candidate.name);
            let found = self.ask_https(&full_name, port, name, deadline).await?;
            // The search for addresses may have ended meanwhile, with another candidate.
            if let Some(chosen) = self.chosen(host) {
                let is_it = chosen == full_name;
                return if is_it {
                    Ok(found.answer)
                } else {
                    Ok(self.ask_https(&chosen, port, name, deadline).await?.answer)
                };
            }
            last = found.answer;
            if found.name_exists {
                break;
            }
        }
        Ok(last)
    }

    fn chosen(&self, host: &Name) -> Option<Name> {
        lock(&self.chosen).recall(now(), host).cloned()
    }

    /// Asks the servers about one full name.
    async fn ask_https(
        &self,
        full_name: &Name,
        port: Option<&Name>,
        name: &str,
        deadline: Instant,
    ) -> Result<Found, ResolveErrorKind> {
        let owner = match port {
            Some(port) => port.clone().append_name(full_name).map_err(|_| ResolveErrorKind::InvalidName)?,
            None => full_name.clone(),
        };
        match self.servers.ask_https(&owner, name, deadline).await {
            Ok(lookup) => Ok(Found { answer: https_answer(lookup.message(), &owner), name_exists: true }),
            Err(error) if error.kind().is_negative() => {
                let name_exists = error.kind() == ResolveErrorKind::NoData;
                Ok(Found { answer: HttpsAnswer::absent(error.negative_ttl()), name_exists })
            }
            Err(error) => Err(error.kind()),
        }
    }
}
