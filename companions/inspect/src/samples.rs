//! Timings for tests: those of calls over a network in memory, in paused time.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use speeddial::dns::ResolveErrorKind;
use speeddial::http::StatusCode;
use speeddial::origin::Origin;
use speeddial::trace::{EndedCall, Observer, RequestInfo, Timings, Wants};
use speeddial::transport::{Connecting, Transport};
use speeddial::url::{Position, Url};
use speeddial::{Client, ClientBuilder, HedgePolicy, RequestBuilder, RetryPolicy};
use support::fake_dns::FakeDns;
use support::fake_net::{FakeNet, Host};
use support::scripted_net::ScriptedNet;
use support::{read_request_head, v4};
use tokio::io::{AsyncWriteExt, DuplexStream};

const URL: &str = "http://api.test/";
/// The milliseconds after which a server answers, its status and a header of the answer: headers of a request.
const THINK: &str = "x-think";
const STATUS: &str = "x-status";
const ANSWER: &str = "x-answer";

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns a GET of a URL, as a client describes it to observers.
pub(crate) fn request(url: &str) -> Arc<RequestInfo> {
    static PLAIN: OnceLock<Arc<RequestInfo>> = OnceLock::new();
    let plain =
        PLAIN.get_or_init(|| told(client(FakeDns::v4(0, v4(1), 60), server()), async |client| get(&client).await).0);
    let url = Url::parse(url).unwrap();
    let mut request = (**plain).clone();
    request.origin = Origin::from_url(&url).unwrap();
    request.target = url[Position::BeforePath..].parse().unwrap();
    Arc::new(request)
}

/// Returns the timings of a call that looks up a name for 10 ms, connects in 20 ms and gets a response of 5 bytes 50 and 20 ms later.
pub(crate) fn cold_call() -> Timings {
    let net = FakeNet::new([(v4(1), Host::Serves { connect: 20, think: 50, body: 20 })]);
    told(client(FakeDns::v4(10, v4(1), 60), net), async |client| get(&client).await).1
}

/// Returns the timings of a call of one request on an idle connection, whose response of 2 bytes comes after `total` milliseconds.
pub(crate) fn warm_call(total: u64) -> Timings {
    after_another(async |client| send(client.get(URL).header(THINK, total)).await)
}

/// Returns the timings of a call on an idle connection that times out.
pub(crate) fn failed_call(total: u64) -> Timings {
    after_another(async |client| send(client.get(URL).header(THINK, 3_600_000).timeout(ms(total))).await)
}

/// Returns the timings of a call on an idle connection that its program drops.
pub(crate) fn cancelled_call(total: u64) -> Timings {
    let dropped = async |client: Client| {
        let _ = tokio::time::timeout(ms(total), send(client.get(URL).header(THINK, 3_600_000))).await;
    };
    after_another(dropped)
}

/// Returns the timings of a call on an idle connection that is answered with 502.
pub(crate) fn bad_gateway(total: u64) -> Timings {
    after_another(async |client| send(client.get(URL).header(THINK, total).header(STATUS, 502)).await)
}

/// Returns the timings of a call whose name has no address, which takes 30 ms to find out.
pub(crate) fn no_address_call() -> Timings {
    let none = (30, Err(ResolveErrorKind::NxDomain));
    let dns = FakeDns { v4: none.clone(), v6: none, ..FakeDns::v4(0, v4(1), 60) };
    told(client(dns, server()), async |client| get(&client).await).1
}

/// Returns the timings of a call that is answered with 503 twice, each after 5 ms and followed by a pause, and then after 5 ms.
pub(crate) fn retried_call() -> Timings {
    call_of(3)
}

/// Returns the timings of a call with so many requests, all of which but the last one are answered with 503.
pub(crate) fn call_of(requests: usize) -> Timings {
    let policy = RetryPolicy::new().attempts(requests as u32).backoff(ms(50), ms(50)).no_budget();
    let script = move |_, mut stream: DuplexStream| async move {
        // The first one is for the connection.
        for number in 0..=requests {
            if read_request_head(&mut stream).await.is_none() {
                return;
            }
            tokio::time::sleep(ms(5)).await;
            let status = if number == 0 || number == requests { 200 } else { 503 };
            let _ = stream.write_all(answer(status, "x: y").as_bytes()).await;
        }
        std::future::pending().await
    };
    let builder = client(FakeDns::v4(0, v4(1), 60), ScriptedNet::new(script)).retry(policy);
    told(builder, async |client| {
        get(&client).await;
        get(&client).await;
    })
    .1
}

