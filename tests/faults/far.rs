//! The servers and the proxies in front of them, on a runtime of their own, and clients that lead to them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use speeddial::dns::FixedResolver;
use speeddial::settings::HostConfig;
use speeddial::{Client, HedgePolicy, PoolConfig, RetryPolicy};
use support::certs::Authority;
use support::fault_proxy::FaultProxy;
use support::fault_script::{Script, Tag};
use support::fault_transport::{FaultTransport, ScriptOf, Strikes, Struck};
use tokio::runtime::{Builder, Runtime};

use crate::lateness::Lateness;
use crate::plan::{Caller, Lane};
use crate::server::{Ledger, Server};
use crate::suite::Options;

/// The clients' limit for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1_000);
/// The clients' limit for a TLS handshake.
const TLS_TIMEOUT: Duration = Duration::from_millis(600);

/// The servers and proxies.
pub(crate) struct Far {
    runtime: Runtime,
    /// How late the timers of this runtime fire.
    pub(crate) lateness: Lateness,
    pub(crate) server: Arc<Server>,
    authority: Authority,
}

impl Far {
    /// Starts a server and a proxy for each lane.
    pub(crate) fn start(options: Options) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let lanes = Arc::<OnceLock<Vec<SocketAddr>>>::default();
        let server = Arc::new(Server {
            ledger: Ledger::default(),
            proxies: lanes.clone(),
            strikes: Strikes::default(),
            script_of: script_of(options, lanes.clone()),
            lies: options.lies,
        });
        let authority = Authority::new();
        let addresses = runtime.block_on(async {
            let mut addresses = Vec::new();
            for lane in Lane::ALL {
                addresses.push(start_lane(lane, &server, &authority).await);
            }
            addresses
        });
        lanes.set(addresses).expect("set once");
        let lateness = runtime.block_on(async { Lateness::measure() });
        Self { runtime, lateness, server, authority }
    }

    /// Stops all of them.
    pub(crate) fn stop(self) {
        self.runtime.shutdown_timeout(Duration::from_secs(10));
    }

    /// Returns the lane that a connection leads to.
    pub(crate) fn lane(&self, address: SocketAddr) -> Lane {
        lane_of(&self.server.proxies, address)
    }

    /// Returns a client that reaches all lanes.
    pub(crate) fn client(&self, caller: Caller) -> Client {
        let mut resolver = FixedResolver::new();
        for lane in Lane::ALL {
            resolver = resolver.with(lane.host(), [Ipv4Addr::LOCALHOST.into()]);
        }
        let transport = FaultTransport::new(caller as u64, self.server.script_of.clone(), self.server.strikes.clone());
        let mut tls = self.authority.client();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let builder = Client::builder()
            .no_proxy()
            .dns_resolver(resolver)
            .transport(transport.clone())
            .observer(transport)
            .tls(tls)
            .for_host(Lane::Http2.host(), HostConfig::new().http2_prior_knowledge());
        let limited =
            |builder: speeddial::ClientBuilder| builder.connect_timeout(CONNECT_TIMEOUT).tls_timeout(TLS_TIMEOUT);
        let hedge = HedgePolicy::new().min_samples(5).quantile(0.9).budget(0.2);
        let builder = match caller {
            Caller::Plain => limited(builder).pool(PoolConfig::new().max_connections_per_host(3)),
            Caller::Retrying => limited(builder).retry(RetryPolicy::new()),
            Caller::Hedging => limited(builder).retry(RetryPolicy::new()).hedge(hedge),
            // A busy machine is no fault.
            Caller::Control => {
                let builder = builder.connect_timeout(Duration::from_secs(50)).tls_timeout(Duration::from_secs(50));
                builder.retry(RetryPolicy::new()).hedge(hedge)
            }
        };
        builder.build().expect("a client")
    }

    /// Returns the number of connections that each kind of fault has struck.
    pub(crate) fn faults(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for (tag, struck, address) in self.server.strikes.all() {
            let script = (self.server.script_of)(address, tag);
            let kind = match (struck, script.strike) {
                (Struck::Opening, _) => format!("{:?}", script.opening),
                (Struck::Retired, _) => "Retired".to_owned(),
                (Struck::Fault, strike) => format!("{:?}", strike.expect("a fault").fault),
            };
            let kind = kind.split('(').next().expect("a word").to_owned();
            *counts.entry(kind).or_default() += 1;
        }
        counts
    }
}

/// Starts the server and the proxy of a lane, and returns the proxy's address.
async fn start_lane(lane: Lane, server: &Arc<Server>, authority: &Authority) -> SocketAddr {
    let alpn: &[&str] = if lane.is_http2() { &["h2"] } else { &["http/1.1"] };
    let tls = lane.is_tls().then(|| authority.server(&[lane.host()], alpn));
    let (of_proxy, of_server) = if lane.is_above_tls() { (tls, None) } else { (None, tls) };
    let behind = server.listen(lane, of_server).await;
    FaultProxy::start(behind, of_proxy, server.script_of.clone(), server.strikes.clone()).await.address()
}

/// Returns the scripts of connections: those of the control client are clean.
fn script_of(options: Options, lanes: Arc<OnceLock<Vec<SocketAddr>>>) -> ScriptOf {
    Arc::new(move |address, tag: Tag| {
        if !options.faults || tag.client == Caller::Control as u64 {
            return Script::CLEAN;
        }
        Script::draw(options.seed, lane_of(&lanes, address).traffic(), tag)
    })
}

fn lane_of(lanes: &OnceLock<Vec<SocketAddr>>, address: SocketAddr) -> Lane {
    let lanes = lanes.get().expect("the proxies were started");
    let index = lanes.iter().position(|lane| *lane == address).expect("the address of a lane");
    Lane::ALL[index]
}
