//! Proxies: those people run (tinyproxy, microsocks), and some that misbehave.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use speeddial::dns::{Family, FixedResolver, Resolve, Resolving};
use speeddial::http::StatusCode;
#[cfg(feature = "__tls")]
use speeddial::trace::Phase;
use speeddial::{Client, ClientBuilder, ErrorKind, PoolConfig, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use support::http_server::HttpServer;
#[cfg(feature = "__tls")]
use support::{certs::Authority, tls_server::TlsServer};
use support::{free_port, full, ok_server, refusing};

/// Answers with the target it was asked for and what is in the headers for proxies.
fn echo() -> HttpServer {
    HttpServer::start(|request| async move {
        let text = |name| request.headers().get(name).map_or("none".to_owned(), |v| v.to_str().unwrap().to_owned());
        let text = format!("{} {} {}", request.uri(), text("host"), text("proxy-authorization"));
        hyper::Response::new(full(text))
    })
    .unwrap()
}

/// A client of its own names, behind `proxy`.
fn behind(proxy: Proxy) -> ClientBuilder {
    let names = FixedResolver::new()
        .with("proxy.test", [Ipv4Addr::LOCALHOST.into()])
        .with("api.test", [Ipv4Addr::LOCALHOST.into()]);
    Client::builder().resolver(names).proxy(proxy)
}

/// A proxy that runs in a process of its own; `None`, said loudly, where it is not installed.
struct Running {
    child: Child,
    address: SocketAddr,
    file: Option<PathBuf>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Running {
    async fn start(package: &str, mut command: Command, port: u16, file: Option<PathBuf>) -> Option<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            eprintln!("SKIPPED: {:?} is not installed (Debian: {package})", command.get_program());
            return None;
        };
        let running = Self { child, address: (Ipv4Addr::LOCALHOST, port).into(), file };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(running.address).await.is_err() {
            assert!(Instant::now() < deadline, "{package} does not listen");
            tokio::task::yield_now().await;
        }
        Some(running)
    }

    async fn tinyproxy(credentials: Option<(&str, &str)>) -> Option<Self> {
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

    async fn microsocks(credentials: Option<(&str, &str)>) -> Option<Self> {
        let port = free_port();
        let mut command = Command::new("microsocks");
        command.args(["-i", "127.0.0.1", "-p", &port.to_string()]);
        if let Some((user, password)) = credentials {
            command.args(["-u", user, "-P", password]);
        }
        Self::start("microsocks", command, port, None).await
    }
}

#[tokio::test]
async fn a_plain_request_is_forwarded_in_absolute_form() {
    let proxy = echo();
    let port = proxy.address().port();
    let client = behind(Proxy::all(&format!("http://me:secret@proxy.test:{port}")).unwrap()).build().unwrap();
    let response = client.get("http://api.test/a?b=c").send().await.unwrap();
    let timings = response.timings();
    assert_eq!(timings.remote_addr(), Some(proxy.address()));
    assert!(!timings.lookups().is_empty(), "the proxy's own name goes through the cache");
    assert_eq!(response.text().await.unwrap(), "http://api.test/a?b=c api.test Basic bWU6c2VjcmV0");
    let response = client.get("http://api.test/").header("proxy-authorization", "own").send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "http://api.test/ api.test own");
    assert_eq!(proxy.connections(), 1, "the connection is kept");
}

#[tokio::test]
async fn hosts_without_a_proxy_are_gone_to_directly() {
    let (proxy, server) = (echo(), ok_server());
    let url = format!("http://{}/", server.address());
    let all = Proxy::all(&format!("http://{}", proxy.address())).unwrap();
    let client = behind(all.clone().no_proxy("127.0.0.0/8")).build().unwrap();
    assert_eq!(client.get(&url).send().await.unwrap().text().await.unwrap(), "ok");
    let client = behind(all).no_proxy().build().unwrap();
    assert_eq!(client.get(&url).send().await.unwrap().text().await.unwrap(), "ok");
    assert_eq!(proxy.connections(), 0);
}

