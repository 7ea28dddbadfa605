//! Serialization of a jar with serde: a list of URLs, and of `Set-Cookie` headers that responses from them would have.

use cookie_store::CookieDomain;
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};
use url::Url;

use super::rules::StoredCookie;
use crate::clock;
use crate::cookie::Jar;

/// A cookie as it is written.
#[derive(serde::Serialize, serde::Deserialize)]
struct SavedCookie {
    url: String,
    set_cookie: String,
}

impl SavedCookie {
    fn new(cookie: &StoredCookie) -> Self {
        let host = cookie.domain.as_cow().unwrap_or_default();
        let path: &str = &cookie.path;
        let mut set_cookie = format!("{}={}", cookie.name, cookie.value);
        let url_path = if cookie.path.is_from_path_attr() {
            set_cookie += &format!("; Path={path}");
            "/".to_owned()
        } else {
            // A path that comes from a URL may have a semicolon, which an attribute cannot have.
            // The path of a cookie is that of its URL up to the last slash, which is added here.
            if path == "/" { path.to_owned() } else { format!("{path}/") }
        };
        if let CookieDomain::Suffix(domain) = &cookie.domain {
            set_cookie += &format!("; Domain={domain}");
        }
        if let Some(expires) = cookie.expires {
            set_cookie += &format!("; Expires={}", httpdate::fmt_http_date(expires));
        }
        if cookie.is_secure {
            set_cookie += "; Secure";
        }
        // With https, every cookie can be set again, in whatever order.
        Self { url: format!("https://{host}{url_path}"), set_cookie }
    }
}

impl Serialize for Jar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let now = clock::wall();
        let cookies = self.with(|sites| {
            let mut entries: Vec<_> = sites.entries().filter(|entry| !entry.cookie.is_expired(now)).collect();
            entries.sort_unstable_by_key(|entry| entry.created);
            entries.into_iter().map(|entry| SavedCookie::new(&entry.cookie)).collect::<Vec<_>>()
        });
        cookies.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Jar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let jar = Self::default();
        for saved in Vec::<SavedCookie>::deserialize(deserializer)? {
            let url = Url::parse(&saved.url).map_err(D::Error::custom)?;
            jar.add_cookie_str(&saved.set_cookie, &url);
        }
        Ok(jar)
    }
}
