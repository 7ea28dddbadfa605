//! Settings of a client that are replaced while it runs.

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;

use crate::client::handle::Client;
use crate::client::inner::Inner;
use crate::client::pool_side::dialer::{Connectors, host_and_port};
use crate::client::pool_side::file_watch::Reload;
use crate::client::settings::Settings;
use crate::client::settings::host_config::HostConfig;
use crate::connect::{Proxies, Proxy};
use crate::dns::{CachedResolver, IntoResolver};
use crate::error::{Error, Result};
use crate::host_pattern::HostPattern;
use crate::pool::{PoolConfig, PoolConfigError};
use crate::trace;

/// The action that errors about settings name.
const RECONFIGURE: &str = "reconfigure the client";

/// A change to something, to be made later.
type Change<T> = Box<dyn FnOnce(&mut T) + Send>;

/// Settings to replace in a running client. See [`Client::reconfigure`].
#[must_use = "the function given to `Client::reconfigure` returns it"]
pub struct Reconfiguration {
    changes: Vec<Change<Settings>>,
    scope: Scope,
    resolver: Option<Change<CachedResolver>>,
    replaces_proxies: bool,
    /// The first setting that is not valid.
    invalid: Option<Error>,
}

/// The connections and calls that a reconfiguration concerns.
#[derive(Default)]
struct Scope {
    /// True if the connections of all hosts are made in another way from now on.
    connect: bool,
    /// The hosts whose settings are replaced.
    hosts: Vec<HostPattern>,
    /// True if calls have other default headers.
    calls: bool,
    /// True if the pool has other limits.
    pool: bool,
}

impl Client {
    /// Replaces settings of the client while it runs. All clones of it have the new ones: either all of them, or on an error none.
    ///
    /// Calls that begin from now on have the new headers, limits and policies. Connections that are opened from now on are made with the new
    /// proxies and settings of TLS. If these have changed, the connections that were made with the old ones take no new requests: after
    /// a change of proxies all of them, after one of TLS those over TLS. Idle ones close now, the others after the requests that they
    /// carry, which go on undisturbed. A connection that is being opened serves the request that waits for it, and no other. Until the
    /// old connection closes it counts against the limits of the pool, so with a limit of one connection the next request waits for the
    /// end of those on it.
    ///
    /// Other settings are those that the client was built with. For certificates and keys in files there is
    /// `Identity::watch_files`, which needs no call.
    ///
    /// ```
    /// use speeddial::{Client, PoolConfig, Proxy};
    ///
    /// let client = Client::new();
    /// let proxy = Proxy::all("http://proxy.internal:3128")?;
    /// client.reconfigure(|to| to.proxy(proxy).pool(PoolConfig::new().max_connections(100)))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Request`](crate::ErrorKind::Request) for a setting that [`ClientBuilder::build`](crate::ClientBuilder::build)
    /// would refuse, and for a [`PoolConfig::follow_dns`] that is not the client's. Then nothing has changed.
    pub fn reconfigure(&self, change: impl FnOnce(Reconfiguration) -> Reconfiguration) -> Result<()> {
        let to = change(Reconfiguration {
            changes: Vec::new(),
            scope: Scope::default(),
            resolver: None,
            replaces_proxies: false,
            invalid: None,
        });
        to.apply(&self.inner)
    }
}

impl Reconfiguration {
    /// Replaces all settings of TLS: [`ClientBuilder::tls`](crate::ClientBuilder::tls).
    #[cfg(feature = "__tls")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "tls", feature = "tls-ring"))))]
    pub fn tls(self, tls: impl Into<crate::tls::TlsConfig>) -> Self {
        let tls = tls.into();
        self.with_connect(|settings| settings.connect.tls = tls)
    }

    /// Replaces the certificate that is sent to servers that ask for one (mTLS). The other settings of TLS stay.
    #[cfg(feature = "__tls")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "tls", feature = "tls-ring"))))]
    pub fn identity(self, identity: crate::tls::Identity) -> Self {
        self.with_connect(|settings| {
            settings.connect.tls = std::mem::take(&mut settings.connect.tls).identity(identity);
        })
    }

