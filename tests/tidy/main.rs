//! The architecture as a test: layers, islands, one clock, pure cores. Each rule is shown a violation it must find.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod commands;
mod defaults;
mod documents;
mod imports;
mod methods;
mod promises;
mod repeats;
mod reqwest_names;
mod rows;
mod rows_of_calls;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The top-level modules from the lowest layer up. A module may use the layers below its own, and nothing beside it.
const LAYERS: [&[&str]; 10] = [
    &["os", "sync"],
    &["world"],
    &["clock", "host_pattern", "latency", "list", "origin", "redact", "trust"],
    &["memory"],
    &["trace"],
    &["transport", "dns", "race", "tls", "pool", "cookie"],
    &["connect"],
    &["error"],
    &["client"],
    &["doctor", "guide", "interop"],
];

/// Files that must call themselves cores, so that the rule for cores cannot be lost with a comment.
const CORES: &[&str] = &[
    "memory.rs",
    "client/body/decode/mod.rs",
    "client/policy/framing.rs",
    "doctor/findings/addresses.rs",
    "doctor/findings/certificates.rs",
    "doctor/findings/dns_servers.rs",
    "doctor/findings/mod.rs",
    "doctor/findings/requests.rs",
    "client/policy/hedge.rs",
    "client/policy/redirect.rs",
    "client/policy/retry.rs",
    "client/policy/resend.rs",
    "client/token/state.rs",
    "client/sse/parser.rs",
    "client/sse/reconnection.rs",
    "connect/http2/frames.rs",
    "connect/io/mod.rs",
    "connect/proxy/no_proxy.rs",
    "cookie/attributes.rs",
    "cookie/rules.rs",
    "cookie/sites.rs",
    "dns/cache/state/values.rs",
    "dns/cache/state/entries.rs",
    "dns/cache/state/family_state.rs",
    "dns/cache/state/mod.rs",
    "dns/cache/state/snapshot.rs",
    "dns/hickory/system/resolv_conf.rs",
    "dns/hickory/search/verdict.rs",
    "dns/hickory/servers/tries.rs",
    "pool/state/balance/address.rs",
    "pool/state/balance/mod.rs",
    "pool/state/steps/balancing.rs",
    "pool/state/memory/mod.rs",
    "pool/state/values/conn.rs",
    "pool/state/hosts/connections.rs",
    "pool/state/values/mod.rs",
    "pool/state/dials/mod.rs",
    "pool/state/events/checkout.rs",
    "pool/state/events/connections.rs",
    "pool/state/events/dials.rs",
    "pool/state/events/hosts.rs",
    "pool/state/steps/mod.rs",
    "pool/state/hosts/host.rs",
    "pool/state/mod.rs",
    "pool/state/moved_addresses.rs",
    "pool/state/balance/outliers.rs",
    "pool/state/parts.rs",
    "pool/state/steps/provision.rs",
    "pool/state/hosts/queue.rs",
    "pool/state/steps/settle.rs",
    "pool/state/hosts/slots.rs",
    "pool/state/steps/timeouts.rs",
    "pool/state/warm/mod.rs",
    "pool/state/steps/warm_look.rs",
    "race/scoreboard.rs",
    "race/schedule.rs",
    "trace/timings/fold.rs",
    "trace/timings/spent.rs",
    "trace/timings/late.rs",
    "redact.rs",
    "tls/certs/mod.rs",
    "tls/certs/x509.rs",
    "trace/server_timing.rs",
];
const CORE_MARK: &str = " A core";
/// What a core must not name: anything that waits, locks, reads a clock, or talks to the world.
const IMPURE: [&str; 17] = [
    "tokio",
    "async",
    "await",
    "Mutex",
    "RwLock",
    "Atomic",
    "now(",
    "elapsed(",
    "now as",
    "std::{",
    "std::io",
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "thread",
    "println!",
    "tracing",
];

/// What would hide an import, or a clock, from the rules.
const AROUND: [&str; 3] = ["crate as ", "super::{super", "#[path"];
const CLOCKS: [&str; 5] = ["Instant::now", "SystemTime::now", "Instant as ", "SystemTime as ", "Instant::{"];
/// rustls panics there where other crates have brought in a second provider.
const NO_PROVIDER: [&str; 2] = ["ClientConfig::builder()", "ServerConfig::builder()"];

