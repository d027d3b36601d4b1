//! The machine's limits: bytes from memory, and multiply-adds of the instructions that a kernel is
//! built on.

use std::hint::black_box;
use std::sync::OnceLock;

use llmcc_ukernels::Level;

use crate::stream::{Memory, bandwidth};
use crate::team::Team;

/// Rates of all threads together.
#[derive(Clone, Copy)]
pub struct Peaks {
    /// Bytes per second, streamed from memory.
    pub bytes: f64,
    /// Multiply-adds per second.
    pub macs: f64,
}

/// Activation rows of a product, which decide the instruction under it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// f32.
    F32,
    /// bf16.
    Bf16,
    /// int8 with a scale per group.
    Int8,
}

/// Measures both, for kernels with such rows.
pub fn measure(team: Team, level: Level, rows: Rows) -> Peaks {
    Peaks { bytes: stream(team), macs: arithmetic(team, level, rows) }
}

/// Bytes that a pass reads: more than caches hold.
const STREAM: usize = 256 << 20;

fn stream(team: Team) -> f64 {
    static DATA: OnceLock<Option<Memory>> = OnceLock::new();
    let data = DATA.get_or_init(|| Memory::new(STREAM, true)).as_ref();
    data.map_or(
        0.0,
        |data| if team.has_own_time() { read(team, data.bytes()) } else { bandwidth(data, team.threads()) },
    )
}

/// Bytes per second of the processor's time, read from start to end: the fastest of some passes.
fn read(team: Team, bytes: &[u8]) -> f64 {
    let (lines, _) = bytes.as_chunks::<64>();
    let pass = |thread: usize| {
        let mut sums = [0u64; 8];
        for line in &lines[team.part(lines.len(), thread)] {
            for (sum, word) in sums.iter_mut().zip(line.as_chunks::<8>().0) {
                *sum = sum.wrapping_add(u64::from_le_bytes(*word));
            }
        }
        black_box(sums);
    };
    bytes.len() as f64 / (0..4).map(|_| team.time(&pass)).fold(f64::INFINITY, f64::min)
}

/// Multiply-adds per second of the instruction under kernels with such rows.
fn arithmetic(team: Team, level: Level, rows: Rows) -> f64 {
    const TIMES: usize = 400_000;
    let (per_call, body) = instruction(level, rows);
    let seconds = team.time(&|_| body(TIMES));
    (per_call * TIMES * team.threads()) as f64 / seconds
}

/// Multiply-adds per iteration, and the loop: twelve independent chains of one instruction.
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each loop has the instructions of the level that it is asked for"
)]
fn instruction(level: Level, rows: Rows) -> (usize, fn(usize)) {
    #[cfg(target_arch = "x86_64")]
    match (level, rows) {
        (Level::Amx, Rows::Int8) => return (4 * 16 * 16 * 64, |n| unsafe { x86::tiles_int8(n) }),
        (Level::Amx, Rows::Bf16) => return (4 * 16 * 16 * 32, |n| unsafe { x86::tiles_bf16(n) }),
        (Level::Avx512Bf16, Rows::Bf16) => return (12 * 32, |n| unsafe { x86::dot_bf16(n) }),
        (Level::Avx512 | Level::Avx512Bf16, Rows::Int8) => return (12 * 64, |n| unsafe { x86::dot_int8(n) }),
        (Level::Avx512 | Level::Avx512Bf16 | Level::Amx, _) => return (12 * 16, |n| unsafe { x86::fma512(n) }),
        (Level::Avx2, Rows::Int8) => return (12 * 32, |n| unsafe { x86::dot_int8_avx2(n) }),
        (Level::Avx2, _) => return (12 * 8, |n| unsafe { x86::fma256(n) }),
        _ => {}
    }
    let _ = (level, rows);
    (12, scalar)
}

fn scalar(n: usize) {
    let mut acc = [1.0f32; 12];
    for _ in 0..n {
        acc = acc.map(|a| black_box(a * 0.5 + 1.0));
    }
    black_box(acc);
}

/// Chains of the instructions, with operands that the compiler cannot know.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::*;
    use std::hint::black_box;

    /// The same bits as another type.
    fn bf16(x: __m512) -> __m512bh {
        // SAFETY: both are 64 bytes for which every pattern is a value.
        unsafe { std::mem::transmute(x) }
    }

    macro_rules! chains {
        ($name:ident, $features:literal, $zero:expr, |$acc:ident, $a:ident, $b:ident| $step:expr) => {
            /// # Safety
            /// The processor has the features.
            #[target_feature(enable = $features)]
            pub unsafe fn $name(n: usize) {
                let ($a, $b) = (black_box($zero), black_box($zero));
                let mut chains = [$zero; 12];
                for _ in 0..n {
                    for $acc in &mut chains {
                        *$acc = $step;
                    }
                }
                black_box(chains);
            }
        };
    }
    macro_rules! tiles {
        ($name:ident, $instruction:literal) => {
            /// AMX: four sums of tiles, as many as leave room for two tiles of each operand.
            ///
            /// # Safety
            /// The processor has AMX and this process may use it, which the level says.
            pub unsafe fn $name(n: usize) {
                #[repr(C, align(64))]
                struct Config([u8; 64]);
                let mut config = Config([0; 64]);
                config.0[0] = 1;
                for tile in 0..8 {
                    config.0[16 + 2 * tile] = 64;
                    config.0[48 + tile] = 16;
                }
                // SAFETY: tiles are configured first and released in the end; configuring zeroes
                // them.
                unsafe {
                    core::arch::asm!("ldtilecfg [{}]", in(reg) &config, options(nostack, readonly));
                    for _ in 0..n {
                        core::arch::asm!(
                            concat!($instruction, " tmm0, tmm4, tmm6"),
                            concat!($instruction, " tmm1, tmm4, tmm7"),
                            concat!($instruction, " tmm2, tmm5, tmm6"),
                            concat!($instruction, " tmm3, tmm5, tmm7"),
                            options(nostack, nomem, preserves_flags)
                        );
                    }
                    core::arch::asm!("tilerelease", options(nostack, nomem));
                }
            }
        };
    }
    tiles!(tiles_int8, "tdpbssd");
    tiles!(tiles_bf16, "tdpbf16ps");

    chains!(fma512, "avx512f", _mm512_setzero_ps(), |acc, a, b| _mm512_fmadd_ps(a, b, *acc));
    chains!(fma256, "avx2,fma", _mm256_setzero_ps(), |acc, a, b| _mm256_fmadd_ps(a, b, *acc));
    chains!(dot_int8, "avx512f,avx512vnni", _mm512_setzero_si512(), |acc, a, b| _mm512_dpbusd_epi32(*acc, a, b));
    chains!(dot_bf16, "avx512f,avx512bf16", _mm512_setzero_ps(), |acc, a, b| _mm512_dpbf16_ps(*acc, bf16(a), bf16(b)));
    // Without VNNI: bytes to pairs of 16 bits, added up in 16 bits, as the kernels do it.
    chains!(dot_int8_avx2, "avx2", _mm256_setzero_si256(), |acc, a, b| _mm256_add_epi16(
        *acc,
        _mm256_maddubs_epi16(a, _mm256_xor_si256(b, *acc))
    ));
}
