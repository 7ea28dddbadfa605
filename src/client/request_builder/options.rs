//! Settings of one request that replace those of its host or of the client, and values that go along with a request.

use super::RequestBuilder;
use crate::client::body::Body;
use crate::client::body::Decompression;
use crate::client::handle::Client;
use crate::client::policy::hedge::HedgePolicy;
use crate::client::policy::redirect;
use crate::client::policy::retry::RetryPolicy;
use crate::client::request::http_messages::request_of;
use crate::client::request::options::RequestOptions;
use crate::client::response::call_data::BoxedRequest;
use crate::connect::Proxy;

impl RequestBuilder {
    /// Creates a builder that changes and sends a request of the `http` crate.
    ///
    /// A URI without scheme and host is resolved against the client's [base](crate::ClientBuilder::base_url): its path
    /// replaces that of the base. Settings are taken from a [`RequestOptions`] in the extensions; the other extensions
    /// go along, as with [`extension`](Self::extension).
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// use speeddial::{Client, RequestBuilder, http};
    ///
    /// let client = Client::builder().base_url("http://api.example.com").build()?;
    /// let message = http::Request::put("/v1/items/1").header("x-tenant", "7").body("{}")?;
    /// let response = RequestBuilder::from_http(client, message).send().await?;
    /// # Ok(()) }
    /// ```
    pub fn from_http<B: Into<Body>>(client: Client, message: http::Request<B>) -> Self {
        let request = request_of(message, client.inner.defaults.base_url.as_ref()).map(BoxedRequest::new);
        Self { client, request }
    }

    /// Sets the policy for following redirects. Replaces the [`redirect`](crate::ClientBuilder::redirect) of its host or of the client.
    ///
    /// ```
    /// use speeddial::{Client, redirect};
    ///
    /// let request = Client::new().get("http://api.example.com/login").redirect(redirect::Policy::none());
    /// ```
    pub fn redirect(self, policy: redirect::Policy) -> Self {
        self.set(|options| options.redirect(policy))
    }

    /// Sets the policy for retrying the call. Replaces the [`retry`](crate::ClientBuilder::retry) of its host or of the client;
    /// [`RetryPolicy::none`] turns retries off.
    ///
    /// The retry is taken out of the budget that all calls to the origin share, which is what protects a server in an
    /// outage. The call adds to the budget what its own policy [says](RetryPolicy::budget). A policy with a budget of 0
    /// allows no retry.
    ///
    /// ```
    /// use speeddial::{Client, RetryPolicy};
    ///
    /// let request = Client::new().get("http://api.example.com/v1/items").retry(RetryPolicy::new().attempts(5));
    /// ```
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.set(|options| options.retry(policy))
    }

    /// Turns decompression off or on for the response, or sets its limits. Replaces the
    /// [`decompress`](crate::ClientBuilder::decompress) of its host or of the client (features `gzip`, `brotli`, `zstd`, `deflate`).
    ///
    /// With `false`, the request is sent without an `Accept-Encoding` and the body is left as the server sent it. With
    /// `true`, the limits are those of [`Decompression::default`], whatever the client's are. A request with an
    /// `Accept-Encoding` or a `Range` is not decompressed in any case.
    ///
    /// ```
    /// # #[cfg(feature = "gzip")] {
    /// use speeddial::Client;
    /// use speeddial::settings::Decompression;
    ///
    /// let client = Client::new();
    /// let as_sent = client.get("http://api.example.com/archive").decompress(false);
    /// let short = client.get("http://api.example.com/v1/items").decompress(Decompression::default().max_bytes(1 << 20));
    /// # }
    /// ```
    pub fn decompress(self, decompression: impl Into<Decompression>) -> Self {
        self.set(|options| options.decompress(decompression))
    }

    /// Sets the proxy of the request and of the redirects that follow it. Replaces all of the client's proxies, those of
    /// the environment included: if `proxy` does not apply to a URL, no proxy is used for it.
    ///
    /// The request shares connections only with requests for which an equal proxy was set, with the same credentials
    /// and the same excluded hosts. A [`Proxy::custom`] is equal to its clones alone: make it once and clone it. The
    /// limits of a host count for each of the proxies by itself; the limits in total are for all of them.
    ///
    /// # Errors
    /// [`send`](Self::send) fails if the client connects to a Unix domain socket.
    ///
    /// ```
    /// use speeddial::{Client, Proxy};
    ///
    /// let proxy = Proxy::all("http://user:password@proxy.internal:3128")?;
    /// let request = Client::new().get("http://api.example.com/v1/items").proxy(proxy);
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn proxy(self, proxy: Proxy) -> Self {
        self.set(|options| options.proxy(proxy))
    }

    /// Uses no proxy for the request and for the redirects that follow it. It shares connections only with other requests
    /// for which this was set.
    pub fn no_proxy(self) -> Self {
        self.set(RequestOptions::no_proxy)
    }

    /// Sets the maximum length of the response's body in bytes, after decompression. Replaces the
    /// [`max_body_size`](crate::ClientBuilder::max_body_size) of its host or of the client; `u64::MAX` for no limit.
    ///
    /// # Errors
    /// A longer body is an error of the kind [`ErrorKind::Body`](crate::ErrorKind::Body): of [`send`](Self::send) if its
    /// length is announced, else of the read that would exceed the limit. Other requests of the client are not affected.
    ///
    /// ```
    /// let request = speeddial::Client::new().get("http://api.example.com/v1/items").max_body_size(1 << 20);
    /// ```
    pub fn max_body_size(self, bytes: u64) -> Self {
        self.set(|options| options.max_body_size(bytes))
    }

    /// Sets the policy for hedging the request. Replaces the [`hedge`](crate::ClientBuilder::hedge) of its host or of the client;
    /// [`HedgePolicy::none`] forbids that the request is sent a second time while it waits for its answer.
    ///
    /// The hedge is taken out of the budget that all calls to the origin share.
    ///
    /// ```
    /// use std::time::Duration;
    /// use speeddial::{Client, HedgePolicy};
    ///
    /// let client = Client::new();
    /// let late = client.get("http://api.example.com/v1/items").hedge(HedgePolicy::after(Duration::from_millis(50)));
    /// let once = client.delete("http://api.example.com/v1/items/1").hedge(HedgePolicy::none());
    /// ```
    pub fn hedge(self, policy: HedgePolicy) -> Self {
        self.set(|options| options.hedge(policy))
    }

    /// Adds a value that goes along with the request, and replaces one of the same type. It is never sent.
    ///
    /// Layers find it in the extensions of the `http::Request`, observers in those of
    /// [`RequestInfo`](crate::trace::RequestInfo), and the caller in [`Response::extensions`](crate::Response::extensions),
    /// whatever redirects and retries came in between.
    ///
    /// ```
    /// #[derive(Clone)]
    /// struct Tenant(u32);
    ///
    /// let request = speeddial::Client::new().get("http://api.example.com/").extension(Tenant(7)).build()?;
    /// assert_eq!(request.extensions().get::<Tenant>().expect("just added").0, 7);
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn extension<T: Clone + Send + Sync + 'static>(self, value: T) -> Self {
        self.with(|request| {
            request.extensions.insert(value);
            Ok(())
        })
    }

    pub(in crate::client) fn set(self, change: impl FnOnce(RequestOptions) -> RequestOptions) -> Self {
        self.with(|request| {
            request.options = change(std::mem::take(&mut request.options));
            Ok(())
        })
    }
}
