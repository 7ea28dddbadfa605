//! The clients and the proxies that the tests of HTTP and SOCKS proxies share.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use speeddial::dns::FixedResolver;
use speeddial::{Client, ClientBuilder, Proxy};
use tokio::net::TcpStream;

use support::free_port;

/// Returns the builder of a client with names of its own that uses `proxy`.
pub(super) fn behind(proxy: Proxy) -> ClientBuilder {
    let names = FixedResolver::new()
        .with("proxy.test", [Ipv4Addr::LOCALHOST.into()])
        .with("api.test", [Ipv4Addr::LOCALHOST.into()]);
    Client::builder().dns_resolver(names).proxy(proxy)
}

/// A proxy in a process of its own, which ends when this value is dropped.
///
/// Starting one returns `None` and prints that the test is skipped if it is not installed.
pub(super) struct ProxyProcess {
    child: Child,
    pub(super) address: SocketAddr,
    file: Option<PathBuf>,
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
    }
}

impl ProxyProcess {
    /// Starts a proxy and waits until it listens on `port`. `file` is deleted when the proxy ends.
    async fn start(package: &str, mut command: Command, port: u16, file: Option<PathBuf>) -> Option<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            eprintln!("SKIPPED: {:?} is not installed (Debian: {package})", command.get_program());
            return None;
        };
        let running = Self { child, address: (Ipv4Addr::LOCALHOST, port).into(), file };
        let deadline = Instant::now() + support::LONG;
        while TcpStream::connect(running.address).await.is_err() {
            assert!(Instant::now() < deadline, "{package} does not listen");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Some(running)
    }

    /// Starts tinyproxy, an HTTP proxy, with or without credentials.
    pub(super) async fn tinyproxy(credentials: Option<(&str, &str)>) -> Option<Self> {
        let port = free_port();
        let mut config = format!("Port {port}\nListen 127.0.0.1\nAllow 127.0.0.1\nTimeout 30\nMaxClients 50\n");
        if let Some((user, password)) = credentials {
            config.push_str(&format!("BasicAuth {user} {password}\n"));
        }
        let file = std::env::temp_dir().join(format!("speeddial-tinyproxy-{}-{port}", std::process::id()));
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new("tinyproxy");
        command.arg("-d").arg("-c").arg(&file);
        Self::start("tinyproxy-bin", command, port, Some(file)).await
    }

    /// Starts microsocks, a SOCKS 5 proxy, with or without credentials.
    pub(super) async fn microsocks(credentials: Option<(&str, &str)>) -> Option<Self> {
        let port = free_port();
        let mut command = Command::new("microsocks");
        command.args(["-i", "127.0.0.1", "-p", &port.to_string()]);
        if let Some((user, password)) = credentials {
            command.args(["-u", user, "-P", password]);
        }
        Self::start("microsocks", command, port, None).await
    }
}
