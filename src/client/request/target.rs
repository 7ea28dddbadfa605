//! The target of a request: the path and query as they go into the request line (RFC 9112 §3.2).

use http::uri::{InvalidUri, PathAndQuery};
use http::{Method, Uri};
use url::{Position, Url};

/// The path and query of a request, by one of two makers: [`of_url`](Self::of_url) as the URL Standard writes them, and
/// [`of_message`](Self::of_message) byte for byte. A path has no dot segments in a URL. In a message it may have some: a gateway's checks,
/// and a signature, are about what was written (RFC 9110 §7.7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::client) struct Target(PathAndQuery);

impl Target {
    /// Makes the target of a request to a URL.
    pub(in crate::client) fn of_url(url: &Url) -> Result<Self, InvalidUri> {
        PathAndQuery::try_from(part(url)).map(Self)
    }

    /// Makes the target of a message: its path and query, or the `*` of an OPTIONS. `None` if it is of another form.
    pub(in crate::client) fn of_message(method: &Method, uri: &Uri) -> Option<Self> {
        let written = uri.path_and_query()?;
        let is_path = written.as_str().starts_with('/');
        match written.as_str() {
            _ if is_path => Some(Self(written.clone())),
            "*" if *method == Method::OPTIONS => Some(Self(written.clone())),
            // A URI without a path has one as a target, which `Display` writes.
            query if query.starts_with('?') => written.to_string().parse().ok().map(Self),
            _ => None,
        }
    }

    /// Returns true for the target of an OPTIONS that is about the server, and no path of it.
    pub(in crate::client) fn is_asterisk(&self) -> bool {
        self.0 == "*"
    }

    /// Returns true if the URL has the same target.
    pub(in crate::client) fn is_of(&self, url: &Url) -> bool {
        self.0 == part(url)
    }
}

fn part(url: &Url) -> &str {
    &url[Position::BeforePath..Position::AfterQuery]
}

impl From<Target> for PathAndQuery {
    fn from(target: Target) -> Self {
        target.0
    }
}

impl From<Target> for Uri {
    fn from(target: Target) -> Self {
        target.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_message(method: Method, uri: &'static str) -> Option<String> {
        Target::of_message(&method, &Uri::from_static(uri)).map(|target| target.0.to_string())
    }

    #[test]
    fn a_message_keeps_every_byte_of_its_target() {
        for target in
            ["/public/%2e%2e/admin", "/public/..\\admin", "/public/../admin", "//a/./b", "/a'b{c}?d='{e}", "/?"]
        {
            assert_eq!(of_message(Method::GET, target).as_deref(), Some(target));
        }
        assert_eq!(of_message(Method::GET, "http://a.test/x/../y?z").as_deref(), Some("/x/../y?z"));
        assert_eq!(of_message(Method::GET, "http://a.test?list-type=2").as_deref(), Some("/?list-type=2"));
        assert_eq!(of_message(Method::GET, "http://a.test").as_deref(), Some("/"));
    }

    #[test]
    fn an_asterisk_is_the_target_of_options_alone() {
        assert_eq!(of_message(Method::OPTIONS, "*").as_deref(), Some("*"));
        assert_eq!(of_message(Method::GET, "*"), None);
        assert_eq!(of_message(Method::OPTIONS, "a.test:80"), None);
    }

    #[test]
    fn a_url_is_written_as_its_standard_says() {
        let of_url = |url: &str| Target::of_url(&Url::parse(url).unwrap()).unwrap().0.to_string();
        assert_eq!(of_url("http://a.test/x/../y'?'#z"), "/y'?%27");
        assert!(
            Target::of_message(&Method::GET, &Uri::from_static("/y"))
                .unwrap()
                .is_of(&Url::parse("http://a.test/y#z").unwrap())
        );
    }
}
