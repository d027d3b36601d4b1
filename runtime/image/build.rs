//! Builds the runtimes of this machine's architecture by a nested cargo with a target folder of its own (the outer one
//! is locked), so that a plain `cargo build` of the compiler is all a user needs.

mod recipe;

use recipe::{KINDS, Recipe};
use std::env;
use std::path::PathBuf;

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let workspace = here.join("../..");
    for dir in ["runtime/abi", "runtime/ukernels", "runtime/text", "runtime/media", "runtime/rt"] {
        println!("cargo::rerun-if-changed={}", workspace.join(dir).display());
    }
    // Versions, and the profile.
    for file in ["Cargo.lock", "Cargo.toml", "runtime/image/recipe.rs", "runtime/image/build.rs"] {
        println!("cargo::rerun-if-changed={}", workspace.join(file).display());
    }
    // One folder for all profiles of the compiler: `<target>/<profile>/build/<crate>/out` is four
    // levels down.
    let target = out.ancestors().nth(4).unwrap_or(&out).join("runtime-image");
    let lto = env::var("PROFILE").is_ok_and(|profile| profile != "debug");
    let recipe = Recipe { workspace: &workspace, target: &target, scratch: &out, other: None, lto };
    for (kind, features) in KINDS {
        let built = recipe.build(kind, features).unwrap_or_else(|e| panic!("{e}"));
        let to = out.join(format!("rt-{kind}.so"));
        std::fs::copy(&built, &to).unwrap_or_else(|e| panic!("{}: {e}", built.display()));
    }
}
