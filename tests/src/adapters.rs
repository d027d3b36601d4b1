//! Adapters that are loaded while a model runs, for tests of every target.

use crate::{golden, options};
use llmcc_cli::loaded::Model;
use llmcc_cli::session::CompileOptions;
use llmcc_frontends::slots::AdapterSlots;
use safetensors::SafeTensors;
use std::path::PathBuf;

/// The folder of an adapter of `tests/goldens/slots`.
pub fn adapter(name: &str) -> PathBuf {
    golden("slots").join(name)
}

/// Options for a fixture of `tests/goldens/adapters` with room for so many adapters of a rank.
pub fn with_slots(base: &str, count: usize, rank: usize) -> CompileOptions {
    CompileOptions {
        slots: Some(AdapterSlots { count, rank, wide: None, targets: vec![] }),
        ..options(&golden("adapters").join(base))
    }
}

/// Tokens, and the logits after each of them, that PEFT computes with an adapter in f64.
pub fn reference(name: &str) -> (Vec<i32>, Vec<f64>) {
    let bytes = std::fs::read(adapter(name).join("logits.safetensors")).expect("a fixture");
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    let data = |name: &str| file.tensor(name).expect("a tensor").data().to_vec();
    let tokens = data("tokens").chunks(4).map(|b| i32::from_le_bytes(b.try_into().expect("four"))).collect();
    let logits = data("logits").chunks(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight"))).collect();
    (tokens, logits)
}

/// A new sequence with an adapter.
pub fn sequence(model: &Model, adapter: i32) -> i32 {
    let seq = model.seq_new().expect("a sequence");
    model.seq_set_adapter(seq, adapter).expect("an adapter");
    seq
}

/// Bits of the logits after each of `tokens`, in steps of up to `chunk`.
pub fn logits(model: &Model, adapter: i32, tokens: &[i32], chunk: usize) -> Vec<u32> {
    let seq = sequence(model, adapter);
    let step = |tokens: &[i32]| {
        let rows: Vec<u32> = (0..tokens.len() as u32).collect();
        model.step(tokens, &vec![seq; tokens.len()], &rows).expect("a step")
    };
    let out = tokens.chunks(chunk).flat_map(step).map(f32::to_bits).collect();
    model.seq_free(seq).expect("freed");
    out
}

/// Numbers of bits.
pub fn floats(bits: &[u32]) -> Vec<f64> {
    bits.iter().map(|b| f64::from(f32::from_bits(*b))).collect()
}

/// The largest difference, relative to the largest number.
pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let most = b.iter().fold(0f64, |m, x| m.max(x.abs()));
    a.iter().zip(b).fold(0f64, |m, (a, b)| m.max((a - b).abs())) / most
}

/// All sequences in the same steps: prompts of different lengths, then single tokens.
pub fn together(model: &Model, adapters: &[i32], tokens: &[i32], alone: &[Vec<u32>]) {
    let vocab = model.info().vocab;
    let seqs: Vec<i32> = adapters.iter().map(|a| sequence(model, *a)).collect();
    let mut at: Vec<usize> = vec![0; seqs.len()];
    for step in 0.. {
        let (mut batch, mut of, mut rows) = (vec![], vec![], vec![]);
        for (s, seq) in seqs.iter().enumerate() {
            let n = if step == 0 { 3 * s + 1 } else { 1 }.min(tokens.len() - at[s]);
            batch.extend_from_slice(&tokens[at[s]..][..n]);
            of.extend(vec![*seq; n]);
            rows.extend((at[s]..at[s] + n).map(|i| (s, i)));
            at[s] += n;
        }
        if batch.is_empty() {
            break;
        }
        let wanted: Vec<u32> = (0..batch.len() as u32).collect();
        let got = model.step(&batch, &of, &wanted).expect("a step");
        for ((s, i), got) in rows.into_iter().zip(got.chunks(vocab)) {
            let got: Vec<u32> = got.iter().map(|x| x.to_bits()).collect();
            assert_eq!(got, alone[s][i * vocab..][..vocab], "sequence {s}, token {i}");
        }
    }
    seqs.iter().for_each(|seq| model.seq_free(*seq).expect("freed"));
}
