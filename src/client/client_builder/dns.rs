//! The settings of how names become addresses.

use std::net::SocketAddr;

use super::ClientBuilder;
use crate::dns::{CachedResolver, IntoResolver};
use crate::error::{Error, Result};

impl ClientBuilder {
    /// Sets the resolver that looks up names: a [`Resolver`](crate::dns::Resolver), a [`Resolve`](crate::dns::Resolve) as it
    /// is written for reqwest, or an `Arc` of one. The client puts a DNS cache of its own
    /// in front of it. [`HickoryResolver::system`](crate::dns::HickoryResolver::system) by default.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses it beside a [cache](Self::dns_cache) and beside a Unix domain socket.
    pub fn dns_resolver<Kind>(self, resolver: impl IntoResolver<Kind>) -> Self {
        self.with_resolver("dns_resolver", CachedResolver::new(resolver.into_resolver()))
    }

    /// Sets the resolver: [`dns_resolver`](Self::dns_resolver) under the name that reqwest 0.12 has beside it.
    #[doc(hidden)]
    pub fn dns_resolver2<Kind>(self, resolver: impl IntoResolver<Kind>) -> Self {
        self.dns_resolver(resolver)
    }

    /// Sets the DNS cache with its resolver, which other clients may share.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses it beside a [resolver](Self::dns_resolver) and beside a Unix domain socket.
    pub fn dns_cache(self, cache: CachedResolver) -> Self {
        self.with_resolver("dns_cache", cache)
    }

    /// Sets whether names are looked up by hickory-resolver, which queries DNS servers by itself. True by default. With
    /// `false` the platform's `getaddrinfo` is asked, by a [`SystemResolver`](crate::dns::SystemResolver) whose answers
    /// are kept for 30 s.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses `true` beside a [resolver](Self::dns_resolver) or [cache](Self::dns_cache) that was
    /// set, and beside a Unix domain socket.
    pub fn hickory_dns(self, enable: bool) -> Self {
        Self { hickory: Some(enable), ..self }
    }

    /// Has names looked up by the platform, not by hickory-resolver: [`hickory_dns(false)`](Self::hickory_dns).
    pub fn no_hickory_dns(self) -> Self {
        self.hickory_dns(false)
    }

    /// Sets [`hickory_dns`](Self::hickory_dns), under its older name.
    #[doc(hidden)]
    pub fn trust_dns(self, enable: bool) -> Self {
        self.hickory_dns(enable)
    }

    /// Turns [`hickory_dns`](Self::hickory_dns) off, under its older name.
    #[doc(hidden)]
    pub fn no_trust_dns(self) -> Self {
        self.hickory_dns(false)
    }

    /// Sets the address of a name, for which the resolver is then not asked. A name with several addresses is set by
    /// [`resolve_to_addrs`](Self::resolve_to_addrs).
    ///
    /// If the URL names a port other than the usual one of its scheme, that port is connected to. Otherwise it is the
    /// port of `address`, or the usual one if that is 0. The `Host` header and TLS keep the name of the URL.
    ///
    /// The names of proxies have such addresses too. A proxy that looks names up by itself does not see them.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses it beside a Unix domain socket.
    ///
    /// ```
    /// let staging = "192.0.2.7:8443".parse()?;
    /// let client = speeddial::Client::builder().resolve("api.example.com", staging).build();
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn resolve(self, domain: &str, address: SocketAddr) -> Self {
        self.resolve_to_addrs(domain, &[address])
    }

    /// Sets the addresses of a name, like [`resolve`](Self::resolve), in place of those that were set for it before. The
    /// client races them as it races those of DNS.
    pub fn resolve_to_addrs(mut self, domain: &str, addresses: &[SocketAddr]) -> Self {
        self.connect.pins.set(domain, addresses);
        self
    }

    /// Refuses a choice of the resolver that another setting leaves without effect.
    pub(super) fn check_resolver(&self) -> Result<()> {
        let wants_hickory = self.hickory == Some(true);
        if wants_hickory && self.resolver.is_some() {
            let what = "build a client: hickory_dns(true) has no effect beside another resolver";
            return Err(Error::refused_request(what));
        }
        if self.connect.unix_socket.is_some() {
            let given = self.resolver.as_ref().map(|(name, _)| *name);
            if let Some(name) = given.or(wants_hickory.then_some("hickory_dns(true)")) {
                let what = format!("build a client: {name} has no effect beside a Unix domain socket");
                return Err(Error::refused_request(what));
            }
        }
        Ok(())
    }

    /// Sets the resolver. `name` is the setting that does so.
    fn with_resolver(mut self, name: &'static str, resolver: CachedResolver) -> Self {
        if let Some((other, _)) = &self.resolver
            && *other != name
        {
            let what = format!("build a client: {name} would replace {other}; choose one of them");
            self.invalid.get_or_insert(Error::refused_request(what));
        }
        self.resolver = Some((name, resolver));
        self
    }
}
