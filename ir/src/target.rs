//! Targets: the abilities of machines, as data for the cost model and the backends.

mod capacity;
mod rows;

use crate::gpu::rates::{self, Rates};
use crate::gpu::wish::Wish;
use crate::kernel::{Kernel, Param, ParamKind};
use llmcc_abi::layout::Packing;
use rows::{float_rows, gpu_rows, int8_rows};

pub use rows::{CpuRows, Generic, GpuRows, MatrixUnit, RowKind, Unpack, integer_rows, microkernel_of};

/// Which backend serves a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// CPU code through Cranelift.
    Cpu,
    /// GPUs of NVIDIA, through PTX.
    Nvidia,
}

/// Instruction-set level of a CPU target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CpuIsa {
    /// x86-64 baseline (SSE2): microkernels of the processor at hand.
    X86_64,
    /// AVX2, FMA, F16C: microkernels of 256 bits.
    X86_64V3,
    /// AVX-512: microkernels of 512 bits, with VNNI where the machine has it.
    X86_64V4,
    /// AArch64 (NEON): microkernels of 128 bits, with `dotprod` where the machine has it.
    AArch64,
}

impl CpuIsa {
    /// The architecture whose processors have it.
    pub const fn machine(self) -> Machine {
        match self {
            CpuIsa::X86_64 | CpuIsa::X86_64V3 | CpuIsa::X86_64V4 => Machine::X86_64,
            CpuIsa::AArch64 => Machine::AArch64,
        }
    }

    /// Whether it multiplies and adds with one rounding.
    pub const fn has_fma(self) -> bool {
        !matches!(self, CpuIsa::X86_64)
    }
}

/// Architecture of a processor. A file of code runs on one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    AArch64,
}

impl Machine {
    /// All of them.
    pub const ALL: [Machine; 2] = [Machine::X86_64, Machine::AArch64];
    /// The machine that this compiler runs on.
    pub const HERE: Machine = if cfg!(target_arch = "aarch64") { Machine::AArch64 } else { Machine::X86_64 };

    /// Its name, as Linux has it.
    pub const fn name(self) -> &'static str {
        match self {
            Machine::X86_64 => "x86_64",
            Machine::AArch64 => "aarch64",
        }
    }

    /// Its number in ELF files.
    pub const fn elf(self) -> u16 {
        match self {
            Machine::X86_64 => 62,
            Machine::AArch64 => 183,
        }
    }

    /// The machine with this number in ELF files.
    pub fn of_elf(elf: u16) -> Option<Machine> {
        Machine::ALL.into_iter().find(|machine| machine.elf() == elf)
    }

    /// Bytes of the largest pages that its systems map files by.
    pub const fn page(self) -> u64 {
        match self {
            Machine::X86_64 => 4 << 10,
            Machine::AArch64 => 64 << 10,
        }
    }
}

/// Description of a processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuArch {
    /// Its instruction set.
    pub isa: CpuIsa,
    /// The rows that it multiplies; all others it does not.
    pub rows: &'static [CpuRows],
}

impl CpuArch {
    /// How it multiplies rows of a kind; `None`: it does not.
    pub fn rows(&self, kind: RowKind) -> Option<&'static CpuRows> {
        self.rows.iter().find(|r| r.kind == kind)
    }
}

/// Description of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuArch {
    /// Compute capability times ten.
    pub sm: u32,
    /// Processor name that LLVM and `ptxas` know. With the suffix `a` the code runs on this
    /// architecture only, and may use its matrix instructions.
    pub processor: &'static str,
    /// PTX version, as LLVM's feature. The lowest that has the instructions we emit, because an
    /// older driver reads it: 7.4 has cache-eviction hints on sm80 and sm86 (their `mma` and
    /// `cp.async` came with 7.0), 7.8 is the first for sm89, 8.0 the first with sm_90a, its
    /// `wgmma`, bulk copies and `setmaxnreg`, 8.6 the first for sm100.
    pub ptx: &'static str,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Bytes of shared memory a block may have.
    pub shared_per_block: u32,
    /// Bytes of shared memory of a multiprocessor; each resident block loses 1 KiB of it to the
    /// system.
    pub shared_per_sm: u32,
    /// 32-bit registers of a multiprocessor.
    pub registers: u32,
    /// Threads it holds at once.
    pub threads_per_sm: u32,
    /// Blocks it holds at once.
    pub blocks_per_sm: u32,
    /// The rows that it multiplies; all others it does not.
    pub rows: &'static [GpuRows],
    /// Bytes of the second-level cache.
    pub l2_bytes: u64,
    /// Bytes per second it delivers.
    pub l2_bandwidth: f64,
    /// Further rates that the cost model needs.
    pub rates: &'static Rates,
}

