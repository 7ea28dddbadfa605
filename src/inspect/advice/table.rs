//! Advice as a table for a terminal or a log.

use std::fmt;

use super::host_rules::ENOUGH_REQUESTS;
use super::item::{AdviceItem, number_text, time_text};
use super::report::{Advice, HostAdvice};

/// The characters in front of the last column.
const INDENT: usize = 52;
/// The most characters in a line of the last column.
const WIDTH: usize = 68;

/// Prints the advice as a table; with `{:#}` the figures behind each line too.
impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = time_text(self.span);
        if self.hosts().is_empty() {
            return write!(f, "no advice: there was no request in {span}");
        }
        write!(f, "advice from {span}")?;
        for host in self.hosts() {
            write_host(f, host)?;
        }
        if !self.total().is_empty() {
            write!(f, "\nall hosts")?;
            write_items(f, self.total())?;
        }
        self.write_rest(f)
    }
}

fn write_host(f: &mut fmt::Formatter<'_>, host: &HostAdvice) -> fmt::Result {
    let (origin, requests) = (&host.origin, host.requests);
    if host.items.is_empty() {
        return write!(f, "\n{origin}: not enough data, {requests} requests of at least {ENOUGH_REQUESTS}");
    }
    let (rate, mean) = (number_text(host.rate), number_text(host.concurrency));
    let (hold, wait) = (time_text(host.hold_time), time_text(host.queue_time));
    let handshakes = host.handshakes;
    write!(f, "\n{origin}: {requests} requests, {rate}/s; each waited {wait} and held a connection for {hold}: ")?;
    write!(f, "{mean} at a time on average; {handshakes} handshakes")?;
    write_items(f, &host.items)
}

fn write_items(f: &mut fmt::Formatter<'_>, items: &[AdviceItem]) -> fmt::Result {
    write!(f, "\n  {:<30} {:>8} {:>8}  why", "setting", "now", "better")?;
    for item in items {
        let suggested = if item.is_change() { item.suggested.to_string() } else { "same".to_owned() };
        write!(f, "\n  {:<30} {:>8} {suggested:>8}  ", item.setting, item.present)?;
        write_wrapped(f, &item.reason)?;
        if f.alternate() {
            let figures: Vec<_> = item.figures.iter().map(ToString::to_string).collect();
            write!(f, "\n{:INDENT$}", "")?;
            write_wrapped(f, &format!("({})", figures.join(", ")))?;
        }
    }
    Ok(())
}

/// Writes a text in the last column, in as many lines as it needs.
fn write_wrapped(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let mut width = 0;
    for word in text.split(' ') {
        let length = word.chars().count() + 1;
        if width > 0 && width + length > WIDTH {
            write!(f, "\n{:INDENT$}", "")?;
            width = 0;
        }
        let space = if width == 0 { "" } else { " " };
        write!(f, "{space}{word}")?;
        width += length;
    }
    Ok(())
}

impl Advice {
    /// Writes what is beside the settings: the lookups of names, and the requests without advice.
    fn write_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dns = &self.dns;
        if dns.lookups > 0 {
            let (lookups, queries) = (dns.lookups, dns.queries);
            write!(f, "\nDNS: {queries} queries for {lookups} lookups")?;
            if let Some(mean) = dns.time.mean() {
                write!(f, ", {} each", time_text(mean))?;
            }
        }
        if self.forgotten > 0 {
            write!(f, "\n{} requests to hosts that the pool has forgotten are left out", self.forgotten)?;
        }
        Ok(())
    }
}
