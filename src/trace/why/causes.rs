//! The causes for which a call takes time, with their names and advice.

use std::fmt;

/// The cause for which a call took time, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Cause {
    /// An earlier request of the call was retried, as the retry policy says.
    Retried,
    /// An earlier request of the call was sent again, because its connection was gone or its token was rejected.
    Resent,
    /// The response of an earlier request of the call was a redirect.
    Redirected,
    /// The first attempt at a request was not answered, and a second one was sent.
    HedgedLate,
    /// The program's own code around requests took its time: layers, functions of `before_attempt`, observers.
    OwnCode,
    /// The call waited before a retry or a resend.
    Backoff,
    /// The call waited for a token.
    TokenWait,
    /// The host had all the connections it may have, and all were in use.
    HostConnectionsInUse,
    /// The pool had all the connections it may have.
    PoolConnectionsInUse,
    /// All streams of the host's HTTP/2 connections were in use.
    StreamsInUse,
    /// Enough connections to the host were being opened.
    DialsInProgress,
    /// The process or the system had no descriptor left.
    NoDescriptors,
    /// This machine had no local port left.
    NoPorts,
    /// The server asked for fewer requests (ENHANCE_YOUR_CALM).
    EnhanceYourCalm,
    /// A connection was being opened; the call got one that another request released.
    AwaitedRelease,
    /// The call waited while its connection could not be opened yet, or was opened in vain.
    AwaitedDial,
    /// A DNS server did not answer, and another one did.
    DnsServerSilent,
    /// Names of the search list were asked for that do not exist.
    DnsSearched,
    /// No new answer came from DNS, and an expired one was used.
    DnsStale,
    /// The answer for one address family came, and that for the other one was waited for.
    DnsFamilyLate,
    /// The answer was not in the cache.
    DnsQueried,
    /// DNS gave no address.
    DnsFailed,
    /// The first packet to an address was lost, and sent again.
    LostSyn,
    /// An address did not answer; another one connected.
    AddressSilent,
    /// An address could not be connected to; another one could.
    AddressFailed,
    /// No address could be connected to.
    NoAddressConnected,
    /// An address took its time to connect.
    ConnectSlow,
    /// The proxy took its time to connect to the origin.
    ProxySlow,
    /// The TLS handshake with an address failed; another one was dialled.
    TlsRetried,
    /// The TLS handshake took its time.
    TlsHandshake,
    /// The connection was new because the server closes each connection after an answer.
    ServerClosesEach,
    /// The connection was new because the server had closed an idle one.
    ServerClosedIdle,
    /// The connection was new because the server had closed another one that was in use.
    ServerClosed,
    /// The connection was new because the idle timeout had passed.
    IdleTimeout,
    /// The connection was new because the client had closed another one for a reason that is neither its idle timeout nor the server.
    ClientClosed,
    /// The connection was new because all open ones were in use.
    AllInUse,
    /// The connection was the first one to the host.
    FirstConnection,
    /// The program took its time to provide the request's body.
    RequestBodyLate,
    /// The server or the network took its time to take the request.
    SendSlow,
    /// The server took its time to answer.
    ServerSlow,
    /// The server had not answered when the call ended.
    NoAnswer,
    /// The response was here before the program read it, or a timer of the call was due before the program acted on it: its runtime was
    /// busy.
    RuntimeBusy,
    /// The runtime was busy because a processor quota stopped the program.
    CpuQuota,
    /// The server says in which of its parts the time went (Server-Timing).
    ServerTiming,
    /// The program took its time to read the response's body.
    ReaderSlow,
    /// The response's body took its time to arrive.
    BodySlow,
}

impl Cause {
    /// All causes.
    pub const ALL: &[Self] = &[
        Self::Retried,
        Self::Resent,
        Self::Redirected,
        Self::HedgedLate,
        Self::OwnCode,
        Self::Backoff,
        Self::TokenWait,
        Self::HostConnectionsInUse,
        Self::PoolConnectionsInUse,
        Self::StreamsInUse,
        Self::DialsInProgress,
        Self::NoDescriptors,
        Self::NoPorts,
        Self::EnhanceYourCalm,
        Self::AwaitedRelease,
        Self::AwaitedDial,
        Self::DnsServerSilent,
        Self::DnsSearched,
        Self::DnsStale,
        Self::DnsFamilyLate,
        Self::DnsQueried,
        Self::DnsFailed,
        Self::LostSyn,
        Self::AddressSilent,
        Self::AddressFailed,
        Self::NoAddressConnected,
        Self::ConnectSlow,
        Self::ProxySlow,
        Self::TlsRetried,
        Self::TlsHandshake,
        Self::ServerClosesEach,
        Self::ServerClosedIdle,
        Self::ServerClosed,
        Self::IdleTimeout,
        Self::ClientClosed,
        Self::AllInUse,
        Self::FirstConnection,
        Self::RequestBodyLate,
        Self::SendSlow,
        Self::ServerSlow,
        Self::NoAnswer,
        Self::RuntimeBusy,
        Self::CpuQuota,
        Self::ServerTiming,
        Self::ReaderSlow,
        Self::BodySlow,
    ];

