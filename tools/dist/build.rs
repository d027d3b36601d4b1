//! With LLVM in it (cargo feature `gpu` of `llmcc`): where the tests and programs find the shared LLVM and MLIR
//! when they run.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Ok(lib) = std::env::var("DEP_LLMCC_GPU_LIB") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{lib}");
    }
}
