//! The connector by itself: what it tells the SDK of connections, and the settings of its requests.

use aws_smithy_runtime_api::client::connection::CaptureSmithyConnection;
use aws_smithy_runtime_api::client::http::HttpConnector;
use aws_smithy_runtime_api::client::http::telemetry::{CaptureHttpAttemptTelemetry, ConnectionUsage};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use http::{Response, StatusCode};
use speeddial::settings::RequestOptions;
use speeddial::trace::CloseCause;
use speeddial::{Client, RetryPolicy, redirect};
use speeddial_aws::Http;

use crate::fakes::{Service, json};

fn request(url: &str) -> HttpRequest {
    let mut request = HttpRequest::new(SdkBody::empty());
    request.set_uri(url).unwrap();
    request
}

#[tokio::test]
async fn the_sdk_learns_of_each_connection_and_whether_it_was_used_before() {
    let service = Service::start(|_, _| json(200, "{}"));
    let aws = Http::new(Client::new());
    let mut ids = Vec::new();
    for usage in [ConnectionUsage::Fresh, ConnectionUsage::Reused] {
        let telemetry = CaptureHttpAttemptTelemetry::new();
        let mut request = request(&service.url());
        request.add_extension(telemetry.clone());
        let mut response = aws.call(request).await.unwrap();
        let body = std::mem::replace(response.body_mut(), SdkBody::taken());
        http_body_util::BodyExt::collect(body).await.unwrap();
        let told = telemetry.get();
        assert_eq!(told.acquisition().unwrap().usage(), usage);
        assert!(told.connector_call_duration().is_some());
        let connection = told.connection().unwrap();
        assert_eq!(connection.remote_addr().unwrap().to_string(), service.url().trim_start_matches("http://"));
        ids.push(connection.connection_id().unwrap());
    }
    assert_eq!(ids[0], ids[1]);
}

#[tokio::test]
async fn a_connection_can_be_poisoned_while_its_body_is_read_and_when_it_is_idle() {
    let service = Service::start(|_, _| Response::new(support::full(vec![7; 300_000])));
    let aws = Http::new(Client::new());
    for is_read_first in [true, false] {
        let capture = CaptureSmithyConnection::new();
        let mut request = request(&service.url());
        request.add_extension(capture.clone());
        assert!(capture.get().is_none());
        let mut response = aws.call(request).await.unwrap();
        let body = std::mem::replace(response.body_mut(), SdkBody::taken());
        let read = http_body_util::BodyExt::collect(body);
        let body = if is_read_first {
            let body = read.await.unwrap();
            assert_eq!(aws.client().pool_stats().idle, 1);
            capture.get().unwrap().poison();
            body
        } else {
            capture.get().unwrap().poison();
            assert_eq!(aws.client().pool_stats().in_use, 1, "the response goes on");
            read.await.unwrap()
        };
        assert_eq!(body.to_bytes().len(), 300_000);
        let stats = aws.client().pool_stats();
        assert_eq!((stats.idle, stats.in_use), (0, 0));
    }
    // Waits for the sockets of both.
    aws.client().drain().await;
    let stats = aws.client().pool_stats();
    assert_eq!((service.connections(), stats.closed_by(CloseCause::Program)), (2, 2));
}

#[tokio::test]
async fn a_capture_outlives_its_client() {
    let service = Service::start(|_, _| json(200, "{}"));
    let capture = CaptureSmithyConnection::new();
    let mut request = request(&service.url());
    request.add_extension(capture.clone());
    let aws = Http::new(Client::new());
    drop(aws.call(request).await.unwrap());
    drop(aws);
    capture.get().unwrap().poison();
}

#[tokio::test]
async fn settings_among_the_extensions_take_precedence() {
    let service = Service::start(|number, request| match request.target.as_str() {
        "/moved" => Response::builder().status(301).header("location", "/").body(support::full("")).unwrap(),
        _ => json(if number == 0 { 503 } else { 200 }, "{}"),
    });
    let aws = Http::new(Client::new());
    let retries = RetryPolicy::new().attempts(2).statuses([StatusCode::SERVICE_UNAVAILABLE]);
    let mut retried = request(&service.url());
    retried.add_extension(RequestOptions::new().retry(retries));
    assert_eq!(aws.call(retried).await.unwrap().status().as_u16(), 200);

    let moved = format!("{}/moved", service.url());
    assert_eq!(aws.call(request(&moved)).await.unwrap().status().as_u16(), 301, "not followed by default");
    let mut followed = request(&moved);
    followed.add_extension(RequestOptions::new().redirect(redirect::Policy::limited(1)));
    assert_eq!(aws.call(followed).await.unwrap().status().as_u16(), 200);
    let targets: Vec<_> = service.received().into_iter().map(|request| request.target).collect();
    assert_eq!(targets, ["/", "/", "/moved", "/moved", "/"]);
}
