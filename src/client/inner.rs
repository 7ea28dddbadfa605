//! The state that all clones of a client share: its pool, its resolver, and the defaults of its calls.

use std::sync::{Arc, Mutex, Weak};

use http::{HeaderMap, Uri};
use url::Url;

use super::body::Dialer;
use super::policy::deadlines::Deadlines;
use super::policy::hedge::MeasuredOrigins;
use super::policy::retry::Budgets;
use super::pool_side::dns_watch::DnsWatch;
use super::request::attempt_head::BeforeAttempt;
use super::request::call_options::CallOptions;
use super::settings::Settings;
use super::settings::services::ClientService;
use super::token::TokenSource;
use crate::client::settings::CallDefaults;
use crate::client::settings::services::AttemptService;
use crate::clock::Instant;
#[cfg(feature = "cookies")]
use crate::cookie::CookieStore;
use crate::dns::CachedResolver;
use crate::error::LeftOut;
use crate::pool::Pool;
use crate::trace::Hooks;

/// The state behind every clone of a client.
pub(super) struct Inner {
    pub(super) pool: Pool<Dialer>,
    pub(super) resolver: CachedResolver,
    pub(super) hooks: Hooks,
    pub(super) defaults: Defaults,
    /// The defaults of calls where they are other than `defaults`.
    pub(super) call_defaults: CallDefaults,
    /// The budgets for retries.
    pub(super) retry_budgets: Mutex<Budgets>,
    /// The origins that requests are hedged for.
    pub(super) hedging: Mutex<MeasuredOrigins>,
    pub(super) deadlines: Deadlines,
    pub(super) dns_watch: DnsWatch,
    /// The time at which the client was built.
    pub(super) built: Instant,
    /// The settings that can be replaced. Locked by the reconfiguration in progress.
    pub(super) settings: parking_lot::Mutex<Settings>,
    /// The client within its layers, if it has any.
    pub(super) layers: Option<ClientService>,
    /// The layers around each single attempt, if there are any.
    pub(super) attempt_layers: Option<AttemptLayers>,
}

/// The service of an attempt within its layers, and the client that it belongs to.
pub(super) struct AttemptLayers {
    pub(super) service: AttemptService,
    pub(super) client: Weak<Inner>,
}

impl Inner {
    /// Starts the tasks that watch DNS and files for the pool's connections, unless they run. Does nothing outside of a runtime.
    pub(super) fn ensure_watches_run(&self) {
        self.dns_watch.ensure_running(&self.resolver, &self.pool);
        self.pool.dialer().files().ensure_running();
    }
}

/// The settings of a call where its request has none of its own.
pub(super) struct Defaults {
    /// The URL that relative ones are resolved against.
    pub(super) base_url: Option<Url>,
    pub(super) options: CallOptions,
    pub(super) headers: HeaderMap,
    #[cfg(feature = "cookies")]
    pub(super) cookies: Option<Arc<dyn CookieStore>>,
    /// The functions that change the head of each attempt.
    pub(super) before_attempt: Vec<BeforeAttempt>,
    /// The sources of bearer tokens, each for its own origins.
    pub(super) token_sources: Vec<TokenSource>,
    /// The parts of a call that the texts of errors do not show. Events do not show queries either.
    pub(super) left_out: LeftOut,
    /// The name that tells the client's figures from those of others.
    pub(super) name: Option<Arc<str>>,
    /// True if requests to `http` URLs are refused.
    pub(super) https_only: bool,
    /// True if a redirected request names the URL that redirected it.
    pub(super) sends_referer: bool,
    /// True if responses have the result of the TLS handshake among their extensions.
    pub(super) adds_tls_info: bool,
}

impl Defaults {
    /// Returns a request target as observers may see it.
    pub(super) fn shown(&self, target: Uri) -> Uri {
        if !self.left_out.queries || target.query().is_none() {
            return target;
        }
        target.path().parse().unwrap_or_default()
    }
}
