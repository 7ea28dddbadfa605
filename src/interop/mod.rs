//! Parts of the crate under other people's clients.

#[cfg(feature = "hyper-util")]
mod hyper_util;
#[cfg(feature = "reqwest")]
mod reqwest;

#[cfg(feature = "hyper-util")]
pub use hyper_util::{Connecting, Connector, Line};
