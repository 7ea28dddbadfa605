//! TLS of the servers, by one certificate for all names. Its signatures have a fixed length, so that a run is like the next one.

use std::io;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_ED25519, SerialNumber};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

use crate::dns;
use crate::net::End;

/// The certificates of two authorities.
pub(crate) struct Certificates([Issued; 2]);

struct Issued {
    root: String,
    http1: Arc<ServerConfig>,
    http2: Arc<ServerConfig>,
}

impl Issued {
    fn new(hosts: usize) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Simulated authority");
        params.serial_number = Some(SerialNumber::from(1_u64));
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate_for(&PKCS_ED25519).unwrap()).unwrap();
        let names: Vec<_> = (0..hosts).flat_map(|host| [format!("h{host}"), dns::full_name(host)]).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.serial_number = Some(SerialNumber::from(2_u64));
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let config = |protocols: &[&str]| {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let mut config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
                .unwrap();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
            Arc::new(config)
        };
        Self { root: issuer.pem(), http1: config(&["http/1.1"]), http2: config(&["h2", "http/1.1"]) }
    }
}

impl Certificates {
    /// Makes certificates for so many hosts.
    pub(crate) fn new(hosts: usize) -> Self {
        Self([Issued::new(hosts), Issued::new(hosts)])
    }

    /// Makes the handshake of a client that trusts both authorities.
    pub(crate) async fn connect(&self, http2: bool, name: &str, stream: End) -> io::Result<client::TlsStream<End>> {
        let mut roots = RootCertStore::empty();
        let both = self.root(true);
        for root in CertificateDer::pem_slice_iter(both.as_bytes()) {
            roots.add(root.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Returns the authorities that clients trust: the first one, or both.
    pub(crate) fn root(&self, both: bool) -> String {
        let [first, second] = &self.0;
        if both { format!("{}{}", first.root, second.root) } else { first.root.clone() }
    }

    pub(crate) async fn accept(&self, renewed: bool, http2: bool, stream: End) -> io::Result<TlsStream<End>> {
        let issued = &self.0[usize::from(renewed)];
        let config = if http2 { &issued.http2 } else { &issued.http1 };
        TlsAcceptor::from(config.clone()).accept(stream).await
    }
}
