//! The settings of how a client connects, and the connector that is made of them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use crate::connect::{AddressPolicy, Addresses, Connector, ConnectorService, HttpConfig, Pins, Proxies, Versions};
use crate::dns::CachedResolver;
use crate::error::{Error, Result};
use crate::race::Scores;
use crate::tls::{Tls, TlsConfig};
use crate::transport::{TcpTransport, Transport};

/// The default time limit of a dial, from the lookup to the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The default time limit of the TLS handshake with one address.
const TLS_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of how a client connects.
#[derive(Clone)]
pub(in crate::client) struct ConnectSettings {
    /// The transport; TCP if `None`.
    pub(in crate::client) transport: Option<Arc<dyn Transport>>,
    /// The settings of TCP, if any was set.
    pub(in crate::client) tcp: Option<TcpTransport>,
    pub(in crate::client) timeout: Duration,
    pub(in crate::client) versions: Versions,
    pub(in crate::client) http: HttpConfig,
    pub(in crate::client) addresses: Addresses,
    pub(in crate::client) address_policy: AddressPolicy,
    /// The addresses that the user has set for names.
    pub(in crate::client) pins: Pins,
    pub(in crate::client) proxies: Proxies,
    /// The path of the Unix domain socket to connect to, in place of any host.
    pub(in crate::client) unix_socket: Option<Arc<std::path::Path>>,
    /// True if the bytes of connections are logged.
    pub(in crate::client) verbose: bool,
    /// True if errors do not show the bodies of proxies.
    pub(in crate::client) hides_bodies: bool,
    /// The layers around each dial; `None` if there are none.
    pub(in crate::client) layered: Option<ConnectorService>,
    pub(in crate::client) tls: TlsConfig,
    /// The setting of `tls` that was changed last by a method of the builder.
    #[cfg_attr(not(feature = "__tls"), allow(dead_code, reason = "none can be changed"))]
    pub(in crate::client) tls_setting: Option<&'static str>,
    pub(in crate::client) tls_timeout: Duration,
}

/// The parts that all connectors of a client share.
struct Shared {
    resolver: CachedResolver,
    user_agent: Option<HeaderValue>,
    scores: Arc<Scores>,
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
            unix_socket: None,
            verbose: false,
            hides_bodies: false,
            layered: None,
            tls: TlsConfig::new(),
            tls_setting: None,
            tls_timeout: TLS_TIMEOUT,
        }
    }
}

impl ConnectSettings {
    /// Refuses settings that let no response through, contradict each other, or that TLS cannot use. `action` is what fails
    /// then, in the words of the error.
    pub(in crate::client) fn check(&self, action: &str) -> Result<()> {
        if let Some(what) = self.contradiction() {
            return Err(Error::refused_request(format!("{action}: {what}")));
        }
        self.tls.check(self.versions.alpn()).map_err(|error| Error::config(action, error))?;
        Ok(())
    }

    /// Returns what is wrong with the settings beside those of TLS, in the words of an error message.
    fn contradiction(&self) -> Option<Cow<'static, str>> {
        if let Some(what) = self.http.contradiction() {
            return Some(what.into());
        }
        if self.timeout.is_zero() {
            return Some("connect_timeout must not be 0, or no connection could be opened".into());
        }
        if self.tls_timeout.is_zero() {
            return Some("tls_timeout must not be 0, or no TLS handshake could end".into());
        }
        let of_tcp = self.tcp.as_ref().and_then(Transport::contradiction);
        if let Some(what) = of_tcp.or_else(|| self.transport.as_ref()?.contradiction()) {
            return Some(what.into());
        }
        if self.tcp.is_some() && self.transport.is_some() {
            return Some("settings of TCP have no effect beside a transport".into());
        }
        if let Some(ignored) = self.ignored_with_unix_socket() {
            return Some(format!("{ignored} has no effect beside a Unix domain socket").into());
        }
        None
    }

    /// Returns the settings of hosts that are reached by a Unix domain socket: without those that only concern other ways. A rule for
    /// addresses stays, and forbids the socket: a stranger's redirect would lead to it.
    pub(in crate::client) fn with_unix_socket(self, path: Arc<std::path::Path>) -> Self {
        Self {
            unix_socket: Some(path),
            transport: None,
            tcp: None,
            pins: Pins::default(),
            addresses: Addresses::Both,
            proxies: Proxies::off(),
            ..self
        }
    }

    /// Drops the proxies that the user has set beside a Unix domain socket. Returns true if there were any.
    pub(in crate::client) fn leave_proxies_to_unix_socket(&mut self) -> bool {
        let is_ignored = self.unix_socket.is_some() && self.proxies.is_given();
        if is_ignored {
            self.proxies = Proxies::off();
        }
        is_ignored
    }

    /// Returns a setting that a Unix domain socket would leave without effect.
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

    /// Makes the first connector of a client, and starts to prepare TLS in the background. `user_agent` is the client's default,
    /// which HTTP proxies are told as well.
    pub(in crate::client) fn first_connector(
        self,
        resolver: CachedResolver,
        user_agent: Option<HeaderValue>,
    ) -> Connector {
        let tls = Tls::new(&self.tls, self.versions.alpn());
        let connector = self.connector(
            Shared { resolver, user_agent, scores: Arc::default() },
            (tls.for_proxies(Versions::Http1.alpn()), tls),
        );
        connector.tls.prepare();
        connector
    }

    /// Makes a connector beside `other` of the same client, or in its place. They share what they have in common: the resolver,
    /// what is known of addresses, and with equal settings TLS.
    pub(in crate::client) fn connector_like(self, other: &Connector, user_agent: Option<HeaderValue>) -> Connector {
        let tls = other.tls.changed(&self.tls, self.versions.alpn());
        let proxy_tls =
            if tls.is_same(&other.tls) { other.proxy_tls.clone() } else { tls.for_proxies(Versions::Http1.alpn()) };
        self.connector(
            Shared { resolver: other.resolver.clone(), user_agent, scores: other.scores.clone() },
            (proxy_tls, tls),
        )
    }

    fn connector(self, shared: Shared, (proxy_tls, tls): (Tls, Tls)) -> Connector {
        let Shared { resolver, user_agent, scores } = shared;
        Connector {
            resolver,
            transport: self.transport.unwrap_or_else(|| Arc::new(self.tcp.unwrap_or_default())),
            versions: self.versions,
            http: self.http,
            addresses: self.addresses,
            policy: self.address_policy,
            pins: self.pins,
            proxies: self.proxies,
            user_agent,
            unix: self.unix_socket,
            scores,
            tls,
            proxy_tls,
            for_other_pools: false,
            verbose: self.verbose,
            hides_bodies: self.hides_bodies,
            layered: self.layered,
            timeout: self.timeout,
            tls_timeout: self.tls_timeout,
        }
    }
}
