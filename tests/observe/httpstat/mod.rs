//! The `httpstat` example, and what `load` shares with it, as a user runs them: against their own servers, dnsmasq, a proxy, and a
//! closed port.

mod files;
mod modes;
mod with_dnsmasq;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

use support::http_server::HttpServer;
use support::{full, refusing};

fn httpstat(arguments: &[&str]) -> Output {
    Command::new(built()).args(arguments).output().unwrap()
}

fn built() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| super::examples::build("httpstat"))
}

fn objects(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn httpstat_without_arguments_shows_a_cold_a_reused_and_an_expired_request() {
    let output = httpstat(&["--json"]);
    assert!(output.status.success());
    let [cold, reused, expired] = &objects(&output)[..] else { panic!("three requests: {output:?}") };
    // An answer of DNS that is used again is refreshed before its end: by the dial that begins beside one of 100 ms, or by a request on
    // a connection 250 ms later.
    let took: f64 = [cold, reused].map(|request| request["total_us"].as_f64().unwrap()).iter().sum();
    let expired_sources: &[&str] = if took >= 100_000.0 { &["miss", "hit"] } else { &["miss"] };
    for (request, expected_reused, sources) in
        [(cold, false, &["miss"][..]), (reused, true, &["null"]), (expired, false, expired_sources)]
    {
        assert_eq!((&request["status"], &request["reused"]), (&200.into(), &expected_reused.into()));
        let dns_source = request["dns"]["source"].as_str().unwrap_or("null");
        assert!(sources.contains(&dns_source), "{request}, after {cold} and {reused}");
        let phases = ["queue", "dns", "connect", "tls", "send", "wait", "receive"];
        let sum: f64 = phases.iter().map(|phase| request[format!("{phase}_us")].as_f64().unwrap()).sum();
        assert!((sum - request["total_us"].as_f64().unwrap()).abs() < 0.01, "{request}");
    }
    assert_eq!(cold["dns"]["ttl_s"], 2.0);
    for request in [cold, reused, expired] {
        let causes = request["causes"].as_array().unwrap();
        assert!(!causes.is_empty() && request["why"].as_str().unwrap().contains("ms"), "{request}");
    }
}

#[test]
fn httpstat_draws_a_waterfall() {
    let output = httpstat(&["--count", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["#1: HTTP/1.1 200 OK", "\n  dns  ", "miss, TTL 2.00 s, 127.0.0.1", "█", "\n  total ", "\n  why  "] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn httpstat_exits_with_1_for_a_failed_request_and_2_for_wrong_options() {
    let (_kept, closed) = refusing();
    let failed = httpstat(&["--json", "--count", "1", &format!("http://{closed}/")]);
    assert_eq!(failed.status.code(), Some(1));
    let error = &objects(&failed)[0]["error"];
    assert_eq!((&error["kind"], &error["phase"]), (&"connect".into(), &"connect".into()));
    let invalid = httpstat(&["--json", "--count", "1", "http://user:secret@ho st/"]);
    assert_eq!(invalid.status.code(), Some(1));
    let output = &objects(&invalid)[0];
    assert!(
        output["total_us"].is_null() && output["error"]["kind"] == "request" && !output.to_string().contains("secret")
    );
    assert_eq!(httpstat(&["--no-such-option"]).status.code(), Some(2));
    assert_eq!(httpstat(&["-H", "no colon", "http://127.0.0.1/"]).status.code(), Some(2));
}

#[test]
fn proxies_are_read_from_the_environment_except_http_proxy_in_a_cgi_program() {
    let proxy = HttpServer::start(|request| async move {
        assert_eq!(request.uri(), "http://no.such.name.invalid/");
        hyper::Response::new(full("through"))
    });
    let proxy = proxy.unwrap();
    let get = |names: &[&str]| {
        let mut command = Command::new(built());
        for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY", "REQUEST_METHOD"] {
            command.env_remove(name);
        }
        for name in names {
            let value =
                if *name == "REQUEST_METHOD" { "GET".to_owned() } else { format!("http://{}", proxy.address()) };
            command.env(name, value);
        }
        command.args(["--json", "http://no.such.name.invalid/"]).output().unwrap().status.success()
    };
    assert!(get(&["HTTP_PROXY"]));
    assert!(
        !get(&["HTTP_PROXY", "REQUEST_METHOD"]),
        "in a CGI program that variable holds a header of the incoming request"
    );
    assert!(get(&["ALL_PROXY"]));
    assert_eq!(proxy.connections(), 4, "two per run: one of its three requests reuses a connection");
}
