//! Healthy setups: each step is in the report, and nothing is wrong.

use speeddial::doctor::ResolverKind;
use speeddial::{Client, ErrorKind, Proxy};

use super::common::{asking, examine, healthy_dns, knowing, problems, url};
use support::http_server::{HttpServer, describe};
use support::ok_server;

#[tokio::test]
async fn each_step_of_a_healthy_setup_is_in_the_report() {
    let (dns, server) = (healthy_dns(), ok_server());
    let report = examine(asking([dns.address()]), &url("http", server.address())).await;
    assert_eq!(problems(&report), [], "{report}");
    let names = report.names().unwrap();
    assert_eq!((names.resolver(), names.questions().len(), names.lookups().len()), (ResolverKind::Hickory, 4, 2));
    for question in names.questions() {
        let reply = question.reply().unwrap();
        assert_eq!((question.server(), reply.code()), (dns.address(), "NOERROR"));
        assert_eq!(reply.ttl().is_some(), !reply.addresses().is_empty());
    }
    let [address] = report.addresses() else { panic!("{report}") };
    assert_eq!((address.address(), address.is_usable()), (server.address(), true));
    assert_eq!(address.source(), Some([127, 0, 0, 1].into()));
    let reused: Vec<_> = report.requests().iter().map(|request| request.response().unwrap().reused()).collect();
    assert_eq!(reused, [false, true, true]);
    assert_eq!(report.clock().unwrap().skew_secs(), 0);
    let text = report.to_string();
    for part in ["without a proxy", "UDP AAAA", "NOERROR 127.0.0.1, TTL 60 s", "connected", "HTTP/1.1 200, the same"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.ends_with("nothing is wrong") || !report.findings().is_empty(), "{text}");
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_handshake_is_described_with_its_certificates() {
    let (dns, authority) = (healthy_dns(), support::certs::Authority::new());
    let config = authority.server(&["api.test"], &["h2", "http/1.1"]);
    let server = support::tls_server::TlsServer::start(config).await;
    let builder = asking([dns.address()]).tls(super::common::trusting(&authority));
    let report = examine(builder, &url("https", server.address())).await;
    assert_eq!(problems(&report), [], "{report}");
    let tls = report.addresses()[0].tls().unwrap();
    let session = tls.session().unwrap();
    assert_eq!((session.version(), session.alpn()), ("TLSv1_3", Some("h2")));
    assert_eq!((tls.name_matches(), tls.problem(), tls.chain().len()), (Some(true), None, 1));
    assert_eq!(tls.chain()[0].names(), ["api.test"]);
    assert!(tls.chain()[0].days_left(report.at()) > 300);
    assert_eq!(report.requests()[0].response().unwrap().version(), "HTTP/2.0");
}

#[tokio::test]
async fn a_healthy_proxy_is_named_with_the_reason_for_it_and_without_credentials() {
    let proxy = HttpServer::start(describe).unwrap();
    let named = Proxy::all(format!("http://me:secret@{}", proxy.address())).unwrap();
    let mut token = speeddial::header::HeaderValue::from_static("Bearer secret");
    token.set_sensitive(true);
    let headers = [(speeddial::header::AUTHORIZATION, token)].into_iter().collect();
    let report = examine(knowing().proxy(named).default_headers(headers), "http://api.test/").await;
    assert_eq!(problems(&report), [], "{report}");
    assert_eq!(report.route().proxy(), Some(format!("http://{}", proxy.address()).as_str()));
    assert!(report.route().reason().contains("the client was given"), "{report}");
    assert!(report.addresses()[0].is_proxy() && report.names().is_none(), "{report}");
    for text in [report.to_string(), format!("{report:?}")] {
        assert!(!text.contains("secret") && !text.contains("bWU6c2VjcmV0"), "{text}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_is_reached_without_names_and_addresses() {
    let path = std::env::temp_dir().join(format!("speeddial-doctor-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        while let Ok((mut socket, _)) = listener.accept() {
            while support::scripted_peer::read_head(&mut socket) {
                let _ = std::io::Write::write_all(&mut socket, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            }
        }
    });
    let report = examine(Client::builder().unix_socket(&path), "http://api.test/").await;
    assert_eq!((problems(&report), report.requests().len()), (vec![], 3), "{report}");
    assert!(report.names().is_none() && report.addresses().is_empty() && report.route().unix_socket().is_some());
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn a_url_without_an_origin_is_an_error() {
    for wrong in ["ftp://api.test/", "no url", "http://api.test:0/"] {
        let error = knowing().build().unwrap().doctor(wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Request, "{error}");
    }
}

#[cfg(feature = "serde")]
#[tokio::test]
async fn a_report_can_be_serialized() {
    let (dns, server) = (healthy_dns(), ok_server());
    let url = url("http", server.address());
    let report = examine(asking([dns.address()]), &url).await;
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["origin"], url.trim_end_matches('/'));
    // A busy machine makes steps slow, which is a finding.
    assert_eq!((problems(&report), json["findings"].as_array().unwrap().len()), (vec![], report.findings().len()));
    assert!(json["elapsed_ns"].is_u64(), "{json}");
    assert_eq!(json["names"]["questions"][0]["transport"], "udp");
}
