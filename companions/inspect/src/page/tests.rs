//! The page as a browser without a script sees it, and texts of peers that must not become markup.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use speeddial::trace::Timings;

use super::*;
use crate::Recorder;
use crate::samples::{cold_call, failed_call, hedged_call, hostile_call, request, retried_call, warm_call};

/// A text that a peer would write to take over the page, from a text, an attribute or the script.
const HOSTILE: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&lt;--></style></svg>]]>";

fn record(recorder: &Recorder, url: &str, timings: &Timings) {
    recorder.origins.record(&request(url), &Arc::new(timings.clone()));
}

fn page_of(calls: &[(&str, Timings)]) -> String {
    let recorder = Recorder::new();
    calls.iter().for_each(|(url, timings)| record(&recorder, url, timings));
    recorder.snapshot().to_html()
}

/// Returns the text between the first `start` and the `end` after it.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("no {start}"));
    rest.split_once(end).unwrap_or_else(|| panic!("no {end} after {start}")).0
}

/// Returns the page without its style and its script, which are the crate's own.
fn markup(page: &str) -> String {
    page.replacen(STYLE, "", 1).replacen(SCRIPT, "", 1)
}

/// Returns the tags of the page. Fails if it is not well-formed: a `<` that begins no tag, an attribute without quotes around its
/// value, an element that is not closed, or closed by the end of another one.
fn tags(page: &str) -> Vec<String> {
    const VOID: [&str; 6] = ["!DOCTYPE", "meta", "link", "input", "rect", "line"];
    let markup = markup(page);
    let (mut tags, mut open) = (Vec::new(), Vec::new());
    for piece in markup.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').unwrap_or_else(|| panic!("no end: {piece}"));
        assert!(!text.contains('>'), "a stray sign after {tag}: {text}");
        assert!(tag.matches('"').count().is_multiple_of(2), "a quote too many: {tag}");
        let name = tag.split([' ', '/']).next().unwrap();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(closed), "after {tags:?}");
        } else if !VOID.contains(&name) {
            open.push(name.to_owned());
        }
        tags.push(tag.to_owned());
    }
    assert_eq!(open, Vec::<String>::new());
    tags
}

#[test]
fn every_call_is_on_the_page_with_its_reason_and_its_waterfall_and_without_the_script() {
    let calls = [
        ("http://api.test/cold", cold_call()),
        ("http://api.test/retried", retried_call()),
        ("http://api.test/hedged", hedged_call()),
        ("http://other.test/failed", failed_call(60)),
    ];
    let page = page_of(&calls);
    tags(&page);
    for (url, timings) in &calls {
        let path = &url[url.rfind('/').unwrap()..];
        let start = format!("GET {path}</span>");
        let call = between(&page, &start, "</details>");
        assert!(call.contains(&escaped(&timings.why().to_string())), "{url}: {}", timings.why());
        let rows = between(call, "<table class=\"fall\">", "</table>");
        for (phase, spent) in timings.phases() {
            let is_shown = rows.contains(&format!("</span>{phase}</th>"));
            let is_barred = rows.contains(&format!("<rect class=\"{phase}\""));
            assert!(spent.is_zero() || is_barred, "{url}: no bar for {phase}");
            assert!(!is_barred || is_shown || !timings.hops().is_empty(), "{url}: no row for {phase}");
        }
        let barred = timings.rows(80, usize::MAX).iter().filter(|row| !row.bars.is_empty()).count();
        assert_eq!(rows.matches("<svg").count(), barred, "{url}");
    }
    assert!(page.contains("<summary>") && !markup(&page).contains("<noscript"));
    // Nothing of the page is hidden but the tools of the script.
    assert_eq!(tags(&page).iter().filter(|tag| tag.contains("hidden") && !tag.contains("aria-hidden")).count(), 1);
}

