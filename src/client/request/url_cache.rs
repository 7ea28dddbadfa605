//! The URL of a request, its target, and the URLs that a thread uses again and again.

use std::cell::RefCell;
use std::fmt;
use std::hash::BuildHasher;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use http::uri::{InvalidUri, PathAndQuery};
use http::{Method, Uri};
use url::{Position, Url};

use crate::origin::Origin;
use crate::world::RandomState;

/// The URL of a request. A request that changes its URL first gets its own copy.
#[derive(Clone)]
pub enum RequestUrl {
    /// A URL that only the request has.
    Own(Url),
    /// A URL that the thread keeps for the next request to it, or whose target is written in another way.
    Kept(Arc<KeptUrl>),
}

impl RequestUrl {
    /// Returns the URL that the thread keeps for a text. `parsed` is the text's URL, if the caller has it.
    ///
    /// The thread keeps a URL when it looks it up for the second time. URLs with a query are not kept: the query mostly differs each
    /// time, and may be a secret. URLs with credentials are not kept either, nor those with a fragment, which may be a secret too.
    #[inline]
    pub(in crate::client) fn kept(text: &str, parsed: Option<&Url>) -> Option<Self> {
        if text.len() > MAX_LENGTH {
            return None;
        }
        // The table is gone only while the thread ends.
        RECENT.try_with(|recent| recent.borrow_mut().find(text, parsed)).ok()?.map(Self::Kept)
    }

    /// Returns a copy of the URL.
    pub(in crate::client) fn to_url(&self) -> Url {
        (**self).clone()
    }

    /// Returns the origin and the target, if they are known.
    #[inline]
    pub(in crate::client) fn parts(&self) -> Option<(&Origin, &Target)> {
        match self {
            Self::Own(_) => None,
            Self::Kept(kept) => Some((&kept.origin, &kept.target)),
        }
    }

    /// Returns the target of a request to the URL.
    pub(in crate::client) fn target(&self) -> Result<Target, InvalidUri> {
        match self.parts() {
            Some((_, target)) => Ok(target.clone()),
            None => Target::of_url(self),
        }
    }

    /// Gives requests to the URL a target that is written in another way, as long as the URL stays the same.
    pub(in crate::client) fn set_target(&mut self, origin: &Origin, target: Target) {
        let is_same = self.parts().map_or_else(|| target.is_of(self), |(_, own)| *own == target);
        if !is_same {
            let (text, url, origin) = (Box::default(), self.to_url(), origin.clone());
            *self = Self::Kept(Arc::new(KeptUrl { text, url, origin, target }));
        }
    }
}

impl From<Url> for RequestUrl {
    fn from(url: Url) -> Self {
        Self::Own(url)
    }
}

impl Deref for RequestUrl {
    type Target = Url;

    #[inline]
    fn deref(&self) -> &Url {
        match self {
            Self::Own(url) => url,
            Self::Kept(kept) => &kept.url,
        }
    }
}

impl DerefMut for RequestUrl {
    fn deref_mut(&mut self) -> &mut Url {
        if let Self::Kept(kept) = self {
            *self = Self::Own(kept.url.clone());
        }
        match self {
            Self::Own(url) => url,
            Self::Kept(_) => unreachable!("it was replaced by a copy"),
        }
    }
}

impl fmt::Debug for RequestUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A URL that requests share, with what was found out when it was parsed.
pub struct KeptUrl {
    /// The URL as it was given.
    text: Box<str>,
    url: Url,
    origin: Origin,
    target: Target,
}

impl KeptUrl {
    /// Returns `None` if no request can be sent to the URL.
    fn new(text: &str, parsed: Option<&Url>) -> Option<Self> {
        let url = match parsed {
            Some(url) => url.clone(),
            None => Url::parse(text).ok()?,
        };
        let origin = Origin::from_url(&url).ok()?;
        let target = Target::of_url(&url).ok()?;
        Some(Self { text: text.into(), url, origin, target })
    }
}

/// The length of the longest text whose URL is kept, in bytes.
const MAX_LENGTH: usize = 256;

/// Returns true for an absolute URL without credentials, query and fragment. The base of a client has no effect on it.
fn may_be_kept(text: &str) -> bool {
    (text.starts_with("http://") || text.starts_with("https://")) && !text.contains(['@', '?', '#'])
}

/// The most URLs that a thread keeps.
const MAX_KEPT: usize = 256;

thread_local! {
    /// The URLs that this thread has used twice. A service calls the same URLs again and again, and to look one up costs less than to
    /// copy a parsed one and its path, and far less than to parse it.
    static RECENT: RefCell<RecentUrls> = RefCell::default();
}

/// The URLs of a thread, each in the slot that its hash gives.
struct RecentUrls {
    hashes: RandomState,
    slots: Box<[CachedUrl]>,
}

#[derive(Default)]
struct CachedUrl {
    kept: Option<Arc<KeptUrl>>,
    /// The hash of the URL that was looked up last, if it was not found. A URL that is used only once does not replace the kept one,
    /// nor do two that are used in turns replace each other.
    missed: u64,
}

impl Default for RecentUrls {
    fn default() -> Self {
        Self {
            hashes: RandomState::default(),
            slots: std::iter::repeat_with(CachedUrl::default).take(MAX_KEPT).collect(),
        }
    }
}

