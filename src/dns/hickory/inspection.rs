//! The configuration of a resolver as a report shows it, read anew, and a probe for each of its servers.

use std::net::IpAddr;
use std::time::Duration;
use std::{fs, io};

use hickory_resolver::net::NetError;

use super::names;
use super::probe::Probe;
use super::search::Plan;
use super::servers::client;
use super::system::config::SystemConfig;
use super::system::hosts::Hosts;
use super::system::resolv_conf::Options;
use super::system::watched_file::WatchedFile;
use super::{Configuration, HickoryResolver};
use crate::clock::now;
use crate::dns::Family;
use crate::shown::line;

/// The most servers of a configuration that are asked by themselves.
const MAX_SERVERS: usize = 8;
/// The most full names that a name is taken to stand for.
const MAX_NAMES: usize = 4;
/// The most lines of a file that are reported.
const MAX_LINES: usize = 32;

/// The configuration files of [`HickoryResolver`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FileKind {
    /// The file with the DNS servers and the options: `/etc/resolv.conf`.
    ResolvConf,
    /// The file with names and their addresses: `/etc/hosts`.
    Hosts,
}

/// A configuration file as the resolver reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FileRead {
    pub(crate) kind: FileKind,
    pub(crate) path: String,
    #[cfg_attr(feature = "serde", serde(rename = "elapsed_ns", serialize_with = "crate::trace::serialize_nanos"))]
    pub(crate) elapsed: Duration,
    pub(crate) error: Option<String>,
    pub(crate) settings: Vec<String>,
    pub(crate) skipped: Vec<String>,
}

getters!(FileRead {
    /// The use of the file.
    kind: FileKind = copy,
    /// The path of the file.
    path: &str = borrow,
    /// The time that reading it took.
    elapsed: Duration = copy,
    /// The reason why the file cannot be used; `None` if it can.
    error: Option<&str> = as_deref,
    /// The settings that the resolver takes from it: of resolv.conf servers, search list and options, of the hosts file the
    /// addresses of the name. At most 32.
    settings: &[String] = borrow,
    /// The words that cannot be understood and are left out, with their lines. At most 32.
    skipped: &[String] = borrow,
});

/// The configuration of a resolver with regard to one name.
pub(crate) struct Inspection {
    pub(crate) files: Vec<FileRead>,
    /// True if resolv.conf could be read and lists no server, so that this machine is asked.
    pub(crate) lists_no_server: bool,
    /// True if the name is known without a query: a name of the hosts file, or one below `localhost`.
    pub(crate) is_known: bool,
    /// The full names that the name may stand for, in their order.
    pub(crate) full_names: Vec<String>,
    /// The families that are asked for.
    pub(crate) families: Vec<Family>,
    pub(crate) probes: Vec<Probe>,
}

impl HickoryResolver {
    /// Reads the configuration anew, and returns it with what it says about `name`. The resolver itself is not touched.
    pub(crate) fn inspect(&self, name: &str) -> Inspection {
        let mut files = Vec::new();
        let config = match &self.configuration {
            Configuration::System { resolv_conf, .. } => {
                let (file, config) = read_resolv_conf(resolv_conf);
                files.push(file);
                config
            }
            Configuration::Named { servers, .. } => Some(SystemConfig::named(servers)),
        };
        if let Configuration::System { hosts, .. } = &self.configuration {
            files.push(read_hosts(hosts, name));
        }
        let is_known = Family::BOTH.iter().any(|family| self.without_query(name, *family).is_some());
        let mut inspection = Inspection {
            files,
            lists_no_server: config.as_ref().is_some_and(|config| config.plan.is_assumed),
            is_known,
            full_names: Vec::new(),
            families: Vec::new(),
            probes: Vec::new(),
        };
        if let Some(config) = config {
            self.add_questions(&mut inspection, config, name);
        }
        inspection
    }

    /// Adds the names, the families and the servers that a lookup of `name` would use.
    fn add_questions(&self, inspection: &mut Inspection, config: SystemConfig, name: &str) {
        let SystemConfig { plan, options } = config;
        let only = self.only.or(if options.no_aaaa { Some(Family::V4) } else { None });
        inspection.families =
            Family::BOTH.into_iter().filter(|family| only.is_none_or(|only| only == *family)).collect();
        if let Ok(parsed) = names::parse(name) {
            let candidates = plan.search_list.candidates(&parsed);
            inspection.full_names =
                candidates.iter().take(MAX_NAMES).map(|candidate| candidate.name.to_string()).collect();
        }
        inspection.probes = self.probes(&plan, &options).unwrap_or_default();
    }

    fn probes(&self, plan: &Plan, options: &Options) -> Result<Vec<Probe>, NetError> {
        let context = client::context(
            options.edns0,
            self.limits.or(options),
            #[cfg(feature = "dns-over-tls")]
            self.tls_config(&plan.servers)?,
        )?;
        let servers = plan.servers.iter().take(MAX_SERVERS);
        Ok(servers.flat_map(|server| Probe::all_of(server, &context)).collect())
    }
}

