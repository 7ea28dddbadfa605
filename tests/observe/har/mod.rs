//! HAR documents of calls: valid by the format's field table, whatever happened to the call.

mod broken_documents;
pub(super) mod format;
mod secrets;

use std::time::Duration;

use serde_json::{Value, json};
use speeddial::dns::{FixedResolver, ResolveErrorKind};
use speeddial::http::Method;
use speeddial::transport::Transport;
use speeddial::url::Url;
use speeddial::{Client, ClientBuilder, HedgePolicy, PoolConfig, RetryPolicy};
use speeddial_inspect::{Har, HarEntry};

use super::requests::{BUSY, OK, Thrice, net};
use support::fake_dns::FakeDns;
use support::fake_net::{FakeNet, Host};
use support::http_server::HttpServer;
use support::{full, v4};

const URL: &str = "http://a.test/here";
const AWAY: &str = "HTTP/1.1 302 Found\r\nlocation: http://b.test/there\r\ncontent-length: 0\r\n\r\n";

fn builder(net: impl Transport, har: &Har) -> ClientBuilder {
    let names = FixedResolver::new().with("a.test", [v4(1)]).with("b.test", [v4(2)]);
    Client::builder().dns_resolver(names).transport(net).no_proxy().observer(har.clone())
}

async fn get(client: &Client, url: &str) -> speeddial::Result<String> {
    client.get(url).send().await?.text().await
}

/// Returns the document, which has to be valid.
fn valid(har: &Har) -> Value {
    let document = serde_json::from_str(&har.to_json()).expect("it is JSON");
    assert_eq!(format::faults(&document), [""; 0], "{document:#}");
    document
}

/// Returns the entries of the document, which has to be valid.
fn entries(har: &Har) -> Vec<Value> {
    valid(har)["log"]["entries"].as_array().unwrap().clone()
}

/// Returns blocked, dns, connect, ssl, send, wait and receive of an entry in milliseconds, and its time.
fn times(entry: &Value) -> [f64; 8] {
    let of = |name: &str| entry["timings"][name].as_f64().unwrap();
    let [blocked, dns, connect, ssl] = ["blocked", "dns", "connect", "ssl"].map(of);
    [blocked, dns, connect, ssl, of("send"), of("wait"), of("receive"), entry["time"].as_f64().unwrap()]
}

/// Returns the milliseconds from the start of one entry or page to that of another one.
fn between(first: &Value, second: &Value) -> i64 {
    let since_midnight = |entry: &Value| {
        let date = entry["startedDateTime"].as_str().unwrap();
        let number = |from: usize, to: usize| date[from..to].parse::<i64>().unwrap();
        ((number(11, 13) * 60 + number(14, 16)) * 60 + number(17, 19)) * 1_000 + number(20, 23)
    };
    (since_midnight(second) - since_midnight(first)).rem_euclid(24 * 3_600_000)
}

#[tokio::test(start_paused = true)]
async fn phases_that_did_not_happen_are_minus_one_and_the_source_of_addresses_is_told() {
    let har = Har::last(9);
    let host = Host::Serves { connect: 20, think: 50, body: 10 };
    let pool = PoolConfig::new().idle_timeout(Duration::from_secs(1));
    let client = builder(FakeNet::new([(v4(1), host)]), &har).dns_resolver(FakeDns::v4(30, v4(1), 9)).pool(pool);
    let client = client.build().unwrap();
    for pause in [0, 0, 1_500] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        get(&client, URL).await.unwrap();
    }
    let [cold, warm, hit] = &entries(&har)[..] else { panic!("three") };
    // It entered the queue until its connection was opened, and did not wait otherwise.
    assert_eq!(times(cold), [0.0, 30.0, 20.0, -1.0, 0.0, 50.0, 10.0, 110.0]);
    assert_eq!(times(warm), [-1.0, -1.0, -1.0, -1.0, 0.0, 50.0, 10.0, 60.0]);
    assert_eq!(times(hit), [0.0, 0.0, 20.0, -1.0, 0.0, 50.0, 10.0, 80.0]);
    assert_eq!(cold["_dns"], json!({"source": "miss", "ttl": 9, "addresses": ["192.0.2.1"]}));
    assert!(warm["_dns"].is_null() && hit["_dns"]["source"] == "hit", "{warm} {hit}");
    assert_eq!([&cold["_reused"], &warm["_reused"], &hit["_reused"]], [false, true, false]);
    assert!(cold["_connectionId"].is_string() && cold["_connectionId"] == warm["_connectionId"]);
    assert!(cold["_connectionId"] != hit["_connectionId"] && hit["connection"] == "80", "{hit}");
    assert_eq!((&cold["serverIPAddress"], &cold["_remote"]), (&json!("192.0.2.1"), &json!("192.0.2.1:80")));
    assert_eq!([between(cold, warm), between(warm, hit)], [110, 1_560]);
    let expected = json!({"size": 5, "mimeType": "x-unknown"});
    assert_eq!((&cold["response"]["bodySize"], &cold["response"]["content"]), (&json!(5), &expected));
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_the_queue_is_told_with_its_reason() {
    let har = Har::last(9);
    let host = Host::Serves { connect: 20, think: 50, body: 10 };
    let pool = PoolConfig::new().max_connections_per_host(1);
    let client = builder(FakeNet::new([(v4(1), host)]), &har).pool(pool).build().unwrap();
    let (first, second) = tokio::join!(get(&client, URL), get(&client, URL));
    first.and(second).unwrap();
    let [_, queued] = &entries(&har)[..] else { panic!("two") };
    assert_eq!(times(queued), [80.0, -1.0, -1.0, -1.0, 0.0, 50.0, 10.0, 140.0]);
    assert_eq!(queued["_queued"], "the host has all the connections it may have");
    assert_eq!(queued["_why"]["reasons"][0]["cause"], "host-connections-in-use");
}

