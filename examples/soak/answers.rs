//! The responses of the servers.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response};
use support::{ServerBody, full};
use tokio::io::{copy, split};

/// The body of `/small`.
pub(crate) const SMALL: &str =
    "A small body, as most answers of services have: a hundred bytes, more or less, of text or of JSON.";
/// The pieces of the body of `/big`.
pub(crate) const PIECES: usize = 32;
/// The length of a piece.
pub(crate) const PIECE: usize = 8 * 1024;

/// The most milliseconds that a server takes for an answer.
const MOST_WORK: u64 = 20;

/// Answers a request by its path.
pub(crate) async fn answer(mut request: Request<Incoming>) -> Result<Response<ServerBody>, Infallible> {
    static BUSY: AtomicU64 = AtomicU64::new(0);
    let path = request.uri().path().to_owned();
    tokio::time::sleep(Duration::from_millis(fastrand::u64(..MOST_WORK))).await;
    Ok(match path.as_str() {
        "/big" => Response::new(big()),
        "/echo" => match request.body_mut().collect().await {
            Ok(body) => Response::new(full(body.to_bytes())),
            Err(_) => status(400),
        },
        "/count" => Response::new(full(length(request.body_mut()).await.to_string())),
        "/redirect" => {
            let mut response = status(302);
            // The client says where to, so that the servers need not know of each other.
            let to = request.headers().get("x-to").cloned();
            response.headers_mut().extend(to.map(|to| (hyper::header::LOCATION, to)));
            response
        }
        "/busy" if BUSY.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) => status(503),
        "/slow" => {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Response::new(full(SMALL))
        }
        "/switch" => switch(&mut request),
        _ => Response::new(full(SMALL)),
    })
}

fn status(code: u16) -> Response<ServerBody> {
    let mut response = Response::new(full(""));
    *response.status_mut() = hyper::StatusCode::from_u16(code).unwrap_or_default();
    response
}

/// Returns a body that comes in pieces.
fn big() -> ServerBody {
    let pieces = (0..PIECES).map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'.'; PIECE]))));
    BodyExt::boxed(StreamBody::new(futures_util::stream::iter(pieces)))
}

async fn length(body: &mut Incoming) -> usize {
    let mut length = 0;
    while let Some(Ok(frame)) = body.frame().await {
        length += frame.data_ref().map_or(0, Bytes::len);
    }
    length
}

/// Switches to a protocol that sends back what it gets.
fn switch(request: &mut Request<Incoming>) -> Response<ServerBody> {
    let stream = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let Ok(stream) = stream.await else { return };
        let (mut reader, mut writer) = split(hyper_util::rt::TokioIo::new(stream));
        let _ = copy(&mut reader, &mut writer).await;
    });
    let mut response = status(101);
    let headers = response.headers_mut();
    headers.insert("connection", hyper::header::HeaderValue::from_static("upgrade"));
    headers.insert("upgrade", hyper::header::HeaderValue::from_static("echo"));
    response
}
