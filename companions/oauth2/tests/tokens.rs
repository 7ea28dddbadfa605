//! The client under oauth2, against a token server.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response};
use oauth2::basic::{BasicClient, BasicErrorResponse, BasicErrorResponseType};
use oauth2::{ClientId, ClientSecret, RequestTokenError, Scope, TokenResponse, TokenUrl};
use speeddial::settings::HostConfig;
use speeddial::{Client, ErrorKind, RetryPolicy, redirect};
use speeddial_oauth2::Http;
use support::http_server::HttpServer;
use support::{ServerBody, full, ok_server};

type Failure = RequestTokenError<speeddial::Error, BasicErrorResponse>;

/// Asks the token server at `address` for a token by the flow of client credentials.
async fn token(address: SocketAddr, client: &Client) -> Result<String, Failure> {
    let login = BasicClient::new(ClientId::new("me".into()))
        .set_client_secret(ClientSecret::new("password".into()))
        .set_token_uri(TokenUrl::new(format!("http://{address}/token")).unwrap());
    let asking = login.exchange_client_credentials().add_scope(Scope::new("read".into()));
    Ok(asking.request_async(&Http(client.clone())).await?.access_token().secret().clone())
}

fn answer(status: u16, body: impl Into<String>) -> Response<ServerBody> {
    let builder = Response::builder().status(status).header("content-type", "application/json");
    builder.body(full(body.into())).unwrap()
}

/// Starts a server that answers every request alike, and counts them.
fn server_with(status: u16, body: String) -> (HttpServer, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = requests.clone();
    let server = HttpServer::start(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        let response = answer(status, body.clone());
        async { response }
    });
    (server.unwrap(), requests)
}

const TOKEN: &str = r#"{"access_token":"secret","token_type":"bearer","expires_in":3600}"#;

/// Answers with a token if the request is one of the flow of client credentials.
async fn token_server(request: Request<Incoming>) -> Response<ServerBody> {
    // "me:password" in base64.
    let is_authorized = request.headers().get("authorization").is_some_and(|value| value == "Basic bWU6cGFzc3dvcmQ=");
    let is_post = request.method() == "POST" && request.uri() == "/token";
    let body = request.into_body().collect().await.unwrap().to_bytes();
    if is_authorized && is_post && body == "grant_type=client_credentials&scope=read" {
        answer(200, TOKEN)
    } else {
        answer(400, r#"{"error":"invalid_request"}"#)
    }
}

#[tokio::test]
async fn client_credentials_become_a_token() {
    let server = HttpServer::start(token_server).unwrap();
    let client = Client::new();
    for _ in 0..2 {
        assert_eq!(token(server.address(), &client).await.unwrap(), "secret");
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_redirect_is_not_followed_whatever_the_clients_policy() {
    let other = ok_server();
    let location = format!("http://{}/token", other.address());
    let server = HttpServer::start(move |_| {
        let response = Response::builder().status(307).header("location", &location).body(full("")).unwrap();
        async { response }
    });
    let server = server.unwrap();
    let always = redirect::Policy::custom(|attempt| attempt.follow());
    for client in [Client::new(), Client::builder().redirect(always).build().unwrap()] {
        let error = token(server.address(), &client).await.unwrap_err();
        assert!(matches!(error, Failure::Other(_)), "{error:?}");
    }
    assert_eq!((server.connections(), other.connections()), (2, 0));
}

#[tokio::test]
async fn an_error_of_the_token_server_is_oauth2s_error() {
    let (server, _) = server_with(401, r#"{"error":"invalid_client","error_description":"unknown"}"#.into());
    let error = token(server.address(), &Client::new()).await.unwrap_err();
    let Failure::ServerResponse(response) = error else { panic!("{error:?}") };
    assert_eq!(*response.error(), BasicErrorResponseType::InvalidClient);
    assert_eq!(response.error_description().map(String::as_str), Some("unknown"));
}

#[tokio::test]
async fn an_error_of_the_connection_is_the_clients_error() {
    let (_socket, address) = support::refusing();
    let error = token(address, &Client::new()).await.unwrap_err();
    let Failure::Request(error) = error else { panic!("{error:?}") };
    assert_eq!(error.kind(), ErrorKind::Connect);
}

#[tokio::test]
async fn an_answer_has_a_limit() {
    // White space behind the value makes it longer than 1 MiB.
    let (server, _) = server_with(200, format!("{TOKEN}{}", " ".repeat(1 << 20)));
    let error = token(server.address(), &Client::new()).await.unwrap_err();
    let Failure::Request(error) = error else { panic!("{error:?}") };
    assert_eq!(error.kind(), ErrorKind::Body);
}

/// What the server cannot have got may be sent again, though it is a POST.
#[tokio::test]
async fn a_request_that_was_not_sent_is_retried() {
    let (_socket, address) = support::refusing();
    let Failure::Request(error) = token(address, &Client::new()).await.unwrap_err() else { panic!("no request") };
    assert_eq!(error.attempts(), 3);
}

#[tokio::test]
async fn a_request_that_arrived_is_not_retried() {
    let (server, requests) = server_with(503, String::new());
    let statuses = RetryPolicy::new();
    let everything = RetryPolicy::new().classify_fn(|outcome| outcome.retryable());
    for policy in [statuses, everything] {
        let of_host = HostConfig::new().retry(policy.clone());
        for builder in [Client::builder().retry(policy), Client::builder().for_host("127.0.0.1", of_host)] {
            let before = requests.load(Ordering::SeqCst);
            let client = builder.build().unwrap();
            assert!(matches!(token(server.address(), &client).await, Err(Failure::Other(_))));
            assert_eq!(requests.load(Ordering::SeqCst), before + 1);
        }
    }
}
