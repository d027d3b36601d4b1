//! Which columns of its operands a kernel reads and writes.

use crate::kernel::{Body, Expr, Kernel, ParamId, ParamKind, Segment, Store};
use std::ops::Range;

/// One use of an operand by a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The operand.
    pub param: ParamId,
    /// Columns (rows operands); empty for weights and states, which are used as a whole.
    pub cols: Range<usize>,
    /// Written, else read.
    pub write: bool,
}

/// Every use of every operand, in the order of the kernel's text. A cache is read by attention and written by the stores of keys and values.
pub fn accesses(kernel: &Kernel) -> Vec<Access> {
    let mut list = List { kernel, out: vec![] };
    match &kernel.body {
        Body::Matmul(k) => {
            list.whole(k.x, false);
            if let Some(gain) = k.prologue.and_then(|p| p.gain) {
                list.whole(gain, false);
            }
            k.segments.iter().for_each(|s| list.segment(s));
        }
        Body::RowNorm(k) => {
            list.whole(k.x, false);
            if let Some(gain) = k.gain {
                list.whole(gain, false);
            }
            list.whole(k.out, true);
        }
        Body::Attention(k) => {
            list.whole(k.q, false);
            list.whole(k.kv, false);
            list.whole(k.out, true);
        }
        Body::Pointwise(k) => k.segments.iter().for_each(|s| list.segment(s)),
        Body::Embed(k) => {
            list.whole(k.table, false);
            list.whole(k.out, true);
        }
        Body::RopeTable(k) => {
            list.whole(k.inv_freq, false);
            list.whole(k.out, true);
        }
        Body::TopK(k) => {
            list.whole(k.x, false);
            list.whole(k.out, true);
        }
    }
    list.out
}

struct List<'a> {
    kernel: &'a Kernel,
    out: Vec<Access>,
}

impl List<'_> {
    fn whole(&mut self, param: ParamId, write: bool) {
        let cols = match self.kernel.params.get(param).map(|p| &p.kind) {
            Some(ParamKind::Rows { cols, .. }) => *cols,
            _ => 0,
        };
        self.out.push(Access { param, cols: 0..cols, write });
    }

    fn segment(&mut self, s: &Segment) {
        s.weights.iter().for_each(|w| self.whole(*w, false));
        s.expr.visit(&mut |e| match e {
            Expr::Rows { param, start } => self.out.push(Access { param: *param, cols: *start..start.saturating_add(s.n), write: false }),
            Expr::Vector(param) | Expr::Rope { table: param, .. } => self.whole(*param, false),
            Expr::Acc(_) | Expr::Const(_) | Expr::Unary(..) | Expr::Binary(..) | Expr::Normalize(..) => {}
        });
        match s.store {
            Store::Rows { param, start } => self.out.push(Access { param, cols: start..start.saturating_add(s.n), write: true }),
            Store::KvKey(param) | Store::KvValue(param) => self.whole(param, true),
        }
    }
}