#[test]
fn the_crate_is_tidy() {
    let mut found = Vec::new();
    let mut cores = BTreeSet::new();
    for (path, source) in sources(Path::new("../src"), "") {
        if is_core(&source) {
            cores.insert(path.clone());
        }
        found.extend(violations(&path, &source));
    }
    assert_eq!(found, Vec::<String>::new());
    let missing: Vec<_> = CORES.iter().filter(|core| !cores.contains(**core)).collect();
    assert!(missing.is_empty(), "not marked as cores: {missing:?}");
}

/// The files of the crate without their comments, strings and tests; files that are nothing but tests are left out.
fn code_of_the_crate() -> Vec<(String, String)> {
    let files = sources(Path::new("../src"), "").into_iter();
    let files = files.filter(|(path, _)| !is_of_tests(path));
    files.map(|(path, source)| (path, at_tests(&without_comments(&source)).0.to_owned())).collect()
}

fn is_of_tests(path: &str) -> bool {
    ["tests.rs", "_tests.rs", "walks.rs", "schedules.rs", "invariants.rs", "fuzzed.rs", "benched.rs"]
        .iter()
        .any(|end| path.ends_with(end))
        || path.contains("/tests/")
}

/// The most files and folders of a folder, beside its first file.
const LARGEST_FOLDER: usize = 14;
/// A folder with more: the modules of the crate, which are its layers.
const LARGE_FOLDERS: [&str; 1] = [""];

/// The folders with too many entries.
fn overfull(files: impl Iterator<Item = String>) -> Vec<String> {
    let mut entries: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in files {
        let mut folder = String::new();
        for part in path.split('/') {
            entries.entry(folder.clone()).or_default().insert(part.to_owned());
            folder = if folder.is_empty() { part.to_owned() } else { format!("{folder}/{part}") };
        }
    }
    let size = |names: &BTreeSet<String>| names.iter().filter(|name| *name != "mod.rs").count();
    let is_overfull = |(folder, names): &(String, BTreeSet<String>)| {
        size(names) > LARGEST_FOLDER && !LARGE_FOLDERS.contains(&folder.as_str())
    };
    entries.into_iter().filter(is_overfull).map(|(folder, names)| format!("{folder}: {}", size(&names))).collect()
}

#[test]
fn no_folder_is_a_heap() {
    let files = sources(Path::new("../src"), "").into_iter().map(|(path, _)| path);
    assert_eq!(overfull(files.filter(|path| !is_of_tests(path))), Vec::<String>::new());
    let heap = (0..=LARGEST_FOLDER).map(|number| format!("heap/{number}.rs"));
    assert_eq!(overfull(heap), ["heap: 15"]);
}

#[test]
fn no_two_files_import_each_other() {
    let circles = imports::circles(&imports::imports(&code_of_the_crate()));
    assert_eq!(circles, Vec::<BTreeSet<String>>::new(), "files that import each other, directly or around a corner");
}

/// The rooms of `client` from the lowest floor up. A file imports nothing from a floor above its own.
const FLOORS_OF_CLIENT: &[&str] = &[
    "policy",
    "pool_side",
    "body",
    "request",
    "response",
    "settings",
    "token",
    "inner.rs",
    "call",
    "layers",
    "handle.rs",
    "request_builder",
    "client_builder",
    "sse",
];

/// The imports between the entries of a folder, from the entry to those that its files import from.
fn between_entries(imports: &imports::Imports, folder: &str) -> imports::Imports {
    let entry = |file: &str| {
        let below = file.strip_prefix(folder)?.strip_prefix('/')?;
        let name = below.split('/').next()?;
        (name != "mod.rs").then(|| name.to_owned())
    };
    let mut between = imports::Imports::new();
    for (file, targets) in imports {
        let Some(from) = entry(file) else { continue };
        let others = targets.iter().filter_map(|target| entry(target)).filter(|target| *target != from);
        between.entry(from.clone()).or_default().extend(others);
    }
    between
}

