//! Fields that many architectures have in common, and their readers.
//!
//! A reader asks for nothing but its block's needs: `num_attention_heads` is demanded of models
//! with attention, `intermediate_size` of models with an MLP of one width. An architecture whose
//! files use other names reads them itself and needs none of this.

use super::error::ConfigError;
use super::fields::{Accepts, Field, Fields, Given};
use crate::config::dictionary::fields;
use llmcc_ir::graph::UnaryOp;
use serde_json::Value;

const MAX_WIDTH: usize = 1 << 20;
const MAX_CONTEXT: usize = 1 << 28;

/// A width of matrices.
pub const WIDTH: Accepts = Accepts::Size(MAX_WIDTH);
/// A number of tokens.
pub const TOKENS: Accepts = Accepts::Size(MAX_CONTEXT);

/// Fields of all models: see [`Facts`].
pub const MODEL: &[Field] = fields! {
    _name_or_path, quantization_config, vocab_size, hidden_size, num_hidden_layers, max_position_embeddings,
    tie_word_embeddings | tie_embedding, bos_token_id, eos_token_id,
};

/// The sizes of any model with attention, as GPT-2 called them.
pub const GPT_MODEL: &[Field] = fields! {
    _name_or_path, quantization_config, vocab_size, hidden_size | n_embd, num_hidden_layers | n_layer,
    max_position_embeddings | n_positions, tie_word_embeddings, bos_token_id, eos_token_id,
    num_attention_heads | n_head,
};

/// An MLP, as GPT-2 called its fields.
pub const GPT_MLP: &[Field] = fields! { intermediate_size | n_inner, hidden_act | activation_function };

/// Attention of several heads, of as many for keys and values as for queries.
pub const HEADS: &[Field] = fields! { num_attention_heads };

/// Attention of several heads, among which the width of the model is divided.
pub const DIVIDED: &[Field] = fields! { num_attention_heads, num_key_value_heads };

/// An MLP, and LayerNorm before the blocks.
pub const LAYER_NORM_MLP: &[Field] = fields! { intermediate_size, hidden_act, layer_norm_eps };

/// Attention of several heads.
pub const ATTENTION: &[Field] = fields! { num_attention_heads, num_key_value_heads, head_dim };

/// Rotary positions.
pub const ROTARY: &[Field] = fields! { rope_theta, rope_scaling, rope_parameters, original_max_position_embeddings };

/// An MLP, and RMSNorm before the blocks.
pub const MLP: &[Field] = fields! { intermediate_size, hidden_act, rms_norm_eps };

/// Rotary positions of a part of each head.
pub const PARTIAL_ROTARY: &[Field] = fields! {
    rope_theta, rope_scaling, rope_parameters, original_max_position_embeddings, partial_rotary_factor,
};

/// Rotary positions of two kinds of layers: members that an object for a kind omits are not taken
/// from beside it.
pub const ROTARY_OF_KINDS: &[Field] = fields! { rope_theta, rope_scaling, rope_parameters };

/// The same, of a part of each head.
pub const PARTIAL_ROTARY_OF_KINDS: &[Field] = fields! {
    rope_theta, rope_scaling, rope_parameters, partial_rotary_factor,
};

/// Attention that sees later tokens too where this is false: in embedders whose files otherwise
/// describe a model for text.
pub const CAUSAL: &[Field] = fields! { is_causal };

/// Attention with biases, if they are asked for.
pub const ATTENTION_BIAS: &[Field] = fields! { attention_bias };

/// An MLP with biases, if they are asked for.
pub const MLP_BIAS: &[Field] = fields! { mlp_bias };

/// Kinds of attention by their names in Transformers.
pub(super) const LAYER_TYPES: &[&str] = &["full_attention", "sliding_attention"];

/// One window for all layers.
pub const WINDOW: &[Field] = fields! { sliding_window, layer_types };

/// Windows that are switched on, in some layers.
pub const OPTIONAL_WINDOWS: &[Field] = fields! { use_sliding_window, sliding_window, max_window_layers, layer_types };

/// Activations of the MLP by their names in Transformers.
pub const ACTIVATIONS: &[&str] = &[
    "silu",
    "swish",
    "gelu",
    "gelu_python",
    "gelu_new",
    "gelu_pytorch_tanh",
    "gelu_python_tanh",
    "gelu_fast",
    "gelu_accurate",
    "relu",
    "relu2",
];

/// Activations of MLPs in models that are published with a squared ReLU.
pub(crate) const SIMPLE_ACTS: Accepts = Accepts::OneOf(&["relu2", "relu", "silu", "gelu", "gelu_pytorch_tanh"]);

