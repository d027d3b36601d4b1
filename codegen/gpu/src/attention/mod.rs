//! Attention over the paged cache.
//!
//! Four kernels, by what is known of the step and of the cache:
//!
//! - [`decode`]: few tokens, long contexts. A block takes a token, the query heads of one KV head
//!   and some chunks of the pages ([`split`]); its warps take every n-th page each, through
//!   asynchronous copies and tensor cores. The last block of a token's chunks joins them
//!   ([`join`]), so that it is one launch.
//! - [`prefill`]: many tokens. A block takes query rows (tokens × heads of one KV head) and walks
//!   the pages they see, shared by all its warps.
//! - [`warpgroup`]: the same on sm90, by `wgmma` and a pipeline between warps, for caches of 16
//!   bits and heads of up to 128.
//! - [`plain`]: any head size and any cache, without tensor cores: slow, but always there.
//!
//! [`decode`] and [`prefill`] serve caches of 16 bits and int8 ones ([`codes`]).
//! [`llmcc_ir::gpu::attention`] says when [`warpgroup`] does it.
//!
//! All use the online softmax in base 2 in f32. Slots outside a token's range may hold anything:
//! their scores are replaced, and their values never multiplied. A token's result depends on its
//! own query, pages and position: not on the other tokens of the step, nor on the order in which
//! blocks happen to run.

mod codes;
mod decode;
mod join;
mod list;
mod plain;
mod pool;
mod prefill;
mod results;
mod rows;
mod split;
mod tiles;
mod warpgroup;

use crate::Source;
use crate::cx::{Args, Cx, row_stride};
use crate::epilogue::half_type;
use crate::mlir::{Builder, Elem, F32, I64, Ty, V};
use llmcc_abi::layout::{self, Page};
use llmcc_codegen::CodegenError;
use llmcc_ir::kernel::{Attention, ParamId, RowElem};
use llmcc_ir::kv::{KvDType, KvSpec};

/// What an attention kernel is about.
struct Shape {
    kv: ParamId,
    spec: KvSpec,
    page: Page,
    q: (ParamId, RowElem),
    out: (ParamId, RowElem),
    /// Columns of queries and output.
    width: usize,
    /// Query heads per KV head.
    group: usize,
    /// Multiplies scores: the kernel's factor, and that from base e to base 2.
    scale: f32,
}

/// Emits the kernel.
///
/// # Errors
/// Operands of the wrong kind.
pub fn emit(cx: &Cx<'_>, k: &Attention) -> Result<Source, CodegenError> {
    let shape = Shape::new(cx, k)?;
    if let Some(plan) = warpgroup::Plan::new(cx, &shape, k.tile_m) {
        return warpgroup::emit(cx, &shape, &plan);
    }
    if let Some(plan) = prefill::Plan::new(cx, &shape, k.tile_m) {
        return prefill::emit(cx, &shape, &plan);
    }
    match decode::Plan::new(cx, &shape) {
        Some(plan) => decode::emit(cx, &shape, &plan),
        None => plain::emit(cx, &shape),
    }
}

impl Shape {
    fn new(cx: &Cx<'_>, k: &Attention) -> Result<Shape, CodegenError> {
        let spec = cx.kv(k.kv)?;
        let (q_cols, q) = cx.rows(k.q)?;
        let (out_cols, out) = cx.rows(k.out)?;
        let width = k.heads * spec.head_dim;
        if width == 0 || spec.kv_heads == 0 || !k.heads.is_multiple_of(spec.kv_heads) {
            return Err(cx.error(format!("{} query heads do not fit {spec}", k.heads)));
        }
        if q_cols != width || out_cols != width {
            return Err(cx.error(format!("queries and output must have {width} columns")));
        }
        if q.is_quantized() || out.is_quantized() {
            return Err(cx.error("attention reads and makes no int8 or fp8 rows on GPUs"));
        }
        Ok(Shape {
            kv: k.kv,
            spec,
            page: layout::page(spec.kv_heads, spec.head_dim, spec.dtype.bytes()),
            q: (k.q, q),
            out: (k.out, out),
            width,
            group: k.heads / spec.kv_heads,
            scale: (f64::from(k.scale.get()) * std::f64::consts::LOG2_E) as f32,
        })
    }

    /// The 16-bit float that tensor cores multiply, and whether it comes from int8 codes; `None` if
    /// only the plain kernel will do.
    fn multiplied(&self) -> Option<(Elem, bool)> {
        let d = self.spec.head_dim;
        match self.spec.dtype {
            KvDType::F16 => d.is_multiple_of(16).then_some((Elem::F16, false)),
            KvDType::Bf16 => d.is_multiple_of(16).then_some((Elem::Bf16, false)),
            KvDType::Int8 => d.is_multiple_of(32).then_some((Elem::F16, true)),
            KvDType::F32 => None,
        }
    }

    /// Address of column `col` of row `token` of queries or output.
    fn element(&self, b: &mut Builder, args: Args<'_>, rows: (ParamId, RowElem), token: V, col: V) -> V {
        let token = b.zext(token, I64);
        let start = b.mulc(token, row_stride(self.width, rows.1) as i64);
        let line = b.at(args.operand(rows.0), start);
        let offset = b.shlc(col, if rows.1 == RowElem::F32 { 2 } else { 1 });
        b.at(line, offset)
    }

    /// Stores f32 values (a scalar, or a vector of adjacent columns) to the output.
    fn store(&self, b: &mut Builder, args: Args<'_>, token: V, col: V, values: V) {
        let p = self.element(b, args, self.out, token, col);
        let narrow = half_type(self.out.1).unwrap_or(F32);
        let ty = match (values.ty, narrow) {
            (Ty::Vec(n, _), Ty::S(e)) => Ty::Vec(n, e),
            _ => narrow,
        };
        let values = if narrow == F32 { values } else { b.ftrunc(values, ty) };
        b.store(values, p);
    }

    /// First position that a token at `position` sees.
    fn first_seen(&self, b: &mut Builder, position: V) -> V {
        let zero = b.i32(0);
        match self.spec.window {
            Some(window) => {
                let first = b.addc(position, 1 - window.min(i32::MAX as usize) as i64);
                b.smax(first, zero)
            }
            None => zero,
        }
    }
}
