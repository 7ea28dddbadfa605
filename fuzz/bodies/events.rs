//! Server-sent events: the same from the same bytes, however these are cut.

use futures_util::StreamExt;
use speeddial::bytes::Bytes;
use speeddial::sse::Event;
use speeddial::{Body, Response, http};

use crate::common::block_on;

const MAX_LINE: usize = 64;
const MAX_EVENT: usize = 100;

/// Reads the bytes as an event stream: in one piece, byte by byte, and in pieces of lengths that the bytes choose.
pub(crate) fn run(data: &[u8]) {
    block_on(async {
        let whole = events(vec![data.to_vec()]).await;
        let bytes = data.iter().map(|byte| vec![*byte]).collect();
        assert_eq!(events(bytes).await, whole, "byte by byte");
        let (mut pieces, mut rest) = (Vec::new(), data);
        while let Some(first) = rest.first() {
            let length = (usize::from(*first) % 11).clamp(1, rest.len());
            pieces.push(rest[..length].to_vec());
            rest = &rest[length..];
            // An empty piece changes nothing.
            pieces.push(Vec::new());
        }
        assert_eq!(events(pieces).await, whole, "in pieces");
    });
}

/// The events of a stream, what it can be resumed with, and the error that ended it.
#[derive(Debug, PartialEq)]
struct Read {
    events: Vec<Event>,
    last_id: String,
    error: Option<String>,
}

async fn events(pieces: Vec<Vec<u8>>) -> Read {
    let body = Body::wrap_stream(futures_util::stream::iter(
        pieces.into_iter().map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece))),
    ));
    let message = http::Response::builder().header("content-type", "text/event-stream").body(body).expect("a response");
    let mut stream = Response::from(message).events().max_line(MAX_LINE).max_event(MAX_EVENT);
    let (mut events, mut error) = (Vec::new(), None);
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                assert!(event.data.len() <= MAX_EVENT && !event.data.contains('\r'), "{event:?}");
                assert!(!event.event.is_empty() && !event.event.contains(['\r', '\n']), "{event:?}");
                assert!(!event.id.contains(['\r', '\n', '\0']), "{event:?}");
                events.push(event);
            }
            Err(end) => {
                assert_eq!(error, None, "an event after the error that ends the stream");
                error = Some(end.to_string());
            }
        }
    }
    Read { events, last_id: stream.last_event_id().to_owned(), error }
}
