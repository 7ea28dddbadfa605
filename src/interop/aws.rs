//! The client under the AWS SDKs, and the DNS cache under their own client.
