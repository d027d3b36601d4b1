//! Comparisons and selections.

use half::{bf16, f16};

use super::{Dec, Res, lanewise, map3};
use crate::ast::Operand;
use crate::machine::{Exec, Next, Slot};
use crate::value::{Bits, flush};

pub(super) fn decode(d: &mut Dec<'_, '_>) -> Res<Exec> {
    match d.root {
        "selp" => selp(d),
        "slct" => slct(d),
        "set" => set(d),
        _ => setp(d),
    }
}

/// Comparison of two operands of one type: floats with their unordered forms.
type Compare = fn(u64, u64) -> bool;

fn ordered<T: Bits + PartialOrd>(name: &str) -> Option<Compare> {
    Some(match name {
        "eq" => |a, b| T::get(a) == T::get(b),
        "ne" => |a, b| T::get(a) < T::get(b) || T::get(a) > T::get(b),
        "lt" => |a, b| T::get(a) < T::get(b),
        "le" => |a, b| T::get(a) <= T::get(b),
        "gt" => |a, b| T::get(a) > T::get(b),
        "ge" => |a, b| T::get(a) >= T::get(b),
        "equ" => |a, b| !(T::get(a) < T::get(b) || T::get(a) > T::get(b)),
        "neu" => |a, b| T::get(a) != T::get(b),
        "ltu" => |a, b| !matches!(T::get(a).partial_cmp(&T::get(b)), Some(o) if o.is_ge()),
        "leu" => |a, b| !matches!(T::get(a).partial_cmp(&T::get(b)), Some(o) if o.is_gt()),
        "gtu" => |a, b| !matches!(T::get(a).partial_cmp(&T::get(b)), Some(o) if o.is_le()),
        "geu" => |a, b| !matches!(T::get(a).partial_cmp(&T::get(b)), Some(o) if o.is_lt()),
        "num" => |a, b| T::get(a).partial_cmp(&T::get(b)).is_some(),
        "nan" => |a, b| T::get(a).partial_cmp(&T::get(b)).is_none(),
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
            "eq" => Some(|a, b| flush(f32::get(a)) == flush(f32::get(b))),
            "neu" => Some(|a, b| flush(f32::get(a)) != flush(f32::get(b))),
            "lt" => Some(|a, b| flush(f32::get(a)) < flush(f32::get(b))),
            "gt" => Some(|a, b| flush(f32::get(a)) > flush(f32::get(b))),
            "le" => Some(|a, b| flush(f32::get(a)) <= flush(f32::get(b))),
            "ge" => Some(|a, b| flush(f32::get(a)) >= flush(f32::get(b))),
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

type Combine = fn(bool, bool) -> bool;

fn combination(d: &mut Dec<'_, '_>) -> Option<Combine> {
    d.pick(&["and", "or", "xor"]).map(|c| match c {
        "and" => (|a, b| a & b) as Combine,
        "or" => |a, b| a | b,
        _ => |a, b| a ^ b,
    })
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
        let (a, b) = (*cx.reg(a), *cx.reg(b));
        let c = other.map(|(s, neg)| (*cx.reg(s), neg));
        let third = |l: usize| c.is_some_and(|(c, neg)| (c[l] != 0) ^ neg);
        if let Some(q) = q {
            let _: Result<Next, ()> = lanewise!(cx, mask, q, l => u64::from(combine(!f(a[l], b[l]), third(l))));
        }
        lanewise!(cx, mask, p, l => u64::from(combine(f(a[l], b[l]), third(l))))
    }))
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
        let (a, b) = (*cx.reg(a), *cx.reg(b));
        let _: Result<Next, ()> = lanewise!(cx, mask, p, l => u64::from(f(a[l] & 0xffff, b[l] & 0xffff)));
        lanewise!(cx, mask, q, l => u64::from(f(a[l] >> 16, b[l] >> 16)))
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
        let (a, b) = (*cx.reg(a), *cx.reg(b));
        let c = other.map(|(s, neg)| (*cx.reg(s), neg));
        lanewise!(cx, mask, dst, l => {
            let third = c.is_some_and(|(c, neg)| (c[l] != 0) ^ neg);
            if combine(f(a[l], b[l]), third) { yes } else { 0 }
        })
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
