//! Models that write texts about sources: an encoder and a decoder in one artifact.

use llmcc_cli::loaded::{GenOptions, Model};
use llmcc_tests::{Artifact, Golden, golden, options};

/// Bits of numbers.
fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

/// Logits of all `tokens` about `source`, of a sequence of their own.
fn alone(model: &Model, source: &[i32], tokens: &[i32]) -> Vec<f32> {
    let seq = model.seq_new().expect("a sequence");
    model.seq_encode(seq, source).expect("a source");
    let rows: Vec<u32> = (0..tokens.len() as u32).collect();
    let logits = model.step(tokens, &vec![seq; tokens.len()], &rows).expect("logits");
    model.seq_free(seq).expect("freed");
    logits
}

/// A text's logits depend on its source and its tokens: not on other sequences of a step, whose sources have other
/// lengths, nor on the number of threads.
#[test]
fn sequences_with_sources_do_not_change_each_other() {
    for name in ["t5_whole", "bart"] {
        if std::env::var("LLMCC_GOLDENS").is_ok_and(|some| !some.split(',').any(|s| s == name)) {
            continue;
        }
        let g = Golden::load(name);
        let artifact = Artifact::compile(&options(&golden(name)));
        let model = artifact.open(2);
        assert!(model.info().needs_source && !model.info().whole, "{name}");
        let sources = [&g.source[..], &g.source[..3], &g.source[5..22]];
        let texts = [&g.tokens[..9], &g.tokens[..20], &g.tokens[..1]];
        let want: Vec<Vec<f32>> = sources.iter().zip(texts).map(|(s, t)| alone(&model, s, t)).collect();
        assert_ne!(bits(&want[0][..g.columns]), bits(&want[1][..g.columns]), "{name}: the source counts");
        let seqs: Vec<i32> = (0..3).map(|_| model.seq_new().expect("a sequence")).collect();
        for (seq, source) in seqs.iter().zip(sources) {
            model.seq_encode(*seq, source).expect("a source");
        }
        let (mut got, mut at) = ([vec![], vec![], vec![]], [0; 3]);
        for counts in [[4, 1, 1], [1, 18, 0], [4, 1, 0]] {
            let (mut tokens, mut of) = (vec![], vec![]);
            for i in 0..3 {
                tokens.extend(&texts[i][at[i]..at[i] + counts[i]]);
                of.extend(vec![i; counts[i]]);
                at[i] += counts[i];
            }
            let rows: Vec<u32> = (0..tokens.len() as u32).collect();
            let numbers: Vec<i32> = of.iter().map(|i| seqs[*i]).collect();
            let logits = model.step(&tokens, &numbers, &rows).expect("a mixed step");
            logits.chunks_exact(g.columns).zip(of).for_each(|(row, i)| got[i].extend_from_slice(row));
        }
        for i in 0..3 {
            assert!(bits(&got[i]) == bits(&want[i]), "{name}: sequence {i} of a mixed step");
        }
        let one = artifact.open(1);
        assert!(bits(&alone(&one, sources[0], texts[0])) == bits(&want[0]), "{name}: one thread");
        copies_go_their_own_ways(&model, &g, seqs[0]);
        without_sources(&model, &g);
        generations(&model, &g);
    }
}

/// A copy of a sequence has its source. A sequence may get another one.
fn copies_go_their_own_ways(model: &Model, g: &Golden, seq: i32) {
    let copy = model.seq_fork(seq).expect("a copy");
    let next = [g.tokens[9]];
    let both = model.step(&[next[0], next[0]], &[seq, copy], &[0, 1]).expect("logits");
    assert_eq!(bits(&both[..g.columns]), bits(&both[g.columns..]));
    model.seq_encode(copy, &g.source[..7]).expect("another source");
    let again = model.step(&g.tokens[..1], &[copy], &[0]).expect("logits");
    assert_eq!(bits(&again), bits(&alone(model, &g.source[..7], &g.tokens[..1])));
    // The other one kept its own.
    let more = model.step(&[g.tokens[10]], &[seq], &[0]).expect("logits");
    let want = alone(model, &g.source, &g.tokens[..11]);
    assert_eq!(bits(&more), bits(&want[10 * g.columns..]));
}

fn without_sources(model: &Model, g: &Golden) {
    let seq = model.seq_new().expect("a sequence");
    let refused = model.step(&g.tokens[..1], &[seq], &[0]).expect_err("no source").to_string();
    assert!(refused.contains("give the source first"), "{refused}");
    let refused = model.seq_encode(seq, &[]).expect_err("no tokens").to_string();
    assert!(refused.contains("the source has no tokens"), "{refused}");
    let refused = model.seq_encode(seq, &[-1]).expect_err("no token").to_string();
    assert!(refused.contains("outside the vocabulary"), "{refused}");
    let most = model.info().max_context;
    let refused = model.seq_encode(seq, &vec![3; most + 1]).expect_err("too long").to_string();
    let why = if most < model.info().max_batch_tokens { "longest context" } else { "go through the model at once" };
    assert!(refused.contains(why), "{refused}");
    // A sequence that is truncated to nothing has no source.
    model.seq_encode(seq, &g.source).expect("a source");
    model.step(&g.tokens[..3], &[seq; 3], &[]).expect("a step");
    model.seq_truncate(seq, 1).expect("truncated");
    model.step(&g.tokens[1..2], &[seq], &[0]).expect("it has its source");
    model.seq_truncate(seq, 0).expect("truncated");
    assert!(model.step(&g.tokens[..1], &[seq], &[0]).is_err());
    model.seq_free(seq).expect("freed");
}

