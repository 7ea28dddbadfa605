//! A snapshot as one HTML page that needs nothing else, and can be read without its script.
//!
//! A file calls files further down in this list, and none further up:
//!
//! | files | what they hold |
//! |---|---|
//! | `mod.rs` | the document: its head, and the order of its parts |
//! | `origin.rs`, `state.rs` | the section of an origin; tables of other state |
//! | `call.rs` | a call: its line, why it took its time, and the facts about it |
//! | `fall.rs`, `dial.rs` | its waterfall; its lookups and dialled addresses |
//! | `bars.rs`, `words.rs` | bars as SVG; times, origins and shares as text |
//!
//! Every text that a peer, a URL or the program chose passes through `escaped`. There is no style attribute and no handler
//! attribute, so that the policy in the head can refuse all of them.

mod bars;
mod call;
mod dial;
mod fall;
mod origin;
mod state;
#[cfg(test)]
mod tests;
mod words;

use std::fmt::Write;

use super::snapshot::Snapshot;
use crate::trace::size;
use crate::trace::span;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The base64 of the SHA-256 of the two, which a test computes again.
const STYLE_HASH: &str = "OaLaYNDdJDzaexuFjvWzl4xeJGI0R6bzTVyoUI4F7gA=";
const SCRIPT_HASH: &str = "IN+qbbB9Ed+R94kqj8ZwaPqEPBXGaNIOIs9P3ZOCg04=";

/// The most calls on a page. A browser is slow with more.
const MAX_CALLS: usize = 3_000;

impl Snapshot {
    /// Returns a page that shows the snapshot: totals, and for each kept call its waterfall and why it took its time.
    ///
    /// The page is one file without references to others, and a policy in its head refuses everything else (CSP). It works without
    /// its script, which adds a filter. The filter is part of the page's address: `#filter=api.example.com+503&failures=1`. Of more
    /// than 3,000 calls, each origin shows its latest ones.
    pub fn to_html(&self) -> String {
        let mut page = String::with_capacity(STYLE.len() + SCRIPT.len() + 16 * 1024);
        write_head(&mut page);
        write_title(&mut page, self);
        page.push_str(TOOLS);
        page.push_str("<main id=\"main\">\n");
        origin::write_overview(&mut page, &self.origins);
        let most = MAX_CALLS / self.origins.len().max(1);
        for (place, origin) in self.origins.iter().enumerate() {
            origin::write_section(&mut page, place, origin, most.max(1));
        }
        self.tables.iter().for_each(|table| state::write_table(&mut page, table));
        page.push_str("</main>\n");
        write_footer(&mut page, self);
        let _ = write!(page, "<script>{SCRIPT}</script>\n</body>\n</html>\n");
        page
    }
}

/// The filter, which the script shows.
const TOOLS: &str = r#"<form id="tools" class="tools" role="search" aria-label="Calls" hidden>
<label class="grow" for="filter">Filter <input id="filter" type="search" autocomplete="off" spellcheck="false" placeholder="origin, path, status, reason"></label>
<label for="failures"><input id="failures" type="checkbox"> Only failures</label>
<button id="clear" type="button">Clear</button>
<button id="open" type="button">Open all</button>
<button id="close" type="button">Close all</button>
<output id="shown" for="filter failures" aria-live="polite"></output>
</form>
"#;

fn write_head(page: &mut String) {
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-{SCRIPT_HASH}'; \
         style-src 'sha256-{STYLE_HASH}'; img-src data:; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>Calls by origin</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#main\">Skip to the calls</a>\n"
    );
}

fn write_title(page: &mut String, snapshot: &Snapshot) {
    let totals = snapshot.totals();
    let quantile = |share| totals.latency.quantile(share).map_or("–".to_owned(), span);
    let kept: usize = snapshot.origins.iter().map(|origin| origin.calls.len()).sum();
    let _ = write!(
        page,
        "<header>\n<h1>Calls by origin</h1>\n<p class=\"dim\">{}; recorded since {}</p>\n<dl class=\"tiles\">\n",
        words::date(snapshot.taken),
        words::date(snapshot.since)
    );
    let failures = words::share(totals.failures(), totals.calls);
    for (name, figure) in [
        ("Origins", snapshot.origins.len().to_string()),
        ("Calls", words::grouped(totals.calls)),
        ("Failures", format!("{} ({failures})", words::grouped(totals.failures()))),
        ("Median", quantile(0.5)),
        ("99th percentile", quantile(0.99)),
        ("Received", size(totals.received_bytes)),
        ("Kept calls", words::grouped(kept as u64)),
    ] {
        let _ = writeln!(page, "<div><dt>{name}</dt><dd>{figure}</dd></div>");
    }
    page.push_str("</dl>\n</header>\n");
}

fn write_footer(page: &mut String, snapshot: &Snapshot) {
    let (calls, origins) = (snapshot.calls_per_list, snapshot.max_origins);
    let _ = write!(
        page,
        "<footer>\n<p>Of each origin the last {calls} calls are kept, the slowest {calls} of each latency class, and the last {calls} \
         failures: errors, cancelled calls and responses of status 5xx. The {origins} origins used last are kept"
    );
    match snapshot.evicted_origins {
        0 => page.push_str(".</p>\n"),
        evicted => {
            let _ = writeln!(page, "; others were forgotten {evicted} times.</p>");
        }
    }
    page.push_str(
        "<p>Percentiles are rounded up to the next power of two microseconds. Times of day are UTC.</p>\n</footer>\n",
    );
}
