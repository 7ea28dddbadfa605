//! The twelve things in which requests can differ that must not share a connection, each by itself. All but the last can change within
//! one client: by the request, or by a reconfiguration. Clients share no connections at all.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::KeyPair;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use speeddial::dns::FixedResolver;
use speeddial::settings::{HostConfig, Reconfiguration};
use speeddial::tls::{Identity, TlsConfig};
use speeddial::{Certificate, Client, ClientBuilder, Proxy, RequestBuilder};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use support::certs::{Authority, provider};
use support::read_request_head;

/// A server at all of this machine's addresses, over HTTP and HTTPS on one port, which asks for client certificates and needs none. It
/// answers each request with the address that was dialled and the number of the connection, and takes requests for a proxy as well.
struct Server {
    port: u16,
    authority: Authority,
}

impl Server {
    async fn start() -> Self {
        let authority = Authority::new();
        let acceptor = TlsAcceptor::from(config(&authority));
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let number = AtomicUsize::new(0);
            while let Ok((socket, _)) = listener.accept().await {
                let number = number.fetch_add(1, Ordering::SeqCst);
                let name = format!("{} {number}", socket.local_addr().unwrap());
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut first = [0];
                    let _ = socket.peek(&mut first).await;
                    // The first byte of a TLS handshake.
                    match first {
                        [22] => {
                            if let Ok(stream) = acceptor.accept(socket).await {
                                answer(stream, &name).await;
                            }
                        }
                        _ => answer(socket, &name).await,
                    }
                });
            }
        });
        Self { port, authority }
    }

    /// The builder of a client that finds its names at 127.0.0.1 and trusts the server.
    fn builder(&self) -> ClientBuilder {
        let local = [Ipv4Addr::LOCALHOST.into()];
        let resolver = FixedResolver::new().with("api.test", local).with("other.test", local);
        Client::builder().no_proxy().dns_resolver(resolver).tls(self.tls())
    }

    fn tls(&self) -> TlsConfig {
        TlsConfig::new().add_roots([self.authority.root()]).only_added_roots()
    }

    fn url(&self, scheme: &str, host: &str) -> String {
        format!("{scheme}://{host}:{}/", self.port)
    }
}

fn config(authority: &Authority) -> Arc<ServerConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.certificate()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let verifier = verifier.allow_unauthenticated().build().unwrap();
    let names = ["api.test".to_owned(), "other.test".to_owned()];
    let (certificate, key) = authority.sign(rcgen::CertificateParams::new(names).unwrap());
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_client_cert_verifier(verifier).with_single_cert(vec![certificate], key).unwrap())
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, name: &str) {
    while read_request_head(&mut stream).await.is_some() {
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
        let _ = support::send(&mut stream, answer.as_bytes()).await;
    }
}

/// Makes a request, and returns the name of its connection.
async fn connection(client: &Client, request: RequestBuilder) -> String {
    let name = request.send().await.unwrap().text().await.unwrap();
    support::settled(client).await;
    name
}

/// Checks that these requests do not share a connection, and that each shares that of its own kind.
async fn assert_apart(client: &Client, one: impl Fn() -> RequestBuilder, other: impl Fn() -> RequestBuilder) {
    let first = connection(client, one()).await;
    let second = connection(client, other()).await;
    assert_ne!(first, second);
    for _ in 0..2 {
        assert_eq!(connection(client, one()).await, first);
        assert_eq!(connection(client, other()).await, second);
    }
    assert_eq!(client.pool_stats().opened, 2);
}

/// Checks that a connection is not used any more after the client was changed in this way, and neither when it is changed back.
async fn assert_replaced(
    client: &Client,
    url: &str,
    change: impl FnOnce(Reconfiguration) -> Reconfiguration,
    back: impl FnOnce(Reconfiguration) -> Reconfiguration,
) {
    let mut names = vec![connection(client, client.get(url)).await];
    client.reconfigure(change).unwrap();
    names.push(connection(client, client.get(url)).await);
    client.reconfigure(back).unwrap();
    names.push(connection(client, client.get(url)).await);
    assert_eq!(connection(client, client.get(url)).await, names[2], "a connection of its own kind is shared");
    names.sort();
    names.dedup();
    assert_eq!((names.len(), client.pool_stats().opened), (3, 3), "{names:?}");
}

