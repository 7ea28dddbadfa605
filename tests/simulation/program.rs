//! The program: its clients, their calls, and what happens to the world meanwhile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use speeddial::dns::HickoryResolver;
use speeddial::settings::Addresses;
use speeddial::tls::TlsConfig;
use speeddial::trace::{EndedCall, Event, Observer, Record, Wants};
use speeddial::{Body, Client, HedgePolicy, PoolConfig, RequestBuilder, RetryPolicy, redirect};
use tokio::time::{sleep, sleep_until, timeout};

use crate::dns;
use crate::net::{Net, Reachability};
use crate::outside::{About, At, DnsHealth, Outside, Sick, Spell};
use crate::plan::{ClientPlan, Fault, Kind, Protocol, Traffic, What};
use crate::{beside, gateway, servers};

/// A call, and what came of it.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) id: u64,
    pub(crate) client: usize,
    pub(crate) host: usize,
    pub(crate) kind: Kind,
    pub(crate) begun: At,
    pub(crate) ended: Option<At>,
    pub(crate) outcome: Outcome,
    /// The failure and the number of received bytes that an observer was told at its end.
    pub(crate) told: Option<(Option<&'static str>, u64)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Running,
    Answered {
        status: u16,
        bytes: u64,
        is_right: bool,
    },
    Failed(String),
    /// The program gave it up.
    Dropped,
}

/// The notes of the program.
#[derive(Default)]
pub(crate) struct Diary {
    pub(crate) calls: Vec<Call>,
    /// The hedges of which no end was told.
    pub(crate) hedges: i64,
    /// The parts of clients that were left after everything had ended.
    pub(crate) left: Vec<String>,
}

/// The program of a world.
pub(crate) struct Program {
    pub(crate) outside: Arc<Outside>,
    pub(crate) diary: Mutex<Diary>,
    /// True if the calls are made by the client of `beside.rs`.
    is_beside: bool,
}

/// The time that the slowest call may take beyond the end of the traffic.
const LAST_CALLS: Duration = Duration::from_secs(400);

impl Program {
    /// Runs a world to its end, by our client or by that of `beside.rs`.
    pub(crate) async fn run(outside: Arc<Outside>, is_beside: bool) -> Arc<Self> {
        let program = Arc::new(Self { outside: outside.clone(), diary: Mutex::default(), is_beside });
        let plan = outside.plan.clone();
        let clients: Vec<_> = (0..plan.clients.len()).map(|client| program.client(client)).collect();
        let mut tasks = Vec::new();
        for traffic in plan.traffic.clone() {
            let (program, client) = (program.clone(), clients[traffic.client].clone());
            tasks.push(tokio::spawn(async move { program.send(&client, &traffic).await }));
        }
        for fault in plan.faults.clone() {
            sleep_until(outside.start + fault.at).await;
            outside.tell(None, format_args!("fault {:?} for {:?}", fault.what, fault.lasts));
            program.disturb(&clients, &fault).await;
        }
        for task in tasks {
            task.await.unwrap();
        }
        for (number, client) in clients.into_iter().enumerate() {
            client.drain().await;
            let stats = client.pool_stats();
            let sum = stats.in_use + stats.leased + stats.waiting + stats.dialling + stats.closing + stats.idle;
            if sum > 0 {
                program.diary.lock().unwrap().left.push(format!("client {number}: {stats:?}"));
            }
        }
        sleep(Duration::from_secs(5)).await;
        program
    }

    fn client(self: &Arc<Self>, number: usize) -> Client {
        let plan = &self.outside.plan;
        let ClientPlan { idle_timeout, lifetime, max_per_host, spread, retry, hedge, cookies, timeout, is_gateway } =
            plan.clients[number];
        let mut pool = PoolConfig::new().max_connections(500).idle_timeout(idle_timeout).lifetime(lifetime);
        if let Some(limit) = max_per_host {
            pool = pool.max_connections_per_host(limit);
        }
        let tls = TlsConfig::new().watch_roots("/etc/roots.pem").unwrap().only_added_roots();
        let mut builder = Client::builder()
            .no_proxy()
            .transport(Net { outside: self.outside.clone(), client: number })
            .tls(tls.prepare_in_background(false))
            .pool(pool)
            .timeout(timeout)
            .redirect(redirect::Policy::none())
            .cookie_store(cookies)
            .observer(Told(self.clone()));
        if spread {
            builder = builder.addresses(Addresses::Spread);
        }
        builder = builder.retry(if retry { RetryPolicy::new() } else { RetryPolicy::none() });
        if hedge {
            builder = builder.hedge(HedgePolicy::new());
        }
        if is_gateway {
            builder = builder.base_url(format!("{}/", self.origin(0)));
        }
        for (host, of_host) in plan.hosts.iter().enumerate() {
            if of_host.protocol == Protocol::Http2 && !of_host.tls {
                let config = speeddial::settings::HostConfig::new().http2_prior_knowledge();
                builder = builder.for_host(&dns::short_name(&self.outside.plan, host), config);
            }
        }
        builder.build().unwrap()
    }

