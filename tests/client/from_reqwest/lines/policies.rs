//! Lines about redirects, retries and proxies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::{Lines, Peers};
use super::http_client;
use super::http_client::header::{HeaderMap, HeaderValue};
use super::http_client::{Client, Method, NoProxy, Proxy, StatusCode, Url, redirect, retry};

pub(in super::super) const LINES: usize = 22;

pub(in super::super) async fn run(peers: &Peers, lines: &Lines) -> http_client::Result<()> {
    redirects(peers, lines).await?;
    retries(peers, lines).await?;
    proxies(peers, lines).await
}

async fn redirects(peers: &Peers, lines: &Lines) -> http_client::Result<()> {
    let client = Client::builder().no_proxy().build()?;
    let response = client.get(peers.at("moved/3")).send().await?;
    lines.is(response.url().path(), "/");
    lines.is(response.status(), StatusCode::OK);
    lines.done(client.post(peers.at("kept")).body("again").send().await?.text().await?.ends_with("again"));
    let status = async |policy: redirect::Policy| {
        let client = Client::builder().no_proxy().redirect(policy).build()?;
        client.get(peers.at("moved/3")).send().await.map(|response| response.status().as_u16())
    };
    lines.is(status(redirect::Policy::none()).await?, 302);
    lines.is(status(redirect::Policy::default()).await?, 200);
    lines.done(status(redirect::Policy::limited(2)).await.is_err_and(|error| error.is_redirect()));
    let custom = redirect::Policy::custom(|attempt| {
        if attempt.previous().len() > 1 && attempt.status() == StatusCode::FOUND {
            attempt.stop()
        } else {
            attempt.follow()
        }
    });
    lines.is(status(custom).await?, 302);
    let refuses = redirect::Policy::custom(|attempt| {
        let why = format!("not to {}", attempt.url().path());
        attempt.error(why)
    });
    lines.done(status(refuses).await.is_err_and(|error| error.is_redirect()));
    let wraps = redirect::Policy::custom(|attempt| redirect::Policy::default().redirect(attempt));
    lines.is(status(wraps).await?, 200);
    let silent = Client::builder().no_proxy().referer(false).build()?;
    lines.is(silent.get(peers.at("moved/1")).send().await?.text().await?, "GET / ");
    Ok(())
}

async fn retries(peers: &Peers, lines: &Lines) -> http_client::Result<()> {
    let url = peers.at("status/503");
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let policy =
        retry::for_host("127.0.0.1").max_retries_per_request(1).max_extra_load(0.5).classify_fn(move |req_rep| {
            counter.fetch_add(1, Ordering::SeqCst);
            match (req_rep.method(), req_rep.status()) {
                (&Method::GET, Some(StatusCode::SERVICE_UNAVAILABLE)) => req_rep.retryable(),
                _ => req_rep.success(),
            }
        });
    let client = Client::builder().no_proxy().retry(policy).build()?;
    lines.is(client.get(&url).send().await?.status(), StatusCode::SERVICE_UNAVAILABLE);
    lines.done(asked.load(Ordering::SeqCst) >= 1);
    let never = Client::builder().no_proxy().retry(retry::never()).build()?;
    lines.is(never.get(&url).send().await?.status().as_u16(), 503);
    let lavish = Client::builder().no_proxy().retry(retry::for_host("other.test").no_budget()).build()?;
    lines.is(lavish.get(&url).send().await?.status().as_u16(), 503);
    Ok(())
}

/// The server takes the place of a proxy: it answers requests in absolute form.
async fn proxies(peers: &Peers, lines: &Lines) -> http_client::Result<()> {
    let proxy = peers.url.as_str();
    let through = async |proxy: Proxy| {
        Client::builder().proxy(proxy).build()?.get("http://api.test/x").send().await?.text().await
    };
    lines.is(through(Proxy::http(proxy)?).await?, "GET http://api.test/x ");
    lines.is(through(Proxy::all(proxy)?).await?, "GET http://api.test/x ");
    lines.is(through(Proxy::all(proxy)?.basic_auth("me", "secret")).await?, "GET http://api.test/x ");
    let value = HeaderValue::from_static("Bearer token");
    lines.is(through(Proxy::all(proxy)?.custom_http_auth(value)).await?, "GET http://api.test/x ");
    let url = Url::parse(proxy).expect("a URL");
    let chosen = Proxy::custom(move |asked| (asked.host_str() == Some("api.test")).then(|| url.clone()));
    lines.is(through(chosen).await?, "GET http://api.test/x ");
    let headers = HeaderMap::from_iter([(http::header::REFERER, HeaderValue::from_static("r"))]);
    lines.done(through(Proxy::http(proxy)?.headers(headers)).await.is_ok());
    let except = Proxy::http(peers.refused.as_str())?.no_proxy(NoProxy::from_string("127.0.0.1"));
    lines.is(Client::builder().proxy(except).build()?.get(proxy).send().await?.text().await?, "GET / ");
    lines.done(Proxy::https(proxy).is_ok() && Proxy::all("no proxy").is_err());
    Ok(())
}
