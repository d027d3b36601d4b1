//! Blocks that architectures share. `declare` checks and binds the weights of a block, `emit` adds its operations: a function's
//! parameters come before its operations.

use super::lifter::{Call1, HEAD, Lifter, TABLE};
use crate::error::FrontendError;
use crate::rope;
use llmcc_ir::graph::{F32, Input, Op, UnaryOp, Value};
use llmcc_ir::ty::Dim;

/// Results of the step that layers pass on.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    /// Residual stream `[T, hidden]`.
    pub x: usize,
    /// Rotary table `[T, dim]`.
    pub rope: usize,
}

/// What an attention block has beyond the common part.
#[derive(Clone, Copy, Default)]
pub(super) struct AttentionSpec {
    /// Biases on Q, K and V.
    pub qkv_bias: bool,
    /// Bias on the output.
    pub out_bias: bool,
    /// RMSNorm over each head of Q and K, before the rotation.
    pub qk_norm: bool,
    /// Sliding window.
    pub window: Option<usize>,
}

/// A decoder of pre-norm layers: embedding, layers with attention and a gated MLP, head. `spec` gives the attention of layer `i`.
pub(super) fn decoder(l: &mut Lifter, spec: impl Fn(usize) -> AttentionSpec) -> Result<(), FrontendError> {
    let mut stream = embedding(l)?;
    for i in 0..l.config.layers {
        stream.x = layer(l, stream, i, spec(i))?;
    }
    head(l, stream)
}

/// `embed`: rows of the table, and the rotary table that all layers share.
pub(super) fn embedding(l: &mut Lifter) -> Result<Stream, FrontendError> {
    let c = l.config;
    let rope = rope::frequencies(&c.rope);
    let mut f = l.func("embed");
    let shape = [c.vocab, c.hidden];
    let table = if c.tied { f.shared_weight("table", f.tied_table(), &shape)? } else { f.weight("table", TABLE, &shape)? };
    let inv_freq = f.computed("inv_freq", "$rope.inv_freq", rope.inv_freq);
    let tokens = f.input(Input::Tokens);
    let positions = f.input(Input::Positions);
    let x = f.op(Op::Embed, &[table, tokens]);
    let angles = f.op(Op::RopeTable { scale: F32::new(rope.scale) }, &[positions, inv_freq]);
    let first = f.call(&[x, angles]);
    Ok(Stream { x: first, rope: first + 1 })
}

/// One pre-norm layer: `x += attention(norm(x)); x += mlp(norm(x))`. Returns the new residual stream.
fn layer(l: &mut Lifter, s: Stream, i: usize, spec: AttentionSpec) -> Result<usize, FrontendError> {
    let c = l.config;
    let at = format!("model.layers.{i}");
    let mut f = l.func("layer");
    let x = f.activation("x", s.x, Dim::Tokens, c.hidden);
    let rope = f.activation("rope", s.rope, Dim::Tokens, c.rope.dim);
    let positions = f.input(Input::Positions);
    let attention = Attention::declare(&mut f, &at, spec)?;
    let mlp = GatedMlp::declare(&mut f, &at)?;
    let x = attention.emit(&mut f, x, rope, positions);
    let x = mlp.emit(&mut f, x);
    Ok(f.call(&[x]))
}

/// `head`: picks the wanted rows first, so that norm and head cost only what is asked for.
pub(super) fn head(l: &mut Lifter, s: Stream) -> Result<(), FrontendError> {
    let c = l.config;
    let mut f = l.func("head");
    let x = f.activation("x", s.x, Dim::Tokens, c.hidden);
    let rows = f.input(Input::OutRows);
    let norm = Norm::declare(&mut f, "norm.g", "model.norm.weight", c.hidden)?;
    let shape = [c.vocab, c.hidden];
    let table = if c.tied { f.shared_weight("table", f.tied_table(), &shape)? } else { f.weight("head.w", HEAD, &shape)? };
    let x = f.op(Op::GatherRows, &[x, rows]);
    let x = norm.emit(&mut f, x);
    let logits = f.f.matmul(x, table);
    f.call(&[logits]);
    Ok(())
}

/// RMSNorm over runs of `width` columns.
struct Norm {
    gain: Value,
    width: usize,
}

impl Norm {
    fn declare(f: &mut Call1, name: &str, tensor: &str, width: usize) -> Result<Norm, FrontendError> {
        Ok(Norm { gain: f.weight(name, tensor, &[width])?, width })
    }

    fn emit(&self, f: &mut Call1, x: Value) -> Value {
        let eps = f.config().eps;
        f.f.rms_norm(x, self.gain, eps, self.width)
    }
}

/// `x·wᵀ (+ b)`.
struct Linear {
    w: Value,
    b: Option<Value>,
}

