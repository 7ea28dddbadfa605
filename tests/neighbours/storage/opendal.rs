//! opendal's S3 service over speeddial.

use ::opendal::layers::RetryLayer;
use ::opendal::services::S3 as Service;
use ::opendal::{Buffer, ErrorKind, HttpTransport, HttpTransporter, OperationContext, Operator};
use bytes::Bytes;
use futures_util::TryStreamExt;
use http::{Method, Request};
use speeddial::Client;
use speeddial_opendal::Http;
use std::time::Duration;

use super::s3::{Fault, S3};
use super::{client, pattern};

fn operator(server: &S3, client: Client) -> Operator {
    let service = Service::default()
        .endpoint(&server.url())
        .bucket("bucket")
        .region("us-east-1")
        .access_key_id("key")
        .secret_access_key("secret")
        .disable_config_load()
        .disable_ec2_metadata();
    let transport = HttpTransporter::new(Http::new(client));
    Operator::new(service).unwrap().with_context(OperationContext::new().with_http_transport(transport))
}

fn retries() -> RetryLayer {
    RetryLayer::new()
        .with_max_times(1)
        .with_min_delay(Duration::from_millis(1))
        .with_max_delay(Duration::from_millis(1))
}

#[tokio::test]
async fn objects_are_written_read_described_listed_and_deleted() {
    let server = S3::start().await;
    server.set_page(2);
    let operator = operator(&server, client().build().unwrap());
    let pieces: Vec<_> =
        [(0, 100_000), (100_000, 1), (100_001, 70_000)].map(|(from, size)| Bytes::from(pattern(from, size))).into();
    operator.write("reports/a.bin", Buffer::from(pieces)).await.unwrap();
    assert_eq!(server.object("reports/a.bin").unwrap(), pattern(0, 170_001));

    assert_eq!(operator.read("reports/a.bin").await.unwrap().to_bytes(), pattern(0, 170_001));
    let range = operator.read_with("reports/a.bin").range(99_999..100_002).await.unwrap();
    assert_eq!(range.to_bytes(), pattern(99_999, 3));
    assert_eq!(operator.stat("reports/a.bin").await.unwrap().content_length(), 170_001);
    assert_eq!(operator.stat("reports/none").await.unwrap_err().kind(), ErrorKind::NotFound);

    for name in ["reports/b", "reports/c", "reports/d"] {
        operator.write(name, name).await.unwrap();
    }
    let lister = operator.lister_with("reports/").recursive(true).await.unwrap();
    let mut listed: Vec<_> = lister.map_ok(|entry| entry.path().to_owned()).try_collect().await.unwrap();
    listed.sort();
    assert_eq!(listed, ["reports/a.bin", "reports/b", "reports/c", "reports/d"]);

    operator.delete("reports/a.bin").await.unwrap();
    assert_eq!(server.object("reports/a.bin"), None);
    assert!(server.seen().iter().all(|seen| seen.is_ours()), "every request is speeddial's");
    assert_eq!(server.connections(), 1, "one after the other they share a connection");
}

#[tokio::test]
async fn a_long_object_is_written_in_parts() {
    let server = S3::start().await;
    let operator = operator(&server, client().build().unwrap());
    let mut writer = operator.writer_with("large").chunk(5 << 20).await.unwrap();
    for from in (0..12 << 20).step_by(1 << 20) {
        writer.write(pattern(from, 1 << 20)).await.unwrap();
    }
    writer.close().await.unwrap();
    assert!(server.object("large").unwrap() == pattern(0, 12 << 20));
    assert_eq!(server.completed()[0].len(), 3);
}