    /// Trusts these certificate authorities and no others, in place of those trusted so far. The other settings of TLS stay.
    ///
    /// # Errors
    /// [`reconfigure`](crate::Client::reconfigure) refuses it if there are none: the client would reach no server any more.
    #[cfg(feature = "__tls")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "tls", feature = "tls-ring"))))]
    pub fn tls_certs_only(mut self, certs: impl IntoIterator<Item = crate::tls::Certificate>) -> Self {
        let certs: Vec<_> = certs.into_iter().collect();
        if certs.is_empty() {
            self.refuse(Error::config(RECONFIGURE, crate::tls::TlsConfigError::NoRoots));
        }
        self.with_connect(|settings| {
            let tls = std::mem::take(&mut settings.connect.tls).without_added_roots();
            settings.connect.tls = tls.add_roots(certs).only_added_roots();
        })
    }

    /// Adds a proxy. The first one that is added here takes the place of those of the client and of the environment.
    pub fn proxy(mut self, proxy: Proxy) -> Self {
        if let Err(error) = proxy.check() {
            self.refuse(Error::config(RECONFIGURE, error));
        }
        let this = if self.replaces_proxies { self } else { self.no_proxy() };
        this.with_connect(|settings| settings.connect.proxies.add(proxy))
    }

    /// Uses no proxies: neither those of the client, nor those of the environment, nor those that were added before.
    pub fn no_proxy(mut self) -> Self {
        self.replaces_proxies = true;
        self.with_connect(|settings| settings.connect.proxies = Proxies::off())
    }

    /// Replaces the limits of the pool, those of [single hosts](PoolConfig::for_host) as well.
    ///
    /// Connections that are too many by the new limits close: idle ones now, busy ones when they become idle. The lifetime of open
    /// connections, and the number of concurrent requests on each, stay as they are.
    pub fn pool(mut self, pool: PoolConfig) -> Self {
        self.scope.pool = true;
        self.with(|settings| settings.pool = pool)
    }

    /// Replaces the default headers of requests, all of them: a `User-Agent` that is not among these is no longer sent. Those of
    /// [`HostConfig::default_headers`] stay.
    pub fn default_headers(mut self, headers: HeaderMap) -> Self {
        self.scope.calls = true;
        self.with(|settings| settings.headers = headers)
    }

    /// Replaces the resolver under the DNS cache: [`CachedResolver::set_resolver`](crate::dns::CachedResolver::set_resolver).
    pub fn dns_resolver<Kind>(mut self, resolver: impl IntoResolver<Kind>) -> Self {
        let resolver = resolver.into_resolver();
        self.resolver = Some(Box::new(|cache| cache.set_resolver(resolver)));
        self
    }

    /// Replaces the settings of some hosts: all that were set for the same pattern, by
    /// [`ClientBuilder::for_host`](crate::ClientBuilder::for_host) or here. An empty [`HostConfig`] removes them.
    ///
    /// To begin or end to balance the requests of a host ([`Addresses::Spread`](crate::settings::Addresses::Spread)) takes effect when the host has
    /// had neither connections nor requests for a moment.
    pub fn for_host(mut self, hosts: &str, config: HostConfig) -> Self {
        let Some(pattern) = HostPattern::parse(hosts) else {
            self.refuse(Error::config(RECONFIGURE, PoolConfigError::Hosts(hosts.to_owned())));
            return self;
        };
        self.scope.hosts.push(pattern.clone());
        self.scope.calls = true;
        self.with(|settings| settings.hosts.replace(pattern, config))
    }

    fn with_connect(mut self, change: impl FnOnce(&mut Settings) + Send + 'static) -> Self {
        self.scope.connect = true;
        self.with(change)
    }

    fn with(mut self, change: impl FnOnce(&mut Settings) + Send + 'static) -> Self {
        self.changes.push(Box::new(change));
        self
    }

    fn refuse(&mut self, error: Error) {
        self.invalid.get_or_insert(error);
    }

