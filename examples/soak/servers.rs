//! The process of the servers: HTTP at several addresses, each of which restarts now and then, and certificates that are replaced.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::ops::Range;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use support::certs::Authority;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::answers::answer;
use crate::world::{AUTHORITIES, CERTIFICATE, KEY, Places};
use crate::{Result, names};

/// The time from the end of a restart to the next one. So at most one server is down.
const UP: Duration = Duration::from_millis(200);
/// The time that a server is down.
const DOWN: Duration = Duration::from_millis(300);
/// The time that a server which announces its end waits for requests.
const GRACE: Duration = Duration::from_millis(200);
/// The time between two changes of certificates.
const ROTATION: Duration = Duration::from_secs(10);
/// The seconds after which a server closes an idle HTTP/1.1 connection: some before the client would, and some after that.
const IDLE: Range<u64> = 2..9;
/// The names in the certificates of servers.
const NAMES: &[&str] = &["*.soak.test"];

/// The end of a server's run.
struct Restart {
    /// True if connections are told that the server ends, and have a moment. If not, they are cut.
    is_announced: bool,
    /// Is told when the server listens again.
    is_back: oneshot::Sender<()>,
}

/// The protocols of a server: plain HTTP, or these over TLS.
type Alpn = Option<&'static [&'static str]>;

/// Runs the servers until the input ends.
pub(crate) async fn run(folder: &Path) -> Result<()> {
    let authority = Arc::new(Authority::new());
    replace_certificates(folder, &authority)?;
    let addresses = addresses();
    let dns = names::start(addresses.clone())?;
    let [plain, tls, tls1] = [(); 3].map(|()| free_port(&addresses));
    let mut servers = Vec::new();
    for (port, alpn) in [(plain, None), (tls, Some(&["h2", "http/1.1"][..])), (tls1, Some(&["http/1.1"][..]))] {
        for address in &addresses {
            let (restart, restarts) = mpsc::channel(1);
            let listener = TcpListener::bind((*address, port)).await?;
            tokio::spawn(serve(listener, alpn, authority.clone(), restarts));
            servers.push(restart);
        }
    }
    println!("{}", serde_json::to_string(&Places { dns: dns.address(), plain, tls, tls1 })?);
    tokio::spawn(restart_in_turn(servers));
    let mut ended = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
    let mut rotations = interval(ROTATION);
    loop {
        tokio::select! {
            _ = &mut ended => return Ok(()),
            _ = rotations.tick() => replace_certificates(folder, &authority)?,
        }
    }
}

/// Restarts one server after the other, each at random.
async fn restart_in_turn(servers: Vec<mpsc::Sender<Restart>>) {
    loop {
        sleep(UP).await;
        let (is_back, back) = oneshot::channel();
        let restart = Restart { is_announced: fastrand::bool(), is_back };
        let _ = servers[fastrand::usize(..servers.len())].send(restart).await;
        let _ = back.await;
    }
}

/// Returns the loopback addresses that can be served at: four of them on Linux, one where the system has no more.
fn addresses() -> Vec<Ipv4Addr> {
    let addresses = (1..=4).map(|last| Ipv4Addr::new(127, 0, 0, last));
    addresses.filter(|address| StdListener::bind((*address, 0)).is_ok()).collect()
}

/// Returns a port that is free at all addresses.
fn free_port(addresses: &[Ipv4Addr]) -> u16 {
    loop {
        let port = support::free_port();
        if addresses.iter().all(|address| StdListener::bind((*address, port)).is_ok()) {
            return port;
        }
    }
}

/// Writes a new certificate and key of the client, and adds another authority to that of the servers.
fn replace_certificates(folder: &Path, authority: &Authority) -> Result<()> {
    let (certificate, key) = authority.sign_pem_pair(&["client.soak.test"]);
    let authorities = authority.pem() + &Authority::new().pem();
    for (file, text) in [(CERTIFICATE, certificate), (KEY, key), (AUTHORITIES, authorities)] {
        let new = folder.join("new");
        std::fs::write(&new, text)?;
        std::fs::rename(&new, folder.join(file))?;
    }
    Ok(())
}

/// Serves at one address, again and again. Each time the server has another certificate.
async fn serve(
    mut listener: TcpListener,
    alpn: Alpn,
    authority: Arc<Authority>,
    mut restarts: mpsc::Receiver<Restart>,
) {
    let Ok(address) = listener.local_addr() else { return };
    loop {
        let acceptor = alpn.map(|alpn| TlsAcceptor::from(authority.mutual_server(NAMES, alpn)));
        let (end, ends) = watch::channel(());
        let mut connections = JoinSet::new();
        let restart = loop {
            tokio::select! {
                Ok((socket, _)) = listener.accept() => {
                    let _ = socket.set_nodelay(true);
                    let (acceptor, ends) = (acceptor.clone(), ends.clone());
                    connections.spawn(async move {
                        match acceptor {
                            None => connection(socket, ends).await,
                            Some(acceptor) => {
                                let Ok(stream) = acceptor.accept(socket).await else { return };
                                connection(stream, ends).await;
                            }
                        }
                    });
                }
                Some(_) = connections.join_next() => {}
                restart = restarts.recv() => match restart {
                    Some(restart) => break restart,
                    None => return,
                },
            }
        };
        drop(listener);
        drop(end);
        if restart.is_announced {
            let _ = timeout(GRACE, async { while connections.join_next().await.is_some() {} }).await;
        }
        connections.shutdown().await;
        sleep(DOWN).await;
        listener = bind(address).await;
        let _ = restart.is_back.send(());
    }
}

/// Listens at an address where a server was before. A socket of another program may have the port for a moment.
async fn bind(address: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(_) => sleep(DOWN).await,
        }
    }
}

/// Serves a connection until its end or that of the server, which it announces to the peer.
async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, mut ends: watch::Receiver<()>) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    let idle = Duration::from_secs(fastrand::u64(IDLE));
    builder.http1().timer(TokioTimer::new()).header_read_timeout(idle);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service_fn(answer));
    let mut connection = pin!(connection);
    tokio::select! {
        _ = &mut connection => return,
        _ = ends.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
