//! Whether this processor can run the code.

use llmcc_abi::isa;

use super::segment::damaged;
use crate::error::{Error, Result, Status};

/// Whether this processor runs code of `level`; if not, or if it is no level of a processor, an
/// error that says so.
pub fn check_isa(level: u32) -> Result<()> {
    let name = match level {
        isa::X86_64 => "x86-64",
        isa::X86_64_V3 => "x86-64-v3 (AVX2, FMA, F16C, BMI)",
        isa::X86_64_V4 => "x86-64-v4 (AVX-512 F/BW/CD/DQ/VL)",
        isa::AARCH64 => "aarch64 (NEON)",
        _ => return Err(damaged(format_args!("instruction set {level}"))),
    };
    if supports(level) {
        return Ok(());
    }
    let message = format!(
        "this processor cannot run the artifact, which needs {name}; compile with `--target native` on this machine"
    );
    Err(Error::new(Status::Cpu, message))
}

#[cfg(target_arch = "x86_64")]
fn supports(level: u32) -> bool {
    use std::arch::is_x86_feature_detected as has;
    let v3 = || {
        has!("avx2") && has!("fma") && has!("f16c") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("movbe")
    };
    let v4 = || has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl");
    match level {
        isa::X86_64 => true,
        isa::X86_64_V3 => v3(),
        isa::X86_64_V4 => v3() && v4(),
        _ => false,
    }
}

#[cfg(target_arch = "aarch64")]
fn supports(level: u32) -> bool {
    level == isa::AARCH64
}
