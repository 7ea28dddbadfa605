//! The settings of HTTPS records (RFC 9460).

use super::ClientBuilder;
use crate::error::{Error, Result};

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
    /// [`resolve_https`](crate::dns::Resolver::resolve_https).
    ///
    /// ```
    /// let client = speeddial::Client::builder().https_records(true).build()?;
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn https_records(mut self, enable: bool) -> Self {
        self.connect.https_records.is_enabled = enable;
        self
    }

    /// Sets whether a request to an `http` URL goes to the same URL with `https` if its name has HTTPS records that the client
    /// can use (RFC 9460 §9.5). False by default. Port 80 becomes 443, and any other port stays.
    ///
    /// The records are looked up before the request is sent, and waited for as a new connection waits for them. The request
    /// keeps its headers, its body and its credentials: nothing was sent over `http`. A redirect policy is not asked. Observers see
    /// an [`Event::Redirected`](crate::trace::Event::Redirected) with the status 307.
    ///
    /// Nothing is looked up for requests through proxies, for addresses in URLs, and for names with addresses of their own.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses it without [`https_records`](Self::https_records). If `https` then fails, the request fails: it
    /// does not fall back to `http`.
    #[cfg(feature = "__tls")]
    pub fn https_records_upgrade_http(mut self, enable: bool) -> Self {
        self.defaults.upgrades_http = enable;
        self
    }

    /// Sets whether the first message of a TLS handshake is encrypted where an HTTPS record has keys for that (Encrypted Client Hello,
    /// RFC 9849), so that the network does not see the name that is asked for. False by default. TLS 1.3 only.
    ///
    /// * A server that rejects the keys proves that it speaks for the public name in them, and is asked once more: with the keys
    ///   that it sends, or without any if it sends none.
    /// * Where all records that the client can use have keys, the origin's own addresses are not dialled without them.
    /// * Without a record, or with one that comes too late, the name is not hidden. Nor is it hidden in DNS, except by encrypted DNS.
    ///
    /// [`TlsFacts::encrypted_hello`](crate::trace::TlsFacts::encrypted_hello) is true for a connection whose hello was encrypted.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses it without [`https_records`](Self::https_records), beside a `rustls::ClientConfig`, and beside a
    /// highest version of TLS below 1.3.
    #[cfg(feature = "tls")]
    pub fn encrypted_client_hello(mut self, enable: bool) -> Self {
        self.connect.https_records.encrypts_hello = enable;
        self
    }

    /// Refuses settings of records that are without effect because none are asked for.
    pub(super) fn check_https_records(&self) -> Result<()> {
        if self.defaults.upgrades_http && !self.connect.https_records.is_enabled {
            let what = "build a client: https_records_upgrade_http has no effect without https_records";
            return Err(Error::refused_request(what));
        }
        let records = self.connect.https_records;
        if records.encrypts_hello && !records.is_enabled {
            let what = "build a client: encrypted_client_hello has no effect without https_records";
            return Err(Error::refused_request(what));
        }
        Ok(())
    }
}
