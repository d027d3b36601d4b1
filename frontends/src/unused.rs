//! Tensors of a checkpoint that no part of the model reads.
//!
//! A file holds its model's weights. Tensors without a use mean that config.json describes another
//! model (fewer layers, no biases), which would compile and write garbage.

use crate::arch::{self, Model};
use crate::checkpoint::Checkpoint;
use crate::error::{FrontendError, Unused};
use llmcc_ir::graph::{Module, draft_entry};
use llmcc_ir::output::{Output, Rows, RowsName};
use llmcc_ir::ty::DType;
use std::collections::BTreeSet;

/// The tensors of a checkpoint that `module`, lifted from it, does not read: without those known to
/// be recomputed or copies. A tied head is compared with the embedding table, which reads both
/// where both are there.
///
/// # Errors
/// When config.json is wrong.
pub fn find(ckpt: &Checkpoint, module: &Module) -> Result<Option<Unused>, FrontendError> {
    let model = arch::config(ckpt)?;
    let used: BTreeSet<&str> = module.weights.iter().map(|w| w.name.as_str()).collect();
    let tied = model.tied_tensors(ckpt);
    let copy = |name: &str| tied.as_ref().is_some_and(|[table, head]| name == head && ckpt.equal(head, table));
    let redundant = |name: &str| {
        recomputed(ckpt, name)
            || derived(ckpt, &model, name)
            || copy(name)
            || looks_ahead(name)
            || model.leaves_out(name, module.output())
            || of_zeros(ckpt, name)
    };
    let mut tensors: Vec<String> =
        ckpt.own_names().filter(|n| !used.contains(n) && !redundant(n)).map(String::from).collect();
    let has = |number: &usize| module.entries.iter().any(|e| e.name == draft_entry(*number));
    for number in (0..).take_while(has) {
        tensors.extend(of_head(ckpt, &model, module, number));
    }
    let reasons = reasons(ckpt, &model, &tensors, module.output());
    Ok(if tensors.is_empty() { None } else { Some(Unused { tensors, reasons }) })
}

/// The tensors of draft head `number` that `module` does not read.
pub(crate) fn of_head(ckpt: &Checkpoint, model: &Model, module: &Module, number: usize) -> Vec<String> {
    let used: BTreeSet<&str> = module.weights.iter().map(|w| w.name.as_str()).collect();
    let redundant = |name: &str| recomputed(ckpt, name) || model.chooses(name) || of_zeros(ckpt, name);
    let of_head = model.of_draft_head(ckpt, number);
    of_head.into_iter().filter(|n| !used.contains(n) && !redundant(n)).map(String::from).collect()
}

/// Buffers that older versions of Transformers saved, and that follow from config.json: rotary
/// tables, causal masks, positions.
fn recomputed(ckpt: &Checkpoint, name: &str) -> bool {
    let rotary = ["inv_freq", "original_inv_freq", "cos_cached", "sin_cached"];
    // (The second where the first of several layers has those that all of them share.)
    let ends = ["rotary_emb", "rotary_embeddings"];
    let of_rotary = name
        .rsplit_once('.')
        .is_some_and(|(at, last)| rotary.contains(&last) && ends.iter().any(|end| at.ends_with(end)));
    let square = || ckpt.info(name).is_some_and(|i| matches!(i.shape[..], [1, 1, n, m] if n == m));
    let masks = [".attn.bias", ".self_attn.bias", ".attention.bias", ".attn.causal_mask"];
    let mask = masks.iter().any(|end| name.ends_with(end)) && square();
    let filled = ["attn.masked_bias", "attention.masked_bias"].iter().any(|end| name.ends_with(end));
    of_rotary
        || mask
        || constant(ckpt, name)
        || filled
        // Sines, not learned, which are a `.weight`.
        || name.ends_with(".embed_positions.weights")
        || name.rsplit('.').next() == Some("position_ids")
}

/// Whether a tensor belongs to a part that predicts further tokens (and is no layer by its number),
/// as Qwen3-Next, Nemotron 3, ERNIE 4.5, MiMo-V2 and LongCat have one in their files: the model's
/// results do not depend on it.
fn looks_ahead(name: &str) -> bool {
    let name = name.strip_prefix("model.").unwrap_or(name);
    ["mtp.", "mtp_"].iter().any(|start| name.starts_with(start))
}

/// Integers that follow from config.json, such as multipliers of hashes: if they are those, nothing reads them.
fn derived(ckpt: &Checkpoint, model: &Model, name: &str) -> bool {
    let (Some(expected), Some(found)) = (model.integers(name), ckpt.tensor(name)) else { return false };
    let bytes: Vec<u8> = expected.iter().flat_map(|n| n.to_le_bytes()).collect();
    found.dtype == DType::I64 && found.data == bytes
}

