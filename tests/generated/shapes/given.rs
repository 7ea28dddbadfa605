//! The body that a shape gives to its request, and what is to be known of it.

use std::path::Path;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::HeaderMap;
use http_body_util::StreamBody;
use hyper::body::Frame;
use speeddial::multipart::{Form, Part};
use speeddial::{Client, RequestBuilder};

use super::{Body, Shape};

/// What is given to a request as its body.
pub(super) struct Given {
    pub bytes: Vec<u8>,
    /// True if the client can know the length beforehand.
    pub is_sized: bool,
    /// True if the body can be sent again.
    pub is_replayable: bool,
    pub trailers: Vec<(String, String)>,
    pub end: End,
}

/// The way in which a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Whole,
    /// The body fails, panics or stalls before its end.
    Broken,
}

/// The text of most bodies.
const TEXT: &str = "what was given";

/// Gives a request its body. `source` is a URL with a response that can be passed on.
pub(super) async fn give(
    request: RequestBuilder,
    shape: Shape,
    client: &Client,
    source: &str,
    directory: &Path,
) -> (RequestBuilder, Given) {
    let whole = Given {
        bytes: TEXT.as_bytes().to_vec(),
        is_sized: true,
        is_replayable: true,
        trailers: Vec::new(),
        end: End::Whole,
    };
    let once = Given { is_replayable: false, ..whole };
    let pieces = || stream::iter(["what ", "was ", "given"].map(Ok::<_, std::io::Error>));
    let trailers = || HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]);
    let listed = || vec![("x-sum".to_owned(), "7".to_owned())];
    let broken = Given { is_sized: false, end: End::Broken, ..Given { is_replayable: false, ..empty() } };
    match shape.body {
        Body::None => (request, Given { is_replayable: true, is_sized: true, ..empty() }),
        Body::Bytes => (request.body(TEXT), Given { is_replayable: true, ..once }),
        Body::Sized => (request.body(speeddial::Body::sized(TEXT.len() as u64, pieces())), once),
        Body::Unsized => (request.body(speeddial::Body::wrap_stream(pieces())), Given { is_sized: false, ..once }),
        Body::Empty => {
            let nothing = stream::empty::<Result<Bytes, std::io::Error>>();
            (request.body(speeddial::Body::wrap_stream(nothing)), empty())
        }
        Body::Fails => {
            let fails = pieces().take(1).chain(stream::iter([Err(std::io::Error::other("the source broke"))]));
            (request.body(speeddial::Body::wrap_stream(fails)), broken)
        }
        Body::Panics => {
            let panics = stream::once(async { panic!("{EXPECTED_PANIC}") });
            (request.body(speeddial::Body::wrap_stream(pieces().take(1).chain(panics))), broken)
        }
        Body::Stalls => (request.body(speeddial::Body::wrap_stream(pieces().take(1).chain(stream::pending()))), broken),
        Body::File => {
            let path = directory.join("given");
            (request.body(speeddial::Body::file(path).await.unwrap()), Given { is_replayable: true, ..once })
        }
        Body::Proc => {
            let path = if cfg!(target_os = "linux") { Path::new("/proc/version") } else { &directory.join("given") };
            let body = speeddial::Body::file(path).await.unwrap();
            let given = Given {
                bytes: std::fs::read(path).unwrap(),
                is_sized: body.content_length().is_some(),
                is_replayable: body.try_clone().is_some(),
                ..once
            };
            (request.body(body), given)
        }
        Body::Form => {
            let given = Given { bytes: b"field=a+value%21".to_vec(), is_replayable: true, ..once };
            (request.form(&[("field", "a value!")]), given)
        }
        Body::Multipart => {
            let form = Form::new().text("field", TEXT);
            let bytes = multipart(form.boundary());
            (request.multipart(form), Given { bytes, is_replayable: true, ..once })
        }
        Body::MultipartOfStream => {
            let form = Form::new().part("field", Part::stream(speeddial::Body::wrap_stream(pieces())));
            let bytes = multipart(form.boundary());
            (request.multipart(form), Given { bytes, is_sized: false, ..once })
        }
        Body::WithTrailers => {
            let body = speeddial::Body::from(TEXT).with_trailers(trailers());
            let is_replayable = body.try_clone().is_some();
            (request.body(body), Given { is_sized: false, is_replayable, trailers: listed(), ..once })
        }
        Body::Wrapped => {
            let data = pieces().map(|piece| piece.map(|piece| Frame::data(Bytes::from(piece))));
            let frames = data.chain(stream::iter([Ok(Frame::trailers(trailers()))]));
            let body = speeddial::Body::wrap(StreamBody::new(frames));
            (request.header("trailer", "x-sum").body(body), Given { is_sized: false, trailers: listed(), ..once })
        }
        Body::PassedOn => {
            let response = client.get(source).send().await.unwrap();
            let is_sized = response.content_length().is_some();
            (request.body(response), Given { bytes: b"passed on".to_vec(), is_sized, ..once })
        }
    }
}

/// The text of the panic that a body is made for.
pub(super) const EXPECTED_PANIC: &str = "the source panicked, as it should";

/// Writes the file that some bodies are read from.
pub(super) fn prepare(directory: &Path) {
    std::fs::write(directory.join("given"), TEXT).unwrap();
}

fn empty() -> Given {
    Given { bytes: Vec::new(), is_sized: false, is_replayable: false, trailers: Vec::new(), end: End::Whole }
}

/// Returns a form with one field of text (RFC 7578).
fn multipart(boundary: &str) -> Vec<u8> {
    let disposition = "Content-Disposition: form-data; name=\"field\"";
    format!("--{boundary}\r\n{disposition}\r\n\r\n{TEXT}\r\n--{boundary}--\r\n").into_bytes()
}
