//! The extent of a response's content. A core.

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::response::Parts;
use http::{HeaderMap, Method, StatusCode, Version};

use crate::client::policy::framing;
use crate::error::{Error, Result};

/// The extent of a response's content, where hyper does not know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// hyper knows it.
    Framed,
    /// There is no content, whatever the headers say: the request was a HEAD, or the status is 204 or 304 (RFC 9110 §6.4.1).
    Nothing,
    /// So many bytes, behind which hyper would read on.
    Bytes(u64),
}

impl Extent {
    /// Returns the extent of the response to a request with this method. `is_sized` is true if hyper knows its length.
    ///
    /// # Errors
    /// The content has a transfer coding that is not taken off.
    #[inline]
    pub(crate) fn of(method: &Method, head: &Parts, is_sized: bool) -> Result<Self> {
        if *method == Method::HEAD || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            return Ok(Self::Nothing);
        }
        if head.version == Version::HTTP_2 || is_sized {
            return Ok(Self::Framed);
        }
        if framing::has_other_coding(&head.headers) {
            return Err(Error::coded_response());
        }
        Ok(length_beside_identity(&head.headers).map_or(Self::Framed, Self::Bytes))
    }
}

/// Returns the `Content-Length` beside a `Transfer-Encoding` of `identity`, which is none. HTTP knows it no longer (RFC 9112 §7), and
/// hyper reads to the end of the connection, which such a server may keep open.
fn length_beside_identity(headers: &HeaderMap) -> Option<u64> {
    let only = |name| {
        let mut values = headers.get_all(name).iter();
        let first = values.next()?.to_str().ok()?.trim();
        values.next().is_none().then_some(first)
    };
    only(TRANSFER_ENCODING)?.eq_ignore_ascii_case("identity").then_some(())?;
    // `parse` would take a sign.
    only(CONTENT_LENGTH).filter(|length| length.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_counts_beside_identity_alone() {
        let extent = |method: Method, status: u16, headers: &[(&str, &str)]| {
            let mut response = http::Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(*name, *value);
            }
            Extent::of(&method, &response.body(()).unwrap().into_parts().0, false).ok()
        };
        let (identity, five) = (("transfer-encoding", " Identity"), ("content-length", "5"));
        assert_eq!(extent(Method::GET, 200, &[identity, five]), Some(Extent::Bytes(5)));
        for headers in [
            &[five][..],
            &[identity],
            &[("transfer-encoding", "chunked, chunked"), five],
            &[identity, identity, five],
            &[identity, five, five],
            &[identity, ("content-length", "+5")],
            &[identity, ("content-length", "")],
        ] {
            assert_eq!(extent(Method::GET, 200, headers), Some(Extent::Framed), "{headers:?}");
        }
        let gzip = ("transfer-encoding", "gzip");
        for headers in [&[gzip][..], &[gzip, five], &[identity, gzip], &[("transfer-encoding", "gzip, chunked")]] {
            assert_eq!(extent(Method::GET, 200, headers), None, "{headers:?}");
            assert_eq!(extent(Method::HEAD, 200, headers), Some(Extent::Nothing), "{headers:?}");
        }
        assert_eq!(extent(Method::HEAD, 200, &[identity, five]), Some(Extent::Nothing));
        assert_eq!([204, 304].map(|status| extent(Method::GET, status, &[five])), [Some(Extent::Nothing); 2]);
    }
}
