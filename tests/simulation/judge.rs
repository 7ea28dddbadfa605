//! The judge, who knows the truth of the world, and names the rules that were broken.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::outside::{About, At, Outside, Owned, Owner, State};
use crate::plan::{Kind, Plan, Protocol, Traffic};
use crate::program::{Call, Diary, Outcome};

/// A rule that was broken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Broken {
    pub(crate) at: At,
    pub(crate) rule: &'static str,
    pub(crate) host: Option<usize>,
    pub(crate) what: String,
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The time by which a call may be longer than its limit.
const GRACE: Duration = Duration::from_millis(100);

struct Judge<'a> {
    plan: &'a Plan,
    state: &'a State,
    diary: &'a Diary,
    broken: Vec<Broken>,
}

/// Returns the rules that were broken in a run, by time.
pub(crate) fn judge(outside: &Outside, diary: &Diary) -> Vec<Broken> {
    let state = outside.state();
    let mut judge = Judge { plan: &outside.plan, state: &state, diary, broken: Vec::new() };
    judge.requests_reach_their_host();
    judge.nothing_is_processed_twice();
    judge.uploads_are_whole_or_cut();
    judge.calls_end_in_time();
    judge.limits_hold();
    judge.connections_are_young();
    judge.a_sick_address_is_left_alone();
    judge.calm_is_as_before();
    judge.connections_are_reused();
    judge.dns_is_asked_by_ttl();
    judge.one_call_dials_little();
    judge.what_is_told_is_true();
    judge.hedges_have_ends();
    judge.gateways_change_nothing();
    let mut broken = judge.broken;
    broken.sort();
    broken
}

/// Returns the rules that were broken beside a plain client, which has made the same calls in the same world.
pub(crate) fn compare(outside: &Outside, ours: &Diary, theirs: &Diary) -> Vec<Broken> {
    let state = outside.state();
    let mut judge = Judge { plan: &outside.plan, state: &state, diary: ours, broken: Vec::new() };
    judge.no_call_is_worse(theirs);
    judge.broken
}

