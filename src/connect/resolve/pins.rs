//! Addresses that the user has set for names, in place of those that DNS would give.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::dns::comparable;
use crate::origin::{Host, Origin};

/// The names with addresses of the user. The resolver is not asked for them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pins(HashMap<Box<str>, Vec<SocketAddr>>);

impl Pins {
    /// Sets the addresses of a name, in place of those set before.
    pub(crate) fn set(&mut self, name: &str, addresses: &[SocketAddr]) {
        self.0.insert(comparable(name).into(), addresses.to_vec());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the addresses of the name `host`; `None` if the resolver has to be asked, or if `host` is an address.
    pub(in crate::connect) fn of(&self, host: &Host) -> Option<&[SocketAddr]> {
        match host {
            Host::Name(name) if !self.is_empty() => self.0.get(&*comparable(name)).map(Vec::as_slice),
            _ => None,
        }
    }

    /// Returns the addresses of `target` with the ports to connect to. Empty if the resolver has to be asked.
    ///
    /// The port of a URL goes before that of an address, as in reqwest. A URL that names the scheme's usual port is the
    /// same as one without a port.
    pub(in crate::connect) fn sockets(&self, target: &Origin) -> Vec<SocketAddr> {
        with_ports(self.of(target.host()).unwrap_or_default(), target)
    }
}

/// Returns addresses with the ports to connect to: that of the URL, if it names one, or else their own.
pub(in crate::connect) fn with_ports(addresses: &[SocketAddr], target: &Origin) -> Vec<SocketAddr> {
    let port_of = |address: &SocketAddr| match address.port() {
        0 => target.port(),
        _ if !target.has_default_port() => target.port(),
        port => port,
    };
    let with_port = |mut address: SocketAddr, port: u16| {
        address.set_port(port);
        address
    };
    addresses.iter().map(|address| with_port(*address, port_of(address))).collect()
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    fn origin(url: &str) -> Origin {
        Origin::from_url(&Url::parse(url).unwrap()).unwrap()
    }

    #[test]
    fn the_port_of_a_url_goes_before_that_of_an_address() {
        let mut pins = Pins::default();
        pins.set("local.test", &["[fe80::1%7]:0".parse().unwrap()]);
        pins.set("API.test", &["192.0.2.1:0".parse().unwrap(), "192.0.2.2:8080".parse().unwrap()]);
        let sockets = |url| pins.sockets(&origin(url)).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(sockets("http://api.test/"), ["192.0.2.1:80", "192.0.2.2:8080"]);
        assert_eq!(sockets("http://api.test:80/"), ["192.0.2.1:80", "192.0.2.2:8080"]);
        assert_eq!(sockets("http://api.test:81/"), ["192.0.2.1:81", "192.0.2.2:81"]);
        assert_eq!(sockets("http://api.test./"), ["192.0.2.1:80", "192.0.2.2:8080"]);
        assert_eq!(sockets("http://local.test/"), ["[fe80::1%7]:80"]);
        assert!(sockets("http://other.test/").is_empty() && sockets("http://192.0.2.1/").is_empty());
    }

    #[test]
    fn the_last_addresses_of_a_name_count() {
        let mut pins = Pins::default();
        pins.set("bücher.test.", &["192.0.2.1:0".parse().unwrap()]);
        pins.set("xn--bcher-kva.test", &["[2001:db8::1]:1".parse().unwrap(), "[2001:db8::1]:2".parse().unwrap()]);
        let sockets = pins.sockets(&origin("http://bücher.test/"));
        assert_eq!(sockets.iter().map(SocketAddr::port).collect::<Vec<_>>(), [1, 2]);
        assert!(sockets.iter().all(SocketAddr::is_ipv6));
    }
}
