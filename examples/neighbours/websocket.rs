//! WebSocket by tokio-tungstenite over connections of speeddial: `ws` and `wss`, HTTP/1.1 and HTTP/2, directly and through a
//! proxy.
//!
//! `cargo run --example websocket`. It starts its own servers and its own proxy on loopback.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use hyper::{Request, Response};
use speeddial::tls::TlsConfig;
use speeddial::{Client, ClientBuilder, Method, Proxy, Upgraded};
use support::ServerBody;
use support::certs::Authority;
use support::upgrade_server::{Over, ServerStream, UpgradeServer, agree};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The number of messages that are sent over each connection.
const MESSAGES: usize = 1_000;

#[tokio::main]
async fn main() -> Result<()> {
    let authority = Authority::new();
    let tls = || TlsConfig::new().add_roots([authority.root()]).only_added_roots();
    let client = || Client::builder().no_proxy().tls(tls());
    let config = authority.server(&["127.0.0.1"], &["h2", "http/1.1"]);

    let plain = server(Over::Http1).await;
    let plain_http2 = server(Over::Http2).await;
    let secure = server(Over::Tls(config)).await;
    let proxy = Proxy::all(format!("http://{}", proxy().await?))?;
    let behind_proxy = || client().proxy(proxy.clone());

    let [ws, ws_http2] = [&plain, &plain_http2].map(|server| format!("http://{}/chat", server.address()));
    let wss = format!("https://{}/chat", secure.address());
    over_http1("ws, HTTP/1.1", client(), &ws).await?;
    over_http2("ws, HTTP/2", client().http2_prior_knowledge(), &ws_http2).await?;
    over_http1("wss, HTTP/1.1", client().http1_only(), &wss).await?;
    over_http2("wss, HTTP/2", client(), &wss).await?;
    over_http1("ws, HTTP/1.1, through a proxy", behind_proxy(), &ws).await?;
    over_http1("wss, HTTP/1.1, through a proxy", behind_proxy().http1_only(), &wss).await?;
    over_http2("wss, HTTP/2, through a proxy", behind_proxy(), &wss).await?;
    Ok(())
}

/// Opens a WebSocket by an upgrade of an HTTP/1.1 connection (RFC 6455 §4.1).
async fn over_http1(title: &str, client: ClientBuilder, url: &str) -> Result<()> {
    let client = client.build()?;
    let key = generate_key();
    let request = client.get(url).header("connection", "upgrade").header("upgrade", "websocket");
    let request = request.header("sec-websocket-version", "13").header("sec-websocket-key", &key);
    let response = request.timeout(Duration::from_secs(10)).send().await?;
    // Any other status means that the server declines: its response can be read as usual.
    if response.status() != speeddial::StatusCode::SWITCHING_PROTOCOLS {
        return Err(format!("{}: {}", response.status(), response.text().await?).into());
    }
    let accepted = response.headers().get("sec-websocket-accept");
    if accepted.is_none_or(|accepted| accepted != &derive_accept_key(key.as_bytes())) {
        return Err("the server does not speak WebSocket".into());
    }
    talk(title, response.upgrade().await?).await
}

/// Opens a WebSocket on a stream of an HTTP/2 connection by an extended CONNECT (RFC 8441 §5).
async fn over_http2(title: &str, client: ClientBuilder, url: &str) -> Result<()> {
    let client = client.build()?;
    let request = client.request(Method::CONNECT, url).protocol("websocket").header("sec-websocket-version", "13");
    let response = request.timeout(Duration::from_secs(10)).send().await?.error_for_status()?;
    talk(title, response.upgrade().await?).await
}

/// Sends messages and waits for their echoes.
async fn talk(title: &str, stream: Upgraded) -> Result<()> {
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    let start = Instant::now();
    let talk = async {
        for number in 0..MESSAGES {
            socket.send(Message::text(format!("message {number}"))).await?;
            let echo = socket.next().await.ok_or(Error::ConnectionClosed)??;
            assert_eq!(echo, Message::text(format!("message {number}")));
        }
        socket.close(None).await
    };
    tokio::time::timeout(Duration::from_secs(30), talk).await??;
    println!("{title}: {MESSAGES} messages and their echoes in {:.1?}", start.elapsed());
    Ok(())
}

/// Starts a server that sends the messages of a WebSocket back.
async fn server(over: Over) -> UpgradeServer {
    UpgradeServer::start(over, accept, echo).await
}

fn accept<B>(request: &Request<B>) -> Response<ServerBody> {
    let mut response = agree(request);
    if let Some(key) = request.headers().get("sec-websocket-key") {
        let accepted = derive_accept_key(key.as_bytes());
        response.headers_mut().insert("sec-websocket-accept", accepted.parse().expect("base64 is visible ASCII"));
    }
    response
}

async fn echo(stream: ServerStream) {
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    while let Some(Ok(message)) = socket.next().await {
        if message.is_text() && socket.send(message).await.is_err() {
            return;
        }
    }
}

/// Starts a proxy that opens tunnels and forwards upgrades, and returns its address.
async fn proxy() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let head = support::read_request_head(&mut client).await.unwrap_or_default();
                let target = head.split(' ').nth(1).unwrap_or_default();
                // `http://HOST/PATH` of a request that is forwarded, or `HOST:PORT` of a tunnel.
                let (place, path) = match target.strip_prefix("http://") {
                    Some(forwarded) => forwarded.split_at(forwarded.find('/').unwrap_or(forwarded.len())),
                    None => (target, ""),
                };
                let mut server = TcpStream::connect(place).await?;
                if head.starts_with("CONNECT") {
                    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
                } else {
                    server.write_all(head.replacen(target, path, 1).as_bytes()).await?;
                }
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    Ok(address)
}