#[tokio::test]
async fn proxies_add_up_and_a_request_goes_through_the_first_that_is_meant_for_it() {
    let (first, second, server) = (echo(), echo(), ok_server());
    let http = |proxy: &HttpServer| Proxy::http(&format!("http://{}", proxy.address())).unwrap();
    let https = Proxy::https("http://127.0.0.1:9").unwrap();
    let builder = behind(http(&first).no_proxy("second.test,127.0.0.1")).proxy(https);
    let client = builder.proxy(http(&second).no_proxy("127.0.0.1")).build().unwrap();
    let seen = async |url: &str| client.get(url).send().await.unwrap().text().await.unwrap();
    assert_eq!(seen("http://api.test/").await, "http://api.test/ api.test none");
    assert_eq!((first.connections(), second.connections()), (1, 0));
    assert_eq!(seen("http://second.test/").await, "http://second.test/ second.test none");
    assert_eq!((first.connections(), second.connections()), (1, 1), "the next proxy may be meant for it");
    assert_eq!(seen(&format!("http://{}/", server.address())).await, "ok", "no proxy is meant for it");
    let client = behind(http(&first)).no_proxy().proxy(http(&second)).build().unwrap();
    client.get("http://api.test/").send().await.unwrap();
    assert_eq!((first.connections(), second.connections()), (1, 2), "what was added before is forgotten");
}

#[tokio::test]
async fn a_policy_on_addresses_is_about_the_origin_and_not_about_its_proxy() {
    let proxy = echo();
    let all = Proxy::all(&format!("http://{}", proxy.address())).unwrap();
    let client = behind(all).deny_private_addresses().build().unwrap();
    assert!(client.get("http://public.example/").send().await.is_ok());
    let error = client.get("http://10.0.0.1/").send().await.unwrap_err();
    assert!(error.to_string().contains("may not connect to 10.0.0.1"), "{error}");
}

#[tokio::test]
async fn hazard_a_proxy_that_is_not_there() {
    let (_kept, nobody) = refusing();
    let client = behind(Proxy::all(&format!("http://me:secret@{nobody}")).unwrap()).build().unwrap();
    let error = client.get("http://api.test/").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    let expected = format!("connect to api.test:80: the proxy {nobody}: 127.0.0.1: connection refused");
    assert_eq!(error.to_string(), expected, "and no credentials");
}

#[tokio::test]
async fn tinyproxy_forwards_and_tunnels() {
    let server = ok_server();
    for credentials in [None, Some(("me", "secret"))] {
        let Some(proxy) = Running::tinyproxy(credentials).await else { return };
        let login = credentials.map_or(String::new(), |(user, password)| format!("{user}:{password}@"));
        let url = format!("http://{login}{}", proxy.address);
        let client = behind(Proxy::all(&url).unwrap()).build().unwrap();
        let response = client.get(format!("http://{}/", server.address())).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{credentials:?}");
        assert_eq!(response.text().await.unwrap(), "ok");
        if credentials.is_some() {
            let client = behind(Proxy::all(&format!("http://me:wrong@{}", proxy.address)).unwrap()).build().unwrap();
            let response = client.get(format!("http://{}/", server.address())).send().await.unwrap();
            assert!(response.status().is_client_error(), "{}", response.status());
        }
    }
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn http2_by_prior_knowledge_goes_through_a_tunnel() {
    let Some(proxy) = Running::tinyproxy(Some(("me", "secret"))).await else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let serving = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
            let service = hyper::service::service_fn(support::tls_server::answer);
            tokio::spawn(serving.serve_connection(hyper_util::rt::TokioIo::new(socket), service));
        }
    });
    let proxy = Proxy::all(&format!("http://me:secret@{}", proxy.address)).unwrap();
    let client = behind(proxy).http2_prior_knowledge().build().unwrap();
    let response = client.get(format!("http://127.0.0.1:{port}/")).send().await.unwrap();
    assert!(response.timings().proxy() > Duration::ZERO);
    assert!(response.text().await.unwrap().starts_with("HTTP/2.0 GET"));
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn tinyproxy_leads_to_https() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["localhost", "127.0.0.1"], &["h2", "http/1.1"])).await;
    let tls = speeddial::tls::TlsConfig::from(authority.client());
    for credentials in [None, Some(("me", "secret"))] {
        let Some(proxy) = Running::tinyproxy(credentials).await else { return };
        let login = credentials.map_or(String::new(), |(user, password)| format!("{user}:{password}@"));
        let client = behind(Proxy::all(&format!("http://{login}{}", proxy.address)).unwrap()).tls(tls.clone());
        let client = client.build().unwrap();
        let url = format!("https://127.0.0.1:{}/", server.address().port());
        let response = client.get(&url).send().await.unwrap();
        let timings = response.timings();
        assert!(timings.proxy() > Duration::ZERO && timings.tls() > Duration::ZERO);
        assert_eq!(response.status(), StatusCode::OK);
        if credentials.is_some() {
            let client = behind(Proxy::all(&format!("http://{}", proxy.address)).unwrap()).tls(tls.clone());
            let error = client.build().unwrap().get(&url).send().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Connect);
            let start = format!("connect to 127.0.0.1:{}: the proxy {}: ", server.address().port(), proxy.address);
            assert!(error.to_string().starts_with(&start), "{error}");
        }
    }
}

