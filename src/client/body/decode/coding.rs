//! The content codings (RFC 9110 §8.4.1) that the crate's features provide. A core.

use std::fmt;

use compression_codecs::DecodeV2;

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Brotli,
    Zstd,
    Deflate,
}

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gzip => "gzip",
            Self::Brotli => "brotli",
            Self::Zstd => "zstd",
            Self::Deflate => "deflate",
        })
    }
}

impl Coding {
    /// Returns the coding with this name; `None` if it is unknown or its feature is off.
    pub(in crate::client::body) fn named(name: &str) -> Option<Self> {
        let names = [
            ("gzip", Self::Gzip),
            ("x-gzip", Self::Gzip),
            ("br", Self::Brotli),
            ("zstd", Self::Zstd),
            ("deflate", Self::Deflate),
        ];
        let (_, coding) = names.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known))?;
        let enabled = match coding {
            Self::Gzip => cfg!(feature = "gzip"),
            Self::Brotli => cfg!(feature = "brotli"),
            Self::Zstd => cfg!(feature = "zstd"),
            Self::Deflate => cfg!(feature = "deflate"),
        };
        if enabled { Some(coding) } else { None }
    }

    /// Returns true if several members (gzip) or frames (zstd) in a row are one body.
    pub(in crate::client::body) fn has_members(self) -> bool {
        matches!(self, Self::Gzip | Self::Zstd)
    }

    /// Returns why data that begins with `start` is not decoded. A large window of brotli, which no standard has, takes as much memory as
    /// the server likes.
    pub(in crate::client::body) fn refusal(self, start: &[u8]) -> Option<&'static str> {
        let has_large_window = matches!(start, [first, ..] if first & 0x7f == 0x11);
        if self == Self::Brotli && has_large_window { Some("its window is a large one") } else { None }
    }

    /// Creates a decoder for data that begins with `start`. Servers send deflate with and without its zlib envelope
    /// (RFC 9110 §8.4.1.2), which the first two bytes tell.
    #[cfg_attr(not(feature = "deflate"), expect(unused_variables, reason = "the other codings have one form"))]
    pub(in crate::client::body) fn codec(self, start: &[u8]) -> Box<dyn DecodeV2 + Send + Sync> {
        match self {
            #[cfg(feature = "gzip")]
            Self::Gzip => Box::new(compression_codecs::GzipDecoder::new()),
            #[cfg(feature = "brotli")]
            Self::Brotli => Box::new(compression_codecs::BrotliDecoder::new()),
            #[cfg(feature = "zstd")]
            Self::Zstd => {
                // 8 MiB, the window that every decoder has to support (RFC 8878 §3.1.1.1.2). More memory than that is
                // not the server's to take.
                let window = compression_codecs::zstd::params::DParameter::window_log_max(23);
                Box::new(compression_codecs::ZstdDecoder::new_with_params(&[window]))
            }
            #[cfg(feature = "deflate")]
            Self::Deflate => match start {
                [first, second, ..]
                    if first & 0x0f == 8 && (u16::from(*first) << 8 | u16::from(*second)).is_multiple_of(31) =>
                {
                    Box::new(compression_codecs::ZlibDecoder::new())
                }
                _ => Box::new(compression_codecs::DeflateDecoder::new()),
            },
            #[allow(unreachable_patterns, reason = "reachable if a feature is off")]
            _ => unreachable!("a coding whose feature is off is never named"),
        }
    }
}
