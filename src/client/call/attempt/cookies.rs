//! The client's cookie store: the cookies of each message that is sent, and what each response sets.

use std::sync::Arc;

use http::HeaderMap;
use http::header::{COOKIE, SET_COOKIE};
use url::Url;

use crate::client::call::state::Call;
use crate::cookie::CookieStore;

/// Adds the store's cookies for a URL to the headers of a message, unless the user has set a `Cookie`.
pub(in crate::client::call) fn add(store: &Arc<dyn CookieStore>, url: &Url, headers: &mut HeaderMap) {
    if headers.contains_key(COOKIE) {
        return;
    }
    if let Some(mut cookies) = store.cookies(url) {
        cookies.set_sensitive(true);
        headers.insert(COOKIE, cookies);
    }
}

/// Stores the cookies that a response from the current URL sets.
#[inline]
pub(in crate::client::call) fn keep(call: &Call<'_>, headers: &HeaderMap) {
    let Some(store) = &call.client.defaults.cookies else { return };
    if !call.request.uses_cookie_store() {
        return;
    }
    let mut set = headers.get_all(SET_COOKIE).iter().peekable();
    if set.peek().is_some() {
        store.set_cookies(&mut set, &call.request.url);
    }
}
