//! Logits of whole artifacts against Transformers, within the design's tolerance: at most twice the
//! error Transformers' own arithmetic has.

use llmcc_cli::loaded::Model;
use llmcc_codegen::link::WeightsPlace;
use llmcc_ir::kv::KvDType;
use llmcc_tests::left_out::Kinds;
use llmcc_tests::{Artifact, Golden, Pooled, first_goldens, golden, goldens, greedy, logits_in_pieces, options};

/// Prefill in one go, token by token, and in pieces that end inside pages of 16.
const PIECES: &[&[usize]] = &[&[40], &[1], &[7, 16, 3, 14]];

#[test]
fn models_equal_transformers() {
    models(0);
}

#[test]
fn further_models_equal_transformers() {
    models(1);
}

/// Every other fixture, so that two tests use two cores to the end. Each is compiled once. A failure names all
/// fixtures that fail.
fn models(half: usize) {
    let failed: Vec<&str> =
        goldens().skip(half).step_by(2).filter(|name| std::panic::catch_unwind(|| model(name)).is_err()).collect();
    assert!(failed.is_empty(), "these fail, for the reasons above: {failed:?}");
}

fn model(name: &str) {
    let g = Golden::load(name);
    let artifact = Artifact::compile(&options(&golden(name)));
    let model = artifact.open(2);
    if !g.rows.is_empty() {
        logits_equal_transformers(name, &g, &model);
    }
    if !g.greedy.is_empty() {
        assert_eq!(greedy(&model, &g), g.greedy, "{name}");
    }
    if let Some(pooled) = &g.pooled {
        embeddings_equal_transformers(name, pooled, &artifact, &model);
        if let Ok(pairs) = std::fs::read(golden(name).join("pairs.json")) {
            pairs_equal_transformers(name, &pairs, pooled, &artifact.open(1));
        }
    }
}

fn logits_equal_transformers(name: &str, g: &Golden, model: &Model) {
    let allowed = 2.0 * g.reference_error(true);
    // Where a sequence is whole, it comes in one piece.
    for pieces in PIECES.iter().take(if model.info().whole { 1 } else { PIECES.len() }) {
        let error = g.error(&g.logits(model, pieces));
        assert!(error <= allowed, "{name} in pieces of {pieces:?}: error {error:.2e}, allowed {allowed:.2e}");
    }
}

/// Older processors: models with a kind of kernel that none before has. All models run on this one.
#[test]
fn portable_code_equals_transformers() {
    for target in ["x86-64", "x86-64-v3"] {
        let kinds = Kinds::default();
        for name in first_goldens().chain(["llama_bf16", "llama_f16"]) {
            let g = Golden::load(name);
            let mut o = options(&golden(name));
            o.targets = vec![llmcc_cli::session::find_target(target).expect("a target")];
            // Kinds do not tell f16 from f32: these two are never left out.
            let stored = ["llama_bf16", "llama_f16"].contains(&name);
            let leave_out = |kernels: &[llmcc_ir::kernel::Kernel]| kinds.all_known(kernels) && !stored;
            let Some(artifact) = Artifact::compile_unless(&o, leave_out) else { continue };
            // What writes no text may see a text as a whole only.
            let pieces: &[usize] = if g.greedy.is_empty() { &[g.tokens.len()] } else { &[33, 1] };
            let error = g.error(&g.logits(&artifact.open(1), pieces));
            let allowed = 2.0 * g.reference_error(true);
            assert!(error <= allowed, "{name} for {target}: error {error:.2e}, allowed {allowed:.2e}");
        }
    }
}

/// Pooled rows and scores, and that they depend on nothing else in the batch.
fn embeddings_equal_transformers(name: &str, pooled: &Pooled, artifact: &Artifact, model: &Model) {
    let together = model.embed_typed(&pooled.texts, &pooled.types, None).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (error, own) = pooled.errors(&together);
    assert!(error <= 2.0 * own, "{name}: error {error:.2e}, allowed {:.2e}", 2.0 * own);
    let one = artifact.open(1);
    let types = |i: usize| pooled.types.get(i).map(std::slice::from_ref).unwrap_or_default();
    let text = |(i, t)| one.embed_typed(std::slice::from_ref(t), types(i), None).expect("a row");
    let alone: Vec<f32> = pooled.texts.iter().enumerate().flat_map(text).collect();
    assert_eq!(alone, together, "{name}");
    let refused = model.generate(None, &[1], &llmcc_cli::loaded::GenOptions::default());
    assert!(refused.is_err_and(|e| e.to_string().contains("use llmcc_embed")), "{name}");
}