#[tokio::test]
async fn microsocks_is_given_addresses_or_names() {
    let server = ok_server();
    let port = server.address().port();
    for credentials in [None, Some(("me", "secret"))] {
        let Some(proxy) = Running::microsocks(credentials).await else { return };
        let login = credentials.map_or(String::new(), |(user, password)| format!("{user}:{password}@"));
        // What api.test is, this client alone knows; what localhost is, the proxy knows.
        for (scheme, host, works) in [
            ("socks5", "api.test", true),
            ("socks5h", "localhost", true),
            ("socks5h", "api.test", false),
            ("socks5", "unknown.test", false),
        ] {
            let client = behind(Proxy::all(&format!("{scheme}://{login}{}", proxy.address)).unwrap()).build().unwrap();
            let outcome = client.get(format!("http://{host}:{port}/")).send().await;
            assert_eq!(outcome.is_ok(), works, "{scheme} {host}: {outcome:?}");
            match outcome {
                Ok(response) => {
                    assert!(response.timings().proxy() > Duration::ZERO);
                    assert_eq!(response.text().await.unwrap(), "ok");
                }
                Err(error) => assert!(error.is_connect() || error.is_dns(), "{error}"),
            }
        }
        if credentials.is_some() {
            let client = behind(Proxy::all(&format!("socks5://me:wrong@{}", proxy.address)).unwrap()).build().unwrap();
            let error = client.get(format!("http://api.test:{port}/")).send().await.unwrap_err();
            assert!(error.to_string().contains(&format!("the proxy {}", proxy.address)), "{error}");
        }
    }
}

/// A proxy that reads one request and answers it with these bytes; without any, it waits for ever.
#[cfg(feature = "__tls")]
async fn scripted(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.windows(4).any(|end| end == b"\r\n\r\n") && socket.read_buf(&mut head).await.unwrap() > 0 {}
            let _ = socket.write_all(answer).await;
            if answer.is_empty() {
                kept.push(socket);
            }
        }
    });
    address
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn hazard_proxies_that_refuse_answer_garbage_or_nothing() {
    let cases: [(&str, &[u8], &str); 6] = [
        ("407", b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n", "authorization required"),
        ("502", b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 3\r\n\r\nbad", "unsuccessful"),
        ("garbage", b"\x05\xff nonsense \r\n\r\n", "unsuccessful"),
        ("a hint of an answer", b"HTTP/1.1 2", "unexpected"),
        ("a body with its 200", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "TLS"),
        ("nothing", b"", "no connection within"),
    ];
    for (case, answer, words) in cases {
        let proxy = scripted(answer).await;
        let client = behind(Proxy::all(&format!("http://{proxy}")).unwrap());
        let client = client.connect_timeout(Duration::from_millis(500)).build().unwrap();
        let error = client.get("https://api.test/").send().await.unwrap_err();
        assert!(error.is_connect(), "{case}: {error}");
        assert!(error.to_string().contains(words), "{case}: {error}");
        if case == "nothing" {
            assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Proxy));
        }
        assert_eq!(client.pool_stats().idle, 0, "{case}");
    }
}

#[tokio::test]
async fn hazard_socks_proxies_that_answer_garbage() {
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"\x05\xff", b"\x04\x5b", b"\x05"] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.read_buf(&mut Vec::new()).await.unwrap();
            socket.write_all(answer).await.unwrap();
        });
        let client = behind(Proxy::all(&format!("socks5://{proxy}")).unwrap());
        let client = client.connect_timeout(Duration::from_millis(500)).build().unwrap();
        let error = client.get("http://api.test/").send().await.unwrap_err();
        assert!(error.is_connect(), "{answer:?}: {error}");
    }
}

