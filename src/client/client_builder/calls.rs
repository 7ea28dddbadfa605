//! Settings of calls: functions, tokens and layers around each single attempt, hedging, cookies, the length of responses.

use crate::client::body::{Body, Coding};
use crate::client::client_builder::ClientBuilder;
use crate::client::policy::hedge::HedgePolicy;
use crate::client::request::attempt_head::AttemptHead;
use crate::client::settings::services::{self, AttemptService};
use crate::client::token::TokenSource;
use crate::origin::Origin;

impl ClientBuilder {
    /// Adds a function that sees the head of every single attempt right before it is sent, and may change its headers:
    /// to sign it, or to add the header of a trace. The functions are called in the order in which they were added.
    ///
    /// It is called for each redirect, each retry and each resend, inside of all layers, and after a
    /// [`TokenSource`] has added its token. A header that it sets goes along with this attempt only. It must not wait: an
    /// attempt layer may.
    ///
    /// After a redirect the function is called for the next origin as well. Look at [`AttemptHead::url`] before you add a
    /// header that is meant for one origin only. A TRACE goes without the headers that the function adds, because its response shows them
    /// (RFC 9110 §9.3.8).
    ///
    /// # Errors
    /// An error of the function ends the call, with the kind [`ErrorKind::Layer`](crate::ErrorKind::Layer) and the error
    /// as its source. Nothing of the attempt is sent, and it is not retried.
    ///
    /// ```
    /// use std::time::{SystemTime, UNIX_EPOCH};
    /// use speeddial::layers::AttemptHead;
    /// use speeddial::Client;
    ///
    /// // Stands for a real one, such as HMAC-SHA256.
    /// fn mac(key: &[u8], text: &str) -> u64 {
    ///     key.iter().chain(text.as_bytes()).fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
    ///         (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    ///     })
    /// }
    ///
    /// // A timestamp and a digest over method, target and time: each attempt gets its own.
    /// fn sign(head: &mut AttemptHead<'_>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    ///     if head.url().host_str() != Some("api.example.com") {
    ///         return Ok(()); // a redirect led elsewhere
    ///     }
    ///     let time = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    ///     let text = format!("{} {} {time}", head.method(), head.target());
    ///     let signature = format!("{:016x}", mac(b"key", &text));
    ///     head.headers_mut().insert("x-time", time.into());
    ///     head.headers_mut().insert("x-signature", signature.parse()?);
    ///     Ok(())
    /// }
    ///
    /// let client = Client::builder().before_attempt(sign).build()?;
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn before_attempt<F, E>(mut self, prepare: F) -> Self
    where
        F: Fn(&mut AttemptHead<'_>) -> Result<(), E> + Send + Sync + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.defaults.before_attempt.push(Box::new(move |head| prepare(head).map_err(Into::into)));
        self
    }

    /// Adds a source of bearer tokens. Requests to its origins get an `Authorization` with the token, unless they have
    /// one of their own. If there are several sources for an origin, the first one counts. None by default.
    ///
    /// A request waits for the token before it takes a connection. The wait counts towards the phase
    /// [`backoff`](crate::trace::Timings::backoff) and against the call's [`timeout`](Self::timeout).
    ///
    /// # Errors
    /// A call whose token cannot be had fails with the kind [`ErrorKind::Layer`](crate::ErrorKind::Layer) and the source's
    /// error as its source. It is not retried, because the source has a backoff of its own.
    pub fn token_source(mut self, source: TokenSource) -> Self {
        self.defaults.token_sources.push(source);
        self
    }

