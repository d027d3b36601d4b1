//! MiniMax-01 (arXiv 2501.08313): lightning attention in most layers, softmax attention in the
//! others, experts in all; blocks add to their norms' output, both with weights.

use crate::arch::blocks::attention::scaled;
use crate::arch::blocks::lightning_attention::{self, Lightning};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "minimax",
    class: "MiniMaxForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, OWN],
    // How the same is computed.
    fixed: &[("block_size", Neutral::Any)],
    goldens: &["minimax"],
    names: Names(&[lightning_attention::NAMES, MIXTRAL_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 32_000, kv_heads: 8, max_position: 131_072, eps: 1e-5, theta: 1e6, ..LLAMA };
        let d = Decoder::read(f, &defaults)?;
        let layers = d.facts.layers;
        let linear = linear_layers(f, layers)?;
        let heads = d.layers.first().map(|l| l.attention.heads);
        let (count, dim) = heads.map_or((0, 0), |heads| (heads.queries, heads.dim));
        let act = common::activation(f, "hidden_act", UnaryOp::Silu);
        let lightning = |i| Mixer::Lightning(Lightning { heads: count, dim, act, layer: [i, layers] });
        let d = d.with_mixers(|i| linear[i].then(|| lightning(i)));
        let router = Router::softmax(f.size("num_experts_per_tok").or(2), true);
        let experts = Experts::like(&d, router, f.size("num_local_experts").or(8));
        let experts = experts.checked(f, ["num_local_experts", "num_experts_per_tok"])?;
        let shares = Shares {
            full: [common::factor(f, "full_attn_alpha_factor")?, common::factor(f, "full_attn_beta_factor")?],
            linear: [common::factor(f, "linear_attn_alpha_factor")?, common::factor(f, "linear_attn_beta_factor")?],
            mlp: [common::factor(f, "mlp_alpha_factor")?, common::factor(f, "mlp_beta_factor")?],
        };
        Ok(Box::new(MiniMax { decoder: d, experts, shares }))
    },
};

const OWN: &[Field] = fields! {
    layer_types: Accepts::ListOf(&["linear_attention", "full_attention", WINDOW]), num_local_experts | num_experts,
    num_experts_per_tok, full_attn_alpha_factor, full_attn_beta_factor, linear_attn_alpha_factor,
    linear_attn_beta_factor, mlp_alpha_factor, mlp_beta_factor,
};

/// Refused with a word of its own.
const WINDOW: &str = "sliding_attention";

/// Which layers have lightning attention: every second one, where nothing is said.
fn linear_layers(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    match common::layer_types(f, layers)? {
        Some(types) if types.contains(&WINDOW) => {
            let help = "this architecture supports lightning attention and full attention".to_string();
            Err(f.unsupported("layer_types", WINDOW.into(), help))
        }
        Some(types) => Ok(types.iter().map(|t| *t == "linear_attention").collect()),
        None => Ok((0..layers).map(|i| i % 2 == 1).collect()),
    }
}

/// Factors of a block's normalized input, and of its output; `None` = 1.
type Share = [Option<f32>; 2];

/// Factors of all blocks.
#[derive(Debug)]
struct Shares {
    full: Share,
    linear: Share,
    mlp: Share,
}

/// A decoder whose blocks normalize the residual stream itself.
#[derive(Debug)]
struct MiniMax {
    decoder: Decoder,
    experts: Experts,
    shares: Shares,
}

impl MiniMax {
    fn layer(
        &self,
        l: &mut Lifter,
        i: usize,
        spec: &Layer,
        x: &Carried,
        ropes: &[Carried],
    ) -> Result<Carried, FrontendError> {
        let (d, hidden) = (&self.decoder, self.decoder.facts.hidden);
        let mut f = l.layer("layer", i);
        let x = f.carried("x", x);
        let context = Context::of(&mut f, spec, ropes);
        let x = norm(&mut f, ATTN_NORM, d.norm, x, hidden);
        let y = mixed(&mut f, d.norm, spec, context, x);
        let share = if spec.mixer.is_some() { self.shares.linear } else { self.shares.full };
        let x = sum(&mut f, share, [x, y]);
        let x = norm(&mut f, MLP_NORM, d.norm, x, hidden);
        let y = mixture(&mut f, &self.experts, x, x);
        let x = sum(&mut f, self.shares.mlp, [x, y]);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }
}

/// `αx + βy`
fn sum(f: &mut Draft, share: Share, [x, y]: [Value; 2]) -> Value {
    let x = scaled(f, x, share[0]);
    let y = scaled(f, y, share[1]);
    f.add(x, y)
}

impl Shape for MiniMax {
    answered_by! { decoder: facts yields }

    fn chooses(&self, tensor: &str) -> bool {
        // Transformers stores values its class computes from the configuration.
        ["slope_rate", "query_decay", "key_decay", "diagonal_decay"].iter().any(|name| tensor.ends_with(name))
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (mut x, ropes) = decoder::embedding(l, &self.decoder)?;
        for (i, spec) in self.decoder.layers.iter().enumerate() {
            x = self.layer(l, i, spec, &x, &ropes)?;
        }
        decoder::head(l, &self.decoder, &x)
    }
}
