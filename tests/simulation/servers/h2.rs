//! HTTP/2, by the h2 crate without hyper around it.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use tokio::time::sleep;

use super::{Duplex, Head, Side};

pub(super) async fn serve(side: Side, stream: impl Duplex) -> io::Result<()> {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(100).max_concurrent_reset_streams(1_000).reset_stream_duration(FOREVER);
    let mut connection = builder.handshake::<_, Bytes>(stream).await.map_err(io::Error::other)?;
    let mut restarts = false;
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = connection.accept() => accepted,
            () = side.restarted(), if !restarts => {
                restarts = true;
                connection.graceful_shutdown();
                continue;
            }
            () = sleep(side.keep_alive()), if !restarts => {
                if side.outside.state().conns[side.conn].open_streams == 0 {
                    restarts = true;
                    connection.graceful_shutdown();
                }
                continue;
            }
        };
        match accepted {
            None => return Ok(()),
            Some(Err(error)) => return Err(io::Error::other(error)),
            Some(Ok((request, respond))) => {
                let side = side.clone();
                tokio::spawn(async move {
                    let ended = answer(&side, request, respond).await;
                    side.end();
                    ended
                });
            }
        }
    }
}

/// Longer than any run.
const FOREVER: Duration = Duration::from_secs(1 << 30);

async fn answer(
    side: &Side,
    request: http::Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let (parts, mut body) = request.into_parts();
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let head = Head {
        method: parts.method.to_string(),
        target: parts.uri.path_and_query().map_or_else(String::new, ToString::to_string),
        authority: parts.uri.authority().map_or_else(String::new, ToString::to_string),
        headers: parts.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
    };
    let number = side.begin(&head);
    let mut content = None;
    while let Some(piece) = body.data().await {
        let (total, _) = content.unwrap_or((0, true));
        let Ok(piece) = piece else {
            content = Some((total, false));
            break;
        };
        let _ = body.flow_control().release_capacity(piece.len());
        content = Some((total + piece.len() as u64, true));
    }
    let script = side.decide(number, &head, content);
    if content.is_some_and(|(_, is_whole)| !is_whole) {
        return Ok(());
    }
    if script.loses {
        respond.send_reset(Reason::INTERNAL_ERROR);
        return Ok(());
    }
    for _ in 0..script.interims {
        respond.send_informational(http::Response::builder().status(102).body(()).unwrap())?;
        sleep(Duration::from_millis(1)).await;
    }
    sleep(script.after).await;
    let mut response = http::Response::builder().status(script.status).header("content-length", script.body.len());
    for (name, value) in &script.headers {
        if *name != "keep-alive" {
            response = response.header(*name, value);
        }
    }
    let is_empty = head.method == "HEAD" || script.body.is_empty();
    let mut stream = respond.send_response(response.body(()).unwrap(), is_empty)?;
    if is_empty {
        return Ok(());
    }
    if script.dies {
        send(&mut stream, script.body.slice(..script.body.len() / 2), false).await?;
        stream.send_reset(Reason::INTERNAL_ERROR);
        return Ok(());
    }
    send(&mut stream, script.body, !script.ends_late).await?;
    if script.ends_late {
        sleep(Duration::from_millis(5)).await;
        stream.send_data(Bytes::new(), true)?;
    }
    Ok(())
}

/// Sends content as the peer's windows allow.
async fn send(stream: &mut SendStream<Bytes>, mut content: Bytes, is_end: bool) -> Result<(), h2::Error> {
    while !content.is_empty() {
        stream.reserve_capacity(content.len());
        let granted = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let Some(granted) = granted.transpose()? else { return Err(Reason::CANCEL.into()) };
        let piece = content.split_to(granted.min(content.len()));
        stream.send_data(piece, is_end && content.is_empty())?;
    }
    Ok(())
}
