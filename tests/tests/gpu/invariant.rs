//! Models compiled with `--invariant`: a sequence has the same bits in any batch and any pieces.

use super::{CompileOptions, compile, gpu_options, ready};
use llmcc_cli::loaded::Model;
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::Format;
use llmcc_ir::target;
use llmcc_test_support::Rng;
use llmcc_tests::{Golden, goldens, logits_in_pieces, options};

/// Tokens of each sequence: prompts of more than one tile of rows and of less, and single tokens.
const LENGTHS: [usize; 5] = [70, 21, 9, 1, 1];

/// The example model with one of its layers, so that the emulator is done soon: products of 256 and 512 columns,
/// which the usual kernels of few and of many rows add in different orders.
fn example(format: Option<&str>, kv: KvDType, invariant: bool) -> (tempfile::TempDir, CompileOptions) {
    let from = llmcc_tests::root().join("examples/tiny-llama/model");
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = llmcc_tests::config(&from);
    config["num_hidden_layers"] = 1.into();
    std::fs::write(folder.path().join("config.json"), config.to_string()).expect("written");
    std::fs::copy(from.join("model.safetensors"), folder.path().join("model.safetensors")).expect("copied");
    let sm90 = target::find("sm90").expect("a target");
    let targets = if invariant { llmcc_cli::session::invariant(vec![sm90]) } else { vec![sm90] };
    let weights = format.map(|f| Format::parse(f).expect("a format"));
    let options =
        CompileOptions { targets, weights, kv: Some(kv), act: None, ignore_unused: true, ..options(folder.path()) };
    (folder, options)
}

/// Computes all sequences in steps that take so many tokens of some of them; the bits of all rows of each.
fn rows(model: &Model, tokens: &[Vec<i32>], steps: &[Vec<(usize, usize)>]) -> Vec<Vec<u32>> {
    let seqs: Vec<i32> = tokens.iter().map(|_| model.seq_new().expect("a sequence")).collect();
    let (mut at, mut out) = (vec![0; tokens.len()], vec![vec![]; tokens.len()]);
    for step in steps {
        let (mut of_step, mut of_seqs) = (vec![], vec![]);
        for (i, n) in step {
            of_step.extend_from_slice(&tokens[*i][at[*i]..at[*i] + n]);
            of_seqs.extend(vec![seqs[*i]; *n]);
            at[*i] += n;
        }
        let wanted: Vec<u32> = (0..of_step.len() as u32).collect();
        let logits = model.step(&of_step, &of_seqs, &wanted).expect("a step");
        let columns = logits.len() / of_step.len();
        let mut logits = logits.chunks(columns);
        for (i, n) in step {
            out[*i].extend(logits.by_ref().take(*n).flatten().map(|x| x.to_bits()));
        }
    }
    assert!(at.iter().zip(tokens).all(|(at, tokens)| *at == tokens.len()), "all tokens");
    seqs.iter().for_each(|s| model.seq_free(*s).expect("free"));
    out
}

/// Steps with random pieces of random sequences, in random order.
fn ragged(rng: &mut Rng) -> Vec<Vec<(usize, usize)>> {
    let mut left = LENGTHS;
    let mut steps = vec![];
    while left.iter().any(|n| *n > 0) {
        let mut step: Vec<(usize, usize)> = vec![];
        for (i, left) in left.iter_mut().enumerate() {
            let n = [0, 1, *left / 2, *left][rng.below(0, 4)].min(*left);
            if n > 0 {
                step.insert(rng.below(0, step.len() + 1), (i, n));
                *left -= n;
            }
        }
        if !step.is_empty() {
            steps.push(step);
        }
    }
    steps
}

/// Whether every sequence has the bits that it has alone and whole: beside all others, in pieces, and in ragged steps.
fn same_in_any_batch(model: &Model) -> bool {
    let mut rng = Rng::new(71);
    let tokens: Vec<Vec<i32>> = LENGTHS.iter().map(|n| (0..*n).map(|_| rng.below(2, 500) as i32).collect()).collect();
    let alone: Vec<_> = LENGTHS.iter().enumerate().map(|(i, n)| vec![(i, *n)]).collect();
    let together = vec![LENGTHS.iter().copied().enumerate().collect()];
    let wanted = rows(model, &tokens, &alone);
    let others = [together, ragged(&mut rng)];
    others.iter().all(|steps| rows(model, &tokens, steps) == wanted)
}

#[test]
fn a_sequence_has_the_same_bits_in_any_batch_and_any_pieces() {
    if !ready() {
        return;
    }
    for (format, kv) in [(None, KvDType::Bf16), (Some("w4g32"), KvDType::Int8)] {
        let (_folder, options) = example(format, kv, true);
        assert!(same_in_any_batch(&compile(&options).open(1)), "{format:?}");
    }
    let (_folder, options) = example(None, KvDType::Bf16, false);
    assert!(!same_in_any_batch(&compile(&options).open(1)), "else there is nothing to be asked for");
}

/// Biases by distance and products of 192 columns, softcaps, experts with latent caches, states of fixed size.
const KINDS: [&str; 5] = ["bloom", "gemma2", "deepseek_v3", "qwen3_5_moe", "bamba"];

/// The bits of a prompt's rows, in pieces.
fn in_pieces(model: &Model, tokens: &[i32], pieces: &[usize]) -> Vec<u32> {
    logits_in_pieces(model, tokens, pieces).iter().map(|x| x.to_bits()).collect()
}

/// (Usual kernels give most small models the same bits, too: what they add in other orders differs in the last bit of
/// f32, which is lost when rows are rounded to bf16, as a rule.)
#[test]
fn prompts_of_all_kinds_have_the_same_bits_in_any_pieces() {
    if !ready() {
        return;
    }
    for name in KINDS.into_iter().filter(|name| goldens().any(|other| other == *name)) {
        let options = gpu_options(name, "bf16", KvDType::Bf16);
        let targets = llmcc_cli::session::invariant(options.targets.clone());
        let model = compile(&CompileOptions { targets, ..options }).open(1);
        let tokens = Golden::load(name).tokens;
        let whole = in_pieces(&model, &tokens, &[40]);
        for pieces in [&[7, 13, 3, 17][..], &[1]] {
            assert!(in_pieces(&model, &tokens, pieces) == whole, "{name} in pieces of {pieces:?}");
        }
    }
}
