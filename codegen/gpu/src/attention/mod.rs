//! Attention over the paged cache.
//!
//! Five kernels, by properties of the step and of the cache:
//!
//! - [`decode`]: few tokens, long contexts. A block takes a token, the query heads of one KV head
//!   and some chunks of the pages ([`split`]); its warps take every n-th page each, through
//!   asynchronous copies and tensor cores. The last block of a token's chunks joins them
//!   ([`join`]), so that it is one launch. For an [invariant](llmcc_ir::gpu::wish::Wish::invariant)
//!   target it serves steps of any size, a few adjacent tokens of a sequence together.
//! - [`prefill`]: many tokens. A block takes query rows (tokens × heads of one KV head) and walks
//!   the pages they see, shared by all its warps.
//! - [`warpgroup`]: the same on sm90, by `wgmma` and a pipeline between warps, for caches of 16
//!   bits and heads of up to 128.
//! - Both of these have blocks beside the others that work like [`decode`], for tokens that are
//!   alone in their sequence ([`lone`]).
//! - [`wide`]: 16-bit caches whose keys end with the values (latent), or are of another width, or
//!   with heads above 256, or of which rows are selected ([`selected`]); few tokens and many.
//! - [`plain`]: any head size and any cache, without tensor cores: slow, but always there.
//!
//! [`decode`] and [`prefill`] serve caches of 16 bits and int8 ones ([`codes`]).
//! [`llmcc_ir::gpu::attention`] says when [`warpgroup`] does it.
//!
//! All use the online softmax in base 2 in f32. Slots outside a token's range may hold anything:
//! their scores are replaced, and their values never multiplied. A token's result depends on its
//! own query, pages and position, and in steps of many tokens on whether it is alone of its sequence:
//! not on other sequences, nor on the order in which blocks happen to run.

mod codes;
mod deal;
mod decode;
mod join;
mod list;
mod lone;
mod plain;
mod pool;
mod prefill;
mod results;
mod rows;
mod selected;
mod shape;
mod share;
mod split;
mod tiles;
mod warpgroup;
mod wide;

use crate::Source;
use crate::cx::Cx;
use llmcc_ir::kernel::Attention;
use llmcc_ir::kv::KvSpec;
use shape::Shape;

/// Bytes of shared memory without which there is no kernel; others take more where there is more.
pub fn shared_bytes(spec: &KvSpec) -> usize {
    plain::shared_bytes(spec.value_dim)
}

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &Attention) -> Source {
    let shape = Shape::new(cx, k);
    // Kernels of prompts add in another order than the one that splits contexts.
    let prompts = !cx.target.wish.invariant;
    if let Some(plan) = warpgroup::Plan::new(cx, &shape, k.tile_m).filter(|_| prompts) {
        return warpgroup::emit(cx, &shape, &plan);
    }
    if let Some(plan) = prefill::Plan::new(cx, &shape, k.tile_m).filter(|_| prompts) {
        return prefill::emit(cx, &shape, &plan);
    }
    if let Some(plan) = decode::Plan::new(cx, &shape) {
        return decode::emit(cx, &shape, &if prompts { plan } else { plan.with_tokens(cx, k.tile_m) });
    }
    match wide::WidePlan::new(cx, &shape) {
        Some(plan) => wide::emit(cx, &shape, &plan),
        None => plain::emit(cx, &shape),
    }
}
