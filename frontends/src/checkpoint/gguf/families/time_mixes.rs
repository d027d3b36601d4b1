//! RWKV-6 and RWKV-7, whose tensors llama.cpp's converter renames, transposes and puts together.

use super::super::blocks;
use super::super::file::{File, OTHER_MODEL, Wrong, without};
use super::{Family, Made, PLAIN, Stored};
use crate::checkpoint::rwkv_forms::{self, Form, StoredTensor};
use std::collections::BTreeMap;

/// Keys without an effect on the model's results, or that only say how tensors are halved.
const QUIET: &[&str] = &["rescale_every_n_layers", "token_shift_count"];

pub(in super::super) const FAMILIES: &[Family] = &[
    Family {
        name: "rwkv6",
        model_type: ("rwkv6", "Rwkv6ForCausalLM"),
        keys: &[&[
            ("attention.layer_norm_epsilon", "layer_norm_epsilon"),
            ("wkv.head_size", "head_size"),
            ("time_mix_extra_dim", "time_mix_extra_dim"),
            ("time_decay_extra_dim", "time_decay_extra_dim"),
        ]],
        quiet: QUIET,
        adapt: |_, config| without(config, &["num_attention_heads", "num_key_value_heads"]),
        stored: Stored {
            tensors: Some(|f| tensors(f, SIX, &["w", "k", "v", "r", "g"].map(|part| format!("att.time_maa_{part}")))),
            ..Stored::SAME
        },
        ..PLAIN
    },
    Family {
        name: "rwkv7",
        model_type: ("rwkv7", "RWKV7ForCausalLM"),
        keys: &[&[
            ("attention.layer_norm_epsilon", "layer_norm_epsilon"),
            ("wkv.head_size", "head_dim"),
            ("attention.decay_lora_rank", "decay_low_rank_dim"),
            ("attention.iclr_lora_rank", "a_low_rank_dim"),
            ("attention.value_residual_mix_lora_rank", "v_low_rank_dim"),
            ("attention.gate_lora_rank", "gate_low_rank_dim"),
        ]],
        quiet: QUIET,
        adapt: |_, config| without(config, &["num_attention_heads", "num_key_value_heads"]),
        stored: Stored {
            tensors: Some(|f| tensors(f, SEVEN, &["r", "w", "k", "v", "a", "g"].map(|part| format!("att.x_{part}")))),
            ..Stored::SAME
        },
        ..PLAIN
    },
];

/// Names here and in the authors' checkpoints, without endings.
type Modules = &'static [(&'static str, &'static str)];

/// Modules beside the layers.
const TOP: Modules =
    &[("token_embd", "emb"), ("token_embd_norm", "blocks.0.ln0"), ("output_norm", "ln_out"), ("output", "head")];

/// Modules of layers.
const LAYER: Modules = &[
    ("attn_norm", "ln1"),
    ("attn_norm_2", "ln2"),
    ("time_mix_ln", "att.ln_x"),
    ("time_mix_key", "att.key"),
    ("time_mix_value", "att.value"),
    ("time_mix_receptance", "att.receptance"),
    ("time_mix_gate", "att.gate"),
    ("time_mix_output", "att.output"),
    ("channel_mix_key", "ffn.key"),
    ("channel_mix_value", "ffn.value"),
    ("channel_mix_receptance", "ffn.receptance"),
];

/// Tensors of layers that are no module's: both names, and the converter's change.
type Bare = &'static [(&'static str, &'static str, Form)];

const SIX: Bare = &[
    ("time_mix_w1", "att.time_maa_w1", Form::Turned),
    ("time_mix_w2", "att.time_maa_w2", Form::Turned),
    ("time_mix_lerp_x", "att.time_maa_x", Form::Row),
    ("time_mix_lerp_w", "att.time_maa_w", Form::Row),
    ("time_mix_lerp_k", "att.time_maa_k", Form::Row),
    ("time_mix_lerp_v", "att.time_maa_v", Form::Row),
    ("time_mix_lerp_r", "att.time_maa_r", Form::Row),
    ("time_mix_lerp_g", "att.time_maa_g", Form::Row),
    ("time_mix_first", "att.time_faaaa", Form::Same),
    ("time_mix_decay", "att.time_decay", Form::Row),
    ("time_mix_decay_w1", "att.time_decay_w1", Form::Turned),
    ("time_mix_decay_w2", "att.time_decay_w2", Form::Turned),
    ("channel_mix_lerp_k", "ffn.time_maa_k", Form::Row),
    ("channel_mix_lerp_r", "ffn.time_maa_r", Form::Row),
];

