//! object_store's S3 store over speeddial.

use ::object_store::aws::S3ConditionalPut;
use ::object_store::path::Path;
use ::object_store::{
    ClientOptions, Error, GetOptions, ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions, PutPayload,
};
use bytes::Bytes;
use futures_util::TryStreamExt;
use http::Method;
use speeddial::settings::RequestOptions;
use speeddial::{Client, RetryPolicy};
use speeddial_object_store::Http;

use super::s3::{Fault, S3};
use super::{builder, client, pattern, store};

fn pieces(sizes: &[usize]) -> PutPayload {
    let mut from = 0;
    let pieces = sizes.iter().map(|size| {
        from += size;
        Bytes::from(pattern(from - size, *size))
    });
    pieces.collect()
}

#[tokio::test]
async fn objects_are_put_read_by_range_described_and_deleted() {
    let server = S3::start().await;
    let store = store(&server, client().build().unwrap());
    let path = Path::from("reports/a b.bin");

    store.put(&path, pieces(&[100_000, 1, 0, 70_000])).await.unwrap();
    assert_eq!(server.object("reports/a b.bin").unwrap(), pattern(0, 170_001));
    store.put(&Path::from("empty"), PutPayload::new()).await.unwrap();
    assert_eq!(server.object("empty").unwrap(), "");

    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), pattern(0, 170_001));
    assert_eq!(store.get_range(&path, 99_999..100_002).await.unwrap(), pattern(99_999, 3));
    assert_eq!(store.head(&path).await.unwrap().size, 170_001);

    store.delete(&path).await.unwrap();
    assert_eq!(server.object("reports/a b.bin"), None);
    assert!(matches!(store.get(&path).await, Err(Error::NotFound { .. })));
    assert!(server.seen().iter().all(|seen| seen.is_ours()), "every request is speeddial's");
    assert_eq!(server.connections(), 1, "one after the other they share a connection");
}

#[tokio::test]
async fn a_list_of_several_pages_is_read_to_its_end() {
    let server = S3::start().await;
    server.set_page(2);
    let keys = ["a/1", "a/2", "a/b/3", "a/b/4", "a/c/5", "d"];
    for key in keys {
        server.put(key, key);
    }
    let store = store(&server, client().build().unwrap());
    let listed: Vec<_> = store.list(None).map_ok(|object| object.location.to_string()).try_collect().await.unwrap();
    assert_eq!(listed, keys);
    assert_eq!(server.count(Method::GET), 3);

    let below = store.list_with_delimiter(Some(&Path::from("a"))).await.unwrap();
    assert_eq!(below.objects.iter().map(|object| object.location.as_ref()).collect::<Vec<_>>(), ["a/1", "a/2"]);
    assert_eq!(below.common_prefixes, [Path::from("a/b"), Path::from("a/c")]);
}

#[tokio::test]
async fn a_503_is_retried_by_object_store_alone() {
    let server = S3::start().await;
    server.put("key", "text");
    let client = client().build().unwrap();
    let store = store(&server, client.clone());
    let path = Path::from("key");

    server.fail_next(Method::GET, Fault::Unavailable);
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "text");
    assert_eq!(server.count(Method::GET), 2, "one failure, one retry");

    for _ in 0..2 {
        server.fail_next(Method::GET, Fault::Unavailable);
    }
    store.get(&path).await.unwrap_err();
    assert_eq!(server.count(Method::GET), 4, "object_store's one retry, and none by speeddial");

    // The same client retries its own requests: the counts above are not so by chance.
    for _ in 0..2 {
        server.fail_next(Method::GET, Fault::Unavailable);
    }
    let url = format!("{}/bucket/key", server.url());
    assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    assert_eq!(server.count(Method::GET), 7);

    // Not even if a request asks for it.
    for _ in 0..2 {
        server.fail_next(Method::GET, Fault::Unavailable);
    }
    let mut options = GetOptions::default();
    options.extensions.insert(RequestOptions::new().retry(RetryPolicy::new()));
    store.get_opts(&path, options).await.unwrap_err();
    assert_eq!(server.count(Method::GET), 9);
}

#[tokio::test]
async fn a_request_on_a_kept_connection_that_closes_is_resent() {
    let server = S3::start().await;
    // Without retries of object_store.
    let retry = ::object_store::RetryConfig { max_retries: 0, ..Default::default() };
    let connector = Http::new(client().build().unwrap());
    let store = builder(&server).with_retry(retry).with_http_connector(connector).build().unwrap();
    let path = Path::from("key");
    store.put(&path, "first".into()).await.unwrap();
    assert_eq!(server.connections(), 1);

    server.fail_next(Method::PUT, Fault::Close);
    store.put(&path, pieces(&[70_000, 80_000])).await.unwrap();
    assert_eq!(server.object("key").unwrap(), pattern(0, 150_000));
    let lengths: Vec<_> = server.seen().iter().map(|seen| (seen.connection, seen.length)).collect();
    assert_eq!(lengths, [(1, 5), (1, 150_000), (2, 150_000)], "the pieces were sent once more");

    server.fail_next(Method::GET, Fault::Close);
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap().len(), 150_000);
    server.fail_next(Method::HEAD, Fault::Close);
    store.head(&path).await.unwrap();
    assert_eq!(server.connections(), 4);
}

