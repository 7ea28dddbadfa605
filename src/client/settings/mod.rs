//! The settings of a client that can be replaced while it runs, and the parts that are made of them.

pub(super) mod connect;
pub(super) mod host_config;
pub(super) mod services;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use connect::ConnectSettings;
use http::HeaderMap;
use http::header::USER_AGENT;
use parking_lot::{Mutex, RwLock};

use crate::client::pool_side::dialer::{Connectors, host_and_port};
use crate::client::request::call_options::CallOptions;
use crate::client::settings::host_config::HostConfig;
use crate::connect::{Connector, Proxy};
use crate::error::{Error, Result};
use crate::host_pattern::{ByHost, HostPattern};
use crate::origin::Origin;
use crate::pool::PoolConfig;
use crate::tls::TlsConfigError;
use crate::world::RandomState;

#[cfg(feature = "__tls")]
use crate::tls::{Certificate, CertificateRevocationList, Identity};

/// The settings of a client that can be replaced while it runs.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) connect: ConnectSettings,
    pub(super) hosts: ByHost<HostConfig>,
    pub(super) pool: PoolConfig,
    /// The default headers of calls.
    pub(super) headers: HeaderMap,
    pub(super) calls: CallOptions,
}

impl Settings {
    /// Refuses settings that no client can have. `action` is the action that the error names.
    pub(super) fn check(&self, action: &str) -> Result<()> {
        self.pool.check().map_err(|error| Error::config(action, error))?;
        self.connect.check(action)?;
        for (pattern, config) in self.hosts.iter() {
            let action = action_for(action, pattern);
            config.connect_settings(&self.connect, &action)?;
        }
        Ok(())
    }

    /// Makes the connectors of a client that is built. They share with `general`, that of most hosts, what they have in common.
    ///
    /// # Errors
    /// Settings for hosts that [`check`](Self::check) refuses.
    pub(super) fn connectors(&self, general: Connector, action: &str) -> Result<Connectors> {
        let present = Connectors::new(Arc::new(general), ByHost::default());
        self.connectors_after(&present, |_| false, action)
    }

    /// Makes the connectors that take the place of the `present` ones. Each shares with its predecessor what they have in common, and is
    /// the same one unless `is_changed` returns true for its hosts, which are `None` for most hosts.
    ///
    /// # Errors
    /// As [`connectors`](Self::connectors).
    pub(super) fn connectors_after(
        &self,
        present: &Connectors,
        is_changed: impl Fn(Option<&HostPattern>) -> bool,
        action: &str,
    ) -> Result<Connectors> {
        let user_agent = self.headers.get(USER_AGENT);
        let mut general = present.general().clone();
        if is_changed(None) || general.user_agent.as_ref() != user_agent {
            general = Arc::new(self.connect.clone().connector_like(&general, user_agent.cloned()));
        }
        let mut of_hosts = ByHost::default();
        for (pattern, config) in self.hosts.iter().filter(|(_, config)| config.concerns_connections()) {
            let user_agent = config.headers.get(USER_AGENT).or(user_agent);
            let predecessor = present.of(pattern);
            let is_same = |present: &Connector| !is_changed(Some(pattern)) && present.user_agent.as_ref() == user_agent;
            let connector = match predecessor.filter(|present| is_same(present)) {
                Some(present) => present.clone(),
                None => {
                    let settings = config.connect_settings(&self.connect, &action_for(action, pattern))?;
                    Arc::new(settings.connector_like(predecessor.unwrap_or(&general), user_agent.cloned()))
                }
            };
            of_hosts.add(pattern.clone(), connector);
        }
        Ok(Connectors::new(general, of_hosts))
    }

    /// Sets the defaults of calls.
    pub(super) fn set_call_defaults(&self, defaults: &CallDefaults) {
        defaults.set(&self.headers, &self.calls, &self.hosts);
    }

    /// Returns true if calls to some hosts have defaults of their own.
    pub(super) fn has_calls_of_hosts(&self) -> bool {
        self.hosts.iter().any(|(_, config)| config.concerns_calls())
    }

    /// Returns true if some settings of TLS are those of files that are read again.
    pub(super) fn has_watched_files(&self) -> bool {
        self.connect.tls.is_watched() || self.hosts.iter().any(|(_, config)| config.has_watched_files())
    }

    /// Reads files of TLS settings again. Returns what is wrong with those that cannot be used.
    pub(super) fn refresh_files(&self) -> Vec<TlsConfigError> {
        let mut errors = self.connect.tls.refresh();
        errors.extend(self.hosts.iter().flat_map(|(_, config)| config.refresh_files()));
        errors
    }

    /// Returns true if files of TLS settings may have been in the middle of being written, and are to be read again in a moment.
    pub(super) fn has_unsure_files(&self) -> bool {
        self.connect.tls.is_unsure() || self.hosts.iter().any(|(_, config)| config.has_unsure_files())
    }
}