const SEVEN: Bare = &[
    ("time_mix_w0", "att.w0", Form::Row),
    ("time_mix_w1", "att.w1", Form::Turned),
    ("time_mix_w2", "att.w2", Form::Turned),
    ("time_mix_a0", "att.a0", Form::Row),
    ("time_mix_a1", "att.a1", Form::Turned),
    ("time_mix_a2", "att.a2", Form::Turned),
    ("time_mix_v0", "att.v0", Form::Row),
    ("time_mix_v1", "att.v1", Form::Turned),
    ("time_mix_v2", "att.v2", Form::Turned),
    ("time_mix_g1", "att.g1", Form::Turned),
    ("time_mix_g2", "att.g2", Form::Turned),
    ("time_mix_k_k", "att.k_k", Form::Row),
    ("time_mix_k_a", "att.k_a", Form::Row),
    ("time_mix_r_k", "att.r_k", Form::Heads(0)),
    ("channel_mix_lerp_k", "ffn.x_k", Form::Row),
];

/// Mixtures of tokens, which are one tensor.
const FUSED: &str = "time_mix_lerp_fused";
/// Tensors the first layer does not use: llama.cpp requires some there.
const UNUSED: &[&str] = &["time_mix_v0", "time_mix_v1", "time_mix_v2"];

/// The tensors of a file under the authors' names; `fused`: the mixtures' tensors that are one
/// here.
fn tensors(f: &File, bare: Bare, fused: &[String]) -> Result<Made, Wrong> {
    let head = f.size("wkv.head_size").and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let every = f.size("rescale_every_n_layers").unwrap_or(0);
    let (mut out, mut widened) = (BTreeMap::new(), vec![]);
    for (name, (shard, info)) in f.tensors {
        let unread = || (format!("tensor `{name}` {} {:?} is not supported", info.dtype.name, info.shape), OTHER_MODEL);
        let ty = blocks::of(info.dtype).ok_or_else(unread)?;
        let tensor = StoredTensor { ty, shape: info.shape.clone(), bytes: info.bytes.clone() };
        let (stem, ending) = name.rsplit_once('.').unwrap_or((name, ""));
        let Some((layer, part)) = stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
            let (_, to) = TOP.iter().find(|(from, _)| *from == stem).ok_or_else(unread)?;
            out.insert(format!("{to}.{ending}"), rwkv_forms::entry(&tensor, Form::Same, *shard).ok_or_else(unread)?);
            continue;
        };
        if part == FUSED {
            let all = rwkv_forms::vectors(&tensor, fused.len(), *shard).ok_or_else(unread)?;
            out.extend(fused.iter().zip(all).map(|(to, entry)| (format!("blocks.{layer}.{to}"), entry)));
            continue;
        }
        if layer == "0" && UNUSED.contains(&part) {
            continue;
        }
        let number: u64 = layer.parse().map_err(|_| unread())?;
        let halved = number.checked_div(every).and_then(|n| u8::try_from(n).ok()).unwrap_or(0);
        let of_bare = bare.iter().find(|(from, ..)| *from == part).filter(|_| ending == "weight");
        let (to, form) = match (of_bare, LAYER.iter().find(|(from, _)| *from == part)) {
            (Some((_, to, Form::Heads(_))), _) => (format!("blocks.{layer}.{to}"), Form::Heads(head)),
            (Some((_, to, form)), _) => (format!("blocks.{layer}.{to}"), *form),
            (None, Some((from, to))) => {
                let form = if SCALED.contains(from) { Form::Halved(halved) } else { Form::Same };
                (format!("blocks.{layer}.{to}.{ending}"), form)
            }
            (None, None) => return Err(unread()),
        };
        if rwkv_forms::is_widened(&tensor, form) {
            widened.push(name.clone());
        }
        out.insert(to, rwkv_forms::entry(&tensor, form, *shard).ok_or_else(unread)?);
    }
    Ok((out, rwkv_forms::note(&widened).into_iter().collect()))
}

/// Matrices that add to the layers' rows, which llama.cpp halves every few layers.
const SCALED: &[&str] = &["time_mix_output", "channel_mix_value"];
