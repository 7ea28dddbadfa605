//! The user's settings for decompression. A core.

use http::HeaderValue;

use super::coding::Coding;

/// The limits for decompressing response bodies.
///
/// Requests without an `Accept-Encoding` or `Range`, of their own or from the client's default headers, accept the
/// codings that the crate's features provide: `gzip`, `brotli`, `zstd`, `deflate`. Their responses are decompressed. With none of these
/// features on, nothing is.
/// With either of the two headers, a response is left as the server sent it.
///
/// A decompression bomb is an error: by default that is a body of more than 1 GiB, or one of more than 8 MiB that grew
/// more than 250 times.
///
/// ```
/// # #[cfg(feature = "gzip")] {
/// use speeddial::Client;
/// use speeddial::settings::Decompression;
///
/// let client = Client::builder().decompress(Decompression::default().max_bytes(1 << 20)).build();
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decompression {
    /// The codings that are decompressed: the bits of [`bit`].
    codings: u8,
    pub(in crate::client::body) max_bytes: u64,
    pub(in crate::client::body) max_ratio: u64,
}

impl Default for Decompression {
    fn default() -> Self {
        Self { codings: ALL, max_bytes: 1 << 30, max_ratio: 250 }
    }
}

/// `true` is [`Decompression::default`], `false` is [`Decompression::none`].
impl From<bool> for Decompression {
    fn from(is_enabled: bool) -> Self {
        if is_enabled { Self::default() } else { Self::none() }
    }
}

impl Decompression {
    /// Leaves bodies as they arrive, and sends no `Accept-Encoding`.
    pub fn none() -> Self {
        Self { codings: 0, ..Self::default() }
    }

    /// Sets the maximum length of a decompressed body in bytes. 1 GiB by default; `u64::MAX` for no limit.
    #[must_use]
    pub fn max_bytes(self, bytes: u64) -> Self {
        Self { max_bytes: bytes, ..self }
    }

    /// Sets the maximum ratio of a decompressed body to its compressed form, which applies beyond 8 MiB. 250 by
    /// default; `u64::MAX` for no limit.
    #[must_use]
    pub fn max_ratio(self, ratio: u64) -> Self {
        Self { max_ratio: ratio, ..self }
    }

    /// Decompresses a coding, or leaves its bodies as they arrive.
    pub(crate) fn with(self, coding: Coding, enable: bool) -> Self {
        let codings = if enable { self.codings | (bit(coding) & ALL) } else { self.codings & !bit(coding) };
        Self { codings, ..self }
    }

    /// Returns true if nothing is decompressed.
    pub(crate) fn is_none(&self) -> bool {
        ALL == 0 || self.codings == 0
    }

    /// Returns true if bodies in this coding are decompressed.
    pub(in crate::client::body) fn accepts(&self, coding: Coding) -> bool {
        self.codings & bit(coding) != 0
    }

    /// Returns the `Accept-Encoding` of a request; `None` if nothing is decompressed.
    pub(crate) fn accepted(&self) -> Option<HeaderValue> {
        if self.is_none() { None } else { Some(HeaderValue::from_static(ACCEPTED[usize::from(self.codings)])) }
    }
}

/// Returns the bit of a coding.
const fn bit(coding: Coding) -> u8 {
    1 << coding as u8
}

/// The codings of the crate's features.
const ALL: u8 = (cfg!(feature = "gzip") as u8 * bit(Coding::Gzip))
    | (cfg!(feature = "brotli") as u8 * bit(Coding::Brotli))
    | (cfg!(feature = "zstd") as u8 * bit(Coding::Zstd))
    | (cfg!(feature = "deflate") as u8 * bit(Coding::Deflate));

/// The `Accept-Encoding` of each set of codings, the best coding first.
const ACCEPTED: [&str; 16] = [
    "",
    "gzip",
    "br",
    "br, gzip",
    "zstd",
    "zstd, gzip",
    "zstd, br",
    "zstd, br, gzip",
    "deflate",
    "gzip, deflate",
    "br, deflate",
    "br, gzip, deflate",
    "zstd, deflate",
    "zstd, gzip, deflate",
    "zstd, br, deflate",
    "zstd, br, gzip, deflate",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_that_are_excluded_are_not_accepted() {
        let all = Decompression::default();
        let codings = [Coding::Gzip, Coding::Brotli, Coding::Zstd, Coding::Deflate];
        let none = codings.iter().fold(all, |less, coding| less.with(*coding, false));
        assert_eq!((none, none.accepted()), (Decompression::none(), None));
        for set in 0..16_u8 {
            let named = ACCEPTED[usize::from(set)].split(", ").filter_map(Coding::named);
            assert_eq!(named.fold(0, |bits, coding| bits | bit(coding)), set & ALL);
        }
        for coding in codings {
            let without = all.with(coding, false).accepted().map(|value| value.to_str().unwrap().to_owned());
            let named = without.iter().flat_map(|names| names.split(", ")).filter_map(Coding::named);
            assert!(named.clone().all(|named| named != coding), "{coding}: {without:?}");
            let only = Decompression::none().with(coding, true).accepted();
            assert!(only.is_none_or(|only| Coding::named(only.to_str().unwrap()) == Some(coding)), "{coding}");
            assert_eq!(all.with(coding, false).with(coding, true).accepted(), all.accepted());
        }
    }
}
