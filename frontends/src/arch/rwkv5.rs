//! RWKV-5.2, "Eagle" (arXiv 2404.05892): a matrix per head, whose rows decay each at its own rate.

use super::blocks::linear;
use super::entry::Arch;
use super::lifter::Draft;
use super::names::{Kind, Names, Table};
use super::rwkv_blocks::{
    BONUS, CHANNEL_MIX_K, CHANNEL_MIX_R, ChannelMix, DECAY, FIELDS, FIXED, G, HEADS, K, MIX_G, MIX_K, MIX_R, MIX_V,
    NAMES, OUT, Pair, R, Rwkv, TimeMix, Toward, V, ffn, heads, read_norm,
};
use crate::config::common::MODEL;
use crate::config::fields::IDENTITY;
use crate::config::known::Neutral;
use llmcc_ir::graph::{Op, UnaryOp, Update, Value};

pub(super) const ARCH: Arch = Arch {
    model_type: "rwkv5",
    class: "RwkvForCausalLM",
    fields: &[IDENTITY, FIELDS, MODEL, HEADS],
    // It is the size of a head that some files give as their number; 5.0 and 5.1 have one decay for
    // a head.
    fixed: &[
        FIXED[0],
        FIXED[1],
        ("num_attention_heads", Neutral::Any),
        ("model_version", Neutral::Words(&["5_2", "5.2"])),
    ],
    goldens: &["rwkv5_paper"],
    names: Names(&[OWN, NAMES]),
    read: |f| {
        let channels = ChannelMix { ffn: 0, gated: true, toward: Toward::Itself };
        let model = Rwkv::read(f, (channels, ffn), |facts| {
            let (head, eps) = heads(f, facts)?;
            Ok(Eagle { head, eps })
        });
        Ok(Box::new(model?))
    },
};

const OWN: Table = &[
    (MIX_K, "blocks.{}.att.time_mix_k"),
    (MIX_K, "rwkv.blocks.{}.attention.time_mix_key"),
    (MIX_V, "blocks.{}.att.time_mix_v"),
    (MIX_V, "rwkv.blocks.{}.attention.time_mix_value"),
    (MIX_R, "blocks.{}.att.time_mix_r"),
    (MIX_R, "rwkv.blocks.{}.attention.time_mix_receptance"),
    (MIX_G, "blocks.{}.att.time_mix_g"),
    (MIX_G, "rwkv.blocks.{}.attention.time_mix_gate"),
    (DECAY, "blocks.{}.att.time_decay"),
    (DECAY, "rwkv.blocks.{}.attention.time_decay"),
    (BONUS, "blocks.{}.att.time_faaaa"),
    (BONUS, "rwkv.blocks.{}.attention.time_faaaa"),
    (CHANNEL_MIX_K, "blocks.{}.ffn.time_mix_k"),
    (CHANNEL_MIX_K, "rwkv.blocks.{}.feed_forward.time_mix_key"),
    (CHANNEL_MIX_R, "blocks.{}.ffn.time_mix_r"),
    (CHANNEL_MIX_R, "rwkv.blocks.{}.feed_forward.time_mix_receptance"),
];

#[derive(Debug)]
struct Eagle {
    head: usize,
    eps: f32,
}

impl TimeMix for Eagle {
    fn mix(&self, f: &mut Draft, h: Value, _: Option<Value>) -> (Value, Option<Value>) {
        let hidden = f.facts().hidden;
        let heads = hidden / self.head;
        let pair = Pair::new(f, "time.before", Toward::Itself, h);
        let [r, k, v, g] = [(MIX_R, R), (MIX_K, K), (MIX_V, V), (MIX_G, G)].map(|(mix, part)| {
            let x = pair.mixed(f, mix);
            linear(f, part, [hidden, hidden], false, x)
        });
        let [decay, bonus] = [DECAY, BONUS].map(|part| {
            let w = f.weight(part, Kind::Bare, &[heads, self.head]);
            f.op(Op::Flatten, &[w])
        });
        // e^(−e^w), the same for all tokens.
        let decay = f.unary(UnaryOp::Exp, decay);
        let decay = f.unary(UnaryOp::Neg, decay);
        let decay = f.unary(UnaryOp::Exp, decay);
        let state = f.fixed("heads", [heads, self.head, self.head]);
        let y = f.op(Op::Recurrence { update: Update::Bonus }, &[r, k, v, decay, bonus, state]);
        let y = read_norm(f, self.eps, self.head, y);
        let g = f.unary(UnaryOp::Silu, g);
        let y = f.mul(y, g);
        (linear(f, OUT, [hidden, hidden], false, y), None)
    }
}
