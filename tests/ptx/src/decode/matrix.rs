//! Matrix instructions of one warp.
//!
//! `mma`: products are exact and are added to the accumulator in f64; the sum is rounded once. The
//! hardware adds in another order and with less precision, which PTX does not define.

use half::f16;

use super::{Addr, Dec, Res};
use crate::element::Element;
use crate::fault::{FaultKind, Trapped, trap};
use crate::machine::{Cx, Exec, Next, Reg, SHARED_BASE, Slot};
use crate::shared::Who;
use crate::value::{Bits, F16, Round, Two};

pub(super) fn decode(d: &mut Dec<'_, '_>) -> Res<Exec> {
    match d.root {
        "mma" => mma(d),
        "movmatrix" => movmatrix(d),
        _ => moving(d),
    }
}

/// Lane stood in for when an access is made for several lanes together.
const TOGETHER: u32 = 255;

/// `ldmatrix` and `stmatrix`: 8x8 matrices of 16-bit elements; lane `8 i + r` gives the address of
/// row `r` of matrix `i`.
fn moving(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let load = d.root == "ldmatrix";
    if d.ty()? != "b16" || !d.flag("sync") || !d.flag("aligned") || !d.flag("m8n8") {
        return d.unknown();
    }
    let n = match d.pick(&["x1", "x2", "x4"]) {
        Some("x1") => 1,
        Some("x2") => 2,
        Some(_) => 4,
        None => return d.unknown(),
    };
    let trans = d.flag("trans");
    if !(d.flag("shared") || d.flag("shared::cta")) {
        return d.unknown();
    }
    d.touches_shared(16);
    let (regs, addr) = if load {
        let (regs, _) = d.dst_list(32)?;
        (regs, d.addr()?)
    } else {
        let addr = d.addr()?;
        (d.src_list("b32")?, addr)
    };
    if regs.len() != n {
        return Err(d.error(format!("{n} registers are needed")));
    }
    Ok(Box::new(move |cx, mask| {
        cx.aligned(mask)?;
        full(mask)?;
        for (i, &reg) in regs.iter().enumerate() {
            let rows = rows(cx, addr, i as u32);
            cx.banks(&rows, 16);
            if load {
                let matrix = read_rows(cx, &rows)?;
                let dst = cx.reg_mut(reg);
                for (lane, out) in dst.iter_mut().enumerate() {
                    let (g, t) = (lane / 4, lane % 4);
                    let at = |k: usize| if trans { matrix[2 * t + k][g] } else { matrix[g][2 * t + k] };
                    *out = Two(at(0), at(1)).put();
                }
            } else {
                let src = *cx.reg(reg);
                let mut matrix = [[0u16; 8]; 8];
                for (lane, v) in src.iter().enumerate() {
                    let (g, t) = (lane / 4, lane % 4);
                    let Two(a, b) = Two::<u16>::get(*v);
                    for (k, x) in [a, b].into_iter().enumerate() {
                        let (r, c) = if trans { (2 * t + k, g) } else { (g, 2 * t + k) };
                        matrix[r][c] = x;
                    }
                }
                write_rows(cx, &rows, &matrix)?;
            }
        }
        Ok(Next::Step)
    }))
}

/// Matrix instructions need all 32 lanes.
pub(super) fn full(mask: u32) -> Result<(), Trapped> {
    if mask == u32::MAX {
        Ok(())
    } else {
        Err(trap(mask.trailing_zeros() & 31, FaultKind::Diverged { active: mask, expected: u32::MAX }))
    }
}

fn rows(cx: &Cx<'_>, addr: Addr, matrix: u32) -> [(u32, u64); 8] {
    std::array::from_fn(|r| {
        let lane = 8 * matrix + r as u32;
        (lane, addr.shared(cx, lane))
    })
}

