//! resolv.conf, as resolv.conf(5) describes it and glibc reads it. A core: it is given the text.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use hickory_resolver::proto::rr::Name;

/// The contents of resolv.conf. Settings that the file does not have are left to the resolver.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::dns::hickory) struct ResolvConf {
    pub(in crate::dns::hickory) nameservers: Vec<Nameserver>,
    /// The search list of the last `search` or `domain` line; `None` where there is no such line.
    pub(in crate::dns::hickory) search: Option<Vec<Name>>,
    pub(in crate::dns::hickory) options: Options,
    /// The words that cannot be understood, and are left out.
    pub(in crate::dns::hickory) skipped: Vec<Skipped>,
}

/// A server's address, and the number or name of the network interface that leads to it.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::dns::hickory) struct Nameserver {
    pub(in crate::dns::hickory) line: usize,
    pub(in crate::dns::hickory) ip: IpAddr,
    pub(in crate::dns::hickory) scope: Option<Box<str>>,
}

impl fmt::Display for Nameserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope {
            Some(scope) => write!(f, "{}%{scope}", self.ip),
            None => write!(f, "{}", self.ip),
        }
    }
}

/// A word of resolv.conf that cannot be understood.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Skipped {
    /// The number of the line, counted from 1.
    pub(crate) line: usize,
    pub(crate) word: Box<str>,
}

/// The options that this resolver follows. The numbers and times are `None` if the file does not have them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Options {
    /// The number of dots from which on a name is asked for as it is before it is asked for with a suffix.
    pub(crate) ndots: Option<usize>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) attempts: Option<usize>,
    pub(crate) rotate: bool,
    pub(crate) use_vc: bool,
    pub(crate) edns0: bool,
    pub(crate) no_aaaa: bool,
    pub(crate) single_request: bool,
    /// True if a name without dots is not asked for as it is.
    pub(crate) no_tld_query: bool,
}

/// The upper limits in glibc of `ndots`, of `timeout` in seconds, and of `attempts`.
const MAX_NDOTS: usize = 15;
const MAX_TIMEOUT_SECS: u64 = 30;
const MAX_ATTEMPTS: usize = 5;

/// Reads the file, and notes the words that cannot be understood. Lines and options that this resolver does not follow are
/// passed over.
pub(in crate::dns::hickory) fn parse(text: &[u8]) -> ResolvConf {
    let mut conf = ResolvConf::default();
    for (number, line) in (1..).zip(String::from_utf8_lossy(text).lines()) {
        let mut words = line.split(['#', ';']).next().unwrap_or_default().split_whitespace();
        let keyword = words.next();
        let words: Vec<_> = words.map(|word| Word { line: number, text: word }).collect();
        match (keyword, &words[..]) {
            (Some("nameserver"), [address, ..]) => conf.add_nameserver(*address),
            (Some("domain"), [suffix, ..]) => conf.set_search(&[*suffix]),
            (Some("search"), [_, ..]) => conf.set_search(&words),
            (Some("options"), options) => options.iter().for_each(|option| conf.set_option(*option)),
            _ => {}
        }
    }
    conf
}

/// A word with the number of its line.
#[derive(Clone, Copy)]
struct Word<'a> {
    line: usize,
    text: &'a str,
}

impl ResolvConf {
    fn skip(&mut self, word: Word<'_>) {
        self.skipped.push(Skipped { line: word.line, word: word.text.into() });
    }

    fn add_nameserver(&mut self, word: Word<'_>) {
        let (ip, scope) = match word.text.split_once('%') {
            Some((ip, scope)) => (ip, Some(scope.into())),
            None => (word.text, None),
        };
        match ip.parse() {
            Ok(IpAddr::V4(_)) if scope.is_some() => self.skip(word),
            Ok(ip) => self.nameservers.push(Nameserver { line: word.line, ip: specified(ip), scope }),
            Err(_) => self.skip(word),
        }
    }

