//! The dialogue with a SOCKS5 proxy (RFC 1928), with a user name and a password (RFC 1929) or without.
//!
//! Exactly the bytes of the proxy's answers are read: what follows them is the origin's.

use std::io;
use std::net::IpAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::connect::error::TunnelError;
use crate::origin::{Credentials, Host};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const USERNAME_PASSWORD: u8 = 2;
const NO_METHOD_ACCEPTED: u8 = 0xff;
const USERNAME_PASSWORD_VERSION: u8 = 1;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const DOMAIN_NAME: u8 = 3;
const IPV6: u8 = 4;

/// The length of the longest name, user name or password in bytes. Each is preceded by its length in one byte.
pub(in crate::connect) const MAX_TEXT: usize = 255;

/// Asks the proxy at the other end of `stream` to connect to a host. After that the stream leads there.
///
/// The credentials must not be longer than [`MAX_TEXT`] each.
pub(in crate::connect) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    host: &Host,
    port: u16,
    credentials: Option<&Credentials>,
) -> Result<(), TunnelError> {
    let request = request(host, port)?;
    let mut dialogue = Dialogue { stream, has_answered: false, has_asked: false };
    if dialogue.choose_method(credentials.is_some()).await? == USERNAME_PASSWORD {
        let credentials = credentials.expect("the method was offered because there are credentials");
        dialogue.authenticate(credentials).await?;
    }
    dialogue.send(&request).await?;
    dialogue.has_asked = true;
    dialogue.read_reply(host).await
}

/// Returns the request for a connection to `host` (RFC 1928 §4).
fn request(host: &Host, port: u16) -> Result<Vec<u8>, TunnelError> {
    let mut request = vec![VERSION, CONNECT, 0];
    match host {
        Host::Ip(IpAddr::V4(ip)) => {
            request.push(IPV4);
            request.extend(ip.octets());
        }
        Host::Ip(IpAddr::V6(ip)) => {
            request.push(IPV6);
            request.extend(ip.octets());
        }
        Host::Name(name) => {
            let Some(text) = with_length(name.as_bytes()) else {
                let what =
                    format!("a name of {} bytes is too long for SOCKS5, which has room for {MAX_TEXT}", name.len());
                return Err(TunnelError::refused(what));
            };
            request.push(DOMAIN_NAME);
            request.extend(text);
        }
    }
    request.extend(port.to_be_bytes());
    Ok(request)
}

/// Returns a text behind its length; `None` if it is longer than [`MAX_TEXT`].
fn with_length(text: &[u8]) -> Option<Vec<u8>> {
    let length = u8::try_from(text.len()).ok()?;
    Some([&[length][..], text].concat())
}

/// The bytes to and from the proxy.
struct Dialogue<'a, S> {
    stream: &'a mut S,
    /// True if the proxy has sent anything.
    has_answered: bool,
    /// True if the proxy was asked to connect to the host.
    has_asked: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Dialogue<'_, S> {
    /// Offers the methods of authentication, and returns the one that the proxy chooses (RFC 1928 §3).
    ///
    /// A client with credentials also offers to go without, because the proxy may know it by its address, or have no
    /// users at all.
    async fn choose_method(&mut self, has_credentials: bool) -> Result<u8, TunnelError> {
        let offered: &[u8] =
            if has_credentials { &[NO_AUTHENTICATION, USERNAME_PASSWORD] } else { &[NO_AUTHENTICATION] };
        let count = u8::try_from(offered.len()).expect("there are two methods");
        self.send(&[&[VERSION, count][..], offered].concat()).await?;
        let version = self.read_byte().await?;
        check_version(version)?;
        match self.read_byte().await? {
            method if offered.contains(&method) => Ok(method),
            NO_METHOD_ACCEPTED if has_credentials => Err(TunnelError::needs_credentials(
                "it accepts neither a user name and password nor a client without them",
            )),
            NO_METHOD_ACCEPTED => {
                Err(TunnelError::needs_credentials("it does not accept a client without credentials"))
            }
            method => Err(TunnelError::refused(format!("it chose an authentication that was not offered ({method})"))),
        }
    }

    /// Sends the user name and the password (RFC 1929).
    async fn authenticate(&mut self, credentials: &Credentials) -> Result<(), TunnelError> {
        let text = |text| with_length(text).expect("the length was checked with the proxy's URL");
        let (username, password) = (text(credentials.username()), text(credentials.password()));
        self.send(&[&[USERNAME_PASSWORD_VERSION][..], &username, &password].concat()).await?;
        // Not checked, as in curl: some proxies put the version of SOCKS there.
        self.read_byte().await?;
        match self.read_byte().await? {
            0 => Ok(()),
            status => {
                let what = format!("it rejects the user name or the password (status {status})");
                Err(TunnelError::needs_credentials(what))
            }
        }
    }

    /// Reads the reply to the request (RFC 1928 §6), with the address from which the proxy connects.
    async fn read_reply(&mut self, host: &Host) -> Result<(), TunnelError> {
        let version = self.read_byte().await?;
        check_version(version)?;
        // Looked at before the rest, which some proxies leave out of a refusal.
        let reply = self.read_byte().await?;
        if reply != 0 {
            return Err(refusal(reply, host));
        }
        self.read_byte().await?; // reserved
        let address_length = match self.read_byte().await? {
            IPV4 => 4,
            IPV6 => 16,
            DOMAIN_NAME => usize::from(self.read_byte().await?),
            other => {
                return Err(TunnelError::refused(format!("its reply has an unknown type of address ({other})")));
            }
        };
        for _ in 0..address_length + size_of::<u16>() {
            self.read_byte().await?;
        }
        Ok(())
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), TunnelError> {
        let sent = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        sent.await.map_err(|error| TunnelError::broken(error, self.has_answered))
    }

    async fn read_byte(&mut self) -> Result<u8, TunnelError> {
        let byte = self.stream.read_u8().await.map_err(|error| {
            let broken = TunnelError::broken(error, self.has_answered);
            // A proxy that cannot reach a host may close the connection in place of a reply.
            if self.has_asked { broken.of_host() } else { broken }
        })?;
        self.has_answered = true;
        Ok(byte)
    }
}

