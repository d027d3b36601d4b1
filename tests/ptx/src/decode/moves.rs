//! `mov`, also of parts of registers, and address conversions.

use super::{Dec, Res, map1};
use crate::ast::Operand;
use crate::machine::{Exec, LOCAL_WINDOW, Next, PARAM_WINDOW, SHARED_WINDOW, WINDOWS_END};

pub(super) fn decode(d: &mut Dec<'_, '_>) -> Res<Exec> {
    match d.root {
        "cvta" => cvta(d),
        "isspacep" => isspacep(d),
        _ => mov(d),
    }
}

fn mov(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let ty = d.ty()?;
    let width = super::bits_of(ty).ok_or_else(|| d.error(format!("mov of {ty}")))?;
    if d.peek_vec() {
        return unpack(d, ty, width);
    }
    let dst = d.dst(width)?;
    if d.peek_vec() {
        let Operand::Vec(items) = d.op()? else { return d.unknown() };
        let part = width / items.len() as u32;
        let ty = part_type(d, part)?;
        let srcs = items.into_iter().map(|o| d.src_of(o, ty)).collect::<Res<Vec<_>>>()?;
        return Ok(Box::new(move |cx, mask| {
            let mut out = [0; 32];
            for (i, s) in srcs.iter().enumerate() {
                let s = cx.reg(*s);
                for l in 0..32 {
                    out[l] |= s[l] << (i as u32 * part);
                }
            }
            super::lanewise!(cx, mask, dst, l => out[l])
        }));
    }
    match d.op()? {
        Operand::Name("%clock" | "%clock_hi", 0) => Ok(counter(dst, u64::from(u32::MAX))),
        Operand::Name("%clock64" | "%globaltimer" | "%globaltimer_lo", 0) => {
            Ok(counter(dst, if width == 32 { u64::from(u32::MAX) } else { u64::MAX }))
        }
        o => {
            let src = d.src_of(o, ty)?;
            Ok(map1(dst, src, |a: u64| a))
        }
    }
}

/// The number of instructions the warp has run, as a clock.
fn counter(dst: u32, keep: u64) -> Exec {
    Box::new(move |cx, mask| {
        let now = cx.warp.clock & keep;
        super::lanewise!(cx, mask, dst, l => now)
    })
}

fn part_type(d: &Dec<'_, '_>, part: u32) -> Res<&'static str> {
    Ok(match part {
        8 => "b8",
        16 => "b16",
        32 => "b32",
        _ => return Err(d.error(format!("parts of {part} bits"))),
    })
}

fn unpack(d: &mut Dec<'_, '_>, ty: &str, width: u32) -> Res<Exec> {
    let Operand::Vec(items) = d.op()? else { return d.unknown() };
    let n = items.len() as u32;
    let part = width / n;
    part_type(d, part)?;
    let mut dsts = Vec::new();
    for o in items {
        dsts.push(d.dst_from(o, part)?);
    }
    let src = d.src(ty)?;
    let keep = (1u64 << part) - 1;
    Ok(Box::new(move |cx, mask| {
        let a = *cx.reg(src);
        for (i, &dst) in dsts.iter().enumerate() {
            let _: Result<Next, ()> = super::lanewise!(cx, mask, dst, l => (a[l] >> (i as u32 * part)) & keep);
        }
        Ok(Next::Step)
    }))
}

/// Start of a space's window in the generic addresses.
fn window(space: &str) -> u64 {
    match space {
        "shared" | "shared::cta" | "shared::cluster" => SHARED_WINDOW,
        "local" => LOCAL_WINDOW,
        "param" => PARAM_WINDOW,
        _ => 0,
    }
}

const SPACES: &[&str] = &["shared", "shared::cta", "shared::cluster", "local", "param", "global", "const"];

fn cvta(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let ty = d.ty()?;
    let to = d.flag("to");
    let Some(space) = d.pick(SPACES) else { return d.unknown() };
    let base = window(space);
    let width = super::bits_of(ty).unwrap_or(64);
    let (dst, src) = (d.dst(width)?, d.src(ty)?);
    Ok(map1(dst, src, move |a: u64| if to { a.wrapping_sub(base) } else { a.wrapping_add(base) }))
}

fn isspacep(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let Some(space) = d.pick(SPACES) else { return d.unknown() };
    let base = window(space);
    let (dst, src) = (d.dst(1)?, d.src("b64")?);
    Ok(map1(
        dst,
        src,
        move |a: u64| if base == 0 { a >= WINDOWS_END } else { (base..base + SHARED_WINDOW).contains(&a) },
    ))
}
