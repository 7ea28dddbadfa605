//! What RFC 9112 §6.3 says about the shape of an answer: its bytes, and what may be made of them.

use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::factors::factor;

use super::server::{Ending, Reply};
use super::{End, Framing, Method, Shape, Status, Trailers, Version};

factor! { Coding { Plain, Gzip, Deflate } }

/// What a call may come to.
#[derive(Debug, Clone)]
pub(super) enum Expected {
    Content(Vec<u8>),
    Error,
    /// The RFC allows both.
    ContentOrError(Vec<u8>),
}

pub(super) const CONTENT: &[u8] =
    b"what the server answers, which is long enough to be compressed: what the server answers";

impl Method {
    pub(super) fn name(self) -> &'static str {
        ["GET", "HEAD", "POST"][self as usize]
    }
}

impl Status {
    pub(super) fn code(self) -> u16 {
        [200, 204, 206, 304, 404, 500, 200][self as usize]
    }
}

/// Returns the bytes of an answer, and what is to be made of them.
pub(super) fn reply(shape: Shape) -> (Reply, Expected) {
    let encoded = encode(shape.coding);
    let content = if shape.framing == Framing::NoContent { &[][..] } else { &encoded };
    let has_no_content = shape.has_no_content();
    let mut bytes = Vec::new();
    if shape.status == Status::AfterHints {
        bytes.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\nlink: </x>; rel=preload\r\n\r\n");
    }
    let version = if shape.version == Version::Http10 { "1.0" } else { "1.1" };
    bytes.extend_from_slice(format!("HTTP/{version} {} Some reason\r\n", shape.status.code()).as_bytes());
    if shape.version == Version::Http10 && shape.end == End::Stays {
        bytes.extend_from_slice(b"connection: keep-alive\r\n");
    }
    let coding = [None, Some("gzip"), Some("deflate")][shape.coding as usize];
    if let Some(coding) = coding.filter(|_| shape.framing != Framing::NoContent) {
        bytes.extend_from_slice(format!("content-encoding: {coding}\r\n").as_bytes());
    }
    let length = |length: usize| format!("content-length: {length}\r\n");
    let chunked = "transfer-encoding: chunked\r\n".to_owned();
    let framing = match shape.framing {
        Framing::Length => length(content.len()),
        Framing::Chunked => chunked,
        Framing::Both => length(3) + &chunked,
        Framing::Neither => String::new(),
        Framing::Identity => "transfer-encoding: identity\r\n".to_owned() + &length(content.len()),
        Framing::TwoEqualLengths => length(content.len()) + &length(content.len()),
        Framing::TwoLengths => length(content.len()) + &length(content.len() + 1),
        Framing::NoContent => length(0),
    };
    bytes.extend_from_slice(framing.as_bytes());
    if shape.trailers == Trailers::Some {
        bytes.extend_from_slice(b"trailer: x-sum\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    let mut body = Vec::new();
    if matches!(shape.framing, Framing::Chunked | Framing::Both) {
        for chunk in content.chunks(20) {
            body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
        }
        let trailers = if shape.trailers == Trailers::Some { "x-sum: 7\r\n" } else { "" };
        body.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    } else {
        body.extend_from_slice(content);
    }
    if !has_no_content {
        let sent = if shape.end == End::Cut { body.len() - 10 } else { body.len() };
        bytes.extend_from_slice(&body[..sent]);
    }
    if shape.end == End::ExtraBytes {
        bytes.extend_from_slice(b"extra");
    }
    let ending = match shape.end {
        End::Stays => Ending::Stays,
        // Behind them, nothing can follow.
        End::ExtraBytes | End::Closes | End::Cut => Ending::Closes,
        End::NoNotice => Ending::NoNotice,
        End::HalfCloses => Ending::HalfCloses,
        End::Resets => Ending::Resets,
    };
    (Reply { bytes, ending }, expected(shape))
}

fn expected(shape: Shape) -> Expected {
    let whole = if shape.framing == Framing::NoContent { Vec::new() } else { CONTENT.to_vec() };
    // The content of HEAD, 204 and 304 is none, whatever the headers say (§6.3, 1). A contradiction in the headers is one nevertheless.
    let content = if shape.has_no_content() { Vec::new() } else { whole };
    let is_http10 = shape.version == Version::Http10;
    match shape.framing {
        // Lengths that differ are an unrecoverable error (§6.3, 5). The client may read on where there is no content.
        Framing::TwoLengths if shape.has_no_content() => Expected::ContentOrError(content),
        Framing::TwoLengths => Expected::Error,
        Framing::TwoEqualLengths if shape.end != End::Cut => Expected::ContentOrError(content),
        // A Transfer-Encoding beside a length, or in HTTP/1.0, may be an attack (§6.1, §6.3, 3).
        Framing::Both => match shape.end {
            End::Cut => Expected::Error,
            _ => Expected::ContentOrError(content),
        },
        Framing::Chunked | Framing::Identity if is_http10 => match shape.end {
            End::Cut => Expected::Error,
            _ => Expected::ContentOrError(content),
        },
        // What the end of the connection ends can be cut by a reset, and by nothing else.
        Framing::Neither if shape.has_no_content() => Expected::Content(content),
        Framing::Neither => match (shape.end, shape.coding) {
            (End::Resets, _) => Expected::ContentOrError(content),
            // Over TLS, what ends without a notice may have been cut (RFC 9112 §9.8).
            (End::NoNotice, Coding::Plain) => Expected::Error,
            // A coding has an end of its own.
            (End::NoNotice, _) => Expected::ContentOrError(content),
            (End::Cut, Coding::Plain) => Expected::Content(content[..content.len() - 10].to_vec()),
            (End::Cut, _) => Expected::Error,
            _ => Expected::Content(content),
        },
        _ if shape.end == End::Cut => Expected::Error,
        // All of it may have come before the reset, or not.
        _ if shape.end == End::Resets => Expected::ContentOrError(content),
        _ => Expected::Content(content),
    }
}

pub(super) fn encode(coding: Coding) -> Vec<u8> {
    match coding {
        Coding::Plain => CONTENT.to_vec(),
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(CONTENT).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(CONTENT).unwrap();
            encoder.finish().unwrap()
        }
    }
}
