//! x
mod clock;
pub mod dns;
mod list;
mod origin;
mod pool;
mod race;
pub mod trace;
pub mod transport;
pub use origin::*;
