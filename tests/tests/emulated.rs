//! Models for GPUs on the emulator: a program of its own, since a variable of the environment tells the runtime where
//! the emulator's driver is.

mod gpu;
mod images;
mod positions;

use llmcc_cli::backends::HAS_LLVM;
use llmcc_tests::fake_driver;
use std::sync::OnceLock;

/// Whether this build can make PTX. With the driver named to the runtime.
fn ready() -> bool {
    if !HAS_LLVM {
        eprintln!("skipped: built without the feature `gpu`");
        return false;
    }
    static SET: OnceLock<()> = OnceLock::new();
    SET.get_or_init(|| {
        // SAFETY: once, before any artifact of this process is opened.
        unsafe { std::env::set_var("LLMCC_CUDA_LIBRARY", fake_driver()) };
    });
    true
}
