//! The clients and the server configurations that the tests of TLS share.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rcgen::CertificateParams;
use rustls::ServerConfig;
use speeddial::dns::FixedResolver;
use speeddial::tls::TlsConfig;
use speeddial::trace::{DialOutcome, Timings};
use speeddial::{Client, ClientBuilder, Error, ErrorKind};
use tokio::io::AsyncReadExt;

pub(super) use support::certs::spki_sha256;
use support::certs::{Authority, provider};
use support::one_connection;
use support::tls_server::TlsServer;

/// The protocols that a client offers by default.
pub(super) const ALPN: &[&str] = &["h2", "http/1.1"];

/// Returns the builder of a client that resolves its names to 127.0.0.1.
pub(super) fn builder(tls: TlsConfig) -> ClientBuilder {
    let names = ["api.test", "api.test.", "other.test", "sub.api.test"];
    let resolver =
        names.iter().fold(FixedResolver::new(), |fixed, name| fixed.with(name, [Ipv4Addr::LOCALHOST.into()]));
    Client::builder().dns_resolver(resolver).tls(tls).pool(one_connection())
}

/// Returns a configuration that trusts only `authority`.
pub(super) fn trusting(authority: &Authority) -> TlsConfig {
    TlsConfig::new().add_roots([authority.root()]).only_added_roots()
}

/// Makes a GET over HTTPS and returns the body and the timings.
pub(super) async fn get(client: &Client, host: &str, address: SocketAddr) -> Result<(String, Timings), Error> {
    let response = client.get(format!("https://{host}:{}/a?b=c", address.port())).send().await?;
    let handle = response.timings_handle();
    let text = response.text().await?;
    Ok((text, handle.timings()))
}

/// Returns the configuration of a server whose certificate has these parameters.
pub(super) fn server(authority: &Authority, params: CertificateParams) -> Arc<ServerConfig> {
    let (certificate, key) = authority.sign(params);
    config_with(vec![certificate], key)
}

/// Returns the configuration of a server with this certificate chain and key.
pub(super) fn config_with(
    chain: Vec<rustls::pki_types::CertificateDer<'static>>,
    key: rustls::pki_types::PrivateKeyDer<'static>,
) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap())
}

/// Returns the parameters of a certificate for these names.
pub(super) fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

/// Makes a request that must fail in the handshake, and returns the reason from the error's message.
pub(super) async fn refused(tls: TlsConfig, host: &str, config: Arc<ServerConfig>) -> String {
    let server = TlsServer::start(config).await;
    let error = get(&builder(tls).build().unwrap(), host, server.address()).await.unwrap_err();
    assert!(error.is_tls() && error.is_connect() && !error.is_timeout(), "{error}");
    assert_eq!(error.kind(), ErrorKind::Tls);
    assert!(matches!(&error.dialled()[0].outcome, DialOutcome::Failed(_)), "{:?}", error.dialled());
    let text = format!("{error:#}");
    let start = format!("GET https://{host}:{}/a?b=c: TLS handshake with 127.0.0.1 failed: ", server.address().port());
    text.strip_prefix(&start).unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// Accepts a TLS connection and answers its requests with "ok" until the client closes.
pub(super) async fn answer_over_tls(acceptor: tokio_rustls::TlsAcceptor, stream: tokio::io::DuplexStream) {
    let Ok(mut stream) = acceptor.accept(stream).await else { return };
    while stream.read_buf(&mut Vec::new()).await.is_ok_and(|read| read > 0) {
        let _ = support::send(&mut stream, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    }
}