    pub(crate) fn origin(&self, host: usize) -> String {
        let scheme = if self.outside.plan.hosts[host].tls { "https" } else { "http" };
        format!("{scheme}://{}", dns::short_name(&self.outside.plan, host))
    }

    /// Makes the calls of a row.
    async fn send(self: &Arc<Self>, client: &Client, traffic: &Traffic) {
        let mut at = traffic.from;
        let mut calls = Vec::new();
        while at < traffic.until {
            sleep_until(self.outside.start + at).await;
            let many = if let Kind::Many(many) = traffic.kind { many } else { 1 };
            for _ in 0..many {
                let (program, client, traffic) = (self.clone(), client.clone(), traffic.clone());
                calls.push(tokio::spawn(async move { program.call(&client, &traffic).await }));
            }
            // Late ones are left out: after a time without the program there is no burst.
            at = (at + traffic.every).max(self.outside.now());
        }
        for call in calls {
            call.await.unwrap();
        }
    }

    async fn call(self: &Arc<Self>, client: &Client, traffic: &Traffic) {
        let Traffic { client: number, host, kind, .. } = *traffic;
        let begun = self.outside.now();
        let id = {
            let mut diary = self.diary.lock().unwrap();
            let id = diary.calls.len() as u64;
            let outcome = Outcome::Running;
            diary.calls.push(Call { id, client: number, host, kind, begun, ended: None, outcome, told: None });
            id
        };
        self.outside.tell(Some(host), format_args!("call {id} of {number}: {kind:?}"));
        let calling = async {
            if self.is_beside {
                beside::exchange(&self.outside, number, host, kind, id).await
            } else if self.outside.plan.clients[number].is_gateway {
                gateway::pass_on(client, id).await
            } else {
                self.exchange(client, host, kind, id).await
            }
        };
        let outcome = match kind {
            Kind::GivenUp(ms) => timeout(Duration::from_millis(ms), calling).await.unwrap_or(Outcome::Dropped),
            _ => timeout(LAST_CALLS, calling).await.unwrap_or_else(|_| Outcome::Failed("it hangs".to_owned())),
        };
        self.outside.tell(Some(host), format_args!("call {id} ended: {outcome:?}"));
        let call = &mut self.diary.lock().unwrap().calls[id as usize];
        (call.ended, call.outcome) = (Some(self.outside.now()), outcome);
    }

    async fn exchange(&self, client: &Client, host: usize, kind: Kind, id: u64) -> Outcome {
        let origin = self.origin(host);
        let (step, amount) = kind.path();
        let url = format!("{origin}/{step}/{id}/{amount}");
        let request = match kind {
            Kind::Post => client.post(url).body("twelve bytes"),
            Kind::PutOnce => client.put(url).header("if-none-match", "*").body("twelve bytes"),
            Kind::Upload => client.post(url).body(pieces()),
            _ => client.get(url),
        };
        let request = request.header("x-call", id).bearer_auth(format!("secret-of-h{host}"));
        match kind {
            Kind::HalfRead => read_some(request, 1).await,
            Kind::Counted(bytes) => read_some(request, u64::from(bytes)).await,
            Kind::Unread => match request.send().await.and_then(|response| response.error_for_status()) {
                Ok(response) => Outcome::Answered { status: response.status().as_u16(), bytes: 0, is_right: true },
                Err(error) => Outcome::Failed(described(&error)),
            },
            _ => read(request, id).await,
        }
    }

