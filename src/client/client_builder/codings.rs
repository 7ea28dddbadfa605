//! The choice of the codings in which response bodies are decompressed.

use super::ClientBuilder;
use crate::client::body::Coding;

/// Each of these is for one coding. `decompress` sets all at once, so it comes before them;
/// [`build`](ClientBuilder::build) refuses it after one of them.
impl ClientBuilder {
    /// Sets whether gzip is accepted and decompressed (feature `gzip`). True by default.
    #[cfg(feature = "gzip")]
    pub fn gzip(self, enable: bool) -> Self {
        self.with_coding(Coding::Gzip, enable)
    }

    /// Sets whether brotli is accepted and decompressed (feature `brotli`). True by default.
    #[cfg(feature = "brotli")]
    pub fn brotli(self, enable: bool) -> Self {
        self.with_coding(Coding::Brotli, enable)
    }

    /// Sets whether zstd is accepted and decompressed (feature `zstd`). True by default.
    #[cfg(feature = "zstd")]
    pub fn zstd(self, enable: bool) -> Self {
        self.with_coding(Coding::Zstd, enable)
    }

    /// Sets whether deflate is accepted and decompressed (feature `deflate`). True by default.
    #[cfg(feature = "deflate")]
    pub fn deflate(self, enable: bool) -> Self {
        self.with_coding(Coding::Deflate, enable)
    }

    /// Leaves gzip bodies as they arrive, also if another crate turned the feature `gzip` on.
    pub fn no_gzip(self) -> Self {
        self.with_coding(Coding::Gzip, false)
    }

    /// Leaves brotli bodies as they arrive, also if another crate turned the feature `brotli` on.
    pub fn no_brotli(self) -> Self {
        self.with_coding(Coding::Brotli, false)
    }

    /// Leaves zstd bodies as they arrive, also if another crate turned the feature `zstd` on.
    pub fn no_zstd(self) -> Self {
        self.with_coding(Coding::Zstd, false)
    }

    /// Leaves deflate bodies as they arrive, also if another crate turned the feature `deflate` on.
    pub fn no_deflate(self) -> Self {
        self.with_coding(Coding::Deflate, false)
    }

    fn with_coding(mut self, coding: Coding, enable: bool) -> Self {
        let present = self.defaults.options.decompression.unwrap_or_default();
        self.defaults.options.decompression = Some(present.with(coding, enable));
        self.chooses_codings = true;
        self
    }
}