/// A SOCKS proxy that leads wherever it is asked to, but not to the addresses it refuses; and what it was asked for.
async fn socks(at: Ipv4Addr, refused: &'static [IpAddr]) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind((at, 0)).await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<_>>>::default());
    let note = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let note = note.clone();
            tokio::spawn(async move {
                let mut greeting = [0; 3];
                socket.read_exact(&mut greeting).await?;
                socket.write_all(&[5, 0]).await?;
                let mut request = [0; 4];
                socket.read_exact(&mut request).await?;
                let host = match request[3] {
                    1 => IpAddr::from(socket.read_u32().await?.to_be_bytes()).to_string(),
                    4 => IpAddr::from(socket.read_u128().await?.to_be_bytes()).to_string(),
                    _ => {
                        let mut name = vec![0; socket.read_u8().await?.into()];
                        socket.read_exact(&mut name).await?;
                        String::from_utf8(name).unwrap()
                    }
                };
                let port = socket.read_u16().await?;
                note.lock().unwrap().push(host.clone());
                if host.parse().is_ok_and(|ip: IpAddr| refused.contains(&ip)) {
                    return socket.write_all(&[5, 4, 0, 1, 0, 0, 0, 0, 0, 0]).await;
                }
                let mut onward = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
                socket.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
                copy_bidirectional(&mut socket, &mut onward).await.map(drop)
            });
        }
    });
    (address, asked)
}

#[tokio::test]
async fn a_socks_proxy_is_asked_for_each_address_of_the_origin() {
    const REFUSED: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let (server, (proxy, asked)) = (ok_server(), socks(Ipv4Addr::LOCALHOST, &[REFUSED]).await);
    let v6: IpAddr = "2001:db8::1".parse().unwrap();
    let names = FixedResolver::new().with("api.test", [v6, REFUSED]);
    let client = Client::builder().resolver(names).proxy(Proxy::all(&format!("socks5://{proxy}")).unwrap());
    let client = client.build().unwrap();
    for _ in 0..3 {
        // Looked at before it is used again, it is still there.
        let response = client.post(format!("http://api.test:{}/", server.address().port())).body("x").send().await;
        assert_eq!(response.unwrap().text().await.unwrap(), "ok");
    }
    assert_eq!(client.pool_stats().opened, 1);
    assert_eq!(*asked.lock().unwrap(), [REFUSED.to_string(), v6.to_string()], "IPv4 first, then what is left");
}

/// One family has no answer, ever.
struct NoV6;

impl Resolve for NoV6 {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a> {
        Box::pin(async move {
            match family {
                Family::V6 => std::future::pending().await,
                Family::V4 => FixedResolver::new().with(name, [Ipv4Addr::LOCALHOST.into()]).resolve(name, family).await,
            }
        })
    }
}

#[tokio::test]
async fn hazard_one_family_dead_in_dns_behind_a_socks_proxy() {
    let (server, (proxy, _)) = (ok_server(), socks(Ipv4Addr::LOCALHOST, &[]).await);
    let client = Client::builder().resolver(NoV6).proxy(Proxy::all(&format!("socks5://{proxy}")).unwrap());
    let client = client.build().unwrap();
    let response = client.get(format!("http://api.test:{}/", server.address().port())).send().await.unwrap();
    let timings = response.timings();
    assert!(timings.dns() >= Duration::from_millis(50) && timings.dns() < Duration::from_secs(4), "{timings}");
    assert!(timings.lookups().iter().any(|lookup| &*lookup.name == "api.test"), "{timings}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_proxy_whose_first_address_hangs_up_is_asked_at_the_next() {
    let server = ok_server();
    let (proxy, _) = socks(Ipv4Addr::LOCALHOST, &[]).await;
    let dead = Ipv4Addr::new(127, 0, 0, 2);
    let hangs_up = TcpListener::bind((dead, proxy.port())).await.unwrap();
    let dialled = tokio::spawn(async move {
        for dialled in 1.. {
            let (mut socket, _) = hangs_up.accept().await.unwrap();
            socket.read_buf(&mut Vec::new()).await.unwrap();
            if dialled == 2 {
                panic!("the good address goes first from then on");
            }
        }
    });
    let names = FixedResolver::new().with("proxy.test", [dead.into(), Ipv4Addr::LOCALHOST.into()]);
    let proxy = Proxy::all(&format!("socks5h://proxy.test:{}", proxy.port())).unwrap();
    let pool = PoolConfig::new().max_requests_per_connection(1);
    let client = Client::builder().resolver(names).proxy(proxy).pool(pool).build().unwrap();
    for _ in 0..3 {
        let response = client.get(format!("http://api.test:{}/", server.address().port())).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "ok");
    }
    assert!(!dialled.is_finished());
}

