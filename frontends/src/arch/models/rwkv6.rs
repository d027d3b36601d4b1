//! RWKV-6, "Finch" (arXiv 2404.05892): as RWKV-5, with decays and mixtures of tokens that depend on
//! the tokens, by matrices of low rank.

use crate::arch::blocks::families::rwkv_blocks::{
    BONUS, CHANNEL_MIX_K, CHANNEL_MIX_R, ChannelMix, DECAY, FIELDS, G, HEADS, K, MIX_G, MIX_K, MIX_R, MIX_V, Matrices,
    NAMES, Pair, R, Rwkv, TimeMix, Toward, V, ffn,
};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "rwkv6",
    class: "Rwkv6ForCausalLM",
    fields: &[IDENTITY, FIELDS, MODEL, HEADS, RANKS],
    fixed: fixed! {
        Any => rescale_every num_attention_heads model_version;
        Same("hidden_size") => attention_hidden_size;
    },
    goldens: &["rwkv6_paper"],
    names: Names(&[OWN, NAMES]),
    read: |f| {
        let channels = ChannelMix { ffn: 0, gated: true, toward: Toward::Before };
        let model = Rwkv::read(f, (channels, ffn), |facts| {
            let heads = Matrices::read(f, facts)?;
            let wide = facts.hidden == 4096;
            let mix = f.size("time_mix_extra_dim").or(if wide { 64 } else { 32 });
            let decay = f.size("time_decay_extra_dim").or(if wide { 128 } else { 64 });
            Ok(Finch { heads, mix, decay })
        });
        Ok(Box::new(model?))
    },
};

/// Ranks of the parts that depend on the tokens; no file of the hub has them.
const RANKS: &[Field] = fields! { time_mix_extra_dim, time_decay_extra_dim };

const MIX_X: Part = Part("time.mix_x");
const MIX_W: Part = Part("time.mix_w");
const MIX_DOWN: Part = Part("time.mix_down");
const MIX_UP: Part = Part("time.mix_up");
const DECAY_DOWN: Part = Part("time.decay_down");
const DECAY_UP: Part = Part("time.decay_up");

const OWN: Table = names! {
    "blocks.{}." {
        MIX_X => "att.time_maa_x", MIX_W => "att.time_maa_w", MIX_K => "att.time_maa_k", MIX_V => "att.time_maa_v",
        MIX_R => "att.time_maa_r", MIX_G => "att.time_maa_g", MIX_DOWN => "att.time_maa_w1",
        MIX_UP => "att.time_maa_w2", DECAY => "att.time_decay", DECAY_DOWN => "att.time_decay_w1",
        DECAY_UP => "att.time_decay_w2", BONUS => "att.time_faaaa", CHANNEL_MIX_K => "ffn.time_maa_k",
        CHANNEL_MIX_R => "ffn.time_maa_r",
    }
    "rwkv.blocks.{}." {
        MIX_X => "attention.time_maa_x", MIX_W => "attention.time_maa_w", MIX_K => "attention.time_maa_k",
        MIX_V => "attention.time_maa_v", MIX_R => "attention.time_maa_r", MIX_G => "attention.time_maa_g",
        MIX_DOWN => "attention.time_maa_w1", MIX_UP => "attention.time_maa_w2", DECAY => "attention.time_decay",
        DECAY_DOWN => "attention.time_decay_w1", DECAY_UP => "attention.time_decay_w2", BONUS => "attention.time_faaaa",
        CHANNEL_MIX_K => "feed_forward.time_maa_k", CHANNEL_MIX_R => "feed_forward.time_maa_r",
    }
};

#[derive(Debug)]
struct Finch {
    heads: Matrices,
    /// Ranks of the mixtures and of the decays.
    mix: usize,
    decay: usize,
}

impl Finch {
    /// A row for decays, keys, values, receptances and gates each, mixed as the tokens say.
    #[track_caller]
    fn mixed(&self, f: &mut Draft, pair: &Pair) -> [Value; 5] {
        let hidden = f.facts().hidden;
        let x = pair.mixed(f, MIX_X);
        let down = f.weight(MIX_DOWN, Kind::Bare, &[hidden, 5 * self.mix]);
        let down = f.op(Op::Transpose, &[down]);
        let down = split_rows(f, down, [self.mix; 5]);
        let up = f.weight(MIX_UP, Kind::Bare, &[5, self.mix, hidden]);
        let up = f.op(Op::Flatten, &[up]);
        let up = split_rows(f, up, [self.mix; 5]);
        [(0, MIX_W), (1, MIX_K), (2, MIX_V), (3, MIX_R), (4, MIX_G)].map(|(i, part)| {
            let low = f.matmul(x, down[i]);
            let low = f.unary(UnaryOp::Tanh, low);
            let up = f.op(Op::Transpose, &[up[i]]);
            let moved = f.matmul(low, up);
            let fixed = f.weight(part, Kind::Row, &[hidden]);
            let weights = f.add(moved, fixed);
            pair.mixed_by(f, weights)
        })
    }

    /// `e^(−e^w)` of each row of each head's matrix.
    #[track_caller]
    fn decays(&self, f: &mut Draft, x: Value) -> Value {
        let hidden = f.facts().hidden;
        let [down, up] = [(DECAY_DOWN, [hidden, self.decay]), (DECAY_UP, [self.decay, hidden])].map(|(part, shape)| {
            let w = f.weight(part, Kind::Bare, &shape);
            f.op(Op::Transpose, &[w])
        });
        let low = f.matmul(x, down);
        let low = f.unary(UnaryOp::Tanh, low);
        let w = f.matmul(low, up);
        let fixed = f.weight(DECAY, Kind::Row, &[hidden]);
        let w = f.add(w, fixed);
        let w = f.unary(UnaryOp::Exp, w);
        let w = f.unary(UnaryOp::Neg, w);
        f.unary(UnaryOp::Exp, w)
    }
}

impl TimeMix for Finch {
    fn mix(&self, f: &mut Draft, h: Value, _: Option<Value>) -> (Value, Option<Value>) {
        let hidden = f.facts().hidden;
        let pair = Pair::new(f, "time.before", Toward::Before, h);
        let [w, k, v, r, g] = self.mixed(f, &pair);
        let [k, v, r, g] =
            [(K, k), (V, v), (R, r), (G, g)].map(|(part, x)| linear(f, part, [hidden, hidden], false, x));
        let decay = self.decays(f, w);
        let bonus = f.weight(BONUS, Kind::Bare, &self.heads.shape(hidden));
        let bonus = f.op(Op::Flatten, &[bonus]);
        (self.heads.read_out(f, [r, k, v, decay, bonus], g), None)
    }
}
