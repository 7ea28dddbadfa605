//! The settings of some hosts, in place of those of the client.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use super::connect::ConnectSettings;
use crate::client::request::call_options::{CallOptions, call_setters};
use crate::connect::{Addresses, Proxies, Proxy, Versions};
use crate::error::{Error, Result};
use crate::tls::{Identity, TlsConfig, TlsConfigError};
use crate::transport::Transport;

/// Settings for some hosts, given to [`ClientBuilder::for_host`](crate::ClientBuilder::for_host). Each host that fits has
/// them. A setting that is not set here is the client's; all are unset by default.
///
/// Of a call that is redirected to another host, the first host's [`timeout`](Self::timeout) counts. Of the other settings, those of the
/// host to which the request goes at the time count.
///
/// ```
/// use std::time::Duration;
/// use speeddial::Client;
/// use speeddial::settings::HostConfig;
///
/// let slow = HostConfig::new()
///     .http1_only()
///     .headers_timeout(Duration::from_secs(600));
/// let client = Client::builder().for_host("reports.internal", slow).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct HostConfig {
    connect: ConnectChanges,
    /// The default headers of the hosts.
    pub(in crate::client) headers: HeaderMap,
    pub(in crate::client) calls: CallOptions,
}

/// The settings of how some hosts are connected to.
#[derive(Clone, Default)]
struct ConnectChanges {
    transport: Option<Arc<dyn Transport>>,
    local_addresses: Vec<IpAddr>,
    unix_socket: Option<Arc<std::path::Path>>,
    addresses: Option<Addresses>,
    /// The proxies in place of the client's; none if the list is empty.
    proxies: Option<Vec<Proxy>>,
    versions: Option<Versions>,
    /// True if two versions of HTTP were chosen.
    has_two_versions: bool,
    timeout: Option<Duration>,
    tls: TlsChanges,
}

/// The settings of TLS with some hosts.
#[derive(Clone, Default)]
struct TlsChanges {
    config: Option<TlsConfig>,
    identity: Option<Identity>,
    timeout: Option<Duration>,
}

call_setters!(HostConfig);

impl HostConfig {
    /// Creates settings that are all the client's.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds default headers. A request to one of the hosts gets each of them that it has not set itself; they take the place of
    /// the client's default headers of the same names.
    ///
    /// A redirect to another host leaves them behind. A request that is redirected to one of the hosts gets them, but for those
    /// whose values are marked as sensitive (`HeaderValue::set_sensitive`).
    pub fn default_headers(mut self, headers: HeaderMap) -> Self {
        self.headers.extend(headers);
        self
    }

