//! `wgmma`: matrix products of four warps, with matrices in shared memory behind descriptors.

use super::matrix::full;
use super::{Dec, Res};
use crate::ast::Operand;
use crate::element::Element;
use crate::fault::{FaultKind, Trapped, trap};
use crate::machine::{Cx, Exec, Next, Slot};
use crate::shared::Who;
use crate::value::Bits;
use crate::wgmma::Product;

pub(super) fn decode(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let Some(op) = d.next_mod() else { return d.unknown() };
    if op == "mma_async" {
        return product(d);
    }
    if !d.flag("sync") || !d.flag("aligned") {
        return d.unknown();
    }
    let left = if op == "wait_group" { d.immediate()? as u32 } else { 0 };
    let run: fn(&mut Cx<'_>, u32) = match op {
        "fence" => |cx, _| cx.wgmma_fence(),
        "commit_group" => |cx, _| cx.wgmma_commit(),
        "wait_group" => |cx, n| cx.wgmma_wait(n),
        _ => return d.unknown(),
    };
    Ok(Box::new(move |cx, mask| {
        cx.aligned(mask)?;
        run(cx, left);
        Ok(Next::Step)
    }))
}

/// Where a matrix lies in shared memory.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    start: u64,
    leading: u64,
    stride: u64,
    /// Bytes of a swizzled row: 128, 64, 32, or 0.
    swizzle: u64,
}

impl Descriptor {
    fn of(bits: u64) -> Result<Descriptor, FaultKind> {
        let field = |at: u32| (bits >> at & 0x3fff) << 4;
        if bits >> 49 & 7 != 0 {
            return Err(FaultKind::Operand("matrix descriptors with a base offset are not emulated".into()));
        }
        let swizzle = [0, 128, 64, 32][(bits >> 62) as usize];
        Ok(Descriptor { start: field(0), leading: field(16), stride: field(32), swizzle })
    }

    /// Address of the 16 bytes that hold element (`mn`, `k`). `major_k`: they go on along `k` (then
    /// `k` is a multiple of their number), else along `mn`.
    fn address(self, mn: u64, k: u64, bytes: u64, major_k: bool) -> u64 {
        let s = self.swizzle;
        let at = match (major_k, s) {
            (true, 0) => mn / 8 * self.stride + mn % 8 * 16 + k * bytes / 16 * self.leading,
            (true, _) => mn / 8 * self.stride + mn % 8 * s + k * bytes,
            (false, 0) => mn / 8 * self.stride + k % 8 * 16 + k / 8 * self.leading,
            (false, _) => {
                let wide = s / bytes;
                mn / wide * self.leading + mn % wide * bytes + k / 8 * self.stride + k % 8 * s
            }
        };
        let a = self.start + at;
        // The swizzle permutes 16-byte pieces by the number of the 128-byte line.
        a ^ match s {
            128 => (a >> 7 & 7) << 4,
            64 => (a >> 7 & 3) << 4,
            32 => (a >> 7 & 1) << 4,
            _ => 0,
        }
    }
}

/// First matrix: in registers or in shared memory.
enum First {
    Registers(Vec<Slot>),
    Shared(Slot),
}

struct Plan {
    n: usize,
    k: usize,
    element: (Element, Element),
    sums: Vec<Slot>,
    first: First,
    second: Slot,
    /// Predicate: whether the accumulators are added to.
    adds: Option<(Slot, bool)>,
    sign: f64,
    trans: (bool, bool),
}

fn product(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let (b, a) = (d.matrix_type()?, d.matrix_type()?);
    if d.ty()? != "f32" || !d.flag("sync") || !d.flag("aligned") {
        return d.unknown();
    }
    let Some((n, k)) = d.next_mod().and_then(shape) else { return d.unknown() };
    if k * a.bits() as usize != 256 || a.bits() != b.bits() || a.is_int() || n % 8 != 0 || !(8..=256).contains(&n) {
        return d.unknown();
    }
    let (sums, _) = d.dst_list(32)?;
    if sums.len() != n / 2 {
        return Err(d.error(format!("{} accumulators are needed", n / 2)));
    }
    let first = if d.peek_vec() { First::Registers(d.src_list("b32")?) } else { First::Shared(d.src("b64")?) };
    if matches!(&first, First::Registers(r) if r.len() != 4) {
        return Err(d.error("the first matrix is in four registers"));
    }
    let second = d.src("b64")?;
    let adds = if d.remaining() > 0 { Some(d.pred()?) } else { None };
    let mut sign = 1.0;
    if d.remaining() > 0 {
        sign = (d.scale()? * d.scale()?) as f64;
    }
    let mut trans = (false, false);
    if d.remaining() > 0 && a.bits() == 16 {
        if matches!(first, First::Shared(_)) {
            trans.0 = d.immediate()? != 0;
        }
        trans.1 = d.immediate()? != 0;
    }
    d.touches_shared(16);
    let plan = Plan { n, k, element: (a, b), sums, first, second, adds, sign, trans };
    Ok(Box::new(move |cx, mask| {
        cx.aligned(mask)?;
        full(mask)?;
        plan.run(cx)
    }))
}

/// `m64n128k16`: the last two.
fn shape(text: &str) -> Option<(usize, usize)> {
    let (n, k) = text.strip_prefix("m64n")?.split_once('k')?;
    Some((n.parse().ok()?, k.parse().ok()?))
}

