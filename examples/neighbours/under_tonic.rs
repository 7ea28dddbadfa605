//! speeddial's connector under a tonic channel: gRPC with its DNS cache, race, TLS and events.
//!
//! `cargo run --features hyper-util --example under_tonic`; its gRPC server, which says back what it hears, is built in.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::net::Ipv4Addr;

use bytes::{Buf, BufMut, Bytes};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{HeaderMap, Request, Response};
use speeddial::dns::{CachedResolver, FixedResolver};
use speeddial::interop::Connector;
use speeddial::trace::{Event, Observer, Record};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Endpoint;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = support::http_server::HttpServer::start_as(true, echo)?;
    let cache = CachedResolver::new(FixedResolver::new().with("api.test", [Ipv4Addr::LOCALHOST.into()]));

    let builder = speeddial::Client::builder().dns_cache(cache).observer(Lines);
    let connector = Connector::new(builder.http2_prior_knowledge())?;
    let endpoint = Endpoint::from_shared(format!("http://api.test:{}", server.address().port()))?;
    let mut grpc = tonic::client::Grpc::new(endpoint.connect_with_connector(connector).await?);
    for text in ["hello", "and once more, on the same connection"] {
        grpc.ready().await?;
        let path = hyper::http::uri::PathAndQuery::from_static("/echo.Echo/Say");
        let response = grpc.unary(tonic::Request::new(Bytes::from(text)), path, Text).await?;
        println!("said {text:?}, heard {:?}", response.into_inner());
    }
    Ok(())
}

/// Says what the connector does.
struct Lines;

impl Observer for Lines {
    fn observe(&self, record: &Record) {
        match &record.event {
            Event::DnsEnd(lookup) => println!("dns {}: {:?}", lookup.family, lookup.addresses),
            Event::AttemptEnd { address, error: None, .. } => println!("connected to {address}"),
            Event::Closed { cause, .. } => println!("closed: {cause}"),
            _ => {}
        }
    }
}

/// A gRPC method that sends each message back, frame and all.
async fn echo(request: Request<Incoming>) -> Response<support::http_server::ServerBody> {
    let message = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let trailers = HeaderMap::from_iter([("grpc-status".parse().expect("a name"), "0".parse().expect("a value"))]);
    let frames = [Ok(Frame::data(message)), Ok(Frame::trailers(trailers))];
    let mut response = Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed());
    response.headers_mut().insert("content-type", "application/grpc".parse().expect("a value"));
    response
}

/// Messages that are text, where others would be generated from a schema.
#[derive(Clone, Copy)]
struct Text;

impl Codec for Text {
    type Encode = Bytes;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Text {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, text: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(text);
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }
}
