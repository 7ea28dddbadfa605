#![doc = include_str!("../README.md")]

use std::mem;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use oauth2::{AsyncHttpClient, HttpRequest, HttpResponse};
use speeddial::{Client, Error, RequestBuilder, Result, RetryPolicy, redirect};

/// The most bytes of an answer.
const MAX_BODY_SIZE: u64 = 1 << 20;

/// The client as the HTTP client of the oauth2 crate.
///
/// Three things differ from other requests of the client:
///
/// * No redirect is followed, whatever the client's policy, because credentials could go to another server. oauth2 gets the
///   redirect, which is an error to it.
/// * Retries are those of a plain [`RetryPolicy`], whatever the client's. The requests are POSTs, which are not idempotent: a code or
///   a refresh token may be valid only once. So a request is retried if none of it was sent, and not if the server may have acted on
///   it.
/// * An answer has at most 1 MiB.
///
/// All other settings are the client's, such as time limits and default headers. A client that has a
/// [`TokenSource`](speeddial::token::TokenSource) for the server's origin must not get the tokens for that source: the request would
/// wait for its own token.
#[derive(Debug, Clone)]
pub struct Http(pub Client);

impl<'c> AsyncHttpClient<'c> for Http {
    type Error = Error;
    type Future = BoxFuture<'c, Result<HttpResponse>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        send(self.0.clone(), request).boxed()
    }
}

async fn send(client: Client, request: HttpRequest) -> Result<HttpResponse> {
    let request = RequestBuilder::from_http(client, request).redirect(redirect::Policy::none());
    let mut response = request.max_body_size(MAX_BODY_SIZE).retry(RetryPolicy::new()).send().await?;
    let mut message = HttpResponse::new(Vec::new());
    *message.status_mut() = response.status();
    *message.version_mut() = response.version();
    *message.headers_mut() = mem::take(response.headers_mut());
    *message.body_mut() = response.bytes().await?.into();
    Ok(message)
}
