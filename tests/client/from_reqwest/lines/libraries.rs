//! Lines of libraries that are built on the crate: middleware, SDKs, adapters.

use std::error::Error as _;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tower::{Service, ServiceExt};

use super::super::{Lines, Peers};
use super::http_client::dns::{Addrs, Name, Resolve, Resolving};
use super::http_client::{self, Body, Certificate, Client, Error, Identity, IntoUrl, Proxy, Request, Response, Url};

pub(in super::super) const LINES: usize = 39;

/// An error of an SDK, made of that of the crate alone.
#[derive(Debug)]
struct SdkError(Error);

impl From<Error> for SdkError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

fn parsed<U: IntoUrl>(url: U) -> Result<Url, Error> {
    assert!(!url.as_str().is_empty());
    url.into_url()
}

fn proxied(proxy: &str) -> Result<Client, SdkError> {
    Ok(Client::builder().proxy(Proxy::all(proxy)?).proxy(Proxy::http(proxy)?).proxy(Proxy::https(proxy)?).build()?)
}

fn identified(pem: &[u8]) -> Result<Client, SdkError> {
    Ok(Client::builder().identity(Identity::from_pem(pem)?).build()?)
}

fn trusting(der: &[u8]) -> Result<Client, SdkError> {
    Ok(Client::builder().tls_certs_merge([Certificate::from_der(der)?]).build()?)
}

fn shared<T: Send + Sync + 'static>(value: T) -> T {
    value
}

/// Returns the first error of a type among the causes, as middleware that retries looks for it.
fn cause<'a, T: std::error::Error + 'static>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a T> {
    std::iter::successors(error.source(), |error| (*error).source()).find_map(|error| error.downcast_ref())
}

/// Sends by any service for requests of the crate.
async fn served<S: Service<Request, Response = Response, Error = Error>>(mut service: S, request: Request) -> String {
    let response = service.ready().await.expect("ready").call(request).await.expect("a response");
    response.text().await.expect("a body")
}

/// Resolves each name to the loopback address with a port.
struct Local(u16);

impl Resolve for Local {
    fn resolve(&self, name: Name) -> Resolving {
        let all = [SocketAddr::from(([127, 0, 0, 1], self.0))];
        Box::pin(async move {
            if name.as_str() == "lost.test" {
                return Err(io::Error::other("no such name").into());
            }
            Ok(Box::new(all.into_iter()) as Addrs)
        })
    }
}