impl RecentUrls {
    #[inline]
    fn find(&mut self, text: &str, parsed: Option<&Url>) -> Option<Arc<KeptUrl>> {
        let hash = self.hashes.hash_one(text);
        let slot = &mut self.slots[hash as usize % MAX_KEPT];
        match &slot.kept {
            Some(kept) if *kept.text == *text => {
                slot.missed = 0;
                Some(kept.clone())
            }
            _ => slot.miss(text, parsed, hash),
        }
    }
}

impl CachedUrl {
    /// Notes that a URL was not found. Keeps it if it was also the last one that was looked up here.
    #[cold]
    fn miss(&mut self, text: &str, parsed: Option<&Url>, hash: u64) -> Option<Arc<KeptUrl>> {
        if self.missed != hash {
            self.missed = hash;
            return None;
        }
        if !may_be_kept(text) {
            return None;
        }
        let kept = Arc::new(KeptUrl::new(text, parsed)?);
        self.kept = Some(kept.clone());
        Some(kept)
    }
}

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
    use http::{Method, Uri};

    use super::*;

    fn kept(text: &str) -> Option<RequestUrl> {
        RequestUrl::kept(text, None)
    }

    #[test]
    fn a_url_is_kept_when_it_is_asked_for_the_second_time() {
        for text in ["http://a.test/v1/items", "http://A.test:80", "http://[::1]:81/x", "http://a.test/ä/../b"] {
            assert!(kept(text).is_none());
            let first = kept(text).unwrap();
            let url = Url::parse(text).unwrap();
            assert_eq!((&*first, first.parts().unwrap().0), (&url, &Origin::from_url(&url).unwrap()));
            assert_eq!(first.target().unwrap(), Target::of_url(&url).unwrap());
            let second = kept(text).unwrap();
            assert!(std::ptr::eq(&*first, &*second));
        }
    }

    #[test]
    fn a_url_with_credentials_a_query_or_a_fragment_or_that_depends_on_a_base_is_never_kept() {
        let long = format!("http://a.test/{}", "x".repeat(MAX_LENGTH));
        let secret =
            ["http://a.test/?", "http://a.test/x?token=secret", "http://me:secret@a.test/", "http://a.test/#x"];
        let unusual = ["http:a.test", "HTTP://a.test/", " http://a.test/", "/x", "a.test:80"];
        let unsendable = ["http://a.test:0/", "http://a.test:x/", "http:///", "ftp://a.test/"];
        for text in secret.into_iter().chain(unusual).chain(unsendable).chain([&*long]) {
            for _ in 0..3 {
                assert!(kept(text).is_none(), "{text}");
            }
        }
        assert!(kept(&long[..MAX_LENGTH]).or(kept(&long[..MAX_LENGTH])).is_some());
    }

    #[test]
    fn a_copy_is_changed_and_not_the_kept_url() {
        let text = "http://a.test/";
        kept(text);
        let mut changed = kept(text).unwrap();
        let other = changed.clone();
        changed.set_path("/other");
        assert!(changed.parts().is_none(), "its path is not the one that was parsed");
        assert_eq!((changed.as_str(), other.as_str()), ("http://a.test/other", text));
        assert_eq!(kept(text).unwrap().as_str(), text);
    }

    #[test]
    fn a_target_stays_as_it_was_written_until_the_url_is_changed() {
        let text = "http://a.test/x/../y";
        let target = |text: &'static str| Target::of_message(&Method::GET, &Uri::from_static(text)).unwrap();
        // A thread keeps the URL, but not what was written.
        for _ in 0..3 {
            let mut url = kept(text).unwrap_or_else(|| RequestUrl::Own(Url::parse(text).unwrap()));
            assert_eq!(url.target().unwrap(), target("/y"));
            let origin = Origin::from_url(&url).unwrap();
            url.set_target(&origin, target("/y"));
            url.set_target(&origin, target(text));
            assert_eq!((url.target().unwrap(), url.as_str()), (target("/x/../y"), "http://a.test/y"));
            url.set_query(Some("z"));
            assert_eq!(url.target().unwrap(), target("/y?z"));
        }
    }

    #[test]
    fn a_url_that_is_used_once_or_in_turns_does_not_replace_the_kept_one_and_one_that_is_used_twice_does() {
        let mut recent = RecentUrls::default();
        let slot_of = |recent: &RecentUrls, text: &str| recent.hashes.hash_one(text) as usize % MAX_KEPT;
        let slot = slot_of(&recent, "http://a.test/");
        let others = (0..).map(|number| format!("http://b.test/{number}"));
        let [b, c] = &others.filter(|text| slot_of(&recent, text) == slot).take(2).collect::<Vec<_>>()[..] else {
            panic!("two texts")
        };
        let mut is_found = |text: &str| recent.find(text, None).is_some();
        assert_eq!((is_found("http://a.test/"), is_found("http://a.test/")), (false, true));
        for other in [b, b, b, c, b, c] {
            assert_eq!((is_found(other), is_found("http://a.test/")), (false, true));
        }
        assert_eq!((is_found(b), is_found(c), is_found("http://a.test/")), (false, false, true));
        assert_eq!((is_found(b), is_found(b), is_found("http://a.test/")), (false, true, false));
        assert_eq!((is_found("http://a.test/"), is_found(b)), (true, false));
    }
}

#[cfg(test)]
mod target_tests {
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
