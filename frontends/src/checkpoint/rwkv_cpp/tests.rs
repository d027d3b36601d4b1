use crate::arch;
use crate::checkpoint::{Checkpoint, fuzz_rwkv_cpp};
use crate::testing::{Folder, golden, shared};
use crate::tokenizer::TextAssets;
use crate::{Options, lift};
use half::f16;
use serde_json::Value;

/// A tensor of a file: name, dimensions with the outermost first, type, elements.
type Made = (String, Vec<usize>, u32, Vec<u8>);

fn file(version: u32, [vocab, hidden, layers]: [u32; 3], tensors: &[Made]) -> Vec<u8> {
    let mut out = b"fmgg".to_vec();
    out.extend([version, vocab, hidden, layers, 0].iter().flat_map(|n| n.to_le_bytes()));
    for (name, shape, kind, data) in tensors {
        out.extend([shape.len() as u32, name.len() as u32, *kind].iter().flat_map(|n| n.to_le_bytes()));
        out.extend(shape.iter().rev().flat_map(|n| (*n as u32).to_le_bytes()));
        out.extend(name.as_bytes());
        out.extend(data);
    }
    out
}

fn floats(name: &str, shape: &[usize], values: &[f32]) -> Made {
    (name.into(), shape.to_vec(), 0, values.iter().flat_map(|v| v.to_le_bytes()).collect())
}

/// The last two dimensions exchanged.
fn turned(shape: &[usize], values: &[f32]) -> (Vec<usize>, Vec<f32>) {
    let (mut out, last) = (shape.to_vec(), shape.len());
    out.swap(last - 2, last - 1);
    let (n, k) = (shape[last - 2], shape[last - 1]);
    let one = |m: &[f32]| -> Vec<f32> { (0..k).flat_map(|j| (0..n).map(move |i| m[i * k + j])).collect() };
    (out, values.chunks(n * k).flat_map(one).collect())
}

/// The output of `convert_pytorch_to_ggml.py` for the tensors of a fixture.
fn converted(ckpt: &Checkpoint, version: u32) -> Vec<Made> {
    let heads = ckpt.info("blocks.0.att.time_faaaa").map_or(0, |t| t.shape[0]);
    let mut out: Vec<Made> = vec![];
    let squeezed = |shape: &[usize]| shape.iter().copied().filter(|n| *n > 1).collect::<Vec<usize>>();
    for name in ckpt.names() {
        let (shape, values) = (ckpt.info(name).unwrap().shape.clone(), ckpt.to_f32(name).unwrap());
        let part = name.rsplit('.').next().unwrap();
        let mut plain = |shape: &[usize], values: &[f32]| out.push(floats(name, shape, values));
        match (version, part) {
            (7, part) if name.contains(".att.x_") => {
                if part == "x_r" {
                    let parts = "rwkvag".chars().map(|c| ckpt.to_f32(&name.replace("x_r", &format!("x_{c}"))).unwrap());
                    let (all, n) = (parts.flatten().collect::<Vec<f32>>(), values.len());
                    out.push(floats(&name.replace("x_r", "x_rwkvag"), &[6, 1, n], &all));
                }
            }
            (7, "w1" | "w2" | "a1" | "a2" | "v1" | "v2" | "g1" | "g2")
            | (6, "time_maa_w1" | "time_maa_w2" | "time_decay_w1" | "time_decay_w2") => {
                let (shape, values) = turned(&shape, &values);
                plain(&shape, &values);
            }
            (6, "time_decay") => plain(&[heads, values.len() / heads, 1], &values),
            (5, "time_decay") => {
                let values: Vec<f32> = values.iter().map(|x| (-x.exp()).exp()).collect();
                plain(&[shape[0], shape[1], 1], &values);
            }
            (5 | 6, "time_faaaa") => plain(&[shape[0], shape[1], 1], &values),
            (5 | 6, part) if part.starts_with("time_") => plain(&squeezed(&shape), &values),
            _ => plain(&shape, &values),
        }
    }
    out
}

fn open(bytes: &[u8]) -> (Folder, Result<Checkpoint, String>) {
    let folder = Folder::new();
    folder.write("model.bin", bytes);
    let opened = Checkpoint::open(&folder.0.join("model.bin")).map_err(|e| e.to_string());
    (folder, opened)
}