/// Returns the timings of a call that gets no answer for 30 ms, and whose second attempt is answered 20 ms after it has a connection.
pub(crate) fn hedged_call() -> Timings {
    let script = |number, mut stream: DuplexStream| async move {
        while read_request_head(&mut stream).await.is_some() {
            if number == 0 {
                std::future::pending().await
            }
            tokio::time::sleep(ms(20)).await;
            let _ = stream.write_all(answer(200, "x: y").as_bytes()).await;
        }
    };
    let hedge = HedgePolicy::after(ms(30)).budget(1.0);
    told(client(FakeDns::v4(0, v4(1), 60), ScriptedNet::new(script)).hedge(hedge), async |client| get(&client).await).1
}

/// Returns the timings of a call whose first address fails with this text, and whose response has it in a `Server-Timing` header.
pub(crate) fn hostile_call(text: &'static str) -> Timings {
    let dns = FakeDns { v4: (10, Ok(vec![v4(9), v4(1)])), ..FakeDns::v4(10, v4(1), 60) };
    let timing = format!("server-timing: db;dur=1;desc=\"{}\"", text.replace('"', "\\\""));
    told(client(dns, Failing(server(), text)), async |client| send(client.get(URL).header(ANSWER, timing)).await).1
}

/// A network whose address 192.0.2.9 fails.
struct Failing(ScriptedNet, &'static str);

impl Transport for Failing {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        match address.ip() == v4(9) {
            true => Box::pin(async { Err(io::Error::other(self.1)) }),
            false => self.0.connect(address),
        }
    }
}

/// An observer that keeps the last call.
#[derive(Clone, Default)]
struct Last(Arc<Mutex<Option<Told>>>);

/// The first request and the timings of a call.
type Told = (Arc<RequestInfo>, Arc<Timings>);

impl Observer for Last {
    fn wants(&self) -> Wants {
        Wants::ENDS
    }

    fn ended(&self, call: &EndedCall<'_>) {
        *self.0.lock() = Some((call.request.clone(), call.timings.clone()));
    }
}

fn client(dns: FakeDns, net: impl Transport) -> ClientBuilder {
    Client::builder().no_proxy().dns_resolver(dns).transport(net)
}

/// Returns a network of servers that do what the headers of a request say. Connecting takes 10 ms.
fn server() -> ScriptedNet {
    ScriptedNet::new(|_, mut stream: DuplexStream| async move {
        while let Some(head) = read_request_head(&mut stream).await {
            let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            let number = |name, default| value(name).map_or(default, |value| value.parse().unwrap());
            let think = number(THINK, 0);
            // A pause of zero would take a tick of the clock.
            if think > 0 {
                tokio::time::sleep(ms(think)).await;
            }
            let answer = answer(number(STATUS, 200), value(ANSWER).unwrap_or("x: y"));
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    })
}

fn answer(status: u64, header: &str) -> String {
    let status = StatusCode::from_u16(status as u16).unwrap();
    format!("HTTP/1.1 {status}\r\n{header}\r\ncontent-length: 2\r\n\r\nok")
}

async fn get(client: &Client) {
    send(client.get(URL)).await;
}

/// Sends a request and reads the body, if there is one.
async fn send(request: RequestBuilder) {
    if let Ok(response) = request.send().await {
        let _ = response.bytes().await;
    }
}

fn after_another(call: impl AsyncFnOnce(Client)) -> Timings {
    told(client(FakeDns::v4(0, v4(1), 60), server()), async |client| {
        get(&client).await;
        call(client).await;
    })
    .1
}

/// Returns the first request and the timings of the last call that ends.
fn told(builder: ClientBuilder, calls: impl AsyncFnOnce(Client)) -> (Arc<RequestInfo>, Timings) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let last = Last::default();
    runtime.block_on(async { calls(builder.observer(last.clone()).build().unwrap()).await });
    let (request, timings) = last.0.lock().take().expect("a call has ended");
    (request, (*timings).clone())
}
