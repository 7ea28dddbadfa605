//! The client under the AWS SDKs.
