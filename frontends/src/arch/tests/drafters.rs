//! Published drafts beside a model, against a reference in NumPy (`drafter_reference.py`); and refusals.

use super::*;
use crate::testing::Left;
use llmcc_ir::graph::{STEP, draft_entry};

/// The draft's folder, its entries by the names of their results, and the model's rows that it takes.
const DRAFTS: [(&str, &[&str], &str); 3] = [
    ("eagle", &["eagle"], "hidden"),
    ("eagle3", &["eagle3"], "fused"),
    ("medusa", &["medusa0", "medusa1", "medusa2"], "hidden"),
];

fn opened(draft: &str) -> Checkpoint {
    let of = golden("drafters");
    Checkpoint::open(&of.join("model")).unwrap().with_draft(&of.join(draft)).unwrap()
}

fn entry(ckpt: &Checkpoint, module: &Module, name: &str, batch: &Batch) -> Left {
    let weights =
        |i: usize| module.weights[i].data.clone().unwrap_or_else(|| ckpt.to_f32(&module.weights[i].name).unwrap());
    Left::of(module, name, &weights, batch)
}

fn floats(file: &Checkpoint, tensor: &str) -> Vec<f64> {
    file.tensor(tensor).unwrap().to_f32().into_iter().map(f64::from).collect()
}

/// Rows of the model and rows and logits of each draft are closer to the f64 reference than f32's are.
#[test]
fn rows_and_logits() {
    let file = Checkpoint::open(&golden("drafters/model/golden.safetensors")).unwrap();
    let tokens: Vec<i32> =
        file.tensor("tokens").unwrap().data.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
    let near = |what: &str, ours: &[f64]| {
        let (wanted, own) = (floats(&file, what), floats(&file, &format!("{what}_error_f32"))[0]);
        assert_eq!(ours.len(), wanted.len(), "{what}");
        let error = ours.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(error <= own, "{what}: off by {error:e}, NumPy in f32 by {own:e}");
    };
    for (draft, entries, rows) in DRAFTS {
        let ckpt = opened(draft);
        let module = lift(&ckpt, &EXACT).unwrap();
        assert_eq!((verify_module(&module), module.entries.len()), (vec![], 1 + entries.len()), "{draft}");
        assert_eq!(crate::unused::find(&ckpt, &module).unwrap(), None, "{draft}");
        let left = entry(&ckpt, &module, STEP, &Batch::single(&tokens, 0));
        near(&format!("model.{rows}"), &left.hidden);
        let given: Vec<f32> = floats(&file, &format!("model.{rows}")).iter().map(|x| *x as f32).collect();
        let width = given.len() / tokens.len();
        for (k, name) in entries.iter().enumerate() {
            let of_tokens = usize::from(draft != "medusa");
            let mut batch = Batch::single(&tokens[of_tokens..], 0);
            batch.hidden = given[..given.len() - of_tokens * width].to_vec();
            let mut left = entry(&ckpt, &module, &draft_entry(k), &batch);
            if let Some(to) = ckpt.tensor("draft/d2t") {
                let target = |(j, b): (usize, &[u8; 8])| j + i64::from_le_bytes(*b) as usize;
                let known: Vec<usize> = to.data.as_chunks().0.iter().enumerate().map(target).collect();
                let others = |row: &[f64]| row.iter().enumerate().all(|(t, v)| known.contains(&t) || *v < -1e29);
                assert!(left.output.chunks(128).all(others));
                left.output = left.output.chunks(128).flat_map(|row| known.iter().map(|t| row[*t])).collect();
            }
            near(&format!("{name}.logits"), &left.output);
            if draft != "medusa" {
                near(&format!("{name}.hidden"), &left.hidden);
            }
        }
    }
}

/// Medusa's heads have no states; the other drafts have a track.
#[test]
fn states_of_drafts() {
    for (draft, entries, _) in DRAFTS {
        let module = lift(&opened(draft), &EXACT).unwrap();
        let tracks = if draft == "medusa" { vec![0; 1 + entries.len()] } else { vec![0, 1] };
        assert_eq!(module.tracks().entries, tracks, "{draft}");
    }
}

/// A draft made of a fixture's: its configuration with changes, and renamed, left out or further tensors.
fn changed(draft: &str, changes: Value, rename: impl Fn(&str) -> Option<String>) -> Result<Module, String> {
    let (from, folder) = (golden("drafters"), Folder::new());
    let own = from.join(draft);
    let name = if draft == "medusa" { "medusa_lm_head.safetensors" } else { "model.safetensors" };
    let file = std::fs::read(own.join(name)).unwrap();
    let (head, data) = file[8..].split_at(u64::from_le_bytes(file[..8].try_into().unwrap()) as usize);
    let header: serde_json::Map<String, Value> = serde_json::from_slice(head).unwrap();
    let renamed = |(name, v): (String, Value)| match name == "__metadata__" {
        true => (name, v),
        // The bytes of a tensor that is left out stay, as one that every draft may have.
        false => (rename(&name).unwrap_or_else(|| format!("{name}.rotary_emb.inv_freq")), v),
    };
    let head = json!(header.into_iter().map(renamed).collect::<serde_json::Map<_, _>>()).to_string();
    folder.write(name, [&(head.len() as u64).to_le_bytes(), head.as_bytes(), data].concat());
    let config: Value = serde_json::from_slice(&std::fs::read(own.join("config.json")).unwrap()).unwrap();
    folder.write("config.json", with(config, changes).to_string());
    let ckpt = Checkpoint::open(&from.join("model")).unwrap();
    let ckpt = ckpt.with_draft(&folder.0).map_err(|e| e.to_string())?;
    lift(&ckpt, &EXACT).map_err(|e| e.to_string())
}

