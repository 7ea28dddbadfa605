//! HTTPS records in the zones of BIND, Knot DNS and unbound, and where a client goes by them.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use speeddial::Client;
use speeddial::dns::Resolver;
use speeddial::tls::TlsConfig;

use super::dns::{KNOT, NAMED, Server, Software, UNBOUND, Zone};
use support::certs::Authority;
use support::tls_server::TlsServer;

/// The servers of a service: on 127.0.0.1, on the same port of 127.0.0.2, and on another port of 127.0.0.1.
struct Servers {
    own: TlsServer,
    other: TlsServer,
    port: TlsServer,
}

impl Servers {
    async fn start(authority: &Authority) -> Self {
        let config = authority.server(&["*.rows.test"], &["h2", "http/1.1"]);
        let own = TlsServer::start(config.clone()).await;
        let other = TlsServer::at(Ipv4Addr::new(127, 0, 0, 2).into(), own.address().port(), config.clone()).await;
        let port = TlsServer::start(config).await;
        Self { own, other, port }
    }
}

/// Where the row's record leads.
#[derive(Clone, Copy, Debug)]
enum Leads {
    Nowhere,
    ToOther,
    ToPort,
}
use Leads::{Nowhere, ToOther, ToPort};

/// The records of each row, beginning with those of the origin. `{port}` is the port of the third server.
const ROWS: [(&str, &[&str], Leads); 22] = [
    ("absent", &[], Nowhere),
    ("target", &["60 HTTPS 1 b.rows.test."], ToOther),
    ("port", &["60 HTTPS 1 a.rows.test. port={port}"], ToPort),
    ("itself", &["60 HTTPS 1 itself.rows.test. alpn=h2"], Nowhere),
    ("alias", &["60 HTTPS 0 b.rows.test."], ToOther),
    ("chain", &["60 HTTPS 0 one", "one 60 HTTPS 0 two", "two 60 HTTPS 1 a.rows.test. port={port}"], ToPort),
    ("loop", &["60 HTTPS 0 round", "round 60 HTTPS 0 about", "about 60 HTTPS 0 round"], Nowhere),
    ("absent-alias", &["60 HTTPS 0 nowhere"], Nowhere),
    ("unknown-mandatory", &["60 HTTPS 1 b.rows.test. mandatory=key667 key667=x"], Nowhere),
    (
        "unknown-first",
        &["60 HTTPS 1 dead.rows.test. mandatory=key667 key667=x", "_PORT 60 HTTPS 2 b.rows.test."],
        ToOther,
    ),
    ("known-mandatory", &["60 HTTPS 1 b.rows.test. mandatory=alpn alpn=h2"], ToOther),
    ("unknown-key", &["60 HTTPS 1 b.rows.test. key667=x"], ToOther),
    ("priorities", &["60 HTTPS 2 b.rows.test.", "_PORT 60 HTTPS 1 dead.rows.test."], ToOther),
    ("h3", &["60 HTTPS 1 b.rows.test. alpn=h3 no-default-alpn"], Nowhere),
    ("h3-and-default", &["60 HTTPS 1 b.rows.test. alpn=h3"], ToOther),
    ("h2-only", &["60 HTTPS 1 b.rows.test. alpn=h2 no-default-alpn"], ToOther),
    ("hint-differs", &["60 HTTPS 1 b.rows.test. ipv4hint=127.0.0.9"], ToOther),
    ("hint-alone", &["60 HTTPS 1 hinted ipv4hint=127.0.0.2"], ToOther),
    ("upper-case", &["60 HTTPS 1 B.ROWS.TEST."], ToOther),
    ("no-ttl", &["0 HTTPS 1 b.rows.test."], ToOther),
    ("cname", &["60 CNAME elsewhere", "elsewhere 60 HTTPS 1 b.rows.test."], ToOther),
    ("port-0", &["60 HTTPS 1 b.rows.test. port=0"], Nowhere),
];

/// Returns the lines of the zone for all rows.
fn zone(servers: &Servers) -> Zone {
    let mut lines = String::from("a.rows A 127.0.0.1\nb.rows A 127.0.0.2\ndead.rows A 127.0.0.9\n");
    let [own, port] = [&servers.own, &servers.port].map(|server| server.address().port());
    for (row, records, _) in ROWS {
        writeln!(lines, "{row}.rows A 127.0.0.1").unwrap();
        let owner = format!("_{own}._https.{row}.rows");
        for (index, record) in records.iter().enumerate() {
            let record = record.replace("{port}", &port.to_string()).replace("_PORT", &owner);
            let owner = if index == 0 { owner.as_str() } else { "" };
            writeln!(lines, "{owner} {record}").unwrap();
        }
    }
    // A line that begins with a space would belong to the name above it.
    let lines = lines.lines().map(|line| format!("{}\n", line.trim_start())).collect();
    Zone { host: Ipv4Addr::LOCALHOST, ttl: 60, lines }
}

/// Checks where a client goes by each row.
async fn assert_rows(kind: &'static Software) {
    let authority = Authority::new();
    let servers = Servers::start(&authority).await;
    let Some(server) = Server::start(kind, "https-records", &zone(&servers)).await else { return };
    let tls = TlsConfig::new().add_root_der(authority.certificate().to_vec()).only_added_roots();
    let builder = Client::builder().no_proxy().dns_resolver(server.resolver()).tls(tls).https_records(true);
    let client = builder.build().unwrap();
    for (row, _, leads) in ROWS {
        let url = format!("https://{row}.rows.test:{}/", servers.own.address().port());
        let response = client.get(&url).send().await.unwrap_or_else(|error| panic!("{} {row}: {error:?}", kind.name));
        let expected = match leads {
            Nowhere => &servers.own,
            ToOther => &servers.other,
            ToPort => &servers.port,
        };
        assert_eq!(response.remote_addr(), Some(expected.address()), "{} {row}", kind.name);
    }
    assert_parameters(&server, servers.own.address()).await;
}

/// Checks that the parameters of a record and the TTLs arrive as they are in the zone.
async fn assert_parameters(server: &Server, own: SocketAddr) {
    let resolver = server.resolver();
    let ask =
        async |row: &str| resolver.resolve_https(&format!("_{}._https.{row}.rows.test", own.port())).await.unwrap();
    let answer = ask("hint-differs").await;
    let record = &answer.records()[0];
    assert_eq!((record.priority(), record.target()), (1, Some("b.rows.test")));
    assert_eq!((record.hints(), answer.ttl()), (&[IpAddr::from([127, 0, 0, 9])][..], Some(Duration::from_secs(60))));
    assert_eq!(ask("no-ttl").await.ttl(), Some(Duration::ZERO));
    let absent = ask("absent").await;
    assert_eq!((absent.records().len(), absent.ttl()), (0, Some(Duration::from_secs(9))));
    assert_eq!(ask("priorities").await.records().len(), 2);
}

#[tokio::test]
async fn the_records_of_bind_are_followed() {
    assert_rows(&NAMED).await;
}

#[tokio::test]
async fn the_records_of_knot_are_followed() {
    assert_rows(&KNOT).await;
}

#[tokio::test]
async fn the_records_of_unbound_are_followed() {
    assert_rows(&UNBOUND).await;
}