#[tokio::test]
async fn hazard_key_field_1_requests_to_another_scheme_share_no_connection() {
    let server = Server::start().await;
    let client = server.builder().build().unwrap();
    let get = |scheme: &'static str| client.get(server.url(scheme, "api.test"));
    assert_apart(&client, || get("http"), || get("https")).await;
}

#[tokio::test]
async fn hazard_key_field_2_requests_to_another_host_share_no_connection() {
    let server = Server::start().await;
    for scheme in ["http", "https"] {
        let client = server.builder().build().unwrap();
        let get = |host: &'static str| client.get(server.url(scheme, host));
        assert_apart(&client, || get("api.test"), || get("other.test")).await;
    }
}

#[tokio::test]
async fn hazard_key_field_3_requests_to_another_port_share_no_connection() {
    let one = Server::start().await;
    let other = Server::start().await;
    let client = one.builder().build().unwrap();
    let get = |server: &Server| client.get(server.url("http", "api.test"));
    assert_apart(&client, || get(&one), || get(&other)).await;
}

#[tokio::test]
async fn hazard_key_field_4_requests_by_another_proxy_share_no_connection() {
    let server = Server::start().await;
    let other = Server::start().await;
    let proxy = |server: &Server| Proxy::all(format!("http://127.0.0.1:{}", server.port)).unwrap();
    let client = server.builder().build().unwrap();
    let get = || client.get(server.url("http", "api.test"));
    assert_apart(&client, get, || get().proxy(proxy(&server))).await;
    let client = server.builder().build().unwrap();
    let get = || client.get("http://api.test/");
    assert_apart(&client, || get().proxy(proxy(&server)), || get().proxy(proxy(&other))).await;
    let client = server.builder().build().unwrap();
    let by = |way: &Server| {
        let proxy = proxy(way);
        move |to: Reconfiguration| to.proxy(proxy)
    };
    assert_replaced(&client, &server.url("http", "api.test"), by(&server), Reconfiguration::no_proxy).await;
}

#[tokio::test]
async fn hazard_key_field_5_requests_with_other_credentials_for_a_proxy_share_no_connection() {
    let server = Server::start().await;
    let client = server.builder().build().unwrap();
    let get = |login: &str| {
        let proxy = Proxy::all(format!("http://{login}127.0.0.1:{}", server.port)).unwrap();
        client.get("http://api.test/").proxy(proxy)
    };
    assert_apart(&client, || get("me:secret@"), || get("me:other@")).await;
    let client = server.builder().build().unwrap();
    let get = |login: &str| {
        let proxy = Proxy::all(format!("http://{login}127.0.0.1:{}", server.port)).unwrap();
        client.get("http://api.test/").proxy(proxy)
    };
    assert_apart(&client, || get("me:secret@"), || get("")).await;
}

#[tokio::test]
async fn hazard_key_field_6_requests_with_other_roots_share_no_connection() {
    let server = Server::start().await;
    let client = server.builder().build().unwrap();
    let roots = |authorities: &[&Authority]| {
        let certificates: Vec<_> =
            authorities.iter().map(|one| Certificate::from_der(&one.certificate()).unwrap()).collect();
        move |to: Reconfiguration| to.tls_certs_only(certificates)
    };
    let other = Authority::new();
    let url = server.url("https", "api.test");
    let first = connection(&client, client.get(&url)).await;
    // Roots that are added make no connection invalid that was verified by others.
    client.reconfigure(roots(&[&server.authority, &other])).unwrap();
    assert_eq!(connection(&client, client.get(&url)).await, first);
    // Those that are removed do, whichever a connection was verified by.
    client.reconfigure(roots(&[&server.authority])).unwrap();
    assert_ne!(connection(&client, client.get(&url)).await, first);
    client.reconfigure(roots(&[&other])).unwrap();
    let error = client.get(&url).send().await.unwrap_err();
    assert!(error.is_tls(), "the server is not trusted any more: {error}");
}

