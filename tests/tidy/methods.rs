//! Calls of a type's own methods between the files that have them: `self.x()`, where `x` is in another file's `impl` block. Imports do
//! not show them.

use std::collections::{BTreeMap, BTreeSet};

use crate::imports::Imports;

/// For each file, the files of its floor with methods that it calls on `self`.
pub(crate) fn calls(files: &[(String, String)]) -> Imports {
    let mut blocks = Vec::new();
    for (name, code) in files {
        let folder = name.split_once('/').map_or("", |(folder, _)| folder);
        blocks.extend(impls(code).into_iter().map(|(of, body)| ((folder, of), name, body)));
    }
    let mut defined: BTreeMap<_, BTreeSet<&String>> = BTreeMap::new();
    for (of, name, body) in &blocks {
        for method in words_after(body, "fn ") {
            defined.entry((*of, method)).or_default().insert(*name);
        }
    }
    let mut calls = Imports::new();
    for (of, name, body) in &blocks {
        let targets = called(body).into_iter().filter_map(|method| defined.get(&(*of, method))).flatten();
        calls
            .entry((*name).clone())
            .or_default()
            .extend(targets.filter(|file| *file != name).map(|file| (*file).clone()));
    }
    calls
}

/// The inherent `impl` blocks at the top level of a file: the type's name and the text.
fn impls(code: &str) -> Vec<(&str, &str)> {
    let starts = code.match_indices("\nimpl").map(|(at, _)| at + 1).chain(code.starts_with("impl").then_some(0));
    let block = |at: usize| {
        let body = &code[at..at + code[at..].find("\n}")?];
        let (head, body) = body.split_once('{')?;
        if head.contains(" for ") {
            return None;
        }
        // The name comes after the parameters of the block.
        let head = head.trim_start_matches("impl").trim_start();
        let head = if head.starts_with('<') { &head[end_of_parameters(head)..] } else { head };
        Some((head.trim().split(['<', ' ']).next()?, body))
    };
    starts.filter_map(block).collect()
}

fn end_of_parameters(head: &str) -> usize {
    let mut depth = 0;
    for (at, character) in head.char_indices() {
        match character {
            '<' => depth += 1,
            '>' if !head[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    head.len()
}

fn words_after<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    let word = |rest: &'a str| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next();
    text.split(before).skip(1).filter_map(word)
}

/// The methods that are called on `self`.
fn called(body: &str) -> BTreeSet<&str> {
    let mut methods = BTreeSet::new();
    for rest in body.split("self").skip(1) {
        if let Some(rest) = rest.trim_start().strip_prefix('.')
            && let Some(end) = rest.find(|c: char| !c.is_alphanumeric() && c != '_')
            && rest[end..].starts_with('(')
        {
            methods.insert(&rest[..end]);
        }
    }
    methods
}

#[test]
fn calls_on_self_are_found_across_files_and_lines() {
    let file = |name: &str, code: &str| (name.to_owned(), code.to_owned());
    let files = [
        file(
            "a/x.rs",
            "struct S;\nimpl<T: Fn() -> u8> S<T> {\n    fn one(&self) {\n        self\n            .two();\n    }\n}\n",
        ),
        file(
            "a/y.rs",
            "impl<T> S<T> {\n    fn two(&self) {\n        self.one(1)\n    }\n}\nimpl Other {\n    fn one() {}\n}\n",
        ),
        file("b/z.rs", "impl S {\n    fn three(&self) {\n        self.field.two();\n        self.two();\n    }\n}\n"),
    ];
    let calls = calls(&files);
    let of = |file: &str| calls[file].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!([of("a/x.rs"), of("a/y.rs"), of("b/z.rs")], [vec!["a/y.rs"], vec!["a/x.rs"], vec![]]);
}
