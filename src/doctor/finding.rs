//! A problem, and the advice for it; the files that names come from; steps under time limits.

use std::fmt::{self, Display};
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use crate::clock::{before, now};
use crate::dns::{Options, Reading, ResolvConfSettings};
use crate::redact::line;

/// Something that is wrong with the way to an origin.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Finding {
    pub(super) problem: Problem,
    pub(super) text: String,
    pub(super) advice: String,
}

getters!(Finding {
    /// The problem, for programs.
    problem: Problem = copy,
    /// The problem, in one or two sentences.
    text: &str = borrow,
    /// Advice: what solves it, in one or two sentences.
    advice: &str = borrow,
});

impl Finding {
    pub(super) fn new(problem: Problem, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { problem, text: text.into(), advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.text, self.advice)
    }
}

/// The problems that a report can find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Problem {
    /// resolv.conf cannot be read.
    ResolvConfUnreadable,
    /// resolv.conf lists no server, and none answers on this machine.
    NoDnsServer,
    /// The hosts file cannot be read.
    HostsUnreadable,
    /// resolv.conf has words that cannot be understood.
    ResolvConfWord,
    /// A DNS server answers nothing.
    DnsServerSilent,
    /// A DNS server's port is closed, or there is no route to it.
    DnsServerUnreachable,
    /// A DNS server answers with a failure, such as SERVFAIL.
    DnsServerFails,
    /// A DNS server refuses to answer this client (REFUSED).
    DnsServerRefuses,
    /// A DNS server answers by UDP and not by TCP, so that long answers are lost.
    DnsTcpFails,
    /// A DNS server answers by TCP and not by UDP.
    DnsUdpFails,
    /// A DNS server answers about one address family and not about the other.
    DnsFamilyUnanswered,
    /// One DNS server knows addresses for the name, and another one says that there are none.
    DnsServersDisagree,
    /// The name does not exist.
    NameDoesNotExist,
    /// The name exists and has no addresses that the client may use.
    NameHasNoAddresses,
    /// The lookup failed for another reason.
    LookupFails,
    /// An address refuses connections.
    AddressRefuses,
    /// An address does not answer.
    AddressSilent,
    /// This machine has no route to an address.
    AddressWithoutRoute,
    /// A rule of the client excludes an address.
    AddressNotAllowed,
    /// An address cannot be connected to for another reason.
    AddressFails,
    /// An address does not answer the TLS handshake, or the handshake fails.
    TlsFails,
    /// An address does not speak TLS on the port of an `https` URL.
    NoTls,
    /// The certificate has expired.
    CertificateExpired,
    /// The certificate expires soon.
    CertificateExpiresSoon,
    /// The certificate is not valid yet.
    CertificateNotYetValid,
    /// The certificate is for other names.
    CertificateForOtherName,
    /// The certificate is signed by an authority that the client does not trust.
    CertificateFromUnknownIssuer,
    /// The certificate is refused for another reason.
    CertificateRefused,
    /// The client sends requests to `https` URLs alone.
    HttpsOnly,
    /// The server speaks HTTP/2 alone, and the client does not offer it.
    NoHttp1,
    /// The server rejects the client's certificate, or the lack of one.
    ClientCertificate,
    /// The client speaks HTTP/2 alone, and the server refuses it, or does not choose it by ALPN and then fails.
    NoHttp2,
    /// The URL of the proxy is not valid.
    ProxyInvalid,
    /// The proxy cannot be connected to.
    ProxyUnreachable,
    /// The proxy asks for credentials, or refuses those that it gets.
    ProxyNeedsCredentials,
    /// The proxy does not connect to the origin, or answers each request with an error of a gateway (502, 503, 504).
    ProxyRefuses,
    /// The Unix domain socket does not exist, or does not accept connections.
    UnixSocketUnreachable,
    /// No response came to a request.
    RequestFails,
    /// The server closes the connection after each response.
    ConnectionNotKept,
    /// The clocks of this machine and of the server differ.
    ClockSkew,
    /// A lookup took 100 ms or more.
    DnsSlow,
    /// An address takes much longer to connect than the fastest one.
    AddressSlow,
    /// The TLS handshake takes much longer than the ways to the server and back.
    TlsSlow,
}

