//! The client under the oauth2 crate.
