#!/bin/sh
# Prints flags of rustc by which binaries name no folder of the machine that builds them: for RUSTFLAGS of packages.
set -eu
root="$(cd "$(dirname "$0")/../.." && pwd -P)"
cargo="$(cd "${CARGO_HOME:-$HOME/.cargo}" && pwd -P)"
printf '%s\n' "--remap-path-prefix=$root=llmcc --remap-path-prefix=$cargo=cargo --remap-path-prefix=$(rustc --print sysroot)=rust"
