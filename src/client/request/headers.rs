//! The headers of a request, which stay known after an attempt has taken them.

use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

use http::{HeaderMap, HeaderName, HeaderValue};

/// The headers of a request. An attempt takes the map, because hyper keeps what it sends, and leaves a copy in one piece. If the headers
/// are read again, the map is made anew of that. Most calls read them once, and a copy of the map would allocate for nearly each header.
#[derive(Default)]
pub(in crate::client) struct RequestHeaders {
    map: HeaderMap,
    /// The headers in place of the map, from when an attempt has taken it until they are changed.
    sent: Option<Box<Sent>>,
}

struct Sent {
    packed: Vec<u8>,
    map: OnceLock<HeaderMap>,
}

impl RequestHeaders {
    /// Takes the map for an attempt.
    pub(in crate::client) fn take_to_send(&mut self) -> HeaderMap {
        let map = std::mem::take(&mut **self);
        self.sent = Some(Box::new(Sent { packed: pack(&map), map: OnceLock::new() }));
        map
    }

    /// Frees them.
    pub(in crate::client) fn free(&mut self) {
        self.sent = None;
        if !self.map.is_empty() {
            self.map = HeaderMap::new();
        }
    }

    pub(in crate::client) fn into_map(mut self) -> HeaderMap {
        std::mem::take(&mut *self)
    }
}

impl From<HeaderMap> for RequestHeaders {
    fn from(map: HeaderMap) -> Self {
        Self { map, sent: None }
    }
}

impl Clone for RequestHeaders {
    fn clone(&self) -> Self {
        HeaderMap::clone(self).into()
    }
}

impl Deref for RequestHeaders {
    type Target = HeaderMap;

    #[inline]
    fn deref(&self) -> &HeaderMap {
        match &self.sent {
            None => &self.map,
            Some(sent) => sent.map.get_or_init(|| unpack(&sent.packed)),
        }
    }
}

impl DerefMut for RequestHeaders {
    #[inline]
    fn deref_mut(&mut self) -> &mut HeaderMap {
        if let Some(sent) = self.sent.take() {
            self.map = sent.map.into_inner().unwrap_or_else(|| unpack(&sent.packed));
        }
        &mut self.map
    }
}

/// Copies headers into one piece: of each its lengths, its name and its value.
fn pack(map: &HeaderMap) -> Vec<u8> {
    let length = |(name, value): (&HeaderName, &HeaderValue)| size_of::<u64>() + name.as_str().len() + value.len();
    let mut packed = Vec::with_capacity(map.iter().map(length).sum());
    for (name, value) in map {
        let name = name.as_str();
        // A name has at most 65,535 bytes.
        let lengths = (value.len() as u64) << 17 | (name.len() as u64) << 1 | u64::from(value.is_sensitive());
        packed.extend_from_slice(&lengths.to_ne_bytes());
        packed.extend_from_slice(name.as_bytes());
        packed.extend_from_slice(value.as_bytes());
    }
    packed
}

#[cold]
fn unpack(mut packed: &[u8]) -> HeaderMap {
    const IS_PACKED: &str = "headers were packed";
    let mut map = HeaderMap::new();
    while let Some((&lengths, rest)) = packed.split_first_chunk() {
        let lengths = u64::from_ne_bytes(lengths);
        let (name, rest) = rest.split_at((lengths >> 1) as usize & 0xffff);
        let (value, rest) = rest.split_at((lengths >> 17) as usize);
        // Of all ways to make a name, this one accepts the most characters.
        let name = HeaderName::from_lowercase(name).expect(IS_PACKED);
        let mut value = HeaderValue::from_bytes(value).expect(IS_PACKED);
        value.set_sensitive(lengths & 1 != 0);
        map.append(name, value);
        packed = rest;
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_an_attempt_took_are_there_for_the_next_one() {
        let mut secret = HeaderValue::from_static("secret");
        secret.set_sensitive(true);
        let mut map = HeaderMap::new();
        map.append("accept", HeaderValue::from_static(""));
        map.append("cookie", secret.clone());
        map.append("x-long", HeaderValue::try_from("x".repeat(70_000)).unwrap());
        map.append("cookie", HeaderValue::from_bytes(b"\xff\ty").unwrap());
        map.append(HeaderName::try_from("y".repeat(65_535)).unwrap(), HeaderValue::from_static("1"));
        for byte in 0..=u8::MAX {
            let of_bytes = |start: &str| [start.as_bytes(), &[byte]].concat();
            let value = HeaderValue::from_bytes(&of_bytes("v")).unwrap_or(HeaderValue::from_static("none"));
            for name in [of_bytes("x"), of_bytes(&"long".repeat(30))] {
                for name in [HeaderName::from_bytes(&name).ok(), HeaderName::from_lowercase(&name).ok()] {
                    map.extend(name.map(|name| (name, value.clone())));
                }
            }
        }
        assert!(map.contains_key(HeaderName::from_static("x\"")));
        let mut headers = RequestHeaders::from(map.clone());
        for _ in 0..3 {
            assert_eq!(headers.take_to_send(), map);
            assert_eq!(*headers.clone(), map);
        }
        assert!(headers.get("cookie").unwrap().is_sensitive(), "the first one is");
        assert!(!headers.get_all("cookie").iter().nth(1).unwrap().is_sensitive());
        headers.insert("accept", HeaderValue::from_static("text/plain"));
        assert_eq!(headers.take_to_send()["accept"], "text/plain");
        headers.clear();
        assert_eq!(headers.into_map(), HeaderMap::new());
    }
}
