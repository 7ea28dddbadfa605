//! speeddial's connector under a tonic channel: gRPC with its DNS cache, race, TLS and events.
//!
//! `cargo run --features hyper-util --example under_tonic`; it asks `practice_server`, or the URL that it is given.

#![allow(clippy::print_stdout, reason = "an example prints")]

use bytes::{Buf, BufMut, Bytes};
use hyper::http::uri::PathAndQuery;
use speeddial::interop::Connector;
use speeddial::trace::{Event, Observer, Record};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Endpoint;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or("http://localhost:8080".to_owned());
    let connector = Connector::new(speeddial::Client::builder().observer(Lines).http2_prior_knowledge())?;
    let channel = Endpoint::from_shared(url)?.connect_with_connector(connector).await?;
    let mut grpc = tonic::client::Grpc::new(channel);
    for text in ["hello", "and once more, on the same connection"] {
        grpc.ready().await?;
        let path = PathAndQuery::from_static("/echo.Echo/Say");
        let response = grpc.unary(tonic::Request::new(Bytes::from(text)), path, Text).await?;
        println!("said {text:?}, heard {:?}", response.into_inner());
    }
    Ok(())
}

/// Prints the steps of the connector.
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

/// A codec for messages that are text. In a service, tonic generates codecs from a schema.
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