/// Generations encode their prompts, unless the sequence has it.
fn generations(model: &Model, g: &Golden) {
    let options = GenOptions { max_tokens: 5, no_text: true, ..GenOptions::default() };
    let seq = model.seq_new().expect("a sequence");
    let mut texts = vec![];
    for (source, reused) in [(&g.source[..], 0), (&g.source[..], g.source.len() as u64), (&g.source[..8], 0)] {
        let mut generation = model.generate(Some(seq), source, &options).expect("a generation");
        texts.push((&mut generation).map(|piece| piece.expect("a piece").token).collect::<Vec<_>>());
        let stats = generation.stats().expect("counts");
        assert_eq!((stats.prompt_tokens, stats.reused_tokens), (source.len() as u64, reused));
    }
    assert_eq!(texts[0], texts[1]);
    assert_eq!(texts[0].len(), 5);
}

/// A model that goes on with its prompt takes no source.
#[test]
fn other_models_take_no_sources() {
    let model = Artifact::compile(&options(&golden("llama3"))).open(1);
    let seq = model.seq_new().expect("a sequence");
    let refused = model.seq_encode(seq, &[1]).expect_err("no source").to_string();
    assert!(!model.info().needs_source && refused.contains("goes on with its prompt"), "{refused}");
}

/// Logits of all `tokens` about rows of sound, of a sequence of their own.
fn of_sound(model: &Model, rows: &[f32], tokens: &[i32]) -> Vec<f32> {
    let seq = model.seq_new().expect("a sequence");
    model.seq_encode_rows(seq, rows).expect("a clip");
    let wanted: Vec<u32> = (0..tokens.len() as u32).collect();
    let logits = model.step(tokens, &vec![seq; tokens.len()], &wanted).expect("logits");
    model.seq_free(seq).expect("freed");
    logits
}

/// A text about a clip depends on the clip and its tokens alone; the clip stays while texts about it are forgotten.
#[test]
fn clips_of_sound_are_sources() {
    let g = Golden::load("whisper_128");
    let artifact = Artifact::compile(&options(&golden("whisper_128")));
    let (model, one) = (artifact.open(2), artifact.open(1));
    let (info, clip) = (model.info(), model.clip().expect("a clip"));
    assert!(info.needs_source && info.hears && info.max_context == 64);
    assert_eq!((clip.rate, clip.samples, clip.rows, clip.columns), (16000, 16000, 50, 640));
    let rows = g.sound_rows(&model);
    let want = of_sound(&model, &rows, &g.tokens[..9]);
    assert!(bits(&want) == bits(&of_sound(&one, &rows, &g.tokens[..9])), "threads");
    // Fewer rows are another clip.
    assert_ne!(bits(&want), bits(&of_sound(&model, &rows[..20 * clip.columns], &g.tokens[..9])));
    let [a, b] = [(); 2].map(|()| model.seq_new().expect("a sequence"));
    model.seq_encode_rows(a, &rows).expect("a clip");
    model.seq_encode_audio(b, &[0.25; 800]).expect("a clip");
    let mixed =
        model.step(&[&g.tokens[..9], &g.tokens[..4]].concat(), &[[a; 9].as_slice(), &[b; 4]].concat(), &[8, 12]);
    assert!(bits(&mixed.expect("logits")[..g.columns]) == bits(&want[8 * g.columns..]), "a mixed step");
    // Texts about the same clip.
    let options = GenOptions { max_tokens: 6, no_text: true, defaults: true, ..GenOptions::default() };
    let text = |seq| -> Vec<i32> {
        let prompt = model.clip_prompt(seq, "en", "").expect("a prompt");
        let pieces = model.generate(Some(seq), &prompt, &options).expect("a generation");
        pieces.map(|piece| piece.expect("a piece").token).collect()
    };
    assert_eq!((text(a), text(a)), (text(a), text(a)));
    let copy = model.seq_fork(a).expect("a copy");
    assert_eq!(text(copy), text(a));
    refused_sounds(&model, &rows, clip.columns);
}

fn refused_sounds(model: &Model, rows: &[f32], columns: usize) {
    let seq = model.seq_new().expect("a sequence");
    let said = |result: Result<(), llmcc_cli::Error>, want: &str| {
        let said = result.expect_err("refused").to_string();
        assert!(said.contains(want), "{want}: {said}");
    };
    said(model.seq_encode(seq, &[1]), "not about tokens");
    said(model.seq_encode_rows(seq, &[]), "at least one");
    said(model.seq_encode_rows(seq, &rows[1..]), "rows of 640");
    said(model.seq_encode_rows(seq, &vec![f32::NAN; columns]), "number 0 of the rows is NaN");
    said(model.seq_encode_rows(seq, &vec![0.0; 51 * columns]), "longest context is 50");
    said(model.seq_encode_audio(seq, &vec![0.0; 16001]), "at most 16000 samples");
    said(model.seq_encode_audio(seq, &[f32::INFINITY]), "sample 0 of the sound is inf");
    said(model.step(&[101], &[seq], &[0]).map(|_| ()), "give the clip first");
    said(model.clip_prompt(seq, "", "").map(|_| ()), "give the clip first");
    said(model.resampled(&[0.0], 10).map(|_| ()), "10 samples per second");
    // 64 positions of the decoder.
    model.seq_encode_rows(seq, rows).expect("a clip");
    said(model.step(&[5; 65], &[seq; 65], &[]).map(|_| ()), "longest context is 64");
}
