//! `httpstat` with dnsmasq as its DNS server.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{httpstat, objects};
use support::ok_server;

/// dnsmasq on a port of its own, with its log of queries.
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
            "--log-queries",
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

    /// Waits until `expected` queries for the name's IPv4 addresses were logged, and checks that there were no more.
    fn was_asked(&self, expected: usize) {
        let queries = |log: &str| log.matches("query[A] api.test").count();
        self.eventually("asked", |log| queries(log) >= expected);
        assert_eq!(queries(&self.log.lock().unwrap()), expected);
    }
}

/// Makes two requests. Returns true if the second one reused the connection, and the source of its DNS answer.
fn twice(dnsmasq: &Dnsmasq, ttl: f64, interval: &str, idle_timeout: &str) -> (bool, Option<String>) {
    let server = ok_server();
    let url = format!("http://api.test:{}/", server.address().port());
    let dns = format!("127.0.0.1:{}", dnsmasq.port);
    let often = ["--json", "--count", "2", "--interval", interval, "--idle-timeout", idle_timeout, "--dns", &dns, &url];
    let output = httpstat(&often);
    assert!(output.status.success(), "{output:?}");
    let [first, second] = <[Value; 2]>::try_from(objects(&output)).unwrap();
    assert_eq!((&first["reused"], &first["dns"]["source"]), (&false.into(), &"miss".into()));
    assert_eq!(first["dns"]["ttl_s"], ttl);
    (second["reused"].as_bool().unwrap(), second["dns"]["source"].as_str().map(ToOwned::to_owned))
}

#[test]
fn httpstat_asks_dnsmasq_again_when_the_ttl_has_passed_and_not_before() {
    let Some(dnsmasq) = Dnsmasq::start(1) else { return };
    assert_eq!(twice(&dnsmasq, 1.0, "0", "5000"), (true, None), "reused at once");
    dnsmasq.was_asked(1);
    assert_eq!(
        twice(&dnsmasq, 1.0, "1300", "50"),
        (false, Some("miss".to_owned())),
        "the idle timeout and the TTL have passed"
    );
    dnsmasq.was_asked(3);
    // The same within the TTL, which is long enough here for a busy machine.
    let Some(patient) = Dnsmasq::start(20) else { return };
    assert_eq!(
        twice(&patient, 20.0, "300", "50"),
        (false, Some("hit".to_owned())),
        "the idle timeout has passed, the TTL has not"
    );
    patient.was_asked(1);
}
