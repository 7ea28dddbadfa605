//! The rule of `docs/reqwest.md`: its rows are counted right, and a name that is the same is in the source.

use std::fs;
use std::path::Path;

use super::sources;

/// The share of names that must be the same, in percent.
const LEAST: usize = 95;

/// A row of the tables: a name of reqwest, and what it is here.
#[derive(Debug, PartialEq)]
struct Row<'a> {
    name: &'a str,
    is_same: bool,
}

/// Reads the rows of all tables.
fn rows(page: &str) -> Vec<Row<'_>> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    cells.map(|(name, rest)| Row { name, is_same: rest.starts_with("same |") }).collect()
}

/// Returns true if the source has a name: an implementation as it is written, a function, or a word.
fn has(source: &str, name: &str) -> bool {
    if let Some(implementation) = name.strip_prefix("impl ") {
        return source.contains(&format!(" {implementation} {{"));
    }
    let last = name.rsplit("::").next().unwrap_or_default();
    if last.starts_with(char::is_uppercase) {
        return source.split(|char: char| !char.is_alphanumeric() && char != '_').any(|word| word == last);
    }
    [format!("fn {last}("), format!("fn {last}<")].iter().any(|function| source.contains(function))
}

#[test]
fn names_that_are_the_same_are_in_the_source_and_are_most() {
    let sample = "| `Client::get` | same | |\n| `Client::x` | not | why |\n| `impl A for B` | same | |";
    let [get, x, implementation] = &rows(sample)[..] else { panic!("{sample}") };
    assert!(get.is_same && !x.is_same && implementation.is_same);
    assert!(has("pub fn get<T>(", "Client::get") && !has("fn gets(", "Client::get") && has("use Url;", "Url"));
    assert!(has("impl A for B {", "impl A for B") && !has("impl A for BC {", "impl A for B"));

    let page = fs::read_to_string("../docs/reqwest.md").unwrap();
    let rows = rows(&page);
    let all: String = sources(Path::new("../src"), "").into_iter().map(|(_, source)| source).collect();
    let missing: Vec<_> = rows.iter().filter(|row| row.is_same && !has(&all, row.name)).collect();
    assert_eq!(missing, Vec::<&Row<'_>>::new());
    let same = rows.iter().filter(|row| row.is_same).count();
    let claim = format!("**{same} of {} names are the same", rows.len());
    assert!(page.contains(&claim), "the page should say: {claim}");
    assert!(rows.len() > 250 && same * 100 >= LEAST * rows.len(), "{claim}");
}