impl GpuArch {
    /// How it multiplies rows of a kind; `None`: it does not.
    pub fn rows(&self, kind: RowKind) -> Option<&'static GpuRows> {
        self.rows.iter().find(|r| r.kind == kind)
    }

    /// [`GpuRows::flops`] of a kind; 0 where it does not multiply such.
    pub fn flops(&self, kind: RowKind) -> f64 {
        self.rows(kind).map_or(0.0, |r| r.flops)
    }

    /// Whether `mma.sync` multiplies e4m3 numbers.
    pub fn has_fp8_mma(&self) -> bool {
        self.rows(RowKind::Fp8).is_some_and(|r| r.mma)
    }

    /// Whether a kernel may begin before the ones before have ended, and wait for them with an
    /// instruction (`griddepcontrol`: PTX 7.8, compute capability 9.0).
    pub fn overlaps_launches(&self) -> bool {
        self.sm >= llmcc_abi::GPU_OVERLAPS
    }

    /// PTX version for a kernel: on sm89, e4m3 numbers are known from 8.4 on, and only kernels that
    /// have some ask for it.
    pub fn ptx_for(&self, kernel: &Kernel) -> &'static str {
        let fp8 = |p: &Param| matches!(p.kind, ParamKind::Rows { elem, .. } if elem.is_e4m3());
        if self.sm == 89 && kernel.params.iter().any(fp8) { "+ptx84" } else { self.ptx }
    }
}

/// The machine of a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arch {
    /// A processor.
    Cpu(CpuArch),
    /// An NVIDIA GPU.
    Gpu(GpuArch),
}

/// One line of the target table.
///
/// Rates are for one core (bandwidth: for the whole machine) of a typical machine of the class, a
/// core of a GPU being a multiprocessor, or of a GPU as a whole where they say so; they rank
/// alternatives, and `llmcc bench` reports how far a real machine is from them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetSpec {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for `llmcc targets`.
    pub about: &'static str,
    /// The machine and its rates; decides the backend.
    pub arch: Arch,
    /// Streaming bytes per second of main memory (GPU: of its own).
    pub memory: f64,
    /// Streaming bytes per second of the last-level cache, per core.
    pub cache: f64,
    /// Seconds to launch a kernel: call plus barrier; in a captured graph of a GPU, from the end of
    /// a kernel to the start of the next.
    pub launch: f64,
    /// Cores assumed.
    pub cores: usize,
    /// Wishes for schedules on a GPU; [`Wish::NONE`] leaves them to [`crate::gpu::schedule`].
    pub wish: Wish,
}

impl TargetSpec {
    /// The same machine, with kernels that give a sequence the same bits in any batch and any pieces.
    /// (Those of CPUs always do.)
    #[must_use]
    pub const fn invariant(self) -> TargetSpec {
        TargetSpec { wish: Wish { invariant: true, ..self.wish }, ..self }
    }

    /// The backend.
    pub const fn family(&self) -> Family {
        match self.arch {
            Arch::Cpu(_) => Family::Cpu,
            Arch::Gpu(_) => Family::Nvidia,
        }
    }

    /// The instruction set, of a CPU.
    pub const fn cpu(&self) -> Option<CpuIsa> {
        match self.arch {
            Arch::Cpu(cpu) => Some(cpu.isa),
            Arch::Gpu(_) => None,
        }
    }

