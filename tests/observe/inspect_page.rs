//! The flight recorder's page in a browser, its policy, and the `inspect` example that serves it.

use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustls::SupportedCipherSuite;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use serde_json::Value;
use speeddial::Client;
use speeddial_inspect::{Recorder, StateTable};

use support::full;
use support::http_server::HttpServer;

/// A page that frames the recorder's page, uses it, and notes what it sees.
const PROBE: &str = include_str!("inspect_page.probe.html");
/// What a server or a program would write to run a script.
const HOSTILE: &str = "</script><script>top.hacked=1</script><img src=x onerror=top.hacked=1>";
/// The longest that a browser may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the page of a recorder after six calls: a slow one, a failed one, and one whose server's texts are hostile.
async fn recorded_page() -> String {
    let server = HttpServer::start(|request| async move {
        let response = hyper::Response::builder();
        if request.uri().path() == "/slow" {
            tokio::time::sleep(Duration::from_millis(100)).await;
            return response.header("server-timing", format!("db;dur=90;desc=\"{HOSTILE}\"")).body(full("ok")).unwrap();
        }
        response.status(if request.uri().path() == "/broken" { 500 } else { 200 }).body(full("ok")).unwrap()
    });
    let server = server.unwrap();
    let recorder = Recorder::builder().show_queries(true).build();
    let client = Client::builder().no_proxy().observer(recorder.clone()).build().unwrap();
    for path in ["quick", "quick", "slow", "broken", "'onclick='top.hacked=1'?'-top.hacked=1-'", "quick"] {
        let url = format!("http://{}/{path}", server.address());
        client.get(url).send().await.unwrap().bytes().await.unwrap();
    }
    let mut snapshot = recorder.snapshot().with_client(&client);
    snapshot.add_table(StateTable::new(HOSTILE, ["name", HOSTILE]).row([HOSTILE, HOSTILE]));
    snapshot.to_html()
}

/// Runs Chromium without a window. Returns `None` and prints that the test is skipped if it is not installed.
fn chromium(test: &str, arguments: &[&str]) -> Option<String> {
    let profile = std::env::temp_dir().join(format!("speeddial-chromium-{test}-{}", std::process::id()));
    let mut found = None;
    for name in ["chromium", "chromium-browser", "google-chrome"] {
        let mut command = Command::new(name);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]);
        command.arg(format!("--user-data-dir={}", profile.display())).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Ok(child) = command.spawn() {
            found = Some(finish(child));
            break;
        }
    }
    let _ = std::fs::remove_dir_all(&profile);
    if found.is_none() {
        eprintln!("SKIPPED: chromium is not installed (Debian: chromium)");
    }
    found
}

/// Returns what a browser prints. Ends it if it takes too long.
fn finish(mut child: std::process::Child) -> String {
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        stdout.read_to_end(&mut text).map(|_| String::from_utf8_lossy(&text).into_owned())
    });
    let end = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the browser took longer than {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    reader.join().unwrap().unwrap()
}

