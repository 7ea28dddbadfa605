//! `httpstat --repeat` and `httpstat --compare`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{httpstat, objects};
use support::http_server::HttpServer;
use support::{full, refusing};

#[test]
fn httpstat_repeats_a_request_and_draws_the_slowest() {
    let output = httpstat(&["--repeat", "5"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(lines.len(), 6, "one for each request, and one for the slowest: {text}");
    for (number, line) in (1..).zip(&lines[..5]) {
        assert!(line.starts_with(&format!("#{number}: 200 in ")) && line.contains(" wait "), "{line}");
    }
    assert!(text.contains("\n5 requests: 5 answered, 4 on a reused connection\nfastest "), "{text}");
    assert!(text.contains("\nmost of the time went to "), "{text}");
    assert!(lines[5].contains(", the slowest: HTTP/1.1 200 OK"), "{text}");
    assert_eq!((text.matches("\n  total ").count(), text.matches("\n  why ").count()), (1, 1), "{text}");
    let slowest = text.lines().find(|line| line.starts_with("fastest ")).unwrap().rsplit_once("(#").unwrap().1;
    assert!(lines[5].starts_with(&format!("#{},", slowest.trim_end_matches(')'))), "{text}");
    assert_eq!(objects(&httpstat(&["--repeat", "4", "--json"])).len(), 4);
    for wrong in [&["--repeat", "0"][..], &["--repeat", "10001"], &["--repeat", "3", "--count", "3"]] {
        assert_eq!(httpstat(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn httpstat_repeats_a_request_that_fails() {
    let (_kept, closed) = refusing();
    let output = httpstat(&["--repeat", "2", &format!("http://{closed}/")]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("#2: ") && text.contains("2 requests: 0 answered, 0 on a reused connection"), "{text}");
    assert!(text.contains("\nmost of the time went to ") && text.contains(", the slowest: GET http://"), "{text}");
}

/// Starts a server that answers one request per connection, and those of the numbers in `broken` late and with what is no HTTP.
fn faulty_server(connections: usize, broken: &'static [usize]) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move || {
        for (number, stream) in listener.incoming().take(connections).enumerate() {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.extend(byte);
            }
            if broken.contains(&number) {
                std::thread::sleep(Duration::from_millis(200));
                let _ = stream.write_all(b"no HTTP\r\n\r\n");
            } else {
                let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
    };
    (address, std::thread::spawn(serve))
}

#[test]
fn failed_requests_are_neither_the_fastest_nor_the_slowest_nor_the_median() {
    let (address, server) = faulty_server(9, &[1, 5]);
    let url = format!("http://{address}/");
    let text = String::from_utf8(httpstat(&["--repeat", "3", &url]).stdout).unwrap();
    assert!(text.contains("\n3 requests: 2 answered") && text.contains(", the slowest: HTTP/1.1 200 OK"), "{text}");
    let output = httpstat(&["--repeat", "3", "--compare", &url, &url]);
    let text = String::from_utf8(output.stdout).unwrap();
    let (first, second) = text.split_once("\nB: ").unwrap();
    assert!(first.contains(" (the median of 2)\n   HTTP/1.1 200 OK"), "{text}");
    assert!(second.contains(" (the median of 3)\n"), "{text}");
    server.join().unwrap();
}

/// Returns the column at which the last bar of a waterfall ends.
fn end_of_bars(waterfall: &str) -> usize {
    let ends =
        waterfall.lines().filter_map(|line| line.chars().collect::<Vec<_>>().iter().rposition(|c| "█▏".contains(*c)));
    ends.max().unwrap()
}

#[test]
fn httpstat_compares_two_urls_on_one_scale() {
    let server = HttpServer::start(|request| async move {
        let think = if request.uri().path() == "/slow" { 1_000 } else { 1 };
        tokio::time::sleep(Duration::from_millis(think)).await;
        hyper::Response::new(full("ok"))
    });
    let server = server.unwrap();
    let url = |path: &str| format!("http://{}/{path}", server.address());
    for repeat in [&[][..], &["--repeat", "3"]] {
        let (slow, fast) = (url("slow"), url("fast"));
        let output = httpstat(&[&["--compare", &slow, &fast], repeat].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let (first, second) = text.split_once("\nB: ").unwrap();
        assert!(first.starts_with(&format!("A: {slow}")) && second.starts_with(&fast), "{text}");
        assert_eq!(text.matches(" (the median of 3)\n").count(), if repeat.is_empty() { 0 } else { 2 }, "{text}");
        assert!(end_of_bars(second) < end_of_bars(first), "the fast one has shorter bars: {text}");
        assert!(first.contains("\n  why ") && second.contains("\n  why "), "{text}");
        assert!(second.contains("\nA took ") && second.contains(" longer, ") && second.contains("wait +"), "{text}");
    }
    // Without reuse there would be eight. A busy machine may add a connection that is dialled beside a slow one.
    let connections = server.connections();
    assert!(
        (4..8).contains(&connections),
        "each URL has a client of its own, which reuses its connection: {connections}"
    );
    assert_eq!(objects(&httpstat(&["--json", "--compare", &url("slow"), &url("fast")])).len(), 2);
    assert_eq!(httpstat(&["--compare", &url("slow")]).status.code(), Some(2));
}

#[test]
fn httpstat_compares_two_urls_of_its_own_server() {
    let text = String::from_utf8(httpstat(&["--compare"]).stdout).unwrap();
    assert!(text.contains("\nA: http://api.test:") && text.contains("\nB: http://api.test:"), "{text}");
    assert!(text.contains(" longer, ") && text.contains("2 connections were opened."), "{text}");
}
