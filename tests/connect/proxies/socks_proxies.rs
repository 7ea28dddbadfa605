//! SOCKS proxies: names and addresses, several addresses, and proxies that misbehave.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use speeddial::dns::{Family, FixedResolver, Resolver, ResolverFuture};
use speeddial::{Client, ErrorKind, PoolConfig, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::common::{ProxyProcess, behind};
use support::ok_server;

#[tokio::test]
async fn microsocks_gets_addresses_for_socks5_and_names_for_socks5h() {
    let server = ok_server();
    let port = server.address().port();
    for credentials in [None, Some(("me", "secret"))] {
        let Some(proxy) = ProxyProcess::microsocks(credentials).await else { return };
        let login = credentials.map_or(String::new(), |(user, password)| format!("{user}:{password}@"));
        // Only the client can resolve api.test; the proxy can resolve localhost.
        for (scheme, host, works) in [
            ("socks5", "api.test", true),
            ("socks5h", "localhost", true),
            ("socks5h", "api.test", false),
            ("socks5", "unknown.test", false),
        ] {
            let client = behind(Proxy::all(format!("{scheme}://{login}{}", proxy.address)).unwrap()).build().unwrap();
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
            let client = behind(Proxy::all(format!("socks5://me:wrong@{}", proxy.address)).unwrap()).build().unwrap();
            let error = client.get(format!("http://api.test:{port}/")).send().await.unwrap_err();
            assert!(error.to_string().contains(&format!("the proxy {}", proxy.address)), "{error}");
        }
    }
}

#[tokio::test]
async fn microsocks_without_users_serves_a_client_with_credentials() {
    let server = ok_server();
    let Some(proxy) = ProxyProcess::microsocks(None).await else { return };
    let client = behind(Proxy::all(format!("socks5://me:secret@{}", proxy.address)).unwrap()).build().unwrap();
    let response = client.get(format!("http://api.test:{}/", server.address().port())).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "ok");
}

#[tokio::test]
async fn hazard_a_socks_proxy_that_closes_after_any_byte_of_its_answers_is_a_connect_error() {
    const ANSWERS: [&[u8]; 3] = [&[5, 2], &[1, 0], &[5, 0, 0, 1, 127, 0, 0, 1, 0, 80]];
    let total: usize = ANSWERS.iter().map(|answer| answer.len()).sum();
    for length in 0..total {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut left = length;
            for answer in ANSWERS {
                socket.read_buf(&mut Vec::new()).await.unwrap();
                let sent = &answer[..answer.len().min(left)];
                socket.write_all(sent).await.unwrap();
                left -= sent.len();
                if sent.len() < answer.len() {
                    return;
                }
            }
        });
        let client = behind(Proxy::all(format!("socks5h://me:secret@{proxy}")).unwrap()).build().unwrap();
        let error = client.get("http://api.test/").send().await.unwrap_err();
        let when = if length == 0 { "without an answer" } else { "in the middle of its answer" };
        assert_eq!(error.kind(), ErrorKind::Connect, "after {length} bytes: {error}");
        assert!(
            error.to_string().contains(&format!("it closed the connection {when}")),
            "after {length} bytes: {error}"
        );
    }
}

#[tokio::test]
async fn a_socks_proxys_refusal_is_told_by_its_meaning_and_the_host_it_was_asked_for() {
    const REFUSED: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let (proxy, _) = socks_proxy(Ipv4Addr::LOCALHOST, &[REFUSED]).await;
    let client = behind(Proxy::all(format!("socks5://{proxy}")).unwrap()).build().unwrap();
    let error = client.get("http://192.0.2.1/").send().await.unwrap_err().to_string();
    let what = format!("the proxy {proxy}: no connection to 192.0.2.1: host unreachable (SOCKS5 reply 4)");
    assert!(error.contains(&what), "{error}");
}

#[tokio::test]
async fn hazard_a_socks_proxy_that_answers_garbage_is_a_connect_error() {
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"\x05\xff", b"\x04\x5b", b"\x05"] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.read_buf(&mut Vec::new()).await.unwrap();
            socket.write_all(answer).await.unwrap();
        });
        let client = behind(Proxy::all(format!("socks5://{proxy}")).unwrap());
        let client = client.connect_timeout(support::LONG).build().unwrap();
        let error = client.get("http://api.test/").send().await.unwrap_err();
        assert!(error.is_connect() && !error.is_timeout(), "{answer:?}: {error}");
    }
}

