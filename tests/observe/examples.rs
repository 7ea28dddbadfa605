//! The crate's examples as programs.

use std::path::PathBuf;
use std::process::Command;

/// Builds the example with the profile of this test and returns its path.
pub(super) fn build(example: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let profile = this.ancestors().nth(2).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // At the root of the repository, as a user does.
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).args(["build", "--quiet", "--example", example]);
    // What cargo has set for this test. ring and others would be built anew for it.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    // `cargo test --all-features` has built it with all features already. Only then this private one is on.
    if cfg!(feature = "__bench") {
        command.arg("--all-features");
    }
    if profile.ends_with("release") {
        command.arg("--release");
    }
    assert!(command.status().unwrap().success());
    profile.join("examples").join(example)
}

fn is_of_package(variable: &str) -> bool {
    ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_EXE_", "OUT_DIR"].iter().any(|start| variable.starts_with(start))
}
