//! Rows given in place of rows of some tokens: a row of blocks per token.

use crate::Source;
use crate::cx::Cx;
use crate::given_rows::copies;
use crate::mlir::{Builder, Cmp};
use llmcc_abi::GpuCtx;
use llmcc_ir::kernel::Substitute;
use std::mem::offset_of;

/// Emits the kernel. Only tokens that rows are given for read the array of these.
pub fn emit(cx: &Cx<'_>, k: &Substitute) -> Source {
    copies(cx, k.out, Builder::load, |b, args, token| {
        let id = args.array_at(b, offset_of!(GpuCtx, tokens), token);
        let is = b.cmpc(Cmp::Eq, id, k.token as i64);
        let given = args.array(b, offset_of!(GpuCtx, arrays.given));
        b.select(is, given, args.operand(k.x))
    })
}
