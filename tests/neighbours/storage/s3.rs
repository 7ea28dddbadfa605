//! A server that speaks as much of S3 as the tests need, with its objects in memory. Signatures are not checked.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::header::{CONTENT_ENCODING, ETAG, IF_NONE_MATCH, LAST_MODIFIED, LOCATION, RANGE, USER_AGENT};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

type ServerBody = BoxBody<Bytes, io::Error>;

/// The server. Its connections are served by tasks of the test's runtime.
pub(crate) struct S3 {
    address: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    objects: Mutex<BTreeMap<String, Bytes>>,
    uploads: Mutex<HashMap<String, BTreeMap<u32, Part>>>,
    completed: Mutex<Vec<Vec<PartFacts>>>,
    seen: Mutex<Vec<Seen>>,
    faults: Mutex<VecDeque<(Method, Fault)>>,
    connections: AtomicUsize,
    /// The most objects on a page of a list.
    page: AtomicUsize,
    /// True if the bytes of parts are counted and dropped.
    forgets_parts: Mutex<bool>,
    /// The bytes of bodies that were handed to connections.
    sent: AtomicU64,
}

/// A request as the server saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) connection: usize,
    /// The length of the body.
    pub(crate) length: usize,
}

/// A deviation from what S3 does, for one request.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The status 503, after the request was read and had no effect.
    Unavailable,
    /// The connection closes without a response, after the request was read and had its effect.
    Close,
    /// The connection breaks off after so many bytes of the response's body.
    CutAfter(usize),
    /// The response has a `Content-Encoding` that its body does not have.
    SaysGzip,
    /// A redirect to this URL, with the path of the request.
    Redirect(String),
    /// No response is ever sent.
    Silence,
}

#[derive(Clone)]
struct Part {
    bytes: Bytes,
    facts: PartFacts,
}

/// What is known of a part of a multipart upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartFacts {
    pub(crate) length: usize,
    pub(crate) digest: u64,
}

impl PartFacts {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        Self { length: bytes.len(), digest: hasher.finish() }
    }
}

impl S3 {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(State::default());
        state.page.store(1000, Ordering::SeqCst);
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
                let _ = socket.set_nodelay(true);
                let state = shared.clone();
                let service = service_fn(move |request| answer(state.clone(), number, request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
            }
        });
        Self { address, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the most objects on a page of a list.
    pub(crate) fn set_page(&self, page: usize) {
        self.state.page.store(page, Ordering::SeqCst);
    }

    /// Has the server drop the bytes of parts, and remember only their length and digest.
    pub(crate) fn forget_parts(&self) {
        *self.state.forgets_parts.lock().unwrap() = true;
    }

    /// Adds a fault for the next request with this method that has none.
    pub(crate) fn fail_next(&self, method: Method, fault: Fault) {
        self.state.faults.lock().unwrap().push_back((method, fault));
    }

    /// Returns the object with this key.
    pub(crate) fn object(&self, key: &str) -> Option<Bytes> {
        self.state.objects.lock().unwrap().get(key).cloned()
    }

    pub(crate) fn put(&self, key: &str, bytes: impl Into<Bytes>) {
        self.state.objects.lock().unwrap().insert(key.to_owned(), bytes.into());
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    /// Returns the number of requests with this method.
    pub(crate) fn count(&self, method: Method) -> usize {
        self.seen().iter().filter(|seen| seen.method == method).count()
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Returns the parts of each completed upload, in their order.
    pub(crate) fn completed(&self) -> Vec<Vec<PartFacts>> {
        self.state.completed.lock().unwrap().clone()
    }

    /// Returns the number of uploads that were begun, and neither completed nor aborted.
    pub(crate) fn open_uploads(&self) -> usize {
        self.state.uploads.lock().unwrap().len()
    }

    /// Returns the bytes of bodies that were handed to connections.
    pub(crate) fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::SeqCst)
    }
}

impl Seen {
    /// Returns true if speeddial sent the request.
    pub(crate) fn is_ours(&self) -> bool {
        self.headers.get(USER_AGENT).is_some_and(|agent| agent == super::AGENT)
    }
}

