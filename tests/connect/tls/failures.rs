//! Handshakes that fail or stall, and TLS connections that are cut.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use speeddial::dns::FixedResolver;
use speeddial::tls::{Certificate, TlsConfig, Version};
use speeddial::trace::{DialOutcome, Phase};
use speeddial::transport::{Connecting, Stream, Transport};
use speeddial::{Client, ErrorKind, PoolConfig, RetryPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::common::{ALPN, answer_over_tls, builder, get, params, trusting};
use support::certs::Authority;
use support::scripted_peer::ScriptedPeer;
use support::tls_server::TlsServer;
use support::{read_request_head, v4};

#[tokio::test]
async fn hazard_a_peer_without_tls_or_that_stalls_or_closes_is_a_tls_error() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    // Not the platform's authorities: reading them would count as a part of the first handshake.
    let client = |limit| builder(trusting(&Authority::new())).tls_timeout(limit).build().unwrap();
    let behaviours = ["plain", "hangs up", "cut", "stalls"];
    tokio::spawn(async move {
        for behaviour in behaviours {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.read_buf(&mut Vec::new()).await.unwrap();
            match behaviour {
                "plain" => socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap(),
                "cut" => socket.write_all(&[22, 3, 3, 0, 90, 2]).await.unwrap(),
                "stalls" => std::future::pending().await,
                _ => {}
            }
        }
    });
    let words = [
        ("does not speak TLS", ErrorKind::Tls),
        ("TLS handshake with 127.0.0.1 failed: ", ErrorKind::Tls),
        ("TLS handshake with 127.0.0.1 failed: ", ErrorKind::Tls),
        ("no TLS handshake with 127.0.0.1 within 500 ms, in phase tls", ErrorKind::Timeout(Phase::Tls)),
    ];
    for (behaviour, (words, kind)) in behaviours.into_iter().zip(words) {
        let limit = if behaviour == "stalls" { Duration::from_millis(500) } else { support::LONG };
        let error = get(&client(limit), "api.test", address).await.unwrap_err();
        assert!(format!("{error:#}").contains(words), "{behaviour}: {error:#}");
        assert_eq!(error.kind(), kind, "{behaviour}");
        assert_eq!(error.is_timeout(), behaviour == "stalls", "{behaviour}");
    }
}

/// Starts a server that answers each request with part of a body and passes the stream to `end`.
async fn cut_server<F>(
    config: Arc<ServerConfig>,
    end: fn(tokio_rustls::server::TlsStream<tokio::net::TcpStream>) -> F,
) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(config);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(socket).await else { continue };
            stream.read_buf(&mut Vec::new()).await.unwrap();
            support::send(&mut stream, b"HTTP/1.1 200 OK\r\n\r\nhalf a bo").await.unwrap();
            end(stream).await;
        }
    });
    address
}

#[tokio::test]
async fn hazard_a_body_without_length_ends_only_with_close_notify() {
    let authority = Authority::new();
    let config = authority.server(&["api.test"], &["http/1.1"]);
    let client = builder(trusting(&authority)).build().unwrap();
    let properly = cut_server(config.clone(), |mut stream| async move { stream.shutdown().await.unwrap() }).await;
    assert_eq!(get(&client, "api.test", properly).await.unwrap().0, "half a bo");
    // Without close_notify an attacker may have cut the connection in the middle of the body.
    let cut = cut_server(config, |stream| async move { drop(stream.into_inner().0) }).await;
    let error = get(&client, "api.test", cut).await.unwrap_err();
    assert!(error.is_body(), "{error}");
}

/// openssl's test server: the process, its folder and its port.
struct OpenSsl(std::process::Child, std::path::PathBuf, u16);

impl Drop for OpenSsl {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

impl OpenSsl {
    /// Starts the server. Returns `None` and prints that the test is skipped if openssl is not installed.
    async fn start(authority: &Authority, arguments: &[&str]) -> Option<Self> {
        let folder = Self::folder();
        let (certificate, key) = authority.sign(params(&["api.test"]));
        std::fs::write(folder.join("certificate"), &*certificate).unwrap();
        std::fs::write(folder.join("key"), key.secret_der()).unwrap();
        Self::serve(folder, &[&["-certform", "DER", "-keyform", "DER"], arguments].concat()).await
    }