impl Dec<'_, '_> {
    fn scale(&mut self) -> Res<i64> {
        match self.op()? {
            Operand::Int(v @ (1 | -1)) => Ok(v as i64),
            o => Err(self.error(format!("a scale is 1 or -1, not {o:?}"))),
        }
    }
}

/// Elements of a matrix, by `mn` and `k`.
type Matrix = Vec<[f64; 32]>;

impl Plan {
    fn run(&self, cx: &mut Cx<'_>) -> Result<Next, Trapped> {
        let fail = |k| trap(0, k);
        let mut reads = Vec::new();
        let row = 16 * u64::from(cx.warp.index % 4);
        let a = match &self.first {
            First::Registers(regs) => self.fragment(cx, regs),
            First::Shared(s) => {
                let place = uniform(cx, *s)?;
                self.fetch(cx, place, self.element.0, row, 16, !self.trans.0, &mut reads).map_err(fail)?
            }
        };
        let place = uniform(cx, self.second)?;
        let b = self.fetch(cx, place, self.element.1, 0, self.n, !self.trans.1, &mut reads).map_err(fail)?;
        let fragments: &[Slot] = if let First::Registers(r) = &self.first { r } else { &[] };
        cx.issue(0, Product { sums: &self.sums, fragments, reads })?;
        let adds = match self.adds {
            Some((p, neg)) => (cx.reg(p)[0] != 0) ^ neg,
            None => true,
        };
        let short = cx.env.options.short_fp8_sums && self.element.0.bits() == 8;
        for (i, &slot) in self.sums.iter().enumerate() {
            let (j, i) = (i / 4, i % 4);
            let old = *cx.reg(slot);
            let new: [u64; 32] = std::array::from_fn(|lane| {
                let (g, t) = (lane / 4, lane % 4);
                let (x, y) = (&a[g + 8 * (i / 2)], &b[8 * j + 2 * t + i % 2]);
                let products = x[..self.k].iter().zip(&y[..self.k]).map(|(x, y)| self.sign * x * y);
                let start = if adds { f64::from(f32::get(old[lane])) } else { 0.0 };
                let sum = if short { short_sum(products.chain([start])) } else { start + products.sum::<f64>() };
                (sum as f32).put()
            });
            *cx.reg_mut(slot) = new;
        }
        Ok(Next::Step)
    }

    /// The warp's 16 rows of the first matrix, from registers: the fragment of `mma`.
    fn fragment(&self, cx: &Cx<'_>, regs: &[Slot]) -> Matrix {
        let mut out = vec![[0.0; 32]; 16];
        let e = self.element.0;
        let per = 32 / e.bits() as usize;
        for (r, slot) in regs.iter().enumerate() {
            for (lane, word) in cx.reg(*slot).iter().enumerate() {
                for i in 0..per {
                    let k = (lane % 4) * per + 4 * per * (r / 2) + i;
                    out[lane / 4 + 8 * (r % 2)][k] = e.value((*word as u32) >> (i as u32 * e.bits() % 32));
                }
            }
        }
        out
    }

    /// `count` rows (columns) from `from` on of a matrix in shared memory.
    fn fetch(
        &self,
        cx: &mut Cx<'_>,
        place: Descriptor,
        e: Element,
        from: u64,
        count: usize,
        major_k: bool,
        reads: &mut Vec<u64>,
    ) -> Result<Matrix, FaultKind> {
        let bytes = u64::from(e.bits() / 8);
        let per = (16 / bytes) as usize;
        let mut out = vec![[0.0; 32]; count];
        let who = Who { lane: 255, ..cx.who(0) };
        let (outer, inner) = if major_k { (count, self.k) } else { (self.k, count) };
        for o in 0..outer {
            for i in (0..inner).step_by(per) {
                let (mn, k) = if major_k { (o, i) } else { (i, o) };
                let address = place.address(from + mn as u64, k as u64, bytes, major_k);
                let data = cx.cta.shared.async_read(who, address, 16)?;
                for (x, piece) in data.chunks_exact(bytes as usize).enumerate() {
                    let mut word = [0; 4];
                    word[..piece.len()].copy_from_slice(piece);
                    let (mn, k) = if major_k { (mn, k + x) } else { (mn + x, k) };
                    out[mn][k] = e.value(u32::from_le_bytes(word));
                }
                reads.push(address);
            }
        }
        Ok(out)
    }
}

/// The sum of terms, keeping 13 bits below the first bit of the largest, and the same of the sum.
fn short_sum(terms: impl Iterator<Item = f64> + Clone) -> f64 {
    let cut = |x: f64, largest: f64| {
        let unit = 2f64.powi(largest.abs().log2().floor() as i32 - 13);
        if largest == 0.0 || !largest.is_finite() { x } else { (x / unit).trunc() * unit }
    };
    let largest = terms.clone().fold(0.0, |m: f64, x| m.max(x.abs()));
    let sum = terms.map(|x| cut(x, largest)).sum();
    cut(sum, sum)
}

/// A descriptor, which is the same in every lane.
fn uniform(cx: &Cx<'_>, slot: Slot) -> Result<Descriptor, Trapped> {
    let reg = cx.reg(slot);
    if let Some(lane) = (1..32).find(|l| reg[*l] != reg[0]) {
        return Err(trap(
            lane as u32,
            FaultKind::Operand("the lanes of the warp give different matrix descriptors".into()),
        ));
    }
    Descriptor::of(reg[0]).map_err(|k| trap(0, k))
}
