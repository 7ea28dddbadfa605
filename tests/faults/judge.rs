//! Judges the end of a call by what the call asked for and by what has happened to its connections. It does no I/O.

use std::fmt;
use std::time::Duration;

use speeddial::ErrorKind;
use speeddial::http::Method;
use speeddial::trace::Phase;
use support::fault_script::{Fault, Script, Tag};
use support::fault_transport::Struck;

use crate::pattern::{self, Part};
use crate::plan::{Action, Lane, Plan};
use crate::server::INTERIM_LENGTH;

/// The time by which a call may end after its deadline, on a machine whose timers are not late.
pub(crate) const GRACE: Duration = Duration::from_millis(100);
/// The time after its deadline at which a call is taken to hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// A deadline from which on a call without faults must succeed, on a machine whose timers are not late.
const ENOUGH: Duration = Duration::from_secs(1);
/// How often a call waits for a timer or for its turn, at most.
const TURNS: u32 = 25;

/// The end of a call.
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// A response, with the id that its head has and its body.
    Answered {
        status: u16,
        id: Option<u64>,
        url: String,
        body: Vec<u8>,
    },
    Failed(Failure),
    /// The caller dropped the call.
    Cancelled,
    /// The caller lost its patience long after the deadline.
    Hung,
}

/// An error.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) is_timeout: bool,
    pub(crate) is_connect: bool,
    pub(crate) url: Option<String>,
    /// True if the head of the response had come.
    pub(crate) has_head: bool,
    /// The time that the call waited for a connection.
    pub(crate) queued: Duration,
    pub(crate) text: String,
}

impl Failure {
    /// Returns the error's text without the request, and without figures and causes.
    pub(crate) fn clause(&self) -> &str {
        let clause = self.text.split(": ").nth(1).unwrap_or(&self.text);
        let end = clause.find(|letter: char| letter == ',' || letter.is_ascii_digit()).unwrap_or(clause.len());
        clause[..end].trim_end()
    }
}

/// A connection that a call has used or waited for.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) tag: Tag,
    pub(crate) lane: Lane,
    pub(crate) script: Script,
    /// What had happened to it when the call was over.
    pub(crate) struck: Option<Struck>,
}

impl Connection {
    fn was_refused(&self) -> bool {
        self.struck == Some(Struck::Opening)
    }

    /// Returns true if a fault has ended the connection or made it useless. A pause does neither.
    fn was_broken(&self) -> bool {
        let is_pause = self.script.strike.is_some_and(|strike| matches!(strike.fault, Fault::Pause(_)));
        self.struck == Some(Struck::Fault) && !is_pause
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tag, lane, script, struck } = self;
        write!(f, "connection {} of client {}, {lane:?}: {script}", tag.connection, tag.client)?;
        match struck {
            Some(struck) => write!(f, " [struck: {struck:?}]"),
            None => f.write_str(" [not struck]"),
        }
    }
}

/// All that is known of a call that is over.
#[derive(Debug, Clone)]
pub(crate) struct Evidence {
    pub(crate) plan: Plan,
    pub(crate) end: End,
    pub(crate) elapsed: Duration,
    /// How late the machine's timers were at the call's deadline.
    pub(crate) lateness: Duration,
    /// How late they were at worst while the call lasted.
    pub(crate) lateness_before: Duration,
    pub(crate) connections: Vec<Connection>,
}

