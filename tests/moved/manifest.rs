//! Manifests as a registry has them, whose dependencies are tables of their own, and what is changed in them.

use std::path::Path;

/// The tables of a manifest, each from its header to the next one.
fn tables(manifest: &str) -> impl Iterator<Item = &str> {
    let starts: Vec<_> = std::iter::once(0).chain(manifest.match_indices("\n[").map(|(at, _)| at + 1)).collect();
    let ends: Vec<_> = starts.iter().skip(1).copied().chain([manifest.len()]).collect();
    starts.into_iter().zip(ends).map(|(start, end)| &manifest[start..end])
}

/// The header of a table, without brackets.
fn header(table: &str) -> &str {
    table.lines().next().unwrap_or_default().trim_matches(['[', ']'])
}

/// Returns true for the table of a dependency on reqwest, under whichever name.
fn is_reqwest(table: &str) -> bool {
    let Some((kind, name)) = header(table).rsplit_once('.') else { return false };
    let package = table.lines().find_map(|line| line.strip_prefix("package = "));
    kind.ends_with("dependencies") && package.map_or(name == "reqwest", |package| package == "\"reqwest\"")
}

/// Makes speeddial of reqwest. Nothing else is changed.
pub(crate) fn renamed(manifest: &str, speeddial: &Path) -> String {
    let rename = |table: &str| {
        if !is_reqwest(table) {
            return table.to_owned();
        }
        let (header, rest) = table.split_once('\n').unwrap_or((table, ""));
        let kept = rest.lines().filter(|line| !line.starts_with("version = ") && !line.starts_with("package = "));
        let rest = kept.map(|line| format!("{line}\n")).collect::<String>();
        format!("{header}\npackage = \"speeddial\"\npath = {speeddial:?}\n{rest}")
    };
    tables(manifest).map(rename).collect()
}

/// Leaves out what belongs to a crate's own repository: its workspace, its profiles and, if no test is built, what tests need.
pub(crate) fn as_dependency(manifest: &str, keeps_tests: bool) -> String {
    let is_left_out = |table: &&str| {
        let header = header(table);
        let of_tests = header.contains("dev-dependencies");
        header.starts_with("workspace") || header.starts_with("profile") || (of_tests && !keeps_tests)
    };
    tables(manifest).filter(|table| !is_left_out(table)).collect()
}

#[test]
fn a_dependency_on_reqwest_is_renamed_and_no_other() {
    let manifest = "[package]\nname = \"sdk\"\n\n[dependencies.bytes]\nversion = \"1\"\n\n[dependencies.reqwest]\nversion = \"0.13.1\"\n\
        features = [\"json\"]\ndefault-features = false\n\n[target.\"cfg(unix)\".dev-dependencies.old]\nversion = \"0.12\"\n\
        package = \"reqwest\"\n\n[dependencies.reqwest-retry]\nversion = \"0.9\"\n";
    let expected = "[package]\nname = \"sdk\"\n\n[dependencies.bytes]\nversion = \"1\"\n\n[dependencies.reqwest]\npackage = \"speeddial\"\n\
        path = \"/s\"\nfeatures = [\"json\"]\ndefault-features = false\n\n[target.\"cfg(unix)\".dev-dependencies.old]\n\
        package = \"speeddial\"\npath = \"/s\"\n\n[dependencies.reqwest-retry]\nversion = \"0.9\"\n";
    assert_eq!(renamed(manifest, Path::new("/s")), expected);
    assert!(
        !as_dependency(manifest, false).contains("package = \"reqwest\"") && as_dependency(manifest, true) == manifest
    );
}