/// Returns the action that an error about the settings of some hosts names.
fn action_for(action: &str, hosts: impl std::fmt::Display) -> String {
    format!("{action}: settings of `{hosts}`")
}

impl Proxy {
    /// Creates a proxy for all requests. `url` is a `&str`, a `String` or a [`Url`](crate::Url).
    ///
    /// # Errors
    /// An [`Error`] whose source is a [`ProxyError`](crate::settings::ProxyError), if `url` is not the URL of a proxy.
    pub fn all<U: AsRef<str>>(url: U) -> Result<Self, Error> {
        Ok(Self::for_all(url.as_ref())?)
    }

    /// Creates a proxy for requests to `http` URLs.
    ///
    /// # Errors
    /// As [`all`](Self::all).
    pub fn http<U: AsRef<str>>(url: U) -> Result<Self, Error> {
        Ok(Self::for_http(url.as_ref())?)
    }

    /// Creates a proxy for requests to `https` URLs.
    ///
    /// # Errors
    /// As [`all`](Self::all).
    pub fn https<U: AsRef<str>>(url: U) -> Result<Self, Error> {
        Ok(Self::for_https(url.as_ref())?)
    }
}

#[cfg(feature = "__tls")]
impl Certificate {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// An [`Error`] whose source is [`TlsConfigError::Root`], if it cannot be read.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        Ok(Self::read_der(der)?)
    }

    /// Reads all certificates of a text in PEM.
    ///
    /// # Errors
    /// An [`Error`] whose source is [`TlsConfigError::Pem`] if there is none or the text is not valid,
    /// [`TlsConfigError::Root`] if one cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        Ok(Self::read_pem(pem)?)
    }

    /// Reads the certificates of a text in PEM, each as a value of its own.
    ///
    /// # Errors
    /// As [`from_pem`](Self::from_pem).
    pub fn from_pem_bundle(pem_bundle: &[u8]) -> Result<Vec<Self>, Error> {
        Ok(Self::read_pem_bundle(pem_bundle)?)
    }
}

#[cfg(feature = "__tls")]
impl CertificateRevocationList {
    /// Reads the first list of a text in PEM.
    ///
    /// # Errors
    /// An [`Error`] whose source is [`TlsConfigError::Pem`], if there is none or it cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        Ok(Self::read_pem_bundle(pem)?.swap_remove(0))
    }

    /// Reads all lists of a text in PEM.
    ///
    /// # Errors
    /// As [`from_pem`](Self::from_pem).
    pub fn from_pem_bundle(pem_bundle: &[u8]) -> Result<Vec<Self>, Error> {
        Ok(Self::read_pem_bundle(pem_bundle)?)
    }
}

#[cfg(feature = "__tls")]
impl Identity {
    /// Reads a private key and a chain of certificates, the client's own first, from one text in PEM.
    ///
    /// # Errors
    /// An [`Error`] whose source is a [`TlsConfigError`]: `Pem` if either is missing or invalid;
    /// `EncryptedKey`, `KeyMismatch` or `ChainOrder` if they cannot be used together; `Refused` for a kind of key or certificate that
    /// rustls does not support.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        Self::from_pkcs8_pem(pem, pem)
    }

    /// Reads a chain of certificates, the client's own first, and its private key, from two texts in PEM. The key may also be in
    /// one of the older forms, PKCS #1 and SEC 1.
    ///
    /// # Errors
    /// As [`from_pem`](Self::from_pem).
    pub fn from_pkcs8_pem(chain: &[u8], key: &[u8]) -> Result<Self, Error> {
        Ok(Self::read_pem(chain, key)?)
    }

    /// Reads a private key and its chain of certificates from an archive in PKCS #12 (features `native-tls…`, as in reqwest).
    ///
    /// # Errors
    /// An [`Error`] whose source is a [`TlsConfigError`]: `Pkcs12` if the archive or the password is wrong,
    /// or those of [`from_pem`](Self::from_pem).
    #[cfg(feature = "__native-tls")]
    pub fn from_pkcs12_der(der: &[u8], password: &str) -> Result<Self, Error> {
        Ok(Self::read_pkcs12(der, password)?)
    }
}

/// The defaults of calls by their origin.
#[derive(Default)]
pub(in crate::client) struct CallDefaults {
    /// False while every call has the defaults that the client was built with. Then a call costs nothing more than this.
    is_used: AtomicBool,
    current: RwLock<Arc<ByOrigin>>,
}

/// The defaults of calls to some origins.
#[derive(Debug, Default)]
pub(in crate::client) struct OriginDefaults {
    /// The client's default headers, with those of the host in place of those of the same names.
    pub(in crate::client) headers: HeaderMap,
    /// The default headers of the host alone.
    pub(in crate::client) host_headers: HeaderMap,
    pub(in crate::client) options: CallOptions,
}

/// The defaults of calls, for most origins and for some.
#[derive(Default)]
struct ByOrigin {
    general: Arc<OriginDefaults>,
    of_hosts: ByHost<Arc<OriginDefaults>>,
    /// The defaults of origins that were looked up before.
    known: Mutex<HashMap<Origin, Arc<OriginDefaults>, RandomState>>,
}

