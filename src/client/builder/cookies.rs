//! The settings of a client's cookie store.

use std::sync::Arc;

use super::ClientBuilder;
use crate::cookie::{CookieStore, Jar};

impl ClientBuilder {
    /// Sets whether the client has a cookie store of its own: a new [`Jar`] (feature `cookies`). It keeps the cookies of responses
    /// and sends them with later requests, after redirects and in retries as well. False by default.
    ///
    /// A [`cookie_provider`](Self::cookie_provider) that was set before is replaced. [`cookie`](crate::cookie) has the rules and
    /// limits.
    ///
    /// ```
    /// let client = speeddial::Client::builder().cookie_store(true).build()?;
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "cookies")))]
    pub fn cookie_store(mut self, enable: bool) -> Self {
        self.defaults.cookies = if enable { Some(Arc::new(Jar::default())) } else { None };
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
    pub fn cookie_provider<C: CookieStore + 'static>(mut self, cookie_store: Arc<C>) -> Self {
        self.defaults.cookies = Some(cookie_store);
        self.cookie_setting = Some("cookie_provider");
        self
    }
}
