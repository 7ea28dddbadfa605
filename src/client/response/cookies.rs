//! The cookies of a response.

use http::header::SET_COOKIE;

use super::Response;
use crate::cookie::Cookie;

impl Response {
    /// Returns the cookies that the response sets (feature `cookies`), in the order of its `Set-Cookie` headers. Those that are not
    /// UTF-8 or have no name are left out. Whether the client's store has taken a cookie makes no difference.
    ///
    /// Responses that were redirects set cookies as well, which are in the client's store only.
    #[cfg_attr(docsrs, doc(cfg(feature = "cookies")))]
    pub fn cookies(&self) -> impl Iterator<Item = Cookie<'_>> {
        self.headers().get_all(SET_COOKIE).iter().filter_map(Cookie::parse)
    }
}
