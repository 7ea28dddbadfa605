//! The client and the HTTP/1.1 server in memory that the tests of the pool share.

use std::time::Duration;

use speeddial::dns::FixedResolver;
use speeddial::{Client, PoolConfig};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::time::sleep;

use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::{read_request_head, v4};

pub(super) const URL: &str = "http://api.test/";
/// A whole response.
pub(super) const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns a client over `net`, where it finds api.test.
pub(super) fn client(net: &ScriptedNet, pool: PoolConfig, recorder: &Recorder) -> Client {
    let resolver = FixedResolver::new().with("api.test", [v4(1)]);
    let builder = Client::builder().no_proxy().dns_resolver(resolver).transport(net.clone());
    builder.pool(pool).observer(recorder.clone()).build().unwrap()
}

/// Makes a GET and returns the body.
pub(super) async fn get(client: &Client, url: &str) -> speeddial::Result<String> {
    client.get(url).send().await?.text().await
}

/// Reads the head of a request. Returns false if the client closed instead.
pub(super) async fn request(stream: &mut DuplexStream) -> bool {
    read_request_head(stream).await.is_some()
}

/// Answers each request after `think` milliseconds.
pub(super) async fn serve(mut stream: DuplexStream, think: u64) {
    while request(&mut stream).await {
        sleep(ms(think)).await;
        if stream.write_all(OK).await.is_err() {
            return;
        }
    }
}