    fn folder() -> std::path::PathBuf {
        let name = format!("speeddial-openssl-{}-{}", std::process::id(), fastrand::u64(..));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Serves with the `certificate` and the `key` in this folder.
    async fn serve(folder: std::path::PathBuf, arguments: &[&str]) -> Option<Self> {
        let port = support::free_port();
        let mut command = std::process::Command::new("openssl");
        command.args(["s_server", "-quiet", "-www", "-accept", &format!("127.0.0.1:{port}")]).args(arguments);
        command.arg("-cert").arg(folder.join("certificate")).arg("-key").arg(folder.join("key"));
        let null = std::process::Stdio::null;
        let Ok(child) = command.stdin(null()).stdout(null()).stderr(null()).spawn() else {
            eprintln!("SKIPPED: openssl is not installed (Debian: openssl)");
            std::fs::remove_dir_all(&folder).unwrap();
            return None;
        };
        let mut server = Self(child, folder, port);
        let deadline = Instant::now() + support::LONG;
        while tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
            assert!(Instant::now() < deadline && server.0.try_wait().unwrap().is_none(), "openssl does not listen");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Some(server)
    }

    /// Starts the server with an RSA key of so many bits and a certificate that it has signed itself. Without `extensions` it is one of
    /// version 1 (openssl 3.0).
    async fn start_self_signed(bits: u32, extensions: Option<&str>) -> Option<Self> {
        let folder = Self::folder();
        std::fs::write(folder.join("extensions"), extensions.unwrap_or_default()).unwrap();
        let file = if extensions.is_some() { " -extfile extensions" } else { "" };
        for arguments in [
            format!("req -newkey rsa:{bits} -nodes -keyout key -out request -subj /CN=api.test"),
            format!("x509 -req -in request -signkey key -days 30 -out certificate{file}"),
        ] {
            let mut command = std::process::Command::new("openssl");
            // `serve` says so if there is no openssl.
            let Ok(output) = command.args(arguments.split(' ')).current_dir(&folder).output() else { break };
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        Self::serve(folder, &["-cipher", "ALL:@SECLEVEL=0"]).await
    }

    /// Starts the server with an RSA key of so many bits and a certificate that is signed with this digest. Returns the authority's
    /// certificate as well, in PEM.
    async fn start_with_rsa(bits: u32, digest: &str) -> Option<(Self, Vec<u8>)> {
        let folder = Self::folder();
        std::fs::write(folder.join("names"), "subjectAltName = DNS:api.test").unwrap();
        let key = format!("rsa:{bits}");
        for arguments in [
            "req -x509 -newkey rsa:2048 -nodes -keyout root-key -out root -subj /CN=root -days 30",
            &format!("req -newkey {key} -nodes -keyout key -out request -subj /CN=api.test"),
            &format!(
                "x509 -req -in request -CA root -CAkey root-key -CAcreateserial -days 30 {digest} -extfile names -out certificate"
            ),
        ] {
            let mut command = std::process::Command::new("openssl");
            let output = command.args(arguments.split(' ')).current_dir(&folder).output();
            // `serve` says so if there is no openssl.
            let Ok(output) = output else { break };
            if !output.status.success() {
                eprintln!("SKIPPED: openssl makes no such certificate: {}", String::from_utf8_lossy(&output.stderr));
                std::fs::remove_dir_all(&folder).unwrap();
                return None;
            }
        }
        let root = std::fs::read(folder.join("root")).unwrap_or_default();
        Some((Self::serve(folder, &["-cipher", "ALL:@SECLEVEL=0"]).await?, root))
    }
}

#[tokio::test]
async fn hazard_a_certificate_with_a_weak_key_or_signature_is_refused() {
    for (bits, digest, works) in [(2_048, "-sha256", true), (1_024, "-sha256", false), (2_048, "-sha1", false)] {
        let Some((server, root)) = OpenSsl::start_with_rsa(bits, digest).await else { return };
        let tls = TlsConfig::new().add_roots([Certificate::from_pem(&root).unwrap()]).only_added_roots();
        let client = builder(tls).build().unwrap();
        match get(&client, "api.test", (Ipv4Addr::LOCALHOST, server.2).into()).await {
            Ok(_) => assert!(works, "{bits} bits, {digest}"),
            Err(error) => {
                let text = format!("{error:#}");
                assert!(!works && error.is_tls() && text.contains("certificate"), "{bits} bits, {digest}: {text}");
            }
        }
    }
}

#[tokio::test]
async fn hazard_a_server_with_only_tls_1_0_or_1_1_is_refused() {
    let authority = Authority::new();
    for (version, works) in [("-tls1_2", true), ("-tls1_1", false), ("-tls1", false)] {
        let arguments = [version, "-cipher", "ALL:@SECLEVEL=0"];
        let Some(server) = OpenSsl::start(&authority, &arguments).await else { return };
        let client = builder(trusting(&authority)).build().unwrap();
        let outcome = get(&client, "api.test", (Ipv4Addr::LOCALHOST, server.2).into()).await;
        match outcome {
            Ok((_, timings)) => {
                assert!(works, "{version}");
                assert_eq!(timings.tls_facts().unwrap().version, "TLSv1_2");
            }
            Err(error) => {
                assert!(!works && error.is_tls(), "{version}: {error}");
                assert!(error.to_string().contains("no version or cipher of TLS in common"), "{version}: {error}");
            }
        }
        let only13 = builder(trusting(&authority).min_version(Version::TLS_1_3)).build().unwrap();
        assert!(get(&only13, "api.test", (Ipv4Addr::LOCALHOST, server.2).into()).await.unwrap_err().is_tls());
    }
}

#[tokio::test]
async fn a_connect_timeout_during_the_handshake_names_the_tls_phase() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    // Without a limit of connections: by one, the dial would give way to another.
    let builder = builder(TlsConfig::new()).pool(PoolConfig::new());
    let client = builder.connect_timeout(Duration::from_secs(1)).build().unwrap();
    let error = get(&client, "api.test", silent.local_addr().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Tls), "{error}");
    assert!(error.is_tls() && error.is_timeout());
}

#[tokio::test]
async fn after_a_failed_handshake_the_other_addresses_are_tried() {
    let authority = Authority::new();
    let [config, distrusted] = [&authority, &Authority::new()].map(|authority| authority.server(&["api.test"], ALPN));
    let [good, bad] = TlsServer::at_two_addresses(config, distrusted);
    let resolver = FixedResolver::new().with("api.test", [[127, 0, 0, 2].into(), [127, 0, 0, 1].into()]);
    let client = Client::builder().dns_resolver(resolver).tls(trusting(&authority)).build().unwrap();
    let (_, timings) = get(&client, "api.test", good.address()).await.unwrap();
    assert_eq!(timings.remote_addr(), Some(good.address()));
    assert_eq!((bad.accepted(), timings.dialled().len()), (1, 2));
    assert!(matches!(timings.dialled()[0].outcome, DialOutcome::Failed(_)));
}

/// A network in memory, 10 ms away, in which 192.0.2.1 accepts and stays silent, and every other address is an HTTPS server.
struct StallingNet(tokio_rustls::TlsAcceptor);

impl Transport for StallingNet {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let (near, far) = tokio::io::duplex(64 * 1024);
            let acceptor = self.0.clone();
            tokio::spawn(async move {
                if address.ip() == v4(1) {
                    std::future::pending::<()>().await;
                }
                answer_over_tls(acceptor, far).await;
            });
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_handshake_leaves_the_other_addresses_a_part_of_the_connect_timeout() {
    let authority = Authority::new();
    let acceptor = tokio_rustls::TlsAcceptor::from(authority.server(&["api.test"], &["http/1.1"]));
    let resolver = FixedResolver::new().with("api.test", [v4(1), v4(2)]);
    let builder = Client::builder().dns_resolver(resolver).transport(StallingNet(acceptor)).tls(trusting(&authority));
    let builder = builder.connect_timeout(Duration::from_millis(200)).pool(PoolConfig::new().max_idle(0));
    let client = builder.build().unwrap();
    // 10 ms to connect, half of the remaining 190 ms for the handshake, and 10 ms to connect to the second address, which is dialled
    // first from then on.
    for took in [115, 10, 10] {
        let start = tokio::time::Instant::now();
        let (text, _) = get(&client, "api.test", (v4(2), 443).into()).await.unwrap();
        assert_eq!((text.as_str(), start.elapsed().as_millis()), ("ok", took));
    }
}

#[tokio::test]
async fn a_retry_policy_repeats_broken_handshakes_but_not_refused_certificates() {
    let authority = Authority::new();
    let policy = || RetryPolicy::new().attempts(3).backoff(Duration::from_millis(1), Duration::from_millis(1));
    for stalls in [false, true] {
        let peer = ScriptedPeer::start(
            move |_, mut socket| while stalls && socket.read(&mut [0; 1024]).is_ok_and(|n| n > 0) {},
        );
        let limit = if stalls { Duration::from_millis(50) } else { support::LONG };
        let builder = builder(trusting(&authority)).tls_timeout(limit).retry(policy());
        let error = builder.build().unwrap().get(peer.url().replace("http:", "https:")).send().await.unwrap_err();
        let kind = if stalls { ErrorKind::Timeout(Phase::Tls) } else { ErrorKind::Tls };
        assert_eq!(error.kind(), kind, "{error}");
        // The peer may accept the last one after the client has given it up.
        support::until("each attempt arrives", || peer.connections() >= 3).await;
        assert_eq!(peer.connections(), 3, "stalls: {stalls}");
    }
    let server = TlsServer::start(authority.server(&["api.test"], ALPN)).await;
    let client = builder(trusting(&Authority::new())).retry(policy()).build().unwrap();
    assert_eq!(get(&client, "api.test", server.address()).await.unwrap_err().kind(), ErrorKind::Tls);
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn hazard_a_response_before_the_end_of_the_request_is_never_lost_over_tls() {
    let authority = Authority::new();
    let acceptor = tokio_rustls::TlsAcceptor::from(authority.server(&["api.test"], &["http/1.1"]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0_usize.. {
            let Ok((socket, _)) = listener.accept().await else { return };
            let Ok(mut stream) = acceptor.accept(socket).await else { continue };
            read_request_head(&mut stream).await;
            let _ = support::send(&mut stream, b"HTTP/1.1 413 No\r\ncontent-length: 2\r\n\r\nno").await;
            if number % 2 == 0 {
                // Every second connection ends with close_notify.
                let _ = stream.shutdown().await;
            }
        }
    });
    let client = builder(trusting(&authority)).build().unwrap();
    for round in 0..200 {
        let request = client.put(format!("https://api.test:{}/", address.port())).body(vec![0; 2 << 20]);
        let response = request.send().await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let status = response.status().as_u16();
        let text = response.text().await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!((status, text.as_str()), (413, "no"), "round {round}");
    }
}

/// A network in memory whose HTTPS servers wait for 3 s before they begin a handshake.
struct OverloadedNet(tokio_rustls::TlsAcceptor);

impl Transport for OverloadedNet {
    fn connect(&self, _: SocketAddr) -> Connecting<'_> {
        Box::pin(async move {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let acceptor = self.0.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(3)).await;
                answer_over_tls(acceptor, far).await;
            });
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_handshake_is_awaited_even_with_many_addresses() {
    let authority = Authority::new();
    let acceptor = tokio_rustls::TlsAcceptor::from(authority.server(&["api.test"], &["http/1.1"]));
    let resolver = FixedResolver::new().with("api.test", [v4(1), v4(2), v4(3), v4(4)]);
    let builder = Client::builder().dns_resolver(resolver).transport(OverloadedNet(acceptor)).tls(trusting(&authority));
    let start = tokio::time::Instant::now();
    let (text, _) = get(&builder.build().unwrap(), "api.test", (v4(1), 443).into()).await.unwrap();
    assert_eq!((text.as_str(), start.elapsed().as_secs()), ("ok", 3));
}

#[tokio::test]
async fn certificates_that_rustls_cannot_read_or_use_are_accepted_on_request_unless_a_key_is_pinned() {
    let unknown = "subjectAltName = DNS:api.test\n1.2.3.4 = critical,DER:05:00";
    for (case, bits, extensions) in
        [("version 1", 2_048, None), ("a critical extension", 2_048, Some(unknown)), ("a short key", 1_024, None)]
    {
        let Some(server) = OpenSsl::start_self_signed(bits, extensions).await else { return };
        let address: SocketAddr = (Ipv4Addr::LOCALHOST, server.2).into();
        for version in [Version::TLS_1_2, Version::TLS_1_3] {
            let any = || TlsConfig::new().danger_accept_invalid_certs(true).min_version(version).max_version(version);
            let outcome = get(&builder(any()).build().unwrap(), "api.test", address).await;
            assert!(outcome.is_ok(), "{case}, {version:?}: {outcome:?}");
            let pinned = builder(any().pin_spki_sha256([7; 32])).build().unwrap();
            assert!(get(&pinned, "api.test", address).await.unwrap_err().is_tls(), "{case}, {version:?}");
        }
    }
}
