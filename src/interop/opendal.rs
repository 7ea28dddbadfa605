//! The client under opendal.
