//! The HTTP handshake: a connected stream becomes a connection that is ready to be served.
//!
//! For HTTP/1.1 nothing is sent. For HTTP/2 the client sends its preface and settings (RFC 9113 §3.4); the server's
//! settings are not waited for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;

use super::connected::ConnectedStream;
use super::http_config::{Http1Config, Http2Config, HttpConfig};
use super::serve::{OpenedConn, Serving};
use super::{ConnInfo, Sender};
use crate::connect::http2::pings::INTERVAL_PING_TIMEOUT;
use crate::connect::http2::runtime::{H2Connection, H2Executor};
use crate::connect::http2::timer::{ANSWER_TIMEOUT, H2Timer};
use crate::connect::http2::watch::WatchedStream;
use crate::connect::io::message::Message;
use crate::connect::io::protocol::Protocol;
use crate::connect::io::stream_io::RecordedStream;
use crate::world;

/// The stream limit that hyper assumes before the server has announced its own: a number that no server announces. The
/// pool sends one request until then.
const UNANNOUNCED_STREAMS: usize = usize::MAX / 2;

/// The number of cancelled streams that are remembered. Frames that the server still sends for a forgotten one are a
/// connection error.
const REMEMBERED_RESETS: usize = 1_024;

/// Longer than a process runs. hyper adds ping times to the current time without a check for overflow.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Begins to speak `protocol` on `connected`.
pub(in crate::connect) async fn handshake<B: Message>(
    connected: ConnectedStream,
    protocol: Protocol,
    config: HttpConfig,
) -> hyper::Result<OpenedConn<B>> {
    match protocol {
        Protocol::Http1 => http1(connected, config.http1).await,
        // Boxed because the future is large and HTTP/1.1 has no need of it.
        Protocol::Http2 => Box::pin(http2(connected, config.http2)).await,
    }
}

async fn http1<B: Message>(connected: ConnectedStream, config: Http1Config) -> hyper::Result<OpenedConn<B>> {
    let (stream, info) = ConnInfo::take_from(connected);
    let (stream, io) = RecordedStream::new(stream, Protocol::Http1);
    let mut builder = http1::Builder::new();
    config.apply(&mut builder);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let mut connection = connection.with_upgrades();
    let record = io.clone();
    let serving = async move {
        // hyper gives the error to the request that it ended. Without such a request, it is the connection's own result.
        // By reference: the error is noted before the connection is dropped, which fails requests that it has not taken.
        if let Err(error) = (&mut connection).await {
            record.note_end(error);
        }
        drop(connection);
        // After a switch of protocols the socket is open until the user of the new protocol drops it.
        record.closed().await;
    };
    let serving = Serving::Http1(serving.boxed());
    Ok(OpenedConn::new(Sender::Http1(Mutex::new(Some(sender))), serving, io, info))
}

async fn http2<B: Message>(connected: ConnectedStream, config: Http2Config) -> hyper::Result<OpenedConn<B>> {
    let (stream, mut info) = ConnInfo::take_from(connected);
    let (stream, frames) = WatchedStream::new(stream, info.tls.is_none());
    let (stream, io) = RecordedStream::new(Box::new(stream), Protocol::Http2);
    let executor = H2Executor::default();
    let timer = match config.pings.interval {
        Some(_) => H2Timer::for_fixed_pings(frames.clone()),
        None => H2Timer::for_pings_in_doubt(frames.clone()),
    };
    let builder = http2_builder(&executor, &timer, config);
    let (sender, requests) = builder.handshake(TokioIo::new(stream)).await?;
    let sender = Arc::new(Mutex::new(Some(sender)));
    let connection =
        H2Connection::new(requests, executor, sender.clone(), frames.clone(), io.clone(), UNANNOUNCED_STREAMS);
    info.frames = Some(frames);
    let sender = Sender::Http2(sender);
    Ok(OpenedConn::new(sender, Serving::Http2(Box::new(connection)), io, info))
}

fn http2_builder(executor: &H2Executor, timer: &H2Timer, config: Http2Config) -> http2::Builder<H2Executor> {
    let mut builder = http2::Builder::new(executor.clone());
    config.apply(&mut builder);
    let pings = config.pings;
    if world::is_simulated() {
        // By default, streams are forgotten after a second of real time.
        builder.reset_stream_duration(FOREVER);
    }
    builder
        .timer(timer.clone())
        .initial_max_send_streams(UNANNOUNCED_STREAMS)
        .max_concurrent_reset_streams(REMEMBERED_RESETS)
        .max_local_error_reset_streams(None);
    match pings.interval {
        Some(interval) => builder
            .keep_alive_interval(interval.min(FOREVER))
            .keep_alive_timeout(pings.timeout.unwrap_or(INTERVAL_PING_TIMEOUT).min(FOREVER))
            .keep_alive_while_idle(pings.while_idle),
        // The connection's timer decides when to ping and when to give up.
        None => {
            builder.keep_alive_interval(Duration::ZERO).keep_alive_timeout(ANSWER_TIMEOUT).keep_alive_while_idle(false)
        }
    };
    builder
}
