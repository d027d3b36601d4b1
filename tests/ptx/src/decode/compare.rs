//! Comparisons and selections.

use half::{bf16, f16};
use std::cmp::Ordering;

use super::{Dec, Res, lanewise, map3};
use crate::ast::Operand;
use crate::machine::{Cx, Exec, Next, Reg, Slot};
use crate::value::{Bits, flush};

pub(super) fn decode(d: &mut Dec<'_, '_>) -> Res<Exec> {
    match d.root {
        "selp" => selp(d),
        "slct" => slct(d),
        "set" => set(d),
        _ => setp(d),
    }
}

/// Comparison of two registers of one type: the lanes for which it holds. Floats have unordered forms, too.
type Compare = fn(&Reg, &Reg) -> u32;

#[inline(always)]
fn each<T: Bits>(a: &Reg, b: &Reg, holds: impl Fn(T, T) -> bool) -> u32 {
    (0..32).fold(0, |yes, l| yes | u32::from(holds(T::get(a[l]), T::get(b[l]))) << l)
}

fn ordered<T: Bits + PartialOrd>(name: &str) -> Option<Compare> {
    Some(match name {
        "eq" => |a, b| each::<T>(a, b, |a, b| a == b),
        "ne" => |a, b| each::<T>(a, b, |a, b| a.partial_cmp(&b).is_some_and(Ordering::is_ne)),
        "lt" => |a, b| each::<T>(a, b, |a, b| a < b),
        "le" => |a, b| each::<T>(a, b, |a, b| a <= b),
        "gt" => |a, b| each::<T>(a, b, |a, b| a > b),
        "ge" => |a, b| each::<T>(a, b, |a, b| a >= b),
        "equ" => |a, b| each::<T>(a, b, |a, b| a.partial_cmp(&b).is_none_or(Ordering::is_eq)),
        "neu" => |a, b| each::<T>(a, b, |a, b| a != b),
        "ltu" => |a, b| each::<T>(a, b, |a, b| !matches!(a.partial_cmp(&b), Some(o) if o.is_ge())),
        "leu" => |a, b| each::<T>(a, b, |a, b| !matches!(a.partial_cmp(&b), Some(o) if o.is_gt())),
        "gtu" => |a, b| each::<T>(a, b, |a, b| !matches!(a.partial_cmp(&b), Some(o) if o.is_le())),
        "geu" => |a, b| each::<T>(a, b, |a, b| !matches!(a.partial_cmp(&b), Some(o) if o.is_lt())),
        "num" => |a, b| each::<T>(a, b, |a, b| a.partial_cmp(&b).is_some()),
        "nan" => |a, b| each::<T>(a, b, |a, b| a.partial_cmp(&b).is_none()),
        _ => return None,
    })
}

/// The comparison `name` on type `ty`. Integers have only the ordered ones, with names of their own
/// for the unsigned.
fn comparison(name: &str, ty: &str, ftz: bool) -> Option<Compare> {
    let integer = match name {
        "lo" => "lt",
        "ls" => "le",
        "hi" => "gt",
        "hs" => "ge",
        n => n,
    };
    let plain = matches!(name, "eq" | "ne" | "lt" | "le" | "gt" | "ge");
    match ty {
        "f32" if ftz => match name {
            "eq" => Some(|a, b| each(a, b, |a, b| flush(a) == flush(b))),
            "neu" => Some(|a, b| each(a, b, |a, b| flush(a) != flush(b))),
            "lt" => Some(|a, b| each(a, b, |a, b| flush(a) < flush(b))),
            "gt" => Some(|a, b| each(a, b, |a, b| flush(a) > flush(b))),
            "le" => Some(|a, b| each(a, b, |a, b| flush(a) <= flush(b))),
            "ge" => Some(|a, b| each(a, b, |a, b| flush(a) >= flush(b))),
            _ => None,
        },
        "f32" => ordered::<f32>(name),
        "f64" => ordered::<f64>(name),
        "f16" => ordered::<f16>(name),
        "bf16" => ordered::<bf16>(name),
        "s16" if plain => ordered::<i16>(name),
        "s32" if plain => ordered::<i32>(name),
        "s64" if plain => ordered::<i64>(name),
        "u16" | "b16" => ordered::<u16>(integer),
        "u32" | "b32" => ordered::<u32>(integer),
        "u64" | "b64" => ordered::<u64>(integer),
        _ => None,
    }
}

/// The rest of a comparison: its operator and the operand types.
fn operator(d: &mut Dec<'_, '_>, ty: &str) -> Res<Compare> {
    let ftz = d.flag("ftz");
    let Some(name) = d.next_mod() else { return d.unknown() };
    comparison(name, ty, ftz).ok_or_else(|| d.error(format!("no comparison {name} of {ty}")))
}

/// Combines the lanes of a comparison with those of a predicate.
type Combine = fn(u32, u32) -> u32;

