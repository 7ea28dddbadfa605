//! The `Server-Timing` headers of responses: on real sockets, over both versions of HTTP, and across the requests of a call.

use std::time::Duration;

use speeddial::trace::Timings;
use speeddial::{Client, Error, RetryPolicy};
use support::full;
use support::http_server::HttpServer;

/// Starts a server whose `/away` redirects to `/there`, whose `/busy` says that it is overloaded, and whose other pages say how
/// long they took.
fn server(http2: bool) -> HttpServer {
    let server = HttpServer::start_as(http2, |request| async move {
        let response = hyper::Response::builder();
        let response = match request.uri().path() {
            "/away" => response.status(302).header("location", "/there").header("server-timing", "first;dur=1"),
            "/there" => response,
            "/busy" => response.status(503).header("server-timing", "full"),
            "/hostile" => {
                let hostile =
                    b"\xc2\x9b31m;dur=1, a: refused;dur=1, y;desc=\"a\tb\xff\xc2\x9b31m\", , ;dur=1, x;dur=-5";
                response.header("server-timing", hostile.as_slice())
            }
            _ => response
                .header("server-timing", "db;dur=380.5;desc=\"two, or more\"")
                .header("server-timing", "cache;desc=HIT, total;dur=401"),
        };
        response.body(full("hello")).unwrap()
    });
    server.unwrap()
}

async fn get(client: &Client, server: &HttpServer, path: &str) -> Timings {
    let response = client.get(format!("http://{}{path}", server.address())).send().await.unwrap();
    let handle = response.timings_handle();
    response.bytes().await.unwrap();
    handle.timings()
}

fn parts(timings: &Timings) -> Vec<(&str, Option<Duration>, Option<&str>)> {
    timings.server_timing().iter().map(|part| (&*part.name, part.duration, part.description.as_deref())).collect()
}

#[tokio::test]
async fn the_servers_own_times_are_part_of_the_timings() {
    for http2 in [false, true] {
        let server = server(http2);
        let builder = Client::builder();
        let client = if http2 { builder.http2_prior_knowledge() } else { builder }.build().unwrap();
        let timings = get(&client, &server, "/").await;
        let expected = [
            ("db", Some(Duration::from_micros(380_500)), Some("two, or more")),
            ("cache", None, Some("HIT")),
            ("total", Some(Duration::from_millis(401)), None),
        ];
        assert_eq!(parts(&timings), expected, "HTTP/2: {http2}");
        let text = timings.waterfall().color(false).to_string();
        let rows: Vec<_> = text.lines().filter(|line| line.trim_start().starts_with("server ")).collect();
        assert!(rows.len() == 3 && rows[0].contains("380 ms") && rows[0].ends_with("db: two, or more"), "{text}");
        assert!(timings.to_svg().contains("total"));
    }
}

#[tokio::test]
async fn only_the_last_response_counts() {
    let server = server(false);
    let client = Client::new();
    assert!(parts(&get(&client, &server, "/away").await).is_empty(), "those of the redirect do not count");
    let policy = RetryPolicy::new().attempts(2).backoff(Duration::ZERO, Duration::ZERO).no_budget();
    let retrying = Client::builder().retry(policy).build().unwrap();
    assert_eq!(parts(&get(&retrying, &server, "/busy").await), [("full", None, None)]);
    let error: Error =
        client.get(format!("http://{}/busy", server.address())).send().await.unwrap().error_for_status().unwrap_err();
    assert_eq!(error.timings().map(|timings| timings.server_timing().len()), Some(1), "{error}");
}

#[tokio::test]
async fn hazard_a_server_cannot_steer_the_terminal_by_its_times() {
    let server = server(false);
    let timings = get(&Client::new(), &server, "/hostile").await;
    assert_eq!(
        parts(&timings),
        [("y", None, Some("a\u{fffd}b\u{fffd}\u{fffd}31m")), ("x", None, None)],
        "names are tokens, and a negative time is none"
    );
    let text = timings.waterfall().color(false).to_string();
    assert!(text.chars().all(|char| char == '\n' || !char.is_control()), "{text:?}");
}

#[cfg(feature = "serde")]
#[tokio::test]
async fn the_servers_times_are_serialized() {
    let server = server(false);
    let value = serde_json::to_value(get(&Client::new(), &server, "/").await).unwrap();
    let [db, cache, _] = &value["server_timing"].as_array().unwrap()[..] else { panic!("{value}") };
    assert_eq!(*db, serde_json::json!({"name": "db", "duration_ns": 380_500_000, "description": "two, or more"}));
    assert!(cache["duration_ns"].is_null());
}
