//! The client and the HTTP/1.1 server in memory that the tests of the pool share.

use std::time::Duration;

use speeddial::dns::FixedResolver;
use speeddial::{Client, PoolConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::sleep;

use support::h2_peer::Wire;
use support::recorder::Recorder;
use support::v4;

pub(super) const URL: &str = "http://api.test/";
pub(super) const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) fn client(wire: &Wire, pool: PoolConfig, recorder: &Recorder) -> Client {
    let resolver = FixedResolver::new().with("api.test", [v4(1)]);
    let builder = Client::builder().no_proxy().resolver(resolver).transport(wire.clone());
    builder.pool(pool).observer(recorder.clone()).build().unwrap()
}

pub(super) async fn get(client: &Client, url: &str) -> speeddial::Result<String> {
    client.get(url).send().await?.text().await
}

/// Reads the head of a request; `false` at the end.
pub(super) async fn request(stream: &mut DuplexStream) -> bool {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return false,
        }
    }
    true
}

/// Answers each request after a while.
pub(super) async fn serve(mut stream: DuplexStream, think: u64) {
    while request(&mut stream).await {
        sleep(ms(think)).await;
        if stream.write_all(OK).await.is_err() {
            return;
        }
    }
}