impl Linear {
    /// `name` and `tensor` without their endings; shape `[out, inner]`.
    fn declare(f: &mut Call1, name: &str, tensor: &str, shape: [usize; 2], bias: bool) -> Result<Linear, FrontendError> {
        let w = f.weight(&format!("{name}.w"), &format!("{tensor}.weight"), &shape)?;
        let b = if bias { Some(f.weight(&format!("{name}.b"), &format!("{tensor}.bias"), &shape[..1])?) } else { None };
        Ok(Linear { w, b })
    }

    fn emit(&self, f: &mut Call1, x: Value) -> Value {
        let y = f.f.matmul(x, self.w);
        self.b.map_or(y, |b| f.f.add(y, b))
    }
}

/// Norm, grouped-query attention with rotary positions, residual.
struct Attention {
    norm: Norm,
    q: Linear,
    k: Linear,
    v: Linear,
    qk_norm: Option<[Norm; 2]>,
    out: Linear,
    kv: Value,
}

impl Attention {
    fn declare(f: &mut Call1, at: &str, spec: AttentionSpec) -> Result<Attention, FrontendError> {
        let c = f.config();
        let (hidden, q_width, kv_width, head_dim) = (c.hidden, c.q_width(), c.kv_width(), c.head_dim);
        let tensor = |part: &str| format!("{at}.self_attn.{part}");
        let kv = f.state("kv", spec.window);
        let norm = Norm::declare(f, "attn.norm.g", &format!("{at}.input_layernorm.weight"), hidden)?;
        let q = Linear::declare(f, "attn.q", &tensor("q_proj"), [q_width, hidden], spec.qkv_bias)?;
        let k = Linear::declare(f, "attn.k", &tensor("k_proj"), [kv_width, hidden], spec.qkv_bias)?;
        let v = Linear::declare(f, "attn.v", &tensor("v_proj"), [kv_width, hidden], spec.qkv_bias)?;
        let qk_norm = if spec.qk_norm {
            Some([
                Norm::declare(f, "attn.q_norm.g", &tensor("q_norm.weight"), head_dim)?,
                Norm::declare(f, "attn.k_norm.g", &tensor("k_norm.weight"), head_dim)?,
            ])
        } else {
            None
        };
        let out = Linear::declare(f, "attn.out", &tensor("o_proj"), [hidden, q_width], spec.out_bias)?;
        Ok(Attention { norm, q, k, v, qk_norm, out, kv })
    }

    fn emit(&self, f: &mut Call1, x: Value, rope: Value, positions: Value) -> Value {
        let (heads, head_dim) = (f.config().heads, f.config().head_dim);
        let h = self.norm.emit(f, x);
        let [mut q, mut k, v] = [&self.q, &self.k, &self.v].map(|p| p.emit(f, h));
        if let Some([q_norm, k_norm]) = &self.qk_norm {
            q = q_norm.emit(f, q);
            k = k_norm.emit(f, k);
        }
        let q = f.op(Op::Rope { head_dim }, &[q, rope]);
        let k = f.op(Op::Rope { head_dim }, &[k, rope]);
        let kv = f.op(Op::KvAppend, &[self.kv, k, v, positions]);
        let scale = F32::new((1.0 / (head_dim as f64).sqrt()) as f32);
        let y = f.op(Op::Attention { heads, scale }, &[q, kv, positions]);
        let y = self.out.emit(f, y);
        f.f.add(x, y)
    }
}

/// Norm, `down(act(gate(x)) · up(x))`, residual.
struct GatedMlp {
    norm: Norm,
    gate: Linear,
    up: Linear,
    down: Linear,
    act: UnaryOp,
}

impl GatedMlp {
    fn declare(f: &mut Call1, at: &str) -> Result<GatedMlp, FrontendError> {
        let c = f.config();
        let (hidden, ffn, bias, act) = (c.hidden, c.ffn, c.mlp_bias, c.act);
        let tensor = |part: &str| format!("{at}.mlp.{part}");
        Ok(GatedMlp {
            norm: Norm::declare(f, "mlp.norm.g", &format!("{at}.post_attention_layernorm.weight"), hidden)?,
            gate: Linear::declare(f, "mlp.gate", &tensor("gate_proj"), [ffn, hidden], bias)?,
            up: Linear::declare(f, "mlp.up", &tensor("up_proj"), [ffn, hidden], bias)?,
            down: Linear::declare(f, "mlp.down", &tensor("down_proj"), [hidden, ffn], bias)?,
            act,
        })
    }

    fn emit(&self, f: &mut Call1, x: Value) -> Value {
        let h = self.norm.emit(f, x);
        let gate = self.gate.emit(f, h);
        let gate = f.f.unary(self.act, gate);
        let up = self.up.emit(f, h);
        let h = f.f.mul(gate, up);
        let y = self.down.emit(f, h);
        f.f.add(x, y)
    }
}