/// A proxy that tunnels for who shows credentials, and hands its answer on with the first bytes of the origin's where those
/// come by themselves.
async fn eager_proxy() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    socket.read_buf(&mut head).await?;
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let Some(target) = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()) else {
                    return socket.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
                };
                if !head.contains("Proxy-Authorization: Basic bWU6c2VjcmV0") {
                    return socket.write_all(b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n").await;
                }
                let mut onward = TcpStream::connect(target).await?;
                let mut answer = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
                let _ = tokio::time::timeout(Duration::from_millis(200), onward.read_buf(&mut answer)).await;
                socket.write_all(&answer).await?;
                copy_bidirectional(&mut socket, &mut onward).await.map(drop)
            });
        }
    });
    address
}

#[tokio::test]
async fn what_comes_right_behind_a_proxys_answer_is_the_origins() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await?;
        // Its settings, before the client has said a word; to lose them is to wait for ever.
        socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await?;
        let mut seen = Vec::new();
        // The client acknowledges settings it has had.
        while !seen.windows(9).any(|frame| frame == [0, 0, 0, 4, 1, 0, 0, 0, 0]) {
            if socket.read_buf(&mut seen).await? == 0 {
                return Ok(());
            }
        }
        // `:status: 200` and the end of the stream.
        socket.write_all(&[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88]).await?;
        socket.read_to_end(&mut seen).await.map(drop)
    });
    let proxy = Proxy::all(&format!("http://me:secret@{}", eager_proxy().await)).unwrap();
    let client = behind(proxy).http2_prior_knowledge().timeout(Duration::from_secs(20)).build().unwrap();
    let response = client.get(format!("http://127.0.0.1:{port}/")).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[cfg(feature = "hyper-util")]
#[tokio::test]
async fn others_go_through_a_proxy_that_wants_credentials_by_a_tunnel() {
    use http_body_util::{BodyExt, Empty};
    use hyper_util::client::legacy;

    let server = ok_server();
    let proxy = Proxy::all(&format!("http://me:secret@{}", eager_proxy().await)).unwrap();
    let connector = speeddial::interop::Connector::new(behind(proxy)).unwrap();
    let client =
        legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build::<_, Empty<bytes::Bytes>>(connector);
    let response = client.get(format!("http://{}/", server.address()).parse().unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
}

/// A proxy that is spoken to by TLS: it tunnels whatever it is asked to.
#[cfg(feature = "__tls")]
async fn secret_proxy(config: Arc<rustls::ServerConfig>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(config);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut stream = acceptor.accept(socket).await?;
                let mut head = Vec::new();
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    stream.read_buf(&mut head).await?;
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
                let mut onward = TcpStream::connect(target).await?;
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
                copy_bidirectional(&mut stream, &mut onward).await
            });
        }
    });
    address
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_proxy_can_be_spoken_to_by_tls() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["127.0.0.1"], &["h2"])).await;
    let proxy = secret_proxy(authority.server(&["proxy.test"], &[])).await;
    let proxy = Proxy::all(&format!("https://proxy.test:{}", proxy.port())).unwrap();
    let client = behind(proxy.clone()).tls(authority.client()).build().unwrap();
    let response = client.get(format!("https://127.0.0.1:{}/", server.address().port())).send().await.unwrap();
    let timings = response.timings();
    assert!(timings.proxy() > Duration::ZERO && timings.tls() > Duration::ZERO);
    assert!(response.text().await.unwrap().starts_with("HTTP/1.1"), "the whole configuration names no protocol");
    let stranger = behind(proxy).tls(Authority::new().client()).build().unwrap();
    let error = stranger.get("https://127.0.0.1:9/").send().await.unwrap_err();
    assert!(error.to_string().contains("the proxy proxy.test:"), "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_proxy_that_is_spoken_to_by_tls_forwards_plain_requests_and_is_shown_credentials() {
    let authority = Authority::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = tokio_rustls::TlsAcceptor::from(authority.server(&["proxy.test"], &[]));
    tokio::spawn(async move {
        let mut stream = acceptor.accept(listener.accept().await?.0).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_buf(&mut head).await?;
        }
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", head.len());
        stream.write_all(answer.as_bytes()).await?;
        stream.write_all(&head).await?;
        stream.flush().await
    });
    let proxy = Proxy::all(&format!("https://me:secret@proxy.test:{port}")).unwrap();
    let client = behind(proxy).tls(authority.client()).build().unwrap();
    let seen = client.get("http://api.test/a").send().await.unwrap().text().await.unwrap();
    assert!(seen.starts_with("GET http://api.test/a HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains("proxy-authorization: Basic bWU6c2VjcmV0\r\n"), "{seen}");
}

#[tokio::test]
async fn hazard_a_socks_proxy_that_answers_nothing() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let client = behind(Proxy::all(&format!("socks5h://{}", listener.local_addr().unwrap())).unwrap());
    let client = client.connect_timeout(Duration::from_millis(200)).build().unwrap();
    let error = client.get("http://api.test/").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(speeddial::trace::Phase::Proxy), "{error}");
}

