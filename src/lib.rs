//! x
mod clock;
mod list;
mod origin;
pub mod dns;
pub mod trace;
pub use origin::*;