/// Returns what the probe notes of a page, or `None` if there is no browser.
fn looked_at(page: String, test: &str, more: &[&str]) -> Option<Value> {
    let server = HttpServer::start(move |request| {
        let text = match request.uri().path() {
            "/page" => page.clone(),
            _ => PROBE.to_owned(),
        };
        async move {
            hyper::Response::builder().header("content-type", "text/html; charset=utf-8").body(full(text)).unwrap()
        }
    });
    let server = server.unwrap();
    let url = format!("http://{}/", server.address());
    let arguments: Vec<_> = more.iter().copied().chain([&*url]).collect();
    let dom = chromium(test, &arguments)?;
    let text = dom.split_once("<pre id=\"result\">").expect("the probe").1.split_once("</pre>").unwrap().0;
    let url = url::Url::parse(&format!("http://result/?{}", text.replace('+', "%2B"))).unwrap();
    let (result, _) = url.query_pairs().next().unwrap_or_else(|| panic!("no result: {dom}"));
    Some(serde_json::from_str(&result).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_browser_the_filter_works_waterfalls_are_drawn_and_hostile_text_is_inert() {
    let page = recorded_page().await;
    let look = tokio::task::spawn_blocking(|| looked_at(page, "light", &[])).await.unwrap();
    let Some(seen) = look else { return };
    assert!(seen["error"].is_null(), "{seen}");
    assert_eq!((&seen["calls"], &seen["tools"]), (&6.into(), &1.into()), "{seen}");
    assert_eq!((&seen["slow"], &seen["hash"]), (&1.into(), &"#filter=%2FSLOW+200".into()), "{seen}");
    assert_eq!(seen["none"], serde_json::json!([0, 0, "0 of 6 calls"]), "{seen}");
    assert_eq!((&seen["failures"], &seen["cleared"]), (&1.into(), &6.into()), "{seen}");
    assert_eq!((&seen["focused"], &seen["closed"]), (&true.into(), &0.into()), "{seen}");
    assert!(seen["opened"].as_u64().unwrap() >= 12, "a bar for each phase that took time: {seen}");
    assert!(seen["share"].as_f64().unwrap() > 0.5 && seen["inside"] == true, "most of the call was waiting: {seen}");
    assert_eq!(seen["fill"], "rgb(31, 136, 61)", "{seen}");
    assert_eq!(seen["linked"], serde_json::json!([1, 1]), "{seen}");
    assert_eq!(seen["plain"], serde_json::json!([6, true, 0]), "without the script: {seen}");
    assert_eq!((&seen["hostile"], &seen["hacked"]), (&true.into(), &false.into()), "{seen}");
    assert_eq!(seen["foreign"], serde_json::json!([0, 0, 0]), "no script and no picture of a peer: {seen}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_browser_the_page_is_dark_where_the_system_is() {
    let page = recorded_page().await;
    let dark = &["--blink-settings=preferredColorScheme=0"];
    let look = tokio::task::spawn_blocking(|| looked_at(page, "dark", dark)).await.unwrap();
    let Some(seen) = look else { return };
    assert_eq!(
        (&seen["background"], &seen["fill"]),
        (&"rgb(17, 19, 21)".into(), &"rgb(76, 194, 100)".into()),
        "{seen}"
    );
}

/// Returns the base64 of a text's SHA-256.
fn sha256(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let SupportedCipherSuite::Tls13(suite) = TLS13_AES_128_GCM_SHA256 else { panic!("a suite of TLS 1.3") };
    let hash = suite.common.hash_provider.hash(text.as_bytes());
    let mut digits = String::new();
    for three in hash.as_ref().chunks(3) {
        let bits = three.iter().enumerate().fold(0, |bits, (place, byte)| bits | u32::from(*byte) << (16 - 8 * place));
        let used = three.len() + 1;
        (0..used).for_each(|place| digits.push(char::from(DIGITS[(bits >> (18 - 6 * place)) as usize & 63])));
        digits.extend(std::iter::repeat_n('=', 4 - used));
    }
    digits
}

#[test]
fn the_policy_names_the_hashes_of_the_pages_style_and_script() {
    let page = Recorder::new().snapshot().to_html();
    let between = |start: &str, end: &str| page.split_once(start).unwrap().1.split_once(end).unwrap().0.to_owned();
    let policy = between("Content-Security-Policy\" content=\"", "\"");
    let style = format!("style-src 'sha256-{}'", sha256(&between("<style>", "</style>")));
    let script = format!("script-src 'sha256-{}'", sha256(&between("<script>", "</script>")));
    assert!(policy.contains(&style), "{policy} must have {style}");
    assert!(policy.contains(&script), "{policy} must have {script}");
}

fn inspect(arguments: &[&str]) -> Output {
    Command::new(super::examples::build("inspect")).args(arguments).output().unwrap()
}

#[test]
fn inspect_writes_a_page_with_slow_and_failed_calls_and_the_pools_state() {
    let output = inspect(&["--once", "-n", "100"]);
    assert!(output.status.success(), "{output:?}");
    let page = String::from_utf8(output.stdout).unwrap();
    for text in ["<dt>Calls</dt><dd>100</dd>", "http://api.test:", "http://down.test:", "GET /v1/reports/2024<"] {
        assert!(page.contains(text), "no {text}");
    }
    for text in ["Connection refused", "Connection pool", "DNS answers", "≥ 100 ms"] {
        assert!(page.contains(text), "no {text}");
    }
    // On a busy machine, that is what made the slowest calls slow.
    assert!(["server says db took", "its runtime was busy"].iter().any(|reason| page.contains(reason)), "no reason");
    assert!(!page.contains("not-shown"), "a secret of a query");
    assert_eq!(inspect(&["-n", "0"]).status.code(), Some(2));
}
