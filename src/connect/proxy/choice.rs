//! A request's own choice of a proxy, in place of the client's proxies.

use std::hash::{Hash, Hasher};

use super::server::ProxyServer;
use super::{Proxies, Proxy};
use crate::connect::error::ProxyError;
use crate::origin::Origin;

/// A request's own choice of a proxy. Choices are equal if their proxies are: server, protocol, credentials, and the
/// requests that they are for.
pub(crate) struct ProxyChoice {
    /// The proxy; `None` to use none.
    proxy: Option<Proxy>,
    /// The rules of `proxy`, by which the server for a request is found.
    rules: Proxies,
}

impl ProxyChoice {
    /// Creates the choice of no proxy.
    pub(crate) fn none() -> Self {
        Self { proxy: None, rules: Proxies::None }
    }

    /// Creates the choice of `proxy`, for the requests that it applies to. Others use no proxy.
    pub(crate) fn through(proxy: Proxy) -> Self {
        let mut rules = Proxies::None;
        rules.add(proxy.clone());
        Self { proxy: Some(proxy), rules }
    }

    /// Returns true if no request uses a proxy.
    pub(in crate::connect) fn is_none(&self) -> bool {
        self.proxy.is_none()
    }

    /// Returns true if it is known that requests to `origin` go out without a proxy.
    pub(in crate::connect) fn surely_none_for(&self, origin: &Origin) -> bool {
        self.rules.surely_none_for(origin)
    }

    /// Returns the proxy for requests to `origin`; `None` if they go out without one.
    pub(in crate::connect) fn find(&self, origin: &Origin) -> Result<Option<ProxyServer>, ProxyError> {
        self.rules.find(origin)
    }
}

impl PartialEq for ProxyChoice {
    fn eq(&self, other: &Self) -> bool {
        self.proxy == other.proxy
    }
}

impl Eq for ProxyChoice {}

impl Hash for ProxyChoice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.proxy.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::NoProxy;

    fn through(url: &str) -> ProxyChoice {
        ProxyChoice::through(Proxy::for_all(url).unwrap())
    }

    #[test]
    fn choices_are_equal_if_server_protocol_credentials_and_rules_are() {
        let proxy = || Proxy::for_all("http://proxy.test").unwrap();
        let without = |hosts| ProxyChoice::through(proxy().no_proxy(NoProxy::from_string(hosts)));
        assert!(through("http://me:secret@proxy.test:80") == through("me:secret@PROXY.test"));
        assert!(without("a.test, b.test") == without("a.test,b.test"));
        assert!(ProxyChoice::none() == ProxyChoice::none());
        let different = [
            through("http://proxy.test"),
            through("http://proxy.test:81"),
            through("http://other.test"),
            through("http://me@proxy.test"),
            through("http://me:secret@proxy.test"),
            through("http://me:other@proxy.test"),
            through("socks5://proxy.test:80"),
            through("socks5h://proxy.test:80"),
            through("socks5h://me:secret@proxy.test:80"),
            through("socks5h://me:other@proxy.test:80"),
            ProxyChoice::through(Proxy::for_http("http://proxy.test").unwrap()),
            ProxyChoice::through(Proxy::for_https("http://proxy.test").unwrap()),
            without("a.test"),
            without("a.test:81"),
            ProxyChoice::none(),
        ];
        for (index, one) in different.iter().enumerate() {
            let equal: Vec<_> = (0..different.len()).filter(|other| different[*other] == *one).collect();
            assert_eq!(equal, [index]);
        }
    }
}
