//! The request to an HTTP proxy for a tunnel (CONNECT, RFC 9110 §9.3.6), and its answer.
//!
//! Up to the end of a successful answer's head, exactly its bytes are read: what follows them is the origin's.

use std::pin::pin;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, COOKIE, PROXY_AUTHORIZATION, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::clock;
use crate::connect::error::TunnelError;
use crate::origin::Host;
use crate::redact::line;

/// The most bytes of an answer's head, interim responses included.
const MAX_HEAD: usize = 64 * 1024;
/// The most interim responses before the answer. Go allows five.
const MAX_INTERIM: u32 = 20;

/// The most headers of an answer.
const MAX_HEADERS: usize = 100;

/// The most bytes of a refusal's body that are read.
const MAX_BODY: usize = 2_048;

/// The longest wait for what only adds to an error: the body of a refusal, and the answer to a request that could not be
/// sent.
const REST_TIMEOUT: Duration = Duration::from_millis(200);

/// The length of a part of a secret that does not occur by chance.
const PART: usize = 4;

/// The most characters of a reason or a body that are shown.
const SHOWN: usize = 200;

/// The headers of the request beside the host.
#[derive(Clone, Copy, Default)]
pub(in crate::connect) struct ConnectHeaders<'a> {
    pub(in crate::connect) authorization: Option<&'a HeaderValue>,
    pub(in crate::connect) user_agent: Option<&'a HeaderValue>,
    /// The headers that the user has added.
    pub(in crate::connect) added: Option<&'a HeaderMap>,
}

/// Asks the proxy at the other end of `stream` for a tunnel to a host. After that the stream leads there. The error of a refusal
/// shows the start of its body unless `hides_body`.
pub(in crate::connect) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    host: &Host,
    port: u16,
    headers: ConnectHeaders<'_>,
    hides_body: bool,
) -> Result<(), TunnelError> {
    let request = request(host, port, headers);
    let sent = async {
        stream.write_all(&request).await?;
        stream.flush().await
    };
    match sent.await {
        Ok(()) => read_answer(stream, headers, hides_body).await,
        Err(error) => {
            // A proxy that takes no more of the request may have said why, in an answer or a TLS alert.
            let deadline = clock::now().checked_add(REST_TIMEOUT);
            let answer = clock::before(deadline, pin!(read_answer(stream, headers, hides_body))).await;
            answer.unwrap_or_else(|| Err(TunnelError::broken(error, false)))
        }
    }
}

/// Reads the answer to a request for a tunnel. `headers` are those of that request.
async fn read_answer<S: AsyncRead + Unpin>(
    stream: &mut S,
    headers: ConnectHeaders<'_>,
    hides_body: bool,
) -> Result<(), TunnelError> {
    let mut bytes_left = MAX_HEAD;
    for _ in 0..=MAX_INTERIM {
        let head = read_head(stream, &mut bytes_left).await?;
        let answer = AnswerHead::parse(&head)?;
        match answer.status {
            // It would change the protocol to one that was not asked for.
            101 => return Err(answer.refusal(b"", headers)),
            100..=199 => {}
            // Its Content-Length and Transfer-Encoding have no meaning.
            200..=299 => return Ok(()),
            _ => {
                let body = if hides_body { Vec::new() } else { read_body(stream, &answer).await };
                return Err(answer.refusal(&body, headers));
            }
        }
    }
    Err(TunnelError::refused(format!("it sent more than {MAX_INTERIM} interim responses (1xx)")))
}

