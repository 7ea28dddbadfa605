//! Servers on loopback for a program without URLs.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::rr::rdata::CNAME;
use hickory_proto::rr::{Name, RData, Record};
use http_body_util::{BodyExt, Full};
use support::dns_server::{DnsServer, add_address};
use support::http_server::HttpServer;

/// A DNS server, and an HTTP server at `api.test`: an alias of `edge.test`, which is 127.0.0.1, both with a TTL of 2 s.
pub(crate) struct Embedded {
    dns: DnsServer,
    http: HttpServer,
}

impl Embedded {
    pub(crate) fn start() -> io::Result<Self> {
        let name = |text| Name::from_ascii(text).map_err(io::Error::other);
        let (api, edge) = (name("api.test.")?, name("edge.test.")?);
        let dns = DnsServer::start(move |question, response| {
            if *question.name() == api {
                response.add_answer(Record::from_rdata(api.clone(), 2, RData::CNAME(CNAME(edge.clone()))));
            }
            add_address(response, question, &edge, Ipv4Addr::LOCALHOST.into(), 2);
        })?;
        let http = HttpServer::start(|request| async move {
            let (think, bytes) = if request.uri().path() == "/slow" { (40, 1024 * 1024) } else { (12, 256 * 1024) };
            tokio::time::sleep(Duration::from_millis(think)).await;
            hyper::Response::new(Full::new(vec![b'.'; bytes].into()).map_err(|error| match error {}).boxed())
        })?;
        Ok(Self { dns, http })
    }

    /// Returns the address of the DNS server.
    pub(crate) fn dns(&self) -> SocketAddr {
        self.dns.address()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://api.test:{}/", self.http.address().port())
    }

    /// Returns two URLs to compare.
    pub(crate) fn two_urls(&self) -> [String; 2] {
        [self.url(), format!("{}slow", self.url())]
    }

    /// Returns a sentence about what the servers saw.
    pub(crate) fn totals(&self) -> String {
        format!("{} DNS queries were sent, {} connections were opened.", self.dns.queries(), self.http.connections())
    }
}

impl fmt::Display for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DNS server on {}, HTTP server on {}", self.dns.address(), self.http.address())
    }
}
