//! The user's settings for decompression. A core.

use http::HeaderValue;

/// The limits for decompressing response bodies.
///
/// Requests without an `Accept-Encoding` or `Range`, of their own or from the client's default headers, accept the
/// codings that the crate's features provide: `gzip`, `brotli`, `zstd`, `deflate`. Their responses are decompressed.
/// With either of the two headers, a response is left as the server sent it.
///
/// A decompression bomb is an error: by default that is a body of more than 1 GiB, or one of more than 8 MiB that grew
/// more than 250 times.
///
/// ```
/// # #[cfg(feature = "gzip")] {
/// use speeddial::{Client, Decompression};
///
/// let client = Client::builder().decompress(Decompression::default().max_bytes(1 << 20)).build();
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decompression {
    pub(super) is_enabled: bool,
    pub(super) max_bytes: u64,
    pub(super) max_ratio: u64,
}

impl Default for Decompression {
    fn default() -> Self {
        Self { is_enabled: true, max_bytes: 1 << 30, max_ratio: 250 }
    }
}

/// `true` is [`Decompression::default`], `false` is [`Decompression::none`].
impl From<bool> for Decompression {
    fn from(is_enabled: bool) -> Self {
        Self { is_enabled, ..Self::default() }
    }
}

impl Decompression {
    /// Leaves bodies as they arrive, and sends no `Accept-Encoding`.
    pub fn none() -> Self {
        Self { is_enabled: false, ..Self::default() }
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

    /// Returns the `Accept-Encoding` of a request; `None` if nothing is decompressed.
    pub(crate) fn accepted(&self) -> Option<HeaderValue> {
        if self.is_enabled { Some(HeaderValue::from_static(ACCEPTED)) } else { None }
    }
}

/// The codings of the crate's features, the best first.
const ACCEPTED: &str =
    match (cfg!(feature = "zstd"), cfg!(feature = "brotli"), cfg!(feature = "gzip"), cfg!(feature = "deflate")) {
        (true, true, true, true) => "zstd, br, gzip, deflate",
        (true, true, true, false) => "zstd, br, gzip",
        (true, true, false, true) => "zstd, br, deflate",
        (true, true, false, false) => "zstd, br",
        (true, false, true, true) => "zstd, gzip, deflate",
        (true, false, true, false) => "zstd, gzip",
        (true, false, false, true) => "zstd, deflate",
        (true, false, false, false) => "zstd",
        (false, true, true, true) => "br, gzip, deflate",
        (false, true, true, false) => "br, gzip",
        (false, true, false, true) => "br, deflate",
        (false, true, false, false) => "br",
        (false, false, true, true) => "gzip, deflate",
        (false, false, true, false) => "gzip",
        _ => "deflate",
    };