/// Pairs of texts become the tokens that Transformers makes of them, and their scores are those of
/// these tokens; texts alone have the types that the tokenizer gives them; what is too long is told or
/// cut.
fn pairs_equal_transformers(name: &str, pairs: &[u8], pooled: &Pooled, model: &Model) {
    let all: Vec<Vec<String>> = serde_json::from_slice(pairs).expect("texts");
    let pair = |texts: &'_ Vec<String>| Some((texts.first()?.clone(), texts.get(1)?.clone()));
    let pairs: Vec<(String, String)> = all.iter().filter_map(pair).collect();
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    for (i, text) in all.iter().enumerate().skip(pairs.len()) {
        let ids = model.tokenize(&text[0], true).expect("tokens");
        assert_eq!(ids, pooled.texts[i], "{name}: {text:?}");
        let (own, of) = (model.embed(std::slice::from_ref(&ids), None).expect("scores"), &pooled.types[i..=i]);
        assert_eq!(own, model.embed_typed(std::slice::from_ref(&ids), of, None).expect("scores"), "{name}: {text:?}");
        let zeros = [vec![0; ids.len()]];
        assert_ne!(own, model.embed_typed(&[ids], &zeros, None).expect("scores"), "{name}: types count");
    }
    for (i, pair) in pairs.iter().enumerate() {
        let zeros = vec![0; pooled.texts[i].len()];
        let types = pooled.types.get(i).unwrap_or(&zeros);
        let (ids, of) = model.tokenize_pair(*pair, 0).expect("tokens");
        assert_eq!((&ids, &of), (&pooled.texts[i], types), "{name}: {pair:?}");
    }
    let scores = model.score_pairs(&pairs, false).expect("scores");
    let of_tokens = model.embed_typed(&pooled.texts, &pooled.types, None).expect("scores");
    assert_eq!(scores, of_tokens[..scores.len()], "{name}");
    let zeros: Vec<Vec<i32>> = pooled.texts.iter().map(|t| vec![0; t.len()]).collect();
    let untyped = model.embed(&pooled.texts, None).expect("scores");
    let zero = model.embed_typed(&pooled.texts, &zeros, None).expect("scores");
    assert!(untyped == zero || all.len() > pairs.len(), "{name}");
    assert_eq!(untyped != of_tokens, !pooled.types.is_empty(), "{name}: types count");
    let ones: Vec<Vec<i32>> = zeros.iter().map(|t| vec![9; t.len()]).collect();
    let refused = model.embed_typed(&pooled.texts, &ones, None).expect_err("no such type").to_string();
    let why = if pooled.types.is_empty() { "have no types" } else { "is out of range: the model has" };
    assert!(refused.contains(why), "{name}: {refused}");
    let long = pairs[0].1.repeat(200);
    let told = model.score_pairs(&[(pairs[0].0, &long)], false).expect_err("too long").to_string();
    assert!(told.contains("`--truncate`"), "{name}: {told}");
    let (cut, types) = model.tokenize_pair((pairs[0].0, &long), model.info().max_context).expect("cut");
    assert_eq!(cut.len(), model.info().max_context, "{name}");
    let types = if pooled.types.is_empty() { vec![] } else { vec![types] };
    let scores = model.score_pairs(&[(pairs[0].0, &long)], true).expect("cut");
    assert_eq!(scores, model.embed_typed(&[cut], &types, None).expect("scores"), "{name}");
}

#[test]
fn models_of_text_embed_and_score_nothing() {
    let model = Artifact::compile(&options(&golden("qwen3"))).open(1);
    assert!(model.embed(&[vec![1]], None).unwrap_err().to_string().contains("--embed"));
    assert!(model.score_pairs(&[("a", "b")], false).unwrap_err().to_string().contains("ForSequenceClassification"));
}

/// f16 and bf16 storage of an f32 model, and compressed caches, stay within the error of bf16
/// arithmetic in the model.
#[test]
fn reduced_types_stay_within_the_error_of_bf16() {
    for name in ["llama3", "qwen3", "mistral"] {
        let g = Golden::load(name);
        let allowed = 2.0 * g.reference_error(false);
        for (format, kv) in [
            ("f32", KvDType::F16),
            ("f32", KvDType::Bf16),
            ("f32", KvDType::Int8),
            ("f16", KvDType::F16),
            ("bf16", KvDType::F16),
            ("bf16", KvDType::Bf16),
        ] {
            let mut o = llmcc_tests::quantized(&golden(name), format, llmcc_passes::ActPolicy::F32);
            o.kv = Some(kv);
            // Where bf16 weights meet bf16 activations by default, those are meant.
            o.act = o.act.filter(|_| format != "bf16");
            let artifact = Artifact::compile(&o);
            let error = g.error(&g.logits(&artifact.open(2), &[20, 1]));
            assert!(error <= allowed, "{name} as {format} with cache {kv}: error {error:.2e}, allowed {allowed:.2e}");
            assert!(error > 0.0, "{name} as {format}: an approximation cannot be exact");
        }
    }
}