#[tokio::test(start_paused = true)]
async fn the_reasons_are_those_of_the_call_in_words_and_as_values() {
    let (net, _) = net(&[(5, AWAY), (50, OK)]);
    let har = Har::last(9);
    let client = builder(net, &har).build().unwrap();
    let response = client.get(URL).send().await.unwrap();
    let handle = response.timings_handle();
    response.bytes().await.unwrap();
    let why = handle.timings().why();
    let [redirected, last] = &entries(&har)[..] else { panic!("two") };
    assert!(redirected["_why"].is_null(), "the call went on: {redirected}");
    assert_eq!(last["_why"]["text"], why.to_string());
    let reasons = last["_why"]["reasons"].as_array().unwrap();
    assert_eq!(reasons.len(), why.reasons().len());
    for (written, reason) in reasons.iter().zip(why.reasons()) {
        assert_eq!(written["text"], reason.to_string());
        assert_eq!(
            (&written["cause"], &written["phase"]),
            (&json!(reason.cause.as_str()), &json!(reason.phase.as_str()))
        );
        assert_eq!(written["time"].as_f64(), Some(reason.time.as_secs_f64() * 1e3));
        assert!((written["share"].as_f64().unwrap() - reason.share).abs() < 1e-4);
        assert_eq!(written["advice"].as_str(), reason.advice);
    }
    assert_eq!(reasons[0]["cause"], "server-slow");
}

#[tokio::test(start_paused = true)]
async fn the_requests_of_a_redirected_call_are_entries_of_one_page() {
    let (net, _) = net(&[(5, AWAY), (7, OK)]);
    let har = Har::last(9);
    get(&builder(net, &har).build().unwrap(), URL).await.unwrap();
    let document = valid(&har);
    let [page] = &document["log"]["pages"].as_array().unwrap()[..] else { panic!("one page") };
    let [away, there] = &document["log"]["entries"].as_array().unwrap()[..] else { panic!("two entries") };
    assert_eq!((&away["pageref"], &there["pageref"]), (&page["id"], &page["id"]));
    assert_eq!((&page["title"], &page["pageTimings"]["onLoad"]), (&json!("GET http://a.test/here"), &json!(32)));
    assert_eq!((between(page, away), between(away, there)), (0, 15));
    assert_eq!((&away["response"]["status"], &away["_end"]), (&json!(302), &json!("redirected")));
    assert_eq!(away["response"]["redirectURL"], "http://b.test/there");
    assert_eq!(away["response"]["bodySize"], -1, "it was not read");
    assert_eq!((&there["request"]["url"], &there["_end"]), (&json!("http://b.test/there"), &json!("answered")));
    assert_eq!(there["response"]["redirectURL"], "");
}

#[tokio::test(start_paused = true)]
async fn retries_are_entries_and_the_backoff_is_before_them() {
    let (net, _) = net(&[(5, BUSY), (5, OK)]);
    let har = Har::last(9);
    let wait = Duration::from_millis(40);
    let policy = RetryPolicy::new().attempts(2).backoff(wait, wait).no_budget();
    get(&builder(net, &har).retry(policy).build().unwrap(), URL).await.unwrap();
    let [busy, answered] = &entries(&har)[..] else { panic!("two") };
    assert_eq!((&busy["_end"], &busy["response"]["status"]), (&json!("repeated (status 503)"), &json!(503)));
    let backoff = answered["_backoff"].as_f64().unwrap();
    assert!(backoff > 0.0 && busy["_backoff"].is_null(), "{backoff}");
    assert_eq!((times(busy)[7], times(answered)[7]), (15.0, 5.0), "the backoff is no part of a request");
    assert_eq!(between(busy, answered), 15 + backoff as i64);
}

