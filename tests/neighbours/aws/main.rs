//! The client under the AWS SDKs: DynamoDB and S3 against fakes on loopback and in paused time; and the DNS cache under the
//! SDK's own client.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod connector;
mod dns;
mod failures;
mod fakes;
mod resends;
mod services;
mod time_limits;
