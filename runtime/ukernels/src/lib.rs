//! Microkernels: the inner loops that generated code calls through `UkTable`.
//!
//! `no_std`, no allocation, no state. [`llmcc_abi::Uk`], [`llmcc_abi::PanelArgs`] and
//! [`llmcc_abi::layout`] define the computation of each entry, and `reference.rs` spells it out as
//! scalar code.
//!
//! # Structure
//!
//! - `isa.rs`: the trait `Isa`, i.e. the operations a panel needs from an instruction set;
//!   `isa/*.rs`: one implementation per file.
//! - `panel.rs`: walks a panel in register tiles; `panel/{float,decode,e4m3,int8}.rs`: a tile of each
//!   weight format, generic over `Isa`; `panel/many.rs`: products of many f32 rows, once for all
//!   formats; `panel/levels.rs`: trellis codes with many int8 rows; `panel/amx.rs`, `panel/amx/*.rs`:
//!   panels for the matrix unit of AMX, which has no vectors to be generic over.
//! - `attend.rs`, `attend/*.rs`: attention over the pages of a sequence, generic over `Isa` and the
//!   cache's element type; `split.rs`: its division among threads.
//! - `map.rs`, `map/math.rs`: elementwise functions of rows, generic over `Isa`.
//! - `quant_rows.rs`: rounding of rows to int8 and bf16, generic over `Isa`. RoPE tables are
//!   scalar: a step computes few of them.
//! - `recur.rs`: a token of a linear recurrence, generic over `Isa`.
//! - `route.rs`: the choice of experts, scalar too.
//! - `select.rs`: the choice of rows of a cache, generic over `Isa`.
//! - `evict.rs`, `evict/lanes.rs`: attention to a cache that drops tokens, generic over `Isa`.
//! - `windows.rs`: the choice of windows of a cache, generic over `Isa`.
//! - `table.rs`: `#[target_feature]` entry points per instruction set, and the tables of their
//!   addresses.
//! - `element.rs`: numbers in memory and elements of caches, one at a time.
//! - `cpu.rs`: detection.
//!
//! # Invariants
//!
//! - **One order per output.** An output element is accumulated in ascending `k` (f32 rows: one fused
//!   multiply-add per `k`, in chains of 32 columns from 0, which are added up, those of 8-bit floats by a
//!   multiply-add with their scale; in one chain bf16 rows: the same, the second of each pair first; and
//!   int8 rows: an exact i32 sum and one fused multiply-add per group, two for asymmetric weights).
//!   Tiling therefore never changes a bit of a result: not with the number of rows or blocks, not
//!   between instruction sets, not against the reference. The tests compare bits. (The bits of a NaN
//!   are not specified. The rounding mode is the default one, subnormals are not flushed.)
//! - **But for AMX with bf16 rows**, where the instruction sums 32 columns at a time in its own
//!   order (`panel/amx/bf16.rs`): the same for all numbers of rows and blocks, and held against its
//!   definition, but not the bits of the other levels. [`portable_table`] has theirs.
//! - **No reading beyond the operands**: f32 rows of `k` elements, packed blocks, int8 rows. The
//!   tests place them against an inaccessible page.
//! - int8 codes of activations lie in `-127..=127` (-128 would overflow in AVX2), groups are
//!   multiples of 32.
//! - Functions with `#[target_feature]` are reachable only through a table, which is chosen by
//!   [`detect`].
//!
//! # Adding an instruction set
//!
//! 1. `isa/x.rs`: implement `Isa`; choose tile shapes so that accumulators, weights and one
//!    activation fit in the registers.
//! 2. `table.rs`: one `entries!` line with the target features.
//! 3. [`Level`]: a variant, and its condition in `cpu.rs`. For another architecture, also the `cfg`
//!    of the modules below.
//!
//! The tests run every level that the machine supports. Look at the disassembly: hot loops must
//! contain no calls and no spills.
#![no_std]
#![warn(missing_docs)]
// The panels index parallel arrays that must become registers; iterators and closures would be
// functions without the target features.
#![allow(clippy::needless_range_loop)]
// The "# Safety" of every `unsafe fn` states its caller's promises: the target features, and memory
// for the stated rows, columns and blocks. The blocks inside are intrinsics and pointer arithmetic
// within that, hundreds of them, and have no more to say each.
#![allow(clippy::undocumented_unsafe_blocks)]

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod attend;
mod cpu;
mod element;
mod evict;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod halves;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod isa;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod map;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod panel;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod quant_rows;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod recur;
mod reference;
mod route;
mod select;
mod split;
mod table;
mod windows;

pub use cpu::{detect, levels};
pub use table::{portable_table, table};

/// A set of microkernels, ordered from the slowest to the fastest of each architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Portable scalar code.
    Scalar,
    /// SSE2, which every x86-64 processor has: fused multiply-adds are made of f64 arithmetic.
    Sse2,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F/BW/VL/DQ and VNNI.
    Avx512,
    /// The same and BF16, VBMI and VBMI2.
    Avx512Bf16,
    /// The same and AMX with INT8 and BF16, and GFNI, which every processor with AMX has.
    Amx,
    /// NEON, which every AArch64 processor has.
    Neon,
    /// The same and the integer dot products of `dotprod`.
    Dotprod,
}

impl Level {
    /// Every level, ascending.
    pub const ALL: [Level; 8] = [
        Level::Scalar,
        Level::Sse2,
        Level::Avx2,
        Level::Avx512,
        Level::Avx512Bf16,
        Level::Amx,
        Level::Neon,
        Level::Dotprod,
    ];

    /// Whether processors of the architecture that this code is compiled for may have the level.
    pub(crate) const fn is_of_this_architecture(self) -> bool {
        match self {
            Level::Scalar => true,
            Level::Sse2 | Level::Avx2 | Level::Avx512 | Level::Avx512Bf16 | Level::Amx => cfg!(target_arch = "x86_64"),
            Level::Neon | Level::Dotprod => cfg!(target_arch = "aarch64"),
        }
    }

    /// Name for messages and options.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            Level::Sse2 => "sse2",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
            Level::Avx512Bf16 => "avx512bf16",
            Level::Amx => "amx",
            Level::Neon => "neon",
            Level::Dotprod => "dotprod",
        }
    }

    /// The level called `name`.
    pub fn from_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }
}