    /// The architecture, of a GPU.
    pub const fn gpu(&self) -> Option<&GpuArch> {
        match &self.arch {
            Arch::Cpu(_) => None,
            Arch::Gpu(gpu) => Some(gpu),
        }
    }

    /// The kinds of rows that it multiplies. All questions about a target's abilities are answered
    /// here: for the policy of activations, the verifier, the cost model, the backends.
    pub fn rows(&self) -> Vec<RowKind> {
        match &self.arch {
            Arch::Cpu(cpu) => cpu.rows.iter().map(|r| r.kind).collect(),
            Arch::Gpu(gpu) => gpu.rows.iter().map(|r| r.kind).collect(),
        }
    }

    /// Whether it multiplies such rows.
    pub fn multiplies(&self, rows: impl Into<RowKind>) -> bool {
        self.macs(rows) > 0.0
    }

    /// Multiply-adds of such rows per second and core; 0 where it does not multiply them.
    pub fn macs(&self, rows: impl Into<RowKind>) -> f64 {
        let kind = rows.into();
        match &self.arch {
            Arch::Cpu(cpu) => cpu.rows(kind).map_or(0.0, |r| r.macs),
            Arch::Gpu(gpu) => gpu.flops(kind) / 2.0 / f64::from(gpu.sms),
        }
    }

    /// Whether this machine's processor can run code for the target. A GPU is not looked for.
    pub fn runs_here(&self) -> bool {
        let level = find("native").and_then(TargetSpec::cpu);
        self.cpu().is_some_and(|isa| level.is_some_and(|l| isa.machine() == l.machine() && isa <= l))
    }

    /// The order in which its kernels read packed matrices.
    pub const fn packing(&self) -> Packing {
        match self.arch {
            Arch::Cpu(_) => Packing::Panel,
            Arch::Gpu(_) => Packing::Fragment,
        }
    }

    /// The line of a GPU.
    const fn of_gpu(name: &'static str, about: &'static str, gpu: GpuArch, memory: f64, launch: f64) -> TargetSpec {
        let (cache, cores) = (gpu.l2_bandwidth / gpu.sms as f64, gpu.sms as usize);
        TargetSpec { name, about, arch: Arch::Gpu(gpu), memory, cache, launch, cores, wish: Wish::NONE }
    }
}

/// All targets: instructions, each with the rates of a typical machine.
pub const TARGETS: &[TargetSpec] = &[
    TargetSpec {
        name: "x86-64",
        about: "any 64-bit x86 (SSE2); products with what the processor has",
        arch: Arch::Cpu(CpuArch { isa: CpuIsa::X86_64, rows: ROWS_SSE2 }),
        memory: 31e9,
        cache: 40e9,
        launch: 1.2e-6,
        cores: 2,
        wish: Wish::NONE,
    },
    TargetSpec {
        name: "x86-64-v3",
        about: "AVX2, FMA, F16C (Haswell 2013, Zen 2017 and later)",
        arch: Arch::Cpu(CpuArch { isa: CpuIsa::X86_64V3, rows: ROWS_V3 }),
        memory: 40e9,
        cache: 80e9,
        launch: 1.2e-6,
        cores: 2,
        wish: Wish::NONE,
    },
    TargetSpec {
        name: "x86-64-v4",
        about: "AVX-512 (Skylake-X 2017, Zen 4 2022 and later), VNNI used where present",
        arch: Arch::Cpu(CpuArch { isa: CpuIsa::X86_64V4, rows: ROWS_V4 }),
        memory: 45e9,
        cache: 100e9,
        launch: 1.2e-6,
        cores: 2,
        wish: Wish::NONE,
    },
    TargetSpec {
        name: "x86-64-v4-amx",
        about: "the same, tuned for AMX (Xeon: Sapphire Rapids 2023 and later); also runs without",
        arch: Arch::Cpu(CpuArch { isa: CpuIsa::X86_64V4, rows: ROWS_AMX }),
        memory: 31e9,
        cache: 60e9,
        launch: 1.2e-6,
        cores: 2,
        wish: Wish::NONE,
    },
    TargetSpec {
        name: "aarch64",
        about: "any 64-bit ARM (NEON), dot products of int8 used where present (Linux; rates of a Neoverse V1)",
        arch: Arch::Cpu(CpuArch { isa: CpuIsa::AArch64, rows: ROWS_AARCH64 }),
        memory: 40e9,
        cache: 60e9,
        launch: 1.2e-6,
        cores: 2,
        wish: Wish::NONE,
    },
    TargetSpec::of_gpu(
        "sm80",
        "NVIDIA Ampere, compute capability 8.0 and later (rates of an A100 80GB)",
        SM80,
        2.04e12,
        1.5e-6,
    ),
    TargetSpec::of_gpu(
        "sm86",
        "NVIDIA Ampere, 8.6 and later (rates of an RTX 3090; also A10, A40)",
        SM86,
        936e9,
        1.5e-6,
    ),
    TargetSpec::of_gpu(
        "sm89",
        "NVIDIA Ada, 8.9 and later (rates of an RTX 4090; also L4, L40)",
        SM89,
        1.008e12,
        1.5e-6,
    ),
    TargetSpec::of_gpu(
        "sm90",
        "NVIDIA Hopper, 9.0 only (rates of an H200; `sm90:h100` has those of an H100)",
        SM90,
        4.8e12,
        0.51e-6,
    ),
    TargetSpec::of_gpu("sm100", "NVIDIA Blackwell, 10.0 and later (rates of a B200)", SM100, 8e12, 0.51e-6),
];

