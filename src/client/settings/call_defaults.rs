//! The default headers and settings of calls, where hosts have their own or they were replaced after the client was built.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::world::RandomState;
use http::HeaderMap;
use parking_lot::{Mutex, RwLock};

use super::host_config::HostConfig;
use crate::client::pool_side::connectors::host_and_port;
use crate::client::request::call_options::CallOptions;
use crate::host_pattern::ByHost;
use crate::origin::Origin;

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
