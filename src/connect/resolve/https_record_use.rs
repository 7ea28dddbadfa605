//! The client's settings for HTTPS records.

/// The use that a client makes of HTTPS records (RFC 9460).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HttpsRecordUse {
    /// True if they are asked for.
    pub(crate) is_enabled: bool,
    /// True if the keys in them are used for encrypted hellos.
    pub(crate) encrypts_hello: bool,
}