pub(in super::super) async fn run(peers: &Peers, lines: &Lines) -> http_client::Result<()> {
    let client = Client::builder().no_proxy().build()?;
    let url = peers.url.as_str();

    // URLs, and requests that are sent elsewhere.
    lines.is(parsed(url)?.as_str(), url);
    lines.is(parsed(url.to_owned())?.as_str(), url);
    let text = url.to_owned();
    lines.is(parsed(&text)?.as_str(), url);
    lines.is(parsed(Url::parse(url).expect("a URL"))?.as_str(), url);
    lines.done(parsed("no url").expect_err("no URL").is_builder());
    lines.done(parsed("data:text/plain,x").expect_err("no host").is_builder());
    lines.is(client.get::<&str>(url).send().await?.text().await?, "GET / ");
    let sent = client.get(url).basic_auth::<_, &str>("me", None).send().await?.text().await?;
    lines.is(sent, "GET / authorization: Basic bWU6; ");
    let mut request = client.get(url.replacen("http", "ws", 1)).build()?;
    lines.is(request.url().scheme(), "ws");
    let refused = client.execute(request.try_clone().expect("no body")).await;
    lines.done(refused.expect_err("another protocol").is_builder());
    request.url_mut().set_scheme("http").expect("a special scheme");
    lines.is(client.execute(request).await?.text().await?, "GET / ");

    // Requests as futures, messages and services.
    let request = || client.get(url).build();
    let running = tokio::spawn(client.execute(request()?));
    lines.is(running.await.expect("no panic")?.text().await?, "GET / ");
    lines.is(shared(client.execute(request()?)).await?.text().await?, "GET / ");
    lines.is(shared(client.get(url).send()).await?.text().await?, "GET / ");
    let mut first = request()?;
    *first.version_mut() = http_client::Version::HTTP_11;
    lines.is(first.version(), http_client::Version::HTTP_11);
    let message = http::Request::try_from(request()?)?;
    lines.is(message.uri().to_string(), url);
    lines.is(client.execute(Request::try_from(message)?).await?.text().await?, "GET / ");
    #[allow(unused_mut, reason = "reqwest's is that of a trait")]
    let mut service = &client;
    lines.done(poll_fn(|cx| service.poll_ready(cx)).await.is_ok());
    let response = client.clone().ready().await?.call(request()?).await?;
    lines.is(response.text().await?, "GET / ");
    lines.is(served(client.clone(), request()?).await, "GET / ");
    lines.is(served(&client, request()?).await, "GET / ");
    let limited = tower::ServiceBuilder::new().concurrency_limit(1).service(client.clone());
    lines.is(served(limited, request()?).await, "GET / ");
    lines.is(bytes(Body::from("bytes")).await?, "bytes");
    let failing = Body::wrap_stream(futures_util::stream::iter([Err::<&str, _>(io::Error::other("torn"))]));
    let error = bytes(failing).await.expect_err("torn");
    lines.is(cause::<io::Error>(&error).map(ToString::to_string).as_deref(), Some("torn"));

    // Settings.
    lines.done(proxied("http://proxy.test:3128").is_ok());
    lines.done(proxied("http://").is_err_and(|error| error.0.is_builder() && error.0.source().is_some()));
    lines.done(identified(b"no key").is_err_and(|error| error.0.is_builder() && error.0.source().is_some()));
    let key = rcgen::generate_simple_self_signed(["api.test".to_owned()]).expect("a certificate");
    lines.done(trusting(key.cert.der()).is_ok());
    lines.done(Client::builder().tls_certs_only([]).build().is_ok());
    lines.done(Client::builder().tls_certs_only([]).danger_accept_invalid_certs(true).build().is_ok());
    let port = peers.server.address().port();
    for builder in [
        Client::builder().dns_resolver(Local(0)),
        Client::builder().dns_resolver(Arc::new(Local(1))),
        Client::builder().dns_resolver(Arc::new(Local(1)) as Arc<dyn Resolve>),
    ] {
        let client = builder.no_proxy().build()?;
        lines.is(client.get(format!("http://api.test:{port}/")).send().await?.text().await?, "GET / ");
        let error = client.get("http://lost.test/").send().await.expect_err("unknown");
        assert!(error.is_connect() && cause::<io::Error>(&error).is_some(), "{error}");
    }

    let client_of_port = Client::builder().dns_resolver(Local(port)).no_proxy().build()?;
    lines.is(client_of_port.get("http://api.test/").send().await?.text().await?, "GET / ");

    // What middleware goes by when it retries.
    let error = client.get(peers.refused.as_str()).send().await.expect_err("nothing listens");
    lines.is(cause::<io::Error>(&error).map(io::Error::kind), Some(io::ErrorKind::ConnectionRefused));
    let error = client.post(closing(false).await).body("x").send().await.expect_err("closed");
    lines.done(cause::<hyper::Error>(&error).is_some_and(hyper::Error::is_incomplete_message));
    lines.done(error.is_request() && !error.is_body() && !error.is_timeout() && !error.is_connect());
    let error = client.post(closing(true).await).body("x").send().await.expect_err("reset");
    let of_hyper = cause::<hyper::Error>(&error).expect("hyper's error");
    lines.is(cause::<io::Error>(of_hyper).map(io::Error::kind), Some(io::ErrorKind::ConnectionReset));
    let slow = client.get(peers.at("never")).timeout(Duration::from_millis(20)).send().await.expect_err("late");
    lines.done(slow.is_timeout() && slow.is_request());
    Ok(())
}

/// Reads a body whose error is the crate's.
async fn bytes<B: http_body::Body<Error = Error>>(body: B) -> Result<String, Error>
where
    B::Data: std::fmt::Debug,
{
    let all = http_body_util::BodyExt::collect(body).await?.to_bytes();
    Ok(String::from_utf8_lossy(&all).into_owned())
}

/// Returns the URL of a server that reads a request and closes, with a reset if `resets`.
async fn closing(resets: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            if resets {
                let _ = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
            }
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.flush().await;
        }
    });
    url
}