/// A converted model has the weights, and the configuration, that it had before.
#[test]
fn converted_models_are_the_same() {
    for (version, name) in [(5, "rwkv5_paper"), (6, "rwkv6_paper"), (7, "rwkv7_paper")] {
        let original = Checkpoint::open(&golden(name)).unwrap();
        let (_folder, opened) = open(&file(101, [120, 48, 3], &converted(&original, version)));
        let opened = opened.unwrap();
        assert!(opened.names().eq(original.names()), "{name}");
        for tensor in original.names() {
            assert_eq!(opened.info(tensor).unwrap().shape, original.info(tensor).unwrap().shape, "{name}: {tensor}");
            let (ours, theirs) = (opened.to_f32(tensor).unwrap(), original.to_f32(tensor).unwrap());
            // The decay is rounded to f32, half a unit of 2⁻²⁴ of numbers below 1, by a function that may
            // be a unit off; its logarithm is as far off as that is of the rate.
            let allowed = |x: f32| match tensor.ends_with("time_decay") && version == 5 {
                true => 2f32.powi(-22) / x.exp() + 2f32.powi(-22) * x.abs(),
                false => 0.0,
            };
            let wrong = ours.iter().zip(&theirs).find(|(a, b)| (*a - *b).abs() > allowed(**b));
            assert_eq!(wrong, None, "{name}: {tensor}");
        }
        let fields = ["hidden_size", "intermediate_size", "vocab_size", "num_hidden_layers", "head_size", "head_dim"];
        let ranks = ["decay", "a", "v", "gate"].map(|r| format!("{r}_low_rank_dim"));
        let extra = ["mix", "decay"].map(|r| format!("time_{r}_extra_dim"));
        for field in fields.into_iter().map(String::from).chain(ranks).chain(extra) {
            assert_eq!(opened.config()[&field], original.config()[&field], "{name}: {field}");
        }
        let module = lift(&opened, &Options::default()).unwrap();
        assert_eq!(crate::unused::find(&opened, &module).unwrap(), None);
        assert!(opened.notes().is_empty(), "{:?}", opened.notes());
    }
}

/// A small RWKV-4 with vectors of these numbers and matrices of this type, and blocks of it.
fn four(kind: u32, block: &[u8], per_block: usize) -> Vec<Made> {
    let (vocab, hidden, ffn) = (256, 32, 64);
    let vector = |name: &str, x: f32| floats(name, &[hidden], &vec![x; hidden]);
    let matrix = |name: &str, n: usize, k: usize| (name.into(), vec![n, k], kind, block.repeat(n * k / per_block));
    let norms = ["blocks.0.ln0", "blocks.0.ln1", "blocks.0.ln2", "ln_out"];
    let norms = norms.iter().flat_map(|n| [vector(&format!("{n}.weight"), 1.0), vector(&format!("{n}.bias"), 0.0)]);
    let mixed = ["att.time_mix_k", "att.time_mix_v", "att.time_mix_r", "ffn.time_mix_k", "ffn.time_mix_r"];
    let mixed = mixed.iter().map(|n| vector(&format!("blocks.0.{n}"), 0.5));
    let att =
        ["key", "value", "receptance", "output"].map(|n| matrix(&format!("blocks.0.att.{n}.weight"), hidden, hidden));
    let table = vec![0.25; vocab * hidden];
    norms
        .chain(mixed)
        .chain(att)
        .chain([
            vector("blocks.0.att.time_first", 0.1),
            floats("blocks.0.att.time_decay", &[hidden], &[&[-0.0, -2.0][..], &[-0.5; 30]].concat()),
            matrix("blocks.0.ffn.key.weight", ffn, hidden),
            matrix("blocks.0.ffn.value.weight", hidden, ffn),
            matrix("blocks.0.ffn.receptance.weight", hidden, hidden),
            floats("emb.weight", &[vocab, hidden], &table),
            floats("head.weight", &[vocab, hidden], &table),
        ])
        .collect()
}

const SIZES: [u32; 3] = [256, 32, 1];

/// A block of 32 numbers, from 0 on, times 0.5.
fn q8_0() -> Vec<u8> {
    f16::from_f32(0.5).to_le_bytes().into_iter().chain(0..32).collect()
}

#[test]
fn blocks_stay_codes() {
    let (_folder, opened) = open(&file(101, SIZES, &four(9, &q8_0(), 32)));
    let opened = opened.unwrap();
    for name in ["blocks.0.att.key.weight", "blocks.0.ffn.value.weight"] {
        assert_eq!(opened.info(name).unwrap().dtype.dtype.unwrap().to_string(), "w8g32");
        let wanted: Vec<f32> = (0..32).map(|i| i as f32 * 0.5).collect();
        assert!(opened.to_f32(name).unwrap().chunks(32).all(|block| block == wanted));
    }
    let rates = opened.to_f32("blocks.0.att.time_decay").unwrap();
    assert_eq!(rates[..3], [-104.0, 2f32.ln(), 0.5f32.ln()]);
    assert_eq!(opened.config()["model_type"], "rwkv");
    assert_eq!(opened.config()["eos_token_id"], Value::Null);
    lift(&opened, &Options::default()).unwrap();
    // Every byte is a token.
    let text = TextAssets::load(&opened).unwrap();
    let tokenizer = llmcc_text::check::trial(&text.tokenizer_json.unwrap()).unwrap();
    let ids: Vec<u32> = "\"in é\n\0".bytes().map(u32::from).collect();
    assert_eq!(tokenizer.encode("\"in é\n\0", true).unwrap().get_ids(), ids);
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), "\"in é\n\0");
}

