//! The hosts file.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::dns::Family;

/// The names of a hosts file and their addresses.
#[derive(Debug, Default)]
pub(in crate::dns::hickory) struct HostsFile(HashMap<Box<str>, Vec<IpAddr>>);

impl HostsFile {
    /// Reads the lines that are well formed, and leaves out the others.
    pub(in crate::dns::hickory) fn parse(text: &[u8]) -> Self {
        let mut table: HashMap<Box<str>, Vec<IpAddr>> = HashMap::new();
        for line in String::from_utf8_lossy(text).lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(ip) = words.next().and_then(|word| word.parse().ok()) else { continue };
            for name in words {
                let known = table.entry(canonical(name).into()).or_default();
                if !known.contains(&ip) {
                    known.push(ip);
                }
            }
        }
        Self(table)
    }

    /// Returns a name's addresses in one family, which may be none. Returns `None` if the file does not list the name in either
    /// family.
    pub(in crate::dns::hickory) fn lookup(&self, name: &str, family: Family) -> Option<Vec<IpAddr>> {
        let known = self.0.get(&*canonical(name))?;
        Some(known.iter().copied().filter(|ip| Family::of(*ip) == family).collect())
    }
}

/// Returns the loopback address for `localhost` and the names below it (RFC 6761 §6.3).
pub(in crate::dns::hickory) fn localhost(name: &str, family: Family) -> Option<IpAddr> {
    let name = canonical(name);
    if name != "localhost" && !name.ends_with(".localhost") {
        return None;
    }
    Some(match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    })
}

fn canonical(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Family::{V4, V6};

    #[test]
    fn comments_and_malformed_lines_are_left_out() {
        let hosts = HostsFile::parse(
            b"127.0.0.1 localhost Api.Test # alias\n::1\tlocalhost\n\n# 10.0.0.1 no.test\nbroken no.test\n10.0.0.2 api.test. api.test\n",
        );
        let v4 = |last: [u8; 4]| IpAddr::from(last);
        assert_eq!(hosts.lookup("API.test.", V4), Some(vec![v4([127, 0, 0, 1]), v4([10, 0, 0, 2])]));
        assert_eq!(hosts.lookup("api.test", V6), Some(vec![]), "a name listed in one family is known in both");
        assert_eq!(hosts.lookup("localhost", V6), Some(vec![Ipv6Addr::LOCALHOST.into()]));
        assert_eq!(hosts.lookup("no.test", V4), None);
    }

    #[test]
    fn localhost_needs_no_file() {
        assert_eq!(localhost("LocalHost.", V4), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(localhost("a.localhost", V6), Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(localhost("notlocalhost", V4), None);
    }
}
