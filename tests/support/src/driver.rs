//! A GPU for tests: the CUDA driver library that executes PTX on the emulator.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The fake CUDA driver of `tests/ptx/fake`, built beside the tests; for `LLMCC_CUDA_LIBRARY`.
pub fn fake_driver() -> &'static Path {
    static DRIVER: OnceLock<PathBuf> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let exe = std::env::current_exe().expect("the test's own path");
        let folder = exe.parent().and_then(Path::parent).expect("target/<profile>/deps");
        let mut cargo = Command::new(env!("CARGO"));
        // The runner of tests sets it for the test harness; build scripts of dependencies would run again for it.
        cargo.env_remove("RUSTC_BOOTSTRAP");
        cargo.args(["build", "--offline", "--locked", "-p", "llmcc-fake-cuda"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        if folder.file_name().is_some_and(|f| f == "release") {
            cargo.arg("--release");
        }
        let target = folder.parent().expect("target");
        assert!(cargo.env("CARGO_TARGET_DIR", target).status().expect("cargo runs").success());
        folder.join("libllmcc_fake_cuda.so")
    })
}