#[test]
fn no_floor_of_the_client_imports_from_one_above() {
    let between = between_entries(&imports::imports(&code_of_the_crate()), "client");
    let floor = |room: &String| FLOORS_OF_CLIENT.iter().position(|name| name == room);
    let unknown: Vec<_> = between.keys().filter(|room| floor(room).is_none()).collect();
    assert_eq!(unknown, Vec::<&String>::new(), "rooms without a floor");
    let arrows = between.iter().flat_map(|(from, targets)| targets.iter().map(move |to| (from, to)));
    let up: Vec<_> = arrows.filter(|(from, to)| floor(to) > floor(from)).collect();
    assert_eq!(up, Vec::<(&String, &String)>::new(), "imports from a floor above");
}

#[test]
fn no_two_folders_import_each_other() {
    let imports = imports::imports(&code_of_the_crate());
    let folders: BTreeSet<_> = imports.keys().filter_map(|file| Some(file.rsplit_once('/')?.0)).collect();
    let circles = folders.into_iter().map(|folder| (folder, imports::circles(&between_entries(&imports, folder))));
    let circles: Vec<_> = circles.filter(|(_, circles)| !circles.is_empty()).collect();
    assert_eq!(circles, Vec::new(), "entries of a folder that import each other, directly or around a corner");
}

#[test]
fn no_two_files_call_each_others_methods() {
    let circles = imports::circles(&methods::calls(&code_of_the_crate()));
    assert_eq!(circles, Vec::<BTreeSet<String>>::new(), "files with methods of one type that call each other's");
}

/// The skins of a call, from the outside inwards. Each may call those behind it.
const CALL: [&str; 21] = [
    "mod",
    "redirect",
    "retry",
    "hedge",
    "token",
    "layered",
    "attempt/context",
    "resend",
    "next",
    "lease/checkout",
    "lease/queue",
    "attempt/receive",
    "attempt/exchange",
    "attempt/dispatch",
    "attempt/message",
    "attempt/cookies",
    "attempt/admit",
    "attempt/end",
    "state",
    "call_trace",
    "current_request",
];
/// The most lines of a skin.
const LONGEST_SKIN: usize = 250;
/// The pool's core, from the top down: the events, what they have in common, and the parts, which are below both.
const POOL_CORE: [&str; 10] = [
    "mod",
    "events/checkout",
    "events/dials",
    "events/connections",
    "events/hosts",
    "steps/balancing",
    "steps/timeouts",
    "steps/mod",
    "steps/provision",
    "steps/settle",
];

/// The imports of a folder's files that do not go downwards: in the order of `files`, and from them to those not named.
fn upward(imports: &imports::Imports, folder: &str, files: &[&str]) -> Vec<String> {
    let place = |path: &str| {
        let name = path.strip_prefix(folder)?.strip_suffix(".rs")?;
        Some(files.iter().position(|file| *file == name).unwrap_or(files.len()))
    };
    let mut found = Vec::new();
    for (file, targets) in imports {
        let Some(from) = place(file) else { continue };
        let targets = targets.iter().filter(|target| place(target).is_some_and(|to| to < from));
        found.extend(targets.map(|target| format!("{file} imports {target}")));
    }
    found
}

#[test]
fn a_call_and_the_core_of_the_pool_call_downwards() {
    let imports = imports::imports(&code_of_the_crate());
    assert_eq!(upward(&imports, "client/call/", &CALL), Vec::<String>::new());
    assert_eq!(upward(&imports, "pool/state/", &POOL_CORE), Vec::<String>::new());
    for file in CALL {
        let length = fs::read_to_string(format!("../src/client/call/{file}.rs")).unwrap().lines().count();
        assert!(length <= LONGEST_SKIN, "client/call/{file}.rs has {length} lines");
    }
    for file in POOL_CORE {
        assert!(imports.contains_key(&format!("pool/state/{file}.rs")), "pool/state/{file}.rs is gone");
    }
    let wrong = BTreeMap::from([("call/b.rs".to_owned(), BTreeSet::from(["call/a.rs".to_owned()]))]);
    assert_eq!(upward(&wrong, "call/", &["a", "b"]), ["call/b.rs imports call/a.rs"]);
}

