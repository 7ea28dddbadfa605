//! A report as text: the steps with their times, then what is wrong.

use std::fmt;
use std::time::Duration;

use super::failure::FailureKind;
#[cfg(feature = "__tls")]
use super::report::TlsReport;
use super::report::{AddressReport, NameReport, QuestionReport, Report, RequestReport, ResolverKind};
use crate::doctor::finding::FileRead;
use crate::trace::Family;

/// Prints the report: a paragraph for each step, a line for each part of it, and the findings at the end.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{} in {}", self.origin.scheme(), self.origin, time(self.elapsed))?;
        self.write_way(f)?;
        if let Some(names) = &self.names {
            write_names(f, names)?;
        }
        if !self.addresses.is_empty() {
            write!(f, "\n\naddresses, in the order in which they are dialled")?;
        }
        for address in &self.addresses {
            self.write_address(f, address)?;
        }
        #[cfg(feature = "__tls")]
        if let Some(tls) = &self.tunnelled_tls {
            write!(f, "\n\nTLS with {}", self.origin)?;
            self.write_tls(f, tls)?;
        }
        self.write_requests(f)?;
        self.write_findings(f)
    }
}

impl Report {
    fn write_way(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let route = &self.route;
        write!(f, "\n\nway")?;
        match (&route.unix_socket, &route.proxy, &route.error) {
            (Some(path), ..) => write!(f, "\n  by the Unix domain socket {path}"),
            (None, Some(proxy), _) => write!(f, "\n  by the proxy {proxy}: {}", route.reason),
            (None, None, Some(error)) => write!(f, "\n  by a proxy that cannot be used: {error}"),
            (None, None, None) => write!(f, "\n  without a proxy: {}", route.reason),
        }
    }

    fn write_address(&self, f: &mut fmt::Formatter<'_>, address: &AddressReport) -> fmt::Result {
        let whose = if address.is_proxy { " (proxy)" } else { "" };
        let to = format!("{}{whose}", address.address);
        match &address.failure {
            Some(failure) => write!(f, "\n  {to:<28} {:>8}  {failure}", time(address.elapsed))?,
            None => {
                write!(f, "\n  {to:<28} {:>8}  connected", time(address.elapsed))?;
                if let Some(source) = address.source {
                    write!(f, " from {source}")?;
                }
            }
        }
        #[cfg(feature = "__tls")]
        if let Some(tls) = &address.tls {
            self.write_tls(f, tls)?;
        }
        Ok(())
    }

    #[cfg(feature = "__tls")]
    fn write_tls(&self, f: &mut fmt::Formatter<'_>, tls: &TlsReport) -> fmt::Result {
        match &tls.session {
            Ok(session) => {
                let alpn = session.alpn.as_deref().unwrap_or("no ALPN");
                let (version, suite) = (session.version, session.cipher_suite);
                write!(f, "\n    {:<26} {:>8}  {version}, {alpn}, {suite}", "TLS", time(tls.elapsed))?;
            }
            Err(failure) => write!(f, "\n    {:<26} {:>8}  {failure}", "TLS", time(tls.elapsed))?,
        }
        for certificate in &tls.chain {
            let names = certificate.names.join(" ");
            let left = certificate.days_left(self.at);
            write!(f, "\n    {:<26} {left:>3} days  {names}", "certificate")?;
            let separator = if names.is_empty() { "" } else { ", " };
            write!(f, "{separator}{}, signed by {}", certificate.subject, certificate.issuer)?;
        }
        match tls.name_matches {
            Some(false) => write!(f, "\n    the certificate is not for this host"),
            _ => Ok(()),
        }
    }

    fn write_requests(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.requests.is_empty() {
            write!(f, "\n\nrequests (HEAD /)")?;
        }
        for (number, request) in self.requests.iter().enumerate() {
            write!(f, "\n  {:<28} {:>8}  {}", number + 1, time(request.elapsed), response(request))?;
        }
        if let Some(clock) = &self.clock {
            let (distance, direction) = (clock.skew_secs.unsigned_abs(), clock.skew_secs.signum());
            let words = ["the server's is behind by", "the same", "the server's is ahead by"];
            let words = words[usize::try_from(direction + 1).unwrap_or(1)];
            let distance = if distance == 0 { String::new() } else { format!(" {distance} s") };
            write!(f, "\n\nclocks\n  {words}{distance}")?;
        }
        Ok(())
    }

