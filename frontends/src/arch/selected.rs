//! Attention to tokens that an indexer selects (DeepSeek-V3.2, arXiv 2512.02556): as long as a context
//! has no more tokens than are selected, that is all of them, and the indexer makes no difference.

use super::decoder::Decoder;
use crate::config::fields::{Accepts, Field, Fields};
use crate::config::known::{Neutral, Unread};

/// How many tokens are selected.
pub(super) const SELECTION: &[Field] = &[Field::new("index_topk", Accepts::Size(1 << 24))];

/// What the classes that select do anyway, and what is said of the indexer.
pub(super) const FIXED: &[(&str, Neutral)] = &[
    ("moe_layer_freq", Neutral::One),
    ("mlp_bias", Neutral::Off),
    ("scoring_func", Neutral::Words(&["sigmoid"])),
    ("topk_method", Neutral::Words(&["noaux_tc"])),
    ("layer_types", Neutral::All("indexed_attention")),
    ("index_n_heads", Neutral::Any),
    ("index_head_dim", Neutral::Any),
    ("index_topk_freq", Neutral::Any),
    ("index_topk_pattern", Neutral::Any),
    ("index_skip_topk_offset", Neutral::Any),
    ("indexer_types", Neutral::Any),
];

/// The decoder for contexts of which nothing is left out.
pub(super) fn dense(f: &Fields, mut d: Decoder) -> Decoder {
    let selected = f.size("index_topk").or(2048);
    if selected < d.facts.max_position {
        let others = vec![format!(
            "`index_topk` is {selected}: contexts are no longer than that, since beyond it attention leaves tokens out \
             by what its indexer finds"
        )];
        f.leave(Unread { others, ..Unread::default() });
    }
    d.facts.max_position = d.facts.max_position.min(selected);
    d.indexed = true;
    d
}

#[cfg(test)]
mod tests {
    use crate::arch::Model;
    use crate::testing::{config, with};
    use serde_json::json;

    #[test]
    fn contexts_end_where_tokens_would_be_left_out() {
        for arch in ["deepseek_v32", "glm_moe_dsa"] {
            let read = |topk: usize, max: usize| {
                let sizes = json!({ "index_topk": topk, "max_position_embeddings": max });
                Model::parse(&with(config(arch), sizes)).unwrap()
            };
            let all = read(64, 64);
            assert_eq!((all.facts().max_position, all.unread.len()), (64, 0), "{arch}");
            let first = read(48, 64);
            assert_eq!(first.facts().max_position, 48, "{arch}");
            assert!(first.unread[0].starts_with("`index_topk` is 48: contexts are no longer than that"), "{arch}");
        }
    }
}