async fn answer(
    state: Arc<State>,
    connection: usize,
    request: Request<Incoming>,
) -> Result<Response<ServerBody>, io::Error> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.map_err(io::Error::other)?.to_bytes();
    state.seen.lock().unwrap().push(Seen {
        method: head.method.clone(),
        target: head.uri.to_string(),
        headers: head.headers.clone(),
        connection,
        length: bytes.len(),
    });
    let fault = {
        let mut faults = state.faults.lock().unwrap();
        let at = faults.iter().position(|(method, _)| *method == head.method);
        at.and_then(|at| faults.remove(at)).map(|(_, fault)| fault)
    };
    let (query, key) = (query_of(head.uri.query()), key_of(head.uri.path()));
    match fault {
        Some(Fault::Unavailable) => return Ok(respond(503, "<Error><Code>SlowDown</Code></Error>")),
        Some(Fault::Silence) => return std::future::pending().await,
        Some(Fault::Redirect(to)) => {
            let target = head.uri.path_and_query().unwrap();
            let mut response = respond(307, "");
            response.headers_mut().insert(LOCATION, format!("{to}{target}").parse().unwrap());
            return Ok(response);
        }
        _ => {}
    }
    let mut response = state.act(&head, &query, &key, bytes);
    match fault {
        Some(Fault::Close) => return Err(io::Error::other("closed as the test wants")),
        Some(Fault::SaysGzip) => drop(response.headers_mut().insert(CONTENT_ENCODING, "gzip".parse().unwrap())),
        Some(Fault::CutAfter(bytes)) => {
            let (head, body) = response.into_parts();
            let all = body.collect().await?.to_bytes();
            let mut cut = Response::from_parts(head, broken_off(all.slice(..bytes)));
            cut.headers_mut().insert("content-length", all.len().to_string().parse().unwrap());
            return Ok(cut);
        }
        _ => {}
    }
    if head.method == Method::HEAD {
        return Ok(response.map(|_| full("")));
    }
    Ok(response)
}

impl State {
    /// Does what the request asks for.
    fn act(
        self: &Arc<Self>,
        head: &http::request::Parts,
        query: &HashMap<String, String>,
        key: &str,
        bytes: Bytes,
    ) -> Response<ServerBody> {
        let has = |name: &str| query.contains_key(name);
        match head.method {
            Method::GET if key.is_empty() => self.list(query),
            Method::GET | Method::HEAD => self.get(key, &head.headers),
            Method::PUT if has("partNumber") => self.put_part(query, bytes),
            Method::PUT => self.put(key, &head.headers, bytes),
            Method::POST if has("delete") => self.delete_all(&bytes),
            Method::POST if has("uploads") => self.begin_upload(),
            Method::POST if has("uploadId") => self.complete_upload(&query["uploadId"], key),
            Method::DELETE if has("uploadId") => {
                self.uploads.lock().unwrap().remove(&query["uploadId"]);
                respond(204, "")
            }
            Method::DELETE => {
                self.objects.lock().unwrap().remove(key);
                respond(204, "")
            }
            _ => respond(501, ""),
        }
    }

    fn get(self: &Arc<Self>, key: &str, headers: &HeaderMap) -> Response<ServerBody> {
        let Some(object) = self.objects.lock().unwrap().get(key).cloned() else {
            return respond(404, "<Error><Code>NoSuchKey</Code></Error>");
        };
        let range = headers.get(RANGE).and_then(|range| range.to_str().ok()?.strip_prefix("bytes=")?.split_once('-'));
        let last = object.len().saturating_sub(1);
        let mut builder = Response::builder()
            .header(ETAG, etag_of(&object))
            .header(LAST_MODIFIED, "Wed, 21 Oct 2015 07:28:00 GMT")
            .header("content-type", "application/octet-stream");
        let body = match range {
            Some((from, to)) => {
                let from: usize = from.parse().unwrap();
                let to = to.parse().unwrap_or(last).min(last);
                builder = builder
                    .status(StatusCode::PARTIAL_CONTENT)
                    .header("content-range", format!("bytes {from}-{to}/{}", object.len()));
                object.slice(from..=to)
            }
            None => object,
        };
        builder = builder.header("content-length", body.len());
        builder.body(self.counted(body)).unwrap()
    }

