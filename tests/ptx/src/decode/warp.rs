//! Exchange between the lanes of a warp.

use super::{Dec, Res};
use crate::fault::{FaultKind, trap};
use crate::machine::{Exec, Next, lanes};

pub(super) fn decode(d: &mut Dec<'_, '_>) -> Res<Exec> {
    match d.root {
        "shfl" => shfl(d),
        "vote" => vote(d),
        "match" => matching(d),
        "redux" => redux(d),
        "activemask" => {
            d.ty()?;
            let dst = d.dst(32)?;
            Ok(Box::new(move |cx, mask| super::lanewise!(cx, mask, dst, l => u64::from(mask))))
        }
        _ => elect(d),
    }
}

fn sync(d: &mut Dec<'_, '_>) -> Res<()> {
    if d.flag("sync") { Ok(()) } else { d.unknown() }
}

fn shfl(d: &mut Dec<'_, '_>) -> Res<Exec> {
    d.ty()?;
    sync(d)?;
    let Some(mode) = d.pick(&["up", "down", "bfly", "idx"]) else { return d.unknown() };
    let (dst, p) = d.dst_pair(32, 1)?;
    let (a, b, c, members) = (d.src("b32")?, d.src("b32")?, d.src("b32")?, d.src("b32")?);
    Ok(Box::new(move |cx, mask| {
        cx.members(mask, members)?;
        let (a, b, c) = (*cx.reg(a), *cx.reg(b), *cx.reg(c));
        for lane in lanes(mask) {
            let l = lane as usize;
            let (bval, cval, segment) = (b[l] as u32 & 31, c[l] as u32 & 31, (c[l] >> 8) as u32 & 31);
            let last = (lane & segment) | (cval & !segment);
            let first = lane & segment;
            let (from, inside) = match mode {
                "up" => (lane.wrapping_sub(bval), lane as i64 - i64::from(bval) >= i64::from(last)),
                "down" => (lane + bval, lane + bval <= last),
                "bfly" => (lane ^ bval, lane ^ bval <= last),
                _ => (first | (bval & !segment), first | (bval & !segment) <= last),
            };
            let source = if inside { from } else { lane };
            if source > 31 || mask >> source & 1 == 0 {
                return Err(trap(lane, FaultKind::InactiveLane { source }));
            }
            cx.reg_mut(dst)[l] = a[source as usize];
            if let Some(p) = p {
                cx.reg_mut(p)[l] = u64::from(inside);
            }
        }
        Ok(Next::Step)
    }))
}

fn vote(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let ty = d.ty()?;
    sync(d)?;
    let Some(mode) = d.pick(&["all", "any", "uni", "ballot"]) else { return d.unknown() };
    let dst = d.dst(if ty == "pred" { 1 } else { 32 })?;
    let (p, neg) = d.pred()?;
    let members = d.src("b32")?;
    Ok(Box::new(move |cx, mask| {
        cx.members(mask, members)?;
        let p = *cx.reg(p);
        let votes = lanes(mask).filter(|l| (p[*l as usize] != 0) ^ neg).fold(0u32, |m, l| m | 1 << l);
        let result = match mode {
            "all" => u64::from(votes == mask),
            "any" => u64::from(votes != 0),
            "uni" => u64::from(votes == mask || votes == 0),
            _ => u64::from(votes),
        };
        super::lanewise!(cx, mask, dst, l => result)
    }))
}

fn matching(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let ty = d.ty()?;
    sync(d)?;
    let Some(mode) = d.pick(&["any", "all"]) else { return d.unknown() };
    let (dst, p) = d.dst_pair(32, 1)?;
    let (a, members) = (d.src(ty)?, d.src("b32")?);
    Ok(Box::new(move |cx, mask| {
        cx.members(mask, members)?;
        let a = *cx.reg(a);
        for lane in lanes(mask) {
            let same = lanes(mask).filter(|l| a[*l as usize] == a[lane as usize]).fold(0u32, |m, l| m | 1 << l);
            let all = same == mask;
            cx.reg_mut(dst)[lane as usize] = u64::from(if mode == "any" || all { same } else { 0 });
            if let Some(p) = p {
                cx.reg_mut(p)[lane as usize] = u64::from(all);
            }
        }
        Ok(Next::Step)
    }))
}

fn redux(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let ty = d.ty()?;
    sync(d)?;
    let Some(op) = d.pick(&["add", "min", "max", "and", "or", "xor"]) else { return d.unknown() };
    let signed = ty == "s32";
    let f: fn(u32, u32) -> u32 = match op {
        "add" => u32::wrapping_add,
        "and" => |a, b| a & b,
        "or" => |a, b| a | b,
        "xor" => |a, b| a ^ b,
        "min" if signed => |a, b| (a as i32).min(b as i32) as u32,
        "max" if signed => |a, b| (a as i32).max(b as i32) as u32,
        "min" => u32::min,
        _ => u32::max,
    };
    if !matches!(ty, "u32" | "s32" | "b32") {
        return d.unknown();
    }
    let (dst, a, members) = (d.dst(32)?, d.src(ty)?, d.src("b32")?);
    Ok(Box::new(move |cx, mask| {
        cx.members(mask, members)?;
        let a = *cx.reg(a);
        let result = lanes(mask).map(|l| a[l as usize] as u32).reduce(f).unwrap_or(0);
        super::lanewise!(cx, mask, dst, l => u64::from(result))
    }))
}

fn elect(d: &mut Dec<'_, '_>) -> Res<Exec> {
    sync(d)?;
    let (dst, Some(p)) = d.dst_pair(32, 1)? else { return d.unknown() };
    let members = d.src("b32")?;
    Ok(Box::new(move |cx, mask| {
        cx.members(mask, members)?;
        let leader = mask.trailing_zeros();
        let _: Result<Next, ()> = super::lanewise!(cx, mask, dst, l => u64::from(leader));
        super::lanewise!(cx, mask, p, l => u64::from(l as u32 == leader))
    }))
}
