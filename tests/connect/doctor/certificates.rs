//! Certificates and handshakes that are wrong.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::CertificateParams;
use rustls::ServerConfig;
use speeddial::doctor::{Problem, Report};
use speeddial::tls::CertificateProblem;
use tokio::net::TcpListener;

use super::common::{SOON, examine, knowing, only, problems, trusting, url};
use support::certs::{Authority, provider};
use support::ok_server;
use support::tls_server::TlsServer;

fn params(name: &str) -> CertificateParams {
    CertificateParams::new(vec![name.to_owned()]).unwrap()
}

fn config(authority: &Authority, params: CertificateParams) -> Arc<ServerConfig> {
    let (certificate, key) = authority.sign(params);
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap())
}

/// Examines a server with a certificate of these parameters as a client that trusts `trusted`.
async fn examine_certificate(authority: &Authority, trusted: &Authority, params: CertificateParams) -> Report {
    let server = TlsServer::start(config(authority, params)).await;
    examine(knowing().tls(trusting(trusted)), &url("https", server.address())).await
}

#[tokio::test]
async fn a_certificate_out_of_its_dates_is_named() {
    let authority = Authority::new();
    let day = |year| rcgen::date_time_ymd(year, 1, 1);
    let mut expired = params("api.test");
    (expired.not_before, expired.not_after) = (day(2000), day(2001));
    let report = examine_certificate(&authority, &authority, expired).await;
    let text = only(&report, Problem::CertificateExpired);
    assert!(text.contains("has expired, ") && text.ends_with(" years ago."), "{text}");
    let tls = report.addresses()[0].tls().unwrap();
    assert_eq!(
        (tls.problem(), tls.name_matches(), tls.chain().len()),
        (Some(CertificateProblem::Expired), Some(true), 1)
    );
    assert!(tls.chain()[0].days_left(report.at()) < -365 && report.requests().is_empty(), "{report}");

    let mut future = params("api.test");
    (future.not_before, future.not_after) = (day(2090), day(2091));
    let report = examine_certificate(&authority, &authority, future).await;
    assert!(only(&report, Problem::CertificateNotYetValid).contains("is not valid yet: it will be in "), "{report}");

    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let mut ends = params("api.test");
    ends.not_before = day(1970) + (now - Duration::from_secs(80 * 86_400));
    ends.not_after = day(1970) + (now + Duration::from_secs(3 * 86_400 + 600));
    let report = examine_certificate(&authority, &authority, ends).await;
    assert!(only(&report, Problem::CertificateExpiresSoon).ends_with(" expires in 3 days."), "{report}");
    assert!(report.requests().iter().all(|request| request.response().is_ok()), "{report}");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_named_with_its_names() {
    let authority = Authority::new();
    let report = examine_certificate(&authority, &authority, params("www.test")).await;
    let text = only(&report, Problem::CertificateForOtherName);
    assert!(text.ends_with(" is not for api.test, but for www.test."), "{text}");
    assert_eq!(report.addresses()[0].tls().unwrap().name_matches(), Some(false));
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_named_with_its_issuer() {
    let (authority, other) = (Authority::new(), Authority::new());
    let report = examine_certificate(&authority, &other, params("api.test")).await;
    let text = only(&report, Problem::CertificateFromUnknownIssuer);
    assert!(
        text.contains("is from an authority that the client does not trust: ") && text.contains("Authority "),
        "{text}"
    );
}

#[tokio::test]
async fn a_server_without_tls_is_named() {
    let server = ok_server();
    let report = examine(knowing().tls(trusting(&Authority::new())), &url("https", server.address())).await;
    let text = only(&report, Problem::NoTls);
    assert_eq!(text, format!("{} does not speak TLS.", server.address()));
}

#[tokio::test]
async fn a_handshake_that_is_not_answered_is_named() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = silent.local_addr().unwrap();
    let builder = knowing().tls(trusting(&Authority::new())).connect_timeout(SOON);
    let text = only(&examine(builder, &url("https", address)).await, Problem::TlsFails);
    assert!(text.contains("no answer within 5 s"), "{text}");
}

#[tokio::test]
async fn a_server_without_http2_is_named_if_the_client_speaks_nothing_else() {
    let authority = Authority::new();
    // The first server refuses the handshake, the second one the request.
    for alpn in [&["http/1.1"][..], &[]] {
        let server = TlsServer::start(authority.server(&["api.test"], alpn)).await;
        let builder = knowing().tls(trusting(&authority)).http2_prior_knowledge();
        let report = examine(builder, &url("https", server.address())).await;
        only(&report, Problem::NoHttp2);
        assert_eq!(report.requests().len(), usize::from(alpn.is_empty()), "{report}");
    }
}

#[tokio::test]
async fn a_server_that_speaks_http2_unasked_is_healthy() {
    let authority = Authority::new();
    let acceptor = tokio_rustls::TlsAcceptor::from(authority.server(&["api.test"], &[]));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(socket).await else { return };
                let service = hyper::service::service_fn(|request| async {
                    Ok::<_, std::convert::Infallible>(support::http_server::describe(request).await)
                });
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    let builder = knowing().tls(trusting(&authority)).http2_prior_knowledge();
    let report = examine(builder, &url("https", address)).await;
    assert_eq!(problems(&report), [], "{report}");
    let session = report.addresses()[0].tls().unwrap().session().unwrap();
    assert_eq!((session.alpn(), report.requests().len()), (None, 3), "{report}");
    assert_eq!(report.requests()[0].response().unwrap().version(), "HTTP/2.0");
}

#[tokio::test]
async fn the_name_that_is_checked_is_named() {
    let authority = Authority::new();
    let server = TlsServer::start(config(&authority, params("api.test"))).await;
    let tls = trusting(&authority).server_name("set.test").unwrap();
    let report = examine(knowing().tls(tls), &url("https", server.address())).await;
    let text = only(&report, Problem::CertificateForOtherName);
    assert!(text.ends_with(" is not for set.test, but for api.test."), "{text}");
    assert_eq!(report.addresses()[0].tls().unwrap().checked_name(), "set.test");
}

#[tokio::test]
async fn a_server_of_http2_alone_is_told_from_one_without_http2() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["api.test"], &["h2"])).await;
    let report = examine(knowing().tls(trusting(&authority)).http1_only(), &url("https", server.address())).await;
    only(&report, Problem::NoHttp1);
    assert!(report.findings()[0].advice().contains("`http1_only`"), "{report}");
}

#[tokio::test]
async fn a_server_that_wants_a_client_certificate_is_named() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.mutual_server(&["api.test"], &["http/1.1"])).await;
    let report = examine(knowing().tls(trusting(&authority)), &url("https", server.address())).await;
    assert!(only(&report, Problem::ClientCertificate).contains("a client certificate is required"), "{report}");
    assert!(report.findings()[0].advice().contains("`ClientBuilder::identity`"), "{report}");
}