impl Judge<'_> {
    fn broken(&mut self, at: At, rule: &'static str, host: Option<usize>, what: String) {
        self.broken.push(Broken { at, rule, host, what });
    }

    /// Returns true if nothing was wrong from one time to another, and for long enough before.
    fn is_calm(&self, from: At, to: At, client: usize, host: usize) -> bool {
        !self.state.troubles.iter().any(|trouble| {
            let concerns = match trouble.about {
                About::Dns => true,
                About::Host(other) => other == host,
                About::Client(other) => other == client,
            };
            concerns && trouble.from <= to && from <= trouble.until + trouble.grace
        })
    }

    fn is_in_trouble(&self, from: At, to: At, about: About) -> bool {
        self.state
            .troubles
            .iter()
            .any(|trouble| trouble.about == about && trouble.from <= to && from <= trouble.until + trouble.grace)
    }

    /// A request reaches only a server that owns its name, or owned it a short time ago.
    fn requests_reach_their_host(&mut self) {
        let mut found = Vec::new();
        for request in &self.state.requests {
            let Some(call) = request.call.and_then(|call| self.diary.calls.get(call as usize)) else { continue };
            let secret = format!("secret-of-h{}", call.host);
            if request.secret.as_ref().is_some_and(|told| !told.ends_with(&secret)) {
                found.push((request.at, "secret", call.host, format!("{request:?}")));
            }
            if request.owner != Owner::Host(call.host) {
                // As with getaddrinfo, while the first server is silent. Of a connection that was opened then, the next use asks, and the one
                // after that is elsewhere.
                let rows = self.plan.traffic.iter().filter(|row| row.host == call.host && row.client == call.client);
                let last_use = rows.map(|row| row.every).max().unwrap_or_default();
                let from = call.begun.saturating_sub(last_use + seconds(6));
                let abouts = [About::Dns, About::Client(call.client)];
                if !abouts.into_iter().any(|about| self.is_in_trouble(from, request.at, about)) {
                    found.push((request.at, "astray", call.host, format!("call {} at {}", call.id, request.address)));
                }
                continue;
            }
            let owned = |owned: &&Owned| owned.host == call.host && owned.ip == request.address.ip();
            let Some(owned) = self.state.owned.iter().filter(owned).max_by_key(|owned| owned.until.unwrap_or(At::MAX))
            else {
                continue;
            };
            let Some(until) = owned.until else { continue };
            let excused = self.is_in_trouble(until, request.at, About::Dns)
                || self.is_in_trouble(until, request.at, About::Client(call.client));
            if request.at > until + owned.allowed && !excused {
                let late = request.at - until;
                let what = format!("call {} at {}, which was left {late:?} ago", call.id, request.address);
                found.push((request.at, owned.rule, call.host, what));
            }
        }
        for (at, rule, host, what) in found {
            self.broken(at, rule, Some(host), what);
        }
    }

    /// A request that may not be sent twice is not processed twice.
    fn nothing_is_processed_twice(&mut self) {
        let mut times: BTreeMap<u64, Vec<At>> = BTreeMap::new();
        for request in self.state.requests.iter().filter(|request| request.processed) {
            times.entry(request.call.unwrap_or(u64::MAX)).or_default().push(request.at);
        }
        for (call, at) in times {
            let Some(call) = self.diary.calls.get(call as usize) else { continue };
            let is_gateway = self.plan.clients[call.client].is_gateway;
            if at.len() > 1 && !call.kind.is_repeatable() && !is_gateway {
                let rule = if call.kind == Kind::PutOnce { "twice: conditional" } else { "twice" };
                self.broken(at[1], rule, Some(call.host), format!("call {}: {:?} at {at:?}", call.id, call.kind));
            }
        }
    }

    /// An upload that was taken as whole was whole.
    fn uploads_are_whole_or_cut(&mut self) {
        let mut found = Vec::new();
        for request in &self.state.requests {
            let Some(call) = request.call.and_then(|call| self.diary.calls.get(call as usize)) else { continue };
            let Some((bytes, true)) = request.content else { continue };
            if self.plan.clients[call.client].is_gateway {
                if call.id % 3 == 2 {
                    found.push((request.at, "cut upload as whole", call.host, format!("call {}: {bytes}", call.id)));
                }
            } else if call.kind == Kind::Upload && bytes != 3_000 {
                found.push((request.at, "content", call.host, format!("call {}: {bytes} of 3,000", call.id)));
            }
        }
        for call in &self.diary.calls {
            if let Outcome::Answered { is_right: false, bytes, .. } = call.outcome {
                found.push((call.begun, "content", call.host, format!("call {}: {bytes} wrong bytes", call.id)));
            }
        }
        for (at, rule, host, what) in found {
            self.broken(at, rule, Some(host), what);
        }
    }

    fn calls_end_in_time(&mut self) {
        let mut found = Vec::new();
        for call in &self.diary.calls {
            let limit = self.plan.clients[call.client].timeout;
            let ended = call.ended.unwrap_or(At::MAX);
            let frozen = self.is_in_trouble(call.begun, ended, About::Client(call.client));
            if ended - call.begun > limit + GRACE && !frozen {
                found.push((call.begun, call.host, format!("call {} took {:?}", call.id, ended - call.begun)));
            }
        }
        for (at, host, what) in found {
            self.broken(at, "late", Some(host), what);
        }
        for left in &self.diary.left.clone() {
            self.broken(self.plan.length, "left", None, left.clone());
        }
    }

    /// No more connections are open to a host than its limit allows.
    fn limits_hold(&mut self) {
        let mut found = Vec::new();
        for (number, client) in self.plan.clients.iter().enumerate() {
            let Some(limit) = client.max_per_host else { continue };
            for host in 0..self.plan.hosts.len() {
                let of_both = || {
                    let conns = self.state.conns.iter();
                    conns.filter(move |conn| conn.client == Some(number) && conn.owner == Owner::Host(host))
                };
                // The end of a connection is seen by the server when it has come there.
                let way = 4 * self.plan.hosts[host].delay + Duration::from_millis(20);
                for conn in of_both() {
                    let at = conn.opened;
                    let open = of_both()
                        .filter(|other| {
                            let closed = other.left.or(other.closed).unwrap_or(At::MAX);
                            other.opened <= at && closed.saturating_sub(way) > at
                        })
                        .count();
                    if open > limit {
                        found.push((at, host, format!("{open} connections of client {number}, limit {limit}")));
                    }
                }
            }
        }
        for (at, host, what) in found {
            self.broken(at, "limit", Some(host), what);
        }
    }

    /// A connection that was idle for too long, or is too old, carries no further request; and it closes.
    fn connections_are_young(&mut self) {
        let mut found = Vec::new();
        for request in &self.state.requests {
            let (Some(number), Some(host)) = (request.client, request.owner.host()) else { continue };
            let (client, way) = (&self.plan.clients[number], 2 * self.plan.hosts[host].delay);
            let call = request.call.and_then(|call| self.diary.calls.get(call as usize));
            let stood_still = |since| self.is_in_trouble(since, request.at, About::Client(number));
            // Of the server's time some is spent on the way.
            let slack = way + Duration::from_millis(100);
            let is_excused = |idle: Duration| {
                let last = request.at.saturating_sub(idle);
                // The call may have begun in time, on a connection that stalled then.
                let began_in_time =
                    call.is_some_and(|call| call.begun.saturating_sub(last) <= client.idle_timeout + slack);
                // A program that stood still read the last response long after it was sent, or it came late.
                let read_late = |other: &Call| {
                    let is_near = other.client == number && other.host == host && other.begun <= last;
                    is_near && other.ended.is_some_and(|ended| request.at.saturating_sub(ended) <= client.idle_timeout)
                };
                let was_late = self.is_in_trouble(last, request.at, About::Host(host)) || stood_still(last);
                was_late && (began_in_time || self.diary.calls.iter().any(read_late))
            };
            if let Some(idle) = request.idle
                && idle > client.idle_timeout + slack
                && !is_excused(idle)
            {
                found.push((request.at, "idle age", host, format!("call {:?} after {idle:?}", request.call)));
            }
            // On a stalled connection a request arrives long after it was sent.
            let sent_after = request.at.saturating_sub(request.age);
            let oldest = client.lifetime.mul_f64(1.1);
            let was_young = call.is_some_and(|call| call.begun.saturating_sub(sent_after) <= oldest);
            let is_late =
                self.is_in_trouble(sent_after, request.at, About::Host(host)) || was_young && stood_still(sent_after);
            if request.age > oldest + slack + seconds(1) && !is_late {
                let what = format!("call {:?} on a connection of {:?}", request.call, request.age);
                found.push((request.at, "lifetime", host, what));
            }
        }
        for conn in &self.state.conns {
            let (Some(number), Some(host)) = (conn.client, conn.owner.host()) else { continue };
            let client = &self.plan.clients[number];
            let end = conn.left.or(conn.closed).unwrap_or(self.plan.length);
            let old = conn.opened + client.lifetime.mul_f64(1.1) + seconds(5);
            if let Some(since) = conn.idle_since
                && end > old.max(since + seconds(5))
                && !self.is_in_trouble(conn.opened, end, About::Client(number))
                && !self.is_in_trouble(since, end, About::Host(host))
            {
                found.push((end, "lifetime: idle", host, format!("idle since {since:?}, opened {:?}", conn.opened)));
            }
        }
        for (at, rule, host, what) in found {
            self.broken(at, rule, Some(host), what);
        }
    }

    /// With healthy addresses beside it, an address that fails gets few requests of a client that balances.
    fn a_sick_address_is_left_alone(&mut self) {
        let mut found = Vec::new();
        for sick in &self.state.sick {
            for (number, client) in self.plan.clients.iter().enumerate() {
                // The first failures are what ejects it; later on, one in each ten seconds asks whether it is well.
                let from = sick.from + seconds(20);
                if !client.spread || client.is_gateway || sick.until < from {
                    continue;
                }
                let in_time =
                    self.state.requests.iter().filter(|request| {
                        request.at >= from && request.at < sick.until && request.client == Some(number)
                    });
                let of_host = in_time.filter(|request| request.owner == Owner::Host(sick.host));
                let (there, all) = of_host.fold((0_u32, 0_u32), |(there, all), request| {
                    (there + u32::from(request.address.ip() == sick.ip), all + 1)
                });
                let probes = u32::try_from((sick.until - from).as_secs() / 10).unwrap() + 6;
                if there > probes && there * 3 > all {
                    found.push((sick.until, sick.host, format!("{there} of {all} requests of client {number}")));
                }
            }
        }
        for (at, host, what) in found {
            self.broken(at, "ejection", Some(host), what);
        }
    }

    /// A call in calm times succeeds, and soon.
    fn calm_is_as_before(&mut self) {
        let mut found = Vec::new();
        for call in self.diary.calls.iter().filter(|call| call.kind.is_patient()) {
            let client = &self.plan.clients[call.client];
            let ended = call.ended.unwrap_or(At::MAX);
            let is_calm = self.is_calm(call.begun, ended, call.client, call.host);
            if client.is_gateway || !is_calm || self.is_saturated(call.client, call.host) {
                continue;
            }
            let host = &self.plan.hosts[call.host];
            match &call.outcome {
                Outcome::Answered { status: 200, .. } => {
                    let (own, many) = match call.kind {
                        Kind::Slow(ms) => (Duration::from_millis(ms), 1),
                        Kind::Download(kib) => (host.delay * 2 * (kib / 32 + 1), 1),
                        Kind::Many(many) => (host.delay * 8 + host.think, many),
                        _ => (Duration::ZERO, 1),
                    };
                    // Under a limit, calls wait for those before them.
                    let queue = if client.max_per_host.is_some() { seconds(6) } else { Duration::ZERO };
                    if ended - call.begun > own * many + queue + seconds(1) {
                        let (took, rule) = (ended - call.begun, self.cause(call, ""));
                        found.push((call.begun, rule, call.host, format!("call {} took {took:?}", call.id)));
                    }
                }
                Outcome::Failed(error) if !self.is_lost_to_a_close(call, error) => {
                    let rule = self.cause(call, error);
                    found.push((call.begun, rule, call.host, format!("call {} {:?}: {error}", call.id, call.kind)));
                }
                _ => {}
            }
        }
        for (at, rule, host, what) in found {
            self.broken(at, rule, Some(host), what);
        }
    }

    /// Returns the rule that a failure in calm times breaks, or a call that is slow and has no error.
    fn cause(&self, call: &Call, error: &str) -> &'static str {
        // A name that has moved without the client's notice.
        let ttl = seconds(self.plan.hosts[call.host].ttl.into()) + seconds(30);
        let left = self.state.owned.iter().find(|owned| {
            owned.host == call.host && owned.until.is_some_and(|until| until <= call.begun && call.begun <= until + ttl)
        });
        match left {
            _ if error.contains("interim responses") => "calm: interim responses",
            _ if error.contains("certificate") => "calm: certificates",
            // The stranger under the other candidate speaks HTTP/1 alone.
            _ if error.contains("answers HTTP/2 in HTTP/1") => "astray",
            Some(left) => left.rule,
            None if error.contains("does not exist") => "calm: no name",
            None if error.is_empty() => "slow in calm",
            None if error.starts_with("resolve") || error.contains(": resolve ") => "calm: names",
            None => "calm",
        }
    }

    /// Returns true if the calls to a host take its limit of connections for more than half of the time.
    fn is_saturated(&self, client: usize, host: usize) -> bool {
        let Some(limit) = self.plan.clients[client].max_per_host else { return false };
        let of_host = &self.plan.hosts[host];
        let rows = self.plan.traffic.iter().filter(|row| row.client == client && row.host == host);
        let busy = rows.map(|row| {
            let each = of_host.think + of_host.delay * 8;
            let took = match row.kind {
                Kind::Slow(ms) => each + Duration::from_millis(ms),
                Kind::Many(many) => each * many,
                Kind::Download(kib) => each + of_host.delay * 2 * (kib / 32),
                _ => each,
            };
            took.as_secs_f64() / row.every.as_secs_f64()
        });
        busy.sum::<f64>() > limit as f64 / 2.0
    }

    /// Returns true if a call may be lost because the server closed its connection while the request was on its way.
    fn is_lost_to_a_close(&self, call: &Call, error: &str) -> bool {
        let host = &self.plan.hosts[call.host];
        let closes =
            host.keep_alive < self.plan.clients[call.client].idle_timeout + seconds(5) || host.max_requests < u32::MAX;
        closes && !call.kind.is_repeatable() && !error.contains("timeout")
    }

    /// In calm times, calls to a host that keeps connections open use them again.
    fn connections_are_reused(&mut self) {
        const WINDOW: Duration = seconds(120);
        let mut found = Vec::new();
        for (number, client) in self.plan.clients.iter().enumerate() {
            for (host, of_host) in self.plan.hosts.iter().enumerate() {
                let rows = || self.plan.traffic.iter().filter(|row| row.client == number && row.host == host);
                let Some(every) = rows().map(|row| row.every).min() else { continue };
                // Balanced requests take turns.
                let turns = if client.spread { of_host.addresses.len() as u32 } else { 1 };
                let kept = of_host.keep_alive.min(client.idle_timeout) / turns;
                let keeps = of_host.protocol != Protocol::Http10
                    && of_host.max_requests > 500
                    && !client.is_gateway
                    && client.lifetime > seconds(300)
                    && every * 2 < kept
                    && rows().all(|row| row.kind.is_patient());
                if !keeps {
                    continue;
                }
                let most = rows().map(|row| if let Kind::Many(many) = row.kind { many } else { 1 }).sum::<u32>();
                // Bursts that are further apart than connections are kept need new ones each time.
                let count = |row: &Traffic| if let Kind::Many(many) = row.kind { many as usize } else { 1 };
                let apart = rows().filter(|row| row.every * 2 >= kept);
                let needed: usize =
                    apart.map(|row| count(row) * (1 + WINDOW.as_millis() / row.every.as_millis()) as usize).sum();
                let mut from = seconds(10);
                while from + WINDOW < self.plan.length {
                    let to = from + WINDOW;
                    if self.is_calm(from, to, number, host) {
                        let is_in = |at: At| from <= at && at < to;
                        let conns = self.state.conns.iter();
                        let opened = conns
                            .filter(|conn| conn.client == Some(number) && conn.owner == Owner::Host(host))
                            .filter(|conn| is_in(conn.opened))
                            .count();
                        let requests = self.state.requests.iter();
                        let made = requests
                            .filter(|request| request.client == Some(number) && request.owner == Owner::Host(host))
                            .filter(|request| is_in(request.at))
                            .count();
                        let addresses = if client.spread { of_host.addresses.len() * 4 } else { 2 };
                        if opened > needed + addresses + 2 * most as usize && opened * 2 > made {
                            found.push((to, host, format!("{opened} connections for {made} requests of {number}")));
                        }
                    }
                    from = to;
                }
            }
        }
        for (at, host, what) in found {
            self.broken(at, "no reuse", Some(host), what);
        }
    }

    /// In calm times, DNS is asked about as often as TTLs end.
    fn dns_is_asked_by_ttl(&mut self) {
        const WINDOW: Duration = seconds(120);
        let mut found = Vec::new();
        let clients = self.plan.clients.len() as u32;
        for (host, of_host) in self.plan.hosts.iter().enumerate() {
            let name = format!("h{host}.");
            let mut from = seconds(10);
            while from + WINDOW < self.plan.length {
                let to = from + WINDOW;
                if (0..clients).all(|client| self.is_calm(from, to, client as usize, host)) {
                    let asked = self.state.questions.iter().filter(|(at, _, asked)| {
                        from <= *at && *at < to && asked.to_ascii_lowercase().starts_with(&name)
                    });
                    let asked = asked.count() as u32;
                    // Both families, of each candidate; negative answers are kept for 30 s.
                    let ttl = of_host.ttl.clamp(1, 30) * 9 / 10;
                    let rounds = 120 / ttl.max(1) + 2;
                    let candidates = if self.plan.dns.search { 3 } else { 1 };
                    let most = 4 + rounds * 2 * candidates * clients * self.plan.dns.servers as u32;
                    if asked > most {
                        found.push((to, host, format!("{asked} questions in {WINDOW:?}, at most {most}")));
                    }
                }
                from = to;
            }
        }
        for (at, host, what) in found {
            self.broken(at, "dns load", Some(host), what);
        }
    }

    /// One attempt of a call makes two dials at most, each to 64 addresses of an answer at most, and all attempts together no more dials than
    /// twice as many as there are addresses. Where the host has moved, there are two answers.
    fn one_call_dials_little(&mut self) {
        let mut found = Vec::new();
        for (host, of_host) in self.plan.hosts.iter().enumerate().filter(|(_, host)| host.addresses.len() > 64) {
            let is_of_host = |ip: &IpAddr| of_host.addresses.contains(ip) || of_host.spare.contains(ip);
            let dials = self.state.dials.iter().filter(|(.., address)| is_of_host(&address.ip()));
            let dials: Vec<_> = dials.map(|(at, ..)| *at).collect();
            let calls = || self.diary.calls.iter().filter(|call| call.host == host);
            let begun: Vec<_> = calls().map(|call| call.begun).collect();
            let mut ended: Vec<_> = calls().map(|call| call.ended.unwrap_or(self.plan.length * 2)).collect();
            ended.sort();
            for call in calls() {
                let end = call.ended.unwrap_or(At::MAX);
                // A dial goes on for the next call when its own has ended, until the connect timeout.
                let count = |times: &[At], at: At| times.partition_point(|time| *time <= at);
                let made = count(&dials, end) - count(&dials, call.begun);
                let at_once = count(&begun, end) - ended.partition_point(|time| *time + seconds(10) < call.begun);
                let attempts = if self.plan.clients[call.client].retry { 3 } else { 1 };
                let has_moved =
                    self.state.owned.iter().filter(|owned| owned.host == host).any(|owned| {
                        owned.until.is_some_and(|until| until <= end && call.begun <= until + owned.allowed)
                    });
                let answers = if has_moved { 2 } else { 1 };
                if made > (140 * attempts).min(2 * of_host.addresses.len()) * answers * at_once {
                    found.push((call.begun, host, format!("{made} dials for {at_once} calls")));
                }
            }
        }
        for (at, host, what) in found {
            self.broken(at, "dials", Some(host), what);
        }
    }

    /// Observers are told what happened.
    fn what_is_told_is_true(&mut self) {
        let mut found = Vec::new();
        for call in &self.diary.calls {
            if self.plan.clients[call.client].is_gateway {
                continue;
            }
            let Some((failure, bytes)) = call.told else {
                found.push((call.begun, "told: nothing", call.host, format!("{call:?}")));
                continue;
            };
            let rule = match (&call.outcome, call.kind) {
                (Outcome::Answered { .. }, Kind::Unread) if failure.is_some() => Some("told: unread"),
                (Outcome::Answered { bytes: read, .. }, Kind::HalfRead) if bytes < *read => Some("told: bytes"),
                (Outcome::Answered { .. }, Kind::Counted(_)) if failure.is_some() => Some("told: counted"),
                (Outcome::Answered { .. }, Kind::HalfRead | Kind::Unread) => None,
                (Outcome::Failed(error), Kind::Unread) if error.contains(": status ") => None,
                (Outcome::Answered { .. }, _) if failure.is_some() => Some("told: failure"),
                (Outcome::Answered { bytes: read, .. }, _) if bytes != *read => Some("told: length"),
                (Outcome::Failed(_), _) if failure.is_none() => Some("told: success"),
                _ => None,
            };
            if let Some(rule) = rule {
                found.push((call.begun, rule, call.host, format!("{call:?}")));
            }
        }
        for (at, rule, host, what) in found {
            self.broken(at, rule, Some(host), what);
        }
    }

    fn hedges_have_ends(&mut self) {
        if self.diary.hedges != 0 {
            self.broken(self.plan.length, "told: hedges", None, format!("{} have no end", self.diary.hedges));
        }
    }

    /// A gateway passes on targets as they came, and the cookies of a user to no other one.
    fn gateways_change_nothing(&mut self) {
        let mut found = Vec::new();
        for request in &self.state.requests {
            let Some(call) = request.call.and_then(|call| self.diary.calls.get(call as usize)) else { continue };
            if !self.plan.clients[call.client].is_gateway {
                continue;
            }
            if call.id % 3 == 0 && request.target != format!("/plain/{}/5/a'b/%2e%2e/x", call.id) {
                found.push((request.at, "gateway: target", call.host, request.target.clone()));
            }
            let own = format!("user={}", call.id);
            let is_own = |cookie: &str| cookie == own || cookie == "theme=dark";
            let others = request.cookies.iter().flat_map(|line| line.split("; ")).find(|cookie| !is_own(cookie));
            if let Some(other) = others {
                found.push((request.at, "gateway: cookies of others", call.host, other.to_owned()));
            }
            let old = self.plan.hosts[call.host].protocol != Protocol::Http2;
            if old && request.cookies.len() > 1 {
                found.push((request.at, "gateway: cookie fields", call.host, format!("{:?}", request.cookies)));
            }
        }
        for (at, rule, host, what) in found {
            self.broken(at, rule, Some(host), what);
        }
    }

    /// Outside of trouble, a call is not worse than that of a client that asks getaddrinfo and dials for each. In trouble it may be: it meets
    /// the end of a connection that others have kept, or waits for what they wait for.
    fn no_call_is_worse(&mut self, theirs: &Diary) {
        let mut found = Vec::new();
        for (call, other) in self.diary.calls.iter().zip(&theirs.calls) {
            let is_same = (call.host, call.kind, call.begun) == (other.host, other.kind, other.begun);
            let end = call.ended.unwrap_or(At::MAX);
            let is_calm = self.is_calm(call.begun, end, call.client, call.host);
            // Under a limit of connections, calls wait for each other.
            let client = &self.plan.clients[call.client];
            let is_apart = client.is_gateway || client.max_per_host.is_some();
            if !is_same || !is_calm || is_apart || !call.kind.is_patient() {
                continue;
            }
            let took = |call: &Call| call.ended.unwrap_or(At::MAX) - call.begun;
            let (Outcome::Answered { status: 200, .. }, of_other) = (&other.outcome, took(other)) else { continue };
            match &call.outcome {
                Outcome::Answered { status: 200, .. } => {
                    let of_call = took(call);
                    if of_call > of_other + GRACE {
                        let what = format!("call {} {:?} took {of_call:?}, {of_other:?} beside", call.id, call.kind);
                        found.push((call.begun, "later than beside", call.host, what));
                    }
                }
                Outcome::Failed(error) if self.is_lost_to_a_close(call, error) => {}
                outcome => {
                    let what = format!("call {} {:?}: {outcome:?}", call.id, call.kind);
                    found.push((call.begun, "worse than beside", call.host, what));
                }
            }
        }
        for (at, rule, host, what) in found {
            self.broken(at, rule, Some(host), what);
        }
    }
}
