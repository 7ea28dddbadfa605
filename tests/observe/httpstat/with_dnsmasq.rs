//! `httpstat` with dnsmasq as its DNS server.

use std::collections::HashSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hickory_proto::op::Message;
use serde_json::Value;

use super::{httpstat, objects};
use support::ok_server;
use support::scripted_dns::{Packets, ReceivedQuery, ScriptedDns, SentFrom, no_tcp};

/// dnsmasq on a port of its own, with its log.
struct Dnsmasq {
    child: Child,
    port: u16,
    log: Arc<Mutex<String>>,
}

impl Drop for Dnsmasq {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Dnsmasq {
    /// Starts dnsmasq. Returns `None` and prints that the test is skipped if it is not installed.
    ///
    /// Another process may take the port first; then another port is tried.
    fn start(ttl: u32) -> Option<Self> {
        for _ in 0..20 {
            let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
            let Ok(child) = Self::spawn(port, ttl) else {
                eprintln!("SKIPPED: dnsmasq is not installed (Debian: dnsmasq-base)");
                return None;
            };
            let server = Self::watch(child, port);
            server.eventually("started", |log| log.contains("started") || log.contains("Address already in use"));
            if server.log.lock().unwrap().contains("started") {
                return Some(server);
            }
        }
        panic!("no port was free");
    }

    fn spawn(port: u16, ttl: u32) -> std::io::Result<Child> {
        let arguments = [
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            "--address=/api.test/127.0.0.1",
            "--listen-address=127.0.0.1",
            "--bind-interfaces",
            "--log-facility=-",
            "--user=",
            "--pid-file=",
        ];
        let mut command = Command::new("dnsmasq");
        command.args(arguments).arg(format!("--port={port}")).arg(format!("--local-ttl={ttl}"));
        command.stderr(Stdio::piped()).spawn()
    }

    fn watch(mut child: Child, port: u16) -> Self {
        let log = Arc::new(Mutex::new(String::new()));
        let lines = child.stderr.take().unwrap();
        let sink = log.clone();
        std::thread::spawn(move || {
            for line in std::io::BufRead::lines(std::io::BufReader::new(lines)).map_while(Result::ok) {
                let mut log = sink.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        Self { child, port, log }
    }

    fn eventually(&self, what: &str, done: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + support::LONG;
        while !done(&self.log.lock().unwrap()) {
            assert!(Instant::now() < deadline, "never {what}: {}", self.log.lock().unwrap());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A relay to dnsmasq, which counts the queries. On a busy machine a query may be sent more than once: its id tells that it is the same.
struct Counted {
    relay: ScriptedDns,
    ids: Arc<Mutex<HashSet<u16>>>,
}

impl Counted {
    fn new(dnsmasq: &Dnsmasq) -> Self {
        let port = dnsmasq.port;
        let ids = Arc::new(Mutex::new(HashSet::new()));
        let seen = ids.clone();
        let relay = move |query: &ReceivedQuery| {
            if !query.is_v6() {
                seen.lock().unwrap().insert(query.id);
            }
            passed_on(query, port)
        };
        Self { relay: ScriptedDns::start(relay, no_tcp), ids }
    }

    /// Checks that the client asked for the name's IPv4 addresses `expected` times.
    fn was_asked(&self, expected: usize) {
        assert_eq!(self.ids.lock().unwrap().len(), expected);
    }
}

/// Returns the answer of the server at `port`.
fn passed_on(query: &ReceivedQuery, port: u16) -> Packets {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(support::LONG)).unwrap();
    let mut packet = [0; 1_500];
    let mut asked = Message::query();
    asked.metadata.id = query.id;
    asked.add_query(query.question.clone());
    socket.send_to(&asked.to_vec().unwrap(), (Ipv4Addr::LOCALHOST, port)).unwrap();
    let length = socket.recv(&mut packet).unwrap();
    vec![(packet[..length].to_vec(), SentFrom::ServerPort)]
}

/// Makes two requests. Returns true if the second one reused the connection, and the source of its DNS answer. Another time is taken where the
/// first one took so long that another dial, which used the answer again, began beside its own: the name is refreshed ahead then.
fn twice(dnsmasq: &Counted, ttl: f64, interval: &str, idle_timeout: &str) -> (bool, Option<String>) {
    let server = ok_server();
    let url = format!("http://api.test:{}/", server.address().port());
    let dns = dnsmasq.relay.address().to_string();
    let often = ["--json", "--count", "2", "--interval", interval, "--idle-timeout", idle_timeout, "--dns", &dns, &url];
    for _ in 0..50 {
        let before = dnsmasq.ids.lock().unwrap().clone();
        let output = httpstat(&often);
        assert!(output.status.success(), "{output:?}");
        let [first, second] = <[Value; 2]>::try_from(objects(&output)).unwrap();
        assert_eq!((&first["reused"], &first["dns"]["source"]), (&false.into(), &"miss".into()));
        assert_eq!(first["dns"]["ttl_s"], ttl);
        if first["total_us"].as_f64().unwrap() < 100_000.0 {
            return (second["reused"].as_bool().unwrap(), second["dns"]["source"].as_str().map(ToOwned::to_owned));
        }
        *dnsmasq.ids.lock().unwrap() = before;
    }
    panic!("no request took less than 100 ms")
}

#[test]
fn httpstat_asks_dnsmasq_again_when_the_ttl_has_passed_and_not_before() {
    let Some(running) = Dnsmasq::start(1) else { return };
    let dnsmasq = Counted::new(&running);
    assert_eq!(twice(&dnsmasq, 1.0, "0", "5000"), (true, None), "reused at once");
    dnsmasq.was_asked(1);
    assert_eq!(
        twice(&dnsmasq, 1.0, "1300", "50"),
        (false, Some("miss".to_owned())),
        "the idle timeout and the TTL have passed"
    );
    dnsmasq.was_asked(3);
    // The same within the TTL, which is long enough here for a busy machine.
    let Some(running) = Dnsmasq::start(20) else { return };
    let patient = Counted::new(&running);
    assert_eq!(
        twice(&patient, 20.0, "300", "50"),
        (false, Some("hit".to_owned())),
        "the idle timeout has passed, the TTL has not"
    );
    patient.was_asked(1);
}
