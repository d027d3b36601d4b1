//! Values of configurations and tables of experts.

use crate::arch::Model;
use crate::checkpoint::Checkpoint;
use crate::fixtures::{random_tensors, write_checkpoint};
use crate::testing::{Folder, config, with};
use crate::{Options, lift};
use serde_json::{Value, json};

const ARCH: &str = "deepseek_v4";

fn read(changes: Value) -> Result<Model, String> {
    Model::parse(&with(config(ARCH), changes)).map_err(|e| e.to_string())
}

/// Older files have lengths of windows where newer ones have words, and kinds of rotation apart.
#[test]
fn kinds_of_layers_by_all_their_names() {
    let shape = |changes: Value| {
        let model = read(changes).unwrap();
        format!("{:?}", model.shape)
    };
    let older = shape(json!({ "compress_ratios": [4, 0] }));
    let types = json!(["compressed_sparse_attention", "sliding_attention"]);
    assert_eq!(shape(json!({ "compress_ratios": "absent", "layer_types": types })), older);
    let first = shape(json!({ "compress_ratios": "absent" }));
    assert_eq!(first, shape(json!({ "compress_ratios": [128, 128] })));
    assert_eq!(
        shape(json!({ "num_hash_layers": "absent", "mlp_layer_types": ["hash_moe", "moe"] })),
        shape(json!({ "num_hash_layers": 1 }))
    );
    // A rotation that is scaled is one of layers with windows alone, and keeps its magnitude.
    let yarn = json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16 });
    let scaled = shape(json!({ "rope_scaling": yarn }));
    assert!(scaled.contains("theta: 10000.0, dim: 6, scaling: Default"), "{scaled}");
    assert!(scaled.contains("theta: 160000.0, dim: 6, scaling: Yarn { factor: 4.0, attention_factor: 1.0"), "{scaled}");
}

#[test]
fn what_means_nothing_is_refused() {
    for (changes, words) in [
        (json!({ "compress_ratios": [4] }), "must be 0, 4 or 128 for each of 2 layers"),
        (json!({ "compress_ratios": [4, 7] }), "must be 0, 4 or 128"),
        (json!({ "compress_rates": { "linear_attention": 3 } }), "linear_attention: 3"),
        (json!({ "compress_rate_csa": 1 }), "at least 2"),
        (json!({ "o_groups": 3 }), "a divisor of `num_attention_heads` (4)"),
        (json!({ "qk_rope_head_dim": 5 }), "even"),
        (json!({ "num_key_value_heads": 2 }), "one row for the keys and values of all heads"),
        (json!({ "scoring_func": "softmax" }), "`scoring_func` is \"softmax\""),
        (json!({ "mlp_layer_types": ["moe"] }), "for each of 2 layers"),
    ] {
        let message = read(changes.clone()).expect_err("refused");
        assert!(message.contains(words), "{changes}: {message}");
    }
}

/// Tables that name missing experts, or one twice, and tables of another type.
#[test]
fn tables_of_experts_are_checked() {
    let json = config(ARCH);
    let read = |edit: &dyn Fn(&mut crate::fixtures::Tensor)| {
        let (folder, mut tensors) = (Folder::new(), random_tensors(&json, 1));
        let table = tensors.iter_mut().find(|t| t.name == "model.layers.1.ffn.gate.tid2eid").unwrap();
        edit(table);
        write_checkpoint(&folder.0, &json, &tensors).unwrap();
        let ckpt = Checkpoint::open(&folder.0).unwrap();
        lift(&ckpt, &Options::default()).map(|_| ()).map_err(|e| e.to_string())
    };
    assert_eq!(read(&|_| ()), Ok(()));
    let number = |t: &mut crate::fixtures::Tensor, at: usize, n: i64| {
        t.data[at * 8..][..8].copy_from_slice(&n.to_le_bytes());
    };
    for (at, n, words) in
        [(2, 12, "has [12, 1] in row 1"), (5, -1, "has [0, -1] in row 2"), (7, 0, "has [0, 0] in row 3")]
    {
        let message = read(&|t| number(t, at, n)).unwrap_err();
        assert!(message.contains(words) && message.contains("whole numbers below 12"), "{message}");
    }
    let narrow = |t: &mut crate::fixtures::Tensor| {
        t.data = t.data.chunks(8).flat_map(|b| b[..4].to_vec()).collect();
        t.dtype = "I32";
    };
    assert_eq!(read(&narrow), Ok(()));
    let message = read(&|t| {
        narrow(t);
        t.dtype = "F32";
    })
    .unwrap_err();
    assert!(message.contains("is stored as F32"), "{message}");
}