fn read_resolv_conf<T>(watched: &WatchedFile<T>) -> (FileRead, Option<SystemConfig>) {
    let start = now();
    let parsed = SystemConfig::parse(fs::read(watched.path()));
    let mut file = FileRead {
        kind: FileKind::ResolvConf,
        path: watched.path().display().to_string(),
        elapsed: now() - start,
        error: None,
        settings: Vec::new(),
        skipped: Vec::new(),
    };
    match &parsed {
        Ok(config) => {
            file.settings = settings(config);
            let skipped = config.plan.skipped.iter().take(MAX_LINES);
            file.skipped =
                skipped.map(|skipped| format!("line {}: {}", skipped.line, line(&skipped.word, 64))).collect();
        }
        Err(error) => file.error = Some(error.to_string()),
    }
    (file, parsed.ok())
}

/// Returns the settings of a configuration, each as a line of resolv.conf.
fn settings(config: &SystemConfig) -> Vec<String> {
    let plan = &config.plan;
    let mut lines = Vec::new();
    if !plan.is_assumed {
        lines.extend(plan.servers.iter().map(|server| format!("nameserver {}", server.ip)));
    }
    let suffixes: Vec<String> = plan.search_list.suffixes.iter().map(ToString::to_string).collect();
    if !suffixes.is_empty() {
        lines.push(format!("search {}", suffixes.join(" ")));
    }
    let options = options(&config.options);
    if !options.is_empty() {
        lines.push(format!("options {}", options.join(" ")));
    }
    lines.truncate(MAX_LINES);
    lines
}

fn options(options: &Options) -> Vec<String> {
    let number = |name: &str, value: Option<u64>| value.map(|value| format!("{name}:{value}"));
    let flag = |name: &str, is_set: bool| if is_set { Some(name.to_owned()) } else { None };
    let words = [
        number("ndots", options.ndots.map(|dots| dots as u64)),
        number("timeout", options.timeout.map(|timeout| timeout.as_secs())),
        number("attempts", options.attempts.map(|attempts| attempts as u64)),
        flag("rotate", options.rotate),
        flag("use-vc", options.use_vc),
        flag("edns0", options.edns0),
        flag("no-aaaa", options.no_aaaa),
        flag("single-request", options.single_request),
        flag("no-tld-query", options.no_tld_query),
    ];
    words.into_iter().flatten().collect()
}

fn read_hosts(watched: &WatchedFile<Hosts>, name: &str) -> FileRead {
    let start = now();
    let text = fs::read(watched.path());
    let listed: Vec<IpAddr> = match &text {
        Ok(text) => {
            let hosts = Hosts::parse(text);
            Family::BOTH.iter().filter_map(|family| hosts.lookup(name, *family)).flatten().collect()
        }
        Err(_) => Vec::new(),
    };
    FileRead {
        kind: FileKind::Hosts,
        path: watched.path().display().to_string(),
        elapsed: now() - start,
        // No hosts file is the same as an empty one.
        error: text.err().filter(|error| error.kind() != io::ErrorKind::NotFound).map(|error| error.to_string()),
        settings: listed.iter().take(MAX_LINES).map(|ip| format!("{ip} {name}")).collect(),
        skipped: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_and_the_names_of_a_lookup_are_those_of_the_configuration() {
        let servers: [std::net::SocketAddr; 2] = ["192.0.2.1:53".parse().unwrap(), "192.0.2.2:54".parse().unwrap()];
        let resolver = HickoryResolver::with_servers(servers).with_family(Family::V4);
        let inspection = resolver.inspect("api.test");
        let asked: Vec<_> =
            inspection.probes.iter().map(|probe| format!("{} {}", probe.server(), probe.transport())).collect();
        assert_eq!(asked, ["192.0.2.1:53 UDP", "192.0.2.1:53 TCP", "192.0.2.2:54 UDP", "192.0.2.2:54 TCP"]);
        assert_eq!((inspection.full_names, inspection.families), (vec!["api.test.".to_owned()], vec![Family::V4]));
        assert!(inspection.files.is_empty() && !inspection.is_known && !inspection.lists_no_server);
        assert!(resolver.inspect("localhost").is_known);
    }

    #[cfg(unix)]
    #[test]
    fn files_are_read_with_what_is_left_out() {
        let folder = std::env::temp_dir().join(format!("speeddial-inspected-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("resolv.conf"), "search a.test x..y\noptions ndots:2 rotate\n").unwrap();
        fs::write(folder.join("hosts"), "192.0.2.1 api other\n").unwrap();
        let resolver = HickoryResolver::new(Configuration::System {
            resolv_conf: WatchedFile::new(folder.join("resolv.conf")),
            hosts: WatchedFile::new(folder.join("hosts")),
        });
        let inspection = resolver.inspect("api");
        let [resolv_conf, hosts] = &inspection.files[..] else { panic!() };
        assert_eq!((resolv_conf.kind, hosts.kind), (FileKind::ResolvConf, FileKind::Hosts));
        assert_eq!(resolv_conf.settings, ["search a.test.", "options ndots:2 rotate"]);
        assert_eq!(
            (&resolv_conf.skipped[..], &hosts.settings[..]),
            (&["line 1: x..y".to_owned()][..], &["192.0.2.1 api".to_owned()][..])
        );
        assert!(inspection.lists_no_server && inspection.is_known);
        assert_eq!(inspection.full_names, ["api.a.test.", "api."]);
        fs::remove_dir_all(&folder).unwrap();
        let gone = resolver.inspect("api");
        assert!(gone.files[0].error.is_some() && gone.files[1].error.is_none() && gone.probes.is_empty());
        assert!(!gone.lists_no_server);
    }
}
