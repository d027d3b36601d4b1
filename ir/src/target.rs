//! Targets: what a machine can do, as data for the cost model and the backends.

/// Which backend serves a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// CPU code through Cranelift.
    Cpu,
    /// NVIDIA GPUs through PTX.
    Gpu,
}

/// Instruction-set level of a CPU target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CpuIsa {
    /// x86-64 baseline: every kernel is Cranelift code of 128-bit vectors.
    X86_64,
    /// AVX2, FMA, F16C: microkernels of 256 bits.
    X86_64V3,
    /// AVX-512: microkernels of 512 bits, with VNNI where the machine has it.
    X86_64V4,
}

/// One line of the target table.
///
/// Rates are for one core (bandwidth: for the whole machine) of a typical machine of the class; they rank alternatives, and `llmcc bench`
/// reports how far a real machine is from them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetSpec {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for `llmcc targets`.
    pub about: &'static str,
    /// Backend.
    pub family: Family,
    /// Instruction set (CPU).
    pub isa: CpuIsa,
    /// f32 multiply-adds per second and core.
    pub f32_macs: f64,
    /// int8 multiply-adds per second and core.
    pub int8_macs: f64,
    /// Streaming bytes per second of main memory.
    pub memory: f64,
    /// Streaming bytes per second of the last-level cache, per core.
    pub cache: f64,
    /// Seconds to launch a kernel: call plus barrier.
    pub launch: f64,
    /// Cores assumed.
    pub cores: usize,
}

/// All targets.
pub const TARGETS: &[TargetSpec] = &[
    TargetSpec {
        name: "x86-64",
        about: "any 64-bit x86 (SSE2): portable 128-bit code",
        family: Family::Cpu,
        isa: CpuIsa::X86_64,
        f32_macs: 10e9,
        int8_macs: 12e9,
        memory: 35e9,
        cache: 40e9,
        launch: 1.0e-6,
        cores: 2,
    },
    TargetSpec {
        name: "x86-64-v3",
        about: "AVX2, FMA, F16C (Haswell 2013, Zen 2017 and later)",
        family: Family::Cpu,
        isa: CpuIsa::X86_64V3,
        f32_macs: 50e9,
        int8_macs: 100e9,
        memory: 35e9,
        cache: 80e9,
        launch: 1.0e-6,
        cores: 2,
    },
    TargetSpec {
        name: "x86-64-v4",
        about: "AVX-512 (Skylake-X 2017, Zen 4 2022 and later), VNNI used where present",
        family: Family::Cpu,
        isa: CpuIsa::X86_64V4,
        f32_macs: 55e9,
        int8_macs: 220e9,
        memory: 35e9,
        cache: 100e9,
        launch: 1.0e-6,
        cores: 2,
    },
];

/// The target named `name`; `native` picks the best level this machine has.
pub fn find(name: &str) -> Option<&'static TargetSpec> {
    let name = if name == "native" { native() } else { name };
    TARGETS.iter().find(|t| t.name == name)
}

fn native() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        let v3 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let v4 = v3
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        if v4 {
            return "x86-64-v4";
        }
        if v3 {
            return "x86-64-v3";
        }
    }
    "x86-64"
}