#[tokio::test(start_paused = true)]
async fn each_attempt_of_a_layer_is_an_entry_with_its_own_times() {
    let (net, _) = net(&[(5, BUSY), (7, OK)]);
    let har = Har::last(9);
    let client = builder(net, &har).attempt_layer(tower::retry::RetryLayer::new(Thrice)).build().unwrap();
    get(&client, URL).await.unwrap();
    let [busy, answered] = &entries(&har)[..] else { panic!("two") };
    assert_eq!((&busy["_end"], &answered["_end"]), (&json!("superseded"), &json!("answered")));
    assert_eq!((times(busy)[7], times(answered)[7]), (15.0, 7.0));
    assert_eq!(between(busy, answered), 15);
}

#[tokio::test(start_paused = true)]
async fn an_entry_of_a_whole_call_lists_its_earlier_requests() {
    let (net, _) = net(&[(5, AWAY), (7, OK)]);
    let client = builder(net, &Har::last(0)).build().unwrap();
    let response = client.get(URL).send().await.unwrap();
    let (url, handle) = (response.url().clone(), response.timings_handle());
    response.bytes().await.unwrap();
    let [entry] = &entries(&Har::of(&Method::GET, &url, &handle.timings()))[..] else { panic!("one") };
    assert_eq!((&entry["request"]["url"], &entry["time"]), (&json!("http://b.test/there"), &json!(17)));
    let earlier =
        json!({"end": "redirected (302)", "started": 0, "time": 15, "_remote": "192.0.2.1:80", "_reused": false});
    assert_eq!(entry["_earlier"], json!([earlier]));
    assert_eq!(entry["_why"]["text"], handle.timings().why().to_string());
}

#[tokio::test(start_paused = true)]
async fn both_attempts_of_a_hedged_request_are_entries() {
    let (net, _) = net(&[(10, OK), (1_000_000, OK), (10, OK)]);
    let har = Har::last(9);
    let hedge = HedgePolicy::new().min_samples(1).budget(1.0);
    let client = builder(net, &har).hedge(hedge).build().unwrap();
    get(&client, URL).await.unwrap();
    get(&client, URL).await.unwrap();
    let [_, late, won] = &entries(&har)[..] else { panic!("three: {:#?}", entries(&har)) };
    assert_eq!((&late["_end"], &late["response"]["status"]), (&json!("superseded"), &json!(0)));
    assert_eq!((&won["_end"], &won["_hedged"]), (&json!("answered"), &json!("won")));
    assert!(between(late, won) > 0 && late["pageref"] == won["pageref"]);
    assert!(late["_why"].is_null() && !won["_why"].is_null());
}

