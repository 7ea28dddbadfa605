//! Large objects: multipart uploads and long downloads, with bounded memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::object_store::path::Path;
use ::object_store::{ObjectStoreExt as _, WriteMultipart};
use bytes::Bytes;
use futures_util::StreamExt;
use http::Method;

use super::s3::{PartFacts, S3};
use super::{client, pattern, store};

const MIB: usize = 1 << 20;
const PART: usize = 8 * MIB;
const PIECE: usize = MIB;
const TOTAL: usize = 64 * MIB;

/// Bytes that count how many of their kind are alive.
struct Counted {
    bytes: Vec<u8>,
    alive: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(self.bytes.len(), Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_multipart_upload_arrives_whole_and_holds_only_the_parts_under_way() {
    let server = S3::start().await;
    server.forget_parts();
    let store = store(&server, client().build().unwrap());
    let upload = store.put_multipart(&Path::from("large")).await.unwrap();
    let mut write = WriteMultipart::new_with_chunk_size(upload, PART);
    let alive = Arc::new(AtomicUsize::new(0));
    let mut most = 0;
    for from in (0..TOTAL).step_by(PIECE) {
        write.wait_for_capacity(2).await.unwrap();
        let bytes = pattern(from, PIECE);
        most = most.max(alive.fetch_add(bytes.len(), Ordering::SeqCst) + bytes.len());
        write.put(Bytes::from_owner(Counted { bytes, alive: alive.clone() }));
    }
    write.finish().await.unwrap();

    let expected: Vec<_> = (0..TOTAL).step_by(PART).map(|from| PartFacts::of(&pattern(from, PART))).collect();
    assert_eq!(server.completed(), [expected], "every part has the bytes of its place");
    let parts: Vec<_> = server.seen().into_iter().filter(|seen| seen.method == Method::PUT).collect();
    assert_eq!(parts.len(), TOTAL / PART, "each part was sent once");
    assert!(parts.iter().all(|part| part.is_ours() && part.headers["content-length"] == PART.to_string()));
    assert!(most <= 4 * PART, "two parts under way, one that ends, one that is filled: {most}");
    assert_eq!(alive.load(Ordering::SeqCst), 0, "nothing keeps a part that has arrived");
}

#[tokio::test]
async fn an_aborted_upload_is_aborted_at_the_server() {
    let server = S3::start().await;
    let store = store(&server, client().build().unwrap());
    let mut upload = store.put_multipart(&Path::from("large")).await.unwrap();
    upload.put_part("part".into()).await.unwrap();
    assert_eq!(server.open_uploads(), 1);
    upload.abort().await.unwrap();
    assert_eq!(server.open_uploads(), 0);
}

#[tokio::test]
async fn a_long_download_is_not_read_ahead_of_its_reader() {
    let server = S3::start().await;
    server.put("large", pattern(0, TOTAL));
    let store = store(&server, client().build().unwrap());
    let mut pieces = store.get(&Path::from("large")).await.unwrap().into_stream();
    let (mut read, mut most_ahead) = (0, 0);
    while let Some(piece) = pieces.next().await {
        let piece = piece.unwrap();
        let end = read + piece.len();
        assert!(piece == pattern(read, piece.len()), "the bytes of this place");
        read = end;
        // The server could send now what nobody asked for.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        most_ahead = most_ahead.max(server.sent() as usize - read);
    }
    assert_eq!(read, TOTAL);
    assert!(most_ahead < TOTAL / 2, "the buffers of the two sockets, and little more: {most_ahead}");
}
