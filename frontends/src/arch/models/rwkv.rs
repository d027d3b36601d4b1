//! RWKV-4 (arXiv 2305.13048): means of the values so far, channel by channel, with weights that decay.

use crate::arch::blocks::families::rwkv_blocks::{
    BONUS, ChannelMix, DECAY, FIELDS, FIXED, K, MIX_K, MIX_NAMES, MIX_R, MIX_V, NAMES, OUT, Pair, R, Rwkv, TimeMix,
    Toward, V,
};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "rwkv",
    class: "RwkvForCausalLM",
    fields: &[IDENTITY, FIELDS, MODEL],
    fixed: FIXED,
    goldens: &["rwkv"],
    names: Names(&[OWN, MIX_NAMES, NAMES]),
    read: |f| {
        let channels = ChannelMix { ffn: 0, gated: true, toward: Toward::Itself };
        Ok(Box::new(Rwkv::read(f, (channels, |hidden| hidden.saturating_mul(4)), |_| Ok(Means))?))
    },
};

const OWN: Table = names! {
    "blocks.{}." { BONUS => "att.time_first" }
    "rwkv.blocks.{}." { BONUS => "attention.time_first" }
};

#[derive(Debug)]
struct Means;

impl TimeMix for Means {
    fn mix(&self, f: &mut Draft, h: Value, _: Option<Value>) -> (Value, Option<Value>) {
        let hidden = f.facts().hidden;
        let pair = Pair::new(f, "time.before", Toward::Itself, h);
        let [k, v, r] = [(MIX_K, K), (MIX_V, V), (MIX_R, R)].map(|(mix, part)| {
            let x = pair.mixed(f, mix);
            linear(f, part, [hidden, hidden], false, x)
        });
        let decay = f.weight(DECAY, Kind::Bare, &[hidden]);
        let decay = f.unary(UnaryOp::Exp, decay);
        let decay = f.unary(UnaryOp::Neg, decay);
        let bonus = f.weight(BONUS, Kind::Bare, &[hidden]);
        let state = f.fixed("wkv", [1, 3, hidden]);
        let y = f.op(Op::Wkv, &[k, v, decay, bonus, state]);
        let r = f.unary(UnaryOp::Sigmoid, r);
        let y = f.mul(r, y);
        (linear(f, OUT, [hidden, hidden], false, y), None)
    }
}
