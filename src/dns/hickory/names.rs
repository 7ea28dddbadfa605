//! Names as hickory has them. A core.

use hickory_resolver::proto::ProtoError;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::proto::rr::domain::usage::{INVALID, ONION};

/// Parses a name. Unlike hickory, it accepts labels that begin with a hyphen, as getaddrinfo does.
pub(super) fn parse(text: &str) -> Result<Name, ProtoError> {
    let refused = match Name::from_str_relaxed(text) {
        Ok(name) => return Ok(name),
        Err(error) => error,
    };
    let labels = text.strip_suffix('.').unwrap_or(text);
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !labels.bytes().all(is_usual) {
        return Err(refused);
    }
    let mut name = Name::from_labels(labels.split('.').map(str::as_bytes)).map_err(|_| refused)?;
    name.set_fqdn(text.ends_with('.'));
    Ok(name)
}

/// Returns true for a name that no DNS server knows: below `invalid` (RFC 6761 §6.4) and `onion` (RFC 7686).
pub(super) fn is_never_asked_for(name: &Name) -> bool {
    INVALID.zone_of(name) || ONION.zone_of(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_in_dns_are_known_with_those_below_them() {
        let is_never_asked_for = |text: &str| is_never_asked_for(&Name::from_ascii(text).unwrap());
        assert!(["invalid.", "a.INVALID.", "a.b.onion."].into_iter().all(is_never_asked_for));
        assert!(!["a.test.", "invalid.test.", "notinvalid.", "a.local."].into_iter().any(is_never_asked_for));
    }

    #[test]
    fn labels_may_begin_with_a_hyphen_and_all_else_is_as_in_hickory() {
        let name = parse("a.-b.test").unwrap();
        assert_eq!((name.is_fqdn(), name.iter().collect::<Vec<_>>()), (false, vec![&b"a"[..], b"-b", b"test"]));
        assert!(parse("-a.").unwrap().is_fqdn());
        let long = "-".repeat(64);
        for text in ["", ".", "a..b", "a b.-c", "a_b.test", "a.test.", &long, "-a..b"] {
            let theirs = Name::from_str_relaxed(text).map_err(|error| error.to_string());
            assert_eq!(parse(text).map_err(|error| error.to_string()), theirs, "{text}");
        }
    }
}
