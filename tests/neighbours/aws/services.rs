//! Calls that succeed: items of DynamoDB, and objects of S3 as streams.

use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_s3::primitives::ByteStream;
use aws_smithy_runtime_api::client::http::HttpClient;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use futures_util::stream;
use http::{Method, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use speeddial::Client;
use speeddial_aws::Http;

use crate::fakes::{Service, dynamodb, json, s3, update_with};

#[tokio::test]
async fn items_are_updated_and_read_over_one_connection() {
    let service = Service::start(|_, request| match request.header("x-amz-target") {
        "DynamoDB_20120810.UpdateItem" => json(200, "{}"),
        _ => json(200, r#"{"Item":{"id":{"S":"x"},"hits":{"N":"1"}}}"#),
    });
    let aws = Http::new(Client::new());
    let client = aws_sdk_dynamodb::Client::from_conf(dynamodb(aws.clone(), &service.url()).build());
    update_with(&client).await.unwrap();
    let key = AttributeValue::S("x".to_owned());
    let got = client.get_item().table_name("counters").key("id", key).send().await.unwrap();
    assert_eq!(got.item().unwrap()["hits"], AttributeValue::N("1".to_owned()));

    let received = service.received();
    let update: serde_json::Value = serde_json::from_slice(&received[0].body).unwrap();
    assert_eq!(update["ExpressionAttributeValues"][":one"]["N"], "1");
    assert_eq!((&received[0].method, received[0].target.as_str()), (&Method::POST, "/"));
    assert_eq!(received[0].header("content-length"), received[0].body.len().to_string(), "not in chunks");
    assert_eq!((received.len(), service.connections(), aws.client().pool_stats().opened), (2, 1, 1));
    let agent = received[0].header("x-amz-user-agent").to_owned() + received[0].header("user-agent");
    let metadata = aws.connector_metadata().unwrap();
    assert_eq!(metadata.name(), "speeddial");
    assert!(agent.contains(&metadata.to_string()), "{agent}");
}

/// Returns a body of S3 that can be read once, of pieces with 50,000 bytes.
fn pieces(count: usize) -> ByteStream {
    let frames = (0..count).map(|number| Ok::<_, std::io::Error>(Frame::data(Bytes::from(vec![number as u8; 50_000]))));
    ByteStream::new(SdkBody::from_body_1_x(StreamBody::new(stream::iter(frames))))
}

#[tokio::test]
async fn an_object_is_put_as_a_stream_with_the_checksum_behind_it() {
    let service = Service::start(|_, _| Response::new(support::full("")));
    let client = aws_sdk_s3::Client::from_conf(s3(Http::new(Client::new()), &service.url()).build());
    let put = client.put_object().bucket("bucket").key("key").content_length(200_000).body(pieces(4));
    put.send().await.unwrap();
    let [received] = &service.received()[..] else { panic!("one request") };
    assert_eq!((received.method.as_str(), received.header("x-amz-decoded-content-length")), ("PUT", "200000"));
    assert_eq!(received.header("x-amz-trailer"), "x-amz-checksum-crc32");
    let trailer = String::from_utf8_lossy(&received.body[received.body.len() - 200..]);
    assert!(trailer.contains("x-amz-checksum-crc32:"), "{trailer}");
    assert!(received.body.len() > 200_000);
}

#[tokio::test]
async fn an_object_in_memory_arrives_whole() {
    let service = Service::start(|_, _| Response::new(support::full("")));
    let client = aws_sdk_s3::Client::from_conf(s3(Http::new(Client::new()), &service.url()).build());
    for length in [0, 1, 64 * 1024, 300_000] {
        let body = ByteStream::from(vec![7; length]);
        client.put_object().bucket("bucket").key("key").body(body).send().await.unwrap();
        let received = service.received().pop().unwrap();
        assert!(received.body == vec![7; length] && received.header("content-length") == length.to_string());
        assert_eq!(received.header("transfer-encoding"), "");
    }
}

#[tokio::test]
async fn an_object_is_read_as_a_stream() {
    let service = Service::start(|_, _| {
        let body = vec![7; 1_000_000];
        Response::builder().header("content-length", body.len()).body(support::full(body)).unwrap()
    });
    let client = aws_sdk_s3::Client::from_conf(s3(Http::new(Client::new()), &service.url()).build());
    let mut object = client.get_object().bucket("bucket").key("key").send().await.unwrap();
    assert_eq!(object.content_length(), Some(1_000_000));
    let (mut bytes, mut read) = (0, 0);
    while let Some(piece) = object.body.try_next().await.unwrap() {
        assert!(piece.iter().all(|byte| *byte == 7));
        bytes += piece.len();
        read += 1;
    }
    assert_eq!(bytes, 1_000_000);
    assert!(read > 1, "the body is not collected first");
}

#[tokio::test]
async fn the_name_of_an_object_is_sent_as_it_is_signed() {
    let service = Service::start(|_, _| Response::new(support::full("x")));
    let client = aws_sdk_s3::Client::from_conf(s3(Http::new(Client::new()), &service.url()).build());
    for key in ["a/../b", "./a", "a//b", "a b+c%2e?ü'"] {
        client.get_object().bucket("bucket").key(key).send().await.unwrap();
    }
    let targets: Vec<_> = service.received().into_iter().map(|request| request.target).collect();
    let path = |target: &str| target.split('?').next().unwrap().to_owned();
    let paths: Vec<_> = targets.iter().map(|target| path(target)).collect();
    assert_eq!(
        paths,
        ["/bucket/a/../b", "/bucket/./a", "/bucket/a//b", "/bucket/a%20b%2Bc%252e%3F%C3%BC%27"],
        "{targets:?}"
    );
}