#[test]
fn totals_are_those_of_all_calls() {
    let page = page_of(&[("http://api.test/", cold_call()), ("http://api.test/", failed_call(60))]);
    let tile = |name: &str| between(&page, &format!("<dt>{name}</dt><dd>"), "</dd>").to_owned();
    assert_eq!([tile("Calls"), tile("Failures"), tile("Origins")], ["2", "1 (50 %)", "1"]);
    let row = between(&page, "<a href=\"#o0\">http://api.test</a>", "</tr>");
    assert!(row.contains("<td class=\"n\">2</td>") && row.contains("<td class=\"n\">80.0 ms</td>"), "{row}");
    let classes = between(&page, "<table class=\"classes\">", "</table>");
    assert!(classes.contains("≥ 50 ms</th><td class=\"n\">1</td>") && !classes.contains("≥ 200 ms"), "{classes}");
}

#[test]
fn texts_of_peers_stay_texts() {
    let timings = hostile_call(HOSTILE);
    assert_eq!(timings.server_timing()[0].description.as_deref(), Some(HOSTILE));
    assert_eq!(timings.dialled().len(), 2);
    let recorder = Recorder::builder().show_queries(true).build();
    record(&recorder, "http://a'b&c.test/'-alert(1)-'/&lt;?x='&\\", &timings);
    let mut snapshot = recorder.snapshot();
    // A parsed URL has no such characters; a target that a program makes may have them.
    snapshot.origins[0].calls[0].target = HOSTILE.to_owned();
    snapshot.origins[0].calls[0].method = HOSTILE.to_owned();
    snapshot.add_table(StateTable::new(HOSTILE, [HOSTILE, "other"]).row([HOSTILE, HOSTILE]));
    let page = snapshot.to_html();
    let tags = tags(&page);
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert_eq!(tags.iter().filter(|tag| tag.starts_with("script")).count(), 1);
    for tag in &tags {
        assert!(!tag.starts_with("img") && !tag.starts_with("a href=\"j"), "{tag}");
        // Names of attributes stand before the equals signs outside of quotes.
        let outside: String = tag.split('"').step_by(2).collect();
        assert!(!outside.contains("on") || !outside.split(' ').any(|name| name.starts_with("on")), "a handler: {tag}");
        assert!(!outside.contains(" style="), "{tag}");
    }
    assert!(!page.contains("alert(2)>") && !page.contains("&amp;amp;lt;"));
}

#[test]
fn nothing_is_loaded_and_a_policy_says_so() {
    let page = page_of(&[("http://api.test/", cold_call())]);
    let policy = between(&page, "http-equiv=\"Content-Security-Policy\" content=\"", "\"");
    assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    assert!(policy.contains("base-uri 'none'") && policy.contains("form-action 'none'"));
    let place = |what: &str| page.find(what).unwrap();
    assert!(place("Content-Security-Policy") < place("<style>") && place("<style>") < place("<script>"));
    for tag in tags(&page) {
        assert!(!tag.contains("src="), "{tag}");
        let link = tag.split_once("href=\"").map(|(_, link)| link);
        assert!(link.is_none_or(|link| link.starts_with('#') || link.starts_with("data:,")), "{tag}");
    }
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import") && !STYLE.contains('<'));
    let loads = ["fetch", "XMLHttp", "import", "eval", "innerHTML", "document.write", "</"];
    assert!(loads.iter().all(|word| !SCRIPT.contains(word)));
}

#[test]
fn the_page_follows_the_systems_colours_and_has_every_phases() {
    assert!(STYLE.contains("color-scheme: light dark") && STYLE.contains("@media (prefers-color-scheme: dark)"));
    let (light, dark) = STYLE.split_once("@media (prefers-color-scheme: dark)").unwrap();
    for phase in Phase::ALL {
        assert!(light.contains(&format!("--{phase}: #")) && dark.contains(&format!("--{phase}: #")), "{phase}");
        assert!(
            STYLE.contains(&format!(".{phase} {{ fill: var(--{phase}); background: var(--{phase}); }}")),
            "{phase}"
        );
    }
}

