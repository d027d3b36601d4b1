//! Entry points and the tables of their addresses.

use llmcc_abi::evict::{EvictArgs, EvictFn};
use llmcc_abi::layout::BLOCK;
use llmcc_abi::math::{Binary, Unary};
use llmcc_abi::recur::{RecurArgs, RecurFn};
use llmcc_abi::route::RouteFn;
use llmcc_abi::{
    AttendArgs, AttendFn, AttendWith, AttendWithFn, FLOAT_PANELS, FloatRows, HalfKind, INT8_PANELS, MapFn, PanelArgs,
    PanelFn, QuantRowsFn, RopeTableFn, RoundHalvesFn, SelectArgs, SelectFn, SelectWindowsArgs, SelectWindowsFn,
    UK_COUNT, Uk, UkTable,
};

use crate::{Level, reference};

/// Entries that are no panels.
struct Rest {
    quant_rows: QuantRowsFn,
    round_halves: RoundHalvesFn,
    attend: AttendFn,
    attend_with: AttendWithFn,
    map: MapFn,
    recur: RecurFn,
    select: SelectFn,
    evict: EvictFn,
    select_windows: SelectWindowsFn,
}

/// Addresses of `panels` and `int8`, the functions of the lines of [`FLOAT_PANELS`] and of
/// [`INT8_PANELS`], and `rest`.
fn assemble(panels: [PanelFn; FLOAT_PANELS.len()], int8: [PanelFn; INT8_PANELS.len()], rest: Rest) -> UkTable {
    let mut f = [0; UK_COUNT];
    for ((uk, ..), panel) in FLOAT_PANELS.iter().zip(panels) {
        f[*uk as usize] = panel as usize;
    }
    f[Uk::RopeTable as usize] = reference::rope_table as RopeTableFn as usize;
    f[Uk::Route as usize] = crate::route::route as RouteFn as usize;
    f[Uk::QuantRows as usize] = rest.quant_rows as usize;
    f[Uk::RoundHalves as usize] = rest.round_halves as usize;
    f[Uk::Attend as usize] = rest.attend as usize;
    f[Uk::AttendWith as usize] = rest.attend_with as usize;
    f[Uk::Map as usize] = rest.map as usize;
    f[Uk::Recur as usize] = rest.recur as usize;
    f[Uk::Select as usize] = rest.select as usize;
    f[Uk::Evict as usize] = rest.evict as usize;
    f[Uk::SelectWindows as usize] = rest.select_windows as usize;
    let mut table = UkTable { f };
    put_int8(&mut table, 0, int8);
    table
}

/// Puts the functions of adjacent lines of [`INT8_PANELS`], the first of which is `first`, into a table.
fn put_int8<const N: usize>(table: &mut UkTable, first: usize, panels: [PanelFn; N]) {
    for ((uk, _), panel) in INT8_PANELS.iter().skip(first).zip(panels) {
        table.f[*uk as usize] = panel as usize;
    }
}

/// An array of the functions of rows of floats, for each line of [`FLOAT_PANELS`].
macro_rules! float_panels {
    ($function:ident) => {
        float_panels!($function: 0 1 2 3 4 5 6 7 8 9 10 11)
    };
    ($function:ident: $($line:literal)*) => { [$( $function::<$line> as _ ),*] };
}

/// An array of the functions with int8 rows, for each line of [`INT8_PANELS`].
macro_rules! int8_panels {
    ($function:ident) => {
        int8_panels!($function: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24)
    };
    ($function:ident: $($line:literal)*) => { [$( $function::<$line> as _ ),*] };
}

/// Scalar entry points.
mod scalar {
    use super::{FLOAT_PANELS, FloatRows, INT8_PANELS, PanelArgs, Rest, UkTable, assemble, reference};

    unsafe extern "C" fn panel_int8<const F: usize>(p: *const PanelArgs) {
        let weights = INT8_PANELS[F].1;
        unsafe {
            match weights.has_integer_scales() {
                true => reference::panel_integer_scales(&*p, weights),
                false => reference::panel_int8_rows(&*p, weights),
            }
        }
    }

