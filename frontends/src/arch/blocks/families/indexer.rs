//! Attention to tokens that an indexer selects (DeepSeek-V3.2, arXiv 2512.02556): as long as a context
//! has no more tokens than are selected, that is all of them, and the indexer makes no difference.

use crate::arch::blocks::decoder::Decoder;
use crate::config::dictionary::fields;
use crate::config::fields::{Field, Fields};
use crate::config::known::{Neutral, Unread, fixed};

/// How many tokens are selected.
pub(crate) const SELECTION: &[Field] = fields! { index_topk };

/// Fields that the selecting classes fix anyway, and fields of the indexer.
pub(crate) const FIXED: &[(&str, Neutral)] = fixed! {
    One => moe_layer_freq;
    Off => mlp_bias;
    On => rope_interleave;
    Words(&["sigmoid"]) => scoring_func;
    Words(&["noaux_tc"]) => topk_method;
    AllOf(&["indexed_attention", "deepseek_sparse_attention"]) => layer_types;
    Same("n_routed_experts") => num_experts;
    Any => index_n_heads index_head_dim index_topk_freq index_topk_pattern index_skip_topk_offset indexer_types;
};

/// As many tokens as are selected at least, and the field that says it.
pub(crate) struct Selection {
    pub tokens: usize,
    pub field: &'static str,
}

/// The decoder for contexts in which nothing is dropped.
pub(crate) fn dense(f: &Fields, d: Decoder) -> Decoder {
    dense_of(f, d, Selection { tokens: f.size("index_topk").or(2048), field: "index_topk" })
}

/// The same by another field.
pub(crate) fn dense_of(f: &Fields, mut d: Decoder, Selection { tokens, field }: Selection) -> Decoder {
    if tokens < d.facts.max_position {
        let others = vec![format!(
            "`{field}` selects {tokens} tokens: contexts are limited to that, since beyond it attention drops tokens"
        )];
        f.leave(Unread { others, ..Unread::default() });
    }
    d.facts.max_position = d.facts.max_position.min(tokens);
    d.ignored.indexer = true;
    d
}

#[cfg(test)]
mod tests {
    use crate::arch::Model;
    use crate::testing::{config, with};
    use serde_json::json;

    #[test]
    fn contexts_end_where_tokens_would_be_left_out() {
        let indexed = ["deepseek_v32", "glm_moe_dsa", "mistral_large4_text", "hy_v4", "axk2"];
        for (arch, field) in indexed.map(|arch| (arch, "index_topk")).into_iter().chain([("doge", "keep_window_size")])
        {
            let read = |topk: usize, max: usize| {
                let sizes = json!({ field: topk, "max_position_embeddings": max });
                Model::parse(&with(config(arch), sizes)).unwrap()
            };
            let all = read(64, 64);
            assert_eq!((all.facts().max_position, all.unread.len()), (64, 0), "{arch}");
            let first = read(48, 64);
            assert_eq!(first.facts().max_position, 48, "{arch}");
            assert!(
                first.unread[0].starts_with(&format!("`{field}` selects 48 tokens: contexts are limited to that")),
                "{arch}"
            );
        }
    }
}
