//! The client under the oauth2 crate.

use std::mem;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use oauth2::{AsyncHttpClient, HttpRequest, HttpResponse};

use crate::client::{Client, RequestBuilder, redirect};
use crate::error::{Error, Result};

/// The most bytes of an answer if the client has no limit of its own.
const MAX_BODY_SIZE: u64 = 1 << 20;

/// The client as the HTTP client of the oauth2 crate, for its `request_async(&client)`.
///
/// Three things differ from other requests of the client:
///
/// * No redirect is followed, whatever the client's policy, because credentials could go to another server. oauth2 gets the
///   redirect, which is an error to it.
/// * The client's [`RetryPolicy`](crate::RetryPolicy) applies without its classifier. The requests are POSTs, which are not
///   idempotent: a code or a refresh token may be valid only once. So a request is retried if none of it was sent, and not if the
///   server may have acted on it.
/// * An answer has at most 1 MiB, unless the client has a [limit](crate::ClientBuilder::max_body_size).
///
/// All other settings are the client's, such as time limits and default headers. A client that has a
/// [`TokenSource`](crate::token::TokenSource) for the server's origin must not get the tokens for that source: the request would wait
/// for its own token.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use oauth2::basic::BasicClient;
/// use oauth2::{ClientId, ClientSecret, TokenResponse, TokenUrl};
/// # let server = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// # let url = format!("http://{}/token", server.local_addr()?);
/// # tokio::spawn(async move {
/// #     use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// #     let (mut socket, _) = server.accept().await?;
/// #     socket.read(&mut [0; 4096]).await?;
/// #     let body = r#"{"access_token":"secret","token_type":"bearer"}"#;
/// #     let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
/// #     socket.write_all(format!("{head}{body}").as_bytes()).await?;
/// #     Ok::<_, std::io::Error>(socket)
/// # });
///
/// let client = speeddial::Client::new();
/// let login = BasicClient::new(ClientId::new("me".into()))
///     .set_client_secret(ClientSecret::new("password".into()))
///     .set_token_uri(TokenUrl::new(url)?);
/// let token = login.exchange_client_credentials().request_async(&client).await?;
/// assert_eq!(token.access_token().secret(), "secret");
/// # Ok(()) }
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "oauth2")))]
impl<'c> AsyncHttpClient<'c> for Client {
    type Error = Error;
    type Future = BoxFuture<'c, Result<HttpResponse>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        send(self, request).boxed()
    }
}

async fn send(client: &Client, request: HttpRequest) -> Result<HttpResponse> {
    let request = RequestBuilder::from_http(client.clone(), request).redirect(redirect::Policy::none());
    let (limit, retries) = (request.usual_max_body_size().unwrap_or(MAX_BODY_SIZE), request.usual_retries());
    let mut request = request.max_body_size(limit);
    if let Some(policy) = retries {
        request = request.retry(policy.without_classifier());
    }
    let mut response = request.send().await?;
    let mut message = HttpResponse::new(Vec::new());
    *message.status_mut() = response.status();
    *message.version_mut() = response.version();
    *message.headers_mut() = mem::take(response.headers_mut());
    *message.body_mut() = response.bytes().await?.into();
    Ok(message)
}
