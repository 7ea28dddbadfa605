//! The files that `httpstat` and `load` write.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::super::examples;
use super::super::har::format::faults;
use super::httpstat;
use support::full;
use support::http_server::HttpServer;

/// A file for one test, removed at its end.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("speeddial-{}-{name}", std::process::id())))
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns the entries of a HAR document, which has to be valid.
fn har_entries(text: &str) -> Vec<Value> {
    let document: Value = serde_json::from_str(text).unwrap();
    assert_eq!(faults(&document), [""; 0]);
    document["log"]["entries"].as_array().unwrap().clone()
}

#[test]
fn httpstat_draws_an_svg_of_its_requests() {
    let file = TempFile::new("httpstat.svg");
    let output = httpstat(&["--svg", file.name(), "--interval", "0"]);
    assert!(output.status.success(), "{output:?}");
    let page = file.text();
    assert!(page.starts_with("<svg ") && page.trim_end().ends_with("</svg>"), "{page}");
    assert_eq!(page.matches("api.test").count(), 3, "one row per request: {page}");
    assert!(page.contains("<title>wait ") && page.contains(">receive</text>"), "{page}");
    let output = httpstat(&["--svg", "/no/such/place/page.svg", "--count", "1"]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("/no/such/place"));
}

#[test]
fn httpstat_writes_a_har_document_without_secrets() {
    let server = HttpServer::start(|request| async move {
        let response =
            hyper::Response::builder().header("x-path", request.uri().path()).header("set-cookie", "id=s3cret");
        response.body(full("hello")).unwrap()
    });
    let server = server.unwrap();
    let file = TempFile::new("httpstat.har");
    let url = format!("http://me:s3cret@{}/here?token=s3cret", server.address());
    let secret = "authorization: s3cret";
    let output = httpstat(&[
        "--har",
        file.name(),
        "-H",
        secret,
        "-H",
        "accept: text/plain",
        "-d",
        "data",
        "--interval",
        "0",
        &url,
    ]);
    assert!(output.status.success(), "{output:?}");
    let text = file.text();
    assert!(!text.contains("s3cret"), "{text}");
    let entries = har_entries(&text);
    assert_eq!(entries.len(), 3);
    for (entry, reused) in entries.iter().zip([false, true, true]) {
        let (request, response) = (&entry["request"], &entry["response"]);
        assert_eq!((&request["method"], &request["bodySize"]), (&"POST".into(), &4.into()));
        let has = |message: &Value, name: &str, value: &str| {
            let headers = message["headers"].as_array().unwrap().iter();
            headers.filter(|header| header["name"] == name && header["value"] == value).count() == 1
        };
        assert!(has(request, "accept", "text/plain") && has(request, "authorization", "[removed]"), "{request}");
        assert!(has(response, "x-path", "/here") && response["bodySize"] == 5, "{response}");
        assert_eq!((&entry["_reused"], &response["status"]), (&reused.into(), &200.into()));
        assert!(entry["_why"]["text"].is_string());
    }
    let output = httpstat(&["--har", "/no/such/place/call.har", "--count", "1"]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("/no/such/place"));
}

#[test]
fn load_writes_its_slowest_requests_into_a_har_document() {
    let load = examples::build("load");
    let server = HttpServer::start(|request| async move {
        if request.uri().path() == "/slow" {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        hyper::Response::new(full("hello"))
    });
    let server = server.unwrap();
    let file = TempFile::new("load.har");
    let url = format!("http://{}/slow?token=s3cret", server.address());
    let often = ["-n", "40", "-c", "20", "--max-per-host", "2", "--json", "--slowest", "7", "--har", file.name(), &url];
    let output = Command::new(load).args(often).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let entries = har_entries(&file.text());
    assert_eq!((entries.len(), &report["ok"]), (7, &40.into()));
    let slowest_ms = entries.iter().map(|entry| entry["time"].as_f64().unwrap()).fold(0.0, f64::max);
    let max_us = report["latency"]["max_us"].as_f64().unwrap();
    assert!((slowest_ms * 1e3 / max_us - 1.0).abs() < 0.01, "{slowest_ms} {report}");
    for entry in &entries {
        assert!(entry["time"].as_f64().unwrap() * 1e3 >= report["latency"]["p50_us"].as_f64().unwrap(), "{entry}");
        assert_eq!(entry["_why"]["reasons"][0]["cause"], "host-connections-in-use", "{entry}");
    }
    assert!(!file.text().contains("s3cret"));
}
