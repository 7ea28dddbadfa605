//! A workspace in the target directory with copies of published crates.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::Published;
use super::manifest::{as_dependency, renamed};

/// The HTTP client of the copies.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum HttpClient {
    Reqwest,
    Speeddial,
}

/// A package of the registry: its name and version.
type Id = (String, String);

pub(crate) struct Workspace {
    root: PathBuf,
    crates: Vec<&'static Published>,
    client: HttpClient,
    /// The packages that were copied.
    copies: BTreeSet<Id>,
}

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

impl Workspace {
    /// Copies the crates, and what they need that is built on reqwest.
    pub(crate) fn prepare(name: &str, crates: &[&'static Published], client: HttpClient) -> Self {
        let root = repository().join("target/moved").join(name);
        let _ = fs::remove_dir_all(&root);
        let mut workspace = Self { root, crates: crates.to_vec(), client, copies: BTreeSet::new() };
        loop {
            workspace.write();
            let left = workspace.left();
            if left.is_empty() {
                return workspace;
            }
            for (id, source) in left {
                workspace.copy(id, &source);
            }
        }
    }

    /// Builds crates without their tests, and each with the features that any of them needs of its dependencies.
    ///
    /// # Errors
    /// The compiler's errors.
    pub(crate) fn check(&self, crates: &[&Published]) -> Result<(), String> {
        let output = self.cargo(&["check", "--quiet", "--keep-going"], crates);
        match output.status.success() {
            true => Ok(()),
            // One that a signal has ended says nothing by itself.
            false => Err(format!("{}\n{}", output.status, String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// Runs a crate's own tests. Returns for each whether it passed.
    pub(crate) fn test(&self, krate: &Published) -> BTreeMap<String, bool> {
        results(&self.cargo(&["test", "--no-fail-fast"], &[krate]))
    }

    /// Runs a program that needs all the crates, with its source and arguments. Returns what it prints.
    pub(crate) fn run(&self, program: &str, arguments: &[String]) -> String {
        fs::write(self.root.join("all/src/main.rs"), program).unwrap();
        let output = self.command(&["run", "--quiet", "-p", "all", "--"]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn cargo(&self, command: &[&str], crates: &[&Published]) -> Output {
        let mut cargo = self.command(command);
        for Published { name, version, features } in crates {
            cargo.arg("-p").arg(format!("{name}@{version}"));
            cargo.args(features.iter().flat_map(|feature| ["--features".to_owned(), format!("{name}/{feature}")]));
        }
        cargo.args(["--color", "never"]).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut cargo = cargo_in(&self.root);
        cargo.args(arguments);
        cargo
    }

    /// Returns where the copy of a package is, from the workspace's root.
    fn place((name, version): &Id) -> String {
        format!("copies/{name}-{version}")
    }

    fn is_listed(&self, (name, version): &Id) -> bool {
        self.crates.iter().any(|krate| krate.name == name && krate.version == version)
    }

    /// Writes the manifest of the workspace, and that of a package which needs all the crates.
    fn write(&self) {
        let mut all =
            "[package]\nname = \"all\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n".to_owned();
        all.push_str("tokio = { version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }\n");
        for Published { name, version, features } in &self.crates {
            writeln!(all, "{name} = {{ version = \"={version}\", features = {features:?} }}").unwrap();
        }
        fs::create_dir_all(self.root.join("all/src")).unwrap();
        fs::write(self.root.join("all/src/lib.rs"), "").unwrap();
        fs::write(self.root.join("all/Cargo.toml"), all).unwrap();
        let (members, others): (Vec<_>, Vec<_>) = self.copies.iter().partition(|id| self.is_listed(id));
        let quoted = |ids: Vec<&Id>| ids.into_iter().map(Self::place).collect::<Vec<_>>();
        let members: Vec<_> = std::iter::once("all".to_owned()).chain(quoted(members)).collect();
        let mut manifest =
            format!("[workspace]\nresolver = \"2\"\nmembers = {members:?}\nexclude = {:?}\n\n", quoted(others));
        // C code compiled as for the repository's own workspace is found in the cache of a compiler that has one.
        manifest.push_str("[profile.dev]\ndebug = false\n\n[profile.dev.package.aws-lc-sys]\nopt-level = 3\n\n");
        manifest.push_str("[patch.crates-io]\n");
        for (number, id) in self.copies.iter().enumerate() {
            writeln!(manifest, "p{number} = {{ package = {:?}, path = {:?} }}", id.0, Self::place(id)).unwrap();
        }
        fs::write(self.root.join("Cargo.toml"), manifest).unwrap();
    }

    /// Returns the packages of the registry that are still to be copied, with their manifests.
    fn left(&self) -> BTreeMap<Id, PathBuf> {
        let mut cargo = Command::new(env!("CARGO"));
        let output = cargo.current_dir(&self.root).args(["metadata", "--format-version", "1"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut left = BTreeMap::new();
        for package in metadata["packages"].as_array().unwrap() {
            let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
            let id = (text("name"), text("version"));
            let needs = package["dependencies"].as_array().unwrap().iter();
            let needs_reqwest = needs.filter(|need| need["name"] == "reqwest").any(|need| need["kind"] != "dev");
            let is_moved = needs_reqwest && self.client == HttpClient::Speeddial;
            if text("source").starts_with("registry+") && (self.is_listed(&id) || is_moved) {
                left.insert(id, PathBuf::from(text("manifest_path")));
            }
        }
        left
    }

    fn copy(&mut self, id: Id, manifest_path: &Path) {
        let to = self.root.join(Self::place(&id));
        copy_folder(manifest_path.parent().unwrap(), &to);
        let keeps_tests = self.root.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tested"));
        let manifest = as_dependency(&fs::read_to_string(manifest_path).unwrap(), keeps_tests && self.is_listed(&id));
        let manifest = match self.client {
            HttpClient::Reqwest => manifest,
            HttpClient::Speeddial => renamed(&manifest, &repository()),
        };
        fs::write(to.join("Cargo.toml"), manifest).unwrap();
        self.copies.insert(id);
    }
}

fn cargo_in(root: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).env("CARGO_TARGET_DIR", repository().join("target/moved/target"));
    // Whatever the crates' authors are warned of is for their own compiler.
    cargo.env("RUSTFLAGS", "--cap-lints allow").env_remove("RUST_BACKTRACE");
    cargo
}

/// Runs cargo in a folder, and returns for each test whether it passed.
pub(crate) fn test_results(root: &Path, arguments: impl Iterator<Item = String>) -> BTreeMap<String, bool> {
    let output = cargo_in(root).args(arguments).output().unwrap();
    let results = results(&output);
    assert!(!results.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    results
}

/// Returns for each test that cargo ran whether it passed.
fn results(output: &Output) -> BTreeMap<String, bool> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| line.strip_prefix("test ")?.rsplit_once(" ... ")).filter_map(result).collect()
}

/// Returns whether a test passed; nothing for one that was not run.
fn result((name, result): (&str, &str)) -> Option<(String, bool)> {
    match result {
        "ok" => Some((name.to_owned(), true)),
        "FAILED" => Some((name.to_owned(), false)),
        _ => None,
    }
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        // Settings of cargo and of toolchains are those of the crate's own repository.
        if matches!(
            entry.file_name().to_str(),
            Some(".cargo" | "Cargo.lock" | "rust-toolchain" | "rust-toolchain.toml")
        ) {
            continue;
        }
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}
