//! The addresses of an origin, and the endpoints that DNS names for it.
//!
//! | file | what it does |
//! |---|---|
//! | `lookup.rs`, `pins.rs` | the addresses of a name: by the resolver, or set by the user |
//! | `addresses.rs` | which of them are used, and in which order |
//! | `name_use.rs` | keeps the name of a busy connection in the DNS cache |

pub(super) mod addresses;
pub(super) mod lookup;
pub(super) mod name_use;
pub(super) mod pins;
