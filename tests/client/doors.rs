//! What goes along from one request of a call to the next one, through each door of `src/client/call/next.rs`.
//!
//! Each cell of the table is found out by calls in paused time. A door without a row fails, and so does code elsewhere that makes a
//! request by itself.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::TryStreamExt;
use speeddial::cookie::Jar;
use speeddial::dns::FixedResolver;
use speeddial::http::{HeaderMap, HeaderValue};
use speeddial::settings::HostConfig;
use speeddial::token::{Token, TokenSource};
use speeddial::trace::Event;
use speeddial::{Client, HedgePolicy, Proxy, RequestBuilder, Response, Result, RetryPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::{read_request_head, v4};

/// The doors, by the names that `next.rs` has for them, and what the rows are about. The second row of a redirect leads to another host.
const DOORS: [(&str, &str); 9] = [
    ("redirect", "307 to the same origin"),
    ("redirect", "307 to another origin"),
    ("redirect", "303 to the same origin"),
    ("Again::Expectation", "417"),
    ("Again::Token", "401"),
    ("Again::Retry", "503"),
    ("Again::Resend", "closed connection"),
    ("hedge", "late answer"),
    ("reconnect", "end of events"),
];

/// `repeat` sends again for the reasons of `Again`, and a layer around attempts gets what an attempt without layers sends.
const DOORS_OF_OTHERS: [&str; 2] = ["repeat", "attempt"];

/// *stays*: as it was; *anew*: another value in its place; *gone*: not sent any more; *–*: it was not there. The connection stands for
/// all that its host's settings say of it, such as a client certificate.
const TABLE: &str = "\
door | own headers | sensitive | default headers | host's headers | token | URL credentials | cookies | connection | proxy credentials | body | target | own limits | host's limits | observer
307 to the same origin | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | anew | stays | stays | stays
307 to another origin | stays | gone | stays | anew | gone | gone | anew | anew | stays | stays | anew | stays | anew | stays
303 to the same origin | stays | stays | stays | stays | stays | stays | stays | stays | stays | gone | anew | stays | stays | stays
417 | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays
401 | stays | stays | stays | stays | anew | – | stays | stays | stays | stays | stays | stays | stays | stays
503 | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays
closed connection | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays
late answer | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays
end of events | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | stays | – | – | stays
";

/// A request as it came to a server: the host whose settings its connection has, and the message.
#[derive(Clone)]
struct Seen {
    host: &'static str,
    head: String,
    body: String,
}

impl Seen {
    fn header(&self, name: &str) -> Option<String> {
        let of_name =
            |line: &str| line.split_once(": ").filter(|(other, _)| *other == name).map(|(_, value)| value.to_owned());
        self.head.lines().find_map(of_name)
    }

    fn target(&self) -> String {
        self.head.split(' ').nth(1).unwrap().replace("http://a.test", "").replace("http://b.test", "")
    }
}

/// What a call has beside what all have, where two would exclude each other.
#[derive(Clone, Copy, PartialEq)]
enum With {
    Token,
    UrlCredentials,
    Proxy,
    OwnLimit,
    HostLimit,
}

const FINAL: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfinal";

/// Returns the answer to the first request, which leads through the door; `None` for none, with the connection left open.
fn answer(row: usize) -> Option<&'static str> {
    Some(match row {
        0 => "HTTP/1.1 307 Moved\r\nlocation: /next\r\ncontent-length: 0\r\n\r\n",
        1 => "HTTP/1.1 307 Moved\r\nlocation: http://b.test/next\r\ncontent-length: 0\r\n\r\n",
        2 => "HTTP/1.1 303 See\r\nlocation: /next\r\ncontent-length: 0\r\n\r\n",
        3 => "HTTP/1.1 417 No\r\ncontent-length: 0\r\n\r\n",
        4 => "HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n",
        5 => "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",
        6 => "",
        7 => return None,
        _ => "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nid:7\ndata:x\n\n",
    })
}

