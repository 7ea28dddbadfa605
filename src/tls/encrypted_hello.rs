//! Encrypted Client Hello (RFC 9849): a handshake whose first message hides the name that it asks for.

use std::io;
use std::sync::Arc;

use rustls::client::{EchConfig, EchMode};
// The only way to the keys that a rejecting server sends: rustls shows them as its own type, and reads them from bytes.
use rustls::internal::msgs::codec::Codec;
use rustls::pki_types::EchConfigListBytes;
use rustls::{Error, PeerIncompatible};

use super::failure::{TlsFailed, rustls_error};
use crate::trust;

/// Returns rustls's setting for the first of these keys, an `ECHConfigList`, that it can use with the crypto provider of the crate.
pub(super) fn mode(keys: &[u8]) -> Option<EchMode> {
    EchConfig::new(EchConfigListBytes::from(keys), trust::hpke_suites()).ok().map(EchMode::from)
}

/// The answer of a server that has rejected an encrypted hello. Its certificate for the public name was verified.
#[derive(Debug)]
pub(crate) enum HelloRejected {
    /// These keys are to be used in place of the ones from DNS.
    UseKeys(Arc<[u8]>),
    /// The server does not use encrypted hellos any more.
    NotUsed,
}

/// Returns the answer of a server that has rejected an encrypted hello; `None` for any other failure.
pub(crate) fn hello_rejected(error: &io::Error) -> Option<HelloRejected> {
    let failed = TlsFailed::of(error)?;
    let Error::PeerIncompatible(PeerIncompatible::ServerRejectedEncryptedClientHello(keys)) =
        rustls_error(failed.cause())?
    else {
        return None;
    };
    let Some(keys) = keys else { return Some(HelloRejected::NotUsed) };
    let mut list = Vec::new();
    keys.iter().for_each(|key| key.encode(&mut list));
    let length = u16::try_from(list.len()).ok()?.to_be_bytes();
    let keys: Arc<[u8]> = [&length[..], &list].concat().into();
    Some(if mode(&keys).is_some() { HelloRejected::UseKeys(keys) } else { HelloRejected::NotUsed })
}

// ring can use no key.
#[cfg(feature = "tls")]
#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(keys: Option<&[u8]>) -> Option<HelloRejected> {
        use rustls::internal::msgs::codec::Reader;
        use rustls::internal::msgs::handshake::EchConfigPayload;
        let keys = keys.map(|keys| Vec::<EchConfigPayload>::read(&mut Reader::init(keys)).unwrap());
        let error = Error::PeerIncompatible(PeerIncompatible::ServerRejectedEncryptedClientHello(keys));
        hello_rejected(&TlsFailed::of_handshake(io::Error::new(io::ErrorKind::InvalidData, error)))
    }

    /// A list with one key: X25519, HKDF-SHA256, AES-128-GCM, for public.test.
    fn list() -> Vec<u8> {
        let mut contents = vec![7, 0, 0x20, 0, 32];
        contents.extend([9; 32]);
        contents.extend([0, 4, 0, 1, 0, 1, 32, 11]);
        contents.extend(b"public.test");
        contents.extend([0, 0]);
        let config = [&[0xfe, 0x0d, 0, contents.len() as u8][..], &contents].concat();
        [&[0, config.len() as u8][..], &config].concat()
    }

    #[test]
    fn the_keys_of_a_rejection_are_those_that_the_server_sent() {
        let Some(HelloRejected::UseKeys(keys)) = rejected(Some(&list())) else { panic!("keys were sent") };
        assert_eq!(*keys, *list());
        assert!(matches!(rejected(None), Some(HelloRejected::NotUsed)));
        assert!(matches!(rejected(Some(&[0, 0])), Some(HelloRejected::NotUsed)), "no key at all");
        assert!(hello_rejected(&TlsFailed::of_handshake(io::ErrorKind::ConnectionReset.into())).is_none());
    }

    #[test]
    fn keys_that_cannot_be_used_are_none() {
        assert!(mode(&list()).is_some());
        assert!(mode(&[]).is_none() && mode(&[0, 1, 2]).is_none());
        let mut unknown_kem = list();
        unknown_kem[8] = 0x7f;
        assert!(mode(&unknown_kem).is_none());
    }
}