    /// Has something go wrong in the world, for some time.
    async fn disturb(self: &Arc<Self>, clients: &[Client], fault: &Fault) {
        let Fault { lasts, client, host, address: number, from, what, .. } = *fault;
        let outside = &self.outside;
        let until = outside.now() + lasts;
        let about = |about: About, grace: u64| outside.trouble(about, lasts, Duration::from_secs(grace));
        let machines = |host: usize, from: usize, change: &dyn Fn(&mut crate::outside::Machine)| {
            let mut state = outside.state();
            for ip in state.addresses[host].clone().into_iter().skip(from) {
                change(state.machines.get_mut(&ip).unwrap());
            }
        };
        let address = |host: usize, address: usize| {
            let state = outside.state();
            state.addresses[host][address % state.addresses[host].len()]
        };
        match what {
            What::Dns(server, health) => {
                let second = outside.state().is_second_network;
                let server = server + if second { 2 } else { 0 };
                outside.state().dns[server] = Some(Spell { until, what: health });
                about(About::Dns, 6);
            }
            What::Drops => {
                machines(host, from, &|machine| machine.reach = Some(Spell { until, what: Reachability::Drops }));
                let all: Vec<_> = outside.state().addresses[host].iter().copied().skip(from).collect();
                for ip in all {
                    outside.disturb(ip, |handle| handle.stall(lasts));
                }
                about(About::Host(host), 60);
            }
            What::Refuses => {
                machines(host, from, &|machine| machine.reach = Some(Spell { until, what: Reachability::Refuses }));
                let all: Vec<_> = outside.state().addresses[host].iter().copied().skip(from).collect();
                for ip in all {
                    outside.disturb(ip, crate::net::Handle::reset);
                }
                about(About::Host(host), 60);
            }
            What::Resets => {
                outside.disturb(address(host, number), crate::net::Handle::reset);
                outside.trouble(About::Host(host), Duration::ZERO, Duration::from_secs(60));
            }
            What::Stalls => {
                outside.disturb(address(host, number), |handle| handle.stall(lasts));
                about(About::Host(host), 60);
            }
            What::Status(status) => {
                let ip = address(host, number);
                let mut state = outside.state();
                state.machines.get_mut(&ip).unwrap().status = Some(Spell { until, what: status });
                if status >= 500 && state.addresses[host].len() > 1 {
                    state.sick.push(Sick { host, ip, from: outside.now(), until });
                }
                drop(state);
                about(About::Host(host), 60);
            }
            What::Slow(ms) => {
                let what = Duration::from_millis(ms);
                machines(host, 0, &|machine| machine.slow = Some(Spell { until, what }));
                about(About::Host(host), 60);
            }
            What::Dies(every) => {
                machines(host, 0, &|machine| machine.dies = Some(Spell { until, what: every }));
                about(About::Host(host), 60);
            }
            What::Loses(every) => {
                machines(host, 0, &|machine| machine.loses = Some(Spell { until, what: every }));
                about(About::Host(host), 60);
            }
            What::Renewed => {
                // As planned: clients have a minute to read what to trust.
                outside.write_file("/etc/roots.pem", outside.tls.root(true));
                let outside = outside.clone();
                tokio::spawn(async move {
                    sleep(Duration::from_secs(60)).await;
                    outside.state().is_renewed = true;
                });
            }
            What::Restarts => {
                let state = outside.state();
                for conn in state.conns.iter().filter(|conn| conn.closed.is_none() && conn.owner.host() == Some(host)) {
                    conn.restart.notify_one();
                }
                drop(state);
                outside.trouble(About::Host(host), Duration::ZERO, Duration::from_secs(60));
            }
            What::Moves(left) => self.move_host(host, left, None),
            What::OtherNetwork => {
                let second = !std::mem::replace(&mut outside.state().is_second_network, true);
                if second {
                    // All internal names have other addresses there.
                    for server in 0..2 {
                        outside.state().dns[server] = Some(Spell { until: At::MAX, what: DnsHealth::Silent });
                    }
                    outside.write_file("/etc/resolv.conf", dns::resolv_conf(&outside.plan, true));
                    // The file is looked at every five seconds.
                    outside.trouble(About::Dns, Duration::from_secs(5), Duration::from_secs(6));
                    for host in 0..outside.plan.hosts.len() {
                        let left = if host % 2 == 0 { Reachability::Drops } else { Reachability::Serves };
                        self.move_host(host, left, Some("stale: resolv.conf"));
                    }
                }
            }
            What::HostsFile => {
                let spare = outside.plan.hosts[host].spare.clone();
                let lines: String = spare.iter().map(|ip| format!("{ip} h{host} h{host}.corp.test\n")).collect();
                let text = outside.state().files["/etc/hosts"].0.clone() + &lines;
                outside.write_file("/etc/hosts", text);
                let in_dns = outside.state().in_dns[host].clone();
                self.move_host(host, Reachability::Serves, Some("stale: hosts"));
                outside.state().in_dns[host] = in_dns;
            }
            What::Timeout0 => machines(host, 0, &|machine| machine.says_timeout_0 = true),
            What::Interims(count) => machines(host, 0, &|machine| machine.interims = count),
            What::Frozen => {
                for client in 0..clients.len() {
                    outside.trouble(About::Client(client), lasts, Duration::from_secs(60));
                }
                tokio::time::advance(lasts).await;
            }
            What::SetResolver => {
                // The first server hangs, and the client is given another resolver while it has asked. By then the server is well again.
                let hangs = Duration::from_secs(3);
                let first = if outside.state().is_second_network { 2 } else { 0 };
                outside.state().dns[first] = Some(Spell { until: outside.now() + hangs, what: DnsHealth::Silent });
                for other in (0..clients.len()).filter(|other| *other != client) {
                    outside.trouble(About::Client(other), hangs, Duration::from_secs(6));
                }
                outside.trouble(About::Client(client), hangs, Duration::from_millis(1));
                sleep(hangs).await;
                clients[client].reconfigure(|change| change.dns_resolver(HickoryResolver::system())).unwrap();
                outside.tell(None, format_args!("another resolver for client {client}"));
            }
            What::NewResolver => {
                clients[client].reconfigure(|change| change.dns_resolver(HickoryResolver::system())).unwrap();
            }
            What::CloseIdle => clients[client].close_idle(),
        }
    }