/// Facts common to all models, whatever their shape.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Name of the model, from `_name_or_path`, if any.
    pub name: Option<String>,
    /// Rows of the embedding table.
    pub vocab: usize,
    /// Model width.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Longest sequence.
    pub max_position: usize,
    /// The head reads the embedding table.
    pub tied: bool,
    /// `bos_token_id`.
    pub bos: Option<u32>,
    /// `eos_token_id`: one or several.
    pub eos: Vec<u32>,
}

impl Facts {
    /// Reads the fields of [`MODEL`]; `vocab`, `max_position` and `tied` are the configuration
    /// class's defaults.
    ///
    /// # Errors
    /// When a size is missing, or a token id is none.
    pub(crate) fn read(
        f: &Fields,
        vocab: Option<usize>,
        max_position: usize,
        tied: bool,
    ) -> Result<Facts, ConfigError> {
        let vocab = f.size_or("vocab_size", vocab)?;
        Ok(Facts {
            name: f.text("_name_or_path").map(base_name).filter(|n| !n.is_empty()),
            vocab,
            hidden: f.required_size("hidden_size")?,
            layers: f.size_or("num_hidden_layers", listed_layers(f))?,
            max_position: f.size("max_position_embeddings").or(max_position),
            tied: f.flag_or("tie_word_embeddings", tied),
            bos: f.token_ids("bos_token_id", vocab)?.first().copied(),
            eos: f.token_ids("eos_token_id", vocab)?,
        })
    }
}

/// The number of layers by the lists with an entry per layer, for files that do not count them.
fn listed_layers(f: &Fields) -> Option<usize> {
    let types = f.get("layer_types").value().and_then(|v| v.as_array()).map(Vec::len);
    types.or_else(|| f.text("hybrid_override_pattern").map(|letters| letters.chars().count())).filter(|n| *n > 0)
}

/// Last component of `_name_or_path`, which may be a repository or a path on someone's disk.
fn base_name(path: &str) -> String {
    path.trim_end_matches(['/', '\\']).rsplit(['/', '\\']).next().unwrap_or("").to_string()
}

/// Heads of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Number of heads of queries.
    pub queries: usize,
    /// Number of heads of keys and values; divides `queries`.
    pub kv: usize,
    /// Elements of a head.
    pub dim: usize,
}

/// A configuration class's defaults for numbers of [`Heads`].
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultHeads {
    /// `None` = it must be given.
    pub queries: Option<usize>,
    /// `None` = as many as query heads.
    pub kv: Option<usize>,
    /// `None` = the width divided among the query heads.
    pub dim: Option<usize>,
}

impl Heads {
    /// Reads the fields of [`ATTENTION`]. For absent ones, `default` counts.
    ///
    /// # Errors
    /// When the numbers do not divide each other.
    pub(crate) fn read(f: &Fields, hidden: usize, default: DefaultHeads) -> Result<Heads, ConfigError> {
        let DefaultHeads { queries, kv, dim } = default;
        let queries = f.size_or("num_attention_heads", queries)?;
        let kv = match f.size("num_key_value_heads") {
            Given::Value(n) => n,
            Given::Null => queries,
            Given::Absent => kv.unwrap_or(queries),
        };
        if !queries.is_multiple_of(kv) {
            let expected = format!("a divisor of `num_attention_heads` ({queries})");
            return Err(f.invalid("num_key_value_heads", &kv, expected));
        }
        let dim = match (f.size("head_dim").value(), dim) {
            (Some(n), _) | (None, Some(n)) => n,
            (None, None) if hidden.is_multiple_of(queries) => hidden / queries,
            (None, None) => {
                return Err(f.invalid(
                    "hidden_size",
                    &hidden,
                    format!("a multiple of `num_attention_heads` ({queries})"),
                ));
            }
        };
        Ok(Heads { queries, kv, dim })
    }

    /// The scale of scores that attention has unless something else is said: `1/√dim`.
    pub(crate) fn scale(self) -> f32 {
        (1.0 / (self.dim as f64).sqrt()) as f32
    }
}

/// The activation that `field` names.
pub(crate) fn activation(f: &Fields, field: &str, default: UnaryOp) -> UnaryOp {
    match f.text(field) {
        Some("silu" | "swish") => UnaryOp::Silu,
        Some("gelu" | "gelu_python") => UnaryOp::Gelu,
        Some("gelu_new" | "gelu_pytorch_tanh" | "gelu_python_tanh" | "gelu_fast" | "gelu_accurate") => {
            UnaryOp::GeluTanh
        }
        Some("relu") => UnaryOp::Relu,
        Some("relu2") => UnaryOp::Relu2,
        _ => default,
    }
}