    unsafe extern "C" fn panel_floats<const F: usize>(p: *const PanelArgs) {
        let (_, weights, rows) = FLOAT_PANELS[F];
        unsafe {
            match rows {
                FloatRows::F32 => reference::panel_f32_rows(&*p, weights),
                FloatRows::Bf16 => reference::panel_bf16_rows(&*p, weights),
            }
        }
    }

    pub(super) fn table() -> UkTable {
        let (quant_rows, round_halves) = (reference::quant_rows, reference::round_halves);
        assemble(
            float_panels!(panel_floats),
            int8_panels!(panel_int8),
            Rest {
                quant_rows,
                round_halves,
                attend: reference::attend,
                attend_with: reference::attend_with,
                map: reference::map,
                recur: reference::recur,
                select: reference::select,
                evict: reference::evict,
                select_windows: reference::select_windows,
            },
        )
    }
}

/// Entry points of one instruction set, monomorphised under its target features.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! entries {
    ($module:ident, $isa:ty, $features:literal) => {
        mod $module {
            use super::{
                AttendArgs, AttendWith, BLOCK, Binary, EvictArgs, HalfKind, PanelArgs, RecurArgs, Rest, SelectArgs,
                SelectWindowsArgs, UkTable, Unary, assemble,
            };
            use crate::halves::Runs;
            use crate::isa::Isa;
            use crate::panel::{Kernel, Tile, decode, e4m3, float, many, run, run_f32, run_int8};
            type Target = $isa;

            macro_rules! panels {
                ($name:ident, $kernel:ty) => {
                    #[target_feature(enable = $features)]
                    pub(super) unsafe extern "C" fn $name(p: *const PanelArgs) {
                        unsafe { run::<Target, $kernel>(&*p) }
                    }
                };
                ($name:ident, $kernel:ty, $multiply:ident) => {
                    #[target_feature(enable = $features)]
                    pub(super) unsafe extern "C" fn $name(p: *const PanelArgs) {
                        #[target_feature(enable = $features)]
                        unsafe fn widen(t: &Tile, w: *const u8, from: usize, to: usize, out: *mut f32) {
                            unsafe { <$kernel as many::Widen<Target>>::widen(t, w, from, to, out) }
                        }
                        #[target_feature(enable = $features)]
                        unsafe fn factors(t: &Tile, w: *const u8, from: usize, out: *mut f32) {
                            unsafe { <$kernel as many::Widen<Target>>::factors(t, w, from, out) }
                        }
                        const PARTS: many::Parts = many::Parts {
                            weights: <$kernel as Kernel<Target>>::ENCODING,
                            blocks: 2 * Target::LANES / BLOCK,
                            widen,
                            factors,
                            multiply: $multiply,
                        };
                        unsafe { run_f32::<Target, $kernel>(&*p, &PARTS) }
                    }
                };
            }
            #[target_feature(enable = $features)]
            unsafe fn columns(p: &many::Columns) {
                unsafe { many::columns::<Target>(p) }
            }

            panels!(panel_f32, float::F32, columns);
            panels!(panel_f16, float::F16, columns);
            panels!(panel_bf16, float::Bf16, columns);
            panels!(panel_w8, decode::Decode<decode::W8>, columns);
            panels!(panel_w4, decode::Decode<decode::W4>, columns);
            panels!(panel_w4a, decode::Decode<decode::W4a>, columns);
            panels!(panel_nf4, decode::Decode<decode::Floats<0>>, columns);
            panels!(panel_fp4, decode::Decode<decode::Floats<1>>, columns);
            panels!(panel_fp8, e4m3::E4m3<true>, columns);
            panels!(panel_fp8b, e4m3::E4m3<false>, columns);
            panels!(panel_nvfp4, decode::Decode<decode::Floats<2>>, columns);
            panels!(panel_bf16_rows, float::Bf16Rows);

            #[target_feature(enable = $features)]
            pub(super) unsafe extern "C" fn panel_int8<const F: usize>(p: *const PanelArgs) {
                unsafe { run_int8::<Target, F>(&*p) }
            }

            #[target_feature(enable = $features)]
            unsafe extern "C" fn quant_rows(
                x: *const f32,
                k: u64,
                group: u64,
                codes: *mut i8,
                scales: *mut f32,
                sums: *mut i32,
            ) {
                unsafe { crate::quant_rows::quant_row::<Target>(x, k as usize, group as usize, codes, scales, sums) }
            }

            #[target_feature(enable = $features)]
            unsafe extern "C" fn round_halves(
                x: *const f32,
                n: u64,
                to: HalfKind,
                out: *mut u16,
                first: u64,
                run: u64,
                jump: u64,
            ) {
                let runs = Runs { out, first: first as usize, run: run as usize, jump: jump as usize };
                unsafe { crate::halves::round::<Target>(x, n as usize, to, &runs) }
            }

            #[target_feature(enable = $features)]
            unsafe extern "C" fn map(
                unary: Unary,
                binary: Binary,
                n: u64,
                a: *const f32,
                b: *const f32,
                out: *mut f32,
            ) {
                unsafe { crate::map::map::<Target>(unary, binary, n as usize, a, b, out) }
            }

            #[target_feature(enable = $features)]
            unsafe extern "C" fn recur(a: *const RecurArgs) {
                unsafe { crate::recur::recur::<Target>(&*a) }
            }

            #[target_feature(enable = $features)]
            unsafe extern "C" fn select(a: *const SelectArgs) -> u64 {
                unsafe { crate::select::select::<Target>(&*a) }
            }

            #[target_feature(enable = $features)]
            unsafe extern "C" fn select_windows(a: *const SelectWindowsArgs) {
                unsafe { crate::windows::select_windows::<Target>(&*a) }
            }

            #[target_feature(enable = $features)]
            unsafe extern "C" fn evict(a: *const EvictArgs) {
                unsafe { crate::evict::evict_by::<crate::evict::Vectors<Target>>(&*a) }
            }

            #[target_feature(enable = $features)]
            unsafe extern "C" fn attend(a: *const AttendArgs) -> u64 {
                unsafe { attend_with(&AttendWith::plain(*a)) }
            }

            // Once: it is the largest of all.
            #[inline(never)]
            #[target_feature(enable = $features)]
            unsafe extern "C" fn attend_with(a: *const AttendWith) -> u64 {
                unsafe { crate::attend::attend::<Target>(&*a) }
            }

            pub(super) fn table() -> UkTable {
                // As the lines of `FLOAT_PANELS`; the tests take each by its line.
                let panels = [
                    panel_f32,
                    panel_f16,
                    panel_bf16,
                    panel_w8,
                    panel_w4,
                    panel_w4a,
                    panel_bf16_rows,
                    panel_nf4,
                    panel_fp4,
                    panel_fp8,
                    panel_fp8b,
                    panel_nvfp4,
                ];
                assemble(
                    panels.map(|f| f as _),
                    int8_panels!(panel_int8),
                    Rest { quant_rows, round_halves, attend, attend_with, map, recur, select, evict, select_windows },
                )
            }
        }
    };
}