/// Targets with the rates of another machine of the same instructions, `TARGET:MACHINE`. Code for
/// either runs on both; rates only choose schedules.
pub const MACHINES: &[TargetSpec] = &[
    TargetSpec::of_gpu(
        "sm90:h100",
        "NVIDIA Hopper, 9.0 only, with the rates of an H100 (SXM, 3.35 TB/s); also runs on an H200",
        SM90,
        3.35e12,
        0.51e-6,
    ),
    TargetSpec::of_gpu(
        "sm90:h200",
        "NVIDIA Hopper, 9.0 only, with the rates of an H200 (4.8 TB/s), those of `sm90`; also runs on an H100",
        SM90,
        4.8e12,
        0.51e-6,
    ),
];

/// All that have a name: [`TARGETS`], then [`MACHINES`].
pub fn all() -> impl Iterator<Item = &'static TargetSpec> {
    TARGETS.iter().chain(MACHINES)
}

const ROWS_SSE2: &[CpuRows] = &[
    CpuRows { generic: Generic::F32_SSE2, ..float_rows(RowKind::F32, 10e9, 10e9) },
    float_rows(RowKind::Bf16, 10e9, 10e9),
    int8_rows(18e9, 7.0, Unpack { rows: 8, rate: 25.2e9 }),
];

const ROWS_V3: &[CpuRows] = &[
    float_rows(RowKind::F32, 50e9, 50e9),
    float_rows(RowKind::Bf16, 50e9, 50e9),
    int8_rows(100e9, 7.0, Unpack { rows: 8, rate: 140e9 }),
];

const ROWS_V4: &[CpuRows] = &[
    float_rows(RowKind::F32, 56e9, 56e9),
    float_rows(RowKind::Bf16, 112e9, 56e9),
    int8_rows(240e9, 7.0, Unpack { rows: 8, rate: 336e9 }),
];

const ROWS_AMX: &[CpuRows] = &[
    float_rows(RowKind::F32, 104e9, 104e9),
    CpuRows { unit: Some(MatrixUnit { from: 1, least: 1, exposed: 0.4 }), ..float_rows(RowKind::Bf16, 500e9, 104e9) },
    CpuRows {
        unit: Some(MatrixUnit { from: 5, least: 16, exposed: 0.4 }),
        ..int8_rows(2580e9, 221.0, Unpack { rows: 128, rate: 120e9 })
    },
];

// By instructions for each product: of f32 one for 4, of int8 one for 16, at 2.6 GHz and three quarters of the four
// vector units of a Neoverse V1. No such machine was measured.
const ROWS_AARCH64: &[CpuRows] = &[
    float_rows(RowKind::F32, 31e9, 31e9),
    float_rows(RowKind::Bf16, 31e9, 31e9),
    int8_rows(100e9, 7.0, Unpack { rows: 8, rate: 140e9 }),
];

