//! Lines about clients and their settings.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::super::{Lines, Peers};
use super::http_client;
use super::http_client::header::{ACCEPT, HeaderMap, HeaderValue, USER_AGENT};
use super::http_client::{Client, ClientBuilder};

pub(in super::super) const LINES: usize = 41;

/// Returns the answer to a GET from a client with these settings.
async fn answer(builder: ClientBuilder, url: &str) -> http_client::Result<String> {
    builder.no_proxy().build()?.get(url).send().await?.text().await
}

pub(in super::super) async fn run(peers: &Peers, lines: &Lines) -> http_client::Result<()> {
    let url = peers.url.as_str();
    clients(peers, lines).await?;
    protocols(url, lines).await?;

    // Defaults of requests.
    let mut headers = HeaderMap::new();
    headers.insert("x-a", HeaderValue::from_static("default"));
    let with_headers = || Client::builder().default_headers(headers.clone());
    lines.is(answer(with_headers(), url).await?, "GET / x-a: default; ");
    let own = with_headers().no_proxy().build()?;
    lines.is(own.get(url).header("x-a", "own").send().await?.text().await?, "GET / x-a: own; ");
    lines.is(answer(Client::builder().user_agent("me/1.0"), url).await?, "GET / user-agent: me/1.0; ");
    let agent = format!("me/{}", 2);
    lines.is(answer(Client::builder().user_agent(agent), url).await?, "GET / user-agent: me/2; ");
    lines.is(answer(Client::builder().user_agent(HeaderValue::from_static("v")), url).await?, "GET / user-agent: v; ");
    let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("text/x"))]);
    lines.is(answer(Client::builder().default_headers(headers), url).await?, "GET / accept: text/x; ");
    lines.done(Client::builder().user_agent("a\nb").build().is_err());
    let named = Client::builder().no_proxy().user_agent("default").build()?;
    let sent = named.get(url).header(USER_AGENT, "own").send().await?.text().await?;
    lines.is(sent, "GET / user-agent: own; ");

    // Time limits.
    let hasty = Client::builder().no_proxy().timeout(Duration::from_millis(30)).build()?;
    lines.done(hasty.get(peers.at("never")).send().await.expect_err("late").is_timeout());
    lines.is(answer(Client::builder().connect_timeout(Duration::from_secs(5)), url).await?, "GET / ");
    let read = Client::builder().no_proxy().read_timeout(Duration::from_millis(30)).build()?;
    lines.done(read.get(peers.at("never")).send().await.expect_err("late").is_timeout());

    // The pool and the sockets.
    lines.is(answer(Client::builder().pool_idle_timeout(Duration::from_secs(9)), url).await?, "GET / ");
    lines.is(answer(Client::builder().pool_idle_timeout(None), url).await?, "GET / ");
    lines.is(answer(Client::builder().pool_max_idle_per_host(0), url).await?, "GET / ");
    lines.is(answer(Client::builder().tcp_nodelay(true), url).await?, "GET / ");
    lines.is(answer(Client::builder().tcp_keepalive(Duration::from_secs(60)), url).await?, "GET / ");
    lines.is(answer(Client::builder().tcp_keepalive_interval(Duration::from_secs(9)), url).await?, "GET / ");
    lines.is(answer(Client::builder().tcp_keepalive_retries(3), url).await?, "GET / ");
    #[cfg(target_os = "linux")]
    lines.is(answer(Client::builder().tcp_user_timeout(Duration::from_secs(9)), url).await?, "GET / ");
    #[cfg(target_os = "linux")]
    lines.is(answer(Client::builder().interface("lo"), url).await?, "GET / ");
    lines.is(answer(Client::builder().local_address(IpAddr::V4(Ipv4Addr::LOCALHOST)), url).await?, "GET / ");
    lines.is(answer(Client::builder().connection_verbose(true), url).await?, "GET / ");

    // Names.
    let address: SocketAddr = peers.server.address();
    let named = format!("http://api.test:{}/", address.port());
    lines.is(answer(Client::builder().resolve("api.test", address), &named).await?, "GET / ");
    let portless = Client::builder().resolve_to_addrs("api.test", &[SocketAddr::new(address.ip(), address.port())]);
    lines.is(answer(portless, "http://api.test/").await?, "GET / ");
    Ok(())
}

async fn clients(peers: &Peers, lines: &Lines) -> http_client::Result<()> {
    let url = peers.url.as_str();
    lines.is(answer(Client::builder(), url).await?, "GET / ");
    lines.is(answer(ClientBuilder::new(), url).await?, "GET / ");
    lines.is(answer(ClientBuilder::default(), url).await?, "GET / ");
    lines.is(Client::new().get(url).send().await?.status(), 200);
    lines.is(Client::default().get(url).send().await?.status(), 200);
    lines.done(format!("{:?}", Client::new()).contains("Client"));
    let client = Client::builder().no_proxy().build()?;
    let tasks = (0..4).map(|_| {
        let (client, url) = (client.clone(), url.to_owned());
        tokio::spawn(async move { client.get(&url).send().await?.text().await })
    });
    let all = futures_util::future::join_all(tasks).await;
    lines.done(all.into_iter().all(|text| text.expect("no panic").is_ok_and(|text| text == "GET / ")));
    Ok(())
}

async fn protocols(url: &str, lines: &Lines) -> http_client::Result<()> {
    lines.is(answer(Client::builder().http1_only(), url).await?, "GET / ");
    lines.is(answer(Client::builder().http1_title_case_headers(), url).await?, "GET / ");
    let lenient = Client::builder()
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .http1_ignore_invalid_headers_in_responses(true)
        .http1_allow_spaces_after_header_name_in_responses(true);
    lines.is(answer(lenient, url).await?, "GET / ");
    lines.is(answer(Client::builder().http1_max_headers(50), url).await?, "GET / ");
    let windows = Client::builder()
        .http2_initial_stream_window_size(65_535 * 4)
        .http2_initial_connection_window_size(65_535 * 16)
        .http2_max_frame_size(20_000)
        .http2_max_header_list_size(16_384);
    lines.is(answer(windows, url).await?, "GET / ");
    lines.is(answer(Client::builder().http2_adaptive_window(true), url).await?, "GET / ");
    let pings = Client::builder()
        .http2_keep_alive_interval(Duration::from_secs(30))
        .http2_keep_alive_timeout(Duration::from_secs(9))
        .http2_keep_alive_while_idle(true);
    lines.is(answer(pings, url).await?, "GET / ");
    lines.done(Client::builder().http2_prior_knowledge().build().is_ok());
    let codings = Client::builder().gzip(true).brotli(false).zstd(true).deflate(false);
    lines.is(answer(codings, url).await?, "GET / ");
    lines.is(answer(Client::builder().no_gzip().no_brotli().no_zstd().no_deflate(), url).await?, "GET / ");
    Ok(())
}
