//! Connections on which nothing can be written any more, though they look alive.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use futures_util::future::join_all;
use speeddial::Client;
use speeddial::dns::FixedResolver;
use speeddial::transport::{Connecting, Stream, Transport};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::common::{OK, URL, request};
use support::scripted_net::ScriptedNet;
use support::v4;

/// A network whose connections carry one response and then fail each write without taking a byte.
#[derive(Clone)]
struct UnwritableNet(ScriptedNet);

impl Transport for UnwritableNet {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(async move {
            let below = self.0.connect(address).await?;
            Ok(Box::new(UnwritableStream { below, has_answered: false }) as Box<dyn Stream>)
        })
    }
}

struct UnwritableStream {
    below: Box<dyn Stream>,
    has_answered: bool,
}

impl AsyncRead for UnwritableStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.below).poll_read(cx, buf))?;
        self.has_answered |= !buf.filled().is_empty();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UnwritableStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.has_answered {
            true => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            false => Pin::new(&mut self.below).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.below).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.below).poll_shutdown(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_no_post_is_lost_of_which_no_byte_was_written() {
    let arrived = Arc::new(AtomicUsize::new(0));
    let counter = arrived.clone();
    let net = ScriptedNet::new(move |_, mut stream| {
        let arrived = counter.clone();
        async move {
            while request(&mut stream).await {
                arrived.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(OK).await;
            }
        }
    });
    let resolver = FixedResolver::new().with("api.test", [v4(1)]);
    let builder = Client::builder().no_proxy().dns_resolver(resolver);
    let client = builder.transport(UnwritableNet(net.clone())).build().unwrap();
    // 50 in flight. Each finds at first the connection that one before it left.
    join_all((0..50).map(|_| async {
        for _ in 0..200 {
            let response = client.post(URL).send().await.unwrap_or_else(|error| panic!("a POST was lost: {error}"));
            assert_eq!(response.text().await.unwrap(), "ok");
        }
    }))
    .await;
    assert_eq!(arrived.load(Ordering::SeqCst), 10_000, "and none was sent twice");
    assert!(net.connections() >= 10_000, "each connection carried one request: {}", net.connections());
}