#[tokio::test]
async fn a_503_is_retried_by_opendal_alone() {
    let server = S3::start().await;
    server.put("key", "text");
    let plain = operator(&server, client().build().unwrap());

    server.fail_next(Method::GET, Fault::Unavailable);
    assert!(plain.read("key").await.unwrap_err().is_temporary());
    assert_eq!(server.count(Method::GET), 1, "without the layer nothing is retried");

    let operator = plain.layer(retries());
    server.fail_next(Method::GET, Fault::Unavailable);
    assert_eq!(operator.read("key").await.unwrap().to_bytes(), "text");
    assert_eq!(server.count(Method::GET), 3, "one failure, one retry");

    for _ in 0..2 {
        server.fail_next(Method::GET, Fault::Unavailable);
    }
    operator.read("key").await.unwrap_err();
    assert_eq!(server.count(Method::GET), 5, "the layer's one retry, and none by speeddial");
}

#[tokio::test]
async fn a_request_on_a_kept_connection_that_closes_is_resent() {
    let server = S3::start().await;
    let operator = operator(&server, client().build().unwrap());
    operator.write("key", "first").await.unwrap();
    server.fail_next(Method::PUT, Fault::Close);
    let pieces = vec![Bytes::from(pattern(0, 70_000)), Bytes::from(pattern(70_000, 80_000))];
    operator.write("key", Buffer::from(pieces)).await.unwrap();
    assert_eq!(server.object("key").unwrap(), pattern(0, 150_000));
    let lengths: Vec<_> = server.seen().iter().map(|seen| (seen.connection, seen.length)).collect();
    assert_eq!(lengths, [(1, 5), (1, 150_000), (2, 150_000)], "the pieces were sent once more");

    server.fail_next(Method::PUT, Fault::Close);
    let error = operator.write_with("new", "text").if_not_exists(true).await.unwrap_err();
    assert_ne!(error.kind(), ErrorKind::ConditionNotMatch, "the first copy made the object");
    assert_eq!(server.count(Method::PUT), 4);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_read_again_by_the_layer() {
    let server = S3::start().await;
    server.put("key", pattern(0, 300_000));
    let plain = operator(&server, client().build().unwrap());
    server.fail_next(Method::GET, Fault::CutAfter(100_000));
    let error = plain.read("key").await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    assert!(error.to_string().contains("/bucket/key"), "{error}");

    server.fail_next(Method::GET, Fault::CutAfter(100_000));
    let read = plain.layer(retries()).read("key").await.unwrap();
    assert!(read.to_bytes() == pattern(0, 300_000));
}

#[tokio::test]
async fn bodies_are_left_as_they_arrive() {
    let server = S3::start().await;
    server.put("key", "not compressed");
    let transport = Http::new(client().gzip(true).build().unwrap());
    server.fail_next(Method::GET, Fault::SaysGzip);
    let url = format!("{}/bucket/key?X-Amz-Signature=", server.url());
    let request = Request::get(format!("{url}secret").replace("//", "//me:secret@")).body(Buffer::new()).unwrap();
    let response = transport.fetch(request).await.unwrap();
    assert_eq!(
        response.extensions().get::<http::Uri>().unwrap().to_string(),
        format!("{url}removed"),
        "for opendal's own errors"
    );
    assert_eq!(response.into_body().to_buffer().await.unwrap().to_bytes(), "not compressed");
    assert!(server.seen()[0].headers.get("accept-encoding").is_none());

    let url = format!("{}?X-Amz-Signature=secret", super::closed_port()).replace("//", "//me:secret@");
    let error = transport.fetch(Request::get(&url).body(Buffer::new()).unwrap()).await.err().unwrap();
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}

#[tokio::test]
async fn redirects_are_followed_as_the_client_says() {
    let (first, second) = (S3::start().await, S3::start().await);
    second.put("key", "text");
    first.fail_next(Method::GET, Fault::Redirect(second.url()));
    let read = operator(&first, client().build().unwrap()).read("key").await.unwrap();
    assert_eq!(read.to_bytes(), "text");
    assert!(!second.seen()[0].headers.contains_key("authorization"), "the signature is for the first host");

    first.fail_next(Method::GET, Fault::Redirect(second.url()));
    let stays = client().redirect(speeddial::redirect::Policy::none()).build().unwrap();
    operator(&first, stays).read("key").await.unwrap_err();
    assert_eq!(second.seen().len(), 1);
}
