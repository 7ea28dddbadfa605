//! The rule of `docs/reqwest.md`: its rows are counted right, and a name that is the same is in the source.

use std::collections::BTreeSet;
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

/// The features of the manifest that have the names of reqwest's.
pub(super) fn features_of(manifest: &str) -> BTreeSet<String> {
    let (_, part) = manifest.split_once("\n# Last: the features of reqwest ").unwrap();
    let (part, _) = part.split_once("\n[").unwrap();
    part.lines().filter_map(|line| Some(line.split_once(" = [")?.0.to_owned())).collect()
}

/// The names of features in the guide's table.
fn features_in_guide(guide: &str) -> BTreeSet<String> {
    let (_, table) = guide.split_once("\n# Names of features\n").unwrap();
    let (table, _) = table.split_once("\n# ").unwrap();
    let cells = table.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once("` | ")?.0));
    cells.flat_map(|cell| cell.split("`, `")).map(str::to_owned).collect()
}

#[test]
fn the_guide_has_each_feature_of_reqwest() {
    let manifest = fs::read_to_string("../Cargo.toml").unwrap();
    let guide = fs::read_to_string("../src/guide/moving_from_reqwest.md").unwrap();
    let public: BTreeSet<_> = features_of(&manifest).into_iter().filter(|name| !name.starts_with("__")).collect();
    assert_eq!(public, features_in_guide(&guide).into_iter().filter(|name| name != "default").collect());
}

/// Returns true if the source has a name: an implementation as it is written, a function or constant of its type, a public
/// function, or a word.
fn has(source: &str, name: &str) -> bool {
    if let Some(implementation) = name.strip_prefix("impl ") {
        return source.contains(&format!(" {implementation} {{"));
    }
    let mut path = name.rsplit("::");
    let last = path.next().unwrap_or_default();
    match path.next().filter(|parent| parent.starts_with(char::is_uppercase)) {
        Some(parent) => {
            let parent = defined(source, parent);
            let derives = last == "default" && source.contains(&format!("Default)]\npub struct {parent}"));
            derives || blocks(source, parent).any(|block| block.has(last))
        }
        None if last.starts_with(char::is_uppercase) => words(source).any(|word| word == last),
        None => source.lines().any(|line| is_public(line) && is_item(line, last)),
    }
}

/// Returns the name under which a type is defined: another one if the source exports it `as` this name.
fn defined<'a>(source: &'a str, name: &'a str) -> &'a str {
    let mut exports = source.lines().filter(|line| is_public(line) && line.contains(" use "));
    let other_name = exports.find_map(|export| {
        let words: Vec<_> = words(export).collect();
        words.windows(3).find(|three| three[1] == "as" && three[2] == name).map(|three| three[0])
    });
    other_name.unwrap_or(name)
}

/// The items of a type: those of an implementation, or of a trait.
struct Block<'a> {
    /// True if all items are as public as the trait that they belong to.
    is_of_trait: bool,
    items: &'a str,
}

impl Block<'_> {
    fn has(&self, item: &str) -> bool {
        self.items.lines().any(|line| is_item(line, item) && (self.is_of_trait || is_public(line)))
    }
}

/// Returns the implementations of a type, and the trait of that name. Each ends with a brace at the beginning of a line.
fn blocks<'a>(source: &'a str, name: &'a str) -> impl Iterator<Item = Block<'a>> {
    let starts = source.match_indices("\nimpl").chain(source.match_indices("\npub trait "));
    starts.filter_map(move |(start, _)| {
        let block = source[start + 1..].split("\n}").next()?;
        let (header, items) = block.split_once('\n').filter(|(header, _)| !header.ends_with("{}"))?;
        let is_of_trait = header.contains(" for ") || header.starts_with("pub trait ");
        let subject = header.rsplit(" for ").next()?;
        let subject = subject.trim_start_matches("impl").trim_start_matches("pub trait ");
        let is_subject = match subject.strip_prefix('<') {
            Some(generic) => generic.split_once("> ").is_some_and(|(_, subject)| words(subject).next() == Some(name)),
            None => words(subject).next() == Some(name),
        };
        is_subject.then_some(Block { is_of_trait, items })
    })
}

/// Returns the words of the source, without the empty ones between two other characters.
fn words(source: &str) -> impl DoubleEndedIterator<Item = &str> {
    source.split(|char: char| !char.is_alphanumeric() && char != '_').filter(|word| !word.is_empty())
}

fn is_public(line: &str) -> bool {
    line.trim_start().starts_with("pub ")
}

/// Returns true if a line begins a function or a constant of this name.
fn is_item(line: &str, name: &str) -> bool {
    ["fn ", "const "].iter().any(|keyword| {
        let rest = line.split_once(keyword).and_then(|(_, rest)| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with(['(', '<', ':']))
    })
}

#[test]
fn names_that_are_the_same_are_in_the_source_and_are_most() {
    let sample = "| `Client::get` | same | |\n| `Client::x` | not | why |\n| `impl A for B` | same | |";
    let [get, x, implementation] = &rows(sample)[..] else { panic!("{sample}") };
    assert!(get.is_same && !x.is_same && implementation.is_same);
    assert!(has("use Url;", "Url") && !has("use Urls;", "Url"));
    assert!(has("impl A for B {", "impl A for B") && !has("impl A for BC {", "impl A for B"));
    let of_client = |item: &str| has(&format!("\nimpl<T> Client<T> {{\n{item}\n}}\nfn x() {{\n}}"), "Client::get");
    assert!(of_client("    pub async fn get<T>(") && of_client("    pub const get: u8 = 1;"));
    assert!(!of_client("    fn get(") && !of_client("    pub(crate) fn get(") && !of_client("    pub fn gets("));
    assert!(!has("\nimpl Other {\n    pub fn get(\n}", "Client::get"));
    assert!(!has("\nimpl Client {\n}\nimpl Other {\n    pub fn get(\n}", "Client::get"));
    assert!(has("\nimpl Default for Client {\n    fn default() {\n}", "Client::default"));
    assert!(has("\npub use policy::{Action, Policy as Client};\nimpl Policy {\n    pub fn get(\n}", "Client::get"));
    assert!(has("pub fn for_host<S>(", "retry::for_host") && !has("fn for_host<S>(", "retry::for_host"));

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
