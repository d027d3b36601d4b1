//! Muse Spark (Meta, 2026): Muse Glimmer with experts of a narrower row, norms of each head's and
//! each expert's output, and gates that mix a block's output with the residual stream.

use crate::arch::blocks::decoder::feed;
use crate::arch::blocks::experts::{ExpertRow, ROW_DOWN, ROW_EACH_NORM, ROW_ENTRY_NORM, ROW_UP, scaled_first};
use crate::arch::blocks::prelude::*;
use crate::arch::models::muse_glimmer_text as glimmer;

pub(crate) const ARCH: Arch = Arch {
    model_type: "muse_spark_text",
    class: "MuseSparkForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, ATTENTION_BIAS, WINDOW, glimmer::OWN, OWN],
    fixed: &[],
    goldens: &["muse_spark"],
    names: Names(&[NAMES, glimmer::NAMES, SANDWICH_NORMS, POST_NORMS, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 202_048, heads: 128, kv_heads: 16, head_dim: 64, max_position: 1 << 20, theta: 5e5, eps: 1e-5,
            act(hidden_activation): Silu, ..LLAMA
        };
        let multiplier = 0.176_776_695_296_636_9;
        let d = glimmer::decoder(f, &defaults, [multiplier, 5.473_006_486_387_5])?;
        let d = d.with_heads(|_, _, h| h.out_norm = Some(OutNorm::Heads));
        let [before, after] = d.block_norms.own.unwrap_or([d.norm; 2]);
        let router = Router { eps: F32::new(1e-15), ..sigmoid_router(f, 8, ("routed_scaling_factor", 1.0))? };
        let row = ExpertRow {
            entry: Some(before),
            each: Some(after.eps),
            ..ExpertRow::plain(f.size("moe_hidden_size").or(4096))
        };
        let experts = Experts {
            ffn: f.size("moe_intermediate_size").or(4096),
            routing: Routing {
                scale: Some(f.factor_or("output_multiplier", multiplier)? as f32),
                ..Routing::default()
            },
            correction: Some(CORRECTION),
            row: Some(row),
            ..Experts::like(&d, router, f.size("num_local_experts").or(256))
        };
        let experts = experts.checked(f, ["num_local_experts", "num_experts_per_tok"])?;
        let decoder = d.with_sparse(f, 0, experts)?;
        let temperature = f.factor_or("residual_gate_temperature", 0.3)? as f32;
        Ok(Box::new(Spark { decoder, norms: [before, after], temperature }))
    },
};

const OWN: &[Field] = fields! {
    moe_intermediate_size, num_local_experts, num_experts_per_tok, routed_scaling_factor, moe_hidden_size,
    mlp_layer_types, residual_gate_temperature,
};

/// Shares of the outputs of attention and of the MLP or the experts, `[hidden]`.
const GATES: [Part; 2] = [Part("attn.residual_gate"), Part("mlp.residual_gate")];

const NAMES: Table = names! {
    "model.layers.{}." {
        GATES[0] => "post_attention_residual_gate.gate", GATES[1] => "post_feedforward_residual_gate.gate",
        CORRECTION => "mlp.gate.e_score_correction_bias", ROW_DOWN => "mlp.pre_expert_proj",
        ROW_ENTRY_NORM => "mlp.pre_expert_norm", ROW_EACH_NORM => "mlp.experts.post_expert_norm",
        ROW_UP => "mlp.post_expert_proj",
    }
};

#[derive(Debug)]
struct Spark {
    decoder: Decoder,
    /// Before blocks and after them.
    norms: [Norm; 2],
    /// Divisor of gates.
    temperature: f32,
}

impl Spark {
    /// `α·x + β·y` with `β = σ(w)` and `α = √(1 − β²)`, but no less than the root of 0.001.
    fn gated(&self, f: &mut Draft, part: Part, x: Value, y: Value) -> Value {
        let w = f.weight(part, Kind::Bare, &[f.facts().hidden]);
        let by = f.scalar(self.temperature);
        let w = f.op(Op::Binary(BinaryOp::Div), &[w, by]);
        let open = f.unary(UnaryOp::Sigmoid, w);
        let w = f.unary(UnaryOp::Neg, w);
        let shut = f.unary(UnaryOp::Sigmoid, w);
        let [one, least] = [1.0, 1e-3].map(|x| f.scalar(x));
        let kept = f.add(open, one);
        let kept = f.mul(kept, shut);
        let kept = f.op(Op::Binary(BinaryOp::Max), &[kept, least]);
        let kept = f.unary(UnaryOp::Sqrt, kept);
        let [x, y] = [f.mul(x, kept), f.mul(y, open)];
        f.add(x, y)
    }
}

impl Shape for Spark {
    answered_by! { decoder: facts yields }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (d, hidden, [before, after]) = (&self.decoder, self.decoder.facts.hidden, self.norms);
        let (mut x, ropes) = decoder::embedding(l, d)?;
        for (i, spec) in d.layers.iter().enumerate() {
            let mut f = l.layer("attend", i);
            let stream = f.carried("x", &x);
            let context = Context::of(&mut f, spec, &ropes);
            let h = norm(&mut f, ATTN_NORM, before, stream, hidden);
            let y = mixed(&mut f, d.norm, spec, context, h);
            let y = norm(&mut f, ATTN_POST_NORM, Norm { gain: false, ..after }, y, hidden);
            let y = self.gated(&mut f, GATES[0], stream, y);
            x = f.call(&[y])?.pop().unwrap_or_default();
            let mut f = l.layer("feed", i);
            let stream = f.carried("x", &x);
            let h = norm(&mut f, MLP_NORM, before, stream, hidden);
            let y = feed(&mut f, d, spec, stream, h);
            let y = scaled_first(&mut f, MLP_POST_NORM, after.eps, y, hidden);
            let y = self.gated(&mut f, GATES[1], stream, y);
            x = f.call(&[y])?.pop().unwrap_or_default();
        }
        decoder::head(l, d, &x)
    }
}
