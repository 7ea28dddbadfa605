//! Servers whose responses are wrong: no response, no kept connection, another time.

use std::io::Write;

use speeddial::doctor::Problem;

use super::common::{examine, knowing, only};
use support::full;
use support::http_server::HttpServer;
use support::scripted_peer::{ScriptedPeer, read_head};

#[tokio::test]
async fn a_server_that_closes_after_each_response_is_named() {
    for (header, words) in [("connection: close\r\n", "and says so"), ("", "unannounced")] {
        let peer = ScriptedPeer::start(move |_, mut socket| {
            if read_head(&mut socket) {
                let _ = write!(socket, "HTTP/1.1 200 OK\r\n{header}content-length: 0\r\n\r\n");
            }
        });
        let report = examine(knowing(), &peer.url()).await;
        let text = only(&report, Problem::ConnectionNotKept);
        assert!(text.contains(words), "{text}");
        assert_eq!(report.requests().len(), 3);
    }
}

#[tokio::test]
async fn a_server_that_gives_no_response_is_named() {
    let peer = ScriptedPeer::start(|_, mut socket| {
        let _ = read_head(&mut socket);
    });
    let report = examine(knowing(), &peer.url()).await;
    only(&report, Problem::RequestFails);
    assert_eq!(report.requests().len(), 1, "the first failure is the last request");
}

#[tokio::test]
async fn a_server_whose_clock_is_wrong_is_named() {
    let server = HttpServer::start(|_| async {
        hyper::Response::builder().header("date", "Tue, 15 Nov 1994 08:12:31 GMT").body(full("")).unwrap()
    })
    .unwrap();
    let report = examine(knowing(), &format!("http://{}/", server.address())).await;
    let text = only(&report, Problem::ClockSkew);
    assert!(text.contains(" years behind this machine's"), "{text}");
    assert!(report.clock().unwrap().skew_secs() < -365 * 86_400);
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_without_a_server_is_named() {
    let path = std::env::temp_dir().join(format!("speeddial-doctor-closed-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let examine = || examine(speeddial::Client::builder().unix_socket(&path), "http://api.test/");
    let text = only(&examine().await, Problem::UnixSocketUnreachable);
    assert!(text.starts_with(&format!("The Unix domain socket {} cannot be connected to", path.display())), "{text}");
    // The file of a listener that is gone refuses connections.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    only(&examine().await, Problem::UnixSocketUnreachable);
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn a_client_for_https_alone_sends_nothing_to_an_http_url() {
    let server = support::ok_server();
    let report = examine(knowing().https_only(true), &super::common::url("http", server.address())).await;
    only(&report, Problem::HttpsOnly);
    assert_eq!((server.accepted(), report.addresses().len(), report.requests().len()), (0, 0, 0), "{report}");
}

#[tokio::test]
async fn http2_by_prior_knowledge_is_named_if_the_server_does_not_speak_it() {
    let server = support::ok_server();
    let report = examine(knowing().http2_prior_knowledge(), &super::common::url("http", server.address())).await;
    assert!(only(&report, Problem::NoHttp2).contains("by prior knowledge"), "{report}");
}
