//! Failures as the SDK sees them: which of them it retries, and on which connections.

use std::time::Duration;

use aws_sdk_dynamodb::config::retry::{ReconnectMode, RetryConfig};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use http::StatusCode;
use speeddial::dns::FixedResolver;
use speeddial::{Client, RetryPolicy};
use speeddial_aws::{Dns, Http};

use crate::fakes::{Service, dynamodb, json, s3, update};

/// The answer of a throttled DynamoDB.
const THROTTLED: &str =
    r#"{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"slow down"}"#;

/// Returns a client with a retry policy of its own.
fn retrying() -> Http {
    let retries = RetryPolicy::new().attempts(5).statuses([StatusCode::SERVICE_UNAVAILABLE]);
    let retries = retries.backoff(Duration::from_millis(1), Duration::from_millis(1)).no_budget();
    Http::new(Client::builder().retry(retries).build().unwrap())
}

#[tokio::test]
async fn a_failed_call_is_retried_by_the_sdk_alone() {
    for (status, body) in [(503, "{}"), (400, THROTTLED)] {
        let service = Service::start(move |number, _| if number == 0 { json(status, body) } else { json(200, "{}") });
        update(dynamodb(retrying(), &service.url())).await.unwrap();
        assert_eq!(service.received().len(), 2, "{status}");

        let service = Service::start(move |_, _| json(status, body));
        let config = dynamodb(retrying(), &service.url()).retry_config(RetryConfig::disabled());
        update(config).await.unwrap_err();
        assert_eq!(service.received().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn the_clients_own_retry_policy_does_not_apply() {
    let service = Service::start(|_, _| json(503, ""));
    let aws = retrying();
    let config = s3(aws.clone(), &service.url()).retry_config(RetryConfig::disabled());
    let client = aws_sdk_s3::Client::from_conf(config.build());
    client.get_object().bucket("bucket").key("key").send().await.unwrap_err();
    assert_eq!(service.received().len(), 1);
    let got = aws.client().get(service.url()).send().await.unwrap();
    assert_eq!((got.status().as_u16(), service.received().len()), (503, 1 + 5), "it applies to other calls");
}

#[tokio::test]
async fn a_service_error_has_its_code() {
    let service = Service::start(|_, _| json(400, THROTTLED));
    let config = dynamodb(retrying(), &service.url()).retry_config(RetryConfig::disabled());
    let error = update(config).await.unwrap_err();
    assert_eq!(error.code(), Some("ProvisionedThroughputExceededException"));
}

#[tokio::test]
async fn a_poisoned_connection_carries_no_further_request() {
    for (mode, connections) in [(ReconnectMode::ReconnectOnTransientError, 2), (ReconnectMode::ReuseAllConnections, 1)]
    {
        let service = Service::start(|number, _| json(if number == 0 { 503 } else { 200 }, "{}"));
        let aws = Http::new(Client::new());
        let retries = RetryConfig::standard().with_reconnect_mode(mode);
        let retries = retries.with_initial_backoff(Duration::from_millis(1));
        update(dynamodb(aws.clone(), &service.url()).retry_config(retries)).await.unwrap();
        let stats = aws.client().pool_stats();
        assert_eq!((service.received().len(), service.connections(), stats.idle), (2, connections, 1), "{mode:?}");
    }
}

#[tokio::test]
async fn an_unresolvable_name_is_an_io_error_as_with_the_sdks_own_client() {
    let unknown = || speeddial::dns::CachedResolver::new(FixedResolver::new());
    let aws = Http::new(Client::builder().dns_cache(unknown()).build().unwrap());
    let own = aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc));
    let own = own.build_with_resolver(Dns(unknown()));
    for (http, is_ours) in [(SharedHttpClient::new(aws), true), (own, false)] {
        let config = dynamodb(http, "http://unknown.test").retry_config(RetryConfig::disabled());
        let error = update(config).await.unwrap_err();
        let SdkError::DispatchFailure(failure) = &error else { panic!("{error:?}") };
        assert!(failure.is_io() && !failure.is_timeout(), "{error:?}");
        assert_eq!(format!("{failure:?}").contains("NeverConnected"), is_ours, "{error:?}");
        let text = aws_smithy_types::error::display::DisplayErrorContext(&error).to_string();
        assert!(text.contains("the name does not exist"), "{text}");
    }
}

#[tokio::test]
async fn a_refused_connection_is_an_io_error_and_the_sdk_retries_it() {
    let (_socket, address) = support::refusing();
    let recorder = support::recorder::Recorder::default();
    let aws = Http::new(Client::builder().no_proxy().observer(recorder.clone()).build().unwrap());
    let retries = RetryConfig::standard().with_initial_backoff(Duration::from_millis(1));
    let error = update(dynamodb(aws, &format!("http://{address}")).retry_config(retries)).await.unwrap_err();
    let SdkError::DispatchFailure(failure) = &error else { panic!("{error:?}") };
    assert!(failure.is_io() && format!("{failure:?}").contains("NeverConnected"), "{error:?}");
    let attempts = |event: &_| matches!(event, speeddial::trace::Event::AttemptStart { .. });
    assert_eq!(recorder.count(attempts), 3, "{:?}", recorder.timeline());
}

#[tokio::test]
async fn a_request_that_the_client_must_not_send_is_a_user_error() {
    let service = Service::start(|_, _| json(200, "{}"));
    let aws = Http::new(Client::builder().https_only(true).build().unwrap());
    let error = update(dynamodb(aws, &service.url())).await.unwrap_err();
    let SdkError::DispatchFailure(failure) = &error else { panic!("{error:?}") };
    assert!(failure.is_user() && service.received().is_empty(), "{error:?}");
}
