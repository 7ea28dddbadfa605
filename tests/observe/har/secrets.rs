//! Secrets in HAR documents: removed unless they are asked for.

use serde_json::{Value, json};
use speeddial::http::{HeaderMap, HeaderName, HeaderValue, Method};
use speeddial::trace::Timings;
use speeddial::url::Url;
use speeddial_inspect::{Har, HarEntry};

use super::super::requests::net;
use super::{builder, entries};

/// The value of everything that must not be told.
const SECRET: &str = "s3cret";
const AWAY: &str =
    "HTTP/1.1 302 Found\r\nlocation: http://me:s3cret@b.test/there?code=s3cret\r\ncontent-length: 0\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nset-cookie: id=s3cret; Path=/; HttpOnly; Secure; Expires=Thu, 01 Jan 2026 00:00:00 GMT\r\nx-auth-token: s3cret\r\n\r\nok";

/// Makes a call whose request, redirect and response are full of secrets. Returns its URL, headers and timings.
async fn exchange(har: &Har) -> (Url, HeaderMap, HeaderMap, Timings) {
    let (net, _) = net(&[(5, AWAY), (5, OK)]);
    let client = builder(net, har).build().unwrap();
    let mut headers = HeaderMap::new();
    for name in ["authorization", "proxy-authorization", "x-api-key"] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(SECRET));
    }
    headers.insert("cookie", HeaderValue::from_static("session=s3cret; theme=s3cret"));
    headers.insert("referer", HeaderValue::from_static("http://me:s3cret@a.test/?token=s3cret"));
    headers.insert("accept", HeaderValue::from_static("text/plain"));
    let url = "http://me:s3cret@a.test/here?token=s3cret&empty=#s3cret";
    let response = client.get(url).headers(headers.clone()).send().await.unwrap();
    let (url, received, handle) = (response.url().clone(), response.headers().clone(), response.timings_handle());
    response.bytes().await.unwrap();
    (url, headers, received, handle.timings())
}

async fn document(har: &Har) -> Vec<Value> {
    let (mut url, sent, received, timings) = exchange(&Har::last(0)).await;
    url.set_username("me").unwrap();
    url.set_password(Some(SECRET)).unwrap();
    har.add(HarEntry::new(&Method::GET, &url, &timings).request_headers(&sent).response_headers(&received));
    entries(har)
}

fn values<'a>(list: &'a Value, name: &str) -> Vec<&'a str> {
    let list = list.as_array().unwrap().iter();
    list.filter(|pair| pair["name"] == name).map(|pair| pair["value"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn secrets_are_removed_from_what_an_observer_is_told() {
    let har = Har::last(9);
    exchange(&har).await;
    assert!(!har.to_json().contains(SECRET), "{}", har.to_json());
    let [away, there] = &entries(&har)[..] else { panic!("two") };
    assert_eq!(away["request"]["url"], "http://a.test/here?token=removed&empty=");
    assert_eq!(away["response"]["redirectURL"], "http://b.test/there?code=removed");
    assert_eq!(there["request"]["url"], "http://b.test/there?code=removed");
    let query = json!([{"name": "token", "value": "removed"}, {"name": "empty", "value": ""}]);
    assert_eq!(away["request"]["queryString"], query);
}

#[tokio::test(start_paused = true)]
async fn secrets_are_removed_from_headers_and_cookies() {
    let har = Har::last(9);
    let entry = &document(&har).await[0];
    assert!(!har.to_json().contains(SECRET), "{}", har.to_json());
    let (request, response) = (&entry["request"], &entry["response"]);
    for name in ["authorization", "proxy-authorization", "x-api-key", "cookie"] {
        assert_eq!(values(&request["headers"], name), ["[removed]"], "{name}");
    }
    assert_eq!(values(&request["headers"], "accept"), ["text/plain"]);
    assert_eq!(values(&request["headers"], "referer"), ["http://a.test/?token=removed"]);
    assert_eq!(values(&response["headers"], "set-cookie"), ["[removed]"]);
    assert_eq!(values(&request["cookies"], "session"), ["[removed]"]);
    let cookie = json!({
        "name": "id", "value": "[removed]", "path": "/", "expires": "2026-01-01T00:00:00.000Z", "httpOnly": true, "secure": true
    });
    assert_eq!(response["cookies"], json!([cookie]));
}

#[tokio::test(start_paused = true)]
async fn secrets_are_shown_on_request_except_users_and_passwords_of_urls() {
    let har = Har::last(9).show_secrets(true);
    let entry = &document(&har).await[0];
    assert_eq!(values(&entry["request"]["headers"], "authorization"), [SECRET]);
    assert_eq!(values(&entry["request"]["cookies"], "theme"), [SECRET]);
    assert_eq!(entry["request"]["url"], "http://b.test/there?code=removed", "queries are asked for by themselves");
    let har = Har::last(9).show_queries(true);
    let entry = &document(&har).await[0];
    assert_eq!(entry["request"]["url"], "http://b.test/there?code=s3cret");
    assert_eq!(values(&entry["request"]["headers"], "authorization"), ["[removed]"]);
    assert_eq!(values(&entry["request"]["headers"], "referer"), ["http://a.test/?token=s3cret"]);
}

#[tokio::test(start_paused = true)]
async fn hazard_text_of_a_server_stays_text() {
    let text = b"\"},{\"</script>\\\t\xe2\x80\xa8\xff";
    let mut headers = HeaderMap::new();
    for name in ["x-text", "content-type", "location"] {
        headers.insert(name, HeaderValue::from_bytes(text).unwrap());
    }
    let (_, _, _, timings) = exchange(&Har::last(0)).await;
    let har = Har::last(9);
    let url = Url::parse("http://a.test/%22},{%22</script>?\"},{=</script>").unwrap();
    har.add(HarEntry::new(&Method::GET, &url, &timings).response_headers(&headers));
    let entry = &entries(&har)[0];
    assert_eq!(values(&entry["response"]["headers"], "x-text"), ["\"},{\"</script>\\\t\u{2028}\u{fffd}"]);
    assert_eq!(entry["response"]["content"]["mimeType"], "\"},{\"</script>\\\t\u{2028}\u{fffd}");
    assert!(!har.to_json().contains('\u{2028}'), "a script could not read it");
}
