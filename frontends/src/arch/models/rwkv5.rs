//! RWKV-5.2, "Eagle" (arXiv 2404.05892): a matrix per head, whose rows decay each at its own rate.

use crate::arch::blocks::families::rwkv_blocks::{
    BONUS, ChannelMix, DECAY, FIELDS, G, HEADS, K, MIX_G, MIX_K, MIX_NAMES, MIX_R, MIX_V, Matrices, NAMES, Pair, R,
    Rwkv, TimeMix, Toward, V, ffn,
};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "rwkv5",
    class: "Rwkv5ForCausalLM",
    fields: &[IDENTITY, FIELDS, MODEL, HEADS],
    // It is the size of a head that some files give as their number; 5.0 and 5.1 have one decay for a head.
    fixed: fixed! {
        Any => rescale_every num_attention_heads;
        Same("hidden_size") => attention_hidden_size;
        Words(&["5_2", "5.2"]) => model_version;
    },
    goldens: &["rwkv5_paper"],
    names: Names(&[OWN, MIX_NAMES, NAMES]),
    read: |f| {
        let channels = ChannelMix { ffn: 0, gated: true, toward: Toward::Itself };
        Ok(Box::new(Rwkv::read(f, (channels, ffn), |facts| Ok(Eagle { heads: Matrices::read(f, facts)? }))?))
    },
};

const OWN: Table = names! {
    "blocks.{}." { MIX_G => "att.time_mix_g", BONUS => "att.time_faaaa" }
    "rwkv.blocks.{}." { MIX_G => "attention.time_mix_gate", BONUS => "attention.time_faaaa" }
};

#[derive(Debug)]
struct Eagle {
    heads: Matrices,
}

impl TimeMix for Eagle {
    fn mix(&self, f: &mut Draft, h: Value, _: Option<Value>) -> (Value, Option<Value>) {
        let hidden = f.facts().hidden;
        let pair = Pair::new(f, "time.before", Toward::Itself, h);
        let [r, k, v, g] = [(MIX_R, R), (MIX_K, K), (MIX_V, V), (MIX_G, G)].map(|(mix, part)| {
            let x = pair.mixed(f, mix);
            linear(f, part, [hidden, hidden], false, x)
        });
        let [decay, bonus] = [DECAY, BONUS].map(|part| {
            let w = f.weight(part, Kind::Bare, &self.heads.shape(hidden));
            f.op(Op::Flatten, &[w])
        });
        // e^(−e^w), the same for all tokens.
        let decay = f.unary(UnaryOp::Exp, decay);
        let decay = f.unary(UnaryOp::Neg, decay);
        let decay = f.unary(UnaryOp::Exp, decay);
        (self.heads.read_out(f, [r, k, v, decay, bonus], g), None)
    }
}