impl Evidence {
    /// Returns what the call came to in a word.
    ///
    /// # Errors
    /// The client did something that it must not do.
    pub(crate) fn judge(&self) -> Result<&'static str, String> {
        self.check_time()?;
        match &self.end {
            End::Answered { status, id, url, body } => self.judge_answer(*status, *id, url, body),
            End::Failed(failure) => self.judge_failure(failure),
            End::Cancelled => Ok("cancelled"),
            End::Hung => Err("the call hung".to_owned()),
        }
    }

    /// Returns the time that a busy machine adds to the deadline: the timer is late, and then the call waits for its turn. A machine
    /// that makes a task wait for longer than the grace cannot tell a late call from a punctual one, but only one that hangs.
    pub(crate) fn allowance(&self) -> Duration {
        if self.lateness_before > GRACE { PATIENCE } else { 2 * self.lateness }
    }

    fn check_time(&self) -> Result<(), String> {
        let Self { elapsed, lateness, .. } = self;
        let deadline = self.plan.deadline;
        if *elapsed > deadline + GRACE + self.allowance() {
            return Err(format!("{elapsed:?} with a deadline of {deadline:?}, and timers late by {lateness:?}"));
        }
        Ok(())
    }

    fn judge_answer(&self, status: u16, id: Option<u64>, url: &str, body: &[u8]) -> Result<&'static str, String> {
        let plan = &self.plan;
        if id != Some(plan.id) {
            return Err(format!("the answer of call {id:?}"));
        }
        if !self.is_of_call(url) {
            return Err(format!("an answer of {url}"));
        }
        let (part, length, word) = match status {
            200 => (Part::Response, plan.length, "answered"),
            503 if plan.action == Action::Busy => (Part::Interim, INTERIM_LENGTH, "busy"),
            _ => return Err(format!("status {status}")),
        };
        let length = if plan.method == Method::HEAD { 0 } else { length };
        pattern::check(part, plan.id, length, body)?;
        Ok(word)
    }

    fn judge_failure(&self, failure: &Failure) -> Result<&'static str, String> {
        let Failure { kind, is_timeout, is_connect, url, has_head, queued, text } = failure;
        if !url.as_deref().is_some_and(|url| self.is_of_call(url)) {
            return Err(format!("the error of another call: {text}"));
        }
        let is_limit = matches!(kind, ErrorKind::Timeout(_));
        if is_limit && !is_timeout {
            return Err(format!("a time limit without `is_timeout`: {text}"));
        }
        let is_of_dial = match kind {
            ErrorKind::Connect | ErrorKind::Tls => true,
            ErrorKind::Timeout(phase) => matches!(phase, Phase::Dns | Phase::Connect | Phase::Tls),
            _ => false,
        };
        if is_of_dial != *is_connect {
            return Err(format!("`is_connect` is {is_connect}: {text}"));
        }
        let is_of_right_phase = match kind {
            ErrorKind::Body => *has_head,
            // The phase begins with the first byte of the head.
            ErrorKind::Timeout(Phase::Receive) => true,
            _ => !has_head,
        };
        if !is_of_right_phase {
            return Err(format!("of the wrong phase: {text}"));
        }
        let is_explained = match kind {
            ErrorKind::Timeout(phase) => return self.judge_timeout(*phase, *queued, text),
            ErrorKind::Connect => self.connections.iter().any(Connection::was_refused) || self.was_broken(),
            ErrorKind::Tls => self.connections.iter().any(|one| one.was_broken() && one.lane.is_tls()),
            ErrorKind::Exchange | ErrorKind::Body => self.was_broken(),
            _ => return Err(format!("an error of the wrong kind: {text}")),
        };
        if is_explained { Ok(kind.as_str()) } else { Err(format!("an error without a fault: {text}")) }
    }

    fn judge_timeout(&self, phase: Phase, queued: Duration, text: &str) -> Result<&'static str, String> {
        let Self { plan, connections, .. } = self;
        // A dial may have begun for an earlier call.
        let has_other_limit = matches!(phase, Phase::Connect | Phase::Tls);
        if self.elapsed < plan.deadline && !has_other_limit {
            return Err(format!("a time limit before its time, after {:?}: {text}", self.elapsed));
        }
        let is_slow = connections.iter().any(|one| one.struck.is_some() || one.script.is_slow());
        // A request may wait for the connections of others, whose faults are not known here.
        let waits_for_others = queued > plan.deadline / 4 && plan.may_fail();
        let enough = ENOUGH + TURNS * self.lateness_before;
        let may_time_out = plan.action == Action::Never || plan.deadline < enough;
        if is_slow || waits_for_others || may_time_out {
            return Ok("timeout");
        }
        Err(format!("a timeout without a fault: {text}"))
    }

    /// Judges a POST that the server answers with a redirect by the connections on which it was processed.
    ///
    /// # Errors
    /// The server has processed it twice, or not although the call was answered.
    pub(crate) fn judge_first_post(&self, processed: &[Tag]) -> Result<(), String> {
        let is_redirected = matches!(self.plan.action, Action::Redirect(..));
        if matches!(self.end, End::Answered { .. }) && is_redirected && processed.is_empty() {
            return Err("answered, and not redirected".to_owned());
        }
        if processed.len() > 1 && !self.plan.may_be_repeated() {
            return Err(format!("redirected {} times, on {processed:?}", processed.len()));
        }
        Ok(())
    }

    /// Judges the last POST of a call by the connections on which the server has processed it.
    ///
    /// # Errors
    /// The server has processed it twice, or not although it was answered, or although the client says that it was not sent.
    pub(crate) fn judge_last_post(&self, processed: &[Tag]) -> Result<(), String> {
        let becomes_get = matches!(self.plan.action, Action::Redirect(301..=303, _));
        if processed.len() > 1 && !self.plan.may_be_repeated() {
            return Err(format!("processed {} times, on {processed:?}", processed.len()));
        }
        match &self.end {
            End::Answered { .. } if processed.is_empty() && !becomes_get => {
                Err("answered, and not processed".to_owned())
            }
            End::Failed(failure) if failure.is_connect && !processed.is_empty() && !self.plan.may_be_repeated() => {
                Err(format!("processed on {processed:?}, and the client says that it was not sent"))
            }
            _ => Ok(()),
        }
    }

    fn was_broken(&self) -> bool {
        self.connections.iter().any(Connection::was_broken)
    }

    /// Returns true if a URL is one of those of the call.
    fn is_of_call(&self, url: &str) -> bool {
        url.split('/').nth(4) == Some(&self.plan.id.to_string())
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {:?}", self.plan)?;
        match &self.end {
            End::Answered { status, id, url, body } => {
                writeln!(f, "  answered {status} by call {id:?} at {url}, {} bytes", body.len())?;
            }
            end => writeln!(f, "  {end:?}")?,
        }
        let Self { elapsed, lateness, lateness_before, .. } = self;
        writeln!(f, "  after {elapsed:?}; timers were late by {lateness:?}, and by {lateness_before:?} before")?;
        self.connections.iter().try_for_each(|connection| writeln!(f, "  {connection}"))
    }
}
