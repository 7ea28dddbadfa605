//! The client under object_store and opendal.
