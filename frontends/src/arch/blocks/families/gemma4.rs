//! Common parts of the text models of Gemma 4: Gemma 3 with wider heads in layers that see
//! everything, norms of values and a factor of each layer.

use crate::arch::blocks::attention::QkNorm;
use crate::arch::blocks::decoder::{Decoder, Defaults, Norms};
use crate::arch::blocks::defaults::defaults;
use crate::arch::blocks::entry::Shape;
use crate::arch::blocks::experts::{Experts, Place, Stored};
use crate::arch::blocks::names::{LAYER_SCALE, Table, names};
use crate::arch::blocks::per_layer_embeddings::LayerRows;
use crate::arch::blocks::shared_kv::share_last;
use crate::config::ConfigError;
use crate::config::common::{self, Heads};
use crate::config::dictionary::fields;
use crate::config::fields::{Field, Fields, Given};
use crate::config::rope_kinds::read_proportional;
use llmcc_ir::graph::Router;
use serde_json::Value;

/// The fields that [`read`] reads of all of them, beside those that many architectures have.
pub(crate) const FIELDS: &[Field] = fields! {
    intermediate_size, hidden_activation, rms_norm_eps, rope_parameters, final_logit_softcapping, global_head_dim,
    num_global_key_value_heads, per_layer_config, attention_k_eq_v, num_kv_shared_layers, use_double_wide_mlp,
};

pub(crate) const SCALES: Table = names! {
    "model.layers.{}." { LAYER_SCALE => "layer_scalar" }
};

/// The model; window and longest sequence are for files that do not say them.
pub(crate) fn read(f: &Fields, window: usize, max_position: usize) -> Result<Box<dyn Shape>, ConfigError> {
    let mut d = decoder(f, [8, 4], [window, max_position], Wide { rotated: 0.25, kv: None })?;
    share_last(f, &mut d.layers, f.count("num_kv_shared_layers").unwrap_or(0))?;
    if f.flag("use_double_wide_mlp") {
        let shared = d.layers.iter_mut().filter(|l| l.shares.is_some());
        shared.for_each(|l| l.mlp.ffn = l.mlp.ffn.saturating_mul(2));
    }
    d.rows = rows(f, &d)?;
    let experts = if f.flag("enable_moe_block") { Some(experts(f, &d)?) } else { None };
    Ok(Box::new(d.with_experts(|_| experts)))
}

/// Defaults of layers that see everything.
#[derive(Clone, Copy)]
pub(crate) struct Wide {
    /// So much of each head is rotated.
    pub rotated: f64,
    /// Heads of keys and values; `None`: as many as the others, unless values are keys.
    pub kv: Option<usize>,
}

/// The same without embeddings for each layer, experts, and caches that layers share. Heads of queries and of keys,
/// too, are for files that do not say them.
pub(crate) fn decoder(
    f: &Fields,
    [heads, kv_heads]: [usize; 2],
    [window, max_position]: [usize; 2],
    full: Wide,
) -> Result<Decoder, ConfigError> {
    let defaults = defaults! {
        vocab: 262_144, heads, kv_heads, head_dim: 256, max_position, window: Most(window, 6), tied: true,
        act(hidden_activation): GeluTanh, ..LLAMA
    };
    let (bias, wide) = (f.flag("attention_bias"), WideHeads::read(f, full)?);
    let mut d = Decoder::read_with(f, &defaults, |heads, max| {
        read_proportional(f, [wide.dim.unwrap_or(heads.dim), heads.dim], full.rotated, max)
    })?;
    (d.norms, d.scales.embedding_root) = (Norms::Both, true);
    d.scales.cap = common::limit(f, "final_logit_softcapping")?;
    let of_heads = d.layers.first().map(|l| l.attention.heads);
    let (one, full) = (f.flag("attention_k_eq_v"), wide.of(f, of_heads)?);
    let last = d.layers.len().saturating_sub(1);
    let mut d = d.with_heads(|i, a, h| {
        (h.qkv_bias, h.out_bias, h.qk_norm, h.values.norm) = (bias, bias, Some(QkNorm::Head), true);
        // The last layer sees everything, whatever is said.
        a.window = a.window.filter(|_| i != last);
        if a.window.is_none() {
            (a.heads, h.values.is_key) = (full.unwrap_or(a.heads), one);
        }
        (a.scale, a.rotary) = (1.0, Some(usize::from(a.window.is_some())));
    });
    let windows = d.layers.iter().map(|l| l.attention.window);
    let sees_all = windows.enumerate().filter(|(_, window)| window.is_none()).map(|(i, _)| i);
    wide.listed_for(f, &sees_all.collect::<Vec<_>>())?;
    d.layers.iter_mut().for_each(|l| l.scaled = true);
    Ok(d)
}