// Peak rates are the vendor's for dense operations. Rates of the second-level cache, which the
// vendor does not state, are estimates from published measurements; sm90's was fitted
// (`benches/gpu`).
const KIB: u32 = 1024;
const MIB: u64 = 1 << 20;

const SM80_ROWS: &[GpuRows] =
    &[gpu_rows(RowKind::F32, 19.5e12), gpu_rows(RowKind::F16, 312e12), gpu_rows(RowKind::Bf16, 312e12)];
const SM86_ROWS: &[GpuRows] =
    &[gpu_rows(RowKind::F32, 35.6e12), gpu_rows(RowKind::F16, 71e12), gpu_rows(RowKind::Bf16, 71e12)];
const SM89_ROWS: &[GpuRows] = &[
    gpu_rows(RowKind::F32, 82.6e12),
    gpu_rows(RowKind::F16, 165e12),
    gpu_rows(RowKind::Bf16, 165e12),
    gpu_rows(RowKind::Fp8, 330e12),
];
const SM90_ROWS: &[GpuRows] = &[
    gpu_rows(RowKind::F32, 67e12),
    gpu_rows(RowKind::F16, 989e12),
    gpu_rows(RowKind::Bf16, 989e12),
    GpuRows { mma: false, ..gpu_rows(RowKind::Fp8, 1979e12) },
];
const SM100_ROWS: &[GpuRows] = &[
    gpu_rows(RowKind::F32, 80e12),
    gpu_rows(RowKind::F16, 2250e12),
    gpu_rows(RowKind::Bf16, 2250e12),
    gpu_rows(RowKind::Fp8, 4500e12),
];

const SM80: GpuArch = GpuArch {
    sm: 80,
    processor: "sm_80",
    ptx: "+ptx74",
    sms: 108,
    shared_per_block: 163 * KIB,
    shared_per_sm: 164 * KIB,
    registers: 65536,
    threads_per_sm: 2048,
    blocks_per_sm: 32,
    rows: SM80_ROWS,
    l2_bytes: 40 * MIB,
    l2_bandwidth: 4.5e12,
    rates: &rates::A100,
};

const SM86: GpuArch = GpuArch {
    sm: 86,
    processor: "sm_86",
    sms: 82,
    threads_per_sm: 1536,
    blocks_per_sm: 16,
    shared_per_block: 99 * KIB,
    shared_per_sm: 100 * KIB,
    rows: SM86_ROWS,
    l2_bytes: 6 * MIB,
    l2_bandwidth: 2.5e12,
    rates: &rates::RTX_3090,
    ..SM80
};

const SM89: GpuArch = GpuArch {
    sm: 89,
    processor: "sm_89",
    ptx: "+ptx78",
    sms: 128,
    blocks_per_sm: 24,
    rows: SM89_ROWS,
    l2_bytes: 72 * MIB,
    l2_bandwidth: 5e12,
    rates: &rates::RTX_4090,
    ..SM86
};

const SM90: GpuArch = GpuArch {
    sm: 90,
    processor: "sm_90a",
    ptx: "+ptx80",
    sms: 132,
    shared_per_block: 227 * KIB,
    shared_per_sm: 228 * KIB,
    registers: 65536,
    threads_per_sm: 2048,
    blocks_per_sm: 32,
    rows: SM90_ROWS,
    l2_bytes: 50 * MIB,
    l2_bandwidth: 8.77e12,
    rates: &rates::H200,
};

const SM100: GpuArch = GpuArch {
    sm: 100,
    processor: "sm_100",
    ptx: "+ptx86",
    sms: 148,
    rows: SM100_ROWS,
    l2_bytes: 126 * MIB,
    l2_bandwidth: 10e12,
    rates: &rates::B200,
    ..SM90
};

/// The target named `name`; `native` picks the best level this machine's CPU has.
pub fn find(name: &str) -> Option<&'static TargetSpec> {
    let name = if name == "native" { native() } else { name };
    all().find(|t| t.name == name)
}

