//! The settings of one request, beside the message itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Version;

use crate::client::body::Decompression;
use crate::client::request::call_options::{CallOptions, call_setters};
use crate::connect::{Proxy, ProxyChoice};
use crate::error::{Error, Result};
use crate::trace::{Observer, ObserverHandle};

/// The settings of one request, for requests of the `http` crate: a value for their extensions. Each setting replaces
/// the host's or the client's.
///
/// A client takes the settings out of the extensions of every `http::Request` that it is given, be it by
/// [`RequestBuilder::from_http`](crate::RequestBuilder::from_http), by a conversion into a
/// [`Request`](crate::Request), or as a tower service. In a tower layer, the extensions hold the settings that the
/// request has so far: change those, because new ones would replace them all.
///
/// ```
/// use std::time::Duration;
/// use speeddial::{Client, RequestBuilder, http, redirect};
/// use speeddial::settings::RequestOptions;
///
/// let client = Client::builder().base_url("http://api.example.com/v1/").build()?;
/// let mut message = http::Request::get("/v1/items").body("").expect("a valid message");
/// let options = RequestOptions::new().timeout(Duration::from_secs(2)).redirect(redirect::Policy::none());
/// message.extensions_mut().insert(options);
/// let request = RequestBuilder::from_http(client, message);
///
/// // In a layer:
/// # let mut message = http::Request::new(());
/// let extensions = message.extensions_mut();
/// let options = extensions.remove::<RequestOptions>().unwrap_or_default();
/// extensions.insert(options.max_body_size(1 << 20));
/// # Ok::<(), speeddial::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct RequestOptions(
    /// Boxed, because every request would have to make room for the settings, and most requests have none.
    Option<Box<RequestSettings>>,
);

/// The HTTP version of a request.
#[derive(Debug, Clone, Copy, Default)]
struct AskedVersion {
    version: Version,
    /// True if the connection must speak HTTP/1.1 as well if that is the version. Others are always required.
    is_required: bool,
}

impl AskedVersion {
    /// Returns the version that the connection must speak; any if `None`.
    fn required(self) -> Option<Version> {
        (self.is_required || self.version != Version::HTTP_11).then_some(self.version)
    }
}

/// The settings of a request that has some. `None` leaves a setting to the client.
#[derive(Clone, Default)]
struct RequestSettings {
    call: CallOptions,
    version: AskedVersion,
    is_quiet_stream: bool,
    is_passed_on: bool,
    observer: Option<ObserverHandle>,
    proxy: Option<Arc<ProxyChoice>>,
    /// The protocol that an extended CONNECT asks for (RFC 8441).
    protocol: Option<Box<str>>,
}

call_setters!(RequestOptions);

