//! Logic, shifts and bit fields.

use super::arith::Int;
use super::{Dec, Res, map1, map2, map3};
use crate::machine::Exec;

pub(super) fn decode(d: &mut Dec<'_, '_>) -> Res<Exec> {
    match d.root {
        "prmt" => return prmt(d),
        "lop3" => return lop3(d),
        "shf" => return shf(d),
        "bmsk" => return bmsk(d),
        _ => {}
    }
    match d.ty()? {
        "pred" => predicate(d),
        "b16" | "u16" => bits::<u16>(d, "b16"),
        "s16" => bits::<i16>(d, "b16"),
        "b32" | "u32" => bits::<u32>(d, "b32"),
        "s32" => bits::<i32>(d, "b32"),
        "b64" | "u64" => bits::<u64>(d, "b64"),
        "s64" => bits::<i64>(d, "b64"),
        _ => d.unknown(),
    }
}

fn predicate(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let dst = d.dst(1)?;
    if d.root == "not" {
        return Ok(map1(dst, d.src("pred")?, |a: bool| !a));
    }
    let ((a, na), (b, nb)) = (d.pred()?, d.pred()?);
    let f: fn(bool, bool) -> bool = match d.root {
        "and" => |a, b| a & b,
        "or" => |a, b| a | b,
        "xor" => |a, b| a ^ b,
        _ => return d.unknown(),
    };
    Ok(map2(dst, [a, b], move |a: bool, b: bool| f(a ^ na, b ^ nb)))
}

/// Bits `pos .. pos + len` of `a`, sign-extended for signed types; beyond the width they repeat the
/// sign (or are zero).
fn extract<T: Int>(a: T, pos: u32, len: u32) -> T {
    let (pos, len) = (pos & 255, len & 255);
    if len == 0 {
        return T::cut(0);
    }
    let fill = if T::SIGNED && a.wide() < 0 { -1i128 } else { 0 };
    let shifted = if pos >= T::BITS { fill } else { a.wide() >> pos };
    if len >= T::BITS {
        return T::cut(shifted);
    }
    let keep = (1i128 << len) - 1;
    let field = shifted & keep;
    // The sign of a field that reaches beyond the top is that of the top bit.
    let negative = T::SIGNED && if pos + len > T::BITS { fill != 0 } else { field >> (len - 1) & 1 == 1 };
    T::cut(if negative { field | !keep } else { field })
}

fn bits<T: Int>(d: &mut Dec<'_, '_>, ty: &str) -> Res<Exec> {
    let width = T::BITS;
    let word = |a: T| a.put();
    Ok(match d.root {
        "and" => map2(d.dst(width)?, [d.src(ty)?, d.src(ty)?], |a: u64, b: u64| a & b),
        "or" => map2(d.dst(width)?, [d.src(ty)?, d.src(ty)?], |a: u64, b: u64| a | b),
        "xor" => map2(d.dst(width)?, [d.src(ty)?, d.src(ty)?], |a: u64, b: u64| a ^ b),
        "not" => map1(d.dst(width)?, d.src(ty)?, |a: T| T::cut(!a.wide())),
        "cnot" => map1(d.dst(width)?, d.src(ty)?, |a: T| T::cut(i128::from(a.wide() == 0))),
        "shl" => map2(d.dst(width)?, [d.src(ty)?, d.src("b32")?], |a: T, n: u32| {
            T::cut(if n >= T::BITS { 0 } else { a.wide() << n })
        }),
        "shr" => map2(d.dst(width)?, [d.src(ty)?, d.src("b32")?], |a: T, n: u32| T::cut(a.wide() >> n.min(T::BITS))),
        "popc" => map1(d.dst(32)?, d.src(ty)?, move |a: T| word(a).count_ones()),
        "clz" => map1(d.dst(32)?, d.src(ty)?, move |a: T| word(a).leading_zeros() - (64 - T::BITS)),
        "brev" => {
            map1(d.dst(width)?, d.src(ty)?, move |a: T| T::cut(i128::from(word(a).reverse_bits() >> (64 - T::BITS))))
        }
        "bfe" => map3(d.dst(width)?, [d.src(ty)?, d.src("b32")?, d.src("b32")?], |a: T, pos: u32, len: u32| {
            extract(a, pos, len)
        }),
        "bfi" => {
            let (dst, a, b, c, e) = (d.dst(width)?, d.src(ty)?, d.src(ty)?, d.src("b32")?, d.src("b32")?);
            Box::new(move |cx, mask| {
                let (a, b, pos, len) = (*cx.reg(a), *cx.reg(b), *cx.reg(c), *cx.reg(e));
                super::lanewise!(cx, mask, dst, l => {
                    let (pos, len) = (pos[l] & 255, (len[l] & 255).min(u64::from(T::BITS)));
                    let field = if pos >= u64::from(T::BITS) { 0 } else { (((1u128 << len) - 1) << pos) as u64 };
                    let all = if T::BITS == 64 { u64::MAX } else { (1 << T::BITS) - 1 };
                    let moved = if pos >= 64 { 0 } else { a[l] << pos };
                    ((b[l] & !field) | (moved & field)) & all
                })
            })
        }
        "bfind" => {
            let amount = d.flag("shiftamt");
            map1(d.dst(32)?, d.src(ty)?, move |a: T| {
                let v = if T::SIGNED && a.wide() < 0 { !a.wide() } else { a.wide() } as u128;
                let top = if v == 0 { u32::MAX } else { 127 - v.leading_zeros() };
                if amount && top != u32::MAX { T::BITS - 1 - top } else { top }
            })
        }
        _ => return d.unknown(),
    })
}

