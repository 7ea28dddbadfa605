//! Tests of the jar's core: time, limits, eviction, order.

use std::time::{Duration, SystemTime};

use http::HeaderValue;
use url::Url;

use super::rules::{StoredCookie, accept};
use super::sites::Sites;
use super::{CookieStore, Jar};

/// A jar at a time of the test's choice.
struct Timed {
    sites: Sites,
    now: SystemTime,
}

impl Timed {
    fn new() -> Self {
        Self { sites: Sites::default(), now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000) }
    }

    fn accept(&self, from: &str, cookie: &str) -> Option<StoredCookie> {
        accept(cookie, &url(from), self.now)
    }

    fn set(&mut self, from: &str, cookie: &str) {
        let cookie = self.accept(from, cookie).unwrap_or_else(|| panic!("{cookie} from {from} is refused"));
        self.sites.set(cookie, &url(from), self.now);
    }

    fn header(&mut self, to: &str) -> String {
        self.sites.header(&url(to), self.now).unwrap_or_default()
    }

    fn after(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

fn url(text: &str) -> Url {
    text.parse().unwrap()
}

const HOME: &str = "https://www.example.com/";

#[test]
fn cookies_expire_at_their_time_and_not_before() {
    let mut jar = Timed::new();
    jar.set(HOME, "a=1; Max-Age=60");
    jar.set(HOME, "b=1; Expires=Fri, 15 Jan 2027 08:01:00 GMT"); // 60 s after the start as well
    jar.set(HOME, "c=1");
    jar.after(59);
    assert_eq!(jar.header(HOME), "a=1; b=1; c=1");
    jar.after(1);
    assert_eq!(jar.header(HOME), "c=1");
    assert_eq!(jar.sites.len(), 1, "what has expired is removed");
}

#[test]
fn no_cookie_with_an_expiry_lasts_longer_than_400_days() {
    const LIMIT: u64 = 400 * 24 * 60 * 60;
    let mut jar = Timed::new();
    jar.set(HOME, "a=1; Max-Age=99999999999999999999999");
    jar.set(HOME, "b=1; Expires=Fri, 31 Dec 9999 23:59:59 GMT");
    jar.set(HOME, "c=1");
    jar.after(LIMIT - 1);
    assert_eq!(jar.header(HOME), "a=1; b=1; c=1");
    jar.after(1);
    assert_eq!(jar.header(HOME), "c=1");
    jar.after(100 * LIMIT);
    assert_eq!(jar.header(HOME), "c=1");
}

#[test]
fn long_cookies_are_refused_and_long_attributes_ignored() {
    let jar = Timed::new();
    let value = |length: usize| "v".repeat(length);
    assert!(jar.accept(HOME, &format!("abcd={}", value(4_092))).is_some());
    assert!(jar.accept(HOME, &format!("abcd={}", value(4_093))).is_none());
    assert!(jar.accept(HOME, &format!("{}=", value(4_096))).is_some());
    assert!(jar.accept(HOME, &format!("{}=", value(4_097))).is_none());
    let path = |length: usize| format!("/{}", value(length - 1));
    assert_eq!(&*jar.accept(HOME, &format!("a=1; Path={}", path(1_024))).unwrap().path, path(1_024));
    assert_eq!(&*jar.accept(HOME, &format!("a=1; Path={}", path(1_025))).unwrap().path, "/");
    assert!(jar.accept(&format!("https://www.example.com{}/x", path(1_025)), "a=1").is_none());
    assert!(jar.accept(HOME, &format!("a=1; Domain={}", value(1_024))).is_none());
    let domain = format!("a=1; Domain={}", value(1_025));
    assert!(!matches!(jar.accept(HOME, &domain).unwrap().domain, cookie_store::CookieDomain::Suffix(_)));
    let junk = format!("a=1; x={}", value(60_000));
    let cookie = jar.accept(HOME, &junk).unwrap();
    assert!(cookie.name.capacity() + cookie.value.capacity() < 100, "only name and value are kept");
}

#[test]
fn no_control_character_is_stored() {
    let jar = Timed::new();
    for c in (0..=0x9f).filter_map(char::from_u32).filter(|c| c.is_control() && *c != '\t') {
        for cookie in [format!("a{c}=1"), format!("a=1{c}2"), format!("a=1; Path=/{c}x"), format!("a=1; x={c}")] {
            assert!(jar.accept(HOME, &cookie).is_none(), "{cookie:?}");
        }
    }
}

#[test]
fn a_site_has_at_most_180_cookies_and_secure_ones_stay() {
    let mut jar = Timed::new();
    jar.set(HOME, "secret=1; Secure");
    jar.set(HOME, "short=1; Max-Age=10");
    jar.set(HOME, "old=1");
    for index in 0..177 {
        jar.set(&format!("https://host{index}.example.com/"), "a=1");
    }
    assert_eq!(jar.sites.len(), 180);
    assert_eq!(jar.header(HOME), "secret=1; short=1; old=1");
    jar.after(10);
    jar.set("https://more.example.com/", "a=1");
    assert_eq!(jar.header(HOME), "secret=1; old=1", "what has expired goes first");
    // The cookies of this host were used last, so others go.
    jar.set("https://more.example.com/", "b=1");
    assert_eq!((jar.sites.len(), jar.header("https://host0.example.com/").as_str()), (180, ""));
    for index in 0..1_000 {
        jar.set("http://evil.example.com/", &format!("a{index}=1"));
    }
    assert_eq!((jar.sites.len(), jar.header(HOME).as_str()), (180, "secret=1"));
    jar.set("https://www.example.org/", "a=1");
    assert_eq!(jar.sites.len(), 181, "another site has room of its own");
}

#[test]
fn a_jar_has_at_most_3000_cookies_and_the_least_used_go() {
    let mut jar = Timed::new();
    let site = |index: usize| format!("https://www.site{index}.com/");
    jar.set(&site(0), "a=1; Max-Age=10");
    for index in 1..3_000 {
        jar.set(&site(index), "a=1");
    }
    assert_eq!(jar.sites.len(), 3_000);
    jar.after(10);
    jar.set(&site(3_000), "a=1");
    assert_eq!(jar.sites.len(), 3_000, "what has expired goes first");
    assert_eq!(jar.header(&site(1)), "a=1");
    for index in 3_001..3_011 {
        jar.set(&site(index), "a=1");
    }
    assert_eq!(jar.sites.len(), 3_000);
    assert_eq!(jar.header(&site(1)), "a=1", "it was used last");
    assert!((2..12).all(|index| jar.header(&site(index)).is_empty()));
    assert_eq!(jar.header(&site(12)), "a=1");
}

#[test]
fn a_header_is_never_longer_than_8_000_bytes_and_the_oldest_cookies_stay() {
    let mut jar = Timed::new();
    jar.set(HOME, "session=1");
    jar.set(HOME, "small=1; Path=/x");
    for index in 0..178 {
        jar.set(HOME, &format!("a{index:03}={}", "v".repeat(90)));
    }
    // 18 bytes, and 97 for each of the others with its separator.
    let header = jar.header("https://www.example.com/x");
    assert_eq!((header.len(), header.matches("; ").count()), (18 + 82 * 97, 83));
    assert!(header.starts_with("small=1; session=1; a000=v") && header.contains("; a081=v"), "{header}");
    jar.set(HOME, &format!("fit={}; Path=/fit", "v".repeat(3_995)));
    jar.set(HOME, &format!("full={}; Path=/fit", "v".repeat(3_994)));
    for index in 0..178 {
        jar.set(HOME, &format!("a{index:03}=; Max-Age=0"));
    }
    jar.set(HOME, "session=; Max-Age=0");
    assert_eq!(jar.header("https://www.example.com/fit").len(), 8_000, "the limit itself");
}

#[test]
fn a_sub_domain_cannot_crowd_a_session_out_of_the_header() {
    let mut jar = Timed::new();
    jar.set("https://evil.example.com/", "older=1; Domain=example.com");
    jar.set(HOME, "session=1; Secure");
    // Five cookies that leave no room for another one.
    for index in 0..5 {
        let cookie = format!("a{index}={}; Domain=example.com; Path=/api", "v".repeat(1_594));
        jar.set("https://evil.example.com/", &cookie);
    }
    let header = jar.header("https://www.example.com/api");
    assert!(header.starts_with("a0=v") && header.ends_with("v; older=1; session=1"), "{header}");
    // The session of the whole domain is older than what crowds it.
    jar.set("https://login.example.net/", "session=1; Domain=example.net");
    for index in 0..5 {
        let cookie = format!("a{index}={}; Domain=example.net; Path=/api", "v".repeat(1_594));
        jar.set("https://evil.example.net/", &cookie);
    }
    assert!(jar.header("https://www.example.net/api").ends_with("; session=1"));
}

#[test]
fn a_cookie_never_leaves_the_site_that_set_it() {
    let jar = Jar::default();
    jar.add_cookie_str("s=1; Domain=windows.net", &url("https://evil.blob.core.windows.net/"));
    jar.add_cookie_str("s=1; Domain=windows.net", &url("https://blob.core.windows.net/"));
    assert_eq!((jar.len(), jar.cookies(&url("https://x.windows.net/"))), (0, None));
    jar.add_cookie_str("a=1; Domain=a.blob.core.windows.net", &url("https://b.a.blob.core.windows.net/"));
    jar.add_cookie_str("b=1; Domain=windows.net", &url("https://management.core.windows.net/"));
    assert_eq!(jar.cookies(&url("https://a.blob.core.windows.net/")).unwrap(), "a=1");
    assert_eq!(jar.cookies(&url("https://x.windows.net/")).unwrap(), "b=1");
}

#[test]
fn at_most_180_cookies_are_taken_from_one_response() {
    let jar = Jar::default();
    let headers: Vec<_> = (0..10_000).map(|index| HeaderValue::try_from(format!("a{index}=1")).unwrap()).collect();
    jar.set_cookies(&mut headers.iter(), &url(HOME));
    assert_eq!(jar.len(), 180);
    let header = jar.cookies(&url(HOME)).unwrap();
    assert!(header.to_str().unwrap().starts_with("a0=1; a1=1; "));
    jar.clear();
    assert!(jar.is_empty());
}

/// Random servers set random cookies; after each step the jar is compared with a list that knows no sites and no limits.
#[test]
fn walk_cookies_go_where_a_list_without_sites_says() {
    const HOSTS: [&str; 7] = [
        "example.com",
        "www.example.com",
        "api.www.example.com",
        "example.co.uk",
        "www.example.co.uk",
        "192.0.2.1",
        "localhost",
    ];
    const PATHS: [&str; 4] = ["/", "/a", "/a/b", "/ab"];
    let mut random = fastrand::Rng::with_seed(6265);
    for _ in 0..200 {
        let mut jar = Timed::new();
        let mut list: Vec<StoredCookie> = Vec::new();
        for _ in 0..60 {
            let scheme = if random.bool() { "https" } else { "http" };
            let at = format!("{scheme}://{}{}", HOSTS[random.usize(..7)], PATHS[random.usize(..4)]);
            let mut text = format!("n{}={}", random.u8(..3), random.u8(..));
            if random.bool() {
                text += &format!("; Domain={}", HOSTS[random.usize(..7)]);
            }
            if random.bool() {
                text += &format!("; Path={}", PATHS[random.usize(..4)]);
            }
            if random.u8(..4) == 0 {
                text += "; Secure";
            }
            if random.u8(..4) == 0 {
                text += &format!("; Max-Age={}", random.u8(..40));
            }
            let is_trustworthy = scheme == "https" || at.contains("localhost");
            list.retain(|cookie| !cookie.is_expired(jar.now));
            if let (Some(cookie), Some(same)) = (jar.accept(&at, &text), jar.accept(&at, &text)) {
                jar.sites.set(cookie, &url(&at), jar.now);
                let is_blocked = !is_trustworthy && list.iter().any(|old| old.blocks_insecure_overwrite_by(&same));
                if !is_blocked {
                    match list.iter().position(|old| old.is_replaced_by(&same)) {
                        Some(index) if same.is_expired(jar.now) => drop(list.remove(index)),
                        Some(index) => list[index] = same,
                        None if same.is_expired(jar.now) => {}
                        None => list.push(same),
                    }
                }
            }
            jar.after(random.u64(..5));
            let to = format!("{scheme}://{}{}", HOSTS[random.usize(..7)], PATHS[random.usize(..4)]);
            let matching = list.iter().filter(|cookie| !cookie.is_expired(jar.now) && cookie.matches(&url(&to)));
            let mut matching: Vec<_> = matching.collect();
            matching.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
            let expected: Vec<_> = matching.iter().map(|cookie| format!("{}={}", cookie.name, cookie.value)).collect();
            assert_eq!(jar.header(&to), expected.join("; "), "{to}");
        }
    }
}

#[cfg(feature = "serde")]
#[test]
fn a_jar_that_was_saved_and_loaded_sends_the_same() {
    let jar = Jar::default();
    for (from, cookie) in [
        ("https://www.example.com/a;b/c", "default-path=1"),
        ("https://www.example.com/", "session=\"x y\"; Secure"),
        ("https://www.example.com/", "__Host-token=a=b; Secure; Path=/"),
        ("http://www.example.com/", "lasting=1; Max-Age=1000000; Path=/a;"),
        ("http://www.example.com/", "wide=é; Domain=example.com"),
        ("http://[::1]:3000/", "six=1; Secure"),
        ("http://192.0.2.1/x/", "four="),
        ("https://www.example.com/a//x", "slashes=1"),
        ("https://evil.blob.core.windows.net/", "refused=1; Domain=windows.net"),
        ("http://www.example.com/", "gone=1; Max-Age=0"),
    ] {
        jar.add_cookie_str(cookie, &url(from));
    }
    let text = serde_json::to_string(&jar).unwrap();
    let loaded: Jar = serde_json::from_str(&text).unwrap();
    assert_eq!((jar.len(), loaded.len()), (8, 8), "{text}");
    for to in [
        "https://www.example.com/a;b/c",
        "https://www.example.com/",
        "http://www.example.com/a/",
        "https://www.example.com/a",
        "https://x.windows.net/",
        "http://sub.example.com/",
        "http://[::1]/",
        "http://192.0.2.1/x",
        "http://192.0.2.1/",
    ] {
        assert_eq!(loaded.cookies(&url(to)), jar.cookies(&url(to)), "{to}");
    }
    assert_eq!(serde_json::to_string(&loaded).unwrap(), text, "in the same order");
}

#[cfg(feature = "serde")]
#[test]
fn a_file_cannot_make_a_jar_break_its_rules() {
    let load = |text: &str| serde_json::from_str::<Jar>(text);
    let one = |url: &str, cookie: &str| {
        load(&serde_json::json!([{ "url": url, "set_cookie": cookie }]).to_string()).map(|jar| jar.len())
    };
    assert_eq!(one("https://a.com/", "a=1").unwrap(), 1);
    assert_eq!(one("https://a.com/", "a=1; Domain=com").unwrap(), 0);
    assert_eq!(one("https://a.com/", "a=1\r\nb: c").unwrap(), 0);
    assert_eq!(one("https://a.com/", "a=1; Expires=Fri, 01 Jan 2021 00:00:00 GMT").unwrap(), 0);
    assert_eq!(one("file:///x", "a=1").unwrap(), 0);
    assert!(one("no URL", "a=1").is_err());
    assert!(load("{}").is_err());
    let many: Vec<_> = (0..5_000)
        .map(|index| serde_json::json!({ "url": format!("https://site{index}.com/"), "set_cookie": "a=1" }))
        .collect();
    assert_eq!(load(&serde_json::to_string(&many).unwrap()).unwrap().len(), 3_000);
}
