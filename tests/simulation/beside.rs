//! A client that asks getaddrinfo and dials for each call. Its calls run in the same world, by themselves, and ours may not be worse.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use speeddial::simulation::Datagrams;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::outside::Outside;
use crate::plan::{Kind, Protocol};
use crate::program::Outcome;
use crate::servers::Duplex;
use crate::{dns, net, servers};

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The time that glibc waits for a server, and how often it asks all of them.
pub(crate) const TRY: Duration = Duration::from_secs(5);
const TRIES: usize = 2;

/// Makes a call.
pub(crate) async fn exchange(outside: &Arc<Outside>, client: usize, host: usize, kind: Kind, id: u64) -> Outcome {
    let limit = outside.plan.clients[client].timeout;
    match timeout(limit, whole(outside, client, host, kind, id)).await {
        Ok(Ok((status, bytes))) => {
            let is_right = status != 200 || bytes == servers::content(id, bytes.len());
            Outcome::Answered { status, bytes: bytes.len() as u64, is_right }
        }
        Ok(Err(error)) => Outcome::Failed(error.to_string()),
        Err(_) => Outcome::Failed("timeout".to_owned()),
    }
}

async fn whole(
    outside: &Arc<Outside>,
    client: usize,
    host: usize,
    kind: Kind,
    id: u64,
) -> Result<(u16, Bytes), Failure> {
    let of_host = &outside.plan.hosts[host];
    let port = if of_host.tls { 443 } else { 80 };
    let mut connected = Err(io::ErrorKind::NotFound.into());
    for ip in getaddrinfo(outside, host).await {
        connected = net::connect(outside, Some(client), SocketAddr::new(ip, port)).await;
        if connected.is_ok() {
            break;
        }
    }
    let is_http2 = of_host.protocol == Protocol::Http2;
    let name = dns::short_name(&outside.plan, host);
    let stream: Box<dyn Duplex> = match of_host.tls {
        true => Box::new(outside.tls.connect(is_http2, &name, connected?).await?),
        false => Box::new(connected?),
    };
    let request = request(&name, kind, id, is_http2);
    if is_http2 {
        let (mut sender, driver) = conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        let driver = tokio::spawn(driver);
        let response = read(sender.send_request(request).await?).await;
        driver.abort();
        response
    } else {
        let (mut sender, driver) = conn::http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(driver);
        let response = match sender.send_request(request).await {
            Ok(response) => read(response).await,
            Err(error) => Err(error.into()),
        };
        driver.abort();
        response
    }
}

async fn read(response: http::Response<Incoming>) -> Result<(u16, Bytes), Failure> {
    let status = response.status().as_u16();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

fn request(name: &str, kind: Kind, id: u64, is_http2: bool) -> http::Request<Body> {
    let (step, amount) = kind.path();
    let path = format!("/{step}/{id}/{amount}");
    let builder = http::Request::builder().header("x-call", id);
    let builder = match is_http2 {
        true => builder.uri(format!("http://{name}{path}")),
        false => builder.uri(path).header("host", name),
    };
    let whole = Full::new(Bytes::from_static(b"twelve bytes")).boxed_unsync();
    let (method, body) = match kind {
        Kind::Post => ("POST", whole),
        Kind::PutOnce => ("PUT", whole),
        Kind::Upload => {
            let piece = |piece: u8| async move {
                sleep(Duration::from_millis(20)).await;
                Ok(Frame::data(Bytes::from(vec![piece; 1_000])))
            };
            ("POST", StreamBody::new(stream::iter(0..3).then(piece)).boxed_unsync())
        }
        _ => ("GET", Full::default().boxed_unsync()),
    };
    builder.method(method).body(body).unwrap()
}

/// Looks a host up as glibc does, by the files of now: each candidate at the servers in their order, twice, and nothing is remembered.
pub(crate) async fn getaddrinfo(outside: &Arc<Outside>, host: usize) -> Vec<IpAddr> {
    let short = dns::short_name(&outside.plan, host);
    let file = |path: &'static str| outside.state().files[path].0.clone();
    let in_hosts = |line: &str| {
        let mut words = line.split_whitespace();
        let ip = words.next()?.parse().ok()?;
        words.any(|word| word == short).then_some(ip)
    };
    if let Some(ip) = file("/etc/hosts").lines().find_map(in_hosts) {
        return vec![ip];
    }
    let (mut servers, mut candidates) = (Vec::new(), Vec::new());
    for line in file("/etc/resolv.conf").lines() {
        match line.split_once(' ') {
            Some(("nameserver", server)) => servers.push(SocketAddr::new(server.parse().unwrap(), 53)),
            Some(("search", list)) => candidates.extend(list.split(' ').map(|suffix| format!("{short}.{suffix}."))),
            _ => {}
        }
    }
    // A name with a dot is tried as it is first.
    let whole = format!("{short}.");
    if short.contains('.') {
        candidates.insert(0, whole)
    } else {
        candidates.push(whole)
    }
    for candidate in candidates {
        match of_candidate(outside, &servers, &candidate).await {
            Word::Addresses(all) => return all,
            Word::No | Word::Fails => {}
            // The search ends.
            Word::Silence => break,
        }
    }
    Vec::new()
}

/// What servers say of a name.
enum Word {
    Addresses(Vec<IpAddr>),
    No,
    Fails,
    Silence,
}

async fn of_candidate(outside: &Arc<Outside>, servers: &[SocketAddr], name: &str) -> Word {
    let mut last = Word::Silence;
    for _ in 0..TRIES {
        for server in servers {
            match ask(outside, *server, name).await {
                word @ (Word::Addresses(_) | Word::No) => return word,
                word => last = word,
            }
        }
    }
    last
}

async fn ask(outside: &Arc<Outside>, server: SocketAddr, name: &str) -> Word {
    let socket = dns::Socket::new(outside.clone(), server);
    let mut query = Message::query();
    query.metadata.id = fastrand::u16(..);
    query.metadata.op_code = OpCode::Query;
    query.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    let query = query.to_vec().unwrap();
    let mut buffer = [0; 1_500];
    if socket.send(&query).is_err() {
        return Word::Fails;
    }
    let Ok(received) = timeout(TRY, poll_fn(|cx| socket.poll_receive(cx, &mut buffer))).await else {
        return Word::Silence;
    };
    let Ok(length) = received else { return Word::Fails };
    let mut answer = Message::from_vec(&buffer[..length]).unwrap();
    if answer.metadata.truncation {
        let Ok(Ok(whole)) = timeout(TRY, ask_over_tcp(outside, server, &query)).await else { return Word::Silence };
        answer = whole;
    }
    let addresses: Vec<_> = answer.answers.iter().filter_map(address).collect();
    match answer.metadata.response_code {
        ResponseCode::NoError if addresses.is_empty() => Word::No,
        ResponseCode::NoError => Word::Addresses(addresses),
        ResponseCode::NXDomain => Word::No,
        _ => Word::Fails,
    }
}

async fn ask_over_tcp(outside: &Arc<Outside>, server: SocketAddr, query: &[u8]) -> io::Result<Message> {
    let mut stream = dns::over_tcp(outside.clone(), server).await?;
    stream.write_u16(u16::try_from(query.len()).unwrap()).await?;
    stream.write_all(query).await?;
    let mut answer = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut answer).await?;
    Message::from_vec(&answer).map_err(io::Error::other)
}

fn address(record: &Record) -> Option<IpAddr> {
    match record.data {
        RData::A(ip) => Some(ip.0.into()),
        _ => None,
    }
}
