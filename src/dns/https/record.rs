//! One HTTPS record (RFC 9460), and the answer to a lookup of them. A core: no more than data and its checks.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::super::name::normalized;

/// An HTTPS record (RFC 9460): another name for an origin, or an endpoint of its service.
///
/// ```
/// use speeddial::dns::HttpsRecord;
///
/// let record = HttpsRecord::service(1, "svc.example.net").with_alpn(["h2"]).with_port(8443);
/// assert_eq!((record.priority(), record.target(), record.port()), (1, Some("svc.example.net"), Some(8443)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpsRecord {
    priority: u16,
    /// `None` for the name that has the record, `.`.
    target: Option<Arc<str>>,
    params: Params,
}

/// The parameters of a record (RFC 9460 §7).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Params {
    alpn: Vec<Box<[u8]>>,
    no_default_alpn: bool,
    port: Option<u16>,
    hints: Vec<IpAddr>,
    ech: Option<Arc<[u8]>>,
    /// The numbers of the keys that a client has to know to use the record.
    mandatory: Vec<u16>,
}

/// A parameter as it is in a message, with the number of its key beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dns) enum Param {
    Mandatory(Vec<u16>),
    Alpn(Vec<Box<[u8]>>),
    NoDefaultAlpn,
    Port(u16),
    Hints(Vec<IpAddr>),
    Ech(Vec<u8>),
    /// A parameter that this crate does not know.
    Unknown,
}

/// A record that is not as RFC 9460 demands. All records of its name are then left out (§2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dns) struct Malformed;

/// The key of the list of mandatory keys, and that of Encrypted Client Hello (RFC 9460 §14.3.2).
const KEY_MANDATORY: u16 = 0;
const KEY_ECH: u16 = 5;
/// The highest key that this crate knows.
const LAST_KNOWN_KEY: u16 = 6;

impl HttpsRecord {
    /// Creates a record in alias mode: the service is the one of the name `target`.
    pub fn alias(target: &str) -> Self {
        Self::new(0, target)
    }

    /// Creates a record in service mode: `target` is the host of an endpoint, or `.` for the name that has the record. Records of
    /// a lower priority are used first. A priority of 0 counts as 1.
    pub fn service(priority: u16, target: &str) -> Self {
        Self::new(priority.max(1), target)
    }

    fn new(priority: u16, target: &str) -> Self {
        let name = normalized(target.trim_end_matches('.'));
        Self { priority, target: (!name.is_empty()).then(|| name.into()), params: Params::default() }
    }

    /// Sets the protocols of the endpoint (RFC 7301), to which HTTP/1.1 is added unless
    /// [`without_default_alpn`](Self::without_default_alpn) is called.
    pub fn with_alpn<P: AsRef<[u8]>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.params.alpn = protocols.into_iter().map(|protocol| protocol.as_ref().into()).collect();
        self
    }

    /// Leaves HTTP/1.1 out of the endpoint's protocols, unless it is listed.
    pub fn without_default_alpn(mut self) -> Self {
        self.params.no_default_alpn = true;
        self
    }

    /// Sets the port of the endpoint. By default that of the origin.
    pub fn with_port(mut self, port: u16) -> Self {
        self.params.port = Some(port);
        self
    }

    /// Sets addresses that may be dialled until those of the target are known.
    pub fn with_hints(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.params.hints = addresses.into_iter().collect();
        self
    }

    /// Sets the keys for Encrypted Client Hello, an `ECHConfigList`.
    pub fn with_ech(mut self, configs: impl Into<Arc<[u8]>>) -> Self {
        self.params.ech = Some(configs.into());
        self
    }

    /// Returns the priority: 0 in alias mode, otherwise the lower ones are used first.
    pub fn priority(&self) -> u16 {
        self.priority
    }

    /// Returns the target, in lower case and without a dot at its end; `None` for the name that has the record.
    pub fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }

    /// Returns the protocols that the record lists.
    pub fn alpn(&self) -> impl Iterator<Item = &[u8]> {
        self.params.alpn.iter().map(|protocol| &**protocol)
    }

    /// Returns the port; `None` for that of the origin.
    pub fn port(&self) -> Option<u16> {
        self.params.port
    }

    /// Returns the addresses that may be dialled until those of the target are known.
    pub fn hints(&self) -> &[IpAddr] {
        &self.params.hints
    }

    /// Returns the keys for Encrypted Client Hello.
    pub fn ech(&self) -> Option<&Arc<[u8]>> {
        self.params.ech.as_ref()
    }

    /// Creates a record from the parameters of a message, in their order.
    ///
    /// # Errors
    /// [`Malformed`] if a list is empty, or if the mandatory keys are not in order, list themselves, or are not in the record
    /// (RFC 9460 §8). The order of the keys and the form of each value are checked by the parser of messages.
    pub(in crate::dns) fn from_params(
        priority: u16,
        target: &str,
        params: impl IntoIterator<Item = (u16, Param)>,
    ) -> Result<Self, Malformed> {
        let mut record = Self::new(priority, target);
        let mut keys = Vec::new();
        let read = &mut record.params;
        for (key, param) in params {
            keys.push(key);
            match param {
                Param::Mandatory(mandatory) => read.mandatory = mandatory,
                Param::Alpn(alpn) if alpn.is_empty() || alpn.iter().any(|protocol| protocol.is_empty()) => {
                    return Err(Malformed);
                }
                Param::Alpn(alpn) => read.alpn = alpn,
                Param::NoDefaultAlpn => read.no_default_alpn = true,
                Param::Port(port) => read.port = Some(port),
                Param::Hints(hints) if hints.is_empty() => return Err(Malformed),
                Param::Hints(hints) => read.hints.extend(hints),
                Param::Ech(configs) => read.ech = Some(configs.into()),
                Param::Unknown => {}
            }
        }
        let mandatory = &record.params.mandatory;
        let is_in_order = mandatory.windows(2).all(|pair| pair[0] < pair[1]);
        let are_there = mandatory.iter().all(|key| *key != KEY_MANDATORY && keys.contains(key));
        if priority > 0 && !(is_in_order && are_there) {
            return Err(Malformed);
        }
        Ok(record)
    }

    /// Returns true for a record in alias mode.
    pub(super) fn is_alias(&self) -> bool {
        self.priority == 0
    }

    /// Returns true if a client knows all keys that the record makes mandatory. `uses_ech` is true if it knows that of
    /// Encrypted Client Hello.
    pub(super) fn is_understood(&self, uses_ech: bool) -> bool {
        self.params.mandatory.iter().all(|key| *key <= LAST_KNOWN_KEY && (*key != KEY_ECH || uses_ech))
    }

    /// Returns true if the endpoint speaks one of these protocols.
    pub(super) fn speaks(&self, protocols: &[&[u8]]) -> bool {
        let by_default: &[&[u8]] = if self.params.no_default_alpn { &[] } else { &[b"http/1.1"] };
        self.alpn().chain(by_default.iter().copied()).any(|protocol| protocols.contains(&protocol))
    }
}

