//! The client under object_store.