impl RequestOptions {
    /// Creates settings that leave everything to the client.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the longest wait for a new connection, like
    /// [`RequestBuilder::connect_timeout`](crate::RequestBuilder::connect_timeout).
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings_mut().call.timeouts.connect = Some(timeout);
        self
    }

    /// Requires an HTTP version, like [`RequestBuilder::version`](crate::RequestBuilder::version). Takes precedence over
    /// the message's own version.
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        self.require_version(version);
        self
    }

    /// Sets an observer of the call, like [`RequestBuilder::observer`](crate::RequestBuilder::observer).
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.settings_mut().observer = Some(ObserverHandle::of_call(observer));
        self
    }

    /// Sets the proxy, like [`RequestBuilder::proxy`](crate::RequestBuilder::proxy).
    #[must_use]
    pub fn proxy(mut self, proxy: Proxy) -> Self {
        self.settings_mut().proxy = Some(Arc::new(ProxyChoice::through(proxy)));
        self
    }

    /// Uses no proxy, like [`RequestBuilder::no_proxy`](crate::RequestBuilder::no_proxy).
    #[must_use]
    pub fn no_proxy(mut self) -> Self {
        self.settings_mut().proxy = Some(Arc::new(ProxyChoice::none()));
        self
    }

    /// Returns the choice of a proxy; `None` to use the client's proxies.
    pub(in crate::client) fn proxy_choice(&self) -> Option<&Arc<ProxyChoice>> {
        self.0.as_ref()?.proxy.as_ref()
    }

    /// Makes a CONNECT request an extended one, like [`RequestBuilder::protocol`](crate::RequestBuilder::protocol).
    #[must_use]
    pub fn protocol(mut self, name: &str) -> Self {
        self.settings_mut().protocol = Some(name.into());
        self
    }

    /// Returns the protocol that an extended CONNECT asks for.
    pub(in crate::client) fn extended_protocol(&self) -> Option<&str> {
        self.0.as_ref()?.protocol.as_deref()
    }

    /// Fills settings that are not set with those of `defaults`: for a library that has settings for its requests, while a request may
    /// have its own among its extensions. The observers of both are told of the call, the own one first.
    ///
    /// ```
    /// use std::time::Duration;
    /// use speeddial::settings::RequestOptions;
    ///
    /// let of_library = RequestOptions::new().timeout(Duration::from_secs(2)).decompress(false);
    /// let mut message = speeddial::http::Request::get("http://api.example.com/").body("")?;
    /// let own = message.extensions_mut().remove::<RequestOptions>().unwrap_or_default();
    /// message.extensions_mut().insert(own.or(of_library));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn or(self, defaults: Self) -> Self {
        match (self.0, defaults.0) {
            (Some(own), Some(defaults)) => Self(Some(Box::new(own.or(*defaults)))),
            (own, defaults) => Self(own.or(defaults)),
        }
    }

    /// Marks a request that a gateway passes on.
    pub(in crate::client) fn passed_on(mut self) -> Self {
        self.settings_mut().is_passed_on = true;
        self
    }

    /// Returns true if a gateway passes the request on.
    pub(in crate::client) fn is_passed_on(&self) -> bool {
        self.0.as_ref().is_some_and(|settings| settings.is_passed_on)
    }

    /// Returns a setting of the request itself.
    #[inline]
    pub(in crate::client) fn own<'s, T>(&'s self, of: impl Fn(&'s CallOptions) -> Option<T>) -> Option<T> {
        of(&self.0.as_ref()?.call)
    }

    /// Returns a setting of the request itself, or else that of `defaults`.
    #[inline]
    pub(in crate::client) fn setting<'s, T>(
        &'s self,
        defaults: &'s CallOptions,
        of: impl Fn(&'s CallOptions) -> Option<T>,
    ) -> Option<T> {
        self.own(&of).or_else(|| of(defaults))
    }

    /// Returns the settings for decompression, where `defaults` are those of the host or of the client.
    ///
    /// An event stream reaches any limit of length in time. Its parser's limits bound the memory, and the ratio to the length received
    /// bounds the work.
    pub(in crate::client) fn decompression(&self, defaults: &CallOptions) -> Decompression {
        let usual = || defaults.decompression.unwrap_or_default();
        let own = self.own(|options| options.decompression);
        own.unwrap_or_else(|| if self.is_quiet_stream() { usual().max_bytes(u64::MAX) } else { usual() })
    }

    /// Returns the maximum length of the response's body, where `defaults` are those of the host or of the client.
    pub(in crate::client) fn body_limit(&self, defaults: &CallOptions) -> Option<u64> {
        let usual = if self.is_quiet_stream() { None } else { defaults.max_body_size };
        self.own(|options| options.max_body_size).or(usual)
    }

    /// Returns the settings that hosts and clients may have as well, to change them.
    pub(in crate::client) fn call_options(&mut self) -> &mut CallOptions {
        &mut self.settings_mut().call
    }

    /// Returns the HTTP version that the connection must speak; any if `None`.
    pub(in crate::client) fn required_version(&self) -> Option<Version> {
        self.0.as_ref()?.version.required()
    }

    pub(in crate::client) fn require_version(&mut self, version: Version) {
        self.settings_mut().version = AskedVersion { version, is_required: true };
    }

    /// Returns the HTTP version, to change it to one that is required. HTTP/1.1 is no requirement unless there was one.
    pub(in crate::client) fn version_mut(&mut self) -> &mut Version {
        &mut self.settings_mut().version.version
    }

    /// Returns the call's own observer.
    pub(in crate::client) fn own_observer(&self) -> Option<&ObserverHandle> {
        self.0.as_ref()?.observer.as_ref()
    }

    /// Marks the response as a stream that may be quiet.
    #[cfg(feature = "sse")]
    pub(in crate::client) fn allow_quiet_stream(&mut self) {
        self.settings_mut().is_quiet_stream = true;
    }

    /// Returns true if the response is a stream that may be quiet: the call's timeout ends with the head, and only a body idle
    /// timeout of the request itself applies to the body.
    pub(in crate::client) fn is_quiet_stream(&self) -> bool {
        self.0.as_ref().is_some_and(|settings| settings.is_quiet_stream)
    }

    /// Returns the settings, to change them.
    fn settings_mut(&mut self) -> &mut RequestSettings {
        self.0.get_or_insert_default()
    }
}

impl RequestSettings {
    /// Fills settings that are not set with those of `defaults`.
    fn or(self, defaults: Self) -> Self {
        Self {
            call: self.call.or(&defaults.call),
            version: if self.version.required().is_some() { self.version } else { defaults.version },
            is_quiet_stream: self.is_quiet_stream || defaults.is_quiet_stream,
            is_passed_on: self.is_passed_on || defaults.is_passed_on,
            observer: match (self.observer, defaults.observer) {
                (Some(own), Some(default)) => Some(own.and(default)),
                (own, default) => own.or(default),
            },
            proxy: self.proxy.or(defaults.proxy),
            protocol: self.protocol.or(defaults.protocol),
        }
    }
}

impl fmt::Debug for RequestOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestOptions")
            .field("call", &self.own(Some))
            .field("version", &self.required_version())
            .finish_non_exhaustive()
    }
}

/// Returns `version`, or an error if the client does not speak it.
pub(in crate::client) fn checked_version(version: Version) -> Result<Version> {
    match version {
        Version::HTTP_10 | Version::HTTP_11 | Version::HTTP_2 => Ok(version),
        _ => Err(Error::refused_request(format!("{version:?} is not supported"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_1_1_is_required_only_after_a_requirement() {
        let mut options = RequestOptions::default();
        assert_eq!((*options.version_mut(), options.required_version()), (Version::HTTP_11, None));
        *options.version_mut() = Version::HTTP_2;
        assert_eq!(options.required_version(), Some(Version::HTTP_2));
        *options.version_mut() = Version::HTTP_11;
        assert_eq!(options.required_version(), None);
        options.require_version(Version::HTTP_2);
        *options.version_mut() = Version::HTTP_11;
        assert_eq!(options.required_version(), Some(Version::HTTP_11));
    }
}
