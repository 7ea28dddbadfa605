//! Lines about TLS.

use super::super::{Lines, Peers};
use super::http_client;
use super::http_client::tls::Version;
use super::http_client::{Certificate, Client, ClientBuilder, Identity};

pub(in super::super) const LINES: usize = 14;

pub(in super::super) async fn run(peers: &Peers, lines: &Lines) -> http_client::Result<()> {
    let key = rcgen::generate_simple_self_signed(["api.test".to_owned()]).expect("a certificate");
    let (certificate, private) = (key.cert.pem(), key.signing_key.serialize_pem());
    let builds = |builder: ClientBuilder| builder.no_proxy().build().is_ok();
    lines.done(builds(Client::builder().add_root_certificate(Certificate::from_pem(certificate.as_bytes())?)));
    lines.done(builds(Client::builder().add_root_certificate(Certificate::from_der(key.cert.der())?)));
    let bundle = Certificate::from_pem_bundle(format!("{certificate}{certificate}").as_bytes())?;
    lines.is(bundle.len(), 2);
    lines.done(builds(Client::builder().tls_certs_merge(bundle.clone())));
    lines.done(builds(Client::builder().tls_certs_only(bundle.clone())));
    let identity = Identity::from_pem(format!("{certificate}{private}").as_bytes())?;
    lines.done(builds(Client::builder().identity(identity)));
    lines.done(builds(Client::builder().min_tls_version(Version::TLS_1_2).max_tls_version(Version::TLS_1_3)));
    lines.done(builds(Client::builder().tls_version_min(Version::TLS_1_3)));
    lines.done(builds(Client::builder().tls_sni(false)));
    lines.done(builds(Client::builder().tls_info(true)));
    lines.done(builds(Client::builder().danger_accept_invalid_certs(true)));
    lines.done(builds(Client::builder().tls_certs_only(bundle).danger_accept_invalid_hostnames(true)));
    lines.done(builds(Client::builder().use_rustls_tls()));
    let strict = Client::builder().no_proxy().https_only(true).build()?;
    lines.done(strict.get(&peers.url).send().await.expect_err("not https").is_builder());
    Ok(())
}
