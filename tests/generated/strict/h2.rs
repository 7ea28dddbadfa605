//! HTTP/2, as strict as RFC 9113 allows a server to be.

use std::collections::HashMap;
use std::io::{self, Read, Write};

use loona_hpack::Decoder;

use super::{Answer, Conn, Framing, Response, Seen, Shared, StreamEnd};

/// The bytes with which a client begins (RFC 9113 §3.4).
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 0x20;
/// The largest frame before SETTINGS allow another one.
const MAX_FRAME: usize = 16_384;

/// A request that is under way.
struct Open {
    seen: Seen,
    kept: (String, usize),
    response: Response,
}

struct Peer<'a, S> {
    shared: &'a Shared,
    conn: Conn,
    stream: &'a mut S,
    decoder: Decoder<'a>,
    open: HashMap<u32, Open>,
    last: u32,
}

/// Serves the frames that follow the preface until the client closes, or breaks a rule.
pub(super) fn serve<S: Read + Write>(shared: &Shared, conn: Conn, stream: &mut S) -> io::Result<()> {
    let mut peer = Peer { shared, conn, stream, decoder: Decoder::new(), open: HashMap::new(), last: 0 };
    peer.send(SETTINGS, 0, 0, &[])?;
    loop {
        let (kind, flags, number, payload) = peer.read()?;
        match peer.take(kind, flags, number, payload)? {
            Taken::More => {}
            Taken::End => return Ok(()),
            Taken::Violation(what) => {
                shared.violation(conn, what);
                return Ok(());
            }
        }
    }
}

enum Taken {
    More,
    /// The server closes.
    End,
    Violation(String),
}

impl<S: Read + Write> Peer<'_, S> {
    fn read(&mut self) -> io::Result<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        if length > MAX_FRAME {
            self.shared.violation(self.conn, format!("a frame of {length} bytes"));
        }
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload)?;
        Ok((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
    }

    fn send(&mut self, kind: u8, flags: u8, number: u32, payload: &[u8]) -> io::Result<()> {
        let length = (payload.len() as u32).to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&number.to_be_bytes());
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame)
    }

    fn take(&mut self, kind: u8, flags: u8, number: u32, payload: Vec<u8>) -> io::Result<Taken> {
        match kind {
            SETTINGS if flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[])?,
            PING if flags & ACK == 0 => self.send(PING, ACK, 0, &payload)?,
            SETTINGS | PING | WINDOW_UPDATE | PRIORITY => {}
            GOAWAY => return Ok(Taken::End),
            RST_STREAM => drop(self.open.remove(&number)),
            HEADERS => return self.take_headers(flags, number, payload),
            DATA => {
                let Some(open) = self.open.get_mut(&number) else {
                    return Ok(Taken::Violation(format!("DATA on stream {number}, which is not open")));
                };
                if flags & PADDED != 0 {
                    return Ok(Taken::Violation("padding, which no client should need".to_owned()));
                }
                open.seen.body.extend_from_slice(&payload);
                if !payload.is_empty() {
                    let size = (payload.len() as u32).to_be_bytes();
                    self.send(WINDOW_UPDATE, 0, 0, &size)?;
                }
                if flags & END_STREAM != 0 {
                    return self.end(number);
                }
            }
            kind => return Ok(Taken::Violation(format!("a frame of type {kind}"))),
        }
        Ok(Taken::More)
    }

    fn take_headers(&mut self, mut flags: u8, number: u32, payload: Vec<u8>) -> io::Result<Taken> {
        let is_last = flags & END_STREAM != 0;
        let from = if flags & WITH_PRIORITY != 0 { 5 } else { 0 };
        let mut block = payload.get(from..).unwrap_or_default().to_vec();
        while flags & END_HEADERS == 0 {
            let (kind, more, other, payload) = self.read()?;
            if kind != CONTINUATION || other != number {
                return Ok(Taken::Violation("a header block that breaks off".to_owned()));
            }
            flags |= more & END_HEADERS;
            block.extend_from_slice(&payload);
        }
        let Ok(fields) = self.decoder.decode(&block) else {
            return Ok(Taken::Violation("a header block that cannot be decoded".to_owned()));
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let fields: Vec<_> = fields.into_iter().map(|(name, value)| (text(name), text(value))).collect();
        if let Some(what) = wrong_field(&fields) {
            return Ok(Taken::Violation(what));
        }
        if let Some(open) = self.open.get_mut(&number) {
            if !is_last || fields.iter().any(|(name, _)| name.starts_with(':')) {
                return Ok(Taken::Violation("trailers that are none".to_owned()));
            }
            open.seen.trailers = fields;
            return self.end(number);
        }
        if number <= self.last || number.is_multiple_of(2) {
            return Ok(Taken::Violation(format!("stream {number} after {}", self.last)));
        }
        self.last = number;
        let mut seen = match request(fields) {
            Ok(seen) => seen,
            Err(what) => return Ok(Taken::Violation(what)),
        };
        let kept = self.shared.begin(self.conn, &mut seen);
        let Answer::Response(response) = self.shared.answer(&seen) else { return Ok(Taken::End) };
        if !seen.values("expect").is_empty() {
            let block = block_of(&[(":status", "100".to_owned())]);
            self.send(HEADERS, END_HEADERS, number, &block)?;
        }
        self.open.insert(number, Open { seen, kept, response });
        if is_last { self.end(number) } else { Ok(Taken::More) }
    }

    /// Answers a request that has come to its end.
    fn end(&mut self, number: u32) -> io::Result<Taken> {
        let Open { mut seen, kept, response } = self.open.remove(&number).unwrap();
        seen.complete = true;
        self.shared.update(&kept, &seen);
        let lengths = seen.values("content-length");
        if lengths.len() > 1 || lengths.iter().any(|length| length.parse() != Ok(seen.body.len())) {
            return Ok(Taken::Violation(format!("lengths {lengths:?} and {} bytes of content", seen.body.len())));
        }
        std::thread::sleep(response.after);
        let mut fields = vec![(":status", response.status.to_string())];
        fields.extend(response.headers.iter().cloned());
        if !response.is_unsized {
            fields.push(("content-length", response.body.len().to_string()));
        }
        let has_body = seen.method != "HEAD" && !response.body.is_empty();
        if response.end == StreamEnd::Goaway {
            self.send(GOAWAY, 0, 0, &[number.to_be_bytes(), [0; 4]].concat())?;
        }
        let ends = if matches!(response.end, StreamEnd::Stream | StreamEnd::Goaway) { END_STREAM } else { 0 };
        self.send(HEADERS, END_HEADERS | if has_body { 0 } else { ends }, number, &block_of(&fields))?;
        if has_body {
            self.send(DATA, ends, number, &response.body)?;
        }
        match response.end {
            StreamEnd::Stream | StreamEnd::Goaway => {}
            StreamEnd::Trailers => {
                let trailers = block_of(&[("x-sum", "7".to_owned())]);
                self.send(HEADERS, END_HEADERS | END_STREAM, number, &trailers)?;
            }
            StreamEnd::EmptyData => self.send(DATA, END_STREAM, number, &[])?,
            StreamEnd::Reset(code) => self.send(RST_STREAM, 0, number, &code.to_be_bytes())?,
            StreamEnd::Closes => return Ok(Taken::End),
        }
        Ok(Taken::More)
    }
}