#[tokio::test]
async fn a_write_with_a_condition_is_not_resent() {
    let server = S3::start().await;
    let connector = Http::new(client().build().unwrap());
    let builder = builder(&server).with_conditional_put(S3ConditionalPut::ETagMatch);
    let store = builder.with_http_connector(connector).build().unwrap();
    for (number, payload) in [PutPayload::from("text"), pieces(&[1, 2]), PutPayload::new()].into_iter().enumerate() {
        let path = Path::from(format!("key{number}"));
        store.put(&Path::from("other"), "".into()).await.unwrap();
        let before = server.count(Method::PUT);
        let length = payload.content_length();
        let create = || PutOptions::from(PutMode::Create);

        server.fail_next(Method::PUT, Fault::Close);
        let error = store.put_opts(&path, payload, create()).await.unwrap_err();
        assert!(!matches!(error, Error::AlreadyExists { .. }), "the first copy made the object: {error}");
        assert_eq!(server.count(Method::PUT), before + 1);
        assert_eq!(server.object(path.as_ref()).unwrap().len(), length);
        let again = store.put_opts(&path, "text".into(), create()).await;
        assert!(matches!(again, Err(Error::AlreadyExists { .. })));
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_read_on_from_that_byte() {
    let server = S3::start().await;
    server.put("key", pattern(0, 300_000));
    let store = store(&server, client().build().unwrap());
    server.fail_next(Method::GET, Fault::CutAfter(100_000));
    let read = store.get(&Path::from("key")).await.unwrap().bytes().await.unwrap();
    assert!(read == pattern(0, 300_000), "the two parts fit");
    let ranges: Vec<_> = server.seen().iter().map(|seen| seen.headers.get("range").cloned()).collect();
    assert_eq!(ranges.len(), 2);
    let range = ranges[1].as_ref().unwrap().to_str().unwrap();
    let from: usize = range.trim_start_matches("bytes=").split_once('-').unwrap().0.parse().unwrap();
    assert!(from > 0 && from <= 100_000, "{range}");

    // Twice is more than the one retry that this store has.
    for _ in 0..2 {
        server.fail_next(Method::GET, Fault::CutAfter(100_000));
    }
    store.get(&Path::from("key")).await.unwrap().bytes().await.unwrap_err();
}

#[tokio::test]
async fn bodies_are_left_as_they_arrive() {
    let server = S3::start().await;
    server.put("key", "not compressed");
    let store = store(&server, client().gzip(true).build().unwrap());
    server.fail_next(Method::GET, Fault::SaysGzip);
    assert_eq!(store.get(&Path::from("key")).await.unwrap().bytes().await.unwrap(), "not compressed");
    assert!(server.seen()[0].headers.get("accept-encoding").is_none());
}

#[tokio::test]
async fn redirects_are_followed_with_the_body() {
    let (first, second) = (S3::start().await, S3::start().await);
    // The policy of the client is one for its own requests.
    let client = client().redirect(speeddial::redirect::Policy::none()).build().unwrap();
    let store = store(&first, client);
    first.fail_next(Method::PUT, Fault::Redirect(second.url()));
    store.put(&Path::from("key"), pieces(&[70_000, 1])).await.unwrap();
    assert_eq!(second.object("key").unwrap(), pattern(0, 70_001));
    assert!(first.seen()[0].headers.contains_key("authorization"));
    assert!(!second.seen()[0].headers.contains_key("authorization"), "the signature is for the first host");
}

#[tokio::test]
async fn one_operation_can_have_settings_of_its_own() {
    let server = S3::start().await;
    server.put("key", "longer than ten bytes");
    let store = store(&server, client().build().unwrap());
    let mut options = GetOptions::default();
    options.extensions.insert(RequestOptions::new().max_body_size(10));
    let error = store.get_opts(&Path::from("key"), options).await.unwrap_err();
    assert!(error.to_string().contains("longer than 10 bytes"), "{error}");
    assert_eq!(server.count(Method::GET), 1, "the next attempt would fail for the same reason");
    assert_eq!(store.get(&Path::from("key")).await.unwrap().bytes().await.unwrap().len(), 21);
}

/// The lines in the documentation of `speeddial_object_store::Http`.
#[test]
fn the_lines_of_the_documentation_build_a_store() {
    fn lines() -> Result<impl ::object_store::ObjectStore, Box<dyn std::error::Error>> {
        use ::object_store::aws::AmazonS3Builder;
        use speeddial_object_store::Http;

        let client = speeddial::Client::builder().http1_only().build()?;
        let store =
            AmazonS3Builder::from_env().with_bucket_name("reports").with_http_connector(Http::new(client)).build()?;
        Ok(store)
    }
    assert!(lines().unwrap().to_string().contains("reports"));
    let shown = format!("{:?}", Http::new(Client::new()));
    assert!(shown.starts_with("Http { client: Client"), "{shown}");
    let _ = ClientOptions::new();
}
