//! Lines about errors.

use std::error::Error as _;
use std::time::Duration;

use super::super::{Item, Lines, Peers};
use super::http_client::{self, Client, Error, StatusCode, Url, redirect};

pub(in super::super) const LINES: usize = 20;

pub(in super::super) async fn run(peers: &Peers, lines: &Lines) -> http_client::Result<()> {
    let client = Client::builder().no_proxy().build()?;
    let url = peers.url.as_str();

    // The caller's input.
    lines.done(client.get("no url").send().await.expect_err("no URL").is_builder());
    lines.done(client.get(url).header("x", "a\r\nb").send().await.expect_err("no header").is_builder());
    lines.done(client.get("http://").build().is_err());

    // Connections and time limits.
    let error = client.get(peers.refused.as_str()).send().await.expect_err("nothing listens");
    lines.done(error.is_connect());
    lines.done(error.is_request());
    lines.done(!error.is_timeout());
    lines.is(error.url().map(Url::as_str), Some(peers.refused.as_str()));
    lines.done(error.to_string().contains(&peers.refused));
    lines.done(!error.without_url().to_string().contains(&peers.refused));
    let error = client.get(peers.at("never")).timeout(Duration::from_millis(30)).send().await.expect_err("late");
    lines.done(error.is_timeout());
    lines.is(error.status(), None);

    // Statuses, redirects and contents.
    let error = client.get(peers.at("status/503?token=x")).send().await?.error_for_status().expect_err("503");
    lines.done(error.is_status());
    lines.is(error.status(), Some(StatusCode::SERVICE_UNAVAILABLE));
    let mut error = error;
    if let Some(url) = error.url_mut() {
        url.set_query(None);
    }
    lines.done(!error.to_string().contains("token"));
    let error = error.with_url(Url::parse("http://other.test/").expect("a URL"));
    lines.is(error.url().and_then(Url::host_str), Some("other.test"));
    let strict = Client::builder().no_proxy().redirect(redirect::Policy::limited(1)).build()?;
    lines.done(strict.get(peers.at("moved/5")).send().await.expect_err("too many").is_redirect());
    let error = client.get(url).send().await?.json::<Item>().await.expect_err("no JSON");
    lines.done(error.is_decode() && error.source().is_some());
    lines.done(client.get(url).send().await?.upgrade().await.expect_err("no upgrade").is_upgrade());

    // Errors of tasks, in boxes and in results.
    let task = tokio::spawn({
        let (client, refused) = (client.clone(), peers.refused.clone());
        async move { client.get(refused).send().await.map(drop) }
    });
    let boxed: Box<dyn std::error::Error + Send + Sync> = task.await.expect("no panic").expect_err("refused").into();
    lines.done(boxed.downcast_ref::<Error>().is_some_and(Error::is_connect));
    let result: http_client::Result<()> = Err(*boxed.downcast::<Error>().expect("the error"));
    lines.done(result.is_err_and(|error| !error.is_body()));
    Ok(())
}