/// The HTTPS records of a name, or that it has none, with the time for which that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpsAnswer {
    records: Arc<[HttpsRecord]>,
    ttl: Option<Duration>,
}

impl HttpsAnswer {
    /// Creates an answer with a TTL that starts now.
    pub fn new(records: impl Into<Arc<[HttpsRecord]>>, ttl: Duration) -> Self {
        Self { records: records.into(), ttl: Some(ttl) }
    }

    /// Creates the answer that a name has no HTTPS records, which may be kept for `ttl`, the negative TTL of its SOA record
    /// (RFC 2308 §5); `None` if there is no such record.
    pub fn absent(ttl: Option<Duration>) -> Self {
        Self { records: [].into(), ttl }
    }

    /// Returns the records, in the order in which the resolver gave them.
    pub fn records(&self) -> &Arc<[HttpsRecord]> {
        &self.records
    }

    /// Returns the time for which the answer may still be used; `None` if it states none.
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(priority: u16, params: &[(u16, Param)]) -> Result<HttpsRecord, Malformed> {
        HttpsRecord::from_params(priority, "Svc.Example.", params.iter().cloned())
    }

    #[test]
    fn parameters_are_read_and_the_target_is_in_lower_case() {
        let hint = IpAddr::from([192, 0, 2, 1]);
        let record = read(
            1,
            &[
                (0, Param::Mandatory(vec![1, 3])),
                (1, Param::Alpn(vec![b"h2"[..].into()])),
                (3, Param::Port(8443)),
                (4, Param::Hints(vec![hint])),
                (5, Param::Ech(vec![1, 2])),
                (6, Param::Hints(vec!["2001:db8::1".parse().unwrap()])),
                (77, Param::Unknown),
            ],
        )
        .unwrap();
        assert_eq!((record.target(), record.port(), record.hints().len()), (Some("svc.example"), Some(8443), 2));
        assert_eq!(record.ech().map(|ech| ech.len()), Some(2));
        assert!(record.is_understood(false));
    }

    #[test]
    fn broken_parameters_make_a_record_malformed() {
        let broken: [&[(u16, Param)]; 6] = [
            &[(1, Param::Alpn(vec![]))],
            &[(1, Param::Alpn(vec![b""[..].into()]))],
            &[(4, Param::Hints(vec![]))],
            &[(0, Param::Mandatory(vec![0]))],
            &[(0, Param::Mandatory(vec![3, 1])), (1, Param::Alpn(vec![b"h2"[..].into()])), (3, Param::Port(1))],
            &[(0, Param::Mandatory(vec![3]))],
        ];
        for params in broken {
            assert_eq!(read(1, params), Err(Malformed), "{params:?}");
        }
        assert!(read(0, &[(0, Param::Mandatory(vec![3]))]).is_ok(), "an alias has no parameters that count");
    }

    #[test]
    fn mandatory_keys_have_to_be_known() {
        let unknown = read(1, &[(0, Param::Mandatory(vec![77])), (77, Param::Unknown)]).unwrap();
        assert!(!unknown.is_understood(true));
        let ech = read(1, &[(0, Param::Mandatory(vec![5])), (5, Param::Ech(vec![1]))]).unwrap();
        assert!(ech.is_understood(true) && !ech.is_understood(false));
    }

    #[test]
    fn http1_is_spoken_unless_the_record_says_otherwise() {
        let http1: &[&[u8]] = &[b"http/1.1"];
        let both: &[&[u8]] = &[b"h2", b"http/1.1"];
        let record = HttpsRecord::service(1, ".");
        assert!(record.speaks(http1));
        assert!(record.clone().with_alpn(["h3"]).speaks(http1));
        assert!(!record.clone().with_alpn(["h3"]).without_default_alpn().speaks(both));
        assert!(!record.clone().with_alpn(["h2"]).without_default_alpn().speaks(http1));
        assert!(record.clone().with_alpn(["h2"]).without_default_alpn().speaks(both));
        assert!(!record.without_default_alpn().speaks(both), "no protocol at all");
    }
}