/// The most origins whose defaults are kept. Beyond that, all are looked up again.
const MAX_KNOWN: usize = 1_024;

impl CallDefaults {
    /// Sets the defaults: `headers` and `options`, with the changes for `hosts`.
    pub(in crate::client) fn set(&self, headers: &HeaderMap, options: &CallOptions, hosts: &ByHost<HostConfig>) {
        let general =
            OriginDefaults { headers: headers.clone(), host_headers: HeaderMap::new(), options: options.clone() };
        let mut of_hosts = ByHost::default();
        for (pattern, config) in hosts.iter() {
            let defaults = OriginDefaults {
                headers: replaced(headers, &config.headers),
                host_headers: config.headers.clone(),
                options: config.calls.clone().or(options),
            };
            of_hosts.add(pattern.clone(), Arc::new(defaults));
        }
        *self.current.write() = Arc::new(ByOrigin { general: Arc::new(general), of_hosts, known: Mutex::default() });
        self.is_used.store(true, Ordering::Release);
    }

    /// Returns the defaults of calls to `origin`; `None` if they are those that the client was built with.
    #[inline]
    pub(in crate::client) fn of(&self, origin: &Origin) -> Option<Arc<OriginDefaults>> {
        if self.is_used.load(Ordering::Acquire) { Some(self.find(origin)) } else { None }
    }

    #[cold]
    fn find(&self, origin: &Origin) -> Arc<OriginDefaults> {
        let current = self.current.read().clone();
        current.find(origin)
    }
}

impl ByOrigin {
    fn find(&self, origin: &Origin) -> Arc<OriginDefaults> {
        if self.of_hosts.is_empty() {
            return self.general.clone();
        }
        let mut known = self.known.lock();
        if let Some(defaults) = known.get(origin) {
            return defaults.clone();
        }
        let (host, port) = host_and_port(origin);
        let defaults = self.of_hosts.find(&host, port).unwrap_or(&self.general).clone();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(origin.clone(), defaults.clone());
        defaults
    }
}

/// Returns `headers` with those of `others`, which take the place of those of the same names.
fn replaced(headers: &HeaderMap, others: &HeaderMap) -> HeaderMap {
    let mut all = headers.clone();
    for name in others.keys() {
        all.remove(name);
    }
    all.extend(others.clone());
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;
    use url::Url;

    use super::*;
    use crate::host_pattern::HostPattern;

    fn origin(url: &str) -> Origin {
        Origin::from_url(&Url::parse(url).unwrap()).unwrap()
    }

    #[test]
    fn nothing_is_found_before_something_is_set() {
        assert!(CallDefaults::default().of(&origin("http://a.test/")).is_none());
    }

    #[test]
    fn a_host_has_its_own_defaults_and_of_the_clients_those_that_it_does_not_set() {
        let headers = HeaderMap::from_iter([
            (http::header::ACCEPT, HeaderValue::from_static("1")),
            (http::header::USER_AGENT, HeaderValue::from_static("2")),
        ]);
        let mut options = CallOptions { max_body_size: Some(7), ..CallOptions::default() };
        options.timeouts.total = Some(Duration::from_secs(1));
        let own = HeaderMap::from_iter([(http::header::ACCEPT, HeaderValue::from_static("3"))]);
        let config = HostConfig::new().default_headers(own).headers_timeout(Duration::from_secs(2));
        let mut hosts = ByHost::default();
        hosts.add(HostPattern::parse(".internal").unwrap(), config);
        let defaults = CallDefaults::default();
        defaults.set(&headers, &options, &hosts);
        for _ in 0..2 {
            let own = defaults.of(&origin("http://a.internal/")).unwrap();
            assert_eq!(
                (&own.headers["accept"], &own.headers["user-agent"]),
                (&"3".parse().unwrap(), &"2".parse().unwrap())
            );
            assert_eq!(
                (own.options.timeouts.total, own.options.max_body_size),
                (Some(Duration::from_secs(1)), Some(7))
            );
            assert_eq!(own.options.timeouts.headers, Some(Duration::from_secs(2)));
            let other = defaults.of(&origin("http://a.test/")).unwrap();
            assert_eq!((&other.headers["accept"], other.options.timeouts.headers), (&"1".parse().unwrap(), None));
        }
    }

    #[test]
    fn the_origins_that_are_remembered_are_limited() {
        let mut hosts = ByHost::default();
        hosts.add(HostPattern::parse(".internal").unwrap(), HostConfig::new());
        let defaults = CallDefaults::default();
        defaults.set(&HeaderMap::new(), &CallOptions::default(), &hosts);
        for number in 0..3_000 {
            defaults.of(&origin(&format!("http://{number}.test/"))).unwrap();
        }
        let current = defaults.current.read().clone();
        assert!((1..=MAX_KNOWN).contains(&current.known.lock().len()));
    }
}