fn prmt(d: &mut Dec<'_, '_>) -> Res<Exec> {
    d.ty()?;
    let mode = d.pick(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]);
    let selector = move |sel: u32, i: u32| -> u32 {
        let s = sel & 3;
        match mode {
            None => (sel >> (4 * i)) & 15,
            Some("f4e") => s + i,
            Some("b4e") => (s + 8 - i) & 7,
            Some("rc8") => s,
            Some("ecl") => s.max(i),
            Some("ecr") => s.min(i),
            Some(_) => (s & 1) * 2 + (i & 1),
        }
    };
    Ok(map3(d.dst(32)?, [d.src("b32")?, d.src("b32")?, d.src("b32")?], move |a: u32, b: u32, sel: u32| {
        let source = u64::from(a) | u64::from(b) << 32;
        (0..4).fold(0u32, |out, i| {
            let s = selector(sel, i);
            let byte = (source >> (8 * (s & 7))) as u8;
            let byte = if s & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
            out | u32::from(byte) << (8 * i)
        })
    }))
}

fn lop3(d: &mut Dec<'_, '_>) -> Res<Exec> {
    d.ty()?;
    let (dst, abc) = (d.dst(32)?, [d.src("b32")?, d.src("b32")?, d.src("b32")?]);
    let table = d.immediate()?;
    if !(0..256).contains(&table) {
        return Err(d.error("the table of lop3 is a byte"));
    }
    Ok(map3(dst, abc, move |a: u32, b: u32, c: u32| {
        (0..8).filter(|i| table >> i & 1 == 1).fold(0, |out, i| {
            let pick = |x: u32, bit: u32| if i >> bit & 1 == 1 { x } else { !x };
            out | (pick(a, 2) & pick(b, 1) & pick(c, 0))
        })
    }))
}

fn shf(d: &mut Dec<'_, '_>) -> Res<Exec> {
    d.ty()?;
    let Some(direction) = d.pick(&["l", "r"]) else { return d.unknown() };
    let Some(mode) = d.pick(&["wrap", "clamp"]) else { return d.unknown() };
    Ok(map3(d.dst(32)?, [d.src("b32")?, d.src("b32")?, d.src("b32")?], move |a: u32, b: u32, c: u32| {
        let n = if mode == "wrap" { c & 31 } else { c.min(32) };
        let both = u64::from(b) << 32 | u64::from(a);
        if direction == "l" { (u128::from(both) << n >> 32) as u32 } else { (both >> n) as u32 }
    }))
}

fn bmsk(d: &mut Dec<'_, '_>) -> Res<Exec> {
    d.ty()?;
    let clamp = match d.pick(&["clamp", "wrap"]) {
        Some(m) => m == "clamp",
        None => return d.unknown(),
    };
    Ok(map2(d.dst(32)?, [d.src("b32")?, d.src("b32")?], move |a: u32, b: u32| {
        let (a, b) = if clamp { (a.min(32), b.min(32)) } else { (a & 31, b & 31) };
        ((((1u128 << b) - 1) << a) & 0xffff_ffff) as u32
    }))
}
