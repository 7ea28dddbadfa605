//! The builder itself, the user agent, the pool, codings of bodies, the time of a read, the log of bytes.

use std::io::Write;
use std::time::Duration;

use futures_util::future::join_all;
use speeddial::http::HeaderValue;
use speeddial::settings::Decompression;
use speeddial::{Client, ClientBuilder, ErrorKind, PoolConfig};

use super::assert_refused;
use support::http_server::{HttpServer, describe};
use support::scripted_peer::{ScriptedPeer, read_head, read_head_text};

/// Returns the head of a GET of a client with these settings.
async fn sent(builder: ClientBuilder) -> String {
    let (report, heads) = std::sync::mpsc::channel();
    let peer = ScriptedPeer::start(move |_, mut socket| {
        report.send(read_head_text(&mut socket).unwrap()).unwrap();
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    });
    builder.no_proxy().build().unwrap().get(peer.url()).send().await.unwrap();
    heads.recv().unwrap()
}

#[tokio::test]
async fn the_user_agent_is_text_or_a_header_value() {
    let value = HeaderValue::from_static("me/3");
    let builders = [
        ClientBuilder::new().user_agent("me/1"),
        ClientBuilder::new().user_agent("me/2".to_owned()),
        ClientBuilder::new().user_agent(value),
    ];
    for (number, builder) in builders.into_iter().enumerate() {
        let head = sent(builder).await;
        assert!(head.contains(&format!("\r\nuser-agent: me/{}\r\n", number + 1)), "{head}");
    }
    let error = Client::builder().user_agent("a\nb").build().unwrap_err();
    assert!(error.is_builder(), "{error}");
}

#[tokio::test]
async fn connections_are_kept_as_the_pool_is_told() {
    let server = HttpServer::start(describe).unwrap();
    let url = format!("http://{}/", server.address());
    let connections = async |builder: ClientBuilder| {
        let before = server.connections();
        let client = builder.no_proxy().build().unwrap();
        for _ in 0..3 {
            client.get(&url).send().await.unwrap().bytes().await.unwrap();
        }
        server.connections() - before
    };
    assert_eq!(connections(Client::builder().pool_idle_timeout(None)).await, 1);
    assert_eq!(connections(Client::builder().pool_idle_timeout(Duration::from_secs(9))).await, 1);
    assert_eq!(connections(Client::builder().pool_max_idle_per_host(0)).await, 3);
    assert_eq!(connections(Client::builder().pool(PoolConfig::new().max_idle(0)).pool_max_idle_per_host(1)).await, 3);
    // Nor does a used connection serve one of the requests that wait.
    let before = server.connections();
    let pool = PoolConfig::new().max_connections_per_host(2);
    let client = Client::builder().pool(pool).pool_max_idle_per_host(0).no_proxy().build().unwrap();
    let calls = (0..6).map(async |_| client.get(&url).send().await.unwrap().bytes().await.unwrap());
    join_all(calls).await;
    assert_eq!(server.connections() - before, 6);
    let replaced = Client::builder().pool_idle_timeout(None).pool(PoolConfig::new());
    assert_refused(replaced, "pool() would replace pool_idle_timeout; call it first");
}

#[tokio::test]
async fn codings_are_chosen_one_by_one() {
    let accepted = async |builder: ClientBuilder| {
        let head = sent(builder).await;
        let line = head.lines().find_map(|line| line.strip_prefix("accept-encoding: "));
        line.map(str::to_owned)
    };
    let without = |builder: ClientBuilder| builder.no_brotli().no_zstd().no_deflate();
    #[cfg(feature = "gzip")]
    {
        assert_eq!(accepted(without(Client::builder())).await.as_deref(), Some("gzip"));
        let off = Client::builder().decompress(Decompression::none()).gzip(true);
        assert_eq!(accepted(off).await.as_deref(), Some("gzip"));
        assert_refused(Client::builder().gzip(false).decompress(Decompression::none()), "call it first");
    }
    assert_eq!(accepted(without(Client::builder()).no_gzip()).await, None);
    assert_eq!(accepted(Client::builder().decompress(Decompression::none())).await, None);
}

#[cfg(all(feature = "gzip", feature = "brotli"))]
#[tokio::test]
async fn a_coding_that_was_not_accepted_is_left_as_it_is() {
    let get = async |builder: ClientBuilder, coding: &'static str| {
        let peer = ScriptedPeer::start(move |_, mut socket| {
            if read_head(&mut socket) {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\ncontent-length: 2\r\n\r\nok");
                let _ = socket.write_all(head.as_bytes());
            }
        });
        let response = builder.no_proxy().build().unwrap().get(peer.url()).send().await.unwrap();
        let has_coding = response.headers().contains_key("content-encoding");
        (has_coding, response.text().await.map_err(|error| error.kind()))
    };
    assert_eq!(get(Client::builder().no_gzip(), "gzip").await, (true, Ok("ok".to_owned())));
    let (has_coding, outcome) = get(Client::builder().no_brotli(), "gzip").await;
    assert!(!has_coding && outcome.is_err(), "it is decompressed, and is not gzip: {outcome:?}");
}

#[tokio::test]
async fn a_read_of_the_head_and_of_the_body_may_take_so_long() {
    const PAUSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no";
    for (sent, kind) in [(&b""[..], "headers"), (PAUSE, "body")] {
        let peer = ScriptedPeer::start(move |_, mut socket| {
            let _ = read_head(&mut socket) && socket.write_all(sent).is_ok() && read_head(&mut socket);
        });
        let client = Client::builder().no_proxy().read_timeout(Duration::from_millis(50)).build().unwrap();
        let outcome = async { client.get(peer.url()).send().await?.text().await };
        let error = outcome.await.unwrap_err();
        assert!(error.is_timeout() && matches!(error.kind(), ErrorKind::Timeout(_)), "{kind}: {error}");
    }
}

#[cfg(feature = "tracing")]
#[tokio::test]
async fn the_bytes_of_a_connection_are_logged_if_that_is_wanted() {
    let server = HttpServer::start(describe).unwrap();
    for verbose in [false, true] {
        let log = super::log::Log::default();
        let client = Client::builder().no_proxy().connection_verbose(verbose).build().unwrap();
        let get = async {
            let url = format!("http://{}/some-path", server.address());
            client.get(url).send().await.unwrap().text().await.unwrap()
        };
        // The connection's own task logs as well, on this thread.
        let guard = tracing::subscriber::set_default(log.clone());
        get.await;
        drop(guard);
        let lines = log.lines();
        let has = |what: &str, text: &str| lines.iter().any(|line| line.contains(what) && line.contains(text));
        assert_eq!(has(" write: ", "GET /some-path HTTP/1.1\\r\\n"), verbose, "{lines:?}");
        assert_eq!(has(" read: ", "HTTP/1.1 200 OK\\r\\n"), verbose, "{lines:?}");
    }
}