/// The way in which a SOCKS proxy refuses an address.
#[derive(Debug, Clone, Copy)]
enum Refusal {
    Replies,
    Closes,
    Silent,
    /// It says that it is connected, and closes, as `ssh -D` does.
    Accepts,
}

/// Starts a SOCKS proxy that refuses some addresses and connects all others to loopback. Returns its address and the hosts it was
/// asked for.
async fn socks_proxy(at: Ipv4Addr, refused: &'static [IpAddr]) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    socks_proxy_that(at, refused, Refusal::Replies).await
}

async fn socks_proxy_that(
    at: Ipv4Addr,
    refused: &'static [IpAddr],
    how: Refusal,
) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind((at, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let hosts = Arc::<Mutex<Vec<_>>>::default();
    let note = hosts.clone();
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
                    return match how {
                        Refusal::Replies => socket.write_all(&[5, 4, 0, 1, 0, 0, 0, 0, 0, 0]).await,
                        Refusal::Accepts => socket.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await,
                        Refusal::Closes => Ok(()),
                        Refusal::Silent => std::future::pending().await,
                    };
                }
                let mut onward = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
                socket.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
                copy_bidirectional(&mut socket, &mut onward).await.map(drop)
            });
        }
    });
    (address, hosts)
}

#[tokio::test]
async fn a_socks_proxy_is_asked_for_each_address_of_the_origin() {
    const REFUSED: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let (server, (proxy, hosts)) = (ok_server(), socks_proxy(Ipv4Addr::LOCALHOST, &[REFUSED]).await);
    let v6: IpAddr = "2001:db8::1".parse().unwrap();
    let names = FixedResolver::new().with("api.test", [v6, REFUSED]);
    let client = Client::builder().dns_resolver(names).proxy(Proxy::all(format!("socks5://{proxy}")).unwrap());
    // Beside a slow dial, as on a busy machine, there would be another one.
    let client = client.pool(PoolConfig::new().max_connections_per_host(1)).build().unwrap();
    for _ in 0..3 {
        // The check before a reuse must find the connection alive.
        let response = client.post(format!("http://api.test:{}/", server.address().port())).body("x").send().await;
        assert_eq!(response.unwrap().text().await.unwrap(), "ok");
    }
    assert_eq!(client.pool_stats().opened, 1);
    assert_eq!(*hosts.lock().unwrap(), [REFUSED.to_string(), v6.to_string()], "IPv4 first, then IPv6");
}

/// A resolver that never answers for IPv6.
struct NoV6;

impl Resolver for NoV6 {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        Box::pin(async move {
            match family {
                Family::V6 => std::future::pending().await,
                Family::V4 => FixedResolver::new().with(name, [Ipv4Addr::LOCALHOST.into()]).resolve(name, family).await,
            }
        })
    }
}

#[tokio::test]
async fn hazard_a_family_without_a_dns_answer_does_not_block_a_socks_proxy() {
    let (server, (proxy, _)) = (ok_server(), socks_proxy(Ipv4Addr::LOCALHOST, &[]).await);
    let client = Client::builder().dns_resolver(NoV6).proxy(Proxy::all(format!("socks5://{proxy}")).unwrap());
    let client = client.build().unwrap();
    let response = client.get(format!("http://api.test:{}/", server.address().port())).send().await.unwrap();
    let timings = response.timings();
    assert!(timings.dns() >= Duration::from_millis(50) && timings.dns() < Duration::from_secs(4), "{timings}");
    assert!(timings.lookups().iter().any(|lookup| &*lookup.name == "api.test"), "{timings}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_proxy_whose_first_address_closes_is_reached_at_the_next_address() {
    let server = ok_server();
    let dead = Ipv4Addr::new(127, 0, 0, 2);
    let (proxy, hangs_up) = loop {
        let (proxy, _) = socks_proxy(Ipv4Addr::LOCALHOST, &[]).await;
        // The port may be taken at the other address.
        if let Ok(hangs_up) = TcpListener::bind((dead, proxy.port())).await {
            break (proxy, hangs_up);
        }
    };
    let dialled = tokio::spawn(async move {
        for dialled in 1.. {
            let (mut socket, _) = hangs_up.accept().await.unwrap();
            socket.read_buf(&mut Vec::new()).await.unwrap();
            if dialled == 2 {
                panic!("the good address must be dialled first from then on");
            }
        }
    });
    let names = FixedResolver::new().with("proxy.test", [dead.into(), Ipv4Addr::LOCALHOST.into()]);
    let proxy = Proxy::all(format!("socks5h://proxy.test:{}", proxy.port())).unwrap();
    let pool = PoolConfig::new().max_requests_per_connection(1);
    let client = Client::builder().dns_resolver(names).proxy(proxy).pool(pool).build().unwrap();
    for _ in 0..3 {
        let response = client.get(format!("http://api.test:{}/", server.address().port())).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "ok");
    }
    assert!(!dialled.is_finished());
}