/// The norms' addend to the mean square.
///
/// # Errors
/// When it is none.
pub(crate) fn eps(f: &Fields, field: &str, default: f64) -> Result<f32, ConfigError> {
    let eps = f.number(field).unwrap_or(default);
    // As f32: the norm adds this value, and it may vanish or overflow in the conversion.
    if (0.0..1.0).contains(&(eps as f32)) {
        Ok(eps as f32)
    } else {
        Err(f.invalid(field, &eps, "at least 0 and less than 1".into()))
    }
}

/// A factor of `field`, if it is not 1.
///
/// # Errors
/// When it is no number that f32 has.
pub(crate) fn factor(f: &Fields, field: &str) -> Result<Option<f32>, ConfigError> {
    match f.number(field) {
        None => Ok(None),
        Some(x) if (x as f32).is_normal() => Ok(Some(x as f32).filter(|x| *x != 1.0)),
        Some(x) => Err(f.invalid(field, &x, "a number that is not 0".into())),
    }
}

/// The largest magnitude of an element, if there is such a limit.
///
/// # Errors
/// When it is no number above 0 that f32 has.
pub(crate) fn limit(f: &Fields, field: &str) -> Result<Option<f32>, ConfigError> {
    match f.number(field) {
        None => Ok(None),
        Some(x) if (x as f32).is_normal() && x > 0.0 => Ok(Some(x as f32)),
        Some(x) => Err(f.invalid(field, &x, "a number above 0".into())),
    }
}

/// The length of a convolution over tokens.
///
/// # Errors
/// When it sees one token only.
pub(crate) fn conv_width(f: &Fields, field: &str, default: usize) -> Result<usize, ConfigError> {
    match f.size(field).or(default) {
        width @ 2.. => Ok(width),
        width => Err(f.invalid(field, &width, "at least 2".into())),
    }
}

/// Refuses a size that differs from the one that follows from others, which `from` names. It may be
/// left out, or stand as `auto`.
///
/// # Errors
/// It says something else.
pub(crate) fn follows(f: &Fields, field: &str, size: usize, from: &str) -> Result<(), ConfigError> {
    match f.get(field).value() {
        Some(v) if v != "auto" && v.as_f64() != Some(size as f64) => {
            Err(f.invalid_value(field, v, format!("{size}, which is {from}, or absent")))
        }
        _ => Ok(()),
    }
}

/// Refuses a list of kinds of layers that contradicts other fields: `is` says whether a name is the
/// kind of a layer.
///
/// # Errors
/// It says something else.
pub(crate) fn follow(
    f: &Fields,
    field: &str,
    layers: usize,
    is: impl Fn(&str, usize) -> bool,
) -> Result<(), ConfigError> {
    let Some(v) = f.get(field).value() else { return Ok(()) };
    let agrees = |list: &Vec<Value>| {
        list.len() == layers && list.iter().enumerate().all(|(i, v)| v.as_str().is_some_and(|kind| is(kind, i)))
    };
    match v.as_array().is_some_and(agrees) {
        true => Ok(()),
        false => Err(f.invalid_value(field, v, "what follows from other fields, or absent".into())),
    }
}

/// How an architecture reads `sliding_window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowRule {
    /// Full attention in all layers.
    None,
    /// `sliding_window` (default given) in all layers.
    AllLayers(usize),
    /// `sliding_window` in all layers if it is given.
    Given,
    /// `sliding_window` (default given) in the layers that `layer_types` names, or all but each
    /// `sliding_window_pattern`th (default given).
    Most(usize, usize),
    /// `sliding_window` if `use_sliding_window`, in the layers that `layer_types` names, or those
    /// from `max_window_layers` on.
    Optional,
}

