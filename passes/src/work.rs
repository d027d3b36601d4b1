//! What a launch has to do whatever the machine: bytes from memory and multiply-adds, by which a measured time becomes a rate.

use llmcc_ir::kernel::{Attention, Body, Kernel, Matmul, ParamKind, RowElem};
use llmcc_ir::target::TargetSpec;
use llmcc_ir::ty::Env;

/// Work of one launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Bytes of weights and cache that come from main memory. Activations are taken to stay in the processor's caches.
    pub bytes: f64,
    /// Multiply-adds.
    pub macs: f64,
    /// What rows they are of.
    pub elem: RowElem,
}

impl Default for Work {
    fn default() -> Work {
        Work { bytes: 0.0, macs: 0.0, elem: RowElem::F32 }
    }
}

impl Work {
    /// Multiply-adds of that kind that a core of the target does per second at most.
    pub fn peak(&self, target: &TargetSpec) -> f64 {
        match self.elem.encoding().bits() {
            0..=8 => target.int8_macs,
            9..=16 => target.bf16_macs,
            _ => target.f32_macs,
        }
    }
}

/// Work of a launch whose tokens attend to `context` tokens each. `env.rows` counts sequences: each wants the logits of its last token.
pub fn work(kernel: &Kernel, env: Env, context: usize) -> Work {
    let m = kernel.rows.eval(env);
    match &kernel.body {
        Body::Matmul(b) => matmul(kernel, b, m),
        Body::Attention(a) => attention(kernel, a, m, env.rows, context),
        Body::Embed(e) => match kernel.params[e.table].kind {
            ParamKind::Matrix { k, format, .. } => Work { bytes: (m * format.packed_bytes(1, k)) as f64, ..Work::default() },
            _ => Work::default(),
        },
        Body::RowNorm(_) | Body::Pointwise(_) | Body::RopeTable(_) | Body::TopK(_) => Work::default(),
    }
}

/// How the rows are stored that a product multiplies.
pub(crate) fn multiplied(kernel: &Kernel, b: &Matmul) -> RowElem {
    let stored = match kernel.params[b.x].kind {
        ParamKind::Rows { elem, .. } => elem,
        _ => RowElem::F32,
    };
    b.prologue.map_or(stored, |p| p.elem)
}

fn matmul(kernel: &Kernel, b: &Matmul, m: usize) -> Work {
    let mut out = Work { elem: multiplied(kernel, b), ..Work::default() };
    for w in b.segments.iter().flat_map(|s| &s.weights) {
        if let ParamKind::Matrix { n, k, format } = kernel.params[*w].kind {
            out.bytes += format.packed_bytes(n, k) as f64;
            out.macs += (m * n * k) as f64;
        }
    }
    out
}

fn attention(kernel: &Kernel, a: &Attention, m: usize, sequences: usize, context: usize) -> Work {
    let ParamKind::Kv(kv) = kernel.params[a.kv].kind else { return Work::default() };
    let context = kv.window.map_or(context, |w| w.min(context));
    Work {
        bytes: (2 * context * kv.width() * kv.dtype.bytes() * sequences.clamp(1, m.max(1))) as f64,
        macs: (2 * m * context * a.heads * kv.head_dim) as f64,
        elem: RowElem::F32,
    }
}
