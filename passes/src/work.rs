//! What a launch has to do whatever the machine: bytes from memory and multiply-adds, by which a measured time becomes a rate.

use llmcc_ir::kernel::{Attention, Body, Kernel, Matmul, ParamKind, RowElem};
use llmcc_ir::ty::Env;

/// Work of one launch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Bytes of weights and cache that come from main memory. Activations are taken to stay in the processor's caches.
    pub bytes: f64,
    /// Multiply-adds.
    pub macs: f64,
    /// Whether those are of 8-bit integers.
    pub int8: bool,
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

/// Whether the products of a kernel are of 8-bit integers.
pub fn int8(kernel: &Kernel, b: &Matmul) -> bool {
    let stored = match kernel.params[b.x].kind {
        ParamKind::Rows { elem, .. } => elem,
        _ => RowElem::F32,
    };
    let elem = b.prologue.map_or(stored, |p| p.elem);
    matches!(elem, RowElem::Q8 { .. })
}

fn matmul(kernel: &Kernel, b: &Matmul, m: usize) -> Work {
    let mut out = Work { int8: int8(kernel, b), ..Work::default() };
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
        int8: false,
    }
}
