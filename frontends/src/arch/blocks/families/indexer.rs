//! Attention to tokens that an indexer selects (DeepSeek-V3.2, arXiv 2512.02556): as long as a context
//! has no more tokens than are selected, that is all of them, and the indexer makes no difference.

use crate::arch::blocks::attention::{Form, Latent};
use crate::arch::blocks::decoder::Decoder;
use crate::arch::blocks::indexer::Indexer;
use crate::config::ConfigError;
use crate::config::dictionary::fields;
use crate::config::fields::{Accepts, Field, Fields};
use crate::config::known::{Neutral, Unread, fixed};
use serde_json::Value;

/// The indexer of every layer.
pub(crate) const INDEXER: &[Field] = fields! { index_topk, index_n_heads, index_head_dim };

/// The layers that have one, others reading the tokens of the last such layer before them.
pub(crate) const INDEXERS: &[Field] = fields! {
    indexer_types: Accepts::ListOf(&["full", "shared"]), index_topk_freq, index_topk_pattern, index_skip_topk_offset,
};

/// Fields that all selecting classes fix, and these.
macro_rules! fixed_and {
    ($($own:tt)*) => {
        fixed! {
            One => moe_layer_freq;
            Off => mlp_bias;
            On => rope_interleave;
            Words(&["sigmoid"]) => scoring_func;
            Words(&["noaux_tc"]) => topk_method;
            AllOf(&["indexed_attention", "deepseek_sparse_attention"]) => layer_types;
            Same("n_routed_experts") => num_experts;
            $($own)*
        }
    };
}

/// Fields that the selecting classes fix anyway.
pub(crate) const FIXED: &[(&str, Neutral)] = fixed_and! {};

/// [`FIXED`] of a class whose indexer rotates neighbours.
pub(crate) const FIXED_NEIGHBOURS: &[(&str, Neutral)] = fixed_and! { On => indexer_rope_interleave; };

/// Refuses heads of an indexer that are narrower than what is rotated of them.
pub(crate) fn wide_enough(f: &Fields, dim: usize, rotated: usize) -> Result<(), ConfigError> {
    if dim < rotated {
        return Err(f.invalid("index_head_dim", &dim, format!("at least `qk_rope_head_dim` ({rotated})")));
    }
    Ok(())
}

/// The indexer that [`INDEXER`] says; absent fields are as in `default`. `rotated`: columns of its heads that are
/// rotated.
///
/// # Errors
/// Heads of an indexer that are narrower than what is rotated.
pub(crate) fn read(f: &Fields, default: Indexer, rotated: usize) -> Result<Indexer, ConfigError> {
    let size = |name, default| f.size(name).or(default);
    let (heads, dim) = (size("index_n_heads", default.heads), size("index_head_dim", default.dim));
    wide_enough(f, dim, rotated)?;
    Ok(Indexer { heads, dim, top: size("index_topk", default.top), ..default })
}

/// The decoder with the indexer that [`INDEXER`] says in each layer; absent fields are as in `default`.
///
/// # Errors
/// Heads of an indexer that are narrower than what is rotated.
pub(crate) fn indexed(f: &Fields, mut d: Decoder, default: Indexer) -> Result<Decoder, ConfigError> {
    for layer in &mut d.layers {
        let Form::Latent(latent) = &mut layer.attention.form else { continue };
        latent.indexer = Some(read(f, default, latent.rope)?);
    }
    // Where contexts are no longer than a selection.
    d.ignored.indexer = true;
    Ok(d)
}

/// The same where only some layers have indexers of their own: those that [`INDEXERS`] says, or, where nothing does,
/// one in `every` layers.
///
/// # Errors
/// Kinds of layers that do not fit, or a first layer without an indexer.
pub(crate) fn shared(f: &Fields, mut d: Decoder, every: usize) -> Result<Decoder, ConfigError> {
    let shared = shared_layers(f, d.layers.len(), every)?;
    for (layer, shared) in d.layers.iter_mut().zip(shared) {
        if let Form::Latent(Latent { indexer: Some(indexer), .. }) = &mut layer.attention.form {
            indexer.shared = shared;
        }
    }
    Ok(d)
}

