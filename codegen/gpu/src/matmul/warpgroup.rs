//! Products of a warpgroup (`wgmma`, sm_90a): weights in registers, input in lines of 128 bytes of
//! shared memory with the 128-byte swizzle.
//!
//! A turn is a few steps on one stage of the input, started together. Each warp has the sums of 16
//! columns: of `rows` rows of input `rows / 2` per lane.

use super::PhaseCx;
use crate::mlir::{Builder, I64, Left, Products, V};
use llmcc_ir::gpu::program::Atom;
use llmcc_ir::gpu::schedule;
use std::fmt::Write;

/// Operands of a step.
pub struct Step<'a> {
    /// Shape of a step.
    pub atom: Atom,
    /// Columns and types, as PTX writes them: `k16.f32.bf16.bf16`.
    pub shape: &'a str,
    /// PTX's order modifiers after the signs of the operands: 16-bit types have the order of B,
    /// 8-bit ones nothing.
    pub order: &'a str,
}

/// Sums that the products of a turn are added to, and their registers: the sums of the turn before.
#[derive(Clone, Copy)]
pub enum Sums<'a> {
    /// Nothing: the turn's first step overwrites the registers.
    Fresh(&'a [V]),
    /// The registers' contents.
    Onto(&'a [V]),
}

/// Starts the steps of a turn on the stage at `input`, four registers of `a` each: one piece of
/// assembly, so that nothing comes between. The sums that it returns are for further turns and
/// [`Builder::wait_products`] only.
pub fn start(b: &mut Builder, step: &Step<'_>, input: V, a: &[V], sums: Sums<'_>) -> Vec<V> {
    let address = b.shared_address(input);
    let address = b.shrc(address, 4);
    let address = b.andc(address, 0x3fff);
    let address = b.zext(address, I64);
    // Lines of 128 bytes with their swizzle, groups of eight lines 1024 bytes apart.
    let descriptor = b.orc(address, (1u64 << 62 | 64 << 32 | 1 << 16) as i64);
    // `p` says whether a step is added to the registers. They are operands in either case: with
    // fresh sums in other registers, ptxas would move sets of them around.
    let adds = "setp.eq.b32 p, 0, 0; ";
    let (sums, first, then) = match sums {
        Sums::Fresh(sums) => (sums, "setp.ne.b32 p, 0, 0; ", adds),
        Sums::Onto(sums) => (sums, adds, ""),
    };
    let (n, steps) = (sums.len(), a.len() / 4);
    let (shape, order) = (step.shape, step.order);
    let list: Vec<String> = (0..n).map(|i| format!("${i}")).collect();
    let list = list.join(", ");
    let mut text = format!("{{ .reg .pred p; {first}wgmma.fence.sync.aligned; ");
    for i in 0..steps {
        let a: Vec<String> = (0..4).map(|r| format!("${}", 2 * n + 4 * i + r)).collect();
        let _ = write!(
            text,
            "wgmma.mma_async.sync.aligned.m64n{}{shape} {{{list}}}, {{{}}}, ${}, p, 1, 1{order}; {}",
            2 * n,
            a.join(", "),
            2 * n + 4 * steps + i,
            if i == 0 { then } else { "" }
        );
    }
    text.push_str("wgmma.commit_group.sync.aligned; }");
    let constraints = format!("{},{},~{{memory}}", through(sums, a), vec!["l"; steps].join(","));
    let mut args = sums.to_vec();
    args.extend(a);
    // A step is 32 bytes further along the lines.
    args.extend((0..steps as i64).map(|i| b.addc(descriptor, 2 * i)));
    let products = Products { atom: step.atom, left: Left::Registers(a), right: input, sums, count: n };
    b.start_products(&products, &text, &constraints, &args)
}

/// Constraints of assembly on the sums, in place, and the weights.
fn through(sums: &[V], a: &[V]) -> String {
    let tied: Vec<String> = (0..sums.len()).map(|i| i.to_string()).collect();
    format!("{},{},{}", vec!["=f"; sums.len()].join(","), tied.join(","), vec!["r"; a.len()].join(","))
}

/// Writes a warp's sums to shared memory at `base`, `[row][column]`.
pub fn store_sums(b: &mut Builder, p: &PhaseCx<'_>, base: V, (warp, lane): (V, V), sums: &[V]) {
    let stride = schedule::sums_stride(&p.segments[0]) as i64;
    let (g, t) = (b.shrc(lane, 2), b.andc(lane, 3));
    let line = b.mulc(t, 2 * stride);
    // Strips of all lanes follow each other, as warps do.
    let column = b.shlc(warp, 4);
    let column = b.add(column, g);
    let index = b.add(line, column);
    let offset = b.shlc(index, 2);
    let at = b.at(base, offset);
    for (i, v) in sums.iter().enumerate() {
        let (group, k) = (i / 4, i % 4);
        let row = (group * 8 + k % 2) as i64;
        let p = b.atc(at, (row * stride + 8 * (k / 2) as i64) * 4);
        b.store(*v, p);
    }
}
