//! The token that all calls share, and the tasks that refresh it.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderValue;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::state::{Numbered, REFRESH_TIMEOUT, TokenAnswer, TokenState};
use crate::client::token::state::Token;
use crate::clock::{Instant, Timed, TimerTask, before, now};
use crate::error::{Cause, Error, Result};
use crate::memory::Flight;
use crate::sync::{Landing, lock};

/// The most refreshes that a caller waits for. More than one end without a result for it only if their runtimes end or are not
/// driven, or if servers reject each token at once.
const MAX_WAITS: u32 = 8;

/// The value of an `Authorization` header, with the number of its token.
pub(crate) type Bearer = Numbered<HeaderValue>;

/// An error that all callers share which waited for the same refresh.
type SharedCause = Arc<dyn std::error::Error + Send + Sync>;

/// The result of a refresh: the token, or the error that all of its callers share.
type Brought = Result<Bearer, SharedCause>;

type Refreshed = Landing<Brought>;

/// The user's function that gets a new token.
pub(super) type Fetch = Box<dyn Fn() -> BoxFuture<'static, Result<Token, Cause>> + Send + Sync>;

/// The reason why a refresh brought no token, if the user's function did not say one.
#[derive(Debug, thiserror::Error)]
enum RefreshError {
    #[error("the token source brought no token within {REFRESH_TIMEOUT:?}")]
    TimedOut,
    #[error("the token source panicked")]
    Panicked,
    #[error("the refresh was given up, because its runtime ended or is not driven")]
    Lost,
}

/// The token and its refreshes. A refresh is a task of its own, so no caller can cancel it.
pub(super) struct SharedToken {
    fetch: Fetch,
    state: Mutex<TokenState<HeaderValue, SharedCause, Refreshed>>,
    timer_task: TimerTask,
}

impl SharedToken {
    pub(super) fn new(fetch: Fetch) -> Self {
        Self { fetch, state: Mutex::new(TokenState::new()), timer_task: TimerTask::default() }
    }

    /// Returns the token, or the error of the last refresh; `None` if a refresh has to be waited for.
    pub(super) fn at_hand(self: &Arc<Self>, now: Instant) -> Option<Result<Bearer>> {
        match self.ask(now, None) {
            TokenAnswer::Token(token) => Some(Ok(token)),
            TokenAnswer::Failed(error) => Some(Err(Error::token(error))),
            TokenAnswer::Wait(_) => None,
        }
    }

    /// Waits for the token: a newer one than that with the number `rejected`.
    pub(super) async fn get(self: &Arc<Self>, rejected: Option<u64>) -> Result<Bearer> {
        for _ in 0..MAX_WAITS {
            match self.ask(now(), rejected) {
                TokenAnswer::Token(token) => return Ok(token),
                TokenAnswer::Failed(error) => return Err(Error::token(error)),
                TokenAnswer::Wait(_) if Handle::try_current().is_err() => return Err(Error::no_runtime()),
                TokenAnswer::Wait(Flight { handle, counts_until, .. }) => {
                    // The task of the refresh has a time limit of its own, which passes only if its runtime is driven.
                    if let Some(Some(brought)) = before(Some(counts_until), handle.wait()).await {
                        return brought.map_err(Error::token);
                    }
                }
            }
        }
        Err(Error::token(Arc::new(RefreshError::Lost)))
    }

    /// Returns the number of the token, if a server has rejected it.
    pub(super) fn rejected(&self) -> Option<u64> {
        lock(&self.state).rejected()
    }

    /// Takes note that a server rejected the token with this number, and begins to get another one. Returns true if another attempt with
    /// that is of use.
    pub(super) fn reject(self: &Arc<Self>, number: u64) -> bool {
        let now = now();
        let is_useful = lock(&self.state).reject(now, number);
        if is_useful {
            self.ask(now, Some(number));
        }
        is_useful
    }

    /// Asks the core, and starts the refresh that it wants.
    fn ask(self: &Arc<Self>, now: Instant, rejected: Option<u64>) -> TokenAnswer<HeaderValue, SharedCause, Refreshed> {
        let step = lock(&self.state).get(now, rejected);
        self.start(step.start);
        step.answer
    }

    /// Starts a refresh in a task.
    fn start(self: &Arc<Self>, refresh: Option<Flight<Refreshed>>) {
        let Some(Flight { handle, serial, .. }) = refresh else { return };
        let refresh = Refresh { shared: self.clone(), number: serial, sender: handle.take_sender() };
        // Without a runtime the refresh is lost, and given up as such.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(refresh.run().boxed());
        }
    }

    /// Gets a new token.
    async fn fetch(&self) -> Result<(HeaderValue, Option<Duration>), SharedCause> {
        let fetching = AssertUnwindSafe(async { (self.fetch)().await }).catch_unwind();
        let until = now().checked_add(REFRESH_TIMEOUT);
        match before(until, pin!(fetching)).await {
            Some(Ok(Ok(token))) => token.into_parts().map_err(|error| Arc::new(error) as SharedCause),
            Some(Ok(Err(error))) => Err(error.into()),
            Some(Err(_panic)) => Err(Arc::new(RefreshError::Panicked)),
            None => Err(Arc::new(RefreshError::TimedOut)),
        }
    }
}

impl Timed for SharedToken {
    fn timer_task(&self) -> &TimerTask {
        &self.timer_task
    }

    /// Refreshes the token ahead of its end.
    fn handle_timeout(self: Arc<Self>, now: Instant) -> Option<Instant> {
        let (start, next) = {
            let mut state = lock(&self.state);
            (state.handle_timeout(now), state.next_timeout(now))
        };
        self.start(start);
        next
    }
}

/// A refresh under way. Dropped before its end, because its runtime ended, it is given up, and its callers ask again.
struct Refresh {
    shared: Arc<SharedToken>,
    number: u64,
    /// The end that tells what it brings; `None` once it has.
    sender: Option<oneshot::Sender<Brought>>,
}

impl Refresh {
    async fn run(mut self) {
        let result = self.shared.fetch().await;
        let (now, number) = (now(), self.number);
        let brought = result.clone().map(|(value, _)| Numbered { value, number });
        let next = {
            let mut state = lock(&self.shared.state);
            state.end(now, number, result);
            state.next_timeout(now)
        };
        if let Some(sender) = self.sender.take() {
            // An error means that no call waits any more. The state has the token all the same.
            let _ = sender.send(brought);
        }
        TimerTask::set(&self.shared, next);
    }
}

impl Drop for Refresh {
    fn drop(&mut self) {
        if self.sender.is_some() {
            lock(&self.shared.state).lose(self.number);
        }
    }
}