fn native() -> &'static str {
    if Machine::HERE == Machine::AArch64 {
        return "aarch64";
    }
    #[cfg(target_arch = "x86_64")]
    {
        let v3 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let v4 = v3
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        if v4 {
            return if has_amx() { "x86-64-v4-amx" } else { "x86-64-v4" };
        }
        if v3 {
            return "x86-64-v3";
        }
    }
    "x86-64"
}

/// Whether the processor multiplies tiles of int8 and bf16. Whether the system lets a process do so
/// is asked when an artifact is opened.
#[cfg(target_arch = "x86_64")]
fn has_amx() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    // AMX-BF16, AMX-TILE, AMX-INT8.
    __cpuid(0).eax >= 7 && [22, 24, 25].iter().all(|bit| __cpuid_count(7, 0).edx >> bit & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::RowElem;

    #[test]
    fn lines_make_sense() {
        for (i, t) in all().enumerate() {
            assert!(all().take(i).all(|o| o.name != t.name), "{} twice", t.name);
            let rates = [t.memory, t.cache, t.launch, t.cores as f64];
            assert!(
                rates.into_iter().chain(t.rows().into_iter().map(|kind| t.macs(kind))).all(|r| r > 0.0),
                "{}",
                t.name
            );
            assert!(t.multiplies(RowKind::F32) && t.rows().is_sorted(), "{}", t.name);
            assert_eq!(find(t.name), Some(t));
            let Some(gpu) = t.gpu() else { continue };
            assert_eq!((t.family(), t.packing(), t.cpu()), (Family::Nvidia, Packing::Fragment, None));
            assert_eq!(t.name.split(':').next(), Some(&*format!("sm{}", gpu.sm)));
            assert_eq!(gpu.processor.trim_end_matches('a'), format!("sm_{}", gpu.sm));
            // The system takes 1 KiB of each block.
            assert_eq!(gpu.shared_per_sm - gpu.shared_per_block, 1024);
        }
        assert_eq!(find("native").map(TargetSpec::family), Some(Family::Cpu));
        assert!(find("native").is_some_and(TargetSpec::runs_here));
        for t in all() {
            let foreign = t.cpu().is_some_and(|isa| isa.machine() != Machine::HERE);
            assert!(!(foreign && t.runs_here()), "{}", t.name);
        }
        assert_eq!(find("sm90").and_then(TargetSpec::gpu).map(|g| g.processor), Some("sm_90a"));
        assert_eq!(find("sm70"), None);
    }

    /// A machine has the instructions of its target, so that its code runs wherever the target's
    /// does, and its own rates.
    #[test]
    fn machines_differ_in_rates_alone() {
        for machine in MACHINES {
            let target = find(machine.name.split_once(':').unwrap().0).unwrap();
            assert_eq!(
                TargetSpec { name: target.name, about: target.about, memory: target.memory, ..*machine },
                *target
            );
        }
        let memory = |name: &str| find(name).map(|t| t.memory);
        assert_eq!(memory("sm90:h100"), Some(3.35e12));
        assert_eq!((memory("sm90:h200"), memory("sm90")), (Some(4.8e12), Some(4.8e12)));
        assert_eq!((find("sm90:"), find("h100")), (None, None));
    }

    #[test]
    fn targets_multiply_what_their_rows_say() {
        let says = |name: &str, elem: RowElem| find(name).unwrap().multiplies(elem);
        assert!(
            says("x86-64-v3", RowElem::Q8 { group: 32 })
                && says("x86-64-v3", RowElem::Bf16)
                && !says("x86-64-v3", RowElem::F16)
        );
        assert!(says("sm80", RowElem::F16) && !says("sm80", RowElem::Q8 { group: 32 }) && !says("sm80", RowElem::Fp8));
        assert!(says("sm89", RowElem::Fp8) && !says("x86-64-v4", RowElem::Fp8));
        let mma = |name: &str| find(name).and_then(TargetSpec::gpu).unwrap().has_fp8_mma();
        assert!(mma("sm89") && mma("sm100") && !mma("sm90") && !mma("sm86"));
    }
}
