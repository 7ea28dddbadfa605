//! A problem, and the advice for it.

use std::fmt;

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
