//! Switches to other protocols through HTTP proxies.

use std::sync::mpsc;

use speeddial::{Method, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::common::behind;
use support::upgrade_server::{Over, UpgradeServer, agree, echo};

/// Sends a few bytes and expects them back.
async fn echoes(mut stream: speeddial::Upgraded) {
    stream.write_all(b"hello").await.unwrap();
    let mut echo = [0; 5];
    stream.read_exact(&mut echo).await.unwrap();
    assert_eq!(&echo, b"hello");
}

/// Starts a proxy that notes the target and the credentials of each request, and answers it itself.
async fn proxy() -> (Proxy, mpsc::Receiver<(String, bool)>) {
    let (sent, asked) = mpsc::channel();
    let respond = move |request: &hyper::Request<_>| {
        let has_credentials = request.headers().contains_key("proxy-authorization");
        sent.send((format!("{} {}", request.method(), request.uri()), has_credentials)).unwrap();
        agree(request)
    };
    let server = UpgradeServer::start(Over::Http1, respond, echo).await;
    (Proxy::all(&format!("http://me:secret@{}", server.address())).unwrap(), asked)
}

#[tokio::test]
async fn an_upgrade_of_a_plain_connection_is_forwarded() {
    let (proxy, asked) = proxy().await;
    let client = behind(proxy).build().unwrap();
    let request = client.get("http://api.test/chat").header("connection", "upgrade").header("upgrade", "x");
    echoes(request.send().await.unwrap().upgrade().await.unwrap()).await;
    assert_eq!(asked.recv().unwrap(), ("GET http://api.test/chat".to_owned(), true));
}

#[tokio::test]
async fn a_connect_is_answered_by_the_forwarding_proxy() {
    let (proxy, asked) = proxy().await;
    let client = behind(proxy).build().unwrap();
    let request = client.request(Method::CONNECT, "http://api.test:22/");
    echoes(request.send().await.unwrap().upgrade().await.unwrap()).await;
    assert_eq!(asked.recv().unwrap(), ("CONNECT api.test:22".to_owned(), true));
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn upgrades_over_tls_go_through_a_tunnel() {
    use tokio::net::{TcpListener, TcpStream};

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::all(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let head = support::read_request_head(&mut client).await.unwrap();
                let mut server = TcpStream::connect(head.split(' ').nth(1).unwrap()).await.unwrap();
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    let authority = support::certs::Authority::new();
    let server = UpgradeServer::echo(Over::Tls(authority.server(&["127.0.0.1"], &["h2", "http/1.1"]))).await;
    let target = format!("https://{}/chat", server.address());
    let tls = || speeddial::tls::TlsConfig::new().add_roots([authority.root()]).only_added_roots();
    let http1 = behind(proxy.clone()).tls(tls()).http1_only().build().unwrap();
    let request = http1.get(&target).header("connection", "upgrade").header("upgrade", "x");
    echoes(request.send().await.unwrap().upgrade().await.unwrap()).await;
    let http2 = behind(proxy).tls(tls()).build().unwrap();
    let request = http2.request(Method::CONNECT, &target).protocol("websocket");
    echoes(request.send().await.unwrap().upgrade().await.unwrap()).await;
}
