//! A service on loopback that notes its requests, and SDK clients for it.

use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::update_item::{UpdateItemError, UpdateItemOutput};
use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_runtime_api::client::http::HttpClient;
use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::Incoming;
use support::http_server::{HttpServer, ServerBody};

/// A request as the service got it.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Received {
    /// Returns a header, or an empty text.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// The service. It notes each request and answers by a function, which gets the request and its number from 0.
pub(crate) struct Service {
    server: HttpServer,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Service {
    pub(crate) fn start(answer: impl Fn(usize, &Received) -> Response<ServerBody> + Send + Sync + 'static) -> Self {
        let received = Arc::new(Mutex::new(Vec::new()));
        let notes = received.clone();
        let answer = Arc::new(answer);
        let server = HttpServer::start(move |request: Request<Incoming>| {
            let (notes, answer) = (notes.clone(), answer.clone());
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let target = head.uri.to_string();
                let request = Received { method: head.method, target, headers: head.headers, body };
                let mut notes = notes.lock().unwrap();
                notes.push(request.clone());
                answer(notes.len() - 1, &request)
            }
        });
        Self { server: server.unwrap(), received }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.server.connections()
    }
}

/// Returns a response with a JSON body.
pub(crate) fn json(status: u16, body: &'static str) -> Response<ServerBody> {
    let response = Response::builder().status(status).header("content-type", "application/x-amz-json-1.0");
    response.body(support::full(body)).unwrap()
}

/// Returns the configuration of a DynamoDB client over an HTTP client.
pub(crate) fn dynamodb(http: impl HttpClient + 'static, url: &str) -> aws_sdk_dynamodb::config::Builder {
    aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("id", "secret", None, None, "test"))
        .endpoint_url(url)
        .http_client(http)
}

/// Returns the configuration of an S3 client over an HTTP client, with the bucket in the path.
pub(crate) fn s3(http: impl HttpClient + 'static, url: &str) -> aws_sdk_s3::config::Builder {
    aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("id", "secret", None, None, "test"))
        .endpoint_url(url)
        .force_path_style(true)
        .http_client(http)
}

/// Updates an item.
pub(crate) async fn update(
    config: aws_sdk_dynamodb::config::Builder,
) -> Result<UpdateItemOutput, SdkError<UpdateItemError>> {
    update_with(&aws_sdk_dynamodb::Client::from_conf(config.build())).await
}

/// Updates an item, with a client that is used before or after.
pub(crate) async fn update_with(
    client: &aws_sdk_dynamodb::Client,
) -> Result<UpdateItemOutput, SdkError<UpdateItemError>> {
    let request = client.update_item().table_name("counters").key("id", AttributeValue::S("x".to_owned()));
    let request = request.update_expression("ADD hits :one");
    request.expression_attribute_values(":one", AttributeValue::N("1".to_owned())).send().await
}
