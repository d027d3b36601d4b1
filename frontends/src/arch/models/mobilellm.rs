//! MobileLLM (arXiv 2402.14905): Llama whose head is the embedding table, and whose layers compute
//! twice, one after the other, if they are shared.

use crate::arch::blocks::decoder::{embedding, head, layer};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mobilellm",
    class: "MobileLLMForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, OWN],
    fixed: &[],
    goldens: &["mobilellm", "mobilellm_shared"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let d = Decoder::read(f, &Defaults::LLAMA)?;
        let mut decoder = d.with_biases(f);
        decoder.facts.tied |= f.flag("share_embedding");
        Ok(Box::new(MobileLlm { decoder, times: if f.flag("layer_sharing") { 2 } else { 1 } }))
    },
};

const OWN: &[Field] = fields! { share_embedding, layer_sharing };

#[derive(Debug)]
struct MobileLlm {
    decoder: Decoder,
    /// How often each layer computes, each time with keys and values of its own.
    times: usize,
}

impl Shape for MobileLlm {
    answered_by! { decoder: facts yields }

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