    /// Sends bytes in pieces, and counts those that the connection took.
    fn counted(self: &Arc<Self>, mut bytes: Bytes) -> ServerBody {
        let state = self.clone();
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            pieces.push(bytes.split_to(bytes.len().min(64 * 1024)));
        }
        let frames = stream::iter(pieces).map(move |piece| {
            state.sent.fetch_add(piece.len() as u64, Ordering::SeqCst);
            Ok(Frame::data(piece))
        });
        BodyExt::boxed(StreamBody::new(frames))
    }

    fn put(&self, key: &str, headers: &HeaderMap, bytes: Bytes) -> Response<ServerBody> {
        let mut objects = self.objects.lock().unwrap();
        if headers.contains_key(IF_NONE_MATCH) && objects.contains_key(key) {
            return respond(412, "<Error><Code>PreconditionFailed</Code></Error>");
        }
        let mut response = respond(200, "");
        response.headers_mut().insert(ETAG, etag_of(&bytes).parse().unwrap());
        objects.insert(key.to_owned(), bytes);
        response
    }

    fn put_part(&self, query: &HashMap<String, String>, bytes: Bytes) -> Response<ServerBody> {
        let facts = PartFacts::of(&bytes);
        let mut response = respond(200, "");
        response.headers_mut().insert(ETAG, etag_of(&bytes).parse().unwrap());
        let bytes = if *self.forgets_parts.lock().unwrap() { Bytes::new() } else { bytes };
        let mut uploads = self.uploads.lock().unwrap();
        let Some(parts) = uploads.get_mut(&query["uploadId"]) else { return respond(404, "") };
        parts.insert(query["partNumber"].parse().unwrap(), Part { bytes, facts });
        response
    }

    fn begin_upload(&self) -> Response<ServerBody> {
        let mut uploads = self.uploads.lock().unwrap();
        let id = format!("upload-{}", uploads.len() + self.completed.lock().unwrap().len());
        let text = format!(
            "<InitiateMultipartUploadResult><Bucket>bucket</Bucket><Key>key</Key><UploadId>{id}</UploadId>\
             </InitiateMultipartUploadResult>"
        );
        uploads.insert(id, BTreeMap::new());
        respond(200, text)
    }

    fn complete_upload(&self, id: &str, key: &str) -> Response<ServerBody> {
        let Some(parts) = self.uploads.lock().unwrap().remove(id) else { return respond(404, "") };
        self.completed.lock().unwrap().push(parts.values().map(|part| part.facts).collect());
        let whole = parts.values().flat_map(|part| part.bytes.to_vec()).collect::<Bytes>();
        self.objects.lock().unwrap().insert(key.to_owned(), whole);
        let text = "<CompleteMultipartUploadResult><Location>x</Location><Bucket>bucket</Bucket><Key>key</Key>\
                    <ETag>\"whole\"</ETag></CompleteMultipartUploadResult>";
        respond(200, text)
    }

    fn delete_all(&self, body: &Bytes) -> Response<ServerBody> {
        let text = String::from_utf8_lossy(body);
        let keys = text.split("<Key>").skip(1).filter_map(|rest| Some(rest.split_once("</Key>")?.0));
        let mut deleted = String::new();
        for key in keys {
            self.objects.lock().unwrap().remove(key);
            deleted.push_str(&format!("<Deleted><Key>{key}</Key></Deleted>"));
        }
        respond(200, format!("<DeleteResult>{deleted}</DeleteResult>"))
    }

    fn list(&self, query: &HashMap<String, String>) -> Response<ServerBody> {
        let value = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
        let after = value("continuation-token").max(value("start-after")).to_owned();
        let (prefix, delimiter) = (value("prefix"), value("delimiter"));
        let page = self.page.load(Ordering::SeqCst);
        let objects = self.objects.lock().unwrap();
        let (mut entries, mut last, mut count, mut is_truncated) = (String::new(), String::new(), 0, false);
        let mut folder = None;
        for (key, bytes) in objects.iter().filter(|(key, _)| key.starts_with(prefix) && **key > after) {
            let below = match delimiter {
                "" => None,
                _ => key[prefix.len()..].split_once(delimiter).map(|(name, _)| format!("{prefix}{name}{delimiter}")),
            };
            if below.is_some() && (below == folder || below.as_ref().is_some_and(|below| after.starts_with(below))) {
                last.clone_from(key);
                continue;
            }
            if count == page {
                is_truncated = true;
                break;
            }
            count += 1;
            last.clone_from(key);
            match &below {
                Some(below) => {
                    entries.push_str(&format!("<CommonPrefixes><Prefix>{below}</Prefix></CommonPrefixes>"));
                }
                None => entries.push_str(&format!(
                    "<Contents><Key>{key}</Key><Size>{}</Size><LastModified>2015-10-21T07:28:00.000Z</LastModified>\
                     <ETag>{}</ETag></Contents>",
                    bytes.len(),
                    etag_of(bytes)
                )),
            }
            folder = below;
        }
        let next =
            if is_truncated { format!("<NextContinuationToken>{last}</NextContinuationToken>") } else { String::new() };
        respond(
            200,
            format!(
                "<ListBucketResult><Name>bucket</Name><Prefix>{prefix}</Prefix><KeyCount>{count}</KeyCount>\
                 <IsTruncated>{is_truncated}</IsTruncated>{next}{entries}</ListBucketResult>"
            ),
        )
    }
}

fn etag_of(bytes: &[u8]) -> String {
    format!("\"{:016x}\"", PartFacts::of(bytes).digest)
}

/// Returns the key in a path such as `/bucket/key`.
fn key_of(path: &str) -> String {
    let key = path.trim_start_matches('/').split_once('/').map_or("", |(_, key)| key);
    key.replace("%20", " ")
}

fn query_of(query: Option<&str>) -> HashMap<String, String> {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (name.to_owned(), value.replace("%2F", "/").replace("%2f", "/"))
        })
        .collect()
}

fn respond(status: u16, body: impl Into<Bytes>) -> Response<ServerBody> {
    Response::builder().status(status).header("content-type", "application/xml").body(full(body)).unwrap()
}

fn full(body: impl Into<Bytes>) -> ServerBody {
    Full::new(body.into()).map_err(|never| match never {}).boxed()
}

/// A body that breaks off once its bytes are sent.
fn broken_off(bytes: Bytes) -> ServerBody {
    let end = stream::once(async {
        // The connection writes what it has while the body is not ready.
        tokio::task::yield_now().await;
        Err(io::Error::other("broken off as the test wants"))
    });
    let frames = stream::iter([Ok(Frame::data(bytes))]).chain(end);
    BodyExt::boxed(StreamBody::new(Box::pin(frames)))
}