#[tokio::test]
async fn hazard_a_socks_proxy_that_stays_silent_times_out_in_the_proxy_phase() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let client = behind(Proxy::all(format!("socks5h://{}", listener.local_addr().unwrap())).unwrap());
    let client = client.connect_timeout(Duration::from_secs(1)).build().unwrap();
    let error = client.get("http://api.test/").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(speeddial::trace::Phase::Proxy), "{error}");
}

const REFUSED: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const GOOD: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

#[tokio::test]
async fn an_address_that_a_socks_proxy_does_not_reach_is_given_up_for_the_next_one() {
    for how in [Refusal::Replies, Refusal::Closes, Refusal::Silent] {
        let (server, (proxy, hosts)) = (ok_server(), socks_proxy_that(Ipv4Addr::LOCALHOST, &[REFUSED], how).await);
        let names = FixedResolver::new().with("api.test", [REFUSED, GOOD]);
        let client = Client::builder().dns_resolver(names).proxy(Proxy::all(format!("socks5://{proxy}")).unwrap());
        // A part of the time is for the address that stays silent, and the rest is enough for the next one.
        let client = client.connect_timeout(Duration::from_secs(8)).build().unwrap();
        let response = client.get(format!("http://api.test:{}/", server.address().port())).send().await;
        assert_eq!(response.unwrap_or_else(|error| panic!("{how:?}: {error}")).text().await.unwrap(), "ok");
        let asked = hosts.lock().unwrap().clone();
        // Beside a slow dial there may be another one.
        assert!(asked[0] == REFUSED.to_string() && asked.contains(&GOOD.to_string()), "{how:?}: {asked:?}");
    }
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn an_address_whose_tunnel_closes_before_tls_is_given_up_for_the_next_one() {
    let authority = support::certs::Authority::new();
    let server = support::tls_server::TlsServer::start(authority.server(&["api.test"], &["http/1.1"])).await;
    let (proxy, hosts) = socks_proxy_that(Ipv4Addr::LOCALHOST, &[REFUSED], Refusal::Accepts).await;
    let names = FixedResolver::new().with("api.test", [REFUSED, GOOD]);
    let tls = speeddial::tls::TlsConfig::new().add_roots([authority.root()]).only_added_roots();
    let client = Client::builder().dns_resolver(names).proxy(Proxy::all(format!("socks5://{proxy}")).unwrap());
    let client = client.tls(tls).build().unwrap();
    let response = client.get(format!("https://api.test:{}/", server.address().port())).send().await;
    assert!(response.is_ok(), "{response:?}");
    let asked = hosts.lock().unwrap().clone();
    // Beside a slow dial there may be another one.
    assert!(asked[0] == REFUSED.to_string() && asked.contains(&GOOD.to_string()), "{asked:?}");
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_certificate_that_is_refused_is_told_though_another_address_is_not_reached() {
    let authority = support::certs::Authority::new();
    let server = support::tls_server::TlsServer::start(authority.server(&["api.test"], &["http/1.1"])).await;
    let (proxy, hosts) = socks_proxy_that(Ipv4Addr::LOCALHOST, &[REFUSED], Refusal::Replies).await;
    let names = FixedResolver::new().with("api.test", [GOOD, REFUSED]);
    let client = Client::builder().dns_resolver(names).proxy(Proxy::all(format!("socks5://{proxy}")).unwrap());
    // Beside a slow dial, as on a busy machine, there would be another one.
    let client = client.pool(PoolConfig::new().max_connections_per_host(1)).build().unwrap();
    let url = format!("https://api.test:{}/", server.address().port());
    let error = client.get(url).send().await.unwrap_err();
    assert_eq!((error.kind(), error.is_tls()), (ErrorKind::Tls, true), "{error:#}");
    assert_eq!(*hosts.lock().unwrap(), [GOOD, REFUSED].map(|ip| ip.to_string()));
}