fn request(host: &Host, port: u16, headers: ConnectHeaders<'_>) -> Vec<u8> {
    let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n").into_bytes();
    for (name, value) in [("User-Agent", headers.user_agent), ("Proxy-Authorization", headers.authorization)] {
        if let Some(value) = value {
            request.extend([name.as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
    }
    for (name, value) in headers.added.into_iter().flatten() {
        request.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    request.extend(b"\r\n");
    request
}

/// Reads to the end of a head: an empty line that follows another one.
async fn read_head<S: AsyncRead + Unpin>(stream: &mut S, bytes_left: &mut usize) -> Result<Vec<u8>, TunnelError> {
    const START: &[u8] = b"HTTP/1.";
    let mut head = Vec::new();
    let mut line_length = 0;
    loop {
        let has_answered = *bytes_left < MAX_HEAD;
        let byte = stream.read_u8().await.map_err(|error| TunnelError::broken(error, has_answered))?;
        let Some(left) = bytes_left.checked_sub(1) else {
            return Err(TunnelError::refused(format!("its answer is longer than {MAX_HEAD} bytes")));
        };
        *bytes_left = left;
        match byte {
            // Empty lines in front of a message are skipped (RFC 9112 §2.2).
            b'\r' | b'\n' if head.is_empty() => continue,
            b'\n' if line_length == 0 => {
                head.push(byte);
                return Ok(head);
            }
            b'\n' => line_length = 0,
            b'\r' => {}
            _ => line_length += 1,
        }
        head.push(byte);
        // Otherwise a peer of another protocol that keeps the connection open would be waited for.
        if head.len() <= START.len() && !START.starts_with(&head) {
            return Err(TunnelError::refused("what answers does not speak HTTP/1.1"));
        }
    }
}

/// The head of an answer, as far as it matters.
struct AnswerHead {
    status: u16,
    reason: String,
    /// The length of the body, if it is announced.
    length: Option<usize>,
    is_chunked: bool,
    is_encoded: bool,
}

impl AnswerHead {
    fn parse(head: &[u8]) -> Result<Self, TunnelError> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut parsed = httparse::Response::new(&mut headers);
        let status = match parsed.parse(head) {
            Ok(httparse::Status::Complete(_)) => parsed.code.unwrap_or_default(),
            Ok(httparse::Status::Partial) => return Err(TunnelError::refused("its answer is no HTTP response")),
            Err(error) => return Err(TunnelError::refused(format!("its answer is no HTTP response: {error}"))),
        };
        let header = |name: http::HeaderName| {
            parsed.headers.iter().find(|header| name.as_str().eq_ignore_ascii_case(header.name))
        };
        let length = header(CONTENT_LENGTH).and_then(|length| str::from_utf8(length.value).ok()?.trim().parse().ok());
        Ok(Self {
            status,
            reason: parsed.reason.unwrap_or_default().to_owned(),
            length,
            is_chunked: header(TRANSFER_ENCODING).is_some(),
            is_encoded: header(CONTENT_ENCODING).is_some(),
        })
    }

    /// Returns the error for an answer that is no success. `body` is the start of its body. A part in which the proxy
    /// repeats a secret of the request is left out.
    fn refusal(&self, body: &[u8], headers: ConnectHeaders<'_>) -> TunnelError {
        let secrets = secrets(headers);
        let mut text = match self.status {
            407 => "it wants authentication, and answered 407".to_owned(),
            status => format!("the tunnel was unsuccessful, it answered {status}"),
        };
        for (separator, part) in [(" ", self.reason.as_bytes()), (": ", body)] {
            let line = one_line(part);
            if !line.is_empty() && !secrets.iter().any(|secret| has_secret(part, secret)) {
                text.push_str(separator);
                text.push_str(&line);
            }
        }
        TunnelError::with_status(self.status, text)
    }
}

/// Reads the start of a refusal's body, as far as it comes in time. Returns nothing for a body that is encoded.
async fn read_body<S: AsyncRead + Unpin>(stream: &mut S, answer: &AnswerHead) -> Vec<u8> {
    let mut body = Vec::new();
    if answer.is_encoded {
        return body;
    }
    let most = answer.length.unwrap_or(MAX_BODY).min(MAX_BODY);
    let deadline = clock::now().checked_add(REST_TIMEOUT);
    // What has come by then is enough. A connection that breaks adds nothing to the refusal.
    let _ = clock::before(deadline, pin!(stream.take(most as u64).read_to_end(&mut body))).await;
    if answer.is_chunked { without_chunk_sizes(&body) } else { body }
}

/// Takes the sizes out of the start of a body in chunks (RFC 9112 §7.1).
fn without_chunk_sizes(mut rest: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while let Ok(httparse::Status::Complete((start, size @ 1..))) = httparse::parse_chunk_size(rest) {
        let end = usize::try_from(size).unwrap_or(usize::MAX).saturating_add(start).min(rest.len());
        content.extend_from_slice(&rest[start..end]);
        rest = rest[end..].strip_prefix(b"\r\n").unwrap_or_default();
    }
    content
}

/// Returns the forms in which an answer could repeat a secret of the request: each credential and each sensitive header as it was sent,
/// without its scheme (`Bearer`), and the password of basic authentication decoded. Where there is none worth the name, as in
/// `http://APIKEY:@proxy`, the user name is the secret.
fn secrets(headers: ConnectHeaders<'_>) -> Vec<Vec<u8>> {
    let is_secret = |(name, value): &(&HeaderName, &HeaderValue)| {
        value.is_sensitive() || [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(*name)
    };
    let added = headers.added.into_iter().flatten().filter(is_secret).map(|(_, value)| value);
    let mut secrets = Vec::new();
    for value in headers.authorization.into_iter().chain(added) {
        let value = value.as_bytes();
        let scheme = value.iter().position(|byte| *byte == b' ');
        let rest = scheme.map_or(value, |space| value[space..].trim_ascii());
        if scheme.is_some_and(|space| value[..space].eq_ignore_ascii_case(b"basic")) {
            let decoded = BASE64_STANDARD.decode(rest).unwrap_or_default();
            let mut parts = decoded.splitn(2, |byte| *byte == b':');
            let (user, password) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            if password.len() < PART {
                secrets.push(user.to_vec());
            }
            secrets.push(password.to_vec());
        }
        secrets.extend([value.to_vec(), rest.to_vec()]);
    }
    secrets.retain(|secret| !secret.is_empty());
    secrets
}

/// Returns true if a text contains a secret in upper or lower case, or ends in a part of it because more was not read.
fn has_secret(text: &[u8], secret: &[u8]) -> bool {
    let (text, secret) = (text.to_ascii_lowercase(), secret.to_ascii_lowercase());
    let ends_in_part = || (PART..secret.len()).any(|length| text.ends_with(&secret[..length]));
    text.windows(secret.len()).any(|window| window == secret) || ends_in_part()
}

/// Returns the start of a text in one line: with single spaces for white space and control characters.
fn one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let is_gap = |letter: char| letter.is_whitespace() || letter.is_control();
    let words: Vec<_> = text.split(is_gap).filter(|word| !word.is_empty()).collect();
    line(words.join(" "), SHOWN)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::*;
    use crate::origin::Credentials;

    /// Asks a proxy that sends these bytes and closes its side. Returns the result, what the proxy got, and what the
    /// client left unread.
    async fn run(answer: &[u8], credentials: Option<(&str, &str)>) -> (Result<(), String>, String, Vec<u8>) {
        let (mut client, mut proxy) = tokio::io::duplex(1 << 20);
        proxy.write_all(answer).await.unwrap();
        proxy.shutdown().await.unwrap();
        let authorization = credentials.map(|(user, password)| Credentials::new(user, password).basic().unwrap());
        let agent = HeaderValue::from_static("me/1.0");
        let headers = match &authorization {
            Some(_) => ConnectHeaders { authorization: authorization.as_ref(), user_agent: Some(&agent), added: None },
            None => ConnectHeaders::default(),
        };
        let result = connect(&mut client, &Host::Name("api.test".into()), 443, headers, false).await;
        let mut unread = Vec::new();
        client.read_to_end(&mut unread).await.unwrap();
        drop(client);
        let mut sent = String::new();
        proxy.read_to_string(&mut sent).await.unwrap();
        (result.map_err(text), sent, unread)
    }

    fn text(error: TunnelError) -> String {
        match error {
            TunnelError::Unanswered(error) => format!("unanswered: {error}"),
            TunnelError::Refused(error) => error.to_string(),
            TunnelError::HostRefused(error) => panic!("HTTP has no such answer: {error}"),
        }
    }

    #[tokio::test]
    async fn the_request_names_the_host_the_client_and_its_credentials() {
        let (_, sent, _) = run(b"", None).await;
        assert_eq!(sent, "CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n");
        let (_, sent, _) = run(b"", Some(("me", "secret"))).await;
        let headers = "User-Agent: me/1.0\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n";
        assert_eq!(sent, format!("CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n{headers}\r\n"));
    }

    #[tokio::test]
    async fn any_2xx_opens_the_tunnel_and_what_follows_is_the_origins() {
        let heads = [
            "HTTP/1.1 200 Connection established\r\n\r\n",
            "HTTP/1.0 200 OK\r\n\r\n",
            "HTTP/1.1 200\r\n\r\n",
            "HTTP/1.1 201 Created\r\ncontent-length: 5\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 299 Fine\r\ntransfer-encoding: chunked\r\nvia: x\r\n\r\n",
            "\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\n\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        ];
        for head in heads {
            let (result, _, unread) = run(format!("{head}hello").as_bytes(), None).await;
            assert_eq!((result, &unread[..]), (Ok(()), &b"hello"[..]), "{head:?}");
        }
    }

    #[tokio::test]
    async fn a_refusal_is_told_by_its_status_and_the_start_of_its_body_in_one_line() {
        let long = format!("HTTP/1.1 403 Forbidden\r\n\r\n{}", "é".repeat(5_000));
        let shown = format!("the tunnel was unsuccessful, it answered 403 Forbidden: {}…", "é".repeat(200));
        let cases: [(&str, &str); 9] = [
            (
                "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
                "it wants authentication, and answered 407 Proxy Authentication Required",
            ),
            (
                "HTTP/1.1 502\r\ncontent-length: 3\r\n\r\nbad and more",
                "the tunnel was unsuccessful, it answered 502: bad",
            ),
            (
                "HTTP/1.1 403 No\r\n\r\n\r\n <b>\x1b[31mnot\r\n\there</b>\0",
                "the tunnel was unsuccessful, it answered 403 No: <b> [31mnot here</b>",
            ),
            (
                "HTTP/1.1 503 No\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbusy\r\n6;x=y\r\n today\r\n0\r\n\r\n",
                "the tunnel was unsuccessful, it answered 503 No: busy today",
            ),
            (
                "HTTP/1.1 503 No\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbu",
                "the tunnel was unsuccessful, it answered 503 No: bu",
            ),
            (
                "HTTP/1.1 503 No\r\ncontent-encoding: gzip\r\n\r\nbinary",
                "the tunnel was unsuccessful, it answered 503 No",
            ),
            (
                "HTTP/1.1 101 Switching Protocols\r\n\r\nhello",
                "the tunnel was unsuccessful, it answered 101 Switching Protocols",
            ),
            ("HTTP/1.1 302 Found\r\nlocation: /login\r\n\r\n", "the tunnel was unsuccessful, it answered 302 Found"),
            (&long, &shown),
        ];
        for (answer, expected) in cases {
            assert_eq!(run(answer.as_bytes(), None).await.0, Err(expected.to_owned()), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn hazard_no_secret_of_the_request_is_shown_in_a_refusal() {
        let secret = |text: &'static str| {
            let mut value = HeaderValue::from_static(text);
            value.set_sensitive(true);
            value
        };
        let added = HeaderMap::from_iter([
            (HeaderName::from_static("x-key"), secret("k3y-of-the-proxy")),
            (COOKIE, HeaderValue::from_static("session=c00kie")),
            (HeaderName::from_static("x-open"), HeaderValue::from_static("anyone")),
        ]);
        for (authorization, echoed, is_shown) in [
            ("Bearer t0ken-123", "bad t0ken-123", false),
            ("bearer t0ken-123", "bad T0KEN-123", false),
            ("basic bWU6c2VjcmV0", "no secret", false),
            ("BASIC bWU6c2VjcmV0", "bwu6C2VjcmV0 is wrong", false),
            ("Bearer t0ken-123", "K3Y-of-the-proxy", false),
            ("Bearer t0ken-123", "session=c00kie", false),
            ("Bearer t0ken-123", "anyone", true),
        ] {
            let (mut client, mut proxy) = tokio::io::duplex(1 << 10);
            let answer = format!("HTTP/1.1 403 No\r\ncontent-length: {}\r\n\r\n{echoed}", echoed.len());
            proxy.write_all(answer.as_bytes()).await.unwrap();
            let authorization = HeaderValue::from_static(authorization);
            let headers = ConnectHeaders { authorization: Some(&authorization), user_agent: None, added: Some(&added) };
            let host = Host::Name("api.test".into());
            let Err(TunnelError::Refused(error)) = connect(&mut client, &host, 443, headers, false).await else {
                panic!()
            };
            let error = error.to_string();
            assert_eq!(error.contains(echoed), is_shown, "{error}");
        }
    }

    #[tokio::test]
    async fn a_refusal_that_repeats_the_credentials_is_shown_without_them() {
        let credentials = Some(("me", "opensesame"));
        for body in ["Basic bWU6b3BlbnNlc2FtZQ== is wrong", "me:opensesame is wrong", "you sent: bWU6b3Bl", "open"] {
            let answer = format!("HTTP/1.1 407 No\r\n\r\n{body}");
            assert_eq!(
                run(answer.as_bytes(), credentials).await.0,
                Err("it wants authentication, and answered 407 No".to_owned()),
                "{body}"
            );
        }
        let answer = b"HTTP/1.1 407 opensesame is wrong\r\n\r\nsorry";
        assert_eq!(
            run(answer, credentials).await.0,
            Err("it wants authentication, and answered 407: sorry".to_owned())
        );
    }

    #[tokio::test]
    async fn hazard_a_user_name_that_is_the_secret_is_not_shown_in_a_refusal() {
        for (credentials, echoed) in [
            (("APIKEY-9", ""), "unknown user apikey-9"),
            (("APIKEY-9", "x"), "unknown user APIKEY-9"),
            (("APIKEY-9", ""), "cut at APIK"),
        ] {
            let answer = format!("HTTP/1.1 407 No\r\n\r\n{echoed}");
            let (refusal, ..) = run(answer.as_bytes(), Some(credentials)).await;
            assert_eq!(refusal, Err("it wants authentication, and answered 407 No".to_owned()), "{echoed}");
        }
        let (refusal, ..) = run(b"HTTP/1.1 407 No\r\n\r\nproxy wants a password", Some(("proxy", "opensesame"))).await;
        assert!(refusal.unwrap_err().ends_with("proxy wants a password"), "a user name beside a password is none");
    }

    #[tokio::test]
    async fn hazard_an_answer_that_is_cut_after_any_byte_is_an_error_that_says_so() {
        let answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nvia: x\r\n\r\n";
        for length in 0..answer.len() {
            let expected = match length {
                0 => "unanswered: it closed the connection without an answer",
                _ => "it closed the connection in the middle of its answer",
            };
            assert_eq!(run(&answer[..length], None).await.0, Err(expected.to_owned()), "after {length} bytes");
        }
    }

    #[tokio::test]
    async fn hazard_answers_without_end_and_of_other_protocols_are_errors() {
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(30);
        let headers = format!("HTTP/1.1 200 OK\r\n{}", "a: b\r\n".repeat(20_000));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101));
        let cases: [(&[u8], &str); 7] = [
            (interim.as_bytes(), "it sent more than 20 interim responses (1xx)"),
            (headers.as_bytes(), "its answer is longer than 65536 bytes"),
            (many.as_bytes(), "its answer is no HTTP response: too many headers"),
            (b"HTTP/1.1 2x0 OK\r\n\r\n", "its answer is no HTTP response: invalid response status"),
            (b"\x05\xff nonsense \r\n\r\n", "what answers does not speak HTTP/1.1"),
            (b"\x15\x03\x01\0\x02\x02\x46", "what answers does not speak HTTP/1.1"),
            (b"HTTP/2 200\r\n\r\n", "what answers does not speak HTTP/1.1"),
        ];
        for (answer, expected) in cases {
            assert_eq!(run(answer, None).await.0.unwrap_err(), expected);
        }
    }

    /// A stream whose writes fail, and that has this left to read, or nothing ever.
    struct Unwritable(Option<&'static [u8]>);

    impl AsyncRead for Unwritable {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            match &mut self.0 {
                Some(left) => Pin::new(left).poll_read(cx, buf),
                None => Poll::Pending,
            }
        }
    }

    impl AsyncWrite for Unwritable {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn hazard_a_proxy_that_takes_no_request_may_have_said_why() {
        let cases: [(Option<&'static [u8]>, &str); 3] = [
            (Some(b"HTTP/1.1 503 Busy\r\n\r\n"), "the tunnel was unsuccessful, it answered 503 Busy"),
            (Some(b""), "unanswered: it closed the connection without an answer"),
            (None, "unanswered: broken pipe"),
        ];
        for (left, expected) in cases {
            let headers = ConnectHeaders::default();
            let error =
                connect(&mut Unwritable(left), &Host::Name("api.test".into()), 443, headers, false).await.unwrap_err();
            assert_eq!(text(error), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn hazard_the_body_of_a_refusal_is_not_waited_for_long() {
        let (mut client, mut proxy) = tokio::io::duplex(1024);
        proxy.write_all(b"HTTP/1.1 403 No\r\ncontent-length: 100\r\n\r\nbecause").await.unwrap();
        let start = clock::now();
        let headers = ConnectHeaders::default();
        let error = connect(&mut client, &Host::Name("api.test".into()), 443, headers, false).await.unwrap_err();
        assert_eq!(text(error), "the tunnel was unsuccessful, it answered 403 No: because");
        assert_eq!(clock::now() - start, REST_TIMEOUT);
    }
}