/// Constants of xIELU, which its class saves beside learned values, with the values that they have
/// in the model.
fn constant(ckpt: &Checkpoint, name: &str) -> bool {
    let value = || ckpt.tensor(name).and_then(|t| t.to_f32().first().copied());
    // In bf16 too.
    let is = |expected: f32| value().is_some_and(|v| (v - expected).abs() <= expected.abs() / 128.0);
    name.ends_with(".act_fn.beta") && is(0.5) || name.ends_with(".act_fn.eps") && is(-1e-6)
}

/// Biases that add nothing: AutoGPTQ gave them to every matrix that it quantized.
fn of_zeros(ckpt: &Checkpoint, name: &str) -> bool {
    let quantized = name.strip_suffix(".bias").is_some_and(|stem| ckpt.is_quantized(&format!("{stem}.weight")));
    quantized && ckpt.to_f32(name).is_some_and(|bias| bias.iter().all(|x| *x == 0.0))
}

/// Why tensors may be in a file whose model does not use them.
fn reasons(ckpt: &Checkpoint, model: &Model, tensors: &[String], output: Output) -> Vec<String> {
    let (class, layers) = (model.arch.class, model.facts().layers);
    let any = |is: &dyn Fn(&str) -> bool| tensors.iter().any(|t| is(t));
    let mut reasons = vec![];
    if model.scores_classes() && matches!(output, Output::Rows(Rows { name: RowsName::Embedding, .. })) {
        reasons.push(
            "the model scores classes, and embeddings do not use that head: leave out --embed to get scores".into(),
        );
    }
    let beyond: BTreeSet<usize> = tensors.iter().filter_map(|t| model.layer_of(t)).filter(|i| *i >= layers).collect();
    if let (Some(first), Some(last)) = (beyond.first(), beyond.last()) {
        let which = if first == last { format!("layer {first} is") } else { format!("layers {first} to {last} are") };
        reasons.push(format!("{which} in the file, but `num_hidden_layers` is {layers} in config.json"));
    }
    for (of_attention, field) in [(true, "attention_bias"), (false, "mlp_bias")] {
        if any(&|t| model.bias_of_attention(t) == Some(of_attention)) {
            reasons.push(match model.arch.field(field) {
                Some(_) => format!("there are biases in the file, but `{field}` is false in config.json"),
                None => format!("there are biases in the file, but {class} has none there"),
            });
        }
    }
    if let Some([table, head]) = model.tied_tensors(ckpt)
        && any(&|t| t == head)
    {
        reasons.push(format!(
            "`tie_word_embeddings` is true in config.json, which makes `{table}` the head, but `{head}` differs from it: to use the file's head, as Transformers 5 does, \
             set `tie_word_embeddings` to false"
        ));
    }
    if any(&|t| t.contains("q_norm") || t.contains("k_norm")) {
        reasons.push(format!("there are norms of queries or keys in the file, which {class} does not have"));
    }
    if any(&|t| t.contains(".experts.") || t.contains("block_sparse_moe")) {
        reasons.push(format!("there are experts in the file, which {class} does not have"));
    }
    if any(&|t| t.contains("lora_")) {
        reasons.push("there is an adapter in the file: merge it into the weights (`merge_and_unload` of PEFT)".into());
    }
    if any(&|t| t.ends_with("_scale") || t.ends_with("_scale_inv") || t.ends_with(".scales") || t.ends_with(".qzeros"))
    {
        reasons.push("there are scales of quantized weights in the file: use the unquantized checkpoint".into());
    }
    if reasons.is_empty() {
        reasons
            .push(format!("the file and config.json ({class}) belong to different models, or config.json was edited"));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{Tensor, random_tensors, write_checkpoint};
    use crate::testing::{Folder, config, config_of, golden, with};
    use crate::{Options, lift};

    const TABLE: &str = "model.embed_tokens.weight";
    const HEAD: &str = "lm_head.weight";
    use serde_json::{Value, json};

    /// The unused tensors when a checkpoint made for `made` and then edited is read with `config`.
    fn unused(made: &Value, config: &Value, edit: impl FnOnce(&mut Vec<Tensor>)) -> String {
        let folder = Folder::new();
        let mut tensors = random_tensors(made, 1);
        edit(&mut tensors);
        write_checkpoint(&folder.0, config, &tensors).unwrap();
        let ckpt = Checkpoint::open(&folder.0).unwrap();
        let module = lift(&ckpt, &Options::default()).unwrap();
        find(&ckpt, &module).unwrap().map_or_else(|| "nothing".into(), |u| u.to_string())
    }

    fn same(model_type: &str, changes: Value, edit: impl FnOnce(&mut Vec<Tensor>)) -> String {
        let config = with(config(model_type), changes);
        unused(&config, &config, edit)
    }

    fn tensor(name: &str, shape: &[usize]) -> Tensor {
        Tensor {
            name: name.into(),
            dtype: "BF16",
            shape: shape.to_vec(),
            data: vec![0; 2 * shape.iter().product::<usize>()],
        }
    }

    #[test]
    fn sound_checkpoints_are_used_whole() {
        for arch in arch::ARCHS {
            let name = arch.model_type;
            let same = |changes: Value| {
                let config = with(config_of(arch), changes);
                unused(&config, &config, |_| ())
            };
            assert_eq!(same(json!({})), "nothing", "{name}");
            // Heads of these have fewer rows than their tables.
            let apart = ["mllama_text_model", "molmo2_text"].contains(&name);
            if arch.field("tie_word_embeddings").is_some() && !apart {
                assert_eq!(same(json!({ "tie_word_embeddings": true })), "nothing", "{name}");
            }
        }
        for name in arch::goldens() {
            let ckpt = Checkpoint::open(&golden(name)).unwrap();
            assert_eq!(find(&ckpt, &lift(&ckpt, &Options::default()).unwrap()).unwrap(), None, "{name}");
        }
    }

    /// Embeddings of a classifier leave its head unread, which is no fault of the file.
    #[test]
    fn embeddings_of_classifiers() {
        let ckpt = Checkpoint::open(&golden("bert_pairs")).unwrap();
        let module = lift(&ckpt, &Options { embed: true, ..Options::default() }).unwrap();
        let said = find(&ckpt, &module).unwrap().unwrap().to_string();
        assert!(said.contains("`classifier.weight`") && said.contains("leave out --embed"), "{said}");
        assert!(!said.contains("different models"), "{said}");
        // The head of a text model's logits is no question, wherever it stands and whatever it is called.
        for name in arch::goldens() {
            let ckpt = Checkpoint::open(&golden(name)).unwrap();
            let Ok(module) = lift(&ckpt, &Options { embed: true, ..Options::default() }) else { continue };
            let unused = find(&ckpt, &module).unwrap().map(|u| u.to_string());
            assert!(unused.as_ref().is_none_or(|said| said.contains("leave out --embed")), "{name}: {unused:?}");
        }
    }

    /// Biases of quantized matrices are passed over where they are zeros.
    #[test]
    fn biases_of_zeros() {
        let (from, to) = (golden("quantized_models/gptq3"), Folder::new());
        let file = std::fs::read(from.join("model.safetensors")).unwrap();
        let (head, data) = file[8..].split_at(u64::from_le_bytes(file[..8].try_into().unwrap()) as usize);
        to.write("config.json", std::fs::read(from.join("config.json")).unwrap());
        for (byte, unused) in [(0, false), (1, true)] {
            let mut tensors: Value = serde_json::from_slice(head).unwrap();
            let offsets = [data.len(), data.len() + 4];
            tensors["model.layers.0.mlp.up_proj.bias"] =
                json!({ "dtype": "F16", "shape": [2], "data_offsets": offsets });
            let head = tensors.to_string();
            let bytes = [&(head.len() as u64).to_le_bytes(), head.as_bytes(), data, &[0, 0, byte, 0]].concat();
            to.write("model.safetensors", bytes);
            let ckpt = Checkpoint::open(&to.0).unwrap();
            assert_eq!(find(&ckpt, &lift(&ckpt, &Options::default()).unwrap()).unwrap().is_some(), unused);
        }
    }

    /// Parts that predict further tokens have names of their own.
    #[test]
    fn parts_that_look_ahead() {
        for name in ["mtp.fc.weight", "model.mtp.layers.0.enorm.weight", "model.mtp_block.0.input_layernorm.weight"] {
            assert_eq!(same("qwen3_next", json!({}), |t| t.push(tensor(name, &[4]))), "nothing", "{name}");
        }
        assert_ne!(same("qwen3_next", json!({}), |t| t.push(tensor("model.layers.0.mtp.weight", &[4]))), "nothing");
    }

    /// Layers that predict further tokens are known by their number.
    #[test]
    fn layers_that_look_ahead() {
        let made = config("glm4_moe");
        let layers = made["num_hidden_layers"].as_u64().unwrap();
        let says = |n| with(made.clone(), json!({ "num_hidden_layers": layers - 1, "num_nextn_predict_layers": n }));
        assert_eq!(unused(&made, &says(1), |_| ()), "nothing");
        assert_ne!(unused(&made, &says(0), |_| ()), "nothing");
    }

    /// Files have keys and values of all layers, also of those that read the caches of others.
    #[test]
    fn layers_that_share_caches() {
        let made = config("gemma3n_text");
        let shared = with(made.clone(), json!({ "num_kv_shared_layers": 1 }));
        assert_eq!(unused(&made, &shared, |_| ()), "nothing");
        let of_first = |t: &mut Vec<Tensor>| t.push(tensor("model.layers.0.self_attn.v_norm.weight", &[4]));
        assert_ne!(unused(&made, &shared, of_first), "nothing");
    }

    #[test]
    fn a_layer_less() {
        let made = with(config("llama"), json!({ "num_hidden_layers": 4 }));
        let text = unused(&made, &config("llama"), |_| ());
        assert!(
            text.starts_with(
                "18 tensors of the checkpoint are not used by the model: `model.layers.2.input_layernorm.weight`, "
            ),
            "{text}"
        );
        let end = "`model.layers.3.mlp.gate_proj.weight` and 6 more; layers 2 to 3 are in the file, but `num_hidden_layers` is 2 in config.json";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn biases_that_are_switched_off() {
        let biased =
            |field: &str, arch: &str| unused(&with(config("llama"), json!({ field: true })), &config(arch), |_| ());
        let off = |field: &str| format!("; there are biases in the file, but `{field}` is false in config.json");
        assert!(biased("attention_bias", "llama").ends_with(&off("attention_bias")));
        assert!(biased("mlp_bias", "llama").ends_with(&off("mlp_bias")));
        assert!(
            biased("attention_bias", "mistral")
                .ends_with("; there are biases in the file, but MistralForCausalLM has none there")
        );
        let text = unused(&with(config("qwen3"), json!({ "model_type": "qwen3" })), &config("llama"), |_| ());
        assert!(
            text.ends_with("; there are norms of queries or keys in the file, which LlamaForCausalLM does not have"),
            "{text}"
        );
    }

    #[test]
    fn a_tied_head() {
        let tied = json!({ "tie_word_embeddings": true });
        let head = |data: fn(&[u8]) -> Vec<u8>| {
            same("llama", tied.clone(), |t| {
                let table = t.iter().find(|t| t.name == TABLE).unwrap();
                let head = Tensor { name: HEAD.into(), data: data(&table.data), ..table.clone() };
                t.push(head);
            })
        };
        assert_eq!(head(<[u8]>::to_vec), "nothing");
        let changed = head(|d| d.iter().enumerate().map(|(i, b)| if i + 1 == d.len() { b ^ 1 } else { *b }).collect());
        assert_eq!(
            changed,
            "1 tensor of the checkpoint is not used by the model: `lm_head.weight`; `tie_word_embeddings` is true in config.json, which makes `model.embed_tokens.weight` the head, \
             but `lm_head.weight` differs from it: to use the file's head, as Transformers 5 does, set `tie_word_embeddings` to false"
        );
        // Transformers takes the one that is there.
        let renamed =
            same("llama", tied, |t| t.iter_mut().filter(|t| t.name == TABLE).for_each(|t| t.name = HEAD.into()));
        assert_eq!(renamed, "nothing");
    }

    #[test]
    fn leftovers_and_strangers() {
        let extra = |name: &str, shape: &[usize]| same("llama", json!({}), |t| t.push(tensor(name, shape)));
        for (name, shape) in [
            ("model.layers.0.self_attn.rotary_emb.inv_freq", &[2][..]),
            ("model.rotary_emb.cos_cached", &[1, 1, 64, 4]),
            ("model.layers.0.self_attn.bias", &[1, 1, 64, 64]),
            ("model.layers.0.self_attn.masked_bias", &[]),
            ("model.layers.0.attn.causal_mask", &[1, 1, 64, 64]),
            ("gpt_neox.layers.0.attention.bias", &[1, 1, 64, 64]),
            ("transformer.h.0.attn.attention.masked_bias", &[]),
            ("model.embed_positions.weights", &[66, 16]),
            ("model.embeddings.position_ids", &[1, 64]),
        ] {
            assert_eq!(extra(name, shape), "nothing", "{name}");
        }
        for (name, reason) in [
            ("model.layers.0.self_attn.bias", "biases"),
            ("model.layers.0.mlp.experts.0.w1.weight", "experts"),
            ("base_model.model.layers.0.lora_A.weight", "adapter"),
            ("model.layers.0.mlp.up_proj.weight_scale", "unquantized"),
            ("rotary.inv_freq", "different models"),
            ("model.vision_tower.weight", "different models"),
        ] {
            let text = extra(name, &[4]);
            assert!(text.contains(&format!("`{name}`")) && text.contains(reason), "{text}");
        }
    }
}