#[cfg(all(unix, feature = "__tls"))]
#[tokio::test]
async fn a_unix_socket_can_be_spoken_to_by_tls() {
    let path = std::env::temp_dir().join(format!("speeddial-unix-tls-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let authority = Authority::new();
    let acceptor = tokio_rustls::TlsAcceptor::from(authority.server(&["api.test"], &["http/1.1"]));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(socket).await else { continue };
            let service = hyper::service::service_fn(support::tls_server::answer);
            let serving = hyper::server::conn::http1::Builder::new();
            tokio::spawn(serving.serve_connection(hyper_util::rt::TokioIo::new(stream), service));
        }
    });
    let client = Client::builder().unix_socket(&path).tls(authority.client()).build().unwrap();
    let response = client.get("https://api.test/").send().await.unwrap();
    assert!(response.tls().is_some());
    assert!(response.text().await.unwrap().starts_with("HTTP/1.1 GET"));
    let error = client.get("https://other.test/").send().await.unwrap_err();
    assert!(error.is_tls() && error.to_string().contains(&path.display().to_string()), "{error}");
    std::fs::remove_file(&path).unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_takes_every_request() {
    let path = std::env::temp_dir().join(format!("speeddial-unix-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let client = Client::builder().unix_socket(&path).build().unwrap();
    let error = client.get("http://whatever/").send().await.unwrap_err();
    assert!(error.is_connect(), "{error}");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");

    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut head = Vec::new();
            while socket.read_buf(&mut head).await.unwrap() > 0 {
                if head.ends_with(b"\r\n\r\n") {
                    let body = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
                    let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    socket.write_all(text.as_bytes()).await.unwrap();
                    head.clear();
                }
            }
        }
    });
    for _ in 0..2 {
        let response = client.get("http://no.such.name/a").send().await.unwrap();
        assert_eq!(response.remote_addr(), None);
        assert_eq!(response.text().await.unwrap(), "GET /a HTTP/1.1");
    }
    assert_eq!(client.pool_stats().opened, 1);
    std::fs::remove_file(&path).unwrap();
}

/// A Unix domain socket whose backlog is full, and the streams that fill it.
#[cfg(target_os = "linux")]
async fn full_unix_listener(path: &std::path::Path) -> (tokio::net::UnixListener, Vec<tokio::net::UnixStream>) {
    let _ = std::fs::remove_file(path);
    let socket = tokio::net::UnixSocket::new_stream().unwrap();
    socket.bind(path).unwrap();
    let listener = socket.listen(4).unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) = tokio::net::UnixStream::connect(path).await {
        queued.push(stream);
    }
    (listener, queued)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn hazard_a_unix_socket_whose_backlog_is_full_serves_every_request() {
    let path = std::env::temp_dir().join(format!("speeddial-unix-full-{}", std::process::id()));
    let (listener, _queued) = full_unix_listener(&path).await;
    let pool = PoolConfig::new().max_connections_per_host(100);
    let client = Client::builder().unix_socket(&path).pool(pool).build().unwrap();
    let get = async |number: usize| client.get(format!("http://api.test/{number}")).send().await?.text().await;
    let gets = futures_util::future::join_all((0..100).map(get));
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                while socket.read_buf(&mut Vec::new()).await.is_ok_and(|read| read > 0) {
                    let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                }
            });
        }
    });
    for got in gets.await {
        assert_eq!(got.unwrap(), "ok");
    }
    std::fs::remove_file(&path).unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn hazard_a_unix_socket_whose_backlog_stays_full_times_out_in_the_connect_phase() {
    let path = std::env::temp_dir().join(format!("speeddial-unix-stuck-{}", std::process::id()));
    let (_listener, _queued) = full_unix_listener(&path).await;
    let builder = Client::builder().unix_socket(&path).connect_timeout(Duration::from_millis(100));
    let error = builder.build().unwrap().get("http://api.test/").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(speeddial::trace::Phase::Connect), "{error}");
    assert!(error.is_timeout() && error.is_connect());
    let words = format!("{}: its backlog was full for 100ms", path.display());
    assert!(error.to_string().contains(&words), "{error}");
    std::fs::remove_file(&path).unwrap();
}
