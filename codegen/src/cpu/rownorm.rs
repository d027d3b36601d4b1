//! Row-wise kernels: gather, normalization, gain, bias, residual, quantization.

use super::Lowering;
use super::emit::Emit;
use super::frame::Frame;
use super::span::Span;
use super::store::{Dest, Target};
use llmcc_abi::StepCtx;
use llmcc_ir::graph::BinaryOp;
use llmcc_ir::kernel::{Expr, Norm, ParamId, RowNorm};
use std::mem::offset_of;

/// Emits the rows `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &RowNorm) {
    let RowNorm { x, gather, norm, gain, bias, residual, out } = *k;
    let n = low.cols(x);
    let work = RowWork { x, norm, gain, bias, residual };
    let dest = Dest::rows(low, out, 0);
    let program = dest.program(low, frame, &work.expr(), n);
    let base = low.args.operand(out);
    e.each(low.args.lo, low.args.hi, 1, |e, row| {
        let source = if gather {
            let rows = low.args.step(e, offset_of!(StepCtx, out_rows));
            let p = e.index(rows, row, 4);
            e.load_index(p, 0)
        } else {
            row
        };
        let (col, width) = (e.int(0), e.int(n as i64));
        let span = Span { row: source, col, width, n, acc: &[], slot: None };
        dest.emit(low, e, &program, &span, &Target { base, row });
    });
}

/// The work of row-norm kernels and prologues on a row, as an expression.
#[derive(Clone, Copy)]
pub(super) struct RowWork {
    pub x: ParamId,
    pub norm: Option<Norm>,
    pub gain: Option<ParamId>,
    pub bias: Option<ParamId>,
    pub residual: Option<ParamId>,
}

impl RowWork {
    /// `residual + (norm(x)·gain + bias)`, as far as there are such.
    pub fn expr(self) -> Expr {
        let RowWork { x, norm, gain, bias, residual } = self;
        let rows = |param| Expr::Rows { param, start: 0 };
        let binary = |op, a, b| Expr::Binary(op, Box::new(a), Box::new(b));
        let mut expr = rows(x);
        if let Some(norm) = norm {
            expr = Expr::Normalize(norm, Box::new(expr));
        }
        if let Some(gain) = gain {
            expr = binary(BinaryOp::Mul, expr, Expr::Vector(gain));
        }
        if let Some(bias) = bias {
            expr = binary(BinaryOp::Add, expr, Expr::Vector(bias));
        }
        match residual {
            Some(residual) => binary(BinaryOp::Add, rows(residual), expr),
            None => expr,
        }
    }
}
