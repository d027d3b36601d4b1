//! Nothing: with a build script, what it could use is built, too.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