#[test]
fn imports_are_resolved_to_the_file_that_defines_what_they_name() {
    let file = |name: &str, code: &str| (name.to_owned(), code.to_owned());
    let files = [
        file("lib.rs", "mod a; mod b;"),
        file("a/mod.rs", "mod x; mod y; pub(crate) use x::{X, Other as Renamed}; fn f() { y::go() }"),
        file("a/x.rs", "use crate::b::{self, B}; struct X;"),
        file("a/y.rs", "use super::X; use super::Renamed;"),
        file("b.rs", "fn f() -> crate::a::X {}"),
    ];
    let imports = imports::imports(&files);
    let of = |file: &str| imports[file].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("a/mod.rs"), ["a/x.rs", "a/y.rs"]);
    assert_eq!(of("a/y.rs"), ["a/x.rs"]);
    assert_eq!(of("a/x.rs"), ["b.rs"]);
    assert_eq!(of("b.rs"), ["a/x.rs"]);
    let circles = imports::circles(&imports);
    assert_eq!(circles, [BTreeSet::from(["a/x.rs".to_owned(), "b.rs".to_owned()])]);
}

fn sources(folder: &Path, prefix: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            files.extend(sources(&entry.path(), &format!("{name}/")));
        } else if name.ends_with(".rs") {
            files.push((name, fs::read_to_string(entry.path()).unwrap()));
        }
    }
    files
}

/// What is wrong with the file at `path` below `src`.
fn violations(path: &str, source: &str) -> Vec<String> {
    let code = without_comments(source);
    let (body, tests) = at_tests(&code);
    let mut found = Vec::new();
    if path != "lib.rs" {
        found.extend(imports(&code).into_iter().filter_map(|used| misplaced(path, &used)));
        found.extend(escapes(path, body, tests));
        let ways = AROUND.iter().filter(|way| body.contains(**way));
        found.extend(ways.map(|way| format!("{path}: a way around the layers, {way}")));
    }
    if !["clock/mod.rs", "clock/instant.rs", "world/mod.rs"].contains(&path)
        && CLOCKS.iter().any(|clock| code.contains(clock))
    {
        found.push(format!("{path}: a clock beside clock::now"));
    }
    if NO_PROVIDER.iter().any(|builder| code.contains(builder)) {
        found.push(format!("{path}: a TLS configuration without a provider"));
    }
    if is_core(source) {
        let impure = IMPURE.iter().filter(|word| body.contains(**word));
        found.extend(impure.map(|word| format!("{path}: a core that names {word}")));
    }
    found
}

/// Splits a file at its tests, which are the last thing in it.
fn at_tests(code: &str) -> (&str, &str) {
    let tests =
        ["\n#[cfg(test)]\nmod tests", "\n#[cfg(test)]\n#[path"].iter().filter_map(|start| code.find(start)).min();
    code.split_at(tests.unwrap_or(code.len()))
}

fn is_core(source: &str) -> bool {
    source.lines().take_while(|line| line.starts_with("//!")).any(|line| line.contains(CORE_MARK))
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
}

fn misplaced(path: &str, used: &str) -> Option<String> {
    let own = module(path);
    if used == own {
        return None;
    }
    match (layer(own), layer(used)) {
        (Some(own), Some(used)) if used < own => None,
        (None, _) => Some(format!("{path}: module {own} has no layer")),
        (_, None) => Some(format!("{path}: {used} is not a module; import it from where it is defined")),
        (Some(mine), Some(theirs)) if mine == theirs => Some(format!("{path}: {own} uses its neighbour {used}")),
        _ => Some(format!("{path}: {own} uses {used}, which is above it")),
    }
}

fn module(path: &str) -> &str {
    path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
}

/// The first names of all `crate::…` paths.
fn imports(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(group) => names.extend(first_names(group)),
            None => names.extend(identifier(rest)),
        }
    }
    names
}

/// The first name of each path in a brace group.
fn first_names(group: &str) -> Vec<String> {
    let (mut depth, mut names, mut start) = (0, Vec::new(), 0);
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.extend(identifier(group[start..at].trim()));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.extend(identifier(group[start..at].trim()));
                start = at + 1;
            }
            _ => {}
        }
    }
    names
}