    /// Returns the cause's name in lower case, with hyphens.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retried => "retried",
            Self::Resent => "resent",
            Self::Redirected => "redirected",
            Self::OwnCode => "own-code",
            Self::HedgedLate => "hedged-late",
            Self::Backoff => "backoff",
            Self::TokenWait => "token-wait",
            Self::HostConnectionsInUse => "host-connections-in-use",
            Self::PoolConnectionsInUse => "pool-connections-in-use",
            Self::StreamsInUse => "streams-in-use",
            Self::DialsInProgress => "dials-in-progress",
            Self::NoDescriptors => "no-descriptors",
            Self::NoPorts => "no-ports",
            Self::EnhanceYourCalm => "enhance-your-calm",
            Self::AwaitedRelease => "awaited-release",
            Self::AwaitedDial => "awaited-dial",
            Self::DnsServerSilent => "dns-server-silent",
            Self::DnsSearched => "dns-searched",
            Self::DnsStale => "dns-stale",
            Self::DnsFamilyLate => "dns-family-late",
            Self::DnsQueried => "dns-queried",
            Self::DnsFailed => "dns-failed",
            Self::LostSyn => "lost-syn",
            Self::AddressSilent => "address-silent",
            Self::AddressFailed => "address-failed",
            Self::NoAddressConnected => "no-address-connected",
            Self::ConnectSlow => "connect-slow",
            Self::ProxySlow => "proxy-slow",
            Self::TlsRetried => "tls-retried",
            Self::TlsHandshake => "tls-handshake",
            Self::ServerClosesEach => "server-closes-each",
            Self::ServerClosedIdle => "server-closed-idle",
            Self::ServerClosed => "server-closed",
            Self::IdleTimeout => "idle-timeout",
            Self::ClientClosed => "client-closed",
            Self::AllInUse => "all-in-use",
            Self::FirstConnection => "first-connection",
            Self::RequestBodyLate => "request-body-late",
            Self::SendSlow => "send-slow",
            Self::ServerSlow => "server-slow",
            Self::NoAnswer => "no-answer",
            Self::RuntimeBusy => "runtime-busy",
            Self::CpuQuota => "cpu-quota",
            Self::ServerTiming => "server-timing",
            Self::ReaderSlow => "reader-slow",
            Self::BodySlow => "body-slow",
        }
    }

    /// Returns advice for the caller, if something can be done about the cause.
    pub(super) fn advice(self) -> Option<&'static str> {
        Some(match self {
            Self::HostConnectionsInUse => "raise max_connections_per_host or lower concurrency",
            Self::PoolConnectionsInUse => "raise max_connections or lower concurrency",
            Self::StreamsInUse => "raise max_http2_connections_per_host or lower concurrency",
            Self::DialsInProgress => "raise max_dials_per_host, or open connections ahead with warm_up",
            Self::NoDescriptors => "raise the limit of descriptors (ulimit -n) or lower max_connections",
            Self::NoPorts => "widen net.ipv4.ip_local_port_range, or keep connections open",
            Self::EnhanceYourCalm => "send fewer requests to it",
            Self::AwaitedRelease | Self::FirstConnection => "open connections ahead with warm_up",
            Self::OwnCode => "look at layers, before_attempt functions and observers",
            Self::TokenWait => "have the token refreshed before it expires",
            Self::DnsServerSilent => "fix the server or take it out of the configuration",
            Self::DnsSearched => "write the name with a dot at its end, or lower ndots",
            Self::DnsFamilyLate => "fix the server, or look up one family only",
            Self::AddressSilent | Self::AddressFailed => "fix the address or take it out of DNS",
            Self::ServerClosesEach => "turn keep-alive on at the server",
            Self::ServerClosedIdle => "set idle_timeout below the server's",
            Self::IdleTimeout => "raise idle_timeout",
            Self::AllInUse => "open connections ahead with warm_up",
            Self::RuntimeBusy => "look for code that blocks the runtime's threads, and at the limit of processor time",
            Self::CpuQuota => "raise the processor quota, or have fewer threads",
            Self::ReaderSlow => "read the body as soon as the response is there",
            Self::RequestBodyLate => "have the body ready before the request is sent",
            _ => return None,
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