/// Before version 101 blocks were others; floats were the same.
#[test]
fn what_is_not_read_is_refused_in_words() {
    let f32_block = 1f32.to_le_bytes();
    let sound = |version: u32| file(version, SIZES, &four(0, &f32_block, 1));
    let message = |bytes: &[u8]| open(bytes).1.map_or_else(|e| e, |_| "nothing".into());
    assert_eq!((message(&sound(100)), message(&sound(101))), ("nothing".into(), "nothing".into()));
    assert!(message(&sound(102)).contains("a file of rwkv.cpp of version 102, which is not read"));
    let of_blocks = |version: u32, kind: u32| message(&file(version, SIZES, &four(kind, &q8_0(), 32)));
    assert!(of_blocks(100, 9).contains("Q8_0 as it was before version 101, which is not read; convert"));
    assert!(of_blocks(101, 5).contains("Q4_2, which is not read"));
    assert!(of_blocks(101, 10).contains("Q8_1, which is not read"));
    assert!(of_blocks(101, 17).contains("17, which is not known"));
    let mut header = sound(101);
    header[20] = 4;
    assert!(message(&header).contains("the model is of type Q4_1_O, which is not read"));
    header[20] = 0;
    header[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(message(&header).contains("layers (at most 4096 are believed)"));
    let mut older = four(0, &f32_block, 1);
    older.push(floats("blocks.0.att.ln_x.weight", &[32], &[1.0; 32]));
    assert!(message(&file(101, SIZES, &older)).contains("an RWKV-5.0 or 5.1, of which only 5.2 is read"));
    let mut twice = four(0, &f32_block, 1);
    twice.push(twice[0].clone());
    assert!(message(&file(101, SIZES, &twice)).contains("is there twice"));
    let mut other = four(0, &f32_block, 1);
    other.retain(|t| t.0 != "emb.weight");
    assert!(message(&file(101, SIZES, &other)).contains("tensor `emb.weight` is missing"));
    assert!(message(&file(101, [255, 32, 1], &four(0, &f32_block, 1))).contains("`emb.weight` is another table"));
    let wrong = |shape: &[usize]| {
        let mut all = four(0, &f32_block, 1);
        all.retain(|t| t.0 != "blocks.0.att.time_decay");
        all.push(floats("blocks.0.att.time_decay", shape, &[-1.0; 32]));
        message(&file(101, SIZES, &all))
    };
    assert!(wrong(&[8, 4]).contains("`blocks.0.att.time_decay` is F32 [8, 4], which it never is"));
    assert!(wrong(&[1, 1, 1, 32]).contains("claims 4 dimensions (1 to 3)"));
}

/// Cut anywhere, or with any byte changed, a file is read or refused; tensors lie in it.
#[test]
fn damaged_files_do_no_harm() {
    let whole = file(101, SIZES, &four(9, &q8_0(), 32));
    for len in (0..whole.len()).step_by(7) {
        fuzz_rwkv_cpp(&whole[..len]);
    }
    let (mut file, mut read) = (whole.clone(), 0);
    for at in 0..2048 {
        for byte in [0, 1, 0x7f, 0xff] {
            file[at] = byte;
            read += usize::from(fuzz_rwkv_cpp(&file).is_some());
        }
        file[at] = whole[at];
    }
    assert!(read > 0 && read < 4 * 2048, "{read}");
}

/// The published files of one model have the same tensors in every type, as near as the type is.
#[test]
fn published_files_are_read() {
    for version in ["4v0-660K", "5v2-730K", "7v0-834K"] {
        let Some(folder) = shared(&format!("rwkv_tiny_{version}")) else { return };
        let read = |kind: &str| Checkpoint::open(&folder.join(format!("tiny-rwkv-{version}-{kind}.bin"))).unwrap();
        let exact = read("FP32");
        let scales = 2f32.powi(-7);
        let of_types = [
            ("FP16", "f16", 2f32.powi(-11)),
            ("Q5_0", "w5", 1.0 / 16.0 + scales),
            ("Q5_1", "w5a", 1.0 / 31.0 + scales),
        ];
        for (kind, format, most) in of_types {
            let ckpt = read(kind);
            assert!(ckpt.names().eq(exact.names()));
            let of_format = |n: &&str| ckpt.info(n).unwrap().dtype.dtype.unwrap().to_string() == format;
            assert!(ckpt.names().filter(of_format).count() > 20, "{version} {kind}");
            for name in ckpt.names() {
                let (ours, wanted) = (ckpt.to_f32(name).unwrap(), exact.to_f32(name).unwrap());
                // For f16 half a unit; for blocks a step of all numbers relative to the largest, at
                // the short end, or half of a step from the least to the largest, and f16 scales
                // (some subnormal).
                let subnormal = 2f32.powi(-25) * 32.0;
                for (ours, wanted) in ours.chunks(32).zip(wanted.chunks(32)) {
                    let largest = wanted.iter().fold(0f32, |m, v| m.max(v.abs()));
                    let error = ours.iter().zip(wanted).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
                    assert!(error <= most * largest + subnormal, "{version} {kind} {name}: {error} of {largest}");
                }
            }
            arch::config(&ckpt).unwrap();
        }
    }
}
