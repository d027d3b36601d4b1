//! The GPU backend: from kernels to MLIR text, PTX and cubins.
//!
//! An emitter per kernel family writes MLIR ([`mlir::Builder`]) in plain Rust, without LLVM. With
//! the cargo feature `llvm`, [`llvm`] lowers that text to PTX (MLIR's passes, LLVM's NVPTX
//! backend). The text in between allows snapshots without LLVM, and LLVM in a process of its own: a
//! fatal error inside LLVM ends the process it is in.
//!
//! # What a kernel sees
//!
//! `.entry NAME(operand0, ..., ctx, workspace)`, all device addresses; `ctx` is an
//! [`llmcc_abi::GpuCtx`]. Nothing in it changes from step to step, so launches can be captured once
//! in a CUDA graph; the numbers of tokens and rows are read from `ctx`, and blocks beyond them
//! return.
//!
//! # Adding a kernel
//!
//! A file with `pub fn emit(cx: &Cx<'_>, body) -> Source` and a line in `written`. Unsupported
//! kernels are refused in `supported.rs`, before: emitters do not fail.

mod absmax;
mod adapters;
pub mod assembler;
mod attention;
pub mod backend;
mod causal_conv;
mod channels;
mod codes;
pub mod cx;
mod embed;
mod embed_hashed;
pub mod epilogue;
mod experts;
pub mod expr;
mod given_rows;
mod last;
#[cfg(feature = "llvm")]
pub mod llvm;
mod matmul;
pub mod mlir;
pub mod module;
mod nth;
pub mod piece;
mod pointwise;
mod recurrence;
mod ring;
mod rope;
mod route;
mod rownorm;
mod sample;
mod select;
mod sinkhorn;
mod source;
mod stage;
mod substitute;
mod supported;
mod token_ids;
mod tokens;
mod window_means;
mod wkv;
pub mod worker;

pub use source::{COUNTER_BYTES, Source, blocks, per_rows};

use cx::Cx;
use llmcc_codegen::CodegenError;
use llmcc_ir::gpu::verify::verify_once;
use llmcc_ir::kernel::{Body, Kernel};
use llmcc_ir::match_family;
use llmcc_ir::target::TargetSpec;

/// Writes a verified kernel as MLIR. Its use of shared memory and barriers is recorded meanwhile
/// and, in builds with debug assertions, verified for a step of many rows.
///
/// # Errors
/// [`CodegenError::Unsupported`] for kernels this backend does not support;
/// [`CodegenError::Internal`] for a kernel that the verifier refuses, and for a skeleton that is
/// not in order: a bug of an emitter.
pub fn emit(kernel: &Kernel, target: &TargetSpec) -> Result<Source, CodegenError> {
    let source = written(&supported::check(kernel, target)?)?;
    // Compilers that are tested look at every kernel they make.
    let found = if cfg!(debug_assertions) { verify_once(&source.program) } else { vec![] };
    if let Some(first) = found.first() {
        let what = format!("the kernel uses shared memory out of order: {first}");
        return Err(CodegenError::internal(kernel, what));
    }
    Ok(source)
}

/// The kernel as it is written, not verified.
///
/// # Errors
/// A product that has no schedule.
fn written(cx: &Cx<'_>) -> Result<Source, CodegenError> {
    let body = &cx.kernel.body;
    Ok(match_family! { match body {
        Body::Pointwise(body) => pointwise::emit(cx, body),
        Body::RowNorm(body) => rownorm::emit(cx, body),
        Body::Embed(body) => embed::emit(cx, body),
        Body::TokenIds(body) => token_ids::emit(cx, body),
        Body::Substitute(body) => substitute::emit(cx, body),
        Body::GivenRows(body) => given_rows::emit(cx, body),
        Body::EmbedHashed(body) => embed_hashed::emit(cx, body),
        Body::RopeTable(body) => rope::emit(cx, body),
        Body::Attention(body) => attention::emit(cx, body),
        Body::Matmul(body) => supported::product(cx, body)?.emit(),
        Body::Select(body) => select::emit(cx, body),
        Body::EvictingAttention(_) | Body::SelectWindows(_) | Body::WindowBounds(_) => {
            unreachable!("`supported` refuses it")
        }
        Body::Route(body) => route::emit(cx, body),
        Body::ExpertMatmul(body) => experts::emit(cx, body),
        Body::TopK(body) => sample::emit(cx, body),
        Body::CausalConv(body) => causal_conv::emit(cx, body),
        Body::Recurrence(body) => recurrence::emit(cx, body),
        Body::Wkv(body) => wkv::emit(cx, body),
        Body::WindowMeans(body) => window_means::emit(cx, body),
        Body::Sinkhorn(body) => sinkhorn::emit(cx, body),
        Body::AbsMaxScale(body) => absmax::emit(cx, body),
        Body::AdapterMatmul(body) => adapters::emit(cx, body),
    } in tests {
        Body::Climb(_) => unreachable!("`supported` refuses it"),
    }})
}
