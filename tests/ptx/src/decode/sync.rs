//! Barriers and fences.

use super::{Dec, Res, nothing};
use crate::machine::{Exec, Next, lanes};

pub(super) fn decode(d: &mut Dec<'_, '_>) -> Res<Exec> {
    match d.root {
        "bar" | "barrier" => barrier(d),
        "fence" => fence(d),
        "membar" => {
            let wide = d.pick(&["gl", "sys", "cta"]).is_some_and(|s| s != "cta");
            Ok(if wide { gpu_fence() } else { nothing() })
        }
        "nanosleep" => {
            d.ty()?;
            d.src("u32")?;
            Ok(Box::new(|_, _| Ok(Next::Yield)))
        }
        "griddepcontrol" => {
            let wait = d.pick(&["wait", "launch_dependents"]) == Some("wait");
            Ok(if wait { wait_for_launches() } else { nothing() })
        }
        "setmaxnreg" => setmaxnreg(d),
        _ => d.unknown(),
    }
}

fn setmaxnreg(d: &mut Dec<'_, '_>) -> Res<Exec> {
    d.ty()?;
    let (whole, op) = (d.flag("sync") & d.flag("aligned"), d.pick(&["inc", "dec"]));
    let (true, Some(op)) = (whole, op) else { return d.unknown() };
    let more = op == "inc";
    let n = d.immediate()?;
    if !(24..=256).contains(&n) || n % 8 != 0 {
        return Err(d.error("setmaxnreg takes a multiple of 8 from 24 to 256"));
    }
    Ok(Box::new(move |cx, mask| {
        cx.aligned(mask)?;
        cx.set_registers(n as u32, more)
    }))
}

/// `griddepcontrol.wait`: launches run one after another here, so those before have ended.
fn wait_for_launches() -> Exec {
    Box::new(|cx, mask| {
        cx.warp.waited |= mask;
        cx.mem.blocks.waited = true;
        Ok(Next::Step)
    })
}

/// A fence that orders the accesses of blocks.
fn gpu_fence() -> Exec {
    Box::new(|cx, _| {
        cx.mem.blocks.fence();
        Ok(Next::Step)
    })
}

/// Fences within a block do nothing here: accesses are ordered by barriers, which the race check
/// asks for. Those between blocks and `fence.proxy.async` matter.
fn fence(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let proxy = d.flag("proxy");
    let asynchronous = d.pick(&["async", "async.global", "async.shared::cta"]).is_some();
    if proxy {
        d.drop_all(&[
            "alias",
            "global",
            "shared::cta",
            "shared::cluster",
            "tensormap::generic",
            "acquire",
            "release",
            "gpu",
            "cta",
            "sys",
            "cluster",
        ]);
        if d.remaining() > 0 {
            d.addr()?;
            d.immediate()?;
        }
    } else {
        let wide = d.flag("gpu") | d.flag("sys");
        if d.flag("mbarrier_init") {
            d.drop_all(&["release", "cluster"]);
            return Ok(Box::new(|cx, _| {
                cx.show_mbarriers();
                Ok(Next::Step)
            }));
        }
        d.drop_all(&["sc", "acq_rel", "acquire", "release", "cta", "cluster", "sync_restrict::shared::cta"]);
        if wide {
            return Ok(gpu_fence());
        }
    }
    if proxy && asynchronous {
        return Ok(Box::new(|cx, _| {
            let w = cx.warp.index as usize;
            cx.cta.shared.clocks.fence_proxy(w);
            cx.show_mbarriers();
            Ok(Next::Step)
        }));
    }
    Ok(nothing())
}

fn barrier(d: &mut Dec<'_, '_>) -> Res<Exec> {
    if d.root == "bar" && d.flag("warp") {
        if !d.flag("sync") {
            return d.unknown();
        }
        let members = d.src("b32")?;
        return Ok(Box::new(move |cx, mask| {
            cx.members(mask, members)?;
            let w = cx.warp.index as usize;
            cx.cta.shared.clocks.synchronise(w);
            Ok(Next::Step)
        }));
    }
    if d.flag("cluster") {
        // A cluster of one block: the barrier of the block, with an identity of its own.
        let wait = d.flag("wait");
        d.drop_all(&["arrive", "aligned", "acquire", "release", "relaxed"]);
        let last = crate::machine::BARRIERS as u32 - 1;
        return Ok(Box::new(move |cx, mask| if wait { cx.barrier(mask, last, None, true) } else { Ok(Next::Step) }));
    }
    d.drop_all(&["cta", "aligned", "all"]);
    let wait = match d.pick(&["sync", "arrive"]) {
        Some(m) => m == "sync",
        None => return d.unknown(),
    };
    let id = d.src("b32")?;
    let count = if d.remaining() > 0 { Some(d.src("b32")?) } else { None };
    if !wait && count.is_none() {
        return Err(d.error("bar.arrive needs the number of threads"));
    }
    Ok(Box::new(move |cx, mask| {
        let lane = lanes(mask).next().unwrap_or(0) as usize;
        let id = cx.reg(id)[lane] as u32;
        let count = count.map(|c| cx.reg(c)[lane] as u32);
        cx.barrier(mask, id, count, wait)
    }))
}
