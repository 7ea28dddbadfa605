//! The setting of how requests are hedged.

use super::ClientBuilder;
use crate::client::hedge_policy::HedgePolicy;
use crate::client::hedging::Hedging;

impl ClientBuilder {
    /// Sets the policy for hedging: idempotent requests whose answer is late are sent once more, on another connection, and
    /// the first answer counts. Without a policy, no request is sent a second time before the first one has ended.
    ///
    /// ```
    /// let client = speeddial::Client::builder().hedge(speeddial::HedgePolicy::new()).build()?;
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn hedge(mut self, policy: HedgePolicy) -> Self {
        self.defaults.hedging = Some(Hedging::new(policy));
        self
    }
}
