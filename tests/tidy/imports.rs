//! Imports between the files of the crate: each path in the code, resolved to the file that defines what it names.
//!
//! What a path names is found by its module tree alone: a path leads to the deepest module that it names, and through the `use`
//! declarations there to where the item comes from. Method calls are not followed.

use std::collections::{BTreeMap, BTreeSet};

/// For each file, the files that it imports from.
pub(crate) type Imports = BTreeMap<String, BTreeSet<String>>;

type Path = Vec<String>;

struct File {
    name: String,
    module: Path,
    /// All paths in the code, with groups taken apart.
    paths: Vec<Path>,
    /// The names that `use` declarations bring in, with their paths.
    uses: BTreeMap<String, Path>,
}

/// Reads the imports of `files`: names below `src`, and code without comments and tests.
pub(crate) fn imports(files: &[(String, String)]) -> Imports {
    let files: Vec<_> = files.iter().map(|(name, code)| read(name, code)).collect();
    let modules: BTreeMap<_, _> = files.iter().map(|file| (&file.module, file)).collect();
    let mut imports = Imports::new();
    for file in &files {
        let targets = file.paths.iter().filter_map(|path| resolve(&modules, file, path, 0));
        let targets = targets.filter(|target| *target != file.name).collect();
        imports.insert(file.name.clone(), targets);
    }
    imports
}

fn read(name: &str, code: &str) -> File {
    let module = name.trim_end_matches(".rs").trim_end_matches("mod").trim_end_matches('/');
    let module = match module {
        "lib" => Path::new(),
        module => module.split('/').map(str::to_owned).collect(),
    };
    let mut uses = BTreeMap::new();
    let mut paths = Vec::new();
    let (declarations, rest) = use_declarations(code);
    for (is_public, declaration) in declarations {
        for mut path in expand(declaration) {
            let name = match path.iter().position(|part| part == "as") {
                Some(at) => {
                    let name = path.pop();
                    path.truncate(at);
                    name
                }
                None => path.last().cloned(),
            };
            if path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            let Some(name) = name else { continue };
            // A plain re-export is no import.
            if !is_public || has_word(&rest, &name) {
                paths.push(path.clone());
            }
            uses.insert(name, path);
        }
    }
    // What is visible in a module imports nothing from it.
    paths.extend(inline_paths(&rest.replace("pub(in crate::", "pub(")));
    File { name: name.to_owned(), module, paths, uses }
}

/// The `use` declarations of a file, each with whether it is public, and the code without them.
fn use_declarations(code: &str) -> (Vec<(bool, &str)>, String) {
    let mut declarations = Vec::new();
    let mut rest = String::new();
    let mut from = 0;
    for (at, _) in code.match_indices("use ") {
        let starts_a_word = code[..at].chars().next_back().is_none_or(char::is_whitespace);
        if at < from || !starts_a_word {
            continue;
        }
        let line = code[..at].rsplit('\n').next().unwrap_or_default();
        let end = code[at..].find(';').map_or(code.len(), |length| at + length);
        declarations.push((line.trim_start().starts_with("pub"), &code[at + 4..end]));
        rest.push_str(&code[from..at]);
        from = end;
    }
    rest.push_str(&code[from..]);
    (declarations, rest)
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|found| found == word)
}

/// Takes `a::{b, c::{d, e as f}}` apart: `a::b`, `a::c::d`, `a::c::e::as::f`.
fn expand(tree: &str) -> Vec<Path> {
    let tree = tree.trim();
    let Some((before, group)) = tree.split_once('{') else {
        let path = tree.replace(" as ", "::as::");
        return vec![path.split("::").map(|part| part.trim().to_owned()).collect()];
    };
    let start: Path = before.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect();
    let group = group.trim_end().strip_suffix('}').unwrap_or(group);
    let mut depth = 0;
    let members = group.split(|letter| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        letter == ',' && depth == 0
    });
    let members = members.filter(|member| !member.trim().is_empty()).flat_map(expand);
    members.map(|member| start.iter().cloned().chain(member).collect()).collect()
}

/// The paths of two or more names, wherever they stand.
fn inline_paths(code: &str) -> Vec<Path> {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let words = code.split(|letter| !is_name(letter) && letter != ':');
    let paths = words.filter(|word| word.contains("::") && !word.starts_with(':'));
    paths.map(|path| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()).collect()
}

/// The file that defines what `path`, written in `file`, names; `None` if it is not in the crate.
fn resolve(modules: &BTreeMap<&Path, &File>, file: &File, path: &[String], depth: usize) -> Option<String> {
    let (first, mut rest) = path.split_first()?;
    let mut module = match first.as_str() {
        "crate" => Path::new(),
        "self" => file.module.clone(),
        "super" => file.module[..file.module.len().checked_sub(1)?].to_vec(),
        name => {
            let child: Path = file.module.iter().cloned().chain([name.to_owned()]).collect();
            if modules.contains_key(&child) {
                child
            } else {
                // A name that a `use` brought in was resolved there.
                return None;
            }
        }
    };
    while let Some((next, after)) = rest.split_first() {
        if next == "super" {
            module.pop()?;
        } else {
            module.push(next.clone());
            if !modules.contains_key(&module) {
                module.pop();
                break;
            }
        }
        rest = after;
    }
    let target = modules.get(&module)?;
    let defined = rest.first().and_then(|item| target.uses.get(item));
    if let Some(path) = defined
        && depth < 8
        && let Some(origin) = resolve(modules, target, path, depth + 1)
    {
        return Some(origin);
    }
    Some(target.name.clone())
}

/// The groups of files that import each other, directly or around a corner.
pub(crate) fn circles(imports: &Imports) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<_, _> = imports.keys().map(|file| (file, reachable(imports, file))).collect();
    let mut circles = BTreeSet::new();
    for (file, others) in &reached {
        let circle: BTreeSet<_> = others.iter().filter(|other| reached[other].contains(*file)).cloned().collect();
        if !circle.is_empty() {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

/// All files that `file` imports from, and those that these import from; itself only if they lead back to it.
fn reachable(imports: &Imports, file: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next: Vec<_> = imports[file].iter().cloned().collect();
    while let Some(file) = next.pop() {
        if found.insert(file.clone()) {
            next.extend(imports.get(&file).into_iter().flatten().cloned());
        }
    }
    found
}
