//! Certificates that are made for one test, and TLS configurations of servers and clients that use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa, KeyIdMethod,
    KeyPair, PublicKeyData, RevokedCertParams,
};
use rustls::crypto::hash::HashAlgorithm;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A certificate authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Makes an authority with a name and a key of its own.
    pub fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(1);
        let mut params = CertificateParams::new([]).unwrap();
        let name = format!("Authority {}", COUNT.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    /// Makes an intermediate authority whose certificate this one signs.
    pub fn intermediate(&self) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Intermediate");
        Self { issuer: CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &self.issuer).unwrap() }
    }

    /// Returns the authority's own certificate.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// Returns the authority's own certificate, for a client to trust.
    #[cfg(feature = "__tls")]
    pub fn root(&self) -> speeddial::tls::Certificate {
        speeddial::tls::Certificate::from_der(self.issuer.der()).unwrap()
    }

    /// Returns the authority's own certificate in PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Signs a certificate for the names and uses of `params` and a new key.
    pub fn sign(&self, params: CertificateParams) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        self.sign_with(params, KeyPair::generate().unwrap())
    }

    /// Signs a certificate for the names and uses of `params` and for `key`.
    pub fn sign_with(
        &self,
        params: CertificateParams,
        key: KeyPair,
    ) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.der().clone(), PrivateKeyDer::Pkcs8(key.serialize_der().into()))
    }

    /// Signs a certificate for the names and uses of `params` and for `key`, and returns it in PEM.
    pub fn sign_pem(&self, params: CertificateParams, key: &KeyPair) -> String {
        params.signed_by(key, &self.issuer).unwrap().pem()
    }

    /// Signs a certificate for `names` and a new key, and returns both in PEM.
    pub fn sign_pem_pair(&self, names: &[&str]) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (self.sign_pem(params(names), &key), key.serialize_pem())
    }

    /// Signs a list that revokes the certificates with these serial numbers, and returns it in PEM.
    pub fn revocation_list(&self, serials: &[u64]) -> String {
        self.revocation_list_of(2001, serials)
    }

    /// Like [`Self::revocation_list`], for a list that is issued in this year.
    pub fn revocation_list_of(&self, year: i32, serials: &[u64]) -> String {
        let day = |year| rcgen::date_time_ymd(year, 1, 1);
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: day(2001),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: day(year),
            next_update: day(2090),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// Returns the configuration of a server with a certificate for `names` that accepts the protocols `alpn`.
    pub fn server(&self, names: &[&str], alpn: &[&str]) -> Arc<ServerConfig> {
        self.server_verifying(WebPkiClientVerifier::no_client_auth(), names, alpn)
    }

    /// Like [`Self::server`], and refuses clients that have no certificate of this authority.
    pub fn mutual_server(&self, names: &[&str], alpn: &[&str]) -> Arc<ServerConfig> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()), provider()).build().unwrap();
        self.server_verifying(verifier, names, alpn)
    }

    fn server_verifying(
        &self,
        clients: Arc<dyn ClientCertVerifier>,
        names: &[&str],
        alpn: &[&str],
    ) -> Arc<ServerConfig> {
        let (certificate, key) = self.sign(params(names));
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_client_cert_verifier(clients).with_single_cert(vec![certificate], key).unwrap();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate()).unwrap();
        roots
    }

    /// Returns the configuration of a client that trusts only this authority and offers no protocols.
    pub fn client(&self) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        builder.with_root_certificates(self.roots()).with_no_client_auth()
    }
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

/// Returns the crypto provider of the tests.
pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Returns the pin of a key: the SHA-256 of its SubjectPublicKeyInfo.
pub fn spki_sha256(key: &KeyPair) -> [u8; 32] {
    let provider = provider();
    let hash = provider.cipher_suites.iter().find_map(|suite| {
        let hash = suite.tls13()?.common.hash_provider;
        (hash.algorithm() == HashAlgorithm::SHA256).then_some(hash)
    });
    hash.unwrap().hash(&key.subject_public_key_info()).as_ref().try_into().unwrap()
}
