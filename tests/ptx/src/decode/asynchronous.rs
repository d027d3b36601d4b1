//! Asynchronous copies and mbarriers.

use super::memory::space;
use super::{Addr, Dec, Res, nothing};
use crate::access::Space;
use crate::fault::{FaultKind, Trapped, trap};
use crate::machine::{Cx, Exec, Next, SHARED_WINDOW, Slot, lanes};

pub(super) fn decode(d: &mut Dec<'_, '_>) -> Res<Exec> {
    match d.root {
        "mbarrier" => mbarrier(d),
        "createpolicy" => {
            while d.next_mod().is_some() {}
            let dst = d.dst(64)?;
            while d.remaining() > 0 {
                d.op()?;
            }
            Ok(Box::new(move |cx, mask| super::lanewise!(cx, mask, dst, l => 0)))
        }
        "mapa" => {
            // A cluster of one block: every address is its own.
            let ty = d.ty()?;
            d.drop_all(&["shared::cluster"]);
            let (dst, a) = (d.dst(super::bits_of(ty).unwrap_or(64))?, d.src(ty)?);
            d.src("b32")?;
            Ok(super::map1(dst, a, |a: u64| a))
        }
        "cp" => copy(d),
        _ => d.unknown(),
    }
}

/// Runs `f` for each lane of the mask.
pub(super) fn each(f: impl Fn(&mut Cx<'_>, u32) -> Result<(), FaultKind> + Send + Sync + 'static) -> Exec {
    Box::new(move |cx, mask| {
        for lane in lanes(mask) {
            f(cx, lane).map_err(|k| trap(lane, k))?;
        }
        Ok(Next::Step)
    })
}

impl Addr {
    fn of(self, cx: &Cx<'_>, lane: u32) -> u64 {
        cx.reg(self.base)[lane as usize].wrapping_add(self.offset)
    }

    /// The address in shared memory, whether it is given as such or as a generic one.
    pub fn shared(self, cx: &Cx<'_>, lane: u32) -> u64 {
        let a = self.of(cx, lane);
        if a >= SHARED_WINDOW { Space::Generic.resolve(a).1 } else { a }
    }
}

fn value(cx: &Cx<'_>, slot: Slot, lane: u32) -> u64 {
    cx.reg(slot)[lane as usize]
}

fn copy(d: &mut Dec<'_, '_>) -> Res<Exec> {
    if d.flag("reduce") || !d.flag("async") {
        return d.unknown();
    }
    if d.flag("bulk") {
        return bulk(d);
    }
    if d.flag("commit_group") {
        return Ok(Box::new(|cx, mask| {
            cx.commit_copies(mask);
            Ok(Next::Step)
        }));
    }
    if d.flag("wait_all") || d.has_mod("wait_group") {
        let left = if d.flag("wait_group") { Some(d.immediate()? as u32) } else { None };
        return Ok(Box::new(move |cx, mask| {
            cx.wait_copies(mask, left);
            Ok(Next::Step)
        }));
    }
    if d.flag("mbarrier") {
        d.ty()?;
        let increments = !d.flag("noinc");
        d.drop_all(&["arrive", "shared", "shared::cta"]);
        let addr = d.addr()?;
        return Ok(each(move |cx, lane| {
            let at = addr.shared(cx, lane);
            cx.arrive_after_copies(lane, at, increments)
        }));
    }
    let cache = d.pick(&["ca", "cg"]);
    let hint = d.flag("L2::cache_hint");
    d.drop_all(&["L2::64B", "L2::128B", "L2::256B"]);
    if !(d.flag("shared") || d.flag("shared::cta")) || !d.flag("global") {
        return d.unknown();
    }
    let (to, from, bytes) = (d.addr()?, d.addr()?, d.immediate()?);
    if !(matches!((cache, bytes), (Some("ca"), 4 | 8) | (Some(_), 16))) {
        return Err(d.error("cp.async.ca copies 4, 8 or 16 bytes, cp.async.cg 16"));
    }
    let bytes = bytes as u64;
    d.touches_shared(bytes);
    // With a source size, down to single bytes are read.
    d.touches_global(if d.remaining() > usize::from(hint) { 1 } else { bytes });
    let policy = usize::from(hint);
    let valid = if d.remaining() > policy { Some(d.src("b32")?) } else { None };
    if hint {
        d.src("b64")?;
    }
    Ok(Box::new(move |cx, mask| {
        let mut written = [(0, 0); 32];
        let mut n = 0;
        for lane in lanes(mask) {
            let at = to.shared(cx, lane);
            let valid = valid.map_or(bytes, |v| value(cx, v, lane) & 0xffff_ffff);
            let kind = if valid > bytes {
                Err(FaultKind::Operand(format!("cp.async reads {valid} of {bytes} bytes")))
            } else {
                Ok(())
            };
            kind.and_then(|()| cx.copy(lane, at, from.of(cx, lane), bytes, valid)).map_err(|k| trap(lane, k))?;
            written[n] = (lane, at);
            n += 1;
        }
        cx.banks(&written[..n], bytes);
        Ok(Next::Step)
    }))
}

fn bulk(d: &mut Dec<'_, '_>) -> Res<Exec> {
    if d.flag("commit_group") {
        return Ok(Box::new(|cx, mask| {
            cx.commit_stores(mask);
            Ok(Next::Step)
        }));
    }
    if d.flag("wait_group") {
        let read_only = d.flag("read");
        let left = d.immediate()? as u32;
        return Ok(each(move |cx, lane| cx.wait_stores(lane, left, read_only)));
    }
    if d.flag("prefetch") {
        d.drop_all(&["L2", "global"]);
        d.addr()?;
        d.src("b32")?;
        return Ok(nothing());
    }
    let hint = d.flag("L2::cache_hint");
    let Some(to) = d.next_mod() else { return d.unknown() };
    let Some(from) = d.next_mod() else { return d.unknown() };
    let load = matches!((to, from), ("shared::cluster" | "shared::cta", "global"));
    let store = (to, from) == ("global", "shared::cta");
    if !load && !store {
        return d.unknown();
    }
    let (dst, src, size) = (d.addr()?, d.addr()?, d.src("b32")?);
    let barrier = if load && d.flag("mbarrier::complete_tx::bytes") {
        Some(d.addr()?)
    } else if store && d.flag("bulk_group") {
        None
    } else {
        return d.unknown();
    };
    if hint {
        d.src("b64")?;
    }
    d.touches_shared(16);
    Ok(each(move |cx, lane| {
        let bytes = value(cx, size, lane) & 0xffff_ffff;
        match barrier {
            Some(b) => {
                let (to, b) = (dst.shared(cx, lane), b.shared(cx, lane));
                cx.bulk_load(lane, to, src.of(cx, lane), bytes, b)
            }
            None => {
                let from = src.shared(cx, lane);
                cx.bulk_store(lane, dst.of(cx, lane), from, bytes)
            }
        }
    }))
}

fn mbarrier(d: &mut Dec<'_, '_>) -> Res<Exec> {
    d.drop_all(&["b64", "release", "relaxed", "acquire", "cta", "cluster"]);
    let op = d.pick(&["init", "inval", "arrive", "expect_tx", "complete_tx", "test_wait", "try_wait", "arrive_drop"]);
    // `arrive.expect_tx` has two of the names.
    let expects = op == Some("arrive") && d.flag("expect_tx");
    let parity = d.flag("parity");
    if space(d) == Space::Global {
        return d.unknown();
    }
    d.touches_shared(8);
    match op {
        Some("init") => {
            let (addr, count) = (d.addr()?, d.src("u32")?);
            Ok(each(move |cx, lane| {
                let at = addr.shared(cx, lane);
                cx.mbarrier_init(lane, at, value(cx, count, lane) as u32)
            }))
        }
        Some("inval") => {
            let addr = d.addr()?;
            Ok(each(move |cx, lane| cx.mbarrier_inval(lane, addr.shared(cx, lane))))
        }
        Some("arrive") => arrive(d, expects),
        Some("expect_tx" | "complete_tx") => {
            let sign = if op == Some("expect_tx") { 1 } else { -1 };
            let (addr, bytes) = (d.addr()?, d.src("u32")?);
            Ok(each(move |cx, lane| {
                let at = addr.shared(cx, lane);
                cx.mbarrier_bytes(lane, at, sign * value(cx, bytes, lane) as i64)
            }))
        }
        Some("test_wait" | "try_wait") => wait(d, parity),
        _ => d.unknown(),
    }
}

fn arrive(d: &mut Dec<'_, '_>, expects: bool) -> Res<Exec> {
    // The state result is absent in the form for the cluster's shared memory.
    let first = d.op()?;
    let (state, addr) = match first {
        crate::ast::Operand::Mem(..) => {
            d.push_front(first);
            (None, d.addr()?)
        }
        o => (Some(d.dst_from(o, 64)?), d.addr()?),
    };
    let operand = if d.remaining() > 0 { Some(d.src("u32")?) } else { None };
    if expects && operand.is_none() {
        return Err(d.error("mbarrier.arrive.expect_tx needs a number of bytes"));
    }
    Ok(each(move |cx, lane| {
        let at = addr.shared(cx, lane);
        let v = operand.map(|o| value(cx, o, lane) as u32);
        let (count, bytes) = if expects { (1, v.unwrap_or(0)) } else { (v.unwrap_or(1), 0) };
        let phase = cx.mbarrier_arrive(lane, at, count, bytes)?;
        if let Some(s) = state {
            cx.reg_mut(s)[lane as usize] = phase;
        }
        Ok(())
    }))
}

fn wait(d: &mut Dec<'_, '_>, parity: bool) -> Res<Exec> {
    let (p, addr) = (d.dst(1)?, d.addr()?);
    let phase = d.src(if parity { "u32" } else { "b64" })?;
    if d.remaining() > 0 {
        d.src("u32")?;
    }
    Ok(Box::new(move |cx: &mut Cx<'_>, mask: u32| -> Result<Next, Trapped> {
        let mut all = true;
        for lane in lanes(mask) {
            let (at, phase) = (addr.shared(cx, lane), value(cx, phase, lane));
            let done = cx.mbarrier_test(lane, at, phase, parity).map_err(|k| trap(lane, k))?;
            cx.reg_mut(p)[lane as usize] = u64::from(done);
            all &= done;
        }
        Ok(if all { Next::Step } else { Next::Yield })
    }))
}