async fn serve(row: usize, host: &'static str, mut stream: DuplexStream, log: Arc<Mutex<Vec<Seen>>>) {
    while let Some(head) = read_request_head(&mut stream).await {
        if head.contains("/warm HTTP") {
            stream.write_all(FINAL.as_bytes()).await.unwrap();
            continue;
        }
        let mut seen = Seen { host, head, body: String::new() };
        let expects = seen.header("expect").is_some();
        let length = seen.header("content-length").and_then(|length| length.parse().ok()).filter(|_| !expects);
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).await.unwrap();
        seen.body = String::from_utf8(body).unwrap();
        let is_first = {
            let mut log = log.lock().unwrap();
            log.push(seen);
            log.len() == 1
        };
        let answer = match (is_first, row) {
            (true, row) => answer(row),
            (false, 8) => Some("HTTP/1.1 204 No Content\r\n\r\n"),
            (false, _) => Some(FINAL),
        };
        let Some(answer) = answer else { std::future::pending().await };
        let is_last = answer.is_empty() || answer.contains("event-stream");
        if stream.write_all(answer.as_bytes()).await.is_err() || is_last {
            return;
        }
    }
}

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    lines.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
}

/// The results of a call: the requests, whether it failed, and the leases that its observer saw.
struct Ended {
    seen: Vec<Seen>,
    has_failed: bool,
    observed: usize,
}

async fn call(row: usize, with: With, layered: bool) -> Ended {
    let log = Arc::new(Mutex::new(Vec::new()));
    let net = |host| {
        let log = log.clone();
        ScriptedNet::new(move |_, stream| serve(row, host, stream, log.clone()))
    };
    let jar = Jar::default();
    for host in ["a", "b"] {
        jar.add_cookie_str(&format!("of={host}"), &format!("http://{host}.test/").parse().unwrap());
    }
    let host = |name, limit| {
        let config = HostConfig::new().transport(net(name)).default_headers(headers(&[("x-host", name)]));
        if with == With::HostLimit { config.max_body_size(limit) } else { config }
    };
    let names = FixedResolver::new().with("a.test", [v4(1)]).with("b.test", [v4(2)]).with("proxy.test", [v4(3)]);
    let mut builder = Client::builder()
        .no_proxy()
        .dns_resolver(names)
        .for_host("a.test", host("a", 4))
        .for_host("b.test", host("b", 100))
        .default_headers(headers(&[("x-default", "1")]))
        .cookie_provider(Arc::new(jar));
    if layered {
        builder = builder
            .attempt_layer(tower::layer::layer_fn(|inner: speeddial::layers::AttemptService| inner))
            .layer(tower::layer::layer_fn(|inner: speeddial::layers::ClientService| inner));
    }
    if with != With::UrlCredentials {
        let number = AtomicUsize::new(0);
        builder = builder.token_source(TokenSource::new(move || {
            let number = number.fetch_add(1, Ordering::SeqCst);
            async move { Ok::<_, Infallible>(Token::new(format!("t{number}"))) }
        }));
    }
    let client = builder.build().unwrap();
    if row == 6 {
        let warm = client.get("http://a.test/warm").max_body_size(100);
        let warm = if with == With::Proxy { warm.proxy(proxy()) } else { warm };
        warm.send().await.unwrap().bytes().await.unwrap();
    }
    let url = if with == With::UrlCredentials { "http://me:secret@a.test/first" } else { "http://a.test/first" };
    let mut secret = HeaderValue::from_static("1");
    secret.set_sensitive(true);
    let recorder = Recorder::default();
    let mut request =
        client.put(url).header("x-own", "1").header("x-secret", secret).observer(recorder.clone()).body("body");
    request = match row {
        3 => request.expect_continue(),
        5 => request.retry(RetryPolicy::new()),
        7 => request.hedge(HedgePolicy::after(Duration::from_millis(50)).budget(1.0)),
        _ => request,
    };
    request = match with {
        With::Proxy => request.proxy(proxy()),
        With::OwnLimit => request.max_body_size(4),
        _ => request,
    };
    let has_failed = match row {
        8 => read_events(request).await.is_err(),
        _ => read(request).await.is_err(),
    };
    let seen = log.lock().unwrap().clone();
    Ended { seen, has_failed, observed: recorder.count(|event| matches!(event, Event::Leased { .. })) }
}

fn proxy() -> Proxy {
    static PROXY: std::sync::LazyLock<Proxy> =
        std::sync::LazyLock::new(|| Proxy::all("http://user:password@proxy.test:3128").unwrap());
    PROXY.clone()
}

async fn read(request: RequestBuilder) -> Result<()> {
    let response: Response = request.send().await?;
    response.bytes().await.map(drop)
}

async fn read_events(request: RequestBuilder) -> Result<()> {
    request.event_source()?.try_collect::<Vec<_>>().await.map(drop)
}