    /// Sets the longest time that opening a connection may take:
    /// [`ClientBuilder::connect_timeout`](crate::ClientBuilder::connect_timeout).
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect.timeout = Some(timeout);
        self
    }

    /// Sets the transport: [`ClientBuilder::transport`](crate::ClientBuilder::transport).
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.connect.transport = Some(Arc::new(transport));
        self
    }

    /// Sets the local address of connections. Call it twice to set one of each family.
    ///
    /// # Errors
    /// [`build`](crate::ClientBuilder::build) refuses it beside a transport, its own or the client's.
    pub fn local_address(mut self, address: IpAddr) -> Self {
        self.connect.local_addresses.push(address);
        self
    }

    /// Connects to this Unix domain socket: [`ClientBuilder::unix_socket`](crate::ClientBuilder::unix_socket). The client's
    /// transport, proxies, addresses and settings of TCP do not apply to these hosts then.
    ///
    /// # Errors
    /// [`build`](crate::ClientBuilder::build) refuses settings of the same hosts that would have no effect beside it, and a client with a
    /// rule for addresses ([`deny_private_addresses`](crate::ClientBuilder::deny_private_addresses)): a stranger's redirect would lead to
    /// the socket.
    #[cfg(unix)]
    pub fn unix_socket(mut self, path: impl AsRef<std::path::Path>) -> Self {
        self.connect.unix_socket = Some(path.as_ref().into());
        self
    }

    /// Sets which addresses are used: [`ClientBuilder::addresses`](crate::ClientBuilder::addresses).
    pub fn addresses(mut self, addresses: Addresses) -> Self {
        self.connect.addresses = Some(addresses);
        self
    }

    /// Adds a proxy, in place of those of the client and of the environment.
    ///
    /// # Errors
    /// [`build`](crate::ClientBuilder::build) refuses a proxy with settings that its protocol has no place for.
    pub fn proxy(mut self, proxy: Proxy) -> Self {
        self.connect.proxies.get_or_insert_default().push(proxy);
        self
    }

    /// Uses no proxy: neither the client's, nor those of the environment, nor those that were added before.
    pub fn no_proxy(mut self) -> Self {
        self.connect.proxies = Some(Vec::new());
        self
    }

    /// Uses HTTP/1.1 only: [`ClientBuilder::http1_only`](crate::ClientBuilder::http1_only).
    ///
    /// # Errors
    /// [`build`](crate::ClientBuilder::build) refuses it beside another choice of the version.
    pub fn http1_only(self) -> Self {
        self.versions(Versions::Http1)
    }

    /// Uses HTTP/2 without negotiation: [`ClientBuilder::http2_prior_knowledge`](crate::ClientBuilder::http2_prior_knowledge).
    ///
    /// # Errors
    /// [`build`](crate::ClientBuilder::build) refuses it beside another choice of the version.
    pub fn http2_prior_knowledge(self) -> Self {
        self.versions(Versions::Http2)
    }

    /// Negotiates the version of HTTP by ALPN (RFC 7301), where the client as a whole speaks only one.
    ///
    /// # Errors
    /// [`build`](crate::ClientBuilder::build) refuses it beside another choice of the version.
    pub fn negotiate_http_version(self) -> Self {
        self.versions(Versions::Any)
    }

    pub(in crate::client) fn call_options(&mut self) -> &mut CallOptions {
        &mut self.calls
    }

    fn versions(mut self, versions: Versions) -> Self {
        let other = self.connect.versions.replace(versions);
        self.connect.has_two_versions |= other.is_some_and(|other| other != versions);
        self
    }

    /// Sets the settings of TLS, in place of all of the client's.
    #[cfg(feature = "__tls")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "tls", feature = "tls-ring"))))]
    pub fn tls(mut self, tls: impl Into<TlsConfig>) -> Self {
        self.connect.tls.config = Some(tls.into());
        self
    }

    /// Sends this certificate to servers that ask for one (mTLS). The other settings of TLS stay.
    #[cfg(feature = "__tls")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "tls", feature = "tls-ring"))))]
    pub fn identity(mut self, identity: Identity) -> Self {
        self.connect.tls.identity = Some(identity);
        self
    }

    /// Sets the longest time of a TLS handshake: [`ClientBuilder::tls_timeout`](crate::ClientBuilder::tls_timeout).
    #[cfg(feature = "__tls")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "tls", feature = "tls-ring"))))]
    pub fn tls_timeout(mut self, timeout: Duration) -> Self {
        self.connect.tls.timeout = Some(timeout);
        self
    }

    /// Returns true if the hosts are connected to in a way of their own.
    pub(in crate::client) fn concerns_connections(&self) -> bool {
        let ConnectChanges {
            transport,
            local_addresses,
            unix_socket,
            addresses,
            proxies,
            versions,
            has_two_versions: _,
            timeout,
            tls,
        } = &self.connect;
        let has_tls = tls.config.is_some() || tls.identity.is_some() || tls.timeout.is_some();
        let has_transport = transport.is_some() || !local_addresses.is_empty() || unix_socket.is_some();
        has_transport || addresses.is_some() || proxies.is_some() || versions.is_some() || timeout.is_some() || has_tls
    }

    /// Returns true if the settings of TLS are those of files that are read again.
    pub(in crate::client) fn has_watched_files(&self) -> bool {
        self.connect.tls.all().any(|config| config.is_watched())
    }

    /// Reads files of TLS settings again. Returns what is wrong with those that cannot be used.
    pub(in crate::client) fn refresh_files(&self) -> Vec<TlsConfigError> {
        self.connect.tls.all().flat_map(|config| config.refresh()).collect()
    }

    /// Returns true if files of TLS settings are to be read again in a moment.
    pub(in crate::client) fn has_unsure_files(&self) -> bool {
        self.connect.tls.all().any(|config| config.is_unsure())
    }

    /// Returns true if there is something that calls to the hosts need to know.
    pub(in crate::client) fn concerns_calls(&self) -> bool {
        !self.headers.is_empty() || self.calls.is_any_set()
    }

    /// Returns the settings of how the hosts are connected to: those of the client with the changes for the hosts. `action` is
    /// what fails if they cannot be used.
    ///
    /// # Errors
    /// A setting is not valid, or has no effect beside another one.
    pub(in crate::client) fn connect_settings(
        &self,
        client: &ConnectSettings,
        action: &str,
    ) -> Result<ConnectSettings> {
        let settings = self.connect.apply(client.clone(), action)?;
        settings.check(action)?;
        Ok(settings)
    }
}

impl ConnectChanges {
    fn apply(&self, mut settings: ConnectSettings, action: &str) -> Result<ConnectSettings> {
        if self.has_two_versions {
            return Err(Error::refused_request(format!("{action}: two versions of HTTP are chosen")));
        }
        if let Some(path) = &self.unix_socket {
            settings = settings.with_unix_socket(path.clone());
        }
        if let Some(transport) = &self.transport {
            settings.transport = Some(transport.clone());
            settings.tcp = None;
        }
        for address in &self.local_addresses {
            settings.tcp = Some(settings.tcp.unwrap_or_default().local_address(*address));
        }
        if let Some(proxies) = &self.proxies {
            settings.proxies = Proxies::off();
            for proxy in proxies {
                proxy.check().map_err(|error| Error::config(action, error))?;
                settings.proxies.add(proxy.clone());
            }
        }
        settings.addresses = self.addresses.unwrap_or(settings.addresses);
        settings.versions = self.versions.unwrap_or(settings.versions);
        settings.timeout = self.timeout.unwrap_or(settings.timeout);
        self.tls.apply(&mut settings);
        Ok(settings)
    }
}

impl TlsChanges {
    /// Returns the settings that may be those of files.
    fn all(&self) -> impl Iterator<Item = TlsConfig> {
        let identity = self.identity.clone().map(|identity| TlsConfig::new().identity(identity));
        self.config.clone().into_iter().chain(identity)
    }

    fn apply(&self, settings: &mut ConnectSettings) {
        if let Some(config) = &self.config {
            settings.tls = config.clone();
        }
        if let Some(identity) = &self.identity {
            settings.tls = std::mem::take(&mut settings.tls).identity(identity.clone());
        }
        settings.tls_timeout = self.timeout.unwrap_or(settings.tls_timeout);
    }
}

impl fmt::Debug for HostConfig {
    // Without header values and proxies, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostConfig")
            .field("calls", &self.calls)
            .field("connect_timeout", &self.connect.timeout)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
