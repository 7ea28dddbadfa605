//! Causes in opening a connection.

use std::net::Ipv4Addr;

use speeddial::dns::FixedResolver;
use speeddial::trace::{Cause, Timings};
use speeddial::{Client, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::sleep;

use super::common::{assert_why, causes, get, ms, over, timings_of};
use support::fake_net::{FakeNet, Host};
use support::scripted_net::ScriptedNet;
use support::{read_request_head, v4};

const SERVES: Host = Host::Serves { connect: 12, think: 10, body: 0 };

fn two_addresses(first: Host, second: Host) -> Client {
    let names = FixedResolver::new().with("api.test", [v4(1), v4(2)]);
    over(FakeNet::new([(v4(1), first), (v4(2), second)])).dns_resolver(names).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn address_silent() {
    assert_why(
        &get(&two_addresses(Host::Silent, SERVES)).await,
        &[Cause::AddressSilent],
        "250 ms of 272 ms were lost on 192.0.2.1:80, which did not answer; 192.0.2.2:80 connected in 12.0 ms; fix the \
         address or take it out of DNS.",
    );
}

#[tokio::test(start_paused = true)]
async fn address_failed() {
    assert_why(
        &get(&two_addresses(Host::Refuses(200), SERVES)).await,
        &[Cause::AddressFailed],
        "200 ms of 222 ms were lost on 192.0.2.1:80, which failed (connection refused); 192.0.2.2:80 connected in 12.0 \
         ms; fix the address or take it out of DNS.",
    );
}

#[tokio::test(start_paused = true)]
async fn no_address_connected() {
    assert_why(
        &get(&two_addresses(Host::Refuses(50), Host::Refuses(20))).await,
        &[Cause::NoAddressConnected],
        "All 70.0 ms were spent dialling 2 addresses, none of which connected.",
    );
}

#[tokio::test(start_paused = true)]
async fn connect_slow() {
    let slow = Host::Serves { connect: 200, think: 10, body: 0 };
    assert_why(
        &get(&over(FakeNet::new([(v4(1), slow)])).build().unwrap()).await,
        &[Cause::ConnectSlow, Cause::FirstConnection],
        "The connection to 192.0.2.1:80 took 200 ms of 210 ms. The connection to api.test:80 was new because no other \
         one was open; open connections ahead with warm_up.",
    );
}

#[tokio::test(start_paused = true)]
async fn proxy_slow() {
    let net = ScriptedNet::new(|_, mut stream| async move {
        // A SOCKS5 proxy without credentials (RFC 1928), then the origin behind it.
        stream.read_exact(&mut [0; 3]).await.unwrap();
        stream.write_all(&[5, 0]).await.unwrap();
        stream.read_exact(&mut [0; 10]).await.unwrap();
        sleep(ms(170)).await;
        stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
        read_request_head(&mut stream).await.unwrap();
        sleep(ms(20)).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        let _ = stream.read_u8().await;
    });
    let names = FixedResolver::new().with("api.test", [v4(1)]).with("proxy.test", [v4(2)]);
    let proxy = Proxy::all("socks5://proxy.test:1080").unwrap();
    let client = Client::builder().dns_resolver(names).transport(net).proxy(proxy).build().unwrap();
    assert_why(
        &get(&client).await,
        &[Cause::ProxySlow, Cause::ServerSlow, Cause::FirstConnection],
        "The proxy took 170 ms of 200 ms to connect to the origin. The connection to api.test:80 was new because no \
         other one was open; open connections ahead with warm_up.",
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_is_not_an_address_that_fails() {
    let path = std::env::temp_dir().join(format!("speeddial-why-{}", std::process::id()));
    // A process that failed may have left one behind, and this one may have its number.
    let _ = std::fs::remove_file(&path);
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request_head(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    });
    let client = Client::builder().unix_socket(&path).build().unwrap();
    let timings = get(&client).await;
    std::fs::remove_file(&path).unwrap();
    assert!(!causes(&timings).contains(&Cause::NoAddressConnected), "{}", timings.waterfall());
}

/// Returns the number of connections to a port whose first packet was sent and not answered, as the system lists them.
#[cfg(target_os = "linux")]
fn unanswered_syns(port: u16) -> usize {
    const SYN_SENT: &str = "02";
    let list = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let sockets = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let remote = format!(":{port:04X}");
    sockets.filter(|fields| fields[2].ends_with(&remote) && fields[3] == SYN_SENT).count()
}

/// Makes a request to a server that drops the first packets of four dials, which are then repeated. Returns its address and the timings.
#[cfg(target_os = "linux")]
async fn behind_a_full_backlog() -> (std::net::SocketAddr, Timings) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    let listener = socket.listen(1).unwrap();
    // While the backlog is full, the system drops SYNs.
    let mut full = Vec::new();
    while unanswered_syns(address.port()) == 0 {
        let connecting = tokio::spawn(TcpStream::connect(address));
        while !connecting.is_finished() && unanswered_syns(address.port()) == 0 {
            tokio::task::yield_now().await;
        }
        full.push(connecting);
        assert!(full.len() < 100, "the backlog has an end");
    }
    let before = unanswered_syns(address.port());
    let client = Client::builder().no_proxy().build().unwrap();
    let request = tokio::spawn(timings_of(client.get(format!("http://{address}/"))));
    let serve = async move {
        // Those of the dials that begin after 0, 100, 300 and 700 ms. The first of them is repeated after a second.
        while unanswered_syns(address.port()) < before + 4 {
            tokio::task::yield_now().await;
        }
        let mut served = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            served.push(tokio::spawn(async move {
                if read_request_head(&mut stream).await.is_some() {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
                }
            }));
        }
    };
    let timings = tokio::select! {
        timings = request => timings.unwrap(),
        () = serve => unreachable!(),
    };
    (address, timings)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn lost_syn() {
    for _ in 0..20 {
        let (address, timings) = behind_a_full_backlog().await;
        // Where the machine is busy, a later dial may be answered before a packet is sent again, which takes a second, or be answered after it
        // has begun later than that.
        if timings.connect() < ms(900) || timings.queue() > timings.connect() {
            continue;
        }
        assert_eq!(causes(&timings)[0], Cause::LostSyn, "{}", timings.waterfall());
        let why = timings.why().to_string();
        // One of them, and on a busy machine more.
        let address = format!(": {address} answered only when it was");
        assert!(why.contains(" lost SYN") && why.contains(&address), "{why}");
        return;
    }
    panic!("a later dial is answered first each time");
}

#[cfg(feature = "__tls")]
mod tls {
    use std::net::SocketAddr;

    use speeddial::tls::TlsConfig;
    use speeddial::transport::{Connecting, Stream, Transport};
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use support::certs::Authority;

    /// A network in memory, 1 ms away, in which 192.0.2.1 closes connections after 50 ms, and every other address is an HTTPS server that
    /// leaves a handshake unanswered for 200 ms.
    struct Net(TlsAcceptor);

    impl Transport for Net {
        fn connect(&self, address: SocketAddr) -> Connecting<'_> {
            Box::pin(async move {
                sleep(ms(1)).await;
                let (near, far) = tokio::io::duplex(64 * 1024);
                let acceptor = self.0.clone();
                tokio::spawn(async move {
                    if address.ip() == v4(1) {
                        return sleep(ms(50)).await;
                    }
                    sleep(ms(200)).await;
                    let Ok(mut stream) = acceptor.accept(far).await else { return };
                    read_request_head(&mut stream).await.unwrap();
                    support::send(&mut stream, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
                    let _ = stream.read_u8().await;
                });
                Ok(Box::new(near) as Box<dyn Stream>)
            })
        }
    }

    /// Returns a client of the host at these addresses.
    fn client(addresses: &[u8]) -> Client {
        let authority = Authority::new();
        let net = Net(TlsAcceptor::from(authority.server(&["api.test"], &["http/1.1"])));
        let addresses = addresses.iter().map(|last| v4(*last)).collect::<Vec<_>>();
        let names = FixedResolver::new().with("api.test", addresses);
        let tls = TlsConfig::new().add_roots([authority.root()]).only_added_roots();
        Client::builder().no_proxy().dns_resolver(names).transport(net).tls(tls).build().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn tls_handshake() {
        let timings = timings_of(client(&[2]).get("https://api.test/")).await;
        assert_why(
            &timings,
            &[Cause::TlsHandshake, Cause::FirstConnection],
            "The TLS handshake took 200 ms of 201 ms (TLS 1.3, a whole handshake). The connection to \
             api.test:443 was new because no other one was open; open connections ahead with warm_up.",
        );
    }

    #[tokio::test(start_paused = true)]
    async fn tls_retried() {
        let timings = timings_of(client(&[1, 2]).get("https://api.test/")).await;
        assert_why(
            &timings,
            &[Cause::TlsRetried],
            "250 ms of 252 ms were spent in TLS: the handshake with 192.0.2.1:443 failed.",
        );
    }
}