/// Files name tensors and fields in other ways, too.
#[test]
fn other_names() {
    let same = |draft: &str, changes: Value, rename: &dyn Fn(&str) -> String| {
        let plain = lift(&opened(draft), &EXACT).unwrap();
        let other = changed(draft, changes, |name| Some(rename(name))).unwrap();
        assert_eq!((other.funcs, other.entries), (plain.funcs, plain.entries), "{draft}");
    };
    same("eagle", json!({ "architectures": ["EagleLlamaForCausalLM"] }), &|name| format!("model.{name}"));
    let layer = json!({ "norm_before_residual": false, "eagle_aux_hidden_state_layer_ids": [2, 3, 4] });
    same("eagle3", layer, &|name| name.replace("midlayer.", "layers.0."));
    same("eagle3", json!({ "eagle_config": { "eagle_aux_hidden_state_layer_ids": [1, 2, 3] } }), &str::to_string);
    same("medusa", json!({ "medusa_num_heads": null, "num_heads": 3, "model_type": "medusa" }), &|name| {
        let (head, rest) = name.split_once('.').unwrap();
        let (block, end) = rest.split_once('.').unwrap();
        match end.strip_prefix("linear.") {
            Some(end) => format!("blocks.{head}.layers.{block}.{end}"),
            None => format!("lm_heads.{head}.{end}"),
        }
    });
}

/// A draft whose table is the model's reads that one.
#[test]
fn tables_that_are_the_models() {
    let module = lift(&opened("eagle"), &EXACT).unwrap();
    assert!(module.weights.iter().any(|w| w.name == "draft/embed_tokens.weight"));
    let module = changed("eagle", json!({}), |name| (name != "embed_tokens.weight").then(|| name.into())).unwrap();
    assert!(module.weights.iter().all(|w| w.name != "draft/embed_tokens.weight"));
}

#[test]
fn refusals() {
    let keep = |name: &str| Some(name.to_string());
    for (draft, changes, says) in [
        ("eagle", json!({ "hidden_size": 32 }), "`hidden_size` of the draft is 32, but rows of the model have 64"),
        ("eagle", json!({ "vocab_size": 90 }), "`vocab_size` of the draft is 90, but the model's vocabulary has 128"),
        ("eagle", json!({ "num_hidden_layers": 2 }), "`num_hidden_layers` is 2; drafts of one layer"),
        ("eagle", json!({ "model_type": "qwen9" }), "`model_type` is `qwen9`; supported are"),
        ("eagle", json!({ "depth_gain": 2 }), "`depth_gain` is 2, which this kind of draft is not known to have"),
        ("eagle", json!({ "quantization_config": {} }), "the draft's weights are quantized"),
        ("eagle", json!({ "hidden_size": "a" }), "hidden_size"),
        ("eagle3", json!({ "norm_before_fc": true }), "drafts with norms around `fc` are not supported"),
        ("eagle3", json!({ "target_hidden_size": 96 }), "`target_hidden_size` of the draft is 96, but"),
        ("eagle3", json!({ "draft_vocab_size": 41 }), "tensor `d2t` does not lead to 41 different tokens"),
        ("eagle3", json!({ "draft_vocab_size": 0 }), "`draft_vocab_size` is 0, of the model's 128 tokens"),
        ("eagle3", json!({ "eagle_aux_hidden_state_layer_ids": [4, 2, 9] }), "three numbers of layers"),
        ("medusa", json!({ "medusa_num_heads": 40 }), "it says 40 heads"),
        ("medusa", json!({ "medusa_num_heads": 2 }), "tensor `2.0.linear.bias` and 4 more of the draft has no use"),
        ("medusa", json!({ "medusa_num_heads": 4 }), "`draft/3.0.linear.weight`"),
        ("medusa", json!({ "hidden_size": 32 }), "`hidden_size` of the draft is 32"),
    ] {
        let said = changed(draft, changes, keep).unwrap_err();
        assert!(said.contains(says), "{draft}: {said}");
    }
    let said = changed("eagle", json!({}), |name| Some(name.replace("fc.bias", "act.weight"))).unwrap_err();
    assert!(said.contains("model.safetensors: tensor `act.weight` of the draft has no use"), "{said}");
    let said = changed("eagle", json!({}), |name| (name != "fc.weight").then(|| name.into())).unwrap_err();
    assert!(said.contains("`draft/fc.weight`"), "{said}");
    let said = changed("eagle3", json!({}), |name| (name != "d2t").then(|| name.into())).unwrap_err();
    assert!(said.contains("there is no tensor `d2t`, which says which 40 of the model's 128 tokens"), "{said}");
    // Not of any model.
    let of = golden("drafters");
    let ckpt = Checkpoint::open(&golden("bert")).unwrap().with_draft(&of.join("eagle")).unwrap();
    let said = lift(&ckpt, &EXACT).unwrap_err().to_string();
    assert!(said.contains("drafts (--draft) for BertModel are not supported"), "{said}");
    // Files that are none.
    let model = || Checkpoint::open(&of.join("model")).unwrap();
    let said = model().with_draft(&of.join("eagle/config.json")).unwrap_err().to_string();
    assert!(said.contains("neither a folder nor a file of tensors"), "{said}");
    let said = model().with_draft(&of.join("nothing")).unwrap_err().to_string();
    assert!(said.contains("nothing: cannot open"), "{said}");
}
