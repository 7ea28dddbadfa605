//! Many requests as a stream of responses: order, number in flight, cancellation.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt};
use speeddial::dns::FixedResolver;
use speeddial::{Client, ErrorKind, Request, RequestBuilder, http};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep, timeout};

use support::scripted_net::ScriptedNet;
use support::{ok_server, read_request_head, v4};

/// The requests of a server that are not answered yet.
#[derive(Clone, Default)]
struct InFlight {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl InFlight {
    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// Returns a server that answers `/MS` after that many milliseconds, and its client.
fn server() -> (Client, ScriptedNet, InFlight) {
    let in_flight = InFlight::default();
    let counts = in_flight.clone();
    let net = ScriptedNet::new(move |_, mut stream| {
        let InFlight { now, most } = counts.clone();
        async move {
            while let Some(head) = read_request_head(&mut stream).await {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let path = head.split(' ').nth(1).unwrap();
                sleep(Duration::from_millis(path[1..].parse().unwrap())).await;
                now.fetch_sub(1, Ordering::SeqCst);
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len());
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    });
    let resolver = FixedResolver::new().with("a.test", [v4(1)]);
    let client = Client::builder().no_proxy().transport(net.clone()).dns_resolver(resolver).build().unwrap();
    (client, net, in_flight)
}

fn get(client: &Client, ms: u64) -> RequestBuilder {
    client.get(format!("http://a.test/{ms}"))
}

#[tokio::test(start_paused = true)]
async fn responses_come_in_order_of_completion_or_of_the_requests() {
    let (client, _, in_flight) = server();
    let requests = || [300, 100, 200, 50].map(|ms| get(&client, ms));
    let indices = |(index, response): (usize, speeddial::Result<speeddial::Response>)| {
        assert!(response.is_ok());
        index
    };
    let start = Instant::now();
    let as_completed: Vec<_> = client.send_all(requests()).map(indices).collect().await;
    assert_eq!(as_completed, [3, 1, 2, 0]);
    assert!(start.elapsed() < Duration::from_millis(400), "at the same time");
    let in_order: Vec<_> = client.send_all(requests()).in_order().map(indices).collect().await;
    assert_eq!(in_order, [0, 1, 2, 3]);
    let one_by_one: Vec<_> = client.send_all(requests()).concurrency(0).map(indices).collect().await;
    assert_eq!(one_by_one, [0, 1, 2, 3]);
    let two: Vec<_> = client.send_all(requests()).concurrency(2).map(indices).collect().await;
    assert_eq!(two, [1, 0, 2, 3], "300 and 100, then 200, then 50");
    // Asked for in order when some have come.
    let mut stream = client.send_all(requests());
    assert_eq!(indices(stream.next().await.unwrap()), 3);
    assert_eq!(stream.size_hint(), (3, Some(3)));
    let rest: Vec<_> = stream.in_order().map(indices).collect().await;
    assert_eq!((rest, in_flight.most()), (vec![0, 1, 2], 4));
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_are_under_way_than_allowed() {
    for in_order in [false, true] {
        let (client, net, in_flight) = server();
        let requests = (0..500).map(|number| get(&client, number * 37 % 100));
        let all = client.send_all(requests).concurrency(7);
        let mut all = if in_order { all.in_order() } else { all };
        let mut seen = vec![false; 500];
        while let Some((index, response)) = all.next().await {
            let text = response.unwrap().text().await.unwrap();
            assert_eq!(text, format!("/{}", index * 37 % 100));
            assert!(!std::mem::replace(&mut seen[index], true));
        }
        assert!(seen.iter().all(|seen| *seen));
        assert_eq!(in_flight.most(), 7);
        assert!(net.connections() <= 14, "{}", net.connections());
    }
    let (client, _, in_flight) = server();
    let requests = (0..300).map(|_| get(&client, 100));
    assert_eq!(client.send_all(requests).count().await, 300);
    assert_eq!(in_flight.most(), 64, "by default");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_cancels_the_calls_and_begins_no_more() {
    let (client, net, in_flight) = server();
    let taken = Arc::new(AtomicUsize::new(0));
    let requests = (0_u64..).map(|number| {
        taken.fetch_add(1, Ordering::SeqCst);
        get(&client, if number < 10 { 10 } else { 1_000_000 })
    });
    let mut all = client.send_all(requests).concurrency(20);
    assert_eq!(taken.load(Ordering::SeqCst), 0, "nothing before the stream is polled");
    for _ in 0..10 {
        all.next().await.unwrap().1.unwrap().text().await.unwrap();
    }
    assert!(timeout(Duration::from_secs(60), all.next()).await.is_err());
    assert_eq!((taken.load(Ordering::SeqCst), client.pool_stats().leased), (30, 20));
    drop(all);
    assert_eq!((client.pool_stats().leased, client.pool_stats().waiting), (0, 0));
    sleep(Duration::from_secs(2_000)).await;
    assert_eq!((net.open(), taken.load(Ordering::SeqCst), in_flight.most()), (0, 30, 20));
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_requests_and_an_endless_iterator() {
    let (client, _, in_flight) = server();
    let requests = (0..10_000).map(|_| get(&client, 1));
    let mut sum = 0;
    let mut all = client.send_all(requests).concurrency(32);
    while let Some((index, response)) = all.next().await {
        sum += index + 1;
        drop(response.unwrap().bytes().await.unwrap());
    }
    assert_eq!((sum, in_flight.most()), (10_000 * 10_001 / 2, 32));
    let taken = AtomicUsize::new(0);
    let endless = std::iter::repeat_with(|| {
        taken.fetch_add(1, Ordering::SeqCst);
        get(&client, 1)
    });
    assert_eq!(client.send_all(endless).concurrency(5).take(50).count().await, 50);
    assert_eq!(taken.load(Ordering::SeqCst), 54, "as many as are under way when the last one comes");
}

#[tokio::test(start_paused = true)]
async fn an_iterator_that_panics_is_not_asked_again() {
    let (client, ..) = server();
    let requests = (0_u64..).map(|number| {
        assert!(number < 3, "no more");
        get(&client, 10 + number)
    });
    let mut all = client.send_all(requests).concurrency(3);
    let first = all.next().await.unwrap();
    assert!(first.0 == 0 && first.1.is_ok());
    assert!(AssertUnwindSafe(all.next()).catch_unwind().await.is_err());
    // The calls that were under way go on.
    assert_eq!(all.by_ref().map(|(index, _)| index).collect::<Vec<_>>().await, [1, 2]);
    assert!(all.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_error_is_an_item_in_its_place() {
    let (client, ..) = server();
    let requests = vec![get(&client, 5), client.get("no url"), client.get("http://none.test/"), get(&client, 1)];
    let kinds: Vec<_> = client
        .send_all(requests)
        .in_order()
        .map(|(index, response)| (index, response.err().map(|error| error.kind())))
        .collect()
        .await;
    assert_eq!(kinds, [(0, None), (1, Some(ErrorKind::Request)), (2, Some(ErrorKind::Resolve)), (3, None)]);
}

#[tokio::test]
async fn requests_of_each_kind_are_sent() {
    let server = ok_server();
    let url = format!("http://{}/", server.address());
    let client = Client::builder().no_proxy().build().unwrap();
    let is_ok = |(_, response): (usize, speeddial::Result<speeddial::Response>)| response.unwrap().status() == 200;
    let requests: Vec<Request> = (0..3).map(|_| client.get(&url).build().unwrap()).collect();
    assert_eq!(client.send_all(requests).map(is_ok).collect::<Vec<_>>().await, [true; 3]);
    let builders = [client.get(&url), client.post(&url).body("x")];
    assert_eq!(client.send_all(builders).map(is_ok).collect::<Vec<_>>().await, [true; 2]);
    let messages = std::iter::once(http::Request::get(&url).body("").unwrap());
    assert_eq!(client.send_all(messages).map(is_ok).collect::<Vec<_>>().await, [true]);
}
