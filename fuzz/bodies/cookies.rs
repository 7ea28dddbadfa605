//! Cookies: which of those that servers set go where.

use speeddial::Url;
use speeddial::cookie::{CookieStore, Jar};
use speeddial::http::HeaderValue;

use crate::common::{lines, split};

/// A `Set-Cookie` header, and the URL that sent it.
struct Sent {
    url: Url,
    header: String,
}

/// Each line is a URL and, after a blank, a `Set-Cookie` header from there. A line without one asks for the cookies of its URL.
pub(crate) fn run(data: &[u8]) {
    let jar = Jar::default();
    let mut sent = Vec::new();
    for line in lines(data) {
        let (url, header) = split(&line, b' ');
        let Some(url) = str::from_utf8(url).ok().and_then(|url| url.parse::<Url>().ok()) else { continue };
        if header.is_empty() {
            check(&jar, &sent, &url);
        } else if let Ok(value) = HeaderValue::from_bytes(header) {
            jar.set_cookies(&mut [&value].into_iter(), &url);
            if let Ok(header) = str::from_utf8(header) {
                sent.push(Sent { url: url.clone(), header: header.to_owned() });
            }
            check(&jar, &sent, &url);
        }
        assert!(jar.len() <= sent.len().min(3_000), "more cookies than were set");
    }
}

fn check(jar: &Jar, sent: &[Sent], to: &Url) {
    let Some(header) = jar.cookies(to) else { return };
    let header =
        header.to_str().map(str::to_owned).unwrap_or_else(|_| String::from_utf8_lossy(header.as_bytes()).into());
    assert!(
        header.len() <= 8_000 && !header.contains(|letter: char| letter.is_control() && letter != '\t'),
        "{header:?}"
    );
    for cookie in header.split("; ") {
        let may_go = sent.iter().any(|sent| sets(&sent.header, cookie) && belongs(sent, to));
        assert!(may_go, "{cookie:?} went to {to}");
    }
    let saved = serde_json::to_string(jar).expect("a jar can be saved");
    let loaded: Jar = serde_json::from_str(&saved).expect("what was saved can be loaded");
    // Two cookies of one age may change their places.
    let sorted = |jar: &Jar| {
        let header = jar.cookies(to).map(|header| String::from_utf8_lossy(header.as_bytes()).into_owned());
        let mut cookies: Vec<_> = header.unwrap_or_default().split("; ").map(str::to_owned).collect();
        cookies.sort();
        cookies
    };
    assert_eq!(sorted(&loaded), sorted(jar), "other cookies after saving and loading");
}

/// Returns true if the pair of a `Set-Cookie` header is `cookie`.
fn sets(header: &str, cookie: &str) -> bool {
    let pair = header.split(';').next().unwrap_or_default();
    let Some((name, value)) = pair.split_once('=') else { return false };
    format!("{}={}", name.trim(), value.trim()) == cookie
}

/// Returns true if a cookie may go to `to` by its domain and by `Secure` (RFC 6265 §5.1.3, §5.4), computed anew.
fn belongs(sent: &Sent, to: &Url) -> bool {
    let attributes =
        || sent.header.split(';').skip(1).map(|attribute| attribute.split_once('=').unwrap_or((attribute, "")));
    let is_secure = attributes().any(|(name, _)| name.trim().eq_ignore_ascii_case("secure"));
    let host = |url: &Url| url.host_str().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    let (from_host, to_host) = (host(&sent.url), host(to));
    let is_local = to_host == "localhost"
        || to_host.ends_with(".localhost")
        || to_host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if is_secure && to.scheme() != "https" && !is_local {
        return false;
    }
    if from_host == to_host {
        return true;
    }
    let is_within = |host: &str, domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
    // Or both are within a domain that the cookie names.
    attributes().filter(|(name, _)| name.trim().eq_ignore_ascii_case("domain")).any(|(_, domain)| {
        let domain = domain.trim().trim_start_matches('.').trim_end_matches('.').to_ascii_lowercase();
        // A name in another script is compared as it goes over the wire.
        let domain = Url::parse(&format!("http://{domain}")).map(|url| host(&url)).unwrap_or(domain);
        domain.contains('.') && is_within(&from_host, &domain) && is_within(&to_host, &domain)
    })
}
