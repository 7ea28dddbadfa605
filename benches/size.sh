#!/usr/bin/env bash
# Compares a service that makes one GET with speeddial and with reqwest: the size of the release binary, and with `--build` the
# processor time of a debug build from nothing. Both have the default features of their client.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD folder=$PWD/target/size
# As a dependency from a registry is built.
export CARGO_INCREMENTAL=0

service() { # name, dependency, expression
    mkdir -p "$folder/$1/src"
    cat >"$folder/$1/Cargo.toml" <<MANIFEST
[package]
name = "service-with-$1"
version = "0.0.0"
edition = "2024"

[dependencies]
$2
tokio = { version = "1", features = ["macros", "rt-multi-thread"] }

[workspace]
MANIFEST
    cat >"$folder/$1/src/main.rs" <<PROGRAM
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let response = $3.await?;
    println!("{}", response.status());
    println!("{}", response.text().await?);
    Ok(())
}
PROGRAM
    cp "$root/Cargo.lock" "$folder/$1/Cargo.lock"
}
service speeddial "speeddial = { path = \"$root\" }" 'speeddial::Client::new().get("https://api.example.com/").send()'
service reqwest 'reqwest = "0.13.5"' 'reqwest::Client::new().get("https://api.example.com/").send()'

cpu_seconds() { # the processor time of a command and its children
    local times
    times=$({ TIMEFORMAT='%U %S'; time "$@" >/dev/null 2>&1; } 2>&1)
    awk '{ printf "%.1f", $1 + $2 }' <<<"$times"
}

for name in speeddial reqwest; do
    manifest=$folder/$name/Cargo.toml
    cargo build --quiet --release --manifest-path "$manifest"
    binary=$folder/$name/target/release/service-with-$name
    strip -o "$binary.stripped" "$binary"
    echo "$name: $(stat -c %s "$binary") bytes, $(stat -c %s "$binary.stripped") stripped"
    if [ "${1:-}" = --build ]; then
        rm -rf "$folder/$name/target/debug"
        echo "$name: $(cpu_seconds cargo build --manifest-path "$manifest") s of processor time for a debug build"
    fi
done
