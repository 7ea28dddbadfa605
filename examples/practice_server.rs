//! A server on loopback for trying the other examples: HTTP/1.1, and HTTP/2 by prior knowledge, on one port.
//!
//! `cargo run --example practice_server` listens on 127.0.0.1:8080, which the other examples ask when they are given no URL;
//! `-- PORT` listens on another port (0: any that is free). It prints its URL and ends after an hour.
//!
//! | request | response |
//! |---|---|
//! | `GET /v1/items`, `POST /v1/items` | JSON with a mistake in it; the JSON that was sent |
//! | `PUT /echo` | the body that was sent |
//! | `GET /busy` | 503 for every other request |
//! | `GET /slow` | an answer after 30 ms |
//! | `GET /late` | an answer at once, and every 30th after 300 ms |
//! | `GET /moved` | a redirect to `/` |
//! | `GET /hello` | a greeting to the `x-tenant` of the request |
//! | `POST /echo.Echo/Say` (gRPC) | the message that was sent |

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;

type Body = BoxBody<Bytes, Infallible>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port: u16 = std::env::args().nth(1).map_or(Ok(8080), |port| port.parse())?;
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    println!("http://{}", listener.local_addr()?);
    let _ = tokio::time::timeout(Duration::from_secs(3600), accept(listener)).await;
    Ok(())
}

async fn accept(listener: tokio::net::TcpListener) {
    while let Ok((socket, _)) = listener.accept().await {
        let _ = socket.set_nodelay(true);
        tokio::spawn(async move {
            let server = auto::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(socket), service_fn(answer)).await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    static BUSY: AtomicUsize = AtomicUsize::new(0);
    static LATE: AtomicUsize = AtomicUsize::new(0);
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|all| all.to_bytes()).unwrap_or_default();
    let response = match (&head.method, head.uri.path()) {
        (&Method::GET, "/v1/items") => text(r#"[{"name":"nut","size":3},{"name":"bolt","size":"large"}]"#),
        (&Method::POST, "/v1/items") | (_, "/echo") => text(body),
        (_, "/busy") if BUSY.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => {
            with_status(StatusCode::SERVICE_UNAVAILABLE, "too busy")
        }
        (_, "/busy" | "/") => text("done"),
        (_, "/slow") => {
            tokio::time::sleep(Duration::from_millis(30)).await;
            text("done")
        }
        (_, "/late") => {
            if LATE.fetch_add(1, Ordering::Relaxed) % 30 == 29 {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            text("done")
        }
        (_, "/moved") => {
            let mut response = with_status(StatusCode::FOUND, "");
            response.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
            response
        }
        (_, "/hello") => {
            let tenant = head.headers.get("x-tenant").and_then(|tenant| tenant.to_str().ok());
            text(format!("hello, {}", tenant.unwrap_or("stranger")))
        }
        (_, "/echo.Echo/Say") => grpc(body),
        _ => with_status(StatusCode::NOT_FOUND, r#"{"error":"there is no such page"}"#),
    };
    Ok(response)
}

fn text(text: impl Into<Bytes>) -> Response<Body> {
    Response::new(Full::new(text.into()).boxed())
}

fn with_status(status: StatusCode, body: &'static str) -> Response<Body> {
    let mut response = text(body);
    *response.status_mut() = status;
    response
}

/// A gRPC response whose message is `message`, with its five bytes of framing.
fn grpc(message: Bytes) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = [Ok(Frame::data(message)), Ok(Frame::trailers(trailers))];
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(stream::iter(frames))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}