#[tokio::test]
async fn hazard_key_field_7_requests_with_another_client_certificate_share_no_connection() {
    let server = Server::start().await;
    let identity = || {
        let key = KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["client.test".to_owned()]).unwrap();
        let chain = server.authority.sign_pem(params, &key);
        Identity::from_pkcs8_pem(chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    };
    let [mine, other] = [identity(), identity()];
    let client = server.builder().build().unwrap();
    let url = server.url("https", "api.test");
    // The first connection is made without a certificate.
    assert_replaced(&client, &url, |to| to.identity(mine), |to| to.identity(other)).await;
}

#[tokio::test]
async fn hazard_key_field_8_requests_with_other_protocols_by_alpn_share_no_connection() {
    let server = Server::start().await;
    let client = server.builder().build().unwrap();
    let (mine, other) = (server.tls(), server.tls().alpn(["http/1.1"]));
    assert_replaced(&client, &server.url("https", "api.test"), |to| to.tls(other), |to| to.tls(mine)).await;
}

#[tokio::test]
async fn hazard_key_field_9_requests_with_another_verifier_share_no_connection() {
    let server = Server::start().await;
    let client = server.builder().build().unwrap();
    let anyone = || TlsConfig::new().danger_accept_invalid_certs(true);
    let strict = server.tls();
    let url = server.url("https", "api.test");
    assert_replaced(&client, &url, |to| to.tls(anyone()), |to| to.tls(strict)).await;
    // A connection that was made without verification is not used with it.
    let strangers = Server::start().await;
    let url = strangers.url("https", "api.test");
    client.reconfigure(|to| to.tls(anyone())).unwrap();
    connection(&client, client.get(&url)).await;
    client.reconfigure(|to| to.tls(server.tls())).unwrap();
    assert!(client.get(&url).send().await.unwrap_err().is_tls());
}

#[tokio::test]
async fn hazard_key_field_10_requests_with_another_server_name_share_no_connection() {
    let server = Server::start().await;
    let client = server.builder().build().unwrap();
    let url = server.url("https", "api.test");
    let (mine, none) = (server.tls(), server.tls().sni(false));
    assert_replaced(&client, &url, |to| to.tls(none), |to| to.tls(mine)).await;
    let client = server.builder().build().unwrap();
    let (mine, other) = (server.tls(), server.tls().server_name("other.test").unwrap());
    assert_replaced(&client, &url, |to| to.tls(other), |to| to.tls(mine)).await;
}

// Only Linux has all of 127.0.0.0/8 on its loopback interface.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn hazard_key_field_11_requests_from_another_local_address_share_no_connection() {
    let server = Server::start().await;
    let client = server.builder().build().unwrap();
    let own = HostConfig::new().local_address(IpAddr::from([127, 0, 0, 2]));
    let url = server.url("http", "api.test");
    let back = |to: Reconfiguration| to.for_host("api.test", HostConfig::new());
    assert_replaced(&client, &url, |to| to.for_host("api.test", own), back).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn hazard_key_field_12_requests_to_other_addresses_of_the_user_share_no_connection() {
    let server = Server::start().await;
    let address = |last: u8| SocketAddr::from(([127, 0, 0, last], server.port));
    let url = server.url("http", "api.test");
    let client = |last: u8| Client::builder().no_proxy().resolve("api.test", address(last)).build().unwrap();
    let clients = [client(1), client(2)];
    for _ in 0..2 {
        for (client, number) in clients.iter().zip(0..) {
            let name = connection(client, client.get(&url)).await;
            assert_eq!(name, format!("{} {number}", address(number + 1)));
        }
    }
}