impl Problem {
    /// Returns true for what works and takes long.
    pub fn is_slow(self) -> bool {
        matches!(self, Self::DnsSlow | Self::AddressSlow | Self::TlsSlow)
    }
}

/// The advice for a server that rejects the client's certificate, or the lack of one.
#[cfg(feature = "__tls")]
pub(crate) const CERTIFICATE_ADVICE: &str = "Give the client a certificate of an authority that the server trusts, which is meant for \
                                             clients and has not expired (`ClientBuilder::identity`), or let the server accept clients \
                                             without one.";

/// The most items of a list that are named.
const MOST_NAMED: usize = 3;

/// Joins items as a sentence does: `a`, `a and b`, `a, b and c`, `a, b, c and 2 more`. Each is named once.
pub(crate) fn list(items: impl IntoIterator<Item = impl Display>) -> String {
    let mut texts: Vec<String> = Vec::new();
    for item in items {
        let text = item.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    if texts.len() > MOST_NAMED {
        let more = format!("{} more", texts.len() - MOST_NAMED);
        texts.truncate(MOST_NAMED);
        texts.push(more);
    }
    match texts.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// Returns the form of a word that goes with a number of subjects: `refuses` or `refuse`.
pub(crate) fn verb(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// Returns a time in its largest unit.
pub(crate) fn roughly(time: Duration) -> String {
    let seconds = time.as_secs();
    let (count, unit) = match seconds {
        0..=119 => (seconds, "second"),
        120..=7_199 => (seconds / 60, "minute"),
        7_200..=172_799 => (seconds / 3_600, "hour"),
        172_800..=63_115_199 => (seconds / 86_400, "day"),
        _ => (seconds / 31_557_600, "year"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// The longest that a step takes, unless the client's connect timeout is shorter.
const LONGEST_STEP: Duration = Duration::from_secs(5);
/// The longest that a request takes.
pub(super) const LONGEST_REQUEST: Duration = Duration::from_secs(10);

/// Returns the time limit of a step for a client with this connect timeout.
pub(super) fn step_limit(connect_timeout: Duration) -> Duration {
    connect_timeout.min(LONGEST_STEP)
}

/// Runs a step for at most `limit`. Returns the time that it took, and its result; `None` if it was not over by then.
pub(super) async fn timed<T>(limit: Duration, step: impl Future<Output = T>) -> (Duration, Option<T>) {
    let start = now();
    let outcome = before(start.checked_add(limit), pin!(step)).await;
    (now() - start, outcome)
}

/// The most lines of a file that are reported.
const MAX_LINES: usize = 32;

/// The configuration files of [`HickoryResolver`](crate::dns::HickoryResolver).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FileKind {
    /// The file with the DNS servers and the options: `/etc/resolv.conf`.
    ResolvConf,
    /// The file with names and their addresses: `/etc/hosts`.
    Hosts,
}

/// A configuration file as the resolver reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FileRead {
    pub(super) kind: FileKind,
    pub(super) path: String,
    #[cfg_attr(feature = "serde", serde(rename = "elapsed_ns", serialize_with = "crate::trace::serialize_nanos"))]
    pub(super) elapsed: Duration,
    pub(super) error: Option<String>,
    pub(super) settings: Vec<String>,
    pub(super) skipped: Vec<String>,
}

getters!(FileRead {
    /// The use of the file.
    kind: FileKind = copy,
    /// The path of the file.
    path: &str = borrow,
    /// The time that reading it took.
    elapsed: Duration = copy,
    /// The reason why the file cannot be used; `None` if it can.
    error: Option<&str> = as_deref,
    /// The settings that the resolver takes from it: of resolv.conf servers, search list and options, of the hosts file the
    /// addresses of the name. At most 32.
    settings: &[String] = borrow,
    /// The words that cannot be understood and are left out, with their lines. At most 32.
    skipped: &[String] = borrow,
});

impl FileRead {
    pub(super) fn of_resolv_conf(reading: &Reading<ResolvConfSettings>) -> Self {
        let mut file = Self::of(FileKind::ResolvConf, reading);
        if let Ok(read) = &reading.contents {
            file.settings = settings(read);
            let skipped = read.skipped.iter().take(MAX_LINES);
            file.skipped =
                skipped.map(|skipped| format!("line {}: {}", skipped.line, line(&skipped.word, 64))).collect();
        }
        file
    }

    pub(super) fn of_hosts(reading: &Reading<Vec<IpAddr>>, name: &str) -> Self {
        let addresses = reading.contents.iter().flatten().take(MAX_LINES);
        let settings = addresses.map(|ip| format!("{ip} {name}")).collect();
        Self { settings, ..Self::of(FileKind::Hosts, reading) }
    }

    fn of<T>(kind: FileKind, reading: &Reading<T>) -> Self {
        Self {
            kind,
            path: reading.path.display().to_string(),
            elapsed: reading.elapsed,
            error: reading.contents.as_ref().err().cloned(),
            settings: Vec::new(),
            skipped: Vec::new(),
        }
    }
}

/// Returns the settings of resolv.conf, each as a line of it.
fn settings(read: &ResolvConfSettings) -> Vec<String> {
    let mut lines: Vec<_> = read.servers.iter().map(|ip| format!("nameserver {ip}")).collect();
    if !read.suffixes.is_empty() {
        lines.push(format!("search {}", read.suffixes.join(" ")));
    }
    let options = options(&read.options);
    if !options.is_empty() {
        lines.push(format!("options {}", options.join(" ")));
    }
    lines.truncate(MAX_LINES);
    lines
}

fn options(options: &Options) -> Vec<String> {
    let number = |name: &str, value: Option<u64>| value.map(|value| format!("{name}:{value}"));
    let flag = |name: &str, is_set: bool| if is_set { Some(name.to_owned()) } else { None };
    let words = [
        number("ndots", options.ndots.map(|dots| dots as u64)),
        number("timeout", options.timeout.map(|timeout| timeout.as_secs())),
        number("attempts", options.attempts.map(|attempts| attempts as u64)),
        flag("rotate", options.rotate),
        flag("use-vc", options.use_vc),
        flag("edns0", options.edns0),
        flag("no-aaaa", options.no_aaaa),
        flag("single-request", options.single_request),
        flag("no-tld-query", options.no_tld_query),
    ];
    words.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_as_in_a_sentence() {
        assert_eq!(list(["a"]), "a");
        assert_eq!(list(["a", "b", "a"]), "a and b");
        assert_eq!(list(["a", "b", "c"]), "a, b and c");
        assert_eq!(list(["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
        assert_eq!(list(Vec::<String>::new()), "");
    }

    #[test]
    fn times_are_in_their_largest_unit() {
        let texts = [1, 90, 600, 7_200, 200_000, 70_000_000].map(|seconds| roughly(Duration::from_secs(seconds)));
        assert_eq!(texts, ["1 second", "90 seconds", "10 minutes", "2 hours", "2 days", "2 years"]);
    }
}

#[cfg(test)]
mod files_tests {
    use super::*;

    fn reading<T>(path: &str, contents: Result<T, String>) -> Reading<T> {
        Reading { path: path.into(), elapsed: Duration::ZERO, contents }
    }

    #[test]
    fn settings_are_reported_as_lines_of_their_file() {
        let read = ResolvConfSettings {
            servers: vec![[192, 0, 2, 53].into()],
            suffixes: vec!["a.test.".to_owned(), "b.test.".to_owned()],
            options: Options { ndots: Some(2), rotate: true, ..Options::default() },
            skipped: Vec::new(),
        };
        let file = FileRead::of_resolv_conf(&reading("/etc/resolv.conf", Ok(read)));
        assert_eq!((file.kind, &*file.path), (FileKind::ResolvConf, "/etc/resolv.conf"));
        assert_eq!(file.settings, ["nameserver 192.0.2.53", "search a.test. b.test.", "options ndots:2 rotate"]);
        let hosts = FileRead::of_hosts(&reading("/etc/hosts", Ok(vec![[192, 0, 2, 1].into()])), "api");
        assert_eq!((hosts.kind, &hosts.settings[..]), (FileKind::Hosts, &["192.0.2.1 api".to_owned()][..]));
        let gone = FileRead::of_resolv_conf(&reading("/etc/resolv.conf", Err("no such file".to_owned())));
        assert_eq!((gone.error.as_deref(), gone.settings.len()), (Some("no such file"), 0));
    }
}