    fn set_search(&mut self, words: &[Word<'_>]) {
        let mut search = Vec::new();
        for word in words {
            match suffix(word.text) {
                Some(suffix) => search.push(suffix),
                None => self.skip(*word),
            }
        }
        self.search = Some(search);
    }

    fn set_option(&mut self, word: Word<'_>) {
        let (key, value) = word.text.split_once(':').unwrap_or((word.text, ""));
        let options = &mut self.options;
        match (key, value.parse::<u32>()) {
            ("ndots" | "timeout" | "attempts", Err(_)) => self.skip(word),
            ("ndots", Ok(dots)) => options.ndots = Some(MAX_NDOTS.min(dots as usize)),
            ("timeout", Ok(seconds)) => {
                options.timeout = Some(Duration::from_secs(u64::from(seconds).clamp(1, MAX_TIMEOUT_SECS)));
            }
            ("attempts", Ok(attempts)) => options.attempts = Some((attempts as usize).clamp(1, MAX_ATTEMPTS)),
            ("rotate", _) => options.rotate = true,
            ("use-vc", _) => options.use_vc = true,
            ("edns0", _) => options.edns0 = true,
            ("no-aaaa", _) => options.no_aaaa = true,
            ("single-request", _) => options.single_request = true,
            ("no-tld-query" | "no_tld_query", _) => options.no_tld_query = true,
            _ => {}
        }
    }
}

/// Replaces the unspecified address of a server by the loopback address, as glibc does.
fn specified(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(any) if any.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(any) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

/// Reads a suffix of a search list. As in glibc, a dot in front of it is passed over, and a dot alone is the root.
pub(in crate::dns::hickory) fn suffix(word: &str) -> Option<Name> {
    let without_dot = word.strip_prefix('.').filter(|rest| !rest.is_empty());
    let mut name = crate::dns::hickory::servers::parse(without_dot.unwrap_or(word)).ok()?;
    name.set_fqdn(true);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> ResolvConf {
        parse(text.as_bytes())
    }

    fn search(text: &str) -> Option<Vec<String>> {
        Some(read(text).search?.iter().map(ToString::to_string).collect())
    }

    fn skipped(text: &str) -> Vec<(usize, String)> {
        read(text).skipped.into_iter().map(|skipped| (skipped.line, skipped.word.into())).collect()
    }

    #[test]
    fn a_file_without_settings_leaves_all_to_the_resolver() {
        for text in
            ["", "\n\n", "# nameserver 192.0.2.1\n;search a.test", "nameserver\nsearch\ndomain\noptions", "\u{1}"]
        {
            assert_eq!(read(text), ResolvConf::default(), "{text:?}");
        }
    }

    #[test]
    fn servers_are_addresses_with_or_without_a_scope() {
        let conf = read(
            "nameserver 192.0.2.1 # the first\n\tnameserver\tfe80::1%eth0\nnameserver 2001:db8::1\nnameserver 0.0.0.0\n\
             nameserver ::\nnameserver 192.0.2.1%eth0\nnameserver dns.test\nnameserver 192.0.2.300\n",
        );
        let servers: Vec<_> = conf.nameservers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.1", "fe80::1%eth0", "2001:db8::1", "127.0.0.1", "::1"]);
        let skipped: Vec<_> = conf.skipped.iter().map(|skipped| (skipped.line, &*skipped.word)).collect();
        assert_eq!(skipped, [(6, "192.0.2.1%eth0"), (7, "dns.test"), (8, "192.0.2.300")]);
    }

    #[test]
    fn the_last_search_or_domain_line_counts() {
        assert_eq!(search("nameserver 192.0.2.1"), None);
        let cases: [(&str, &[&str]); 6] = [
            ("search a.test b.test.", &["a.test.", "b.test."]),
            ("search a.test\ndomain b.test c.test", &["b.test."]),
            ("domain a.test\nsearch b.test c.test\nsearch", &["b.test.", "c.test."]),
            ("search .", &["."]),
            ("search .lan my_net.test", &["lan.", "my_net.test."]),
            ("search a.test # b.test", &["a.test."]),
        ];
        for (text, expected) in cases {
            assert_eq!(search(text).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_malformed_word_is_left_out() {
        let long = "a".repeat(70);
        let text = format!("nameserver 192.0.2.1\nsearch x..y a.test {long} a..b a,b b.test\n");
        assert_eq!(search(&text).unwrap(), ["a.test.", "b.test."]);
        let words = ["x..y", &long, "a..b", "a,b"].map(|word| (2, word.to_owned()));
        assert_eq!(skipped(&text), words);
        assert_eq!(read(&text).nameservers.len(), 1);
        assert_eq!(search("search x..y").unwrap(), [""; 0], "a list without a valid word is empty");
        assert_eq!(parse(b"search \xff\xfe a.test\n").search.unwrap().len(), 1);
    }

    #[test]
    fn options_are_read_within_the_bounds_of_glibc_and_unknown_ones_are_passed_over() {
        let options =
            read("options ndots:5 timeout:1 rotate\noptions attempts:3 use-vc edns0 trust-ad inet6\n").options;
        let said = (options.ndots, options.timeout, options.attempts);
        assert_eq!(said, (Some(5), Some(Duration::from_secs(1)), Some(3)));
        assert!(options.rotate && options.use_vc && options.edns0);
        assert!(!options.no_aaaa && !options.single_request && !options.no_tld_query);
        let options = read("options no-aaaa single-request no-tld-query ndots:99 timeout:0 attempts:0").options;
        assert!(options.no_aaaa && options.single_request && options.no_tld_query);
        let said = (options.ndots, options.timeout, options.attempts);
        assert_eq!(said, (Some(15), Some(Duration::from_secs(1)), Some(1)));
        let text = "options ndots:many timeout:\noptions attempts:-1 ndots:2";
        assert_eq!(read(text).options, Options { ndots: Some(2), ..Options::default() });
        let words = [(1, "ndots:many"), (1, "timeout:"), (2, "attempts:-1")];
        assert_eq!(skipped(text), words.map(|(line, word)| (line, word.to_owned())));
    }
}
