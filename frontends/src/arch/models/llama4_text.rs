//! Llama 4, the text models (Meta, 2025): rotation of neighbours and norms of queries and keys without gains in most
//! layers, queries that grow with the position in the others, one expert of each token beside an MLP for all.
//!
//! Layers that rotate see the chunk of the sequence that a token is in.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "llama4_text",
    class: "Llama4ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, UNROTATED, OWN],
    fixed: &[],
    goldens: &["llama4_text", "llama4_chunks", "llama4_dense"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 202_048, heads: 40, kv_heads: 8, head_dim: 128, max_position: 131_072, eps: 1e-5, theta: 5e5, ..LLAMA
        };
        let d = Decoder::read(f, &defaults)?;
        let layers = d.facts.layers;
        let rotates = rotated_layers(f, layers)?;
        let (tuning, bias) = (tuning(f)?, f.flag("attention_bias"));
        let qk_norm = f.flag_or("use_qk_norm", true).then_some(QkNorm::BareAfter);
        let chunks = chunks(f, &rotates)?;
        let every = f.count("interleave_moe_layer_step").unwrap_or(1);
        let listed = f.numbers("moe_layers");
        let sparse =
            |i: usize| listed.as_ref().map_or((i + 1).is_multiple_of(every), |list| list.contains(&(i as f64)));
        // MobileLLM-R1 has none, nor a number of them.
        let experts = (0..layers).any(sparse).then(|| experts(f, &d)).transpose()?;
        let d = d.with_heads(|i, a, h| {
            (h.qkv_bias, h.out_bias, h.qk_norm, h.neighbours) = (bias, bias, qk_norm, a.heads.dim);
            a.window = chunks[i];
            h.with_dot(|s| s.chunked = true);
            if !rotates[i] {
                (a.rotary, h.qk_norm, h.neighbours, a.tuning) = (None, None, 0, tuning);
            }
        });
        let wide = f.size("intermediate_size_mlp").or(16_384);
        let d = d.with_experts(|i| experts.filter(|_| sparse(i)));
        Ok(Box::new(d.with_mlp(|m| m.ffn = wide)))
    },
};

const OWN: &[Field] = fields! {
    intermediate_size_mlp, num_local_experts | num_experts: Accepts::Count, num_experts_per_tok: Accepts::Count,
    interleave_moe_layer_step, moe_layers, use_qk_norm, attention_chunk_size,
    layer_types: Accepts::ListOf(LAYER_TYPES), attn_temperature_tuning, attn_scale, floor_scale,
};

const MAX_EXPERTS: usize = 4096;

/// The last is refused with a word of its own.
const LAYER_TYPES: &[&str] = &["chunked_attention", "full_attention", "sliding_attention"];

const NAMES: Table = names! {
    "model.layers.{}." {
        MLP_GATE => "feed_forward.gate_proj", MLP_UP => "feed_forward.up_proj", MLP_DOWN => "feed_forward.down_proj",
        ROUTER => "feed_forward.router", EXPERTS_GATE_UP => "feed_forward.experts.gate_up_proj",
        EXPERTS_DOWN => "feed_forward.experts.down_proj", EXPERT_GATE => "feed_forward.experts.{e}.gate_proj",
        EXPERT_UP => "feed_forward.experts.{e}.up_proj", EXPERT_DOWN => "feed_forward.experts.{e}.down_proj",
        SHARED_GATE => "feed_forward.shared_expert.gate_proj", SHARED_UP => "feed_forward.shared_expert.up_proj",
        SHARED_DOWN => "feed_forward.shared_expert.down_proj",
    }
};

/// Which layers rotate: 1 says that one does; no numbers are as good as none.
fn rotated_layers(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let every = f.size("no_rope_layer_interval").or(4);
    match f.numbers("no_rope_layers") {
        Some(list) if list.is_empty() => Ok((0..layers).map(|i| !(i + 1).is_multiple_of(every)).collect()),
        _ => {
            let flags = common::layer_flags(f, "no_rope_layers", layers)?;
            Ok(flags.unwrap_or_else(|| (0..layers).map(|i| !(i + 1).is_multiple_of(every)).collect()))
        }
    }
}

/// The chunks that sequences are cut into in each layer.
fn chunks(f: &Fields, rotates: &[bool]) -> Result<Vec<Option<usize>>, ConfigError> {
    let chunk = f.size("attention_chunk_size").or_null(8192);
    let types = common::layer_types(f, rotates.len())?;
    let chunked: Vec<bool> = match types {
        Some(types) if types.contains(&"sliding_attention") => {
            let help = "this architecture supports full attention and attention in chunks".to_string();
            return Err(f.unsupported("layer_types", "\"sliding_attention\"".into(), help));
        }
        Some(types) => types.iter().map(|t| *t == "chunked_attention").collect(),
        None => rotates.to_vec(),
    };
    Ok(chunked.into_iter().map(|yes| chunk.filter(|_| yes)).collect())
}

/// How queries grow in layers that do not rotate. The first files have a number for "yes".
fn tuning(f: &Fields) -> Result<Option<Tuning>, ConfigError> {
    let field = "attn_temperature_tuning";
    let on = match f.get(field) {
        Given::Absent => true,
        Given::Null => {
            return Err(f.unsupported(field, "null".into(), "this architecture supports it on or off".into()));
        }
        Given::Value(v) => match (v.as_bool(), v.as_u64()) {
            (Some(on), _) => on,
            (None, Some(n)) => n > 0,
            (None, None) => return Err(f.invalid_value(field, v, "true or false".into())),
        },
    };
    let (beta, step) = (f.number("attn_scale").unwrap_or(0.1), f.size("floor_scale").or(8192));
    Ok(on.then_some(Tuning { beta, shift: 1, step, power: false }))
}

fn experts(f: &Fields, d: &Decoder) -> Result<Experts, ConfigError> {
    let top = f.count("num_experts_per_tok").unwrap_or(1);
    if top != 1 {
        let help = "this architecture supports weights on experts' inputs only with one expert per token".to_string();
        return Err(f.unsupported("num_experts_per_tok", top.to_string(), help));
    }
    let count = f.count("num_local_experts").unwrap_or(16);
    if !(1..=MAX_EXPERTS).contains(&count) {
        let help = format!("this architecture supports 1 to {MAX_EXPERTS} experts in layers that have any");
        return Err(f.unsupported("num_local_experts", count.to_string(), help));
    }
    let router = Router { score: Score::Sigmoid, ..Router::softmax(1, false) };
    let experts = Experts {
        place: Place { weigh_input: true, ..Place::default() },
        stored: Stored::JoinedTurned,
        ..Experts::like(d, router, count)
    };
    let experts = Experts { shared: Some(Shared::plain(experts.ffn)), ..experts };
    experts.checked(f, ["num_local_experts", "num_experts_per_tok"])
}