/// The attention window of each layer.
///
/// # Errors
/// When `layer_types` breaks the rule.
pub(crate) fn windows(f: &Fields, rule: WindowRule, layers: usize) -> Result<Vec<Option<usize>>, ConfigError> {
    let given = f.size("sliding_window");
    let window = match rule {
        WindowRule::None => return Ok(vec![None; layers]),
        WindowRule::AllLayers(default) | WindowRule::Most(default, _) => given.or_null(default),
        WindowRule::Given => given.value(),
        WindowRule::Optional if f.flag("use_sliding_window") => given.or_null(4096),
        WindowRule::Optional => None,
    };
    let sliding = sliding_layers(f, layers)?;
    if let WindowRule::Most(_, every) = rule {
        let every = f.size("sliding_window_pattern").or(every);
        return Ok((0..layers)
            .map(|i| window.filter(|_| sliding.as_ref().map_or(!(i + 1).is_multiple_of(every), |s| s[i])))
            .collect());
    }
    if rule != WindowRule::Optional {
        return match sliding {
            Some(s) if s.iter().any(|s| *s != window.is_some()) => Err(f.unsupported(
                "layer_types",
                "a mixture of window and full attention".into(),
                "this architecture expects the same attention in all layers".into(),
            )),
            _ => Ok(vec![window; layers]),
        };
    }
    if let (Some(s), None) = (&sliding, window)
        && s.contains(&true)
    {
        let expected = "`full_attention` everywhere, as `use_sliding_window` is off".into();
        return Err(f.invalid("layer_types", &"sliding_attention", expected));
    }
    let first = f.count("max_window_layers").unwrap_or(28);
    Ok((0..layers).map(|i| window.filter(|_| sliding.as_ref().map_or(i >= first, |s| s[i]))).collect())
}

/// `layer_types` as one name per layer.
pub(crate) fn layer_types<'a>(f: &Fields<'a>, layers: usize) -> Result<Option<Vec<&'a str>>, ConfigError> {
    let Some(list) = f.get("layer_types").value() else { return Ok(None) };
    let types = list.as_array().filter(|a| a.len() == layers);
    let types = types.ok_or_else(|| f.invalid_value("layer_types", list, format!("a list of {layers} names")))?;
    Ok(Some(types.iter().map(|v| v.as_str().unwrap_or_default()).collect()))
}

/// `layer_types` as one flag per layer.
pub(crate) fn sliding_layers(f: &Fields, layers: usize) -> Result<Option<Vec<bool>>, ConfigError> {
    let Some(list) = f.get("layer_types").value() else { return Ok(None) };
    let types = list.as_array().filter(|a| a.len() == layers);
    let types = types.ok_or_else(|| f.invalid_value("layer_types", list, format!("a list of {layers} names")))?;
    Ok(Some(types.iter().map(|v| v.as_str() == Some("sliding_attention")).collect()))
}

/// A list of numbers, one for each layer (further ones are for layers that do not exist), as
/// whether they are not 0.
///
/// # Errors
/// When it is too short.
pub(crate) fn layer_flags(f: &Fields, field: &str, layers: usize) -> Result<Option<Vec<bool>>, ConfigError> {
    match f.numbers(field) {
        Some(list) if list.len() < layers => Err(f.invalid(field, &list, format!("a list of {layers} numbers"))),
        list => Ok(list.map(|list| list.iter().map(|x| *x != 0.0).collect())),
    }
}

/// The layers that a list has the numbers of; `None` where there is no such list.
///
/// # Errors
/// It is something else.
pub(crate) fn layer_numbers(f: &Fields, field: &str) -> Result<Option<Vec<usize>>, ConfigError> {
    let Some(given) = f.get(field).value() else { return Ok(None) };
    let number = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok());
    let list = given.as_array().and_then(|list| list.iter().map(number).collect());
    list.map(Some).ok_or_else(|| f.invalid_value(field, given, "a list of numbers of layers".into()))
}

/// Which layers rotate positions, where some do not: the fields of [`rotating_layers`].
pub(crate) const UNROTATED: &[Field] = fields! { no_rope_layers, no_rope_layer_interval };

/// The layers that rotate: those that [`UNROTATED`] lists, despite its name, as 1, or all but every so
/// many.
///
/// # Errors
/// When the list is too short.
pub(crate) fn rotating_layers(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let listed = layer_flags(f, "no_rope_layers", layers)?;
    let every = f.size("no_rope_layer_interval").or(4);
    Ok((0..layers).map(|i| listed.as_ref().map_or(!(i + 1).is_multiple_of(every), |r| r[i])).collect())
}

/// GPTQ, AWQ, FP8 and the like change the meaning of the tensors.
///
/// # Errors
/// When the checkpoint says that it is one of those.
pub(crate) fn refuse_quantized(f: &Fields) -> Result<(), ConfigError> {
    let Some(q) = f.get("quantization_config").value() else { return Ok(()) };
    let method = q.get("quant_method").and_then(Value::as_str).unwrap_or("an unnamed method");
    Err(f.unsupported(
        "quantization_config",
        super::error::show(&method),
        "use the unquantized checkpoint and compile with --w8 or --w4".into(),
    ))
}
