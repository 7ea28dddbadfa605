//! HTTP/1.1, as strict as RFC 9112 allows a server to be.

use std::io::{self, BufRead, Read, Write};

use super::{Answer, Conn, Framing, Peeked, Response, Seen, Shared, StreamEnd, h2};

/// Serves requests until the client closes, or breaks a rule.
pub(super) fn serve(shared: &Shared, conn: Conn, mut stream: Peeked) -> io::Result<()> {
    loop {
        let head = read_head(&mut stream)?;
        if head.is_empty() {
            return Ok(());
        }
        if head == *b"PRI * HTTP/2.0\r\n\r\n" {
            let mut rest = [0; 6];
            stream.read_exact(&mut rest)?;
            return h2::serve(shared, conn, &mut stream);
        }
        let mut seen = match parse_head(&head) {
            Ok(seen) => seen,
            Err(what) => {
                shared.violation(conn, format!("{what} in {:?}", String::from_utf8_lossy(&head)));
                return Ok(());
            }
        };
        if seen.method == "CONNECT" {
            stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            return shared.serve(conn, Box::new(stream));
        }
        let kept = shared.begin(conn, &mut seen);
        let answer = shared.answer(&seen);
        let Answer::Response(response) = answer else { return Ok(()) };
        if !seen.values("expect").is_empty() && !response.is_http10 {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let read = read_content(&mut stream, &mut seen);
        seen.complete = matches!(read, Ok(Ok(())));
        shared.update(&kept, &seen);
        if let Err(what) = read? {
            shared.violation(conn, format!("{what} in the content of {} {}", seen.method, seen.target));
            return Ok(());
        }
        std::thread::sleep(response.after);
        write_response(&mut stream, &seen.method, &response)?;
        if response.end == StreamEnd::Goaway {
            return Ok(());
        }
    }
}

/// Reads up to an empty line. Returns nothing if the client closes before the first byte.
fn read_head(stream: &mut Peeked) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.0.read_until(b'\n', &mut head)? == 0 {
            return if head.is_empty() { Ok(head) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
    }
    Ok(head)
}

fn parse_head(head: &[u8]) -> Result<Seen, String> {
    let head = std::str::from_utf8(head).map_err(|_| "bytes that are no text")?;
    let mut lines = head.strip_suffix("\r\n\r\n").ok_or("no end")?.split("\r\n");
    let line: Vec<_> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = line[..] else { return Err("a request line without three parts".to_owned()) };
    // To a server that has answered with HTTP/1.0, a client may speak that (RFC 9112 §2.3).
    let is_http10 = version == "HTTP/1.0";
    if !(is_http10 || version == "HTTP/1.1")
        || !is_token(method)
        || target.is_empty()
        || target.bytes().any(|byte| !byte.is_ascii_graphic())
    {
        return Err("a wrong request line".to_owned());
    }
    let headers = lines.map(parse_field).collect::<Result<Vec<_>, _>>()?;
    let mut seen = Seen { method: method.to_owned(), target: target.to_owned(), headers, ..Seen::default() };
    if seen.values("host").len() != 1 {
        return Err(format!("{} Host headers", seen.values("host").len()));
    }
    seen.framing = match (&seen.values("transfer-encoding")[..], &seen.values("content-length")[..]) {
        ([], []) => Framing::None,
        (["chunked"], []) => Framing::Chunked,
        ([], [length]) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            Framing::Length(length.parse().map_err(|_| "a wrong length")?)
        }
        (codings, lengths) => return Err(format!("a framing by {codings:?} and {lengths:?}")),
    };
    if is_http10 && seen.framing == Framing::Chunked {
        return Err("chunks for HTTP/1.0".to_owned());
    }
    if !seen.values("trailer").is_empty() && seen.framing != Framing::Chunked {
        return Err("a Trailer header without chunks".to_owned());
    }
    Ok(seen)
}

/// Parses a field line (RFC 9112 §5).
fn parse_field(line: &str) -> Result<(String, String), String> {
    let (name, value) = line.split_once(':').ok_or_else(|| format!("no colon in {line:?}"))?;
    let is_visible = |byte: u8| byte == b' ' || byte == b'\t' || (byte > b' ' && byte != 0x7f);
    let trimmed = value.trim_matches([' ', '\t']);
    if !is_token(name) || !trimmed.bytes().all(is_visible) {
        return Err(format!("a wrong field {line:?}"));
    }
    Ok((name.to_ascii_lowercase(), trimmed.to_owned()))
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Reads the content of a request. The inner error is a break of the rules.
fn read_content(stream: &mut Peeked, seen: &mut Seen) -> io::Result<Result<(), String>> {
    match seen.framing {
        Framing::None | Framing::Frames => Ok(Ok(())),
        Framing::Length(length) => {
            let read = Read::take(&mut *stream, length).read_to_end(&mut seen.body)?;
            if read as u64 == length { Ok(Ok(())) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        }
        Framing::Chunked => loop {
            let line = read_line(stream)?;
            let is_size = !line.is_empty() && line.len() <= 8 && line.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !is_size {
                return Ok(Err(format!("a chunk of size {line:?}")));
            }
            let size = u64::from_str_radix(&line, 16).unwrap();
            if size == 0 {
                break read_trailers(stream, seen);
            }
            if Read::take(&mut *stream, size).read_to_end(&mut seen.body)? as u64 != size {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if !read_line(stream)?.is_empty() {
                return Ok(Err("bytes behind a chunk".to_owned()));
            }
        },
    }
}

fn read_trailers(stream: &mut Peeked, seen: &mut Seen) -> io::Result<Result<(), String>> {
    let announced = seen.values("trailer").join(",").to_ascii_lowercase();
    loop {
        let line = read_line(stream)?;
        if line.is_empty() {
            return Ok(Ok(()));
        }
        match parse_field(&line) {
            Ok((name, _)) if !announced.split(',').any(|other| other.trim() == name) => {
                return Ok(Err(format!("a trailer {name} that was not announced")));
            }
            Ok(trailer) => seen.trailers.push(trailer),
            Err(what) => return Ok(Err(what)),
        }
    }
}

/// Reads a line, without its end.
fn read_line(stream: &mut Peeked) -> io::Result<String> {
    let mut line = Vec::new();
    stream.0.read_until(b'\n', &mut line)?;
    let text = line.strip_suffix(b"\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    String::from_utf8(text.to_vec()).map_err(io::Error::other)
}

fn write_response(stream: &mut Peeked, method: &str, response: &Response) -> io::Result<()> {
    let version = if response.is_http10 { "HTTP/1.0" } else { "HTTP/1.1" };
    let mut head = format!("{version} {} Some reason\r\n", response.status);
    if response.is_http10 {
        head.push_str("connection: keep-alive\r\n");
    }
    for (name, value) in &response.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let (length, body) = (response.body.len(), response.body.as_slice());
    let mut content = Vec::new();
    if response.is_unsized {
        head.push_str("transfer-encoding: chunked\r\n\r\n");
        content.extend_from_slice(format!("{length:x}\r\n").as_bytes());
        content.extend_from_slice(body);
        content.extend_from_slice(b"\r\n0\r\n\r\n");
    } else {
        head.push_str(&format!("content-length: {length}\r\n\r\n"));
        content.extend_from_slice(body);
    }
    let mut message = head.into_bytes();
    if method != "HEAD" {
        message.extend_from_slice(&content);
    }
    stream.write_all(&message)
}
