//! The commands of documents: what they name exists, has the features that it needs, and is run by CI.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The documents with commands.
fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "BENCHMARKS.md", "ARCHITECTURE.md"]
        .iter()
        .map(|name| Path::new("..").join(name))
        .collect();
    for folder in
        ["../src/guide", "../examples", "../examples/neighbours", "../benches", "../docs/decisions", "../tests"]
    {
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        found.extend(files.filter(|file| file.extension().is_some_and(|end| end == "md" || end == "rs")));
    }
    found
}

/// The commands of cargo in a text, each as its words.
fn commands(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().flat_map(|line| line.match_indices("cargo ").map(move |(at, _)| &line[at..]));
    let ends = |character: char| "`|#&;'\"".contains(character);
    let commands = lines.map(|rest| rest.split(ends).next().unwrap_or_default().split_whitespace().collect::<Vec<_>>());
    commands.filter(|words| words.len() > 1 && ["run", "test", "bench", "build"].contains(&words[1])).collect()
}

/// The values of an option, each list of features taken apart.
fn values<'a>(words: &[&'a str], option: &str) -> Vec<&'a str> {
    let of_cargo = words.split(|word| *word == "--").next().unwrap_or_default();
    let pairs = of_cargo.windows(2).filter(|pair| pair[0] == option);
    pairs.flat_map(|pair| pair[1].split(',')).filter(|value| *value != "…" && *value != "X").collect()
}

/// The programs of a kind in a manifest that are named there, with the features that they need.
fn named(manifest: &str, kind: &str) -> BTreeMap<String, Vec<String>> {
    let sections = manifest.split("\n[").filter(|section| section.starts_with(&format!("[{kind}]]")));
    let quoted = |line: &str| line.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let line =
        |section: &str, key: &str| section.lines().find(|line| line.starts_with(key)).map(quoted).unwrap_or_default();
    sections.map(|section| (line(section, "name").concat(), line(section, "required-features"))).collect()
}

/// The programs of a kind: those named in manifests, and those that cargo finds in a folder.
fn programs(kind: &str, folder: &str, manifests: &[&str]) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").exists() {
            found.insert(path.file_stem().unwrap().to_str().unwrap().to_owned(), Vec::new());
        }
    }
    for manifest in manifests {
        found.extend(named(&fs::read_to_string(manifest).unwrap(), kind));
    }
    found
}

#[test]
fn commands_of_documents_name_what_exists_and_ci_runs_the_examples() {
    let manifest = fs::read_to_string("../Cargo.toml").unwrap();
    let features = crate::features(&manifest);
    let defaults: BTreeSet<_> = features["default"].iter().cloned().collect();
    let examples = programs(
        "example",
        "../examples",
        &["../Cargo.toml", "../examples/httpstat/Cargo.toml", "../examples/neighbours/Cargo.toml"],
    );
    let tests = programs("test", ".", &["Cargo.toml"]);
    let benches = programs(
        "bench",
        "../benches",
        &["../benches/Cargo.toml", "../benches/instructions/Cargo.toml", "../tests/neighbours/Cargo.toml"],
    );
    let ci = fs::read_to_string("../.ci/run").unwrap();
    let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for words in commands(&text) {
            let has_all = words.contains(&"--all-features");
            let given = values(&words, "--features");
            let mut check = |holds: bool, what: &str| {
                if !holds {
                    wrong.push(format!("{}: {}: {what}", document.display(), words.join(" ")));
                }
            };
            given.iter().for_each(|feature| check(features.contains_key(*feature), &format!("no feature {feature}")));
            for (option, known) in [("--example", &examples), ("--test", &tests), ("--bench", &benches)] {
                for name in values(&words, option) {
                    let Some(needed) = known.get(name) else {
                        check(false, &format!("no {name}"));
                        continue;
                    };
                    let missing =
                        |feature: &&String| !given.contains(&feature.as_str()) && !defaults.contains(*feature);
                    let missing: Vec<_> = needed.iter().filter(missing).collect();
                    check(has_all || missing.is_empty() || words.contains(&"-p"), &format!("{name} needs {missing:?}"));
                    if option == "--example" && !words.contains(&"-p") {
                        seen.insert(name.to_owned());
                        let is_run = ci.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name);
                        check(is_run, "CI runs no such example");
                    }
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(seen.len() > 10, "{seen:?}");
}

#[test]
fn a_wrong_command_is_found() {
    let text = "`cargo run --features tower,json --example layers`; then cargo test --test nothing -- --test x # y";
    let found = commands(text);
    assert_eq!(found.len(), 2);
    assert_eq!(values(&found[0], "--features"), ["tower", "json"]);
    assert_eq!((values(&found[0], "--example"), values(&found[1], "--test")), (vec!["layers"], vec!["nothing"]));
}
