//! BitNet b1.58 (arXiv 2402.17764) as bitllama2.c trains it: Llama whose products divide their input by its
//! norm, where Llama has norms before blocks. That has no gain, nor anything added to the mean square.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "bitllama2c",
    class: "BitLlama2cForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP],
    fixed: &[],
    goldens: &["bitllama2c_paper"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let mut d = Decoder::read(f, &defaults! { eps: 1e-5, ..LLAMA })?;
        let of_input = Norm { gain: false, ..Norm::rms(0.0) };
        d.block_norms.own = Some([of_input; 2]);
        let d = d.with_heads(|_, _, h| h.out_norm = Some(OutNorm::Row(of_input)));
        Ok(Box::new(d.with_mlp(|m| m.inner_norm = Some(of_input))))
    },
};
