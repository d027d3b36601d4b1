//! Loads, stores and atomics.

use half::{bf16, f16};

use super::arith::Half;
use super::{Addr, Dec, Res, bits_of, nothing};
use crate::access::{How, Space};
use crate::fault::{Trapped, trap};
use crate::machine::{Cx, Exec, Next, Slot, lanes};
use crate::value::{Bits, Two, sum_odd};

/// Orders and scopes; here every access is coherent.
const ORDERS: &[&str] =
    &["weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "cta", "cluster", "gpu", "sys"];
/// Hints that do not change results.
const HINTS: &[&str] = &[
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::64B",
    "L2::128B",
    "L2::256B",
    "L2::evict_last",
    "L2::evict_first",
    "L2::evict_normal",
];

pub(super) fn space(d: &mut Dec<'_, '_>) -> Space {
    match d.pick(&["global", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry", "const"]) {
        Some("global") => Space::Global,
        Some("shared" | "shared::cta" | "shared::cluster") => Space::Shared,
        Some("local") => Space::Local,
        Some("param" | "param::entry") => Space::Param,
        Some(_) => Space::Const,
        None => Space::Generic,
    }
}

pub(super) fn decode(d: &mut Dec<'_, '_>) -> Res<Exec> {
    match d.root {
        "ld" | "ldu" => access(d, true),
        "st" => access(d, false),
        "atom" | "red" => atomic(d),
        _ => {
            while d.next_mod().is_some() {}
            d.addr()?;
            if d.remaining() > 0 {
                d.immediate()?;
            }
            Ok(nothing())
        }
    }
}

/// Name of the space for the statistics.
fn class(d: &mut Dec<'_, '_>, space: Space) {
    let name = format!("{}.{space:?}", d.root).to_lowercase();
    d.class = name;
}

fn access(d: &mut Dec<'_, '_>, load: bool) -> Res<Exec> {
    let ty = d.ty()?;
    let mut atomic = false;
    while let Some(o) = d.pick(ORDERS) {
        atomic |= o != "weak";
    }
    let constant = d.flag("nc");
    d.drop_all(HINTS);
    let hint = d.flag("L2::cache_hint");
    let space = space(d);
    class(d, space);
    let count = match d.pick(&["v2", "v4", "v8"]) {
        Some("v2") => 2,
        Some("v4") => 4,
        Some(_) => 8,
        None => 1,
    };
    let bits =
        bits_of(ty).filter(|b| (8..=64).contains(b)).ok_or_else(|| d.error(format!("memory access of type {ty}")))?;
    let bytes = u64::from(bits / 8) * count;
    if matches!(space, Space::Shared | Space::Generic) {
        d.touches_shared(bytes);
    }
    d.touches_global(bytes);
    let (addr, regs, extend) = if load {
        let (dsts, have) = d.dst_list(bits)?;
        let extend = (ty.starts_with('s') && have > bits).then_some((bits, have));
        (d.addr()?, dsts, extend)
    } else {
        let addr = d.addr()?;
        (addr, d.src_list(if bits == 8 { "b8" } else { ty })?, None)
    };
    if hint {
        d.src("b64")?;
    }
    if regs.len() as u64 != count {
        return Err(d.error(format!("{count} registers are needed")));
    }
    let how = How { atomic, constant };
    let plan = Plan { space, addr, regs, bytes: bytes as usize, element: bits as usize / 8, how };
    Ok(if load {
        Box::new(move |cx, mask| plan.load(cx, mask, extend))
    } else {
        Box::new(move |cx, mask| plan.store(cx, mask))
    })
}

/// A load or store, decoded.
struct Plan {
    space: Space,
    addr: Addr,
    regs: Vec<Slot>,
    bytes: usize,
    element: usize,
    how: How,
}

/// Space and address of every lane; the space of the first lane is returned for the bank count.
struct Targets {
    list: [(u32, u64); 32],
    n: usize,
}

impl Plan {
    /// Resolves the address of `lane`; addresses of shared memory are collected.
    #[inline]
    fn target(&self, base: u64, lane: u32, shared: &mut Targets) -> (Space, u64) {
        let (space, address) = self.space.resolve(base.wrapping_add(self.addr.offset));
        if space == Space::Shared {
            shared.list[shared.n] = (lane, address);
            shared.n += 1;
        }
        (space, address)
    }

    fn load(&self, cx: &mut Cx<'_>, mask: u32, extend: Option<(u32, u32)>) -> Result<Next, Trapped> {
        let base = *cx.reg(self.addr.base);
        let mut shared = Targets { list: [(0, 0); 32], n: 0 };
        let mut values = [0u64; 8];
        for lane in lanes(mask) {
            let (space, address) = self.target(base[lane as usize], lane, &mut shared);
            let data = cx.load(space, lane, address, self.bytes, self.how).map_err(|k| trap(lane, k))?;
            elements(data, self.element, &mut values);
            for (&r, &v) in self.regs.iter().zip(&values) {
                cx.reg_mut(r)[lane as usize] = match extend {
                    None => v,
                    Some((from, to)) => {
                        let wide = ((v << (64 - from)) as i64 >> (64 - from)) as u64;
                        if to == 64 { wide } else { wide & ((1 << to) - 1) }
                    }
                };
            }
        }
        if shared.n > 0 {
            cx.banks(&shared.list[..shared.n], self.bytes as u64);
        }
        Ok(Next::Step)
    }

    fn store(&self, cx: &mut Cx<'_>, mask: u32) -> Result<Next, Trapped> {
        let base = *cx.reg(self.addr.base);
        let mut shared = Targets { list: [(0, 0); 32], n: 0 };
        let mut buf = [0u8; 64];
        for lane in lanes(mask) {
            let (space, address) = self.target(base[lane as usize], lane, &mut shared);
            for (i, &r) in self.regs.iter().enumerate() {
                let at = i * self.element;
                buf[at..at + self.element].copy_from_slice(&cx.reg(r)[lane as usize].to_le_bytes()[..self.element]);
            }
            cx.store(space, lane, address, self.how.atomic, &buf[..self.bytes]).map_err(|k| trap(lane, k))?;
        }
        if shared.n > 0 {
            cx.banks(&shared.list[..shared.n], self.bytes as u64);
        }
        Ok(Next::Step)
    }
}

/// The elements of `size` bytes that stand in `data`, extended by zeros.
#[inline(always)]
fn elements(data: &[u8], size: usize, out: &mut [u64; 8]) {
    fn each<const N: usize>(data: &[u8], out: &mut [u64; 8], value: impl Fn([u8; N]) -> u64) {
        for (out, bytes) in out.iter_mut().zip(data.as_chunks::<N>().0) {
            *out = value(*bytes);
        }
    }
    match size {
        1 => each::<1>(data, out, |b| u64::from(b[0])),
        2 => each(data, out, |b| u64::from(u16::from_le_bytes(b))),
        4 => each(data, out, |b| u64::from(u32::from_le_bytes(b))),
        _ => each(data, out, u64::from_le_bytes),
    }
}

/// New value from the old one and the operands.
type Change = fn(u64, u64, u64) -> u64;

fn signed(ty: &str) -> bool {
    ty.starts_with('s')
}

fn add_of(ty: &str) -> Option<Change> {
    Some(match ty {
        "u32" | "s32" => |a, b, _| u64::from((a as u32).wrapping_add(b as u32)),
        "u64" | "s64" => |a, b, _| a.wrapping_add(b),
        "f32" => |a, b, _| (f32::get(a) + f32::get(b)).put(),
        "f64" => |a, b, _| (f64::get(a) + f64::get(b)).put(),
        "f16" => |a, b, _| add_half::<f16>(f16::get(a), f16::get(b)).put(),
        "bf16" => |a, b, _| add_half::<bf16>(bf16::get(a), bf16::get(b)).put(),
        "f16x2" => |a, b, _| add_two::<f16>(Two::get(a), Two::get(b)),
        "bf16x2" => |a, b, _| add_two::<bf16>(Two::get(a), Two::get(b)),
        _ => return None,
    })
}

fn add_half<T: Half>(a: T, b: T) -> T {
    T::near(sum_odd(a.wide(), b.wide()))
}

fn add_two<T: Half>(a: Two<T>, b: Two<T>) -> u64 {
    Two(add_half(a.0, b.0), add_half(a.1, b.1)).put()
}

fn change(op: &str, ty: &str) -> Option<Change> {
    let wide = matches!(ty, "u64" | "s64" | "b64");
    Some(match op {
        "add" => return add_of(ty),
        "exch" => |_, b, _| b,
        "cas" => |a, b, c| if a == b { c } else { a },
        "and" => |a, b, _| a & b,
        "or" => |a, b, _| a | b,
        "xor" => |a, b, _| a ^ b,
        "inc" if ty == "u32" => |a, b, _| if a >= b { 0 } else { a + 1 },
        "dec" if ty == "u32" => |a, b, _| if a == 0 || a > b { b } else { a - 1 },
        "min" if signed(ty) && wide => |a, b, _| (a as i64).min(b as i64) as u64,
        "max" if signed(ty) && wide => |a, b, _| (a as i64).max(b as i64) as u64,
        "min" if signed(ty) => |a, b, _| (a as i32).min(b as i32).put(),
        "max" if signed(ty) => |a, b, _| (a as i32).max(b as i32).put(),
        "min" if ty.starts_with('u') => |a, b, _| a.min(b),
        "max" if ty.starts_with('u') => |a, b, _| a.max(b),
        _ => return None,
    })
}

fn atomic(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let ty = d.ty()?;
    let both = d.flag("acq_rel");
    let (acquires, releases) = (d.flag("acquire") || both, d.flag("release") || both);
    d.drop_all(ORDERS);
    d.flag("noftz");
    let hint = d.flag("L2::cache_hint");
    let space = space(d);
    class(d, space);
    let bits = bits_of(ty).ok_or_else(|| d.error(format!("atomic of type {ty}")))?;
    if bits > 64 {
        return d.unknown();
    }
    let Some(op) = d.next_mod() else { return d.unknown() };
    let change = change(op, ty).ok_or_else(|| d.error(format!("no atomic {op} of {ty}")))?;
    if matches!(space, Space::Shared | Space::Generic) {
        d.touches_shared(u64::from(bits / 8));
    }
    d.touches_global(u64::from(bits / 8));
    let dst = if d.root == "atom" { Some(d.dst(bits)?) } else { None };
    let addr = d.addr()?;
    let register = if ty.contains('x') { "b32" } else { ty };
    let b = d.src(register)?;
    let c = if op == "cas" { d.src(register)? } else { b };
    if hint {
        d.src("b64")?;
    }
    Ok(Box::new(move |cx, mask| {
        let (base, b, c) = (*cx.reg(addr.base), *cx.reg(b), *cx.reg(c));
        for lane in lanes(mask) {
            let l = lane as usize;
            let (space, address) = space.resolve(base[l].wrapping_add(addr.offset));
            let old = cx
                .atomic(space, lane, address, u64::from(bits / 8), |old| change(old, b[l], c[l]))
                .map_err(|k| trap(lane, k))?;
            if space == Space::Global {
                cx.mem.blocks.atomic(address, acquires, releases);
            }
            if let Some(dst) = dst {
                cx.reg_mut(dst)[l] = old;
            }
        }
        Ok(Next::Step)
    }))
}