/// Returns what is wrong with a header section, if anything is (RFC 9113 §8.2).
fn wrong_field(fields: &[(String, String)]) -> Option<String> {
    let regular = fields.iter().skip_while(|(name, _)| name.starts_with(':'));
    for (name, value) in regular {
        let is_of_connection =
            ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"].contains(&name.as_str());
        let is_named =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase());
        if is_of_connection || !is_named || name.contains(':') || (name == "te" && value != "trailers") {
            return Some(format!("a wrong field {name:?}: {value:?}"));
        }
    }
    None
}

fn request(fields: Vec<(String, String)>) -> Result<Seen, String> {
    let pseudo = |name: &str| {
        let mut values = fields.iter().filter(|(other, _)| other == name).map(|(_, value)| value.clone());
        match (values.next(), values.next()) {
            (Some(value), None) if !value.is_empty() => Ok(value),
            found => Err(format!("{name} is {found:?}")),
        }
    };
    let (method, path) = (pseudo(":method")?, pseudo(":path")?);
    pseudo(":scheme")?;
    pseudo(":authority")?;
    let (pseudo, headers): (Vec<_>, Vec<_>) = fields.into_iter().partition(|(name, _)| name.starts_with(':'));
    if pseudo.len() != 4 {
        return Err(format!("{pseudo:?}"));
    }
    Ok(Seen { method, target: path, headers, framing: Framing::Frames, ..Seen::default() })
}

/// Encodes fields as literals without an index and without Huffman codes (RFC 7541 §6.2.2).
fn block_of(fields: &[(&str, String)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value.as_str()] {
            assert!(text.len() < 127, "short texts have a length of one byte");
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}