    /// Puts a tower layer around every single attempt: inside of redirects, retries and resends. A layer
    /// that is added later is further out. For a layer around the whole call, see [`layer`](Self::layer).
    ///
    /// A layer sees the request of each attempt before a connection is taken for it, so no connection waits for the
    /// layer. It sees the URL of the attempt and the headers of the request, with those of the client and its token; the
    /// connection adds others below it, such as `Host`. It gets the head of each response, redirects and errors among
    /// them, and its body, decompressed. The attempt's own errors are [`Error`](crate::Error)s.
    ///
    /// A layer may change the request, answer it, delay it, drop it after a time limit, or call the service within it
    /// several times. An error of a layer has the kind [`ErrorKind::Layer`](crate::ErrorKind::Layer), unless it is one of
    /// the client's, and is final; but a time limit of a layer is retried by the client's [`RetryPolicy`](crate::RetryPolicy)
    /// as its own limits are. A request that a layer makes must keep the extensions of the one that it got.
    ///
    /// Retries and resends run the layers anew, with all the requests that they make. Once a server may have acted on one of them, that is
    /// done for the later ones only if the request outside of the layers is idempotent.
    ///
    /// The extensions hold the request's [`RequestOptions`](crate::settings::RequestOptions). Those that are for one attempt can be
    /// changed: the version, the proxy, the maximum length of the body, and the time limits for the queue, the connection,
    /// the headers and the body. The others belong to the call around the attempts, and a change has no effect: `timeout`,
    /// `redirect`, `retry`, `decompress`, `hedge` and `observer`.
    ///
    /// A body that is a stream is sent once. If nothing of it was read, the next attempt has it again, whatever the layer
    /// made of it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use speeddial::layers::AttemptService;
    /// use speeddial::{Body, Client};
    /// use speeddial::http::Request;
    /// use tower::timeout::TimeoutLayer;
    /// use tower::{ServiceExt, service_fn, layer::layer_fn};
    ///
    /// // A header with the number of the attempt.
    /// let number = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    /// let numbered = layer_fn(move |inner: AttemptService| {
    ///     let number = number.clone();
    ///     service_fn(move |mut request: Request<Body>| {
    ///         let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    ///         request.headers_mut().insert("x-attempt", number.into());
    ///         inner.clone().oneshot(request)
    ///     })
    /// });
    /// let client = Client::builder()
    ///     .attempt_layer(numbered)
    ///     .attempt_layer(TimeoutLayer::new(Duration::from_secs(2))) // of each attempt
    ///     .timeout(Duration::from_secs(10)) // of all together
    ///     .build()?;
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn attempt_layer<L, B>(mut self, layer: L) -> Self
    where
        L: tower::Layer<AttemptService> + Send + Sync + 'static,
        L::Service: tower::Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
        <L::Service as tower::Service<http::Request<Body>>>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        <L::Service as tower::Service<http::Request<Body>>>::Future: Send + 'static,
        B: http_body::Body<Data = bytes::Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        self.attempt_layers.push(services::wrap_attempt(layer));
        self
    }

    /// Gives the sources without an origin that of the base URL.
    pub(super) fn bind_token_sources(&mut self) {
        let Some(base) = self.defaults.base_url.as_ref().and_then(|url| Origin::from_url(url).ok()) else { return };
        let sources = std::mem::take(&mut self.defaults.token_sources);
        self.defaults.token_sources = sources.into_iter().map(|source| source.with_default_origin(&base)).collect();
    }
}

impl ClientBuilder {
    /// Sets the maximum length of a response's body in bytes, after decompression. No limit by default. A request's own
    /// [`max_body_size`](crate::RequestBuilder::max_body_size) replaces it.
    ///
    /// A longer body is an error of the kind [`ErrorKind::Body`](crate::ErrorKind::Body): of
    /// [`send`](crate::RequestBuilder::send) if its length is announced, else of the read that would exceed the limit.
    /// Decompression has limits of its own. An event source (feature `sse`), whose stream has no end, is not limited.
    ///
    /// ```
    /// let client = speeddial::Client::builder().max_body_size(10 << 20).build()?;
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn max_body_size(mut self, bytes: u64) -> Self {
        self.defaults.options.max_body_size = Some(bytes);
        self
    }

    /// Sets the policy for hedging: idempotent requests whose answer is late are sent once more, on another connection, and
    /// the first answer counts. Without a policy, no request is sent a second time before the first one has ended.
    ///
    /// ```
    /// let client = speeddial::Client::builder().hedge(speeddial::HedgePolicy::new()).build()?;
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn hedge(mut self, policy: HedgePolicy) -> Self {
        self.defaults.options.hedges = Some(policy);
        self
    }
}

