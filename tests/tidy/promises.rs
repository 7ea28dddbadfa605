//! The tables of promises: each row names at least one test, and each test that is named exists.

use std::fs;

/// The rows of all tables in a text, without their headings, each as its cells.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let mut rows = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_heading = lines.peek().is_some_and(|next| next.starts_with("|---"));
        if line.starts_with("| ") && !is_heading {
            rows.push(line.trim_matches('|').split(" | ").map(str::trim).collect());
        }
    }
    rows
}

/// The tests that a cell names: `path`: `name`, `name`; `path`: `name`.
fn tests(cell: &str) -> Vec<(&str, &str)> {
    let mut path = "";
    let mut found = Vec::new();
    for word in cell.split('`').skip(1).step_by(2) {
        match word.ends_with(".rs") {
            true => path = word,
            false => found.push((path, word)),
        }
    }
    found
}

/// What is wrong with the rows: a row without a test, and tests that do not exist. `read` returns the file at a path.
fn broken(rows: &[Vec<&str>], read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut broken = Vec::new();
    for row in rows {
        let named = tests(row.last().expect("a row has cells"));
        if named.is_empty() {
            broken.push(format!("no test: {}", row[0]));
        }
        for (path, name) in named {
            if !read(path).is_some_and(|source| is_test(path, name, &source)) {
                broken.push(format!("no `{name}` in `{path}`"));
            }
        }
    }
    broken
}

/// Returns true if a file has a test of this name: a function with an attribute that makes it one. Benches, and the tests that
/// `descriptors.rs` runs by itself, have none.
fn is_test(path: &str, name: &str, source: &str) -> bool {
    let Some((before, _)) = source.split_once(&format!("fn {name}(")) else { return false };
    let attributes = before.lines().rev().take(5).filter(|line| line.trim_start().starts_with("#["));
    let is_marked = attributes.into_iter().any(|line| line.contains("test"));
    is_marked || path.starts_with("benches/") || path.ends_with("/descriptors.rs")
}

/// Reads a file of the repository. Paths are below `src`, unless they begin with another folder of the root.
fn read(path: &str) -> Option<String> {
    let folder = if ["src/", "tests/", "benches/"].iter().any(|root| path.starts_with(root)) { ".." } else { "../src" };
    fs::read_to_string(format!("{folder}/{path}")).ok()
}

/// Returns the section of a document under this heading.
fn section<'a>(document: &'a str, heading: &str) -> &'a str {
    let (_, rest) = document.split_once(&format!("\n## {heading}")).expect("the document has this section");
    rest.split_once("\n## ").map_or(rest, |(section, _)| section)
}

#[test]
fn each_promise_names_tests_that_exist() {
    let document = fs::read_to_string("../ARCHITECTURE.md").unwrap();
    let rows = rows(section(&document, "8. "));
    assert!(rows.len() >= 55, "{} rows", rows.len());
    assert_eq!(broken(&rows, read), Vec::<String>::new());
}

/// That it ends, and that it says nothing of its neighbours.
#[test]
fn each_fact_that_is_remembered_names_tests_that_exist() {
    let document = fs::read_to_string("../ARCHITECTURE.md").unwrap();
    let (_, part) = document.split_once("### What is remembered beyond a call").expect("the document has this part");
    let rows = rows(part.split_once("\n### ").expect("another part follows").0);
    assert!(rows.len() >= 20, "{} rows", rows.len());
    assert_eq!(broken(&rows, read), Vec::<String>::new());
}

#[test]
fn each_hostile_input_names_tests_that_exist() {
    let document = fs::read_to_string("../SECURITY.md").unwrap();
    let rows = rows(section(&document, "Hostile inputs tried"));
    assert!(rows.len() >= 15, "{} rows", rows.len());
    assert_eq!(broken(&rows, read), Vec::<String>::new());
}

#[test]
fn a_row_without_a_test_and_a_test_that_is_gone_are_found() {
    let text = "| what | tests |\n|---|---|\n| a `b` | `x.rs`: `one`, `two`; `y.rs`: `three` |\n| c | none |";
    let rows = rows(text);
    assert_eq!(rows.len(), 2);
    let read = |path: &str| (path == "x.rs").then(|| "#[test]\nfn one() {}\n#[test]\nfn two_more() {}".to_owned());
    assert_eq!(broken(&rows, read), ["no `two` in `x.rs`", "no `three` in `y.rs`", "no test: c"]);
    let no_test = |_: &str| Some("fn one() {}\nfn two() {}\nfn three() {}".to_owned());
    assert_eq!(broken(&rows, no_test).len(), 4);
}