    /// Moves a host, as DNS says or, by `rule`, as a file says. `left` is how its old addresses can be reached from then on.
    fn move_host(&self, host: usize, left: Reachability, rule: Option<&'static str>) {
        let outside = &self.outside;
        let of_host = &outside.plan.hosts[host];
        let is_at_spare = outside.state().addresses[host] == of_host.spare;
        if is_at_spare {
            return;
        }
        let old = outside.state().addresses[host].clone();
        // What is open follows within two TTLs. Files are looked at every five seconds.
        let ttl = Duration::from_secs(of_host.ttl.into());
        let noticed = match rule {
            Some(_) => Duration::from_secs(5),
            None => 3 * ttl.max(Duration::from_secs(2)),
        };
        // The next use of a connection asks, and the one after that is elsewhere.
        let uses = outside.plan.traffic.iter().filter(|row| row.host == host).map(|row| row.every);
        let allowed = noticed + uses.max().unwrap_or_default() + Duration::from_secs(10);
        outside.move_host(host, of_host.spare.clone(), left, allowed, rule.unwrap_or("stale"));
        for ip in old {
            match left {
                Reachability::Serves => {}
                Reachability::Drops => outside.disturb(ip, |handle| handle.stall(Duration::from_secs(1 << 20))),
                Reachability::Refuses => outside.disturb(ip, crate::net::Handle::reset),
            }
        }
        outside.trouble(About::Host(host), allowed, Duration::from_secs(60));
    }
}

/// Returns a body in three pieces.
fn pieces() -> Body {
    let piece = |piece: usize| async move {
        sleep(Duration::from_millis(20)).await;
        Ok::<_, std::io::Error>(Bytes::from(vec![piece as u8; 1_000]))
    };
    Body::wrap_stream(stream::iter(0..3).then(piece).boxed())
}

/// Sends a request and reads its response.
pub(crate) async fn read(request: RequestBuilder, id: u64) -> Outcome {
    let response = match request.send().await {
        Ok(response) => response,
        Err(error) => return Outcome::Failed(described(&error)),
    };
    let status = response.status().as_u16();
    match response.bytes().await {
        Ok(bytes) => {
            let is_right = status != 200 || bytes == servers::content(id, bytes.len());
            Outcome::Answered { status, bytes: bytes.len() as u64, is_right }
        }
        Err(error) => Outcome::Failed(described(&error)),
    }
}

/// Reads at least so many bytes, and drops the body.
async fn read_some(request: RequestBuilder, least: u64) -> Outcome {
    let mut response = match request.send().await {
        Ok(response) => response,
        Err(error) => return Outcome::Failed(described(&error)),
    };
    let status = response.status().as_u16();
    let mut bytes = 0;
    while bytes < least {
        match response.chunk().await {
            Ok(None) => break,
            Ok(Some(piece)) => bytes += piece.len() as u64,
            Err(error) => return Outcome::Failed(described(&error)),
        }
    }
    Outcome::Answered { status, bytes, is_right: true }
}

fn described(error: &speeddial::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(" <- ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Writes down what observers are told.
struct Told(Arc<Program>);

impl Observer for Told {
    fn wants(&self) -> Wants {
        Wants::EVERYTHING
    }

    fn observe(&self, record: &Record) {
        let mut diary = self.0.diary.lock().unwrap();
        match record.event {
            Event::Hedged { .. } => diary.hedges += 1,
            Event::HedgeEnd { .. } => diary.hedges -= 1,
            _ => {}
        }
    }

    fn ended(&self, call: &EndedCall<'_>) {
        let path = call.request.target.path().to_owned();
        let Some(id) = path.split('/').nth(2).and_then(|id| id.parse::<usize>().ok()) else { return };
        if let Some(known) = self.0.diary.lock().unwrap().calls.get_mut(id) {
            known.told = Some((call.timings.failure(), call.timings.received_bytes()));
        }
    }
}
