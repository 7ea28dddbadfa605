//! The client below libraries of storage.
//!
//! | file | what it does |
//! |---|---|
//! | `object_store.rs`, `object_store_options.rs` | object_store |
//! | `opendal.rs` | opendal |
//! | `library.rs` | what libraries that sign and repeat requests themselves have in common |

#[cfg(feature = "__adapter")]
pub(super) mod library;
#[cfg(feature = "object-store-0-14")]
pub(super) mod object_store;
#[cfg(feature = "object-store-0-14")]
pub(super) mod object_store_options;
#[cfg(feature = "opendal-0-59")]
pub(super) mod opendal;
