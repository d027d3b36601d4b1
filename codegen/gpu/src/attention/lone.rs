//! Sequences with a single token in a step of many: blocks of their own, beside the blocks of a
//! kernel of prompts.
//!
//! A block of prompts takes as many adjacent tokens as fill its rows, and walks the pages of one
//! sequence after the other. For sequences with one token each, every walk has a row or a few of
//! its 128, and costs as much as a whole block's: 342 µs for 128 sequences of 576 tokens (8 KV
//! heads of 128, an H200), where the pages are read in 74. The decoding code handles these tokens
//! as well as in small steps, and gives them the same bits.
//!
//! So the grid has two layers. Blocks of the first take prompts; tokens that are alone of their
//! sequence have no rows there. Blocks of the second, as many as fill the machine, work like the
//! blocks of [`decode`](super::decode), in teams of as many warps, and end at once where there is
//! no such token. They come last, when there may be room for them already while the longest prompts
//! are not through.

use super::deal::Served;
use super::decode::{self, Plan};
use super::shape::Shape;
use super::share::Split;
use crate::cx::{Args, Cx};
use crate::mlir::{Builder, Cmp, V};
use crate::{COUNTER_BYTES, blocks, per_rows};
use llmcc_abi::GpuDim;

/// Stages of a warp's ring that are tried, the most first: a multiprocessor has fewer warps than
/// with blocks for nothing else.
const STAGES: [usize; 5] = [6, 5, 4, 3, 2];

/// The second layer of a grid.
pub(super) struct Lone {
    plan: Plan,
    split: Split,
    /// Blocks of a row of the grid.
    across: usize,
}

impl Lone {
    /// Beside blocks of so many warps, `resident` on a multiprocessor, in so much shared memory of
    /// each; `None` if that is too little.
    pub(super) fn new(cx: &Cx<'_>, shape: &Shape, (warps, resident): (usize, u32), shared: usize) -> Option<Lone> {
        let plan = Plan::new(cx, shape)?;
        let most = warps / plan.warps as usize;
        let mut choices = (1..=most).rev().flat_map(|teams| STAGES.map(|n| (teams, plan.with_stages(n))));
        let (teams, plan) = choices.find(|(teams, plan)| teams * plan.bytes() <= shared)?;
        let blocks = ((cx.gpu.sms * resident) as usize).min(COUNTER_BYTES / 4 / teams);
        let across = blocks.next_multiple_of(shape.spec.kv_heads);
        // Chunks are cut as in small steps.
        let split = Split { teams, blocks, ..plan.split(cx, shape) };
        Some(Lone { plan, split, across })
    }

    /// Runs `body` where the thread is one of a team's.
    pub(super) fn serve(&self, b: &mut Builder, cx: &Cx<'_>, shape: &Shape, args: Args<'_>) {
        let block = number(b, self.across, |b, name| b.sreg(name));
        let team = self.split.team(b, block);
        let tid = b.sreg("tid.x");
        let there = b.cmpc(Cmp::Ult, block, self.split.blocks as i64);
        let mine = b.cmpc(Cmp::Ult, tid, self.split.teams as i64 * i64::from(self.split.threads()));
        let taken = b.and(there, mine);
        b.if_(taken, |b| {
            let id = b.addc(team.number, 1);
            b.team_at(id, self.split.threads(), |b| {
                self.split.serve(b, (cx, shape, args), (team, Served::Lone), |b, item, chunks| {
                    decode::attend(b, shape, &self.plan, (args, item, chunks));
                });
            });
        });
    }
}

/// The number of the block in its layer, whose rows have so many; `read` reads a special register.
fn number(b: &mut Builder, across: usize, read: impl Fn(&mut Builder, &str) -> V) -> V {
    let (x, y) = (read(b, "ctaid.x"), read(b, "ctaid.y"));
    let before = b.mulc(y, across as i64);
    b.add(before, x)
}

/// The grid of a kernel of prompts whose blocks take `tokens` tokens of a KV head each, and the
/// blocks beside them.
pub(super) struct Grid<'a> {
    pub(super) kv_heads: usize,
    pub(super) tokens: usize,
    pub(super) lone: Option<&'a Lone>,
}

impl Grid<'_> {
    fn across(&self) -> usize {
        self.lone.map_or(self.kv_heads, |l| l.across)
    }

    /// Blocks in x, y, z: in each layer at least one for every KV head of every tile of tokens.
    pub(super) fn dims(&self) -> [GpuDim; 3] {
        let tiles = self.across() / self.kv_heads;
        [blocks(self.across()), per_rows(tiles * self.tokens), blocks(1 + usize::from(self.lone.is_some()))]
    }

    /// The KV head of a block of the first layer, and its number there.
    pub(super) fn place(&self, b: &mut Builder, read: impl Fn(&mut Builder, &str) -> V) -> (V, V) {
        let block = number(b, self.across(), read);
        (b.remc(block, self.kv_heads as i64), b.divc(block, self.kv_heads as i64))
    }

    /// Emits the layers.
    pub(super) fn layers(
        &self,
        b: &mut Builder,
        prompts: impl FnOnce(&mut Builder),
        others: impl FnOnce(&mut Builder, &Lone),
    ) {
        let Some(lone) = self.lone else { return prompts(b) };
        let layer = b.sreg("ctaid.z");
        b.assume(layer, &[1, 0]);
        let first = b.cmpc(Cmp::Eq, layer, 0);
        b.either(first, |b| b.role(prompts), |b| b.role(|b| others(b, lone)));
    }

    /// Shared memory of a block, and the workspace; `prompts`: shared memory of a block of the
    /// first layer.
    pub(super) fn bytes(&self, shape: &Shape, prompts: usize) -> (u32, u64) {
        let d = shape.spec.value_dim;
        match self.lone {
            Some(l) => (prompts.max(l.split.shared_bytes(d)) as u32, l.split.scratch(d)),
            None => (prompts as u32, 0),
        }
    }
}
