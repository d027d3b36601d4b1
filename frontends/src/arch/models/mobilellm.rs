//! MobileLLM (arXiv 2402.14905): Llama whose head is the embedding table, and whose layers compute
//! twice, one after the other, if they are shared.

use crate::arch::blocks::decoder::{Decoder, Defaults, embedding, head, layer};
use crate::arch::blocks::entry::{Arch, Shape};
use crate::arch::blocks::lifter::Lifter;
use crate::arch::blocks::names::{HUGGING_FACE, Names};
use crate::arch::blocks::outputs::Yields;
use crate::config::common::{ATTENTION, ATTENTION_BIAS, Facts, MLP, MLP_BIAS, MODEL, ROTARY};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use crate::error::FrontendError;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mobilellm",
    class: "MobileLLMForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, OWN],
    fixed: &[],
    goldens: &["mobilellm", "mobilellm_shared"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let (attention, mlp) = (f.flag("attention_bias"), f.flag("mlp_bias"));
        let d = Decoder::read(f, &Defaults::LLAMA)?;
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias) = (attention, attention));
        let mut decoder = d.with_mlp(|m| m.bias = mlp);
        decoder.facts.tied |= f.flag("share_embedding");
        Ok(Box::new(MobileLlm { decoder, times: if f.flag("layer_sharing") { 2 } else { 1 } }))
    },
};

const OWN: &[Field] = &[
    Field::new("share_embedding", Accepts::Flag).unless(Neutral::Off),
    Field::new("layer_sharing", Accepts::Flag).unless(Neutral::Off),
];

#[derive(Debug)]
struct MobileLlm {
    decoder: Decoder,
    /// How often each layer computes, each time with keys and values of its own.
    times: usize,
}

impl Shape for MobileLlm {
    fn facts(&self) -> &Facts {
        &self.decoder.facts
    }

    fn yields(&self) -> Yields {
        self.decoder.yields()
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (mut x, ropes) = embedding(l, &self.decoder)?;
        for (i, spec) in self.decoder.layers.iter().enumerate() {
            for _ in 0..self.times {
                x = layer(l, &self.decoder, i, spec, (&x, None), &ropes)?;
            }
        }
        head(l, &self.decoder, &x)
    }
}
