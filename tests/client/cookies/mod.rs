//! Cookies: the rules of the jar, compared with Go's, and the client's store on real connections.

mod calls;
mod table;

use speeddial::cookie::{CookieStore, Jar};

/// Returns the `Cookie` header of a request; `-` for none.
fn header(jar: &Jar, url: &str) -> String {
    match jar.cookies(&url.parse().unwrap()) {
        Some(header) => str::from_utf8(header.as_bytes()).unwrap().to_owned(),
        None => "-".to_owned(),
    }
}
