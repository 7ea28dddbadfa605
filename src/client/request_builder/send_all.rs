//! Many requests, a limited number of them at a time, as a stream of responses.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesOrdered, FuturesUnordered};
use futures_util::{FutureExt, Stream, StreamExt};

use super::RequestBuilder;
use crate::client::handle::Client;
use crate::client::request::Request;
use crate::client::response::Response;
use crate::client::response::call_data::BoxedRequest;
use crate::error::{Error, Result};

/// The number of calls at a time. It is below the 100 streams of an HTTP/2 connection that servers commonly allow, and
/// makes more than 1,000 requests a second to a server that takes 50 ms for each.
const DEFAULT_CONCURRENCY: usize = 64;

impl Client {
    /// Sends many requests, up to 64 at a time, and returns a stream of their responses as they come, each with the index of
    /// its request: see [`SendAll`].
    ///
    /// Requests are [`Request`]s, [`RequestBuilder`]s, or those of the `http` crate. A builder's request is sent by this client,
    /// even if another one made it. A request that cannot be converted is an error in its place.
    pub fn send_all<I>(&self, requests: I) -> SendAll<I::IntoIter>
    where
        I: IntoIterator<Item: TryInto<Request, Error: Into<Error>>>,
    {
        SendAll {
            client: self.clone(),
            requests: Some(requests.into_iter()),
            next_index: 0,
            concurrency: DEFAULT_CONCURRENCY,
            calls: Calls::AsCompleted(FuturesUnordered::new()),
        }
    }
}

/// The responses to many requests, each with the index of its request: [`Client::send_all`].
///
/// A request is taken from the iterator when its call begins, so the iterator may be long or endless. The calls advance while
/// the stream is polled. Dropping the stream cancels those under way, and no more are begun. A failed call is an item like
/// another.
///
/// A call is over with the head of its response, and its connection is in use until the body was read. So read or drop each
/// response before the next one; or read them at the same time:
///
/// ```no_run
/// # async fn run(client: speeddial::Client) {
/// use futures_util::StreamExt;
///
/// let pages = (1..=1_000).map(|page| client.get(format!("http://api.example.com/v1/items/{page}")));
/// let responses = client.send_all(pages).concurrency(16);
/// let texts = responses.map(async |(index, response)| match response {
///     Ok(response) => (index, response.text().await),
///     Err(error) => (index, Err(error)),
/// });
/// let mut texts = std::pin::pin!(texts.buffer_unordered(16));
/// while let Some((index, text)) = texts.next().await {
///     println!("item {}: {text:?}", index + 1);
/// }
/// # }
/// ```
///
/// The limits add up: these are up to 16 calls, and beside them 16 responses that are being read. Each of the 32 has a
/// connection, or a stream of one.
#[must_use = "a stream does nothing until it is polled"]
pub struct SendAll<I> {
    client: Client,
    /// `None` after the last request.
    requests: Option<I>,
    next_index: usize,
    concurrency: usize,
    calls: Calls,
}

/// The calls under way, by the order in which their results are handed out.
enum Calls {
    AsCompleted(FuturesUnordered<NumberedCall>),
    InOrder(FuturesOrdered<NumberedCall>),
}

/// A call and the index of its request.
struct NumberedCall {
    index: usize,
    response: BoxFuture<'static, Result<Response>>,
}

impl<I> SendAll<I> {
    /// Sets the number of calls at a time. 64 by default; 0 is taken as 1.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = calls.max(1);
        self
    }

    /// Returns the responses in the order of the requests, and not in that in which they come. A response that waits for an
    /// earlier one counts as a call, and keeps its connection.
    ///
    /// So the pool has to have as many connections, or streams, as there may be calls. With fewer, responses that wait can hold them
    /// all while an earlier call needs another one, for a redirect or a retry: it then fails after the pool's
    /// [`wait_timeout`](crate::PoolConfig::wait_timeout).
    pub fn in_order(mut self) -> Self {
        if let Calls::AsCompleted(calls) = self.calls {
            let mut calls: Vec<_> = calls.into_iter().collect();
            calls.sort_unstable_by_key(|call| call.index);
            self.calls = Calls::InOrder(calls.into_iter().collect());
        }
        self
    }
}

impl<I> SendAll<I>
where
    I: Iterator<Item: TryInto<Request, Error: Into<Error>>>,
{
    /// Begins calls until there are as many as may be.
    fn begin(&mut self) {
        while self.calls.len() < self.concurrency {
            // Taken out, so that an iterator that panics is not asked again.
            let Some(mut requests) = self.requests.take() else { return };
            let Some(request) = requests.next() else { return };
            let request = request.try_into().map_err(Into::into);
            self.requests = Some(requests);
            let client = self.client.clone();
            let response = async move { client.run(BoxedRequest::new(request?)).await };
            self.calls.push(NumberedCall { index: self.next_index, response: response.boxed() });
            self.next_index += 1;
        }
    }
}

impl Calls {
    fn len(&self) -> usize {
        match self {
            Self::AsCompleted(calls) => calls.len(),
            Self::InOrder(calls) => calls.len(),
        }
    }

    fn push(&mut self, call: NumberedCall) {
        match self {
            Self::AsCompleted(calls) => calls.push(call),
            Self::InOrder(calls) => calls.push_back(call),
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, Result<Response>)>> {
        match self {
            Self::AsCompleted(calls) => calls.poll_next_unpin(cx),
            Self::InOrder(calls) => calls.poll_next_unpin(cx),
        }
    }
}

impl Future for NumberedCall {
    type Output = (usize, Result<Response>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.response.as_mut().poll(cx).map(|response| (self.index, response))
    }
}

impl<I> Stream for SendAll<I>
where
    I: Iterator<Item: TryInto<Request, Error: Into<Error>>>,
{
    type Item = (usize, Result<Response>);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.begin();
        self.calls.poll_next(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let calls = self.calls.len();
        let (least, most) = self.requests.as_ref().map_or((0, Some(0)), Iterator::size_hint);
        (least.saturating_add(calls), most.and_then(|most| most.checked_add(calls)))
    }
}

// The iterator is never pinned.
impl<I> Unpin for SendAll<I> {}

impl<I> fmt::Debug for SendAll<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendAll")
            .field("begun", &self.next_index)
            .field("calls", &self.calls.len())
            .finish_non_exhaustive()
    }
}

/// Converts a request that was put together. Its first invalid part is the error.
impl TryFrom<RequestBuilder> for Request {
    type Error = Error;

    fn try_from(builder: RequestBuilder) -> Result<Self> {
        builder.build()
    }
}

/// For a [`Request`] where anything that becomes one is expected.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