#[cfg(feature = "cookies")]
impl ClientBuilder {
    /// Sets whether the client has a cookie store of its own: a new [`Jar`](crate::cookie::Jar) (feature `cookies`). It keeps the
    /// cookies of responses and sends them with later requests, after redirects and in retries as well. False by default.
    ///
    /// A [`cookie_provider`](Self::cookie_provider) that was set before is replaced, and one that is set later replaces this store. [`cookie`](crate::cookie) has the rules and
    /// limits.
    ///
    /// ```
    /// let client = speeddial::Client::builder().cookie_store(true).build()?;
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "cookies")))]
    pub fn cookie_store(mut self, enable: bool) -> Self {
        self.defaults.cookies = if enable { Some(std::sync::Arc::new(crate::cookie::Jar::default())) } else { None };
        self.cookie_setting = if enable { Some("cookie_store") } else { None };
        self
    }

    /// Sets the client's cookie store (feature `cookies`), which other clients may share. None by default.
    ///
    /// The store is asked for the cookies of each message that has no `Cookie` header of its own, and told of each response that
    /// sets cookies.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use speeddial::{Client, cookie::Jar};
    ///
    /// let jar = Arc::new(Jar::default());
    /// let client = Client::builder().cookie_provider(jar.clone()).build()?;
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "cookies")))]
    pub fn cookie_provider<C: crate::cookie::CookieStore + 'static>(mut self, cookie_store: std::sync::Arc<C>) -> Self {
        self.defaults.cookies = Some(cookie_store);
        self.cookie_setting = Some("cookie_provider");
        self
    }
}

/// Each of these is for one coding. `decompress` sets all at once, so it comes before them;
/// [`build`](ClientBuilder::build) refuses it after one of them.
impl ClientBuilder {
    /// Sets whether gzip is accepted and decompressed (feature `gzip`). True by default.
    #[cfg(feature = "gzip")]
    pub fn gzip(self, enable: bool) -> Self {
        self.with_coding(Coding::Gzip, enable)
    }

    /// Sets whether brotli is accepted and decompressed (feature `brotli`). True by default.
    #[cfg(feature = "brotli")]
    pub fn brotli(self, enable: bool) -> Self {
        self.with_coding(Coding::Brotli, enable)
    }

    /// Sets whether zstd is accepted and decompressed (feature `zstd`). True by default.
    #[cfg(feature = "zstd")]
    pub fn zstd(self, enable: bool) -> Self {
        self.with_coding(Coding::Zstd, enable)
    }

    /// Sets whether deflate is accepted and decompressed (feature `deflate`). True by default.
    #[cfg(feature = "deflate")]
    pub fn deflate(self, enable: bool) -> Self {
        self.with_coding(Coding::Deflate, enable)
    }

    /// Leaves gzip bodies as they arrive, also if another crate turned the feature `gzip` on.
    pub fn no_gzip(self) -> Self {
        self.with_coding(Coding::Gzip, false)
    }

    /// Leaves brotli bodies as they arrive, also if another crate turned the feature `brotli` on.
    pub fn no_brotli(self) -> Self {
        self.with_coding(Coding::Brotli, false)
    }

    /// Leaves zstd bodies as they arrive, also if another crate turned the feature `zstd` on.
    pub fn no_zstd(self) -> Self {
        self.with_coding(Coding::Zstd, false)
    }

    /// Leaves deflate bodies as they arrive, also if another crate turned the feature `deflate` on.
    pub fn no_deflate(self) -> Self {
        self.with_coding(Coding::Deflate, false)
    }

    fn with_coding(mut self, coding: Coding, enable: bool) -> Self {
        let present = self.defaults.options.decompression.unwrap_or_default();
        self.defaults.options.decompression = Some(present.with(coding, enable));
        self.chooses_codings = true;
        self
    }
}
