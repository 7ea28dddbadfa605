//! The configuration files of a resolver, as they were read.

use std::net::IpAddr;
use std::time::Duration;

use crate::dns::{Options, Reading, ResolvConfSettings};
use crate::shown::line;

/// The most lines of a file that are reported.
const MAX_LINES: usize = 32;

/// The configuration files of [`HickoryResolver`](crate::dns::HickoryResolver).
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
    pub(super) kind: FileKind,
    pub(super) path: String,
    #[cfg_attr(feature = "serde", serde(rename = "elapsed_ns", serialize_with = "crate::trace::serialize_nanos"))]
    pub(super) elapsed: Duration,
    pub(super) error: Option<String>,
    pub(super) settings: Vec<String>,
    pub(super) skipped: Vec<String>,
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

impl FileRead {
    pub(super) fn of_resolv_conf(reading: &Reading<ResolvConfSettings>) -> Self {
        let mut file = Self::of(FileKind::ResolvConf, reading);
        if let Ok(read) = &reading.contents {
            file.settings = settings(read);
            let skipped = read.skipped.iter().take(MAX_LINES);
            file.skipped =
                skipped.map(|skipped| format!("line {}: {}", skipped.line, line(&skipped.word, 64))).collect();
        }
        file
    }

    pub(super) fn of_hosts(reading: &Reading<Vec<IpAddr>>, name: &str) -> Self {
        let addresses = reading.contents.iter().flatten().take(MAX_LINES);
        let settings = addresses.map(|ip| format!("{ip} {name}")).collect();
        Self { settings, ..Self::of(FileKind::Hosts, reading) }
    }

    fn of<T>(kind: FileKind, reading: &Reading<T>) -> Self {
        Self {
            kind,
            path: reading.path.display().to_string(),
            elapsed: reading.elapsed,
            error: reading.contents.as_ref().err().cloned(),
            settings: Vec::new(),
            skipped: Vec::new(),
        }
    }
}

/// Returns the settings of resolv.conf, each as a line of it.
fn settings(read: &ResolvConfSettings) -> Vec<String> {
    let mut lines: Vec<_> = read.servers.iter().map(|ip| format!("nameserver {ip}")).collect();
    if !read.suffixes.is_empty() {
        lines.push(format!("search {}", read.suffixes.join(" ")));
    }
    let options = options(&read.options);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn reading<T>(path: &str, contents: Result<T, String>) -> Reading<T> {
        Reading { path: path.into(), elapsed: Duration::ZERO, contents }
    }

    #[test]
    fn settings_are_reported_as_lines_of_their_file() {
        let read = ResolvConfSettings {
            servers: vec![[192, 0, 2, 53].into()],
            suffixes: vec!["a.test.".to_owned(), "b.test.".to_owned()],
            options: Options { ndots: Some(2), rotate: true, ..Options::default() },
            skipped: Vec::new(),
        };
        let file = FileRead::of_resolv_conf(&reading("/etc/resolv.conf", Ok(read)));
        assert_eq!((file.kind, &*file.path), (FileKind::ResolvConf, "/etc/resolv.conf"));
        assert_eq!(file.settings, ["nameserver 192.0.2.53", "search a.test. b.test.", "options ndots:2 rotate"]);
        let hosts = FileRead::of_hosts(&reading("/etc/hosts", Ok(vec![[192, 0, 2, 1].into()])), "api");
        assert_eq!((hosts.kind, &hosts.settings[..]), (FileKind::Hosts, &["192.0.2.1 api".to_owned()][..]));
        let gone = FileRead::of_resolv_conf(&reading("/etc/resolv.conf", Err("no such file".to_owned())));
        assert_eq!((gone.error.as_deref(), gone.settings.len()), (Some("no such file"), 0));
    }
}