fn read_rows(cx: &mut Cx<'_>, rows: &[(u32, u64); 8]) -> Result<[[u16; 8]; 8], Trapped> {
    let mut out = [[0; 8]; 8];
    for (row, &(lane, address)) in out.iter_mut().zip(rows) {
        let who = Who { lane: TOGETHER, ..cx.who(lane) };
        check_row(address).map_err(|k| trap(lane, k))?;
        let bytes = cx.cta.shared.read(who, address, 16, false).map_err(|k| trap(lane, k))?;
        *row = std::array::from_fn(|i| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]));
    }
    Ok(out)
}

fn write_rows(cx: &mut Cx<'_>, rows: &[(u32, u64); 8], matrix: &[[u16; 8]; 8]) -> Result<(), Trapped> {
    for (row, &(lane, address)) in matrix.iter().zip(rows) {
        let who = Who { lane: TOGETHER, ..cx.who(lane) };
        check_row(address).map_err(|k| trap(lane, k))?;
        let bytes: Vec<u8> = row.iter().flat_map(|v| v.to_le_bytes()).collect();
        cx.cta.shared.write(who, address, &bytes, false).map_err(|k| trap(lane, k))?;
    }
    Ok(())
}

fn check_row(address: u64) -> Result<(), FaultKind> {
    debug_assert_eq!(SHARED_BASE % 16, 0);
    crate::access::aligned(crate::access::Space::Shared, address, 16)
}

fn movmatrix(d: &mut Dec<'_, '_>) -> Res<Exec> {
    if d.ty()? != "b16" || !d.flag("sync") || !d.flag("aligned") || !d.flag("m8n8") || !d.flag("trans") {
        return d.unknown();
    }
    let (dst, src) = (d.dst(32)?, d.src("b32")?);
    Ok(Box::new(move |cx, mask| {
        cx.aligned(mask)?;
        full(mask)?;
        let src = *cx.reg(src);
        let element = |r: usize, c: usize| (src[4 * r + c / 2] >> (16 * (c % 2))) as u16;
        for (lane, out) in cx.reg_mut(dst).iter_mut().enumerate() {
            let (g, t) = (lane / 4, lane % 4);
            *out = Two(element(2 * t, g), element(2 * t + 1, g)).put();
        }
        Ok(Next::Step)
    }))
}

/// Type of accumulators.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sum {
    F32,
    F16,
    S32,
}

struct Mma {
    element: (Element, Element),
    sum: Sum,
    k: usize,
    d: Vec<Slot>,
    a: Vec<Slot>,
    b: Vec<Slot>,
    c: Vec<Slot>,
}

fn mma(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let (c, b, a, to) = (d.ty()?, d.matrix_type()?, d.matrix_type()?, d.ty()?);
    if !d.flag("sync") || !d.flag("aligned") || !d.flag("row") || !d.flag("col") || c != to {
        return d.unknown();
    }
    let sum = match to {
        "f32" => Sum::F32,
        "f16" => Sum::F16,
        "s32" => Sum::S32,
        _ => return d.unknown(),
    };
    let Some(shape) = d.pick(&["m16n8k8", "m16n8k16", "m16n8k32"]) else { return d.unknown() };
    let k: usize = match shape {
        "m16n8k8" => 8,
        "m16n8k16" => 16,
        _ => 32,
    };
    let bits = k as u32 * a.bits();
    let known = a.bits() == b.bits()
        && a.is_int() == (sum == Sum::S32)
        && (128..=256).contains(&bits)
        && (a != Element::Tf32 || k == 8);
    let halves = matches!((a, b), (Element::F16, Element::F16));
    if !known || (sum == Sum::F16 && !halves) || ((a != b) && a.bits() != 8) {
        return d.unknown();
    }
    let per_lane = if sum == Sum::F16 { 2 } else { 4 };
    // Sixteen rows or eight columns of `bits` bits, over 32 lanes of 32-bit registers.
    let (na, nb) = (16 * bits as usize / 1024, 8 * bits as usize / 1024);
    let ty = if sum == Sum::F32 { "f32" } else { "b32" };
    let (dl, al, bl) = (d.dst_list(32)?.0, d.src_list("b32")?, d.src_list("b32")?);
    let cl = d.src_list(ty)?;
    if (dl.len(), al.len(), bl.len(), cl.len()) != (per_lane, na, nb, per_lane) {
        return Err(d.error(format!("needs {per_lane}, {na}, {nb} and {per_lane} registers")));
    }
    let plan = Mma { element: (a, b), sum, k, d: dl, a: al, b: bl, c: cl };
    Ok(Box::new(move |cx, mask| {
        cx.aligned(mask)?;
        full(mask)?;
        plan.run(cx);
        Ok(Next::Step)
    }))
}

