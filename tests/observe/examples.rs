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
