//! Proxies that cannot be reached, or that do not let the client pass.

use speeddial::doctor::Problem;
use speeddial::{ClientBuilder, Proxy};

use super::common::{asking, examine, knowing, only, problems};
use support::dns_server::DnsServer;
use support::http_server::HttpServer;
use support::scripted_peer::{ScriptedPeer, read_head};
use support::{full, refusing};

fn by(proxy: impl std::fmt::Display) -> ClientBuilder {
    knowing().proxy(Proxy::all(proxy.to_string()).unwrap())
}

/// Starts a proxy that answers each request with this head.
fn answering(head: &'static str) -> ScriptedPeer {
    ScriptedPeer::start(move |_, mut socket| {
        while read_head(&mut socket) {
            let _ = std::io::Write::write_all(&mut socket, format!("{head}\r\ncontent-length: 0\r\n\r\n").as_bytes());
        }
    })
}

#[tokio::test]
async fn a_proxy_that_cannot_be_reached_is_named() {
    let (_socket, address) = refusing();
    let report = examine(by(format!("http://me:secret@{address}")), "http://api.test/").await;
    let text = only(&report, Problem::ProxyUnreachable);
    assert!(text.starts_with(&format!("The proxy http://{address} cannot be connected to ({address}: ")), "{text}");
    assert!(!format!("{report}{report:?}").contains("secret"), "{report}");
}

#[tokio::test]
async fn a_proxy_whose_name_does_not_exist_is_named() {
    let unknown = DnsServer::start(|_, response| {
        response.metadata.response_code = hickory_proto::op::ResponseCode::NXDomain;
    })
    .unwrap();
    let builder = asking([unknown.address()]).proxy(Proxy::all("http://proxy.test:3128").unwrap());
    let report = examine(builder, "http://api.test/").await;
    assert_eq!(only(&report, Problem::NameDoesNotExist), "The name proxy.test does not exist.");
}

#[tokio::test]
async fn a_proxy_that_wants_credentials_for_a_forwarded_request_is_named() {
    let proxy = HttpServer::start(|_| async {
        hyper::Response::builder().status(407).header("proxy-authenticate", "Basic").body(full("")).unwrap()
    });
    let proxy = format!("http://{}", proxy.as_ref().unwrap().address());
    let text = only(&examine(by(&proxy), "http://api.test/").await, Problem::ProxyNeedsCredentials);
    assert!(text.contains("it answers 407"), "{text}");
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_proxy_that_wants_credentials_for_a_tunnel_is_named() {
    let proxy = answering("HTTP/1.1 407 Who are you");
    let text = only(&examine(by(proxy.url()), "https://api.test/").await, Problem::ProxyNeedsCredentials);
    assert!(text.contains("it wants authentication, and answered 407 Who are you"), "{text}");
}

#[tokio::test]
async fn a_socks_proxy_that_wants_credentials_is_named() {
    let proxy = ScriptedPeer::start(|_, mut socket| {
        let mut greeting = [0; 3];
        let _ = std::io::Read::read_exact(&mut socket, &mut greeting);
        let _ = std::io::Write::write_all(&mut socket, &[5, 0xff]);
    });
    let url = proxy.url().replace("http:", "socks5h:");
    let text = only(&examine(by(url), "http://api.test/").await, Problem::ProxyNeedsCredentials);
    assert!(text.contains("it does not accept a client without credentials"), "{text}");
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_proxy_that_refuses_the_origin_is_named() {
    let proxy = answering("HTTP/1.1 403 Not there");
    let text = only(&examine(by(proxy.url()), "https://api.test/").await, Problem::ProxyRefuses);
    assert!(text.contains("does not connect to api.test:443") && text.contains("403 Not there"), "{text}");
}

#[tokio::test]
async fn a_proxy_that_answers_as_a_gateway_is_named_with_its_status() {
    let proxy = answering("HTTP/1.1 503 Service Unavailable");
    let report = examine(by(proxy.url()), "http://api.test/").await;
    let text = only(&report, Problem::ProxyRefuses);
    assert!(text.contains("answers 503 to each request for api.test"), "{text}");
}

#[tokio::test]
async fn a_name_that_a_socks_proxy_needs_the_address_of_is_named() {
    let proxy = ScriptedPeer::start(|_, _| ());
    let proxy = by(proxy.url().replace("http:", "socks5:"));
    let report = examine(proxy, "http://unknown.test/").await;
    let text = only(&report, Problem::LookupFails);
    assert!(text.contains("unknown.test cannot be looked up: ") && !text.contains("the way there works"), "{text}");
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_certificate_of_a_proxy_is_for_its_host() {
    let authority = support::certs::Authority::new();
    let proxy = support::tls_server::TlsServer::start(authority.server(&["other.test"], &[])).await;
    let builder = by(format!("https://{}", proxy.address())).tls(super::common::trusting(&authority));
    let text = only(&examine(builder, "http://api.test/").await, Problem::CertificateForOtherName);
    let start =
        format!("The certificate of {} (of the proxy) is not for 127.0.0.1, but for other.test.", proxy.address());
    assert_eq!(text, start);
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_certificate_of_a_proxy_is_judged() {
    let authority = support::certs::Authority::new();
    let proxy = support::tls_server::TlsServer::start(authority.server(&["127.0.0.1"], &[])).await;
    let url = format!("https://{}", proxy.address());
    let builder = by(&url).tls(super::common::trusting(&support::certs::Authority::new()));
    let report = examine(builder, "http://api.test/").await;
    let text = only(&report, Problem::CertificateFromUnknownIssuer);
    assert!(text.starts_with(&format!("The certificate of {} (of the proxy) is from", proxy.address())), "{text}");
    let builder = by(&url).tls(super::common::trusting(&authority));
    assert_eq!(problems(&examine(builder, "http://api.test/").await), []);
}

/// Behind a proxy the handshake is that of a request.
#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_certificate_behind_a_proxy_is_judged() {
    use tokio::io::AsyncWriteExt;

    let authority = support::certs::Authority::new();
    let server = support::tls_server::TlsServer::start(authority.server(&["www.test"], &[])).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let address = server.address();
            tokio::spawn(async move {
                support::read_request_head(&mut client).await;
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
                let mut upstream = tokio::net::TcpStream::connect(address).await?;
                tokio::io::copy_bidirectional(&mut client, &mut upstream).await
            });
        }
    });
    let report = examine(by(&proxy).tls(super::common::trusting(&authority)), "https://api.test/").await;
    let text = only(&report, Problem::CertificateForOtherName);
    assert!(text.starts_with("The certificate of api.test:443 is not for api.test"), "{text}");
    let report = examine(by(&proxy).tls(super::common::trusting(&authority)), "https://www.test/").await;
    assert_eq!(problems(&report), [], "{report}");
    assert_eq!(report.tunnelled_tls().unwrap().name_matches(), Some(true));
}
