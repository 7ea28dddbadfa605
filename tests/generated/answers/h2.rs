//! The shapes of answers over HTTP/2, any three properties together.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use speeddial::{Body, Client};
use tokio::time::timeout;

use super::oracle::{CONTENT, Coding, Expected, encode};
use super::{AT_ONCE, Method, TOO_LONG};
use crate::covering::{self, Row};
use crate::factors::{self, factor};
use crate::strict::{Response, StreamEnd, Strict};

/// A shape of an answer over HTTP/2.
#[derive(Debug, Clone, Copy)]
struct Shape {
    method: Method,
    status: Status,
    length: Length,
    content: Content,
    coding: Coding,
    end: End,
    reader: Reader,
}

factor! { Status { Ok, NoContent, NotModified, NotFound } }

factor! { Length { Untold, Right, TooShort, TooLong } }

factor! { Content { None, Whole } }

factor! { End { Stream, Trailers, EmptyData, ResetNoError, ResetCancel, Goaway, Closes } }

factor! { Reader { Plain, PassedOn } }

impl Shape {
    const SIZES: [usize; 7] = [
        Method::ALL.len(),
        Status::ALL.len(),
        Length::ALL.len(),
        Content::ALL.len(),
        Coding::ALL.len(),
        End::ALL.len(),
        Reader::ALL.len(),
    ];

    fn of(row: &Row) -> Self {
        Self {
            method: Method::ALL[row[0]],
            status: Status::ALL[row[1]],
            length: Length::ALL[row[2]],
            content: Content::ALL[row[3]],
            coding: Coding::ALL[row[4]],
            end: End::ALL[row[5]],
            reader: Reader::ALL[row[6]],
        }
    }

    fn has_no_content(self) -> bool {
        self.method == Method::Head || matches!(self.status, Status::NoContent | Status::NotModified)
    }

    /// Returns false for what a server cannot do: to have content and to have none.
    fn makes_sense(self) -> bool {
        let is_empty = self.content == Content::None;
        (is_empty || !self.has_no_content())
            && !(is_empty && (self.length == Length::TooShort || self.coding != Coding::Plain))
    }

    fn response(self) -> Response {
        let body = if self.content == Content::None { Vec::new() } else { encode(self.coding) };
        let mut headers = Vec::new();
        if let Some(coding) = [None, Some("gzip"), Some("deflate")][self.coding as usize] {
            headers.push(("content-encoding", coding.to_owned()));
        }
        let length = match self.length {
            Length::Untold => None,
            Length::Right => Some(body.len()),
            Length::TooShort => Some(body.len() - 1),
            Length::TooLong => Some(body.len() + 1),
        };
        headers.extend(length.map(|length| ("content-length", length.to_string())));
        let end = match self.end {
            End::Stream => StreamEnd::Stream,
            End::Trailers => StreamEnd::Trailers,
            End::EmptyData => StreamEnd::EmptyData,
            End::ResetNoError => StreamEnd::Reset(0),
            End::ResetCancel => StreamEnd::Reset(8),
            End::Goaway => StreamEnd::Goaway,
            End::Closes => StreamEnd::Closes,
        };
        let status = [200, 204, 304, 404][self.status as usize];
        Response { status, headers, body, is_unsized: true, after: Duration::ZERO, is_http10: false, end }
    }

    fn expected(self) -> Expected {
        let content = if self.content == Content::None { Vec::new() } else { CONTENT.to_vec() };
        let is_whole = matches!(self.end, End::Stream | End::Trailers | End::EmptyData | End::Goaway);
        // A length of what is not sent is one of something else (RFC 9110 §8.6).
        let is_promised = self.has_no_content() || !matches!(self.length, Length::TooShort | Length::TooLong);
        match self.end {
            _ if is_whole && is_promised => Expected::Content(content),
            _ if is_whole => Expected::Error,
            // A server may reset what it has answered (RFC 9113 §8.1), and a client may find that all of a told length has come.
            End::ResetNoError => Expected::ContentOrError(content),
            _ if self.length == Length::Right || self.has_no_content() => Expected::ContentOrError(content),
            _ => Expected::Error,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, status, length, content, coding, end, reader } = self;
        write!(f, "{method:?} {status:?} {length:?} {content:?} {coding:?} {end:?} {reader:?}")
    }
}

#[test]
fn each_shape_of_an_answer_over_http2_is_read_as_the_rfcs_say() {
    let directory = std::env::temp_dir().join(format!("speeddial-answers-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let server = Strict::start(&directory);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (seed, rounds) = (factors::number("SEED", 1), factors::number("ROUNDS", 1));
    for seed in seed..seed + rounds {
        let rows = covering::rows(&Shape::SIZES, 3, seed, |row| Shape::of(row).makes_sense());
        let shapes: Vec<_> = rows.iter().map(Shape::of).filter(factors::is_chosen).collect();
        let mut failed: Vec<String> = runtime.block_on(async {
            let server = &server;
            let calls = shapes.iter().map(|shape| async move {
                let result = timeout(TOO_LONG, try_one(*shape, server)).await;
                let result = result.unwrap_or_else(|_| Err("it hangs".to_owned()));
                result.err().map(|what| format!("{shape}: {what}, in place of {:?}", shape.expected()))
            });
            let results: Vec<_> = stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
            results.into_iter().flatten().collect()
        });
        failed.extend(server.violations());
        assert!(failed.is_empty(), "SEED={seed}: {} of {} failed\n{}", failed.len(), shapes.len(), failed.join("\n"));
    }
    let _ = std::fs::remove_dir_all(directory);
}

async fn try_one(shape: Shape, server: &Strict) -> Result<(), String> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let id = format!("a{}", NEXT.fetch_add(1, Ordering::Relaxed));
    server.answer_with(&id, shape.response());
    let client = Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let url = |id: &str, step: &str| format!("http://{}/{id}/v11/{step}", server.address());
    let request = client.request(shape.method.name().parse().unwrap(), url(&id, "given"));
    let told = async {
        let response = request.send().await.map_err(|error| format!("{error:?}"))?;
        let status = response.status().as_u16();
        if status != shape.response().status {
            return Err(format!("the status {status}"));
        }
        if shape.reader == Reader::PassedOn {
            let id = format!("{id}-on");
            let on = client.post(url(&id, "plain")).body(Body::from(response)).send().await;
            on.map_err(|error| format!("{error:?}"))?;
            let seen = server.seen(&id).into_iter().find(|seen| seen.complete);
            return seen.map(|seen| seen.body).ok_or_else(|| "nothing was passed on".to_owned());
        }
        Ok(response.bytes().await.map_err(|error| format!("{error:?}"))?.to_vec())
    };
    let told = told.await;
    let fits = match (&told, shape.expected()) {
        (Ok(body), Expected::Content(content) | Expected::ContentOrError(content)) => *body == content,
        (Err(_), Expected::Error | Expected::ContentOrError(_)) => true,
        _ => false,
    };
    if !fits {
        return Err(format!("{:?}", told.map(|body| String::from_utf8_lossy(&body).into_owned())));
    }
    let next = client.get(url(&format!("{id}-next"), "plain")).send().await;
    let next = next.map_err(|error| format!("the next call: {error:?}"))?.text().await;
    if next.as_deref().ok() != Some("ok") {
        return Err(format!("the next response: {next:?}"));
    }
    factors::settles(&client).await
}