    /// Makes the changes, unless one of them is not valid.
    fn apply(self, client: &Inner) -> Result<()> {
        if let Some(invalid) = self.invalid {
            return Err(invalid);
        }
        // Declared before the lock, so that settings are dropped after it: their destructors may be the user's.
        let mut next;
        let replaced = {
            let mut settings = client.settings.lock();
            next = settings.clone();
            self.changes.into_iter().for_each(|change| change(&mut next));
            next.check(RECONFIGURE)?;
            if next.pool.follow_dns != settings.pool.follow_dns {
                return Err(Error::refused_request(format!("{RECONFIGURE}: follow_dns cannot be replaced")));
            }
            let replaced = client.replace_parts(&next, &self.scope)?;
            std::mem::swap(&mut *settings, &mut next);
            replaced
        };
        // Without the lock, because observers are told of connections that close.
        if let Some(replaced) = replaced {
            let hosts = self.scope.hosts;
            client.renew_connections(&replaced, |host, port| hosts.iter().any(|pattern| pattern.fits(host, port)));
        }
        if self.scope.pool {
            client.pool.apply_config();
        }
        if let Some(set_resolver) = self.resolver {
            set_resolver(&mut client.resolver.clone());
        }
        Ok(())
    }
}

impl Inner {
    /// Makes the parts of the client anew that the changes concern, from settings that were checked.
    fn replace_parts(&self, settings: &Settings, scope: &Scope) -> Result<Option<Replaced>> {
        let replaced = match scope.connect || scope.calls {
            true => Some(self.new_connectors(settings, |hosts| {
                scope.connect || hosts.is_some_and(|hosts| scope.hosts.contains(hosts))
            })?),
            false => None,
        };
        if let Some(Replaced { new, .. }) = &replaced {
            self.pool.dialer().replace(new.clone());
            if new.balance_some_hosts() {
                self.dns_watch.enable();
            }
        }
        self.pool.dialer().files().set_needed(settings.has_watched_files());
        if scope.calls {
            settings.set_call_defaults(&self.call_defaults);
        }
        if scope.pool {
            self.pool.set_config(settings.pool.clone());
        }
        Ok(replaced)
    }

    /// Makes the connectors that take the place of the present ones, anew where `is_changed` returns true.
    fn new_connectors(
        &self,
        settings: &Settings,
        is_changed: impl Fn(Option<&HostPattern>) -> bool,
    ) -> Result<Replaced> {
        let old = self.pool.dialer().connectors();
        let new = Arc::new(settings.connectors_after(&old, is_changed, RECONFIGURE)?);
        Ok(Replaced { old, new })
    }

    /// Ends the connections that new ones differ from, and those of hosts for which `is_changed` returns true.
    fn renew_connections(&self, Replaced { old, new }: &Replaced, is_changed: impl Fn(&str, u16) -> bool) {
        self.pool.renew(|key| {
            let (host, port) = host_and_port(&key.origin);
            let [new, old] = [new, old].map(|connectors| connectors.find(&key.origin));
            is_changed(&host, port) || !new.continues(old, &key.origin, key.proxy.as_ref())
        });
    }
}

/// Reads files of certificates and keys again.
impl Reload for Inner {
    fn reload(&self) -> bool {
        let mut changed = None;
        // Read without the lock, because a file system may take its time.
        let watched = self.settings.lock().clone();
        let mut refused: Vec<_> = watched.refresh_files().iter().map(ToString::to_string).collect();
        {
            let settings = self.settings.lock();
            // Each file is valid by itself by now. Together with the other settings they might not be.
            match settings.check(RECONFIGURE).and_then(|()| self.new_connectors(&settings, |_| true)) {
                Ok(replaced) if replaced.new.has_same_tls(&replaced.old) => {}
                Ok(replaced) => {
                    self.pool.dialer().replace(replaced.new.clone());
                    changed = Some(replaced);
                }
                Err(error) => refused.push(error.to_string()),
            }
        }
        // Before observers are told, so that what they do uses new connections.
        if let Some(replaced) = &changed {
            self.renew_connections(replaced, |_, _| false);
        }
        for reason in refused {
            trace::tls_files_refused(&self.hooks, &reason);
        }
        if changed.is_some() {
            trace::tls_files_reloaded(&self.hooks);
        }
        !watched.has_unsure_files()
    }
}

/// The connectors of a client before and after they were replaced.
struct Replaced {
    old: Arc<Connectors>,
    new: Arc<Connectors>,
}

impl fmt::Debug for Reconfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconfiguration").field("changes", &self.changes.len()).finish_non_exhaustive()
    }
}