    fn write_findings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.findings.is_empty() {
            return write!(f, "\n\nnothing is wrong");
        }
        write!(f, "\n\nwhat is wrong, and advice")?;
        for (number, finding) in self.findings.iter().enumerate() {
            write!(f, "\n{:>3}. {}\n     {}", number + 1, finding.text, finding.advice)?;
        }
        Ok(())
    }
}

fn write_names(f: &mut fmt::Formatter<'_>, names: &NameReport) -> fmt::Result {
    let resolver = match names.resolver {
        ResolverKind::Hickory => "by DNS",
        ResolverKind::System => "by the platform's resolver",
        ResolverKind::Fixed => "by a fixed list",
        ResolverKind::Pinned => "by the addresses that the client was given",
        ResolverKind::Other => "by a resolver that the client was given",
    };
    write!(f, "\n\nlookup of {}, {resolver}", names.name)?;
    for file in &names.files {
        write_file(f, file)?;
    }
    if names.is_known {
        write!(f, "\n  the name is known without a question to a server")?;
    }
    for question in &names.questions {
        write_question(f, question)?;
    }
    for lookup in &names.lookups {
        let what = format!("all together, {}", record(lookup.family));
        write!(f, "\n  {what:<28} {:>8}  ", time(lookup.elapsed))?;
        match &lookup.answer {
            Ok(answer) => {
                let ips: Vec<_> = answer.addresses.iter().map(ToString::to_string).collect();
                write!(f, "{}{}", ips.join(" "), ttl(answer.ttl))?;
            }
            Err(failure) if failure.kind == FailureKind::NoAddresses => write!(f, "none")?,
            Err(failure) => write!(f, "{failure}")?,
        }
    }
    Ok(())
}

fn write_file(f: &mut fmt::Formatter<'_>, file: &FileRead) -> fmt::Result {
    let text = match &file.error {
        Some(error) => error.clone(),
        None if file.settings.is_empty() => "no settings that matter here".to_owned(),
        None => file.settings.join("; "),
    };
    write!(f, "\n  {:<28} {:>8}  {text}", file.path, time(file.elapsed))
}

fn write_question(f: &mut fmt::Formatter<'_>, question: &QuestionReport) -> fmt::Result {
    let QuestionReport { server, transport, name, family, elapsed, reply } = question;
    let what = format!("{server} {transport} {}", record(*family));
    write!(f, "\n  {what:<28} {:>8}  {name} ", time(*elapsed))?;
    match reply {
        Ok(reply) => {
            let ips: Vec<_> = reply.addresses.iter().map(ToString::to_string).collect();
            let separator = if ips.is_empty() { "" } else { " " };
            let truncated = if reply.truncated { " (truncated)" } else { "" };
            write!(f, "{}{separator}{}{}{truncated}", reply.code, ips.join(" "), ttl(reply.ttl))
        }
        Err(failure) => write!(f, "{failure}"),
    }
}

fn response(request: &RequestReport) -> String {
    let response = match &request.response {
        Ok(response) => response,
        Err(failure) => return failure.to_string(),
    };
    let kept = if response.reused { "the same connection" } else { "a new connection" };
    let mut text = format!("{} {}, {kept}", response.version, response.status);
    if let Some(remote) = response.remote {
        text.push_str(&format!(", {remote}"));
    }
    if let Some(keep_alive) = &response.keep_alive {
        text.push_str(&format!(", Keep-Alive: {keep_alive}"));
    }
    if response.closes {
        text.push_str(", Connection: close");
    }
    text
}

fn record(family: Family) -> &'static str {
    match family {
        Family::V4 => "A",
        Family::V6 => "AAAA",
    }
}

fn ttl(ttl: Option<Duration>) -> String {
    ttl.map_or(String::new(), |ttl| format!(", TTL {} s", ttl.as_secs()))
}

fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 1.0 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}
