//! Bodies of requests and of responses.

mod common;
#[cfg(all(feature = "gzip", feature = "brotli", feature = "zstd", feature = "deflate"))]
mod decompression;
mod early_answers;
mod error_statuses;
mod files;
#[cfg(feature = "multipart")]
mod forms;
mod lengths;
mod progress;
mod reading;
mod sending;
