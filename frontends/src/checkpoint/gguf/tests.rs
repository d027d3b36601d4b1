mod drafts;
mod families;
mod forms;
mod images;
mod keys;
mod newest;
mod widths;

use super::*;
use crate::arch::{self, Model};
use crate::checkpoint::Checkpoint;
use crate::testing::{golden, shared};
use crate::tokenizer::TextAssets;
use crate::{Options, lift};
use llmcc_ir::quant::CodedRow;
use std::collections::BTreeMap;
use std::path::Path;

fn open(path: &Path) -> Checkpoint {
    Checkpoint::open(path).unwrap_or_else(|e| panic!("{e}"))
}

/// Every type decodes to the same bits as with llama.cpp's own package.
#[test]
fn blocks_decode_as_the_reference() {
    let ckpt = open(&golden("gguf/blocks.gguf"));
    let names: Vec<&str> = ckpt.names().filter(|n| !n.ends_with(".values")).collect();
    assert_eq!(names.len(), 24);
    for name in names {
        let (ours, wanted) = (ckpt.to_f32(name).unwrap(), ckpt.to_f32(&format!("{name}.values")).unwrap());
        assert_eq!(ours.len(), 512);
        let differ = ours.iter().zip(&wanted).position(|(a, b)| a != b);
        assert_eq!(differ.map(|i| (i, ours[i], wanted[i])), None, "{name}");
    }
}

/// A converted model has the weights that it had before, under the names that it had, rows of heads
/// in their order.
#[test]
fn a_converted_model_is_the_same() {
    let (converted, original) = (open(&golden("gguf/llama_f16.gguf")), open(&golden("llama_f16")));
    assert!(converted.names().eq(original.names()));
    for name in original.names() {
        assert_eq!(converted.info(name).unwrap().shape, original.info(name).unwrap().shape, "{name}");
        assert_eq!(converted.to_f32(name), original.to_f32(name), "{name}");
    }
    let (a, b) = (arch::config(&converted).unwrap(), arch::config(&original).unwrap());
    assert_eq!(
        (a.arch.model_type, a.facts().layers, a.facts().tied),
        (b.arch.model_type, b.facts().layers, b.facts().tied)
    );
    assert!(a.unread.is_empty(), "{:?}", a.unread);
    let module = lift(&converted, &Options::default()).unwrap();
    assert_eq!(crate::unused::find(&converted, &module).unwrap(), None);
    assert_eq!(module.funcs.len(), lift(&original, &Options::default()).unwrap().funcs.len());
}

/// Blocks by llama.cpp's own quantizer stand for the numbers that they were made of.
#[test]
fn blocks_of_the_quantizer_are_near_its_input() {
    let Some(folder) = shared("ggml_quants") else { return };
    let types = [
        ("q8_0", 64, 0.01),
        ("q6_k", 512, 0.03),
        ("q4_k", 512, 0.1),
        ("q4_0", 64, 0.12),
        ("q4_1", 64, 0.12),
        ("q2_k", 512, 0.3),
    ];
    for (name, columns, most) in types {
        let ty = blocks::named(&name.to_uppercase()).unwrap();
        let format = ty.stored.dtype.and_then(|t| t.coded()).unwrap();
        for variant in ["im", "noim"] {
            let file = |end: &str| std::fs::read(folder.join(format!("{name}_{columns}_{variant}_{end}.bin"))).unwrap();
            let (input, stored) = (file("input"), file("expected"));
            let wanted: Vec<f32> = input.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
            let mut row = CodedRow::new(&format.encoding(), columns);
            let mut ours = vec![0f32; wanted.len()];
            let size = columns / ty.columns * ty.bytes;
            for (bytes, out) in stored.chunks(size).zip(ours.chunks_mut(columns)) {
                for (i, block) in bytes.chunks(ty.bytes).enumerate() {
                    ty.read.unwrap()(block, &mut row, i * ty.columns);
                }
                row.decode(&format.encoding(), out);
            }
            let error: f64 = ours.iter().zip(&wanted).map(|(a, b)| f64::from(a - b).powi(2)).sum();
            let signal: f64 = wanted.iter().map(|v| f64::from(*v).powi(2)).sum();
            assert!((error / signal).sqrt() < most, "{name} {variant}: {}", (error / signal).sqrt());
        }
    }
}

