//! The settings of how a client connects, and the connector that is made of them.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

#[cfg(feature = "tower")]
use crate::connect::ConnectorService;
use crate::connect::{AddressPolicy, Addresses, Connector, HttpConfig, Pins, Proxies, Versions};
use crate::dns::CachedResolver;
use crate::error::{Error, Result};
use crate::race::Scores;
#[cfg(feature = "__tls")]
use crate::tls::{Tls, TlsConfig};
use crate::transport::{TcpTransport, Transport};

/// The default time limit of a dial, from the lookup to the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The default time limit of the TLS handshake with one address.
#[cfg(feature = "__tls")]
const TLS_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of how a client connects.
pub(super) struct ConnectSettings {
    /// The transport; TCP if `None`.
    pub(super) transport: Option<Arc<dyn Transport>>,
    /// The settings of TCP, if any was set.
    pub(super) tcp: Option<TcpTransport>,
    pub(super) timeout: Duration,
    pub(super) versions: Versions,
    pub(super) http: HttpConfig,
    pub(super) addresses: Addresses,
    pub(super) address_policy: AddressPolicy,
    /// The addresses that the user has set for names.
    pub(super) pins: Pins,
    pub(super) proxies: Proxies,
    /// The path of the Unix domain socket to connect to, in place of any host.
    #[cfg(unix)]
    pub(super) unix_socket: Option<Arc<std::path::Path>>,
    /// True if the bytes of connections are logged.
    #[cfg(feature = "tracing")]
    pub(super) verbose: bool,
    /// The layers around each dial; `None` if there are none.
    #[cfg(feature = "tower")]
    pub(super) layered: Option<ConnectorService>,
    #[cfg(feature = "__tls")]
    pub(super) tls: TlsConfig,
    /// The setting of `tls` that was changed last by a method of the builder.
    #[cfg(feature = "__tls")]
    pub(super) tls_setting: Option<&'static str>,
    #[cfg(feature = "__tls")]
    pub(super) tls_timeout: Duration,
}

impl Default for ConnectSettings {
    fn default() -> Self {
        Self {
            transport: None,
            tcp: None,
            timeout: CONNECT_TIMEOUT,
            versions: Versions::Any,
            http: HttpConfig::default(),
            addresses: Addresses::Both,
            address_policy: AddressPolicy::default(),
            pins: Pins::default(),
            proxies: Proxies::from_environment(),
            #[cfg(unix)]
            unix_socket: None,
            #[cfg(feature = "tracing")]
            verbose: false,
            #[cfg(feature = "tower")]
            layered: None,
            #[cfg(feature = "__tls")]
            tls: TlsConfig::new(),
            #[cfg(feature = "__tls")]
            tls_setting: None,
            #[cfg(feature = "__tls")]
            tls_timeout: TLS_TIMEOUT,
        }
    }
}

impl ConnectSettings {
    /// Refuses settings that let no response through, contradict each other, or that TLS cannot use.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(what) = self.http.contradiction() {
            return Err(Error::refused_request(format!("build a client: {what}")));
        }
        if self.timeout.is_zero() {
            let what = "build a client: connect_timeout must not be 0, or no connection could be opened";
            return Err(Error::refused_request(what.to_owned()));
        }
        #[cfg(feature = "__tls")]
        if self.tls_timeout.is_zero() {
            let what = "build a client: tls_timeout must not be 0, or no TLS handshake could end";
            return Err(Error::refused_request(what.to_owned()));
        }
        if let Some(what) = self.tcp.as_ref().and_then(TcpTransport::contradiction) {
            return Err(Error::refused_request(format!("build a client: {what}")));
        }
        if self.tcp.is_some() && self.transport.is_some() {
            let what = "build a client: settings of TCP have no effect beside a transport";
            return Err(Error::refused_request(what));
        }
        #[cfg(unix)]
        if let Some(ignored) = self.ignored_with_unix_socket() {
            let what = format!("build a client: {ignored} has no effect beside a Unix domain socket");
            return Err(Error::refused_request(what));
        }
        #[cfg(feature = "__tls")]
        self.tls.check(self.versions.alpn()).map_err(Error::config)?;
        Ok(())
    }

    /// Returns a setting that a Unix domain socket would leave without effect.
    #[cfg(unix)]
    fn ignored_with_unix_socket(&self) -> Option<&'static str> {
        self.unix_socket.as_ref()?;
        if self.transport.is_some() {
            Some("a transport")
        } else if self.tcp.is_some() {
            Some("a setting of TCP")
        } else if !self.address_policy.is_empty() {
            Some("a rule for addresses")
        } else if !self.pins.is_empty() {
            Some("an address for a name")
        } else if self.addresses != Addresses::Both {
            Some("a choice of addresses")
        } else if self.proxies.is_given() {
            Some("a proxy")
        } else {
            None
        }
    }

    /// Makes the connector, and starts to prepare TLS in the background. `user_agent` is the client's default, which HTTP
    /// proxies are told as well.
    pub(super) fn into_connector(self, resolver: CachedResolver, user_agent: Option<HeaderValue>) -> Connector {
        #[cfg(feature = "__tls")]
        let tls = Tls::new(self.tls, self.versions.alpn());
        #[cfg(feature = "__tls")]
        let proxy_tls = tls.for_proxies(Versions::Http1.alpn());
        let connector = Connector {
            resolver,
            transport: self.transport.unwrap_or_else(|| Arc::new(self.tcp.unwrap_or_default())),
            versions: self.versions,
            http: self.http,
            addresses: self.addresses,
            policy: self.address_policy,
            pins: self.pins,
            proxies: self.proxies,
            user_agent,
            #[cfg(unix)]
            unix: self.unix_socket,
            scores: Scores::default(),
            #[cfg(feature = "__tls")]
            tls,
            #[cfg(feature = "__tls")]
            proxy_tls,
            for_other_pools: false,
            #[cfg(feature = "tracing")]
            verbose: self.verbose,
            #[cfg(feature = "tower")]
            layered: self.layered,
            timeout: self.timeout,
            #[cfg(feature = "__tls")]
            tls_timeout: self.tls_timeout,
        };
        #[cfg(feature = "__tls")]
        connector.tls.prepare();
        connector
    }
}