/// There are embeddings for each layer unless their width is said to be 0, or cannot be said.
fn rows(f: &Fields, d: &Decoder) -> Result<Option<LayerRows>, ConfigError> {
    const WIDTH: &str = "hidden_size_per_layer_input";
    const VOCAB: &str = "vocab_size_per_layer_input";
    if !f.reads(WIDTH) {
        return Ok(None);
    }
    let width = match f.get(WIDTH) {
        Given::Value(v) => match v.as_u64().and_then(|n| usize::try_from(n).ok()) {
            Some(0) => return Ok(None),
            Some(n) => n,
            None => return Err(f.invalid_value(WIDTH, v, "a whole number".into())),
        },
        Given::Null => {
            let help = "this architecture expects a width, 0 without embeddings for each layer".into();
            return Err(f.unsupported(WIDTH, "null".into(), help));
        }
        Given::Absent => 256,
    };
    let vocab = f.size(VOCAB).or(262_144);
    if vocab < d.facts.vocab {
        let help = format!("this architecture expects a row for each of `vocab_size` ({}) tokens", d.facts.vocab);
        return Err(f.unsupported(VOCAB, vocab.to_string(), help));
    }
    LayerRows { width, vocab: Some(vocab) }.checked(f, WIDTH, d.facts.layers).map(Some)
}

/// The heads of layers that see everything.
#[derive(Default)]
struct WideHeads {
    dim: Option<usize>,
    /// Heads of keys and values.
    kv: Option<usize>,
    /// The layers that it is said of, by files that say it of each.
    layers: Option<Vec<usize>>,
}

impl WideHeads {
    /// Reads `per_layer_config`, as newer files have it, or the fields of older ones.
    fn read(f: &Fields, full: Wide) -> Result<WideHeads, ConfigError> {
        let each = match f.get(EACH) {
            Given::Absent => {
                let kv = f.size("num_global_key_value_heads").value().or(full.kv);
                let kv = kv.filter(|_| full.kv.is_some() || f.flag("attention_k_eq_v"));
                return Ok(WideHeads { dim: Some(f.size("global_head_dim").or(512)), kv, layers: None });
            }
            Given::Null => return Ok(WideHeads::default()),
            Given::Value(v) => v,
        };
        let help = "this architecture expects `head_dim` and `num_key_value_heads` in it, \
                    the same for all layers that see everything";
        let wrong = || f.unsupported(EACH, each.to_string(), help.into());
        let own = each.as_object().ok_or_else(wrong)?;
        let layers: Option<Vec<usize>> = own.keys().map(|layer| layer.parse().ok()).collect();
        let mut layers = layers.ok_or_else(wrong)?;
        layers.sort_unstable();
        let Some(first) = own.values().next() else { return Ok(WideHeads::default()) };
        let parts = first.as_object().filter(|_| own.values().all(|of| of == first)).ok_or_else(wrong)?;
        let known = |(name, _): (&String, &Value)| matches!(name.as_str(), "head_dim" | "num_key_value_heads");
        if !parts.iter().all(known) {
            return Err(wrong());
        }
        let size = |name: &str| match parts.get(name).map(Value::as_u64) {
            None => Ok(None),
            Some(Some(n @ 1..=0x4000)) => Ok(usize::try_from(n).ok()),
            Some(_) => Err(wrong()),
        };
        Ok(WideHeads { dim: size("head_dim")?, kv: size("num_key_value_heads")?, layers: Some(layers) })
    }

    /// Checks that a list of layers names the layers that see everything.
    fn listed_for(&self, f: &Fields, all: &[usize]) -> Result<(), ConfigError> {
        match &self.layers {
            Some(listed) if listed != all => {
                let help = format!("this architecture expects the layers that see everything ({all:?})");
                Err(f.unsupported(EACH, format!("about layers {listed:?}"), help))
            }
            _ => Ok(()),
        }
    }

    /// Those heads, where the other layers have `others`.
    fn of(&self, f: &Fields, others: Option<Heads>) -> Result<Option<Heads>, ConfigError> {
        let Some(heads) = others else { return Ok(None) };
        let kv = self.kv.unwrap_or(heads.kv);
        if !heads.queries.is_multiple_of(kv) {
            let field = if self.layers.is_some() { EACH } else { "num_global_key_value_heads" };
            let help = format!("this architecture expects a divisor of its {} query heads", heads.queries);
            return Err(f.unsupported(field, kv.to_string(), help));
        }
        Ok(Some(Heads { kv, dim: self.dim.unwrap_or(heads.dim), ..heads }))
    }
}

/// Fields that differ in some layers.
const EACH: &str = "per_layer_config";

fn experts(f: &Fields, d: &Decoder) -> Result<Experts, ConfigError> {
    let router = Router::softmax(f.required_size("num_experts_per_tok")?, true);
    let experts = Experts {
        ffn: f.required_size("moe_intermediate_size")?,
        stored: Stored::JoinedBare,
        place: Place { beside_mlp: true, ..Place::default() },
        ..Experts::like(d, router, f.required_size("num_experts")?)
    };
    experts.checked(f, ["num_experts", "num_experts_per_tok"])
}
