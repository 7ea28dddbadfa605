//! The process of the servers, seen from the client: where they are, and a client for them.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use speeddial::dns::HickoryResolver;
use speeddial::tls::TlsConfig;
use speeddial::{Client, Identity, PoolConfig, RetryPolicy};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::Result;

/// The file of the certificate authorities that the client trusts.
pub(crate) const AUTHORITIES: &str = "ca.pem";
/// The file of the client's certificate.
pub(crate) const CERTIFICATE: &str = "client.pem";
/// The file of the client's key.
pub(crate) const KEY: &str = "client.key";

/// The time after which the client closes an idle connection: short, so that connections come and go within a minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The age at which the client closes a connection.
const LIFETIME: Duration = Duration::from_secs(20);
/// The time between two readings of the files.
const RELOAD: Duration = Duration::from_secs(2);

/// The addresses of the servers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Places {
    /// The address of the DNS server.
    pub(crate) dns: std::net::SocketAddr,
    /// The port of HTTP without TLS.
    pub(crate) plain: u16,
    /// The port of HTTP/2 and HTTP/1.1 over TLS.
    pub(crate) tls: u16,
    /// The port of HTTP/1.1 over TLS.
    pub(crate) tls1: u16,
}

/// The process of the servers. It ends when this is dropped.
pub(crate) struct World {
    /// The servers run until their input ends.
    _servers: Child,
    folder: Folder,
    places: Places,
}

/// A folder for one run.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl World {
    /// Starts the servers.
    pub(crate) async fn start() -> Result<Self> {
        let folder = Folder(std::env::temp_dir().join(format!("speeddial-soak-{}", std::process::id())));
        std::fs::create_dir_all(&folder.0)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--serve").arg(&folder.0).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut servers = command.spawn()?;
        let output = servers.stdout.take().ok_or("the servers have no output")?;
        let line = BufReader::new(output).lines().next_line().await?.ok_or("the servers did not start")?;
        Ok(Self { _servers: servers, folder, places: serde_json::from_str(&line)? })
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// Builds the client under test: the defaults, but for short times and the files that change.
    pub(crate) fn client(&self) -> Result<Client> {
        let path = |file| Path::new(&self.folder.0).join(file);
        let identity = Identity::watch_files(path(CERTIFICATE), path(KEY))?;
        let tls = TlsConfig::new().identity(identity).watch_roots(path(AUTHORITIES))?.only_added_roots();
        // Without a budget, which an outage of DNS would spend: a call to a service that is always there must not fail then.
        let backoff = (Duration::from_millis(50), Duration::from_secs(1));
        let retry = RetryPolicy::new().attempts(4).backoff(backoff.0, backoff.1).no_budget();
        let builder = Client::builder()
            .no_proxy()
            .dns_resolver(HickoryResolver::with_servers([self.places.dns]))
            .pool(PoolConfig::new().idle_timeout(IDLE_TIMEOUT).lifetime(LIFETIME))
            .tls(tls)
            .tls_reload_interval(RELOAD)
            .retry(retry)
            .timeout(Duration::from_secs(20));
        Ok(builder.build()?)
    }
}