impl Dec<'_, '_> {
    /// Takes the last modifier, the element type of a matrix.
    pub fn matrix_type(&mut self) -> Res<Element> {
        let last = self.pop_mod();
        last.and_then(Element::of).ok_or_else(|| self.error(format!("matrices of {last:?} are not emulated")))
    }
}

impl Mma {
    fn run(&self, cx: &mut Cx<'_>) {
        let mut a = [[0f64; 16]; 32];
        let mut b = [[0f64; 8]; 32];
        spread(cx, self.element.0, &self.a, |k, g, r, v| a[k][g + 8 * (r & 1)] = v, |r| r >> 1);
        spread(cx, self.element.1, &self.b, |k, g, _, v| b[k][g] = v, |r| r);
        let mut sum = [[0f64; 8]; 16];
        let c: Vec<Reg> = self.c.iter().map(|s| *cx.reg(*s)).collect();
        self.corners(|lane, i, row, col| {
            let v = match self.sum {
                Sum::F32 => f64::from(f32::get(c[i][lane])),
                Sum::S32 => f64::from(c[i][lane] as i32),
                Sum::F16 => f64::from(f16::get(c[i / 2][lane] >> (16 * (i % 2))).to_f32()),
            };
            sum[row][col] = v;
        });
        for (a, b) in a[..self.k].iter().zip(&b) {
            for (row, x) in sum.iter_mut().zip(a) {
                for (s, y) in row.iter_mut().zip(b) {
                    *s += x * y;
                }
            }
        }
        let mut out = vec![[0u64; 32]; self.d.len()];
        self.corners(|lane, i, row, col| {
            let v = sum[row][col];
            match self.sum {
                Sum::F32 => out[i][lane] = (v as f32).put(),
                // Integers wrap.
                Sum::S32 => out[i][lane] = (v as i64 as i32).put(),
                Sum::F16 => out[i / 2][lane] |= F16.encode(v, Round::Near, false) << (16 * (i % 2)),
            }
        });
        for (slot, v) in self.d.iter().zip(out) {
            *cx.reg_mut(*slot) = v;
        }
    }

    /// Calls `f(lane, i, row, column)` for the four accumulator elements of each lane.
    fn corners(&self, mut f: impl FnMut(usize, usize, usize, usize)) {
        for lane in 0..32 {
            let (g, t) = (lane / 4, lane % 4);
            for i in 0..4 {
                f(lane, i, g + 8 * (i / 2), 2 * t + i % 2);
            }
        }
    }
}

/// Takes fragments apart: register `r` of lane `4 g + t` holds, of row (or column) `g`, the
/// elements from `k = t * per + 4 * per * block(r)` on.
fn spread(
    cx: &Cx<'_>,
    e: Element,
    regs: &[Slot],
    mut put: impl FnMut(usize, usize, usize, f64),
    block: impl Fn(usize) -> usize,
) {
    let per = 32 / e.bits() as usize;
    for (r, slot) in regs.iter().enumerate() {
        let reg = cx.reg(*slot);
        for (lane, word) in reg.iter().enumerate() {
            let (g, t) = (lane / 4, lane % 4);
            for i in 0..per {
                let k = t * per + 4 * per * block(r) + i;
                put(k, g, r, e.value((*word as u32) >> (i as u32 * e.bits() % 32)));
            }
        }
    }
}