#[test]
fn everything_can_be_reached_and_named_without_a_mouse() {
    let recorder = Recorder::new();
    record(&recorder, "http://api.test/", &cold_call());
    let mut snapshot = recorder.snapshot();
    snapshot.add_table(StateTable::new("Queues", ["name"]).row(["mails"]));
    let page = snapshot.to_html();
    let tags = tags(&page);
    assert_eq!(between(&page, "<html lang=\"", "\""), "en");
    assert!(page.contains("<a class=\"skip\" href=\"#main\">") && page.contains("<main id=\"main\">"));
    let value = |tag: &str, name: &str| {
        tag.split_once(&format!(" {name}=\"")).map(|(_, rest)| rest.split('"').next().unwrap().to_owned())
    };
    let ids: Vec<_> = tags.iter().filter_map(|tag| value(tag, "id")).collect();
    assert!(ids.iter().enumerate().all(|(place, id)| !ids[..place].contains(id)), "an id twice: {ids:?}");
    for tag in &tags {
        if tag.starts_with("input") {
            let label = format!("<label for=\"{}\"", value(tag, "id").unwrap());
            let named = page.contains(&label) || page.contains(&label.replace("<label", "<label class=\"grow\""));
            assert!(named, "without a label: {tag}");
        }
        for name in ["aria-labelledby", "for"] {
            let names = value(tag, name).unwrap_or_default();
            assert!(names.split(' ').all(|name| name.is_empty() || ids.contains(&name.to_owned())), "{tag}");
        }
        // What scrolls can have the focus, and nothing changes the order of the keys.
        assert!(value(tag, "tabindex").is_none_or(|index| index == "0" && value(tag, "aria-label").is_some()), "{tag}");
        assert!(!tag.starts_with("svg") || tag.contains("aria-hidden=\"true\""), "{tag}");
        assert!(!tag.starts_with("th ") || tag.contains("scope="), "{tag}");
    }
    assert!(STYLE.contains(":focus-visible") && !STYLE.contains("outline: none"));
}

#[test]
fn an_empty_recorder_and_strange_times_make_a_page() {
    let mut snapshot = Recorder::new().snapshot();
    tags(&snapshot.to_html());
    assert!(snapshot.to_html().contains("No call has ended yet."));
    snapshot.taken = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
    snapshot.add_table(StateTable::new("Nothing", ["name"]));
    let page = snapshot.to_html();
    assert!(page.contains("an unknown time") && page.contains("Nothing at the moment."));
    tags(&page_of(&[("http://api.test/", warm_call(0))]));
}

#[test]
fn of_too_many_calls_each_origin_shows_its_latest() {
    let recorder = Recorder::builder().calls(MAX_CALLS + 200).build();
    for number in 0..MAX_CALLS + 100 {
        record(&recorder, &format!("http://api.test/{number}"), &failed_call(60));
    }
    record(&recorder, "http://other.test/", &failed_call(60));
    let page = recorder.snapshot().to_html();
    assert_eq!(page.matches("<details class=\"call\"").count(), MAX_CALLS / 2 + 1);
    assert!(page.contains(&format!("GET /{}<", MAX_CALLS + 99)) && !page.contains("GET /0<"));
    assert!(page.contains("1600 earlier ones are left out of this page."));
}

#[test]
fn what_slow_calls_have_in_common_is_said() {
    let mut totals = CallTotals::default();
    let mut count = |waits: &[u64]| {
        for wait in waits {
            totals.count(&warm_call(*wait));
        }
        slow_calls(&totals)
    };
    assert_eq!(count(&[2, 3, 2, 3]), None, "none is slow");
    assert_eq!(count(&[105]).unwrap(), "1 call took 100 ms or more: 100 % of its time was wait.");
    assert_eq!(count(&[55]).unwrap(), "2 calls took 50 ms or more: 100 % of their time was wait.");
}
