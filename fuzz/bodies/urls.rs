//! URLs and headers: what a client refuses, and what it writes for the rest.

use speeddial::{ErrorKind, Method};

use crate::common::{Server, block_on, head, lines, split};

/// Sends a request: a line with its method and URL, and a line for each header. Only one request may be on the wire, with each of
/// these headers in a line of its own.
pub(crate) fn run(data: &[u8]) {
    let lines = lines(data);
    let (method, url) = split(&lines[0], b' ');
    let (Ok(method), Ok(url)) = (Method::from_bytes(method), str::from_utf8(url)) else { return };
    let server = Server::default();
    block_on(async {
        let client = server.client().build().expect("a client");
        let mut request = client.request(method.clone(), url);
        for line in &lines[1..] {
            let (name, value) = split(line, b':');
            request = request.header(name, value);
        }
        let request = match request.build() {
            Ok(request) => request,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Request, "{error}");
                // The text of an error is shown in terminals.
                assert!(!error.to_string().contains(['\r', '\n', '\0', '\x1b']), "control characters in {error:?}");
                return;
            }
        };
        assert_eq!(request.url().as_str().parse().as_ref(), Ok(request.url()), "a URL that reads differently");
        if request.url().scheme() != "http" {
            return;
        }
        let (url, headers) = (request.url().clone(), request.headers().clone());
        let sent = client.execute(request).await;
        drop(client);
        let received = server.requests();
        let Some(received) = received.first().filter(|received| !received.is_empty()) else {
            assert!(sent.is_err(), "an answer without a request");
            return;
        };
        let head = head(received);
        let target: Vec<_> = head[0].split(|byte| *byte == b' ').collect();
        assert_eq!(target.len(), 3, "a request line of three parts: {:?}", String::from_utf8_lossy(&head[0]));
        assert_eq!((target[0], target[2]), (method.as_str().as_bytes(), &b"HTTP/1.1"[..]));
        assert!(target[1].iter().all(u8::is_ascii_graphic), "a target with blanks or bytes beyond ASCII");
        if let Some(password) = url.password().filter(|password| password.len() > 3) {
            let shown = format!("{password}@");
            assert!(!String::from_utf8_lossy(&head[0]).contains(&shown), "credentials in the target");
        }
        let count =
            |name: &str| head.iter().filter(|line| split(line, b':').0.eq_ignore_ascii_case(name.as_bytes())).count();
        assert_eq!(count("host"), 1, "Host headers");
        for name in headers.keys() {
            let given = headers.get_all(name).iter().count();
            assert!(count(name.as_str()) <= given, "{name}: more lines than headers");
        }
        // A body has a length, and these requests have none.
        assert!(received.ends_with(b"\r\n\r\n"), "bytes after the head");
    });
}