/// The vocabulary in a file cuts a text as the model's own tokenizer does.
#[test]
fn vocabularies_are_read() {
    let Some(folder) = shared("stories260K") else { return };
    let expected: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("expected/prompt_ids.json")).unwrap()).unwrap();
    let assets = TextAssets::load(&open(&folder.join("gguf/stories260K-Q4_0.gguf"))).unwrap();
    assert_eq!(assets.text_config["add_bos"], true);
    assert_eq!(assets.text_config["bos_token_id"], 1);
    let tokenizer: tokenizers::Tokenizer = String::from_utf8(assets.tokenizer_json.unwrap()).unwrap().parse().unwrap();
    let ids = tokenizer.encode(expected["prompt"].as_str().unwrap(), false).unwrap();
    let ids: Vec<u32> = std::iter::once(1).chain(ids.get_ids().iter().copied()).collect();
    assert_eq!(serde_json::to_value(ids).unwrap(), expected["ids"]);
}

/// Every tensor that llama.cpp's converter writes for these models has the name that the
/// architecture asks for.
#[test]
fn names_are_those_of_the_converter() {
    let Some(folder) = shared("ollama_hf_to_gguf_expected") else { return };
    for file in ["Meta-Llama-3-8B-Instruct", "Mistral-7B-Instruct-v0.2", "Qwen2.5-0.5B-Instruct"] {
        let text = std::fs::read(folder.join(format!("{file}.json"))).unwrap();
        let all: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&text).unwrap();
        let tensors: Vec<&String> = all.keys().filter(|k| k.ends_with(".weight") || k.ends_with(".bias")).collect();
        assert!(tensors.len() > 200, "{file}");
        for name in tensors.into_iter().filter(|n| *n != "rope_freqs.weight") {
            let found = names::hugging_face(name, &[]);
            assert!(found.starts_with("model.") || found.starts_with("lm_head."), "{file}: {name}");
        }
    }
}

/// A file of these entries of metadata (type and bytes behind the key) and tensors (name,
/// dimensions, type, offset), and so many bytes of data.
fn file(metadata: &[(&str, u32, Vec<u8>)], tensors: &[(&str, &[u64], u32, u64)], data: usize) -> Vec<u8> {
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    let text = |out: &mut Vec<u8>, s: &str| {
        out.extend((s.len() as u64).to_le_bytes());
        out.extend(s.as_bytes());
    };
    for (key, kind, value) in metadata {
        text(&mut out, key);
        out.extend(kind.to_le_bytes());
        out.extend(value);
    }
    for (name, dims, kind, offset) in tensors {
        text(&mut out, name);
        out.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
        out.extend(kind.to_le_bytes());
        out.extend(offset.to_le_bytes());
    }
    let start = out.len().next_multiple_of(32);
    out.resize(start + data, 0);
    out
}

fn error(bytes: &[u8]) -> String {
    parse(bytes).unwrap_err().to_string()
}