fn check_version(version: u8) -> Result<(), TunnelError> {
    match version {
        VERSION => Ok(()),
        other => Err(TunnelError::refused(format!("it does not speak SOCKS5 (its answer begins with {other:#04x})"))),
    }
}

/// Returns the error for a reply other than success.
fn refusal(reply: u8, host: &Host) -> TunnelError {
    let meaning = match reply {
        1 => "general failure of the SOCKS server",
        2 => "connection not allowed by its rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "the packets' time to live expired",
        7 => "command not supported",
        8 => "type of address not supported",
        _ => "unknown reply",
    };
    let error = io::Error::other(format!("no connection to {host}: {meaning} (SOCKS5 reply {reply})"));
    match reply {
        7 => TunnelError::Refused(error),
        _ => TunnelError::HostRefused(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that each side of a dialogue sends.
    struct Scripted {
        proxy: Vec<u8>,
        client: Vec<u8>,
    }

    /// A dialogue in which the proxy asks for credentials and connects to a name.
    fn dialogue(username: &[u8], password: &[u8], name: &str) -> Scripted {
        let text = |text: &[u8]| with_length(text).unwrap();
        let client = [
            &[5, 2, 0, 2][..],
            &[&[1][..], &text(username), &text(password)].concat(),
            &[&[5, 1, 0, 3][..], &text(name.as_bytes()), &[0x1f, 0x90]].concat(),
        ];
        let proxy = [&[5, 2][..], &[1, 0], &[5, 0, 0, 1, 192, 0, 2, 1, 0x1f, 0x90]];
        Scripted { proxy: proxy.concat(), client: client.concat() }
    }

    /// Runs the dialogue against a proxy that sends these bytes, closes its side and reads to the end. Returns the
    /// result, what the client sent, and what it left unread.
    async fn run(
        answers: &[u8],
        host: &Host,
        credentials: Option<&Credentials>,
    ) -> (Result<(), TunnelError>, Vec<u8>, Vec<u8>) {
        let (mut client, mut proxy) = tokio::io::duplex(4096);
        proxy.write_all(answers).await.unwrap();
        proxy.shutdown().await.unwrap();
        let result = connect(&mut client, host, 8080, credentials).await;
        let mut unread = Vec::new();
        client.read_to_end(&mut unread).await.unwrap();
        drop(client);
        let mut sent = Vec::new();
        proxy.read_to_end(&mut sent).await.unwrap();
        (result, sent, unread)
    }

    fn text(error: TunnelError) -> String {
        match error {
            TunnelError::Unanswered(error) => format!("unanswered: {error}"),
            TunnelError::Refused(error) => format!("refused: {error}"),
            TunnelError::HostRefused(error) => format!("host refused: {error}"),
        }
    }

    fn name(name: &str) -> Host {
        Host::Name(name.into())
    }

    #[tokio::test]
    async fn names_and_credentials_of_255_bytes_are_sent() {
        let (long, longest_name) = ([0xe9; 255], "n".repeat(255));
        let cases: [(&[u8], &[u8], &str); 3] =
            [(b"me", b"secret", "api.test"), (b"me", b"", "a"), (&long, &long, &longest_name)];
        for (username, password, host) in cases {
            let Scripted { proxy, client } = dialogue(username, password, host);
            let credentials = Credentials::new(username, password);
            let (result, sent, unread) = run(&[&proxy[..], b"origin"].concat(), &name(host), Some(&credentials)).await;
            assert!(result.is_ok(), "{result:?}");
            assert_eq!(sent, client);
            assert_eq!(unread, b"origin", "what follows the reply is the origin's");
        }
        let (result, sent, _) = run(b"", &name(&"n".repeat(256)), None).await;
        let what = "a name of 256 bytes is too long for SOCKS5, which has room for 255";
        assert_eq!(text(result.unwrap_err()), format!("refused: {what}"));
        assert!(sent.is_empty());
    }

    #[tokio::test]
    async fn a_proxy_may_want_no_authentication_of_a_client_with_credentials() {
        let credentials = Credentials::new("me", "secret");
        for (credentials, greeting) in [(None, &[5, 1, 0][..]), (Some(&credentials), &[5, 2, 0, 2])] {
            let ip = Host::Ip([192, 0, 2, 1].into());
            let (result, sent, _) = run(&[5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0], &ip, credentials).await;
            assert!(result.is_ok(), "{result:?}");
            assert_eq!(sent, [greeting, &[5, 1, 0, 1, 192, 0, 2, 1, 0x1f, 0x90]].concat());
        }
    }

    #[tokio::test]
    async fn the_address_in_a_reply_is_of_any_type() {
        let ipv6 = [&[5, 0, 5, 0, 0, 4][..], &[0; 16], &[0, 80]].concat();
        let empty_name = [5, 0, 5, 0, 0, 3, 0, 0, 80];
        let long_name = [&[5, 0, 5, 0, 0, 3, 255][..], &[b'n'; 255], &[0, 80]].concat();
        for answers in [&ipv6[..], &empty_name, &long_name] {
            let host = Host::Ip("2001:db8::1".parse().unwrap());
            let (result, sent, unread) = run(&[answers, b"origin"].concat(), &host, None).await;
            assert!(result.is_ok() && unread == b"origin", "{result:?}, {unread:?}");
            assert_eq!(sent[3..7], [5, 1, 0, 4]);
        }
    }

    #[tokio::test]
    async fn hazard_a_proxy_that_closes_after_any_byte_is_an_error_that_says_so() {
        let Scripted { proxy, client } = dialogue(b"me", b"secret", "api.test");
        let credentials = Credentials::new("me", "secret");
        for length in 0..proxy.len() {
            let (result, sent, _) = run(&proxy[..length], &name("api.test"), Some(&credentials)).await;
            let expected = match length {
                0 => "unanswered: it closed the connection without an answer",
                // The choice of a method, and the answer to the credentials.
                1..4 => "refused: it closed the connection in the middle of its answer",
                _ => "host refused: it closed the connection in the middle of its answer",
            };
            assert_eq!(text(result.unwrap_err()), expected, "after {length} bytes");
            assert!(client.starts_with(&sent));
        }
    }

    #[tokio::test]
    async fn hazard_an_answer_that_is_not_socks5_or_a_refusal_has_its_own_words() {
        let failed = "no connection to api.test: ";
        let cases: [(&[u8], &str); 9] = [
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "refused: it does not speak SOCKS5 (its answer begins with 0x48)"),
            (b"\x04\x5b", "refused: it does not speak SOCKS5 (its answer begins with 0x04)"),
            (b"\x05\xff", "refused: it does not accept a client without credentials"),
            (b"\x05\x02", "refused: it chose an authentication that was not offered (2)"),
            (b"\x05\x00\x04", "refused: it does not speak SOCKS5 (its answer begins with 0x04)"),
            (b"\x05\x00\x05\x00\x00\x02", "refused: its reply has an unknown type of address (2)"),
            (b"\x05\x00\x05\x07", &format!("refused: {failed}command not supported (SOCKS5 reply 7)")),
            (b"\x05\x00\x05\x05", &format!("host refused: {failed}connection refused (SOCKS5 reply 5)")),
            (b"\x05\x00\x05\xf0", &format!("host refused: {failed}unknown reply (SOCKS5 reply 240)")),
        ];
        for (answers, expected) in cases {
            let (result, _, _) = run(answers, &name("api.test"), None).await;
            assert_eq!(text(result.unwrap_err()), expected);
        }
        let credentials = Credentials::new("me", "secret");
        for (answers, expected) in [
            (&b"\x05\xff"[..], "refused: it accepts neither a user name and password nor a client without them"),
            (b"\x05\x02\x01\x01", "refused: it rejects the user name or the password (status 1)"),
        ] {
            let (result, _, _) = run(answers, &name("api.test"), Some(&credentials)).await;
            assert_eq!(text(result.unwrap_err()), expected);
        }
    }

    #[test]
    fn every_reply_of_rfc_1928_has_its_meaning() {
        let meanings: Vec<_> = (1..=8).map(|reply| text(refusal(reply, &name("a")))).collect();
        assert!(meanings.iter().all(|meaning| !meaning.contains("unknown reply")), "{meanings:?}");
        let hosts = meanings.iter().filter(|meaning| meaning.starts_with("host refused")).count();
        assert_eq!(hosts, 7, "all but the unsupported command");
    }
}