fn identifier(text: &str) -> Option<String> {
    let name: String = text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// `super::` chains that leave the top-level module, which would hide an import from the layers' rule.
fn escapes(path: &str, body: &str, tests: &str) -> Option<String> {
    let file = path.rsplit('/').next().unwrap_or_default();
    let depth = path.matches('/').count() - usize::from(file == "mod.rs");
    let chain = |count: usize| "super::".repeat(count);
    let escapes = body.contains(&chain(depth + 1)) || tests.contains(&chain(depth + 2));
    escapes.then(|| format!("{path}: leaves its module by super"))
}

/// The code without its comments and without what stands in string literals.
fn without_comments(source: &str) -> String {
    let (mut code, mut in_string) = (String::new(), false);
    for line in source.lines() {
        let mut letters = line.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' if in_string => drop(letters.next()),
                '\'' if !in_string && letters.peek() == Some(&'"') => drop(letters.next()),
                '"' => in_string = !in_string,
                '/' if !in_string && letters.peek() == Some(&'/') => break,
                _ if in_string => {}
                _ => code.push(letter),
            }
        }
        code.push('\n');
    }
    code
}

#[test]
fn a_layer_that_uses_one_above_is_found() {
    let found = violations("trace/mod.rs", "use crate::client::Client;");
    assert_eq!(found, ["trace/mod.rs: trace uses client, which is above it"]);
    assert_eq!(violations("connect/mod.rs", "use crate::{clock, error::{Error, Result}};").len(), 1);
    assert!(violations("client/mod.rs", "use crate::{clock, dns::{Answer, Family}, error::Error};").is_empty());
}

#[test]
fn an_island_that_uses_its_neighbour_is_found() {
    let found = violations("race/mod.rs", "fn f() { crate::dns::Answer::default() }");
    assert_eq!(found, ["race/mod.rs: race uses its neighbour dns"]);
    assert_eq!(violations("pool/state.rs", "use crate::transport::Stream;").len(), 1);
}

#[test]
fn a_way_around_the_layers_is_found() {
    assert_eq!(
        violations("dns/cache.rs", "use super::super::pool::Pool;"),
        ["dns/cache.rs: leaves its module by super"]
    );
    assert_eq!(violations("transport.rs", "use super::pool::Pool;"), ["transport.rs: leaves its module by super"]);
    assert!(violations("transport.rs", "\n#[cfg(test)]\nmod tests { use super::*; }").is_empty());
    let detours = [
        "use crate as root;\nuse root::client::Client;",
        "use super::{super::pool::Pool};",
        "#[path = \"../pool/state.rs\"]\nmod state;",
        "let url = \"http://\"; crate::client::get(url);",
    ];
    for detour in detours {
        assert!(!violations("dns/mod.rs", detour).is_empty(), "{detour}");
    }
    assert_eq!(violations("dns/mod.rs", "use crate::Error;").len(), 1, "through the root's re-exports");
    assert_eq!(violations("surprise.rs", "use crate::clock::now;"), ["surprise.rs: module surprise has no layer"]);
}

#[test]
fn a_second_clock_is_found() {
    assert_eq!(violations("dns/mod.rs", "let t = Instant::now();"), ["dns/mod.rs: a clock beside clock::now"]);
    assert_eq!(violations("trace/mod.rs", "std::time::SystemTime::now()").len(), 1);
    assert_eq!(violations("dns/mod.rs", "use crate::clock::Instant as I; I::now();").len(), 1);
    assert!(violations("clock/mod.rs", "Instant::now()").is_empty());
    assert!(violations("dns/mod.rs", "// Instant::now() would be wrong").is_empty());
}

#[test]
fn a_tls_configuration_without_a_provider_is_found() {
    let found = violations("tls/mod.rs", "let config = ClientConfig::builder().with_safe_defaults();");
    assert_eq!(found, ["tls/mod.rs: a TLS configuration without a provider"]);
}

