//! Published crates that are built on reqwest, moved to speeddial by their manifests alone: they compile, and their own tests have the
//! same results.
//!
//! The crates come from the registry, as cargo has it; the test copies them, and whatever else they need that is built on reqwest,
//! into the target directory and renames the dependency there. `docs/reqwest.md` has a row for each crate.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod manifest;
mod suite;
mod workspace;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::{env, fs, thread};

use workspace::{HttpClient, Workspace};

/// A crate at a version, with the features that its manifest needs to be built on reqwest.
pub(crate) struct Published {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) features: &'static [&'static str],
}

const fn published(name: &'static str, version: &'static str, features: &'static [&'static str]) -> Published {
    Published { name, version, features }
}

const COMPILED: [Published; 36] = [
    published("alloy-transport-http", "2.5.0", &["reqwest"]),
    published("async-openai", "0.43.0", &["chat-completion", "file"]),
    published("couch_rs", "0.13.1", &[]),
    published("frankenstein", "0.52.1", &["client-reqwest"]),
    published("genai", "0.7.2", &[]),
    published("goose", "0.19.0", &[]),
    published("graphql_client", "0.16.0", &["reqwest"]),
    published("hcaptcha", "3.2.8", &[]),
    published("hcloud", "0.26.0", &[]),
    published("keycloak", "26.8.100", &[]),
    published("megalodon", "1.3.0", &[]),
    published("meilisearch-sdk", "0.33.0", &[]),
    published("mongodb", "3.9.1", &["azure-kms", "azure-oidc", "gcp-kms", "gcp-oidc"]),
    published("oauth2", "5.0.0", &["reqwest"]),
    published("object_store", "0.14.2", &["aws"]),
    published("oci-client", "0.18.0", &[]),
    published("ollama-rs", "0.3.6", &["stream"]),
    published("opensearch", "2.4.0", &[]),
    published("opentelemetry-http", "0.33.1", &["reqwest"]),
    published("reqwest-cross", "0.14.0", &[]),
    published("reqwest-eventsource", "0.6.0", &[]),
    published("reqwest-hickory-resolver", "0.4.0", &[]),
    published("reqwest-websocket", "0.6.0", &[]),
    published("reqwest_cookie_store", "0.10.0", &[]),
    published("resend-rs", "0.35.1", &[]),
    published("rmcp", "3.11.0", &["auth", "client", "transport-streamable-http-client-reqwest"]),
    published("rspotify-http", "0.16.1", &["client-reqwest"]),
    published("ruma-client", "0.20.0", &["client-api", "reqwest"]),
    published("rust-s3", "0.38.0", &[]),
    published("tendermint-rpc", "0.41.0", &["http-client"]),
    published("thirtyfour", "0.38.1", &["reqwest"]),
    published("tmdb-api", "1.0.0-alpha.5", &[]),
    published("tough", "0.24.0", &["http"]),
    published("tracing-loki", "0.2.7", &[]),
    published("twitch_api", "0.8.0", &["reqwest", "helix", "client"]),
    published("vaultrs", "0.8.0", &[]),
];

const TESTED: [Published; 5] = [
    published("progenitor-client", "0.15.1", &[]),
    published("reqwest-retry", "0.9.1", &[]),
    published("reqwest-streams", "0.20.0", &["csv", "json"]),
    published("reqwest-tracing", "0.7.1", &[]),
    published("rustify", "0.7.0", &[]),
];

/// A crate that a program runs, and one beside it: octocrab below lychee-lib has the crypto provider of reqwest's features otherwise.
const RUN: [Published; 2] =
    [published("lychee-lib", "0.24.2", &[]), published("hyper-rustls", "0.27.10", &["aws-lc-rs"])];

/// The crates that are only compiled in this run, at once: those that `MOVED_THIRD` names, which is 0, 1 or 2.
fn third() -> Option<Vec<&'static Published>> {
    let third: usize = env::var("MOVED_THIRD").ok()?.parse().unwrap();
    assert!(third < 3, "MOVED_THIRD={third}");
    Some(COMPILED.iter().chain(&TESTED).skip(third).step_by(3).collect())
}

#[test]
fn crates_on_reqwest_compile_by_rename_alone() {
    let third = third();
    // A third has one set of features, so that its dependencies are built once. Without it each crate has its own.
    let at_once = if third.is_some() { usize::MAX } else { 1 };
    let crates = third.unwrap_or(COMPILED.iter().collect());
    let workspace = Workspace::prepare("compiled", &crates, HttpClient::Speeddial);
    let failed: Vec<_> = crates.chunks(at_once).filter_map(|crates| workspace.check(crates).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_link_checker_finds_the_same_with_both_clients() {
    let server = serve_links();
    let [here, gone] = ["here", "gone"].map(|path| format!("http://{server}/{path}"));
    let expected = format!("{here} true\n{gone} false\n");
    for (name, client) in [("run", HttpClient::Speeddial), ("run-with-reqwest", HttpClient::Reqwest)] {
        let workspace = Workspace::prepare(name, &RUN.each_ref(), client);
        let printed = workspace.run(include_str!("check_links.rs"), &[here.clone(), gone.clone()]);
        assert_eq!(printed, expected, "{name}");
    }
}

/// Serves `/here` and nothing else. The link checker's default headers have a `Transfer-Encoding`, and its requests no body.
fn serve_links() -> SocketAddr {
    let answer = |mut stream: TcpStream| {
        let lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).map(|line| line.to_lowercase()).collect();
        let has_body = head.iter().any(|line| line.starts_with("transfer-encoding:"));
        let is_here = head.first().is_some_and(|line| line.contains(" /here "));
        let status = if is_here && !has_body { "200 OK" } else { "404 Not Found" };
        write!(stream, "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok").unwrap();
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().for_each(|stream| answer(stream.unwrap())));
    address
}

#[test]
fn tests_of_crates_on_reqwest_have_the_same_results() {
    let ours = Workspace::prepare("tested", &TESTED.each_ref(), HttpClient::Speeddial);
    let theirs = Workspace::prepare("tested-with-reqwest", &TESTED.each_ref(), HttpClient::Reqwest);
    for krate in &TESTED {
        let (ours, theirs) = (ours.test(krate), theirs.test(krate));
        assert!(theirs.values().any(|passed| *passed), "{}: no test passes with reqwest: {theirs:?}", krate.name);
        let differ: BTreeMap<_, _> = theirs.iter().filter(|(name, passed)| ours.get(*name) != Some(passed)).collect();
        assert!(differ.is_empty(), "{}: these differ from their results with reqwest: {differ:?}", krate.name);
    }
}

#[test]
fn the_document_has_a_row_for_each_crate() {
    let text = fs::read_to_string("../../docs/reqwest.md").unwrap();
    let missing: Vec<_> = COMPILED
        .iter()
        .map(|krate| format!("| `{}` {} | compiles |", krate.name, krate.version))
        .chain(TESTED.iter().map(|krate| format!("| `{}` {} | its tests pass |", krate.name, krate.version)))
        .chain(RUN[..1].iter().map(|krate| format!("| `{}` {} | a program over it runs |", krate.name, krate.version)))
        .filter(|row| !text.contains(row))
        .collect();
    assert!(missing.is_empty(), "docs/reqwest.md lacks:\n{}", missing.join("\n"));
}
