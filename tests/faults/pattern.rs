//! Bodies that belong to one request: each is a function of the request's id, so that a foreign or missing byte is seen.

use bytes::Bytes;

/// The text that a body repeats is this long.
const UNIT: usize = 26;

/// The part of a call that a body belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Response,
    Upload,
    /// The body of a redirect or of a response with status 503.
    Interim,
}

impl Part {
    fn letter(self) -> char {
        match self {
            Self::Response => 'r',
            Self::Upload => 'u',
            Self::Interim => 'i',
        }
    }
}

/// Returns the body of `length` bytes that belongs to a part of the call `id`.
pub(crate) fn body(part: Part, id: u64, length: usize) -> Bytes {
    let mut text = String::with_capacity(length + UNIT);
    while text.len() < length {
        text.push_str(&unit(part, id, text.len()));
    }
    text.truncate(length);
    text.into()
}

/// Checks that a body is the whole one of this part of the call. Returns what is wrong with it.
pub(crate) fn check(part: Part, id: u64, length: usize, found: &[u8]) -> Result<(), String> {
    let right = body(part, id, length);
    if found == right {
        return Ok(());
    }
    let place = found.iter().zip(&right).position(|(found, right)| found != right);
    let Some(place) = place else { return Err(format!("a body of {} bytes, not {length}", found.len())) };
    let from = place - place % UNIT;
    let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[from..bytes.len().min(from + UNIT)]).into_owned();
    Err(format!("a foreign body: `{}` at {from}, not `{}`", shown(found), shown(&right)))
}

fn unit(part: Part, id: u64, at: usize) -> String {
    format!("{}{id:016x}{at:08x}\n", part.letter())
}

#[test]
fn foreign_missing_and_additional_bytes_are_seen() {
    assert_eq!(unit(Part::Upload, 7, 26).len(), UNIT);
    let right = body(Part::Response, 7, 1000);
    assert_eq!((right.len(), check(Part::Response, 7, 1000, &right)), (1000, Ok(())));
    assert_eq!(check(Part::Response, 7, 1000, &right[..990]).unwrap_err(), "a body of 990 bytes, not 1000");
    assert_eq!(check(Part::Response, 7, 990, &right).unwrap_err(), "a body of 1000 bytes, not 990");
    let foreign = "a foreign body: `r00000000000000080000001a\n` at 26, not `r00000000000000070000001a\n`";
    let mut mixed = right.to_vec();
    mixed[26..].copy_from_slice(&body(Part::Response, 8, 1000)[26..]);
    assert_eq!(check(Part::Response, 7, 1000, &mixed).unwrap_err(), foreign);
    // A piece of the right body in the wrong place.
    mixed.copy_from_slice(&right);
    mixed.copy_within(26..52, 52);
    assert!(check(Part::Response, 7, 1000, &mixed).is_err());
    assert!(check(Part::Upload, 7, 1000, &right).is_err());
}
