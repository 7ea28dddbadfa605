//! The figures in BENCHMARKS.md: each bench writes its own, between two comments.

use std::fs;
use std::io;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../BENCHMARKS.md");

/// Replaces the text between `<!-- name -->` and `<!-- /name -->`.
pub fn write(name: &str, text: &str) -> io::Result<()> {
    let start = format!("<!-- {name} -->\n");
    let end = format!("<!-- /{name} -->\n");
    let page = fs::read_to_string(PAGE)?;
    let missing = || io::Error::other(format!("BENCHMARKS.md has no place for {name}"));
    let (before, rest) = page.split_once(&start).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    fs::write(PAGE, format!("{before}{start}{text}{end}{after}"))
}
