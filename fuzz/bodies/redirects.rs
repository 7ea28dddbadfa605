//! Redirects: where a client goes on, and what it takes along.

use std::sync::{Arc, Mutex};

use speeddial::{Method, Url, redirect};

use crate::common::{Server, block_on, contains, head, lines};

const SECRET: &str = "k3pt-for-the-first-origin";

/// Follows one redirect: a line with the status, one with the URL, and one for each line of the answer's head.
pub(crate) fn run(data: &[u8]) {
    let lines = lines(data);
    let [status, url, headers @ ..] = &lines[..] else { return };
    let (Ok(status), Ok(url)) = (str::from_utf8(status), str::from_utf8(url)) else { return };
    let Some(status) = status.parse::<u16>().ok().filter(|status| (300..400).contains(status)) else { return };
    let Ok(from) = url.parse::<Url>() else { return };
    if from.scheme() != "http" || contains(data, SECRET.as_bytes()) {
        return;
    }
    let mut answer = format!("HTTP/1.1 {status} Moved\r\n").into_bytes();
    for header in headers {
        answer.extend_from_slice(header);
        answer.extend_from_slice(b"\r\n");
    }
    answer.extend_from_slice(b"content-length: 0\r\nconnection: close\r\n\r\n");
    let server = Server::new([answer]);
    let to = Arc::new(Mutex::new(Vec::new()));
    let seen = to.clone();
    let policy = redirect::Policy::custom(move |attempt| {
        let url = attempt.url().clone();
        assert!(url.password().is_none(), "credentials of a server");
        // TLS would need a server of its own. Other schemes are the client's to refuse.
        let follows = url.scheme() != "https" && attempt.previous().len() == 1;
        seen.lock().expect("no panic").push(url);
        if follows { attempt.follow() } else { attempt.stop() }
    });
    block_on(async {
        let client = server.client().redirect(policy).referer(true).build().expect("a client");
        let mut with_password = from.clone();
        let _ = with_password.set_username("user").and_then(|()| with_password.set_password(Some(SECRET)));
        let request = client.request(Method::POST, with_password).body(SECRET);
        let headers = ["authorization", "proxy-authorization", "cookie"];
        let request = headers.iter().fold(request, |request, name| request.header(*name, SECRET));
        let _ = request.send().await;
    });
    let to = to.lock().expect("no panic");
    let requests = server.requests();
    let Some(second) = requests.get(1).filter(|request| !request.is_empty()) else { return };
    let to = to.first().expect("a second request was asked for");
    assert_eq!((to.scheme(), to.has_host()), ("http", true), "a request to {to}");
    let lines = head(second);
    let is_same = from.origin() == to.origin();
    if !is_same {
        let head = lines.join(&b'\n');
        assert!(!contains(&head, SECRET.as_bytes()), "a secret went from {from} to {to}");
    }
    let method = lines[0].split(|byte| *byte == b' ').next().expect("a method");
    match status {
        307 | 308 => assert_eq!(method, b"POST"),
        _ => {
            assert_eq!(method, b"GET", "{status}");
            assert!(!contains(second, b"content-length"), "headers of a body without one");
            assert!(second.ends_with(b"\r\n\r\n"), "a body that was not to be sent again");
        }
    }
    let host = lines.iter().filter(|line| line.to_ascii_lowercase().starts_with(b"host:")).count();
    assert_eq!(host, 1, "Host headers");
}
