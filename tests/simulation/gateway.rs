//! The gateway of the guide, between peers that speak HTTP/2 to it and a host.

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use speeddial::{Body, Client, RequestBuilder};

use crate::net;
use crate::program::Outcome;

async fn forward(upstream: Client, message: http::Request<Incoming>) -> http::Response<Body> {
    match RequestBuilder::forward(upstream, message).send().await {
        Ok(response) => response.forward(),
        Err(error) => {
            let mut answer = http::Response::new(Body::from(error.to_string()));
            *answer.status_mut() = http::StatusCode::BAD_GATEWAY;
            answer
        }
    }
}

/// Sends a request of a peer through the gateway of a client.
pub(crate) async fn pass_on(client: &Client, id: u64) -> Outcome {
    exchange(client, id).await.unwrap_or_else(|error| Outcome::Failed(format!("at the gateway's peer: {error}")))
}

async fn exchange(client: &Client, id: u64) -> Result<Outcome, h2::Error> {
    let (near, far, _) = net::stream(std::time::Duration::from_millis(1), std::time::Duration::ZERO);
    let upstream = client.clone();
    let server = tokio::spawn(async move {
        let service = service_fn(|message| {
            let upstream = upstream.clone();
            async move { Ok::<_, std::convert::Infallible>(forward(upstream, message).await) }
        });
        let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
        builder.http1().auto_date_header(false);
        builder.http2().auto_date_header(false);
        let _ = builder.serve_connection(TokioIo::new(far), service).await;
    });
    let result = peer(near, id).await;
    server.abort();
    result
}

/// The user of the gateway, one of three kinds.
async fn peer(near: net::End, id: u64) -> Result<Outcome, h2::Error> {
    let (mut sender, connection) = h2::client::handshake(near).await?;
    let driver = tokio::spawn(connection);
    let ready = std::future::poll_fn(|cx| sender.poll_ready(cx));
    ready.await?;
    let request = |method: &str, path: &str| {
        http::Request::builder()
            .method(method)
            .uri(format!("http://gateway.test{path}"))
            .header("x-call", id)
            .header("authorization", "secret-of-h0")
    };
    let outcome = match id % 3 {
        // A path that must come as it is.
        0 => {
            let path = format!("/plain/{id}/5/a'b/%2e%2e/x");
            let (response, _) = sender.send_request(request("GET", &path).body(()).unwrap(), true)?;
            read(response.await?).await?
        }
        // A user with a session, or one without.
        1 => {
            let mut request = request("GET", &format!("/cookie/{id}/5"));
            if id.is_multiple_of(2) {
                request = request.header("cookie", format!("user={id}")).header("cookie", "theme=dark");
            }
            let (response, _) = sender.send_request(request.body(()).unwrap(), true)?;
            read(response.await?).await?
        }
        // An upload that is cut off, with a code that says "no error".
        _ => {
            let request = request("POST", &format!("/plain/{id}/5")).body(()).unwrap();
            let (_response, mut stream) = sender.send_request(request, false)?;
            stream.send_data(Bytes::from_static(b"the first part of it"), false)?;
            tokio::time::sleep(std::time::Duration::from_millis(60)).await;
            stream.send_reset(h2::Reason::NO_ERROR);
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            Outcome::Dropped
        }
    };
    driver.abort();
    Ok(outcome)
}

async fn read(response: http::Response<h2::RecvStream>) -> Result<Outcome, h2::Error> {
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut bytes = 0;
    while let Some(piece) = body.data().await {
        bytes += piece?.len() as u64;
    }
    Ok(Outcome::Answered { status, bytes, is_right: true })
}
