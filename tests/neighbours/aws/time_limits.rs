//! The SDK's connect timeout and read timeout, in paused time over networks in memory.

use std::time::Duration;

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use speeddial::Client;
use speeddial::trace::Event;
use speeddial_aws::Http;
use support::fake_net::{FakeNet, Host};
use support::recorder::Recorder;
use support::v4;

use crate::fakes::{dynamodb, s3, update};

const URL: &str = "http://192.0.2.1";

fn over(host: Host, recorder: &Recorder) -> Http {
    let net = FakeNet::new([(v4(1), host)]);
    Http::new(Client::builder().no_proxy().transport(net).observer(recorder.clone()).build().unwrap())
}

/// Returns the error of an update, which has to be a timeout.
fn timed_out(error: &SdkError<UpdateItemError>) -> String {
    let SdkError::DispatchFailure(failure) = error else { panic!("{error:?}") };
    assert!(failure.is_timeout(), "{error:?}");
    format!("{failure:?}")
}

#[tokio::test(start_paused = true)]
async fn the_connect_timeout_ends_an_attempt_and_the_sdk_retries_it() {
    let recorder = Recorder::default();
    let timeouts = TimeoutConfig::builder().connect_timeout(Duration::from_secs(2)).build();
    let retries = RetryConfig::standard().with_max_attempts(2);
    let config = dynamodb(over(Host::Silent, &recorder), URL).timeout_config(timeouts).retry_config(retries);
    let start = tokio::time::Instant::now();
    let error = update(config).await.unwrap_err();
    assert!(timed_out(&error).contains("NeverConnected"), "{error:?}");
    assert!((4..7).contains(&start.elapsed().as_secs()), "two attempts of 2 s, and a pause of at most 1 s: {start:?}");
    assert_eq!(recorder.count(|event| matches!(event, Event::CallFailed { .. })), 2, "{:?}", recorder.timeline());
}

#[tokio::test(start_paused = true)]
async fn the_sdks_default_connect_timeout_applies() {
    let recorder = Recorder::default();
    let config = dynamodb(over(Host::Silent, &recorder), URL).retry_config(RetryConfig::disabled());
    let start = tokio::time::Instant::now();
    timed_out(&update(config).await.unwrap_err());
    assert_eq!(start.elapsed().as_millis() / 100, 31, "3.1 s");
}

#[tokio::test(start_paused = true)]
async fn the_read_timeout_runs_from_the_start_of_an_attempt_to_the_headers() {
    let late = Host::Serves { connect: 0, think: 1_500, body: 0 };
    let late_with_the_dial = Host::Serves { connect: 700, think: 700, body: 0 };
    for host in [late, late_with_the_dial] {
        let recorder = Recorder::default();
        let timeouts = TimeoutConfig::builder().read_timeout(Duration::from_secs(1)).build();
        let retries = RetryConfig::standard().with_max_attempts(2);
        let config = dynamodb(over(host, &recorder), URL).timeout_config(timeouts).retry_config(retries);
        let failure = timed_out(&update(config).await.unwrap_err());
        assert!(failure.contains("ReadTimeout(1s)") && failure.contains("192.0.2.1:80"), "{failure}");
        let opened = recorder.count(|event| matches!(event, Event::Opened { .. }));
        assert_eq!(opened, 2, "each attempt gave its connection up: {:?}", recorder.timeline());
    }
}

#[tokio::test(start_paused = true)]
async fn the_read_timeout_does_not_limit_the_body() {
    let slow = Host::Serves { connect: 0, think: 500, body: 5_000 };
    let timeouts = TimeoutConfig::builder().read_timeout(Duration::from_secs(1)).build();
    let config = s3(over(slow, &Recorder::default()), URL).timeout_config(timeouts);
    let client = aws_sdk_s3::Client::from_conf(config.build());
    let object = client.get_object().bucket("bucket").key("key").send().await.unwrap();
    assert_eq!(object.body.collect().await.unwrap().into_bytes(), "hello");
}