#[tokio::test(start_paused = true)]
async fn the_redirect_of_a_hedged_request_leads_to_the_next_url_and_not_to_its_second_attempt() {
    let (net, _) = net(&[(10, OK), (100, AWAY), (1_000_000, OK), (10, OK)]);
    let har = Har::last(9);
    let hedge = HedgePolicy::new().min_samples(1).budget(1.0);
    let client = builder(net, &har).hedge(hedge).build().unwrap();
    get(&client, URL).await.unwrap();
    get(&client, URL).await.unwrap();
    let [_, first, lost, _] = &entries(&har)[..] else { panic!("four: {:#?}", entries(&har)) };
    assert_eq!((&first["_end"], &lost["_end"]), (&json!("redirected"), &json!("superseded")));
    assert_eq!(first["response"]["redirectURL"], json!("http://b.test/there"));
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_or_are_dropped_have_no_status_and_a_failure() {
    let har = Har::last(9);
    let hosts = [(v4(1), Host::Refuses(7)), (v4(2), Host::Serves { connect: 1, think: 1_000, body: 0 })];
    let client = builder(FakeNet::new(hosts), &har).build().unwrap();
    get(&client, URL).await.unwrap_err();
    assert!(tokio::time::timeout(Duration::from_millis(100), get(&client, "http://b.test/")).await.is_err());
    let nameless = FakeDns { v4: (30, Err(ResolveErrorKind::NxDomain)), ..FakeDns::v4(30, v4(1), 9) };
    let other = Har::last(9);
    let nameless = builder(FakeNet::default(), &other).dns_resolver(nameless).build().unwrap();
    get(&nameless, URL).await.unwrap_err();
    let entries = [entries(&har), entries(&other)].concat();
    let told: Vec<_> = entries.iter().map(|entry| entry["_failure"].as_str().unwrap()).collect();
    assert_eq!(told, ["connect", "cancelled", "resolve"]);
    for entry in &entries {
        let response = &entry["response"];
        assert_eq!((&response["status"], &response["httpVersion"]), (&json!(0), &json!("")));
        assert_eq!((&response["bodySize"], &response["_error"]), (&json!(-1), &entry["_failure"]));
    }
    assert_eq!(times(&entries[0]), [0.0, 0.0, 7.0, -1.0, 0.0, 0.0, 0.0, 7.0]);
    assert_eq!(times(&entries[1])[5..], [99.0, 0.0, 100.0]);
    assert_eq!(times(&entries[2]), [0.0, 30.0, -1.0, -1.0, 0.0, 0.0, 0.0, 30.0]);
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn tls_is_a_part_of_the_connection_and_only_of_a_new_one() {
    use support::certs::Authority;
    use support::tls_server::TlsServer;
    for (alpn, version) in [("http/1.1", "HTTP/1.1"), ("h2", "HTTP/2.0")] {
        let authority = Authority::new();
        let server = TlsServer::start(authority.server(&["a.test"], &[alpn])).await;
        let tls = speeddial::tls::TlsConfig::new().add_roots([authority.root()]).only_added_roots();
        let names = FixedResolver::new().with("a.test", [server.address().ip()]);
        let har = Har::last(9);
        let client = Client::builder().dns_resolver(names).tls(tls).no_proxy().observer(har.clone()).build().unwrap();
        for _ in 0..2 {
            get(&client, &format!("https://a.test:{}/", server.address().port())).await.unwrap();
        }
        let [new, reused] = &entries(&har)[..] else { panic!("two") };
        let [_, _, connect, ssl, ..] = times(new);
        assert!(ssl > 0.0 && connect > ssl, "{new}");
        assert_eq!(times(reused)[1..4], [-1.0; 3], "{reused}");
        for entry in [new, reused] {
            assert_eq!((&entry["_tls"]["alpn"], &entry["response"]["httpVersion"]), (&json!(alpn), &json!(version)));
            assert_eq!(entry["_connectionId"], new["_connectionId"]);
        }
    }
}

#[tokio::test]
async fn the_servers_own_account_and_its_headers_are_told() {
    let server = HttpServer::start_as(true, |_| async {
        let response = hyper::Response::builder().header("server-timing", "db;dur=3.5;desc=\"a, b\", miss");
        response.header("content-type", "text/plain").body(full("hello")).unwrap()
    });
    let server = server.unwrap();
    let client = Client::builder().http2_prior_knowledge().no_proxy().build().unwrap();
    let url = Url::parse(&format!("http://{}/?a=1&b=2", server.address())).unwrap();
    let response = client.get(url.as_str()).send().await.unwrap();
    let (headers, handle) = (response.headers().clone(), response.timings_handle());
    response.bytes().await.unwrap();
    let har = Har::last(1);
    har.add(HarEntry::new(&Method::GET, &url, &handle.timings()).response_headers(&headers));
    let [entry] = &entries(&har)[..] else { panic!("one") };
    assert_eq!(
        entry["_server_timing"],
        json!([{"name": "db", "duration": 3.5, "description": "a, b"}, {"name": "miss"}])
    );
    assert_eq!(entry["response"]["content"], json!({"size": 5, "mimeType": "text/plain"}));
    assert_eq!(entry["response"]["httpVersion"], "HTTP/2.0");
    let query = json!([{"name": "a", "value": "removed"}, {"name": "b", "value": "removed"}]);
    assert_eq!(entry["request"]["queryString"], query);
}

#[tokio::test(start_paused = true)]
async fn the_last_or_the_slowest_calls_are_kept_and_no_more() {
    let answers: Vec<_> = (0..20).map(|number| (if number % 10 == 3 { 50 } else { 1 }, OK)).collect();
    let (net, _) = net(&answers);
    let (last, slowest) = (Har::last(5), Har::slowest(3));
    let client = builder(net, &last).observer(slowest.clone()).build().unwrap();
    for number in 0..20 {
        get(&client, &format!("http://a.test/{number}")).await.unwrap();
    }
    let paths = |har: &Har| -> Vec<String> {
        let url = |entry: &Value| entry["request"]["url"].as_str().unwrap().replace("http://a.test", "");
        entries(har).iter().map(url).collect()
    };
    assert_eq!(paths(&last), ["/15", "/16", "/17", "/18", "/19"]);
    assert_eq!(paths(&slowest), ["/0", "/3", "/13"], "the first one opened the connection");
    assert_eq!((last.len(), slowest.clone().len()), (5, 3), "clones share the document");
}

#[test]
fn a_document_without_calls_is_valid() {
    assert_eq!(valid(&Har::last(9))["log"]["entries"], json!([]));
}
