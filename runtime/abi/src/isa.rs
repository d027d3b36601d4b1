//! Instruction-set levels of generated code, in [`crate::ModelDesc::isa`].

/// x86-64 baseline (SSE2).
pub const X86_64: u32 = 1;
/// x86-64-v3: AVX2, FMA, F16C, BMI.
pub const X86_64_V3: u32 = 3;
/// x86-64-v4: AVX-512 F/BW/CD/DQ/VL.
pub const X86_64_V4: u32 = 4;
/// AArch64 baseline (NEON).
pub const AARCH64: u32 = 64;
/// NVIDIA GPUs: this plus the compute capability times ten, i.e. 1080, 1086, 1089, 1090, 1100;
/// code for 9.0 (`sm_90a`) runs on no other, other code on all later ones.
pub const SM: u32 = 1000;

/// Names of the levels of processors, ascending.
pub const CPU_NAMES: [(u32, &str); 4] =
    [(X86_64, "x86-64"), (X86_64_V3, "x86-64-v3"), (X86_64_V4, "x86-64-v4"), (AARCH64, "aarch64")];