fn combination(d: &mut Dec<'_, '_>) -> Option<Combine> {
    d.pick(&["and", "or", "xor"]).map(|c| match c {
        "and" => (|a, b| a & b) as Combine,
        "or" => |a, b| a | b,
        _ => |a, b| a ^ b,
    })
}

/// Lanes for which a predicate operand holds.
fn holding(cx: &Cx<'_>, predicate: Option<(Slot, bool)>) -> u32 {
    predicate.map_or(0, |(slot, negated)| each::<u64>(cx.reg(slot), &[0; 32], |p, _| (p != 0) ^ negated))
}

fn setp(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let ty = d.ty()?;
    let combine = combination(d);
    if matches!(ty, "f16x2" | "bf16x2") {
        return setp_pair(d, ty, combine);
    }
    let f = operator(d, ty)?;
    let (p, q) = d.dst_pair(1, 1)?;
    let ([a, b], other) = ([d.src(ty)?, d.src(ty)?], third(d, combine.is_some())?);
    let combine = combine.unwrap_or(|a, _| a);
    Ok(Box::new(move |cx, mask| {
        let (yes, third) = (f(cx.reg(a), cx.reg(b)), holding(cx, other));
        if let Some(q) = q {
            put(cx, mask, q, combine(!yes, third));
        }
        put(cx, mask, p, combine(yes, third));
        Ok(Next::Step)
    }))
}

/// Sets the predicate `p` of the lanes of `mask`.
fn put(cx: &mut Cx<'_>, mask: u32, p: Slot, yes: u32) {
    let _: Result<Next, ()> = lanewise!(cx, mask, p, l => u64::from(yes >> l & 1));
}

/// The predicate that the result is combined with.
fn third(d: &mut Dec<'_, '_>, there: bool) -> Res<Option<(Slot, bool)>> {
    if there { d.pred().map(Some) } else { Ok(None) }
}

/// `setp.f16x2 p|q, a, b`: each predicate for one half.
fn setp_pair(d: &mut Dec<'_, '_>, ty: &str, combine: Option<Combine>) -> Res<Exec> {
    let f = operator(d, if ty == "f16x2" { "f16" } else { "bf16" })?;
    if combine.is_some() {
        return d.unknown();
    }
    let (p, Some(q)) = d.dst_pair(1, 1)? else { return d.unknown() };
    let (a, b) = (d.src("b32")?, d.src("b32")?);
    Ok(Box::new(move |cx, mask| {
        let both = [*cx.reg(a), *cx.reg(b)];
        let [low, high] = [both.map(|r| r.map(|v| v & 0xffff)), both.map(|r| r.map(|v| v >> 16))];
        put(cx, mask, p, f(&low[0], &low[1]));
        put(cx, mask, q, f(&high[0], &high[1]));
        Ok(Next::Step)
    }))
}

/// `set.cmp.dtype.stype d, a, b`: all ones or 1.0 where true.
fn set(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let ty = d.ty()?;
    let to = d.ty()?;
    let combine = combination(d);
    let f = operator(d, ty)?;
    let (width, yes) = match to {
        "u32" | "s32" => (32, u64::from(u32::MAX)),
        "f32" => (32, u64::from(1f32.to_bits())),
        "f16" => (16, 0x3c00),
        "bf16" => (16, 0x3f80),
        "u16" => (16, 0xffff),
        _ => return d.unknown(),
    };
    let dst = d.dst(width)?;
    let ([a, b], other) = ([d.src(ty)?, d.src(ty)?], third(d, combine.is_some())?);
    let combine = combine.unwrap_or(|a, _| a);
    Ok(Box::new(move |cx, mask| {
        let true_of = combine(f(cx.reg(a), cx.reg(b)), holding(cx, other));
        lanewise!(cx, mask, dst, l => if true_of >> l & 1 == 1 { yes } else { 0 })
    }))
}

fn selp(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let ty = d.ty()?;
    let width = super::bits_of(ty).unwrap_or(32);
    let (dst, a, b) = (d.dst(width)?, d.src(ty)?, d.src(ty)?);
    let (p, neg) = d.pred()?;
    Ok(map3(dst, [a, b, p], move |a: u64, b: u64, p: bool| if p ^ neg { a } else { b }))
}

/// `slct.type.s32|f32 d, a, b, c`: `a` if `c >= 0`.
fn slct(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let by = d.ty()?;
    let ty = d.ty()?;
    let ftz = d.flag("ftz");
    let width = super::bits_of(ty).unwrap_or(32);
    let (dst, a, b) = (d.dst(width)?, d.src(ty)?, d.src(ty)?);
    let c: Operand<'_> = d.op()?;
    let c = d.src_of(c, by)?;
    let float = by == "f32";
    Ok(map3(dst, [a, b, c], move |a: u64, b: u64, c: u32| {
        let f = f32::from_bits(c);
        let positive = if float { (if ftz { flush(f) } else { f }) >= 0.0 } else { c as i32 >= 0 };
        if positive { a } else { b }
    }))
}
