//! Addresses that are far away or nowhere, in a network namespace of the test's own: real sockets, real time. Skipped,
//! loudly, where none can be made.

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use speeddial::dns::FixedResolver;
use speeddial::trace::Outcome;
use speeddial::{Client, PoolConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A namespace; it is gone with this.
struct Namespace {
    name: String,
    card: Option<Child>,
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Some(card) = &mut self.card {
            let _ = card.kill();
            let _ = card.wait();
        }
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

impl Namespace {
    /// Makes it and moves the calling thread into it.
    fn enter(name: &str) -> Result<Self, String> {
        let said = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let namespace = Self { name: format!("speeddial-{name}-{}", std::process::id()), card: None };
        let made = Command::new("ip").args(["netns", "add", &namespace.name]).stderr(Stdio::null()).status();
        if !made.map_err(|error| said("ip (Debian: iproute2)", &error))?.success() {
            return Err("no right to make a network namespace".to_owned());
        }
        let file =
            std::fs::File::open(format!("/run/netns/{}", namespace.name)).map_err(|error| said("netns", &error))?;
        let only = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(file.as_fd(), only).map_err(|error| said("setns", &error))?;
        Ok(namespace)
    }

    /// The same with a network card that leads far away.
    fn with_card() -> Result<Self, String> {
        let said = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let mut namespace = Self::enter("far")?;
        // A child is where the thread is that starts it.
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/far_away.py");
        let card = Command::new("python3").arg(script).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut card = card.map_err(|error| said("python3", &error))?;
        let mut line = String::new();
        let stdout = card.stdout.take().ok_or("no output")?;
        namespace.card = Some(card);
        BufReader::new(stdout).read_line(&mut line).map_err(|error| said("python3", &error))?;
        if line.trim() == "ready" {
            Ok(namespace)
        } else {
            Err("no network card can be made (/dev/net/tun)".to_owned())
        }
    }
}

#[test]
fn hazard_a_black_hole_then_an_address_400_ms_away() {
    let thread = std::thread::spawn(|| {
        let namespace = Namespace::with_card();
        if let Err(why) = &namespace {
            eprintln!("SKIPPED: {why}");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(black_hole_then_far());
    });
    thread.join().unwrap();
}

async fn black_hole_then_far() {
    let listener = TcpListener::bind("10.9.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            socket.read_buf(&mut Vec::new()).await.unwrap();
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").await.unwrap();
        }
    });
    let resolver = FixedResolver::new().with("far.test", [[10, 9, 0, 7].into(), [10, 9, 0, 2].into()]);
    let client = Client::builder().resolver(resolver).no_proxy().pool(PoolConfig::new().max_idle(0)).build().unwrap();
    // The second connection begins with the address that answered.
    for (least, most, first) in [(640, 850, 7), (390, 600, 2)] {
        let response = client.get(format!("http://far.test:{port}/")).send().await.unwrap();
        let timings = response.timings();
        assert_eq!(response.text().await.unwrap(), "ok");
        assert_eq!(timings.remote_addr().unwrap().ip().to_string(), "10.9.0.2");
        assert_eq!(timings.attempts()[0].address.ip().to_string(), format!("10.9.0.{first}"), "{timings:#}");
        let hole = timings.attempts().iter().find(|attempt| attempt.address.ip().to_string() == "10.9.0.7");
        assert!(hole.is_some_and(|hole| matches!(hole.outcome, Outcome::Cancelled)), "{timings:#}");
        let connect = timings.connect();
        let bounds = Duration::from_millis(least)..Duration::from_millis(most);
        assert!(bounds.contains(&connect), "{connect:?}: {timings:#}");
    }
}

#[test]
fn a_request_goes_out_with_the_first_packet_where_it_may() {
    let thread = std::thread::spawn(|| {
        let namespace = Namespace::enter("fast");
        if let Err(why) = &namespace {
            eprintln!("SKIPPED: {why}");
            return;
        }
        let run = |command: &str| {
            let words: Vec<_> = command.split(' ').collect();
            Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        // Of use to clients (1) and servers (2), whatever the servers themselves say (0x400).
        if !run("ip link set lo up") || std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "1027").is_err() {
            eprintln!("SKIPPED: this kernel has no TCP fast open");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(opened_fast(false)), 0);
        // The first connection has the server's leave to do so with the next ones (RFC 7413, section 3.1).
        assert_eq!(runtime.block_on(opened_fast(true)), 2);
    });
    thread.join().unwrap();
}

/// How many of three connections carried data in their first packet, and were thanked for it.
async fn opened_fast(fast: bool) -> u64 {
    let server = crate::support::ok_server();
    let transport = speeddial::transport::TcpTransport::new().fast_open(fast);
    let pool = PoolConfig::new().max_requests_per_connection(1);
    let client = Client::builder().transport(transport).no_proxy().pool(pool).build().unwrap();
    let before = fast_opens();
    for _ in 0..3 {
        let response = client.get(format!("http://127.0.0.1:{}/", server.address().port())).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "ok");
    }
    fast_opens() - before
}

/// The kernel's own count, of this thread's namespace.
fn fast_opens() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut rows = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, values) = (rows.next().unwrap(), rows.next().unwrap());
    let place = names.split(' ').position(|name| name == "TCPFastOpenActive").unwrap();
    values.split(' ').nth(place).unwrap().parse().unwrap()
}