/// The layers without indexers, in the order in which the class looks for them.
fn shared_layers(f: &Fields, layers: usize, every: usize) -> Result<Vec<bool>, ConfigError> {
    let (types, pattern) = ("indexer_types", "index_topk_pattern");
    let (field, given) = match (f.get(types).value(), f.get(pattern).value()) {
        (Some(list), _) => (types, Some(list)),
        (None, list) => (pattern, list),
    };
    let Some(given) = given else {
        let frequency = f.size("index_topk_freq").or(every);
        let offset = f.count("index_skip_topk_offset").unwrap_or(2);
        return Ok((0..layers).map(|i| (i + 1).saturating_sub(offset) % frequency != 0).collect());
    };
    let word = |v: &Value| match v.as_str() {
        Some("full") => Some(false),
        Some("shared") => Some(true),
        _ => None,
    };
    let letter = |c: char| match c {
        'F' => Some(false),
        'S' => Some(true),
        _ => None,
    };
    let shared: Option<Vec<bool>> = match given {
        Value::Array(list) => list.iter().map(word).collect(),
        Value::String(text) if field == pattern => text.chars().map(letter).collect(),
        _ => None,
    };
    let whole = |s: &Vec<bool>| s.len() == layers && s.first() != Some(&true);
    shared.filter(whole).ok_or_else(|| {
        let expected = format!("`full` or `shared` for each of {layers} layers, the first being `full`");
        f.invalid_value(field, given, expected)
    })
}

/// As many tokens as are selected at least, and the field that says it.
pub(crate) struct Selection {
    pub tokens: usize,
    pub field: &'static str,
}

/// The decoder for contexts in which nothing is dropped.
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

    /// Layers with indexers of their own, by all the ways in which files say them.
    #[test]
    fn layers_read_the_tokens_of_the_last_indexer_before_them() {
        let read = |changes| Model::parse(&with(config("glm_moe_dsa"), changes)).map_err(|e| e.to_string());
        let shared = |changes| {
            let shape = format!("{:?}", read(changes).unwrap().shape);
            let words = shape.split("interleaved: true, shared: ").skip(1);
            words.take(2).map(|rest| rest.starts_with("true")).collect::<Vec<bool>>()
        };
        // The fixture has a frequency of 2.
        assert_eq!(shared(json!({})), [false, true]);
        assert_eq!(shared(json!({ "index_topk_freq": 1 })), [false, false]);
        assert_eq!(shared(json!({ "indexer_types": ["full", "full"] })), [false, false]);
        assert_eq!(shared(json!({ "index_topk_pattern": "FF" })), [false, false]);
        assert_eq!(shared(json!({ "index_skip_topk_offset": 2 })), [false, false]);
        for (changes, words) in [
            (json!({ "indexer_types": ["shared", "full"] }), "the first being `full`"),
            (json!({ "indexer_types": ["full"] }), "each of 2 layers"),
            (json!({ "index_topk_pattern": "FX" }), "`index_topk_pattern`"),
            (json!({ "index_head_dim": 1 }), "at least `qk_rope_head_dim`"),
        ] {
            let error = read(changes).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn contexts_go_on_where_tokens_are_selected() {
        for arch in ["deepseek_v32", "glm_moe_dsa", "mistral_large4_text", "hy_v4", "axk2", "deepseek_v4"] {
            let sizes = json!({ "index_topk": 5, "max_position_embeddings": 64 });
            let model = Model::parse(&with(config(arch), sizes)).unwrap();
            assert_eq!((model.facts().max_position, model.unread.len()), (64, 0), "{arch}");
        }
    }

    #[test]
    fn contexts_end_where_tokens_would_be_left_out() {
        let read = |most: usize, max: usize| {
            let sizes = json!({ "keep_window_size": most, "max_position_embeddings": max });
            Model::parse(&with(config("doge"), sizes)).unwrap()
        };
        let all = read(64, 64);
        assert_eq!((all.facts().max_position, all.unread.len()), (64, 0));
        let first = read(48, 64);
        assert_eq!(first.facts().max_position, 48);
        assert!(first.unread[0].starts_with("`keep_window_size` selects 48 tokens: contexts are limited to that"));
        // An indexer that is computed ends nothing.
        let sizes = json!({ "index_topk": 48, "max_position_embeddings": 64 });
        assert_eq!(Model::parse(&with(config("dots3_note_text"), sizes)).unwrap().facts().max_position, 64);
    }
}
