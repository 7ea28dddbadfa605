//! Bodies of requests and of responses.

mod common;
#[cfg(all(feature = "gzip", feature = "brotli", feature = "zstd", feature = "deflate"))]
mod decompression;
mod early_answers;
mod error_statuses;
mod lengths;
mod reading;
mod sending;
