//! The settings that object_store hands to its HTTP client: which of them apply to single requests, and which the client must have.

use std::time::Duration;

use object_store::{ClientConfigKey, ClientOptions, Error, Result};
use speeddial::http::header::USER_AGENT;
use speeddial::http::{HeaderMap, HeaderValue, Version};
use speeddial::settings::RequestOptions;
use speeddial::{NoProxy, Proxy, redirect};

/// The settings of a store's requests.
pub(crate) struct StoreOptions {
    pub(crate) request: RequestOptions,
    /// Headers for requests that have none of the same name.
    pub(crate) headers: HeaderMap,
    /// True if `http` URLs are refused.
    pub(crate) https_only: bool,
}

/// Settings of the whole client, which are refused if they are set, and the client's own methods for them.
const VALUES_OF_THE_CLIENT: [(ClientConfigKey, &str); 6] = [
    (ClientConfigKey::ProxyCaCertificate, "tls_certs_merge"),
    (ClientConfigKey::PoolIdleTimeout, "pool_idle_timeout"),
    (ClientConfigKey::PoolMaxIdlePerHost, "pool_max_idle_per_host"),
    (ClientConfigKey::Http2KeepAliveInterval, "http2_keep_alive_interval"),
    (ClientConfigKey::Http2KeepAliveTimeout, "http2_keep_alive_timeout"),
    (ClientConfigKey::Http2MaxFrameSize, "http2_max_frame_size"),
];

/// Settings of the whole client, which are refused if they are true, and the client's own methods for them.
const FLAGS_OF_THE_CLIENT: [(ClientConfigKey, &str); 3] = [
    (ClientConfigKey::AllowInvalidCertificates, "tls_danger_accept_invalid_certs"),
    (ClientConfigKey::NoSystemCertificates, "tls_certs_only"),
    (ClientConfigKey::Http2KeepAliveWhileIdle, "http2_keep_alive_while_idle"),
];

impl StoreOptions {
    /// Reads the settings.
    ///
    /// # Errors
    /// A setting is not valid, or is one that only a whole client can have.
    pub(crate) fn new(options: &ClientOptions) -> Result<Self> {
        refuse_settings_of_the_client(options)?;
        let https_only = !flag(options, ClientConfigKey::AllowHttp)?;
        let mut request = RequestOptions::new().redirect(redirects(https_only));
        if let Some(limit) = duration(options, ClientConfigKey::Timeout)? {
            request = request.timeout(limit);
        }
        if let Some(limit) = duration(options, ClientConfigKey::ConnectTimeout)? {
            request = request.connect_timeout(limit);
        }
        if let Some(limit) = duration(options, ClientConfigKey::ReadTimeout)? {
            request = request.headers_timeout(limit).body_idle_timeout(limit);
        }
        if flag(options, ClientConfigKey::Http2Only)? {
            request = request.version(Version::HTTP_2);
        }
        if let Some(url) = options.get_config_value(&ClientConfigKey::ProxyUrl) {
            let excluded = options.get_config_value(&ClientConfigKey::ProxyExcludes);
            let proxy = Proxy::all(url).map_err(|error| invalid(ClientConfigKey::ProxyUrl, error))?;
            request = request.proxy(proxy.no_proxy(excluded.as_deref().and_then(NoProxy::from_string)));
        }
        Ok(Self { request, headers: headers(options)?, https_only })
    }
}

/// Follows up to 10 redirects, to `https` URLs only if `https_only`.
fn redirects(https_only: bool) -> redirect::Policy {
    let limited = redirect::Policy::limited(10);
    if !https_only {
        return limited;
    }
    redirect::Policy::custom(move |attempt| match attempt.url().scheme() {
        "https" => limited.redirect(attempt),
        _ => attempt.error("the store allows https URLs only: see `with_allow_http`"),
    })
}

/// Returns the default headers, with the user agent among them.
fn headers(options: &ClientOptions) -> Result<HeaderMap> {
    let mut headers = options.get_default_headers().cloned().unwrap_or_default();
    match options.get_config_value(&ClientConfigKey::UserAgent) {
        Some(agent) => {
            let agent = HeaderValue::try_from(agent).map_err(|error| invalid(ClientConfigKey::UserAgent, error))?;
            // reqwest has the user agent give way to a default header of that name.
            headers.entry(USER_AGENT).or_insert(agent);
        }
        None if shown(options).contains("user_agent: Some(") => {
            return Err(invalid(ClientConfigKey::UserAgent, "it is not text"));
        }
        None => {}
    }
    Ok(headers)
}

/// Refuses settings that only a whole client can have.
fn refuse_settings_of_the_client(options: &ClientOptions) -> Result<()> {
    for (key, instead) in VALUES_OF_THE_CLIENT {
        if options.get_config_value(&key).is_some() {
            return Err(refused(key.as_ref(), instead));
        }
    }
    for (key, instead) in FLAGS_OF_THE_CLIENT {
        if flag(options, key)? {
            return Err(refused(key.as_ref(), instead));
        }
    }
    if options.dns_resolver().is_some() {
        return Err(refused("dns_resolver", "dns_resolver"));
    }
    if has_root_certificates(options) {
        return Err(refused("root certificates", "tls_certs_merge"));
    }
    Ok(())
}

/// Returns true if the options have root certificates. No method returns those, but the options' text shows them.
fn has_root_certificates(options: &ClientOptions) -> bool {
    let shown = shown(options);
    let list = shown.split_once("root_certificates: [").map(|(_, list)| list);
    list.is_some_and(|list| !list.starts_with(']'))
}

fn shown(options: &ClientOptions) -> String {
    format!("{options:?}")
}

/// Returns a time limit; `None` if it is not set.
fn duration(options: &ClientOptions, key: ClientConfigKey) -> Result<Option<Duration>> {
    let text = options.get_config_value(&key);
    text.map(|text| humantime::parse_duration(&text)).transpose().map_err(|error| invalid(key, error))
}

/// Returns a setting that is true or false, in the words that object_store knows for these.
fn flag(options: &ClientOptions, key: ClientConfigKey) -> Result<bool> {
    let text = options.get_config_value(&key).unwrap_or_default().to_ascii_lowercase();
    match text.as_str() {
        "1" | "true" | "on" | "yes" | "y" => Ok(true),
        "" | "0" | "false" | "off" | "no" | "n" => Ok(false),
        _ => Err(invalid(key, format!("`{text}` is neither true nor false"))),
    }
}

fn invalid(key: ClientConfigKey, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let source = format!("`{}` is not valid: {}", key.as_ref(), why.into()).into();
    Error::Generic { store: "speeddial", source }
}

fn refused(setting: &str, instead: &str) -> Error {
    let what = format!("{setting} is a setting of the whole client: use `speeddial::ClientBuilder::{instead}`");
    Error::NotSupported { source: what.into() }
}