/// The result for a sequence does not depend on the rest of the batch: bit for bit.
#[test]
fn batches_do_not_change_results() {
    for (name, format) in [
        ("llama3", None),
        ("mistral", None),
        ("qwen3", Some("w4g32")),
        ("llama", Some("w8g64")),
        ("llama3", Some("bf16")),
        ("mamba2", None),
        ("mamba2", Some("w8g32")),
        ("mamba", None),
        ("rwkv", None),
        ("recurrent_gemma", None),
        ("gemma3n", None),
        ("gemma3n", Some("w8g32")),
        ("gemma4_e", Some("bf16")),
        // Groups of 16.
        ("llama3", Some("q6k")),
        // Constants that may be folded into gains, or not.
        ("minimax", Some("iq3s")),
        ("falcon_h1", Some("bf16")),
        ("falcon_h1", Some("w2zg64")),
    ] {
        let g = Golden::load(name);
        let mut o = options(&golden(name));
        // Activations as they are by default: int8 and bf16 rows are made in batches too.
        o.act = None;
        o.weights = format.map(|f| llmcc_ir::quant::Format::parse(f).expect("a format"));
        let artifact = Artifact::compile(&o);
        let model = artifact.open(2);
        let alone = logits_in_pieces(&model, &g.tokens, &[40]);
        let others: Vec<i32> = g.tokens.iter().rev().copied().collect();
        let alone_others = logits_in_pieces(&model, &others, &[1]);
        // A mixed batch: our sequence in chunks, another one decoding at the same time, a third
        // that starts later.
        let (a, b, c) = (model.seq_new().expect("a"), model.seq_new().expect("b"), model.seq_new().expect("c"));
        let (mut got_a, mut got_b, mut got_c) = (vec![], vec![], vec![]);
        let mut at = 0;
        for round in 0.. {
            let n = [9, 1, 17, 2][round % 4].min(g.tokens.len() - at);
            if n == 0 {
                break;
            }
            let mut tokens = vec![others[round]];
            let mut seqs = vec![b];
            tokens.extend(&g.tokens[at..at + n]);
            seqs.extend(vec![a; n]);
            if round >= 2 {
                tokens.push(others[round - 2]);
                seqs.push(c);
            }
            let rows: Vec<u32> = (0..tokens.len() as u32).collect();
            let logits = model.step(&tokens, &seqs, &rows).expect("a mixed step");
            for (row, seq) in logits.chunks_exact(g.columns).zip(&seqs) {
                if *seq == a {
                    &mut got_a
                } else if *seq == b {
                    &mut got_b
                } else {
                    &mut got_c
                }
                .extend_from_slice(row);
            }
            at += n;
        }
        let bits = |x: &[f32]| x.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert!(bits(&got_a) == bits(&alone), "{name}: prompt");
        assert!(bits(&got_b) == bits(&alone_others[..got_b.len()]), "{name}: decoding beside it");
        assert!(bits(&got_c) == bits(&alone_others[..got_c.len()]), "{name}: starting later");
        let one = artifact.open(1);
        assert!(bits(&logits_in_pieces(&one, &g.tokens, &[5])) == bits(&alone), "{name}: one thread");
    }
}

#[test]
fn external_weights_compute_the_same() {
    let g = Golden::load("llama3");
    let embedded = Artifact::compile(&options(&golden("llama3")));
    let mut o = options(&golden("llama3"));
    o.place = WeightsPlace::External;
    let external = Artifact::compile(&o);
    assert!(external.path.with_file_name("m.so.weights").exists());
    let a = logits_in_pieces(&embedded.open(1), &g.tokens, &[40]);
    let b = logits_in_pieces(&external.open(1), &g.tokens, &[40]);
    assert_eq!(a, b);
}

/// Only the weights that products read count for a budget, also in a matrix whose last rows are cut
/// off (`truncate_dim`).
#[test]
fn budgets_are_about_what_is_read() {
    for budget in [0.02, 0.05, 0.08] {
        let mut o = options(&golden("distilbert_weighted"));
        (o.act, o.choose.error_budget) = (None, Some(budget));
        Artifact::compile(&o);
    }
}

/// Two artifacts live in one process.
#[test]
fn two_artifacts_in_one_process() {
    let (g, h) = (Golden::load("llama3"), Golden::load("qwen2"));
    let (a, b) = (Artifact::compile(&options(&golden("llama3"))), Artifact::compile(&options(&golden("qwen2"))));
    let (ma, mb) = (a.open(1), b.open(1));
    for _ in 0..2 {
        assert!(g.error(&logits_in_pieces(&ma, &g.tokens, &[13])) <= 2.0 * g.reference_error(true));
        assert!(h.error(&logits_in_pieces(&mb, &h.tokens, &[13])) <= 2.0 * h.reference_error(true));
    }
}

/// An artifact for several processors has their weights once, and computes the same as the one for
/// this processor.
#[test]
fn versions_for_several_processors_share_their_weights() {
    let g = Golden::load("llama3");
    let target = |name| llmcc_cli::session::find_target(name).expect("a target");
    let single = Artifact::compile(&options(&golden("llama3")));
    let mut o = options(&golden("llama3"));
    o.targets = ["x86-64", "x86-64-v3", "x86-64-v4"].map(target).to_vec();
    let fat = Artifact::compile(&o);
    let parts = |a: &Artifact| llmcc_codegen::locate::locate(&a.path).expect("an artifact").weights.len;
    assert_eq!(parts(&fat), parts(&single));
    let bits = |a: &Artifact| {
        logits_in_pieces(&a.open(1), &g.tokens, &[20, 1]).iter().map(|v| v.to_bits()).collect::<Vec<_>>()
    };
    assert!(bits(&fat) == bits(&single), "the version of this processor");
}
