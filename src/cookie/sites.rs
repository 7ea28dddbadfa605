//! The cookies of a jar, by site, with their limits. A core.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::SystemTime;

use cookie_store::CookieDomain;
use url::Url;

use super::rules::{StoredCookie, is_trustworthy, site};

/// The most cookies of a site.
const MAX_PER_SITE: usize = 180;
/// The most cookies of a jar.
const MAX_COOKIES: usize = 3000;
/// The most bytes of a `Cookie` header. Some servers accept lines of 8 KiB, others 16 KiB for all headers together.
const MAX_HEADER: usize = 8_000;

/// The text between two cookies of a header.
const SEPARATOR: &str = "; ";

/// The cookies of a jar.
///
/// A site is the domain right below a public suffix. A cookie is sent to no other site than the one that set it, so the cookies of
/// one site are all that is looked at for a request.
#[derive(Default)]
pub(super) struct Sites {
    /// The cookies of each site. No list is empty.
    sites: HashMap<String, Vec<Entry>>,
    /// The number of cookies.
    count: usize,
    /// The number of times that cookies were set or sent, as a clock for the order of both.
    ticks: u64,
}

/// A cookie in its jar.
pub(super) struct Entry {
    pub(super) cookie: StoredCookie,
    /// The tick at which it was first set.
    pub(super) created: u64,
    /// The tick at which it was last set or sent.
    used: u64,
}

impl Sites {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    #[cfg(feature = "serde")]
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.sites.values().flatten()
    }

    /// Stores a cookie that a response from `url` set. One that has expired deletes the one that it replaces.
    pub(super) fn set(&mut self, cookie: StoredCookie, url: &Url, now: SystemTime) {
        let Some(site) = site(url) else { return };
        self.ticks += 1;
        let mut entries = self.sites.remove(site).unwrap_or_default();
        self.count -= entries.len();
        entries.retain(|entry| !entry.cookie.is_expired(now));
        let is_blocked =
            !is_trustworthy(url) && entries.iter().any(|entry| entry.cookie.blocks_insecure_overwrite_by(&cookie));
        if !is_blocked {
            put(&mut entries, cookie, self.ticks, now);
            make_room(&mut entries);
        }
        self.put_back(site, entries);
        if self.count > MAX_COOKIES {
            self.remove_expired(now);
        }
        while self.count > MAX_COOKIES {
            self.remove_oldest();
        }
    }

    /// Returns the `Cookie` header of a request to `url`, if there are cookies for it: those of longer paths first, then older
    /// ones first (RFC 6265bis §5.8.3). Not all of them may fit in: see [`choose`].
    pub(super) fn header(&mut self, url: &Url, now: SystemTime) -> Option<String> {
        let site = site(url)?;
        let entries = self.sites.get_mut(site)?;
        self.count -= entries.len();
        entries.retain(|entry| !entry.cookie.is_expired(now));
        self.count += entries.len();
        self.ticks += 1;
        let mut sent = choose(entries.iter_mut().filter(|entry| entry.cookie.matches(url)).collect());
        sent.sort_unstable_by_key(|entry| (Reverse(entry.cookie.path.len()), entry.created));
        let mut header = String::new();
        for entry in sent {
            entry.used = self.ticks;
            append(&mut header, &entry.cookie);
        }
        if entries.is_empty() {
            self.sites.remove(site);
        }
        if header.is_empty() { None } else { Some(header) }
    }

    fn put_back(&mut self, site: &str, entries: Vec<Entry>) {
        self.count += entries.len();
        if !entries.is_empty() {
            self.sites.insert(site.to_owned(), entries);
        }
    }

    /// Removes all cookies that have expired.
    fn remove_expired(&mut self, now: SystemTime) {
        self.sites.retain(|_, entries| {
            entries.retain(|entry| !entry.cookie.is_expired(now));
            !entries.is_empty()
        });
        self.count = self.sites.values().map(Vec::len).sum();
    }

    /// Removes the cookie that was not used for the longest time.
    fn remove_oldest(&mut self) {
        let oldest = |entries: &[Entry]| entries.iter().map(|entry| entry.used).min();
        let Some(site) = self.sites.iter().min_by_key(|(_, entries)| oldest(entries)) else { return };
        let site = site.0.clone();
        let mut entries = self.sites.remove(&site).unwrap_or_default();
        self.count -= entries.len();
        if let Some(index) = (0..entries.len()).min_by_key(|index| entries[*index].used) {
            entries.swap_remove(index);
        }
        self.put_back(&site, entries);
    }
}

/// Puts a cookie into the list of its site, in place of the one that it replaces.
fn put(entries: &mut Vec<Entry>, cookie: StoredCookie, tick: u64, now: SystemTime) {
    let replaced = entries.iter().position(|entry| entry.cookie.is_replaced_by(&cookie));
    let created = match replaced {
        Some(index) => entries.swap_remove(index).created,
        None => tick,
    };
    if !cookie.is_expired(now) {
        entries.push(Entry { cookie, created, used: tick });
    }
}

/// Removes cookies until a site has no more than it may: those that are not secure first, and among them those that were not used
/// for the longest time (RFC 6265bis §5.7). Expired ones are gone already.
fn make_room(entries: &mut Vec<Entry>) {
    while entries.len() > MAX_PER_SITE {
        let first_to_go = |index: &usize| (entries[*index].cookie.is_secure, entries[*index].used);
        let Some(index) = (0..entries.len()).min_by_key(first_to_go) else { return };
        entries.swap_remove(index);
    }
}

/// Returns the cookies that fit into a header. Those that only the host itself can have set are taken first, then older ones:
/// otherwise a sub-domain could crowd out the session of another host, with cookies of longer paths for their common domain.
fn choose(mut matching: Vec<&mut Entry>) -> Vec<&mut Entry> {
    let is_for_domain = |entry: &Entry| matches!(entry.cookie.domain, CookieDomain::Suffix(_));
    matching.sort_unstable_by_key(|entry| (is_for_domain(entry), entry.created));
    // Each cookie counts with a separator, also the first one.
    let mut room = MAX_HEADER + SEPARATOR.len();
    matching.retain(|entry| {
        let length = entry.cookie.name.len() + "=".len() + entry.cookie.value.len() + SEPARATOR.len();
        let fits = length <= room;
        if fits {
            room -= length;
        }
        fits
    });
    matching
}

/// Adds a cookie to a header.
fn append(header: &mut String, cookie: &StoredCookie) {
    let separator = if header.is_empty() { "" } else { SEPARATOR };
    header.extend([separator, &cookie.name, "=", &cookie.value]);
}