/// Returns the row of a door.
async fn row(number: usize, layered: bool) -> String {
    let of = async |with| {
        let ended = call(number, with, layered).await;
        // Without a token, a 401 is the answer.
        let requests = if number == 4 && with == With::UrlCredentials { 1 } else { 2 };
        assert_eq!(ended.seen.len(), requests, "{}: the call goes through the door once", DOORS[number].1);
        ended
    };
    let usual = of(With::Token).await;
    let (url, proxy) = (of(With::UrlCredentials).await, of(With::Proxy).await);
    let (own_limit, host_limit) = (of(With::OwnLimit).await, of(With::HostLimit).await);
    let change = |ended: &Ended, part: &dyn Fn(&Seen) -> Option<String>| {
        let [before, after] = &ended.seen[..] else { return "–" };
        match (part(before), part(after)) {
            (None, None) => "–",
            (Some(_), None) => "gone",
            (before, after) if before == after => "stays",
            _ => "anew",
        }
    };
    let header = |ended: &Ended, name: &'static str| change(ended, &|seen: &Seen| seen.header(name));
    let body = |seen: &Seen| Some(seen.body.clone()).filter(|body| !body.is_empty() || seen.header("expect").is_some());
    let is_of_events = number == 8;
    let limit = |ended: &Ended| match ended.has_failed {
        // They are about the response, which has no end here.
        _ if is_of_events => "–",
        true => "stays",
        false => "gone",
    };
    let cells = [
        DOORS[number].1,
        header(&usual, "x-own"),
        header(&usual, "x-secret"),
        header(&usual, "x-default"),
        header(&usual, "x-host"),
        header(&usual, "authorization"),
        header(&url, "authorization"),
        header(&usual, "cookie"),
        change(&usual, &|seen: &Seen| Some(seen.host.to_owned())),
        header(&proxy, "proxy-authorization"),
        change(&usual, &|seen: &Seen| if number == 3 { Some(String::new()) } else { body(seen) }),
        change(&usual, &|seen: &Seen| Some(seen.target())),
        limit(&own_limit),
        if number == 1 && !host_limit.has_failed { "anew" } else { limit(&host_limit) },
        if usual.observed == 2 { "stays" } else { "gone" },
    ];
    cells.join(" | ")
}

#[tokio::test(start_paused = true)]
async fn what_goes_along_through_each_door_is_as_the_table_says_within_layers_as_well() {
    for layered in [false, true] {
        let mut lines = vec![TABLE.lines().next().unwrap().to_owned()];
        for number in 0..DOORS.len() {
            lines.push(row(number, layered).await);
        }
        assert_eq!(lines, TABLE.lines().collect::<Vec<_>>(), "within layers: {layered}\n{}", lines.join("\n"));
    }
}

#[test]
fn each_door_has_a_row_and_no_other_code_makes_a_request() {
    let sources = Path::new("../src/client");
    let doors = std::fs::read_to_string(sources.join("call/next.rs")).unwrap();
    let functions = doors.lines().filter(|line| line.starts_with("pub(")).filter_map(|line| line.split("fn ").nth(1));
    let functions = functions.map(|rest| rest.split(['(', '<']).next().unwrap().to_owned());
    let reasons = doors.split("enum Again {").nth(1).unwrap().split("\n}").next().unwrap().to_owned();
    let reasons = reasons.lines().map(str::trim).filter(|line| line.starts_with(char::is_uppercase));
    let reasons = reasons.map(|line| format!("Again::{}", line.trim_end_matches(',').split('(').next().unwrap()));
    let all: BTreeSet<String> = functions.chain(reasons).collect();
    let known = DOORS.iter().map(|(door, _)| *door).chain(DOORS_OF_OTHERS).map(ToOwned::to_owned);
    assert_eq!(all, known.collect());
    // Where a call begins, and where the attempts within layers do, which have the request of `attempt`.
    let makers =
        ["CurrentRequest::new(", ".request.redirect(", "Call::for_attempt(", ".request.with(", "Event::Repeated {"];
    let allowed = ["call/next.rs", "call/mod.rs", "call/attempt/context.rs"];
    let mut folders = vec![sources.join("call"), sources.join("sse")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let is_allowed = allowed.iter().any(|allowed| path.ends_with(allowed));
            let made = makers.iter().find(|maker| text.contains(**maker));
            assert!(is_allowed || made.is_none(), "{}: {}", path.display(), made.unwrap());
        }
    }
}
