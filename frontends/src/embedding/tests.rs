use super::*;
use crate::fixtures::write_checkpoint;
use crate::testing::{Folder, config};
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::output::Pool;
use serde_json::json;

/// Modules of sentence-transformers, as versions up to 5 and since 6 call them.
const NAMES: [[&str; 4]; 2] = [
    [
        "sentence_transformers.models.Transformer",
        "sentence_transformers.models.Pooling",
        "sentence_transformers.models.Dense",
        "sentence_transformers.models.Normalize",
    ],
    [
        "sentence_transformers.base.modules.transformer.Transformer",
        "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
        "sentence_transformers.base.modules.dense.Dense",
        "sentence_transformers.base.modules.normalize.Normalize",
    ],
];

/// The embedding found in a folder with these files, which replace a plain embedder's.
fn of(names: [&str; 4], files: &[(&str, Value)]) -> Result<Embedding, String> {
    let folder = Folder::new();
    write_checkpoint(&folder.0, &config("llama"), &[]).unwrap();
    let paths = ["", "1_Pooling", "2_Dense", "3_Normalize"];
    let module = |(i, path): (usize, &str)| json!({ "idx": i, "name": i.to_string(), "path": path, "type": names[i] });
    let list: Vec<Value> = paths.into_iter().enumerate().map(module).collect();
    let tanh = "torch.nn.modules.activation.Tanh";
    let dense = json!({ "in_features": 8, "out_features": 6, "bias": true, "activation_function": tanh });
    let plain = [
        (LIST, json!(list)),
        ("1_Pooling/config.json", json!({ "pooling_mode": "mean" })),
        ("2_Dense/config.json", dense),
    ];
    paths[1..].iter().for_each(|path| std::fs::create_dir(folder.0.join(path)).unwrap());
    for (name, value) in plain.iter().chain(files) {
        folder.write(name, value.to_string());
    }
    let found = found(&Checkpoint::open(&folder.0).unwrap());
    found.map(|e| e.unwrap()).map_err(|e| e.to_string().replace(&*folder.0.to_string_lossy(), "DIR"))
}

fn refused(file: &str, value: Value) -> String {
    of(NAMES[1], &[(file, value)]).unwrap_err()
}

#[test]
fn modules_by_their_names() {
    let dense = Dense { folder: "2_Dense".into(), inner: 8, out: 6, bias: true, act: Some(UnaryOp::Tanh) };
    let want = Embedding { pool: Pool::Mean, normalize: true, layers: vec![dense], keep: None };
    for names in NAMES {
        assert_eq!(of(names, &[]).unwrap(), want);
    }
    for (i, name) in [(0, "custom_st.Transformer"), (2, "pylate.models.Dense.Dense"), (3, "my.Normalize")] {
        let mut names = NAMES[1];
        names[i] = name;
        let error = of(names, &[]).unwrap_err();
        assert!(error.contains(&format!("module {i} is `{name}`")), "{error}");
    }
}

#[test]
fn ways_of_pooling() {
    let pool = |settings: Value| {
        let linear =
            json!({ "in_features": 8, "out_features": 6, "bias": false, "activation_function": "torch.nn.Identity" });
        of(NAMES[0], &[("1_Pooling/config.json", settings), ("2_Dense/config.json", linear)]).map(|e| e.pool)
    };
    assert_eq!(pool(json!({ "pooling_mode": ["cls"] })), Ok(Pool::First));
    assert_eq!(pool(json!({ "pooling_mode": "weightedmean" })), Ok(Pool::Weighted));
    assert_eq!(
        pool(json!({ "pooling_mode_mean_sqrt_len_tokens": true, "pooling_mode_mean_tokens": false })),
        Ok(Pool::Root)
    );
    assert_eq!(pool(json!({ "pooling_mode_lasttoken": true })), Ok(Pool::Last));
    assert_eq!(pool(json!({})), Ok(Pool::Mean));
    for several in [
        json!({ "pooling_mode": ["cls", "mean"] }),
        json!({ "pooling_mode_cls_token": true, "pooling_mode_max_tokens": true }),
    ] {
        assert!(pool(several).unwrap_err().contains("several ways of pooling are asked for"));
    }
    assert!(pool(json!({ "pooling_mode": 3 })).unwrap_err().contains("`pooling_mode` is 3"));
    assert!(pool(json!({ "pooling_mode": "median" })).unwrap_err().contains("pooling is `median`"));
    // Modules before the pooling here came after it there.
    assert!(pool(json!({ "pooling_mode": "max" })).unwrap_err().contains("`2_Dense` comes after a pooling"));
    for mode in ["mean_sqrt_len_tokens", "weightedmean"] {
        let error = refused("1_Pooling/config.json", json!({ "pooling_mode": mode }));
        assert!(error.contains("`2_Dense` comes after a pooling, and cannot be moved before it"), "{error}");
    }
}

#[test]
fn settings_that_change_rows() {
    let dense = |name: &str, value: Value| {
        let mut settings = json!({ "in_features": 8, "out_features": 8, "activation_function": "torch.nn.Identity" });
        settings[name] = value;
        refused("2_Dense/config.json", settings)
    };
    assert!(dense("use_residual", json!(true)).contains("`use_residual` is true"));
    assert!(
        dense("module_input_name", json!("token_embeddings")).contains("`module_input_name` is \"token_embeddings\"")
    );
    assert!(
        dense("activation_function", json!("mine.Identity")).contains("`activation_function` is \"mine.Identity\"")
    );
    let tokens = json!({ "module_input_name": "token_embeddings" });
    assert!(refused("3_Normalize/config.json", tokens).contains("DIR/3_Normalize/config.json: `module_input_name`"));
    let pooler =
        json!({ "modality_config": { "text": { "method": "forward", "method_output_name": "pooler_output" } } });
    assert!(refused("sentence_bert_config.json", pooler).contains("`method_output_name` is \"pooler_output\""));
    assert!(
        refused("sentence_bert_config.json", json!({ "transformer_task": "fill-mask" })).contains("`transformer_task`")
    );
    assert!(refused(SETTINGS, json!({ "truncate_dim": 0 })).contains("`truncate_dim` is 0"));
    assert_eq!(of(NAMES[1], &[(SETTINGS, json!({ "truncate_dim": 5 }))]).unwrap().keep, Some(5));
    let prompts = json!({ "prompts": { "q": "query: " }, "default_prompt_name": "q" });
    let apart = json!({ "pooling_mode": "mean", "include_prompt": false });
    let error = of(NAMES[1], &[(SETTINGS, prompts), ("1_Pooling/config.json", apart)]).unwrap_err();
    assert!(error.contains("`include_prompt` is false"), "{error}");
}
