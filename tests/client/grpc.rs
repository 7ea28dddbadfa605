//! A gRPC server that echoes messages, without generated code.

use std::net::Ipv4Addr;

use bytes::{Buf, BufMut, Bytes};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// A codec that passes messages on unchanged.
#[derive(Clone, Copy, Default)]
pub(super) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// Starts a gRPC server that echoes each message, or fails with NOT_FOUND if the path ends in `Fail`. Returns its port.
pub(super) async fn grpc() -> u16 {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| async move {
                let fails = request.uri().path().ends_with("Fail");
                let message = request.into_body().collect().await?.to_bytes();
                let mut trailers = hyper::HeaderMap::new();
                trailers.insert("grpc-status", if fails { "5" } else { "0" }.parse().expect("a valid header"));
                trailers.insert("grpc-message", "nobody%20is%20there".parse().expect("a valid header"));
                let message = if fails { Bytes::new() } else { message };
                let frames = [Ok::<_, hyper::Error>(Frame::data(message)), Ok(Frame::trailers(trailers))];
                let response = hyper::Response::builder().header("content-type", "application/grpc");
                Ok::<_, hyper::Error>(
                    response.body(StreamBody::new(futures_util::stream::iter(frames))).expect("valid"),
                )
            });
            let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(serving.serve_connection(TokioIo::new(socket), service));
        }
    });
    port
}
