//! The settings of HTTPS records (RFC 9460).

use super::ClientBuilder;

impl ClientBuilder {
    /// Sets whether the HTTPS records of names are asked for (RFC 9460), beside their addresses. False by default.
    ///
    /// A record names the endpoints of an `https` origin: other hosts, ports and protocols, in an order. Those that the client
    /// can use are tried in that order, each with an equal share of the connect timeout, and then the origin's own addresses.
    /// Requests and certificates stay those of the origin.
    ///
    /// * A new connection waits for the records for at most 50 ms after the first addresses are known. What comes later is kept
    ///   for the next connection, as long as its TTL says.
    /// * A failed lookup, a malformed record or one with unknown mandatory keys counts as no record.
    /// * Aliases are followed, at most 8 of them. At most 4 endpoints are tried.
    /// * Addresses in a record are dialled until those of the endpoint's host are known. The rules for addresses apply to them.
    /// * HTTP/3 is not spoken, and records that name it alone are left out.
    /// * Nothing is asked for connections through proxies, for addresses in URLs, for names with addresses of their own
    ///   ([`resolve`](Self::resolve)), for names in the hosts file, and with `single-request` in resolv.conf.
    ///
    /// An observer sees the lookups ([`Event::HttpsLookup`](crate::trace::Event::HttpsLookup)) and the endpoints
    /// ([`Event::EndpointChosen`](crate::trace::Event::EndpointChosen)).
    ///
    /// # Errors
    /// [`build`](Self::build) refuses it beside [`hickory_dns(false)`](Self::hickory_dns), because the platform does not look up
    /// such records, and beside a Unix domain socket. A [resolver](Self::dns_resolver) of your own has to implement
    /// [`resolve_https`](crate::dns::Resolve::resolve_https).
    ///
    /// ```
    /// let client = speeddial::Client::builder().https_records(true).build()?;
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn https_records(mut self, enable: bool) -> Self {
        self.connect.https_records.is_enabled = enable;
        self
    }
}
