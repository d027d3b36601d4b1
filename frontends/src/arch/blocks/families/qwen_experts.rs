//! Experts as Qwen's models have them, and some after these: the layers that have none are said by a step
//! and a list.

use crate::arch::blocks::decoder::Decoder;
use crate::arch::blocks::entry::Shape;
use crate::arch::blocks::experts::Experts;
use crate::config::ConfigError;
use crate::config::dictionary::fields;
use crate::config::fields::{Field, Fields};
use llmcc_ir::graph::Router;

/// The fields that [`experts`] and [`in_layers`] read.
pub(crate) const EXPERTS: &[Field] = fields! {
    num_experts | num_local_experts, num_experts_per_tok, moe_intermediate_size, decoder_sparse_step,
    mlp_only_layers,
};

/// Whether the weights of a token have the sum 1, where files decide.
pub(crate) const NORMALIZED: &[Field] = fields! { norm_topk_prob };

/// Experts by a softmax; for absent fields how many there are of a token, their width, and how many
/// there are.
pub(crate) fn experts(f: &Fields, d: &Decoder, [top, ffn, count]: [usize; 3], normalize: bool) -> Experts {
    let router = Router::softmax(f.size("num_experts_per_tok").or(top), normalize);
    let ffn = f.size("moe_intermediate_size").or(ffn);
    Experts { ffn, ..Experts::like(d, router, f.size("num_experts").or(count)) }
}

/// `d` with these experts in the layers that have some.
pub(crate) fn in_layers(f: &Fields, d: Decoder, experts: Experts) -> Result<Box<dyn Shape>, ConfigError> {
    let sparse = Experts::sparse_layers(f, d.layers.len());
    in_those(f, d, experts, &sparse)
}

/// The same where the layers are known.
pub(crate) fn in_those(
    f: &Fields,
    d: Decoder,
    experts: Experts,
    sparse: &[bool],
) -> Result<Box<dyn Shape>, ConfigError> {
    let experts = experts.checked(f, ["num_experts", "num_experts_per_tok"])?;
    Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
}