#[test]
fn an_impure_core_is_found() {
    let core = |body: &str| violations("pool/state.rs", &format!("//! The books. A core: pure.\n{body}"));
    assert_eq!(core("use std::sync::Mutex;"), ["pool/state.rs: a core that names Mutex"]);
    assert_eq!(core("use tokio::sync::oneshot;"), ["pool/state.rs: a core that names tokio"]);
    assert_eq!(core("async fn step() {}"), ["pool/state.rs: a core that names async"]);
    assert_eq!(core("let at = clock::now();"), ["pool/state.rs: a core that names now("]);
    assert_eq!(core("let age = since.elapsed();"), ["pool/state.rs: a core that names elapsed("]);
    assert!(core("fn step(now: Instant) {}\n#[cfg(test)]\nmod tests { fn t0() { crate::clock::now(); } }").is_empty());
    let helper = core("#[cfg(test)]\nfn helper() {}\nuse std::sync::Mutex;\n#[cfg(test)]\nmod tests {}");
    assert_eq!(helper, ["pool/state.rs: a core that names Mutex"]);
    assert!(violations("pool/mod.rs", "//! A driver.\nuse std::sync::Mutex;").is_empty());
}

/// What each feature of the manifest turns on.
fn features(manifest: &str) -> BTreeMap<String, Vec<String>> {
    let (_, section) = manifest.split_once("\n[features]\n").unwrap();
    let (section, _) = section.split_once("\n[").unwrap();
    // In a published package the lists have several lines.
    let lists = section.split(']').filter_map(|text| text.split_once(" = ["));
    let names = |list: &str| list.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    lists.map(|(before, list)| (before.lines().last().unwrap_or_default().to_owned(), names(list))).collect()
}

/// All that a feature turns on, and all that those turn on.
fn turned_on(features: &BTreeMap<String, Vec<String>>, name: &str) -> BTreeSet<String> {
    let (mut found, mut next) = (BTreeSet::new(), vec![name.to_owned()]);
    while let Some(name) = next.pop() {
        next.extend(features.get(&name).into_iter().flatten().cloned());
        found.insert(name);
    }
    found
}

/// The features for users that build rustls and no crypto provider for it.
fn without_provider(manifest: &str) -> Vec<String> {
    let features = features(manifest);
    let names = features.keys().filter(|name| !name.starts_with("__"));
    let lacks = |name: &&String| {
        let on = turned_on(&features, name);
        on.contains("__tls") && !on.contains("rustls?/aws_lc_rs") && !on.contains("rustls?/ring")
    };
    names.filter(lacks).cloned().collect()
}

#[test]
fn every_feature_with_tls_has_a_crypto_provider() {
    let manifest = fs::read_to_string("../Cargo.toml").unwrap();
    assert!(turned_on(&features(&manifest), "dns-over-https").contains("rustls?/aws_lc_rs"));
    assert_eq!(without_provider(&manifest), Vec::<String>::new());
    let wrong = "\n[features]\nroots = [\"dep:roots\", \"__tls\"]\n__tls = [\"dep:rustls\"]\n\n[dependencies]\n";
    assert_eq!(without_provider(wrong), ["roots"]);
}

#[test]
fn tests_can_be_built_with_every_feature_for_users() {
    let of = |path| features(&fs::read_to_string(path).unwrap());
    let (features, here) = (of("../Cargo.toml"), of("Cargo.toml"));
    let reqwests = reqwest_names::features_of(&fs::read_to_string("../Cargo.toml").unwrap());
    let missing = features.keys().filter(|name| !here.contains_key(*name) && !reqwests.contains(*name));
    let missing: Vec<_> = missing.collect();
    assert_eq!(missing, Vec::<&String>::new(), "features of speeddial that tests/Cargo.toml does not forward");
}

/// Every core says so, and every file that says so is listed, so that the mark cannot be lost unnoticed.
#[test]
fn all_cores_are_listed() {
    let marked: Vec<_> = sources(Path::new("../src"), "").into_iter().filter(|(_, source)| is_core(source)).collect();
    let unlisted: Vec<_> = marked.iter().map(|(path, _)| path).filter(|path| !CORES.contains(&path.as_str())).collect();
    assert_eq!(unlisted, Vec::<&String>::new());
}
