//! reqwest's own tests of its asynchronous client, with reqwest and with speeddial in its place.
//!
//! They are in its repository alone: `REQWEST=path/to/a/clone` names one, of a version from 0.13.4 on. Some need the internet, or a route to
//! addresses that do not answer; without it they fail with both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{env, fs};

use super::workspace::{HttpClient, copy_folder, repository, test_results};

/// The tests that pass with reqwest and not with speeddial. `docs/reqwest.md` says why.
const DIFFERENT: [&str; 5] = [
    "client: http1_reason_phrase",
    "redirect: test_invalid_location_stops_redirect_gh484",
    "redirect: test_invalid_scheme_is_rejected",
    "redirect: test_redirect_removes_sensitive_headers",
    "redirect: test_scheme_only_check_after_policy_return_follow",
];

/// The files of tests for other clients and protocols.
const LEFT_OUT: [&str; 3] = ["blocking", "http3", "wasm_simple"];

/// Runs the tests. Returns for each, with its file, whether it passed.
fn results(clone: &Path, client: HttpClient) -> BTreeMap<String, bool> {
    let (name, dependency) = match client {
        HttpClient::Reqwest => ("suite-with-reqwest", "version = \"0.13.5\", default-features = false".to_owned()),
        HttpClient::Speeddial => ("suite", format!("package = \"speeddial\", path = {:?}", repository())),
    };
    let root = repository().join("target/moved").join(name);
    let _ = fs::remove_dir_all(&root);
    copy_folder(&clone.join("tests"), &root.join("tests"));
    fs::create_dir(root.join("src")).unwrap();
    fs::write(root.join("src/lib.rs"), "").unwrap();
    let manifest = include_str!("suite.toml").replace("\nreqwest = { ", &format!("\nreqwest = {{ {dependency}, "));
    fs::write(root.join("Cargo.toml"), manifest).unwrap();
    let files = fs::read_dir(root.join("tests")).unwrap().map(|entry| entry.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let names = sources.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
    let wanted = names.filter(|name| !LEFT_OUT.contains(&name.as_str()));
    // Several files have tests of the same names.
    let of_file = |file: String| {
        let results = test_results(&root, ["test", "--no-fail-fast", "--test", &file].map(str::to_owned).into_iter());
        results.into_iter().map(move |(test, passed)| (format!("{file}: {test}"), passed))
    };
    wanted.flat_map(of_file).collect()
}

#[test]
fn reqwests_own_tests_have_the_same_results_but_for_those_that_are_listed() {
    let Some(clone) = env::var_os("REQWEST") else {
        eprintln!("SKIPPED: reqwest's own tests (REQWEST=path/to/a/clone of its repository)");
        return;
    };
    let [theirs, ours] = [HttpClient::Reqwest, HttpClient::Speeddial].map(|client| results(Path::new(&clone), client));
    let passed = |results: &BTreeMap<String, bool>| results.values().filter(|passed| **passed).count();
    println!("{} tests: {} pass with reqwest, {} with speeddial", theirs.len(), passed(&theirs), passed(&ours));
    let differs = |(name, passed): &(&String, &bool)| **passed && ours.get(*name) != Some(&true);
    let different: BTreeSet<_> = theirs.iter().filter(differs).map(|(name, _)| name.as_str()).collect();
    assert_eq!(different, BTreeSet::from(DIFFERENT));
}