#[cfg(target_arch = "aarch64")]
entries!(neon, crate::isa::neon::Neon<crate::isa::neon::Widening>, "neon");
/// NEON with the integer dot products of `dotprod`. All that multiplies no int8 rows comes from [`neon`].
#[cfg(target_arch = "aarch64")]
mod dotprod {
    use super::{INT8_PANELS, PanelArgs, PanelFn, UkTable, neon, put_int8};
    use crate::isa::neon::{Neon, Sdot};
    use crate::panel::run_int8;

    #[target_feature(enable = "neon,dotprod")]
    unsafe extern "C" fn panel_int8<const F: usize>(p: *const PanelArgs) {
        unsafe { run_int8::<Neon<Sdot>, F>(&*p) }
    }

    pub(super) fn table() -> UkTable {
        let mut table = neon::table();
        let panels: [PanelFn; INT8_PANELS.len()] = int8_panels!(panel_int8);
        put_int8(&mut table, 0, panels);
        table
    }
}

#[cfg(target_arch = "x86_64")]
entries!(sse2, crate::isa::sse2::Sse2, "sse2");
#[cfg(target_arch = "x86_64")]
entries!(avx2, crate::isa::avx2::Avx2, "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
entries!(avx512, crate::isa::avx512::Avx512<false>, "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c");
/// AVX-512 with the BF16 dot product, VBMI and VBMI2, which few microkernels use. All others come from [`avx512`], so
/// that the runtime has them once.
#[cfg(target_arch = "x86_64")]
mod avx512_bf16 {
    use super::{PanelArgs, PanelFn, Uk, UkTable, avx512, put_int8};
    use crate::isa::avx512::Avx512;
    use crate::panel::{TRELLISES, float, run, run_int8};

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,avx2,fma,f16c")]
    unsafe extern "C" fn panel_bf16_rows(p: *const PanelArgs) {
        unsafe { run::<Avx512<true>, float::Bf16Rows>(&*p) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,avx512vbmi2,avx2,fma,f16c")]
    unsafe extern "C" fn panel_trellis<const F: usize>(p: *const PanelArgs) {
        unsafe { run_int8::<Avx512<true>, F>(&*p) }
    }

    /// A table without the BF16 dot product.
    pub(super) fn with_trellises() -> UkTable {
        let mut table = avx512::table();
        let panels: [PanelFn; TRELLISES.1] = [panel_trellis::<{ TRELLISES.0 }>, panel_trellis::<{ TRELLISES.0 + 1 }>];
        put_int8(&mut table, TRELLISES.0, panels);
        table
    }

    pub(super) fn table() -> UkTable {
        let mut table = with_trellises();
        table.f[Uk::PanelBf16Rows as usize] = panel_bf16_rows as PanelFn as usize;
        table
    }
}

/// The same with AMX for int8 rows, where there are enough of them, and for bf16 rows. All else
/// falls to plain AVX-512, which is twice as fast as its bf16 instruction on the processors that
/// have AMX.
#[cfg(target_arch = "x86_64")]
mod amx {
    use super::{INT8_PANELS, PanelArgs, PanelFn, Uk, UkTable, avx512, put_int8};
    use crate::panel::amx::{bf16, int8};

    /// Lines of [`INT8_PANELS`] that the matrix unit multiplies: 8 and 4 bits. Up to 4 rows are
    /// multiplied as fast as memory brings their weights, which it does not reach.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
    unsafe extern "C" fn panel_int8<const F: usize>(p: *const PanelArgs) {
        unsafe {
            match (*p).m {
                5.. if int8::suits(&*p) => int8::run(&*p, INT8_PANELS[F].1),
                _ => avx512::panel_int8::<F>(p),
            }
        }
    }

    pub(super) fn table() -> UkTable {
        let mut table = super::avx512_bf16::with_trellises();
        let int8: [PanelFn; 3] = [panel_int8::<0>, panel_int8::<1>, panel_int8::<2>];
        put_int8(&mut table, 0, int8);
        table.f[Uk::PanelBf16Rows as usize] = panel_bf16_rows as PanelFn as usize;
        table
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
    unsafe extern "C" fn panel_bf16_rows(p: *const PanelArgs) {
        unsafe { if bf16::suits(&*p) { bf16::run(&*p) } else { avx512::panel_bf16_rows(p) } }
    }
}

/// The microkernels of `level`, but with the bits that all levels have: AMX sums products of bf16
/// rows in an order of its own.
pub fn portable_table(level: Level) -> UkTable {
    let mut all = table(level);
    if level == Level::Amx {
        let entry = Uk::PanelBf16Rows as usize;
        all.f[entry] = table(Level::Avx512).f[entry];
    }
    all
}

/// The microkernels of `level`; scalar code where it is a level of another architecture. Calling one on a processor
/// below that level is undefined behaviour: see [`crate::detect`].
#[cfg(target_arch = "x86_64")]
pub fn table(level: Level) -> UkTable {
    match level {
        Level::Sse2 => sse2::table(),
        Level::Avx2 => avx2::table(),
        Level::Avx512 => avx512::table(),
        Level::Avx512Bf16 => avx512_bf16::table(),
        Level::Amx => amx::table(),
        Level::Scalar | Level::Neon | Level::Dotprod => scalar::table(),
    }
}

/// The microkernels of `level`; scalar code where it is a level of another architecture.
#[cfg(target_arch = "aarch64")]
pub fn table(level: Level) -> UkTable {
    match level {
        Level::Neon => neon::table(),
        Level::Dotprod => dotprod::table(),
        Level::Scalar | Level::Sse2 | Level::Avx2 | Level::Avx512 | Level::Avx512Bf16 | Level::Amx => scalar::table(),
    }
}

/// The microkernels of `level`: scalar code, whatever it is.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn table(_level: Level) -> UkTable {
    scalar::table()
}
