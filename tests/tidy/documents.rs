//! The rules of documents and examples: where links lead, where guides and sections are found, and which examples are published.

use std::fs;
use std::path::Path;

/// The targets of relative links in a Markdown text: `[text](target)`, without their fragments.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let targets = targets.map(|(target, _)| target.split('#').next().unwrap_or_default());
    targets.filter(|target| !target.is_empty() && !target.contains("://")).collect()
}

#[test]
fn links_in_documents_lead_to_files() {
    assert_eq!(links("see [a](docs/a.md#part) and [b](https://example.com/), [c](#part)"), ["docs/a.md"]);
    let root = Path::new("..");
    let mut documents: Vec<_> = ["", "docs/decisions"]
        .into_iter()
        .flat_map(|folder| fs::read_dir(root.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    documents.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    assert!(documents.len() > 10, "{documents:?}");
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        let folder = document.parent().unwrap();
        let missing: Vec<_> = links(&text).into_iter().filter(|link| !folder.join(link).exists()).collect();
        assert_eq!(missing, Vec::<&str>::new(), "in {}", document.display());
    }
}

/// Each guide is part of the documentation, and is found from its front page and from the list of guides, to which the README leads.
#[test]
fn every_guide_is_found() {
    let read = |path: &str| fs::read_to_string(path).unwrap();
    let (list, front, readme) = (read("../src/guide/mod.rs"), read("../src/lib.rs"), read("../README.md"));
    let files = fs::read_dir("../src/guide").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let guides: Vec<_> = files.filter_map(|file| file.strip_suffix(".md").map(str::to_owned)).collect();
    assert!(guides.len() > 10, "{guides:?}");
    for guide in guides {
        assert!(list.contains(&format!("include_str!(\"{guide}.md\")")), "{guide} is not in the documentation");
        assert!(list.contains(&format!("({guide})")), "{guide} is not in the list of guides");
        assert!(front.contains(&format!("(guide::{guide})")), "{guide} is not on the front page");
    }
    assert!(readme.contains("](src/guide)"), "the README does not lead to the guides");
}

/// The places that a text names as `file.rs`: `function`, `function`, each as its file and function. More functions may follow.
fn places(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (before, rest) in text.match_indices(".rs`: `").map(|(at, mark)| (&text[..at], &text[at + mark.len()..])) {
        let file = before.rsplit('`').next().unwrap_or_default();
        let mut rest = rest;
        while let Some((name, after)) = rest.split_once('`') {
            found.push((file, name));
            let Some(next) = after.strip_prefix(", `") else { break };
            if next.split('`').next().is_some_and(|next| next.contains('/') || next.contains(".rs")) {
                break;
            }
            rest = next;
        }
    }
    found
}

#[test]
fn places_in_the_architecture_are_where_it_says() {
    assert_eq!(places("`a/b.rs`: `c`, `d`, `e/f.rs`: `g`"), [("a/b", "c"), ("a/b", "d"), ("e/f", "g")]);
    let read = |path: &str| fs::read_to_string(path).unwrap();
    let mut wrong = Vec::new();
    for (document, folder) in [("../ARCHITECTURE.md", "../src/"), ("../src/pool/mod.rs", "../src/pool/")] {
        let text = read(document).replace("\n//! ", " ").replace("\n   ", " ");
        let places = places(&text);
        assert!(places.len() > 9, "{document}: {places:?}");
        // The names of tests are checked in `promises.rs`.
        for (file, name) in
            places.into_iter().filter(|(file, _)| !file.starts_with("tests/") && !file.starts_with("benches/"))
        {
            let code = fs::read_to_string(format!("{folder}{file}.rs")).unwrap_or_default();
            let is_there = ["fn ", "struct ", "enum ", "const ", "trait "].iter().any(|kind| {
                let defined = format!("{kind}{name}");
                code.match_indices(&defined).any(|(at, _)| {
                    !code[at + defined.len()..].starts_with(|next: char| next.is_alphanumeric() || next == '_')
                })
            });
            if !is_there {
                wrong.push(format!("{document}: {file}.rs has no {name}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The rows of the table of features in a Markdown text, whose lines may be doc comments.
fn feature_rows(text: &str) -> Vec<&str> {
    let lines = text.lines().map(|line| line.strip_prefix("//! ").unwrap_or(line));
    let table = lines.skip_while(|line| !line.starts_with("| feature |")).skip(2);
    table.take_while(|line| line.starts_with('|')).collect()
}

#[test]
fn the_front_page_and_the_readme_have_all_features() {
    let read = |path: &str| fs::read_to_string(path).unwrap();
    let (front, readme, manifest) = (read("../src/lib.rs"), read("../README.md"), read("../Cargo.toml"));
    let rows = feature_rows(&front);
    assert_eq!(rows, feature_rows(&readme));
    let names: Vec<_> = rows.iter().filter_map(|row| row.split('|').nth(1)).collect();
    let reqwests = crate::reqwest_names::features_of(&manifest);
    let of_users = |name: &&String| !name.starts_with("__") && *name != "default" && !reqwests.contains(*name);
    let features = crate::features(&manifest);
    let missing =
        features.keys().filter(of_users).filter(|name| !names.iter().any(|cell| cell.contains(&format!("`{name}`"))));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&String>::new(), "features without a row");
}

/// The code blocks of a guide, each with the text of its section before it.
fn snippets(guide: &str) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    let mut section = String::new();
    for (number, part) in guide.split("```").enumerate() {
        if number % 2 == 1 {
            found.push((section.clone(), part));
        } else if let Some((_, own)) = part.rsplit_once("\n# ") {
            own.clone_into(&mut section);
        } else {
            section.push_str(part);
        }
    }
    found
}

/// The features without which a code block is not compiled, by its hidden lines. Those for TLS are on by default.
fn features_of_snippet(snippet: &str) -> Vec<&str> {
    let lines = snippet.lines().filter(|line| line.starts_with("# #[cfg("));
    let names = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
    names.filter(|name| !["tls", "tls-ring", "charset"].contains(name)).collect()
}

#[test]
fn guides_say_which_features_their_examples_need() {
    let example =
        "\n# One\nNeeds `x`.\n```\n# #[cfg(feature = \"x\")]\n```\n# Two\n```\n# #[cfg(feature = \"x\")]\n```\n";
    let unsaid = |guide: &str| {
        let snippets = snippets(guide).into_iter();
        let needs = snippets
            .flat_map(|(text, code)| features_of_snippet(code).into_iter().map(move |name| (text.clone(), name)));
        let unsaid = needs.filter(|(text, name)| !text.contains(&format!("`{name}`")));
        unsaid.map(|(_, name)| name.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(unsaid(example), ["x"], "only the second section does not say so");
    for file in fs::read_dir("../src/guide").unwrap() {
        let path = file.unwrap().path();
        let guide = fs::read_to_string(&path).unwrap();
        assert_eq!(unsaid(&guide), Vec::<String>::new(), "features of {}", path.display());
    }
}

/// Examples can be run in a clone alone, not by those who have the crate as a dependency.
#[test]
fn guides_say_where_their_commands_work() {
    for file in fs::read_dir("../src/guide").unwrap() {
        let path = file.unwrap().path();
        let guide = fs::read_to_string(&path).unwrap();
        for section in guide.split("\n# ").filter(|section| section.contains("cargo run")) {
            let said = section.matches("clone of the repository").count();
            let paragraphs = section.split("\n\n").filter(|paragraph| paragraph.contains("cargo run")).count();
            assert!(said >= paragraphs, "{}: {section}", path.display());
        }
    }
}

/// Each bench begins with the section of BENCHMARKS.md whose claim it makes.
#[test]
fn benches_name_a_section_of_the_benchmarks() {
    let page = fs::read_to_string("../BENCHMARKS.md").unwrap();
    let headings: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let manifest = fs::read_to_string("../benches/Cargo.toml").unwrap();
    let paths = manifest.lines().filter_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"'));
    let mut benches: Vec<_> = paths.map(|path| format!("../benches/{path}")).collect();
    assert!(benches.len() > 8, "{benches:?}");
    benches.extend(
        [
            "../benches/instructions/instructions.rs",
            "../examples/soak/main.rs",
            "alone/allocations.rs",
            "alone/many_hosts.rs",
            "neighbours/dynamodb.rs",
        ]
        .map(str::to_owned),
    );
    for bench in benches {
        let source = fs::read_to_string(&bench).unwrap();
        let head: Vec<_> = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
        let head = head.join(" ");
        let (_, section) = head.split_once("section ").unwrap_or_else(|| panic!("{bench} names no section"));
        assert!(headings.iter().any(|heading| section.starts_with(heading)), "{bench}: {section}");
    }
}

/// Returns the items of the list `exclude` in a manifest. Each begins with `/`, because a folder of that name may be below `src` as well.
fn excluded(manifest: &str) -> Vec<&str> {
    let (_, rest) = manifest.split_once("\nexclude = [").unwrap();
    let (list, _) = rest.split_once(']').unwrap();
    list.split(',').map(|item| item.trim().trim_matches('"')).filter(|item| !item.is_empty()).collect()
}

/// An example that uses the servers of the tests cannot be built outside of the repository. Folders with a manifest are packages of
/// their own.
#[test]
fn examples_that_use_the_support_crate_are_not_published() {
    let manifest = fs::read_to_string("../Cargo.toml").unwrap();
    let excluded = excluded(&manifest);
    assert!(excluded.iter().all(|item| item.starts_with('/')), "{excluded:?}");
    let mut users = Vec::new();
    for entry in fs::read_dir("../examples").unwrap() {
        let path = entry.unwrap().path();
        if path.join("Cargo.toml").exists() {
            continue;
        }
        let files = match path.is_dir() {
            true => fs::read_dir(&path).unwrap().map(|file| file.unwrap().path()).collect(),
            false => vec![path.clone()],
        };
        let uses_support = |file: &std::path::PathBuf| {
            let source = fs::read_to_string(file).unwrap_or_default();
            source.lines().any(|line| !line.trim_start().starts_with("//") && line.contains("support::"))
        };
        if files.iter().any(uses_support) {
            users.push(format!("/examples/{}", path.file_name().unwrap().to_str().unwrap()));
        }
    }
    assert!(users.len() >= 4, "{users:?}");
    users.retain(|user| !excluded.contains(&user.as_str()));
    assert_eq!(users, Vec::<String>::new(), "`exclude` in Cargo.toml must list them");
}
