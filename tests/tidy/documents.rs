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