#[test]
fn malformed_files_say_what_is_wrong() {
    let sound = file(&[("a", 4, vec![7, 0, 0, 0])], &[("t", &[32, 2], 8, 0)], 68);
    assert_eq!(parse(&sound).unwrap().tensors["t"].shape, [2, 32]);
    let mut other = sound.clone();
    other[4] = 1;
    assert!(error(&other).starts_with("byte 4 of the file: version 1 of GGUF is unknown"));
    other[4..8].copy_from_slice(&3u32.to_be_bytes());
    assert!(error(&other).contains("big-endian"));
    assert!(error(b"GGML").contains("not a GGUF file"));
    assert!(error(&file(&[], &[("t", &[33, 2], 8, 0)], 68)).contains("not a whole number of blocks"));
    assert!(error(&file(&[], &[("t", &[32, u64::MAX / 2], 8, 0)], 68)).contains("not a whole number of blocks"));
    assert!(error(&file(&[], &[("t", &[32, 2], 8, 0)], 67)).contains("ends beyond the file"));
    assert!(error(&file(&[], &[("t", &[32, 2], 8, 8)], 68)).contains("not a multiple of 32"));
    assert!(error(&file(&[], &[("t", &[32, 2], 41, 0)], 68)).contains("Q1_0, which is not supported"));
    assert!(error(&file(&[], &[("t", &[32], 0, 0), ("u", &[32], 0, 64)], 256)).contains("tensors `t` and `u` overlap"));
    assert!(error(&file(&[], &[("t", &[32], 0, 0), ("t", &[32], 0, 128)], 256)).contains("tensor `t` appears twice"));
    let twice = vec![("a", 4, vec![0; 4]), ("a", 4, vec![0; 4])];
    assert!(error(&file(&twice, &[], 0)).contains("key `a` appears twice"));
    let list = |kind: u32, n: u64| [kind.to_le_bytes().as_slice(), &n.to_le_bytes()].concat();
    assert!(error(&file(&[("a", 9, list(9, 1))], &[], 0)).contains("list of lists"));
    assert!(error(&file(&[("a", 9, list(8, 1 << 40))], &[], 0)).contains("claims 1099511627776 elements"));
    assert!(error(&file(&[("a", 8, (1u64 << 60).to_le_bytes().to_vec())], &[], 0)).contains("bytes, but only"));
    let mut many = sound.clone();
    many[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(error(&many).contains("tensors, with"));
}

/// Cut anywhere, or with any byte changed, a file is read or refused; tensors lie in it.
#[test]
fn damaged_files_do_no_harm() {
    let whole = std::fs::read(golden("gguf/blocks.gguf")).unwrap();
    let header = 4096;
    assert!((0..header).all(|len| parse(&whole[..len]).is_err()));
    let mut file = whole.clone();
    for at in 0..header {
        for byte in [0, 1, 0x7f, 0xff] {
            file[at] = byte;
            let tensors = parse(&file).map(|h| h.tensors).unwrap_or_default();
            assert!(tensors.values().all(|t| t.bytes.end <= file.len() && t.bytes.start <= t.bytes.end));
        }
        file[at] = whole[at];
    }
}

/// Files that other readers stumble over end in a message, not in a model.
#[test]
fn foreign_files_are_refused_in_words() {
    let Some(folder) = shared("container_fixtures") else { return };
    let files = std::fs::read_dir(folder.join("iree")).unwrap().flatten().map(|e| e.path());
    for path in files.filter(|p| p.extension().is_some_and(|e| e == "gguf")) {
        let text = Checkpoint::open(&path).map(|c| arch::config(&c).map(|_: Model| ()));
        let message = match text {
            Err(e) | Ok(Err(e)) => e.to_string(),
            Ok(Ok(())) => panic!("{} passed", path.display()),
        };
        assert!(message.starts_with(&*path.to_string_lossy()) && message.contains("; "), "{message}");
    }
}

/// A file whose experts are one tensor has a matrix for each.
#[test]
fn experts_are_taken_apart() {
    let number = |n: u64| Value::Unsigned(n);
    let mut metadata = Metadata::from([("general.architecture".into(), Value::Text("qwen3moe".into()))]);
    let keys = [
        ("context_length", 64),
        ("embedding_length", 64),
        ("block_count", 1),
        ("feed_forward_length", 96),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("attention.key_length", 32),
        ("expert_count", 3),
        ("expert_used_count", 2),
        ("expert_feed_forward_length", 32),
    ];
    metadata.extend(keys.into_iter().map(|(key, n)| (format!("qwen3moe.{key}"), number(n))));
    metadata.insert("qwen3moe.attention.layer_norm_rms_epsilon".into(), Value::Float(1e-6));
    let ty = blocks::named("Q8_0").unwrap();
    let info = TensorInfo { dtype: &ty.stored, shape: vec![3, 32, 64], bytes: 1000..1000 + 3 * 32 * 68 };
    let table = TensorInfo { dtype: &ty.stored, shape: vec![8, 64], bytes: 0..8 * 68 };
    let tensors =
        BTreeMap::from([("blk.0.ffn_up_exps.weight".into(), (0, info)), ("token_embd.weight".into(), (0, table))]);
    let model = model::describe(&metadata, tensors, &|_, _| vec![], crate::opening::declares)
        .unwrap_or_else(|(what, _)| panic!("{what}"));
    let names: Vec<&String> = model.tensors.keys().collect();
    assert_eq!(names[1], "model.layers.0.mlp.experts.0.up_proj.weight");
    assert_eq!(names.len(), 4);
    let last = &model.tensors["model.layers.0.mlp.experts.2.up_proj.weight"];
    assert_eq!((&last.info.shape[..], last.info.bytes.clone()), (&[32, 64][..], 1000 + 2 * 2176..1000 + 3 * 2176));
    assert_eq!(last.parts(), [(0, last.info.bytes.clone())]);
    let read = Model::parse(&model.config).unwrap();
    assert_eq!((read.arch.model_type, read.unread), ("qwen3_moe", vec![]));
}

/// Gate and up are one matrix in Transformers: of one type it keeps its codes, of two it is read as
/// f32, and that is told.
#[test]
fn matrices_of_two_types_are_joined_as_floats() {
    let of = |up: &str| {
        let keys = [
            ("context_length", 64),
            ("embedding_length", 64),
            ("block_count", 1),
            ("feed_forward_length", 96),
            ("attention.head_count", 2),
            ("ssm.inner_size", 128),
            ("ssm.time_step_rank", 8),
            ("ssm.group_count", 1),
            ("ssm.state_size", 16),
            ("ssm.conv_kernel", 4),
        ];
        let mut metadata = Metadata::from([("general.architecture".into(), Value::Text("granitehybrid".into()))]);
        metadata.extend(keys.map(|(key, n)| (format!("granitehybrid.{key}"), Value::Unsigned(n))));
        metadata.insert("granitehybrid.attention.head_count_kv".into(), Value::Unsigned(2));
        metadata.insert("granitehybrid.embedding_scale".into(), Value::Float(12.0));
        metadata.insert("granitehybrid.attention.layer_norm_rms_epsilon".into(), Value::Float(1e-5));
        let matrix = |ty: &str, n: usize| {
            let ty = blocks::named(ty).unwrap();
            (0, TensorInfo { dtype: &ty.stored, shape: vec![n, 64], bytes: 0..n * 64 / ty.columns * ty.bytes })
        };
        let tensors = BTreeMap::from([
            ("blk.0.ffn_gate.weight".into(), matrix("Q8_0", 96)),
            ("blk.0.ffn_up.weight".into(), matrix(up, 96)),
            ("token_embd.weight".into(), matrix("Q8_0", 8)),
        ]);
        let model = model::describe(&metadata, tensors, &|_, _| vec![], crate::opening::declares)
            .unwrap_or_else(|(what, _)| panic!("{what}"));
        let joined = &model.tensors["model.layers.0.shared_mlp.input_linear.weight"];
        assert_eq!(joined.info.shape, [192, 64]);
        (std::ptr::eq(joined.info.dtype, blocks::floats()), model.notes)
    };
    assert_eq!(of("Q8_0"), (false, vec![]));
    let note = "`blk.0.ffn_gate.weight`, `blk.0.ffn_up.weight` have different types but are joined into one \
        matrix: it is read as f32";
    assert_eq!(of("Q4_0"), (true, vec![note.to_string()]));
}
