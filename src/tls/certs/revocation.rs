//! The order of revocation lists (CRL, RFC 5280 §5). A core: it is given the bytes, which a stranger may have made.

use rustls::pki_types::CertificateRevocationListDer;

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
/// The time with two digits for the year; any other is one with four (RFC 5280 §5.1.2.4).
const UTC_TIME: u8 = 0x17;

/// Puts the newest list first, and of equally old ones that which was added last: webpki asks the first list that is for a certificate,
/// and no other.
pub(in crate::tls) fn newest_first(
    mut lists: Vec<CertificateRevocationListDer<'static>>,
) -> Vec<CertificateRevocationListDer<'static>> {
    lists.sort_by_cached_key(|list| issued(list));
    lists.reverse();
    lists
}

/// Returns the time at which a list was issued (thisUpdate), as digits that sort by it. webpki refuses a list without one.
fn issued(list: &[u8]) -> Option<Vec<u8>> {
    let (mut signed, _) = expect(list, SEQUENCE)?;
    (signed, _) = expect(signed, SEQUENCE)?;
    // The version, the signature's algorithm and the issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, signed) = expect(signed, tag)?;
    }
    let (tag, digits, _) = take(signed)?;
    let century: &[u8] = match digits {
        [b'5'..=b'9', ..] if tag == UTC_TIME => b"19",
        _ if tag == UTC_TIME => b"20",
        _ => b"",
    };
    Some([century, digits].concat())
}

/// Takes the first element of DER (X.690), if it has this tag. Returns its content, and what follows it.
fn expect(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    take(der).filter(|(found, ..)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// Takes the first element of DER. Returns its tag, its content, and what follows it.
fn take(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [tag, first, rest @ ..] = der else { return None };
    let (length, rest) = match usize::from(*first) {
        length @ 0..0x80 => (length, rest),
        long => {
            let (digits, rest) = rest.split_at_checked(long & 0x7f).filter(|(digits, _)| digits.len() <= 4)?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns DER with this tag and content.
    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    }

    fn list(tag: u8, time: &[u8]) -> Vec<u8> {
        let head = [element(INTEGER, &[1]), element(SEQUENCE, &[0; 300]), element(SEQUENCE, b"")].concat();
        element(SEQUENCE, &element(SEQUENCE, &[head, element(tag, time), vec![0; 9]].concat()))
    }

    #[test]
    fn lists_are_sorted_by_the_time_of_their_issue() {
        let times: [(u8, &[u8]); 5] = [
            (UTC_TIME, b"500101000000Z"),
            (UTC_TIME, b"991231235959Z"),
            (UTC_TIME, b"000101000000Z"),
            (UTC_TIME, b"491231235959Z"),
            (0x18, b"20500101000000Z"),
        ];
        let issues = times.map(|(tag, time)| issued(&list(tag, time)).unwrap());
        assert!(issues.is_sorted() && issues[2] == b"20000101000000Z", "{issues:?}");
    }

    #[test]
    fn a_list_that_is_cut_or_claims_any_length_is_older_than_all_others() {
        let whole = list(UTC_TIME, b"000101000000Z");
        let inner = whole.len() - 9;
        assert!((0..inner).all(|end| issued(&whole[..end]).is_none()));
        for bytes in [&[0x30, 0x80][..], &[0x30, 0xff], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &[0x30, 0x89]] {
            assert_eq!(issued(bytes), None);
        }
    }
}
