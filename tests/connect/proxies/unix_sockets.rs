//! A Unix domain socket to which every request goes, whatever its host.

use std::time::Duration;

use speeddial::{Client, ErrorKind, PoolConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[cfg(feature = "__tls")]
use support::certs::Authority;

#[cfg(all(unix, feature = "__tls"))]
#[tokio::test]
async fn a_unix_socket_can_be_used_with_tls() {
    let path = std::env::temp_dir().join(format!("speeddial-unix-tls-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let authority = Authority::new();
    let acceptor = tokio_rustls::TlsAcceptor::from(authority.server(&["api.test"], &["http/1.1"]));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(socket).await else { continue };
            let service = hyper::service::service_fn(|request| async {
                Ok::<_, std::convert::Infallible>(support::http_server::describe(request).await)
            });
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
async fn a_unix_socket_gets_every_request_whatever_the_host() {
    let path = std::env::temp_dir().join(format!("speeddial-unix-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let client = Client::builder().unix_socket(&path).pool(support::one_connection()).build().unwrap();
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

/// In paused time, in which no timer is late: an error says so before all else.
#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn hazard_a_unix_socket_whose_backlog_stays_full_times_out_in_the_connect_phase() {
    let path = std::env::temp_dir().join(format!("speeddial-unix-stuck-{}", std::process::id()));
    let (_listener, _queued) = full_unix_listener(&path).await;
    let builder = Client::builder().unix_socket(&path).connect_timeout(Duration::from_millis(100));
    let error = builder.build().unwrap().get("http://api.test/").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(speeddial::trace::Phase::Connect), "{error}");
    assert!(error.is_timeout() && error.is_connect());
    let words = format!("connect to {} failed, in phase connect", path.display());
    assert!(error.to_string().contains(&words), "{error}");
    assert!(format!("{error:#}").ends_with(": its backlog was full for 100 ms"), "{error:#}");
    std::fs::remove_file(&path).unwrap();
}
