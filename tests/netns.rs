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

/// A namespace with a network card that leads far away; it is gone with this.
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
    fn enter() -> Result<Self, String> {
        let said = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let mut namespace = Self { name: format!("speeddial-{}", std::process::id()), card: None };
        let made = Command::new("ip").args(["netns", "add", &namespace.name]).stderr(Stdio::null()).status();
        if !made.map_err(|error| said("ip (Debian: iproute2)", &error))?.success() {
            return Err("no right to make a network namespace".to_owned());
        }
        let file =
            std::fs::File::open(format!("/run/netns/{}", namespace.name)).map_err(|error| said("netns", &error))?;
        let only = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(file.as_fd(), only).map_err(|error| said("setns", &error))?;
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
        let namespace = Namespace::enter();
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
