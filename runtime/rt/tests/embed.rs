//! Rows of tokens to pooled rows, on the hand-made model.

use crate::common::*;
use llmcc_abi::entry_flags;
use llmcc_abi::output::{flags, kind, pool};
use llmcc_rt::embed::{Rows, embed};
use llmcc_rt::{Engine, Options, Status};

/// Small chunks and a cache of few pages, so that rows go through the model in several steps.
fn engine(threads: usize, change: impl FnOnce(&mut Descs)) -> Engine {
    toy_engine_as(Options { threads, max_tokens: 96, max_batch_tokens: 8, ..Options::default() }, change)
}

/// Embeddings with this pooling, flags of the output and flags of the entry.
fn pooling(pool: u32, flags: u64, entry: u64) -> impl Fn(&mut Descs) {
    move |d| {
        (d.output.kind, d.output.pool, d.output.flags) = (kind::EMBEDDING, pool, flags);
        d.entry.flags = entry;
    }
}

/// The columns that do not tell the regime.
fn embedded(engine: &mut Engine, texts: &[Vec<i32>], normalize: Option<bool>) -> Vec<Vec<f32>> {
    let (tokens, lengths) = (texts.concat(), texts.iter().map(Vec::len).collect::<Vec<_>>());
    let out = embed(engine, &Rows { tokens: &tokens, lengths: &lengths, types: &[], normalize, pool: None }).unwrap();
    assert_eq!((engine.kv().sequences(), engine.kv().used_pages()), (0, 0), "sequences are left");
    out.chunks_exact(VOCAB).map(|row| row[..VOCAB - 1].to_vec()).collect()
}

/// The pooled rows by the model's definition.
fn wanted(text: &[i32], pooling: u32) -> Vec<f32> {
    let rows: Vec<Vec<f32>> = (1..=text.len()).map(|n| expected(&text[..n])).collect();
    match pooling {
        pool::FIRST => rows[0].clone(),
        pool::LAST => rows[rows.len() - 1].clone(),
        _ => {
            (0..VOCAB - 1).map(|v| column(&rows.iter().map(|r| f64::from(r[v])).collect::<Vec<_>>(), pooling)).collect()
        }
    }
}

/// A column of several rows, as one number.
fn column(values: &[f64], pooling: u32) -> f32 {
    let (n, sum) = (values.len() as f64, values.iter().sum::<f64>());
    let weighted = values.iter().enumerate().map(|(i, x)| (i + 1) as f64 * x).sum::<f64>();
    (match pooling {
        pool::MEAN => sum / n,
        pool::MAX => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        pool::ROOT => sum / n.sqrt(),
        pool::WEIGHTED => weighted / (n * (n + 1.0) / 2.0),
        _ => panic!("pooling {pooling}"),
    }) as f32
}

fn texts() -> Vec<Vec<i32>> {
    let mut rng = Rng(7);
    [1, 3, 8, 1, 5, 2, 7, 1, 1, 6].iter().map(|n| (0..*n).map(|_| rng.below(VOCAB) as i32).collect()).collect()
}

#[test]
fn rows_are_pooled() {
    for pooling_kind in pool::MEAN..=pool::LARGEST {
        for whole in [0, entry_flags::WHOLE] {
            for threads in [1, 3] {
                let mut engine = engine(threads, pooling(pooling_kind, 0, whole));
                let got = embedded(&mut engine, &texts(), None);
                let want: Vec<_> = texts().iter().map(|t| wanted(t, pooling_kind)).collect();
                assert_eq!(got, want, "pooling {pooling_kind}");
                // In any company.
                let alone: Vec<_> =
                    texts().iter().flat_map(|t| embedded(&mut engine, std::slice::from_ref(t), None)).collect();
                assert_eq!(got, alone);
            }
        }
    }
}

#[test]
fn long_rows_are_cut_into_chunks_unless_they_are_whole() {
    let long: Vec<i32> = (0..50).map(|i| i % VOCAB as i32).collect();
    let mut causal = engine(2, pooling(pool::MEAN, 0, 0));
    assert_eq!(embedded(&mut causal, &[long.clone(), vec![1, 2]], None)[0], wanted(&long, pool::MEAN));
    let mut whole = engine(2, pooling(pool::MEAN, 0, entry_flags::WHOLE));
    let error = embed(&mut whole, &Rows { tokens: &long, lengths: &[50], types: &[], normalize: None, pool: None })
        .unwrap_err();
    assert_eq!(error.status, Status::Invalid);
    assert!(error.message.contains("max_batch_tokens of at least that many (it is 8)"), "{}", error.message);
    // By default there is room for the longest sequence.
    let mut whole = toy_engine_as(Options::default(), pooling(pool::MEAN, 0, entry_flags::WHOLE));
    assert_eq!(embedded(&mut whole, std::slice::from_ref(&long), None)[0], wanted(&long, pool::MEAN));
}

#[test]
fn rows_have_length_one_where_that_is_wanted() {
    for (model, asked, scaled) in [
        (0, None, false),
        (0, Some(true), true),
        (flags::NORMALIZE, None, true),
        (flags::NORMALIZE, Some(false), false),
    ] {
        let mut engine = engine(1, pooling(pool::LAST, model, 0));
        let rows = Rows { tokens: &[3, 0, 2, 0], lengths: &[3, 1], types: &[], normalize: asked, pool: None };
        let out = embed(&mut engine, &rows).unwrap();
        for row in out.chunks_exact(VOCAB) {
            let length: f64 = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
            assert_eq!((length - 1.0).abs() < 1e-6, scaled || row[0] == 0.0 && row[VOCAB - 1] == 1.0, "{row:?}");
        }
    }
}

#[test]
fn descriptors_that_say_what_cannot_be_are_refused() {
    let refused = |change: &dyn Fn(&mut Descs)| {
        let error = toy_image_from(changed(toy_data("{}", "", ""), change).leak()).err().unwrap();
        assert!(error.message.contains("output"), "{}", error.message);
    };
    refused(&|d| d.output.kind = 4);
    refused(&|d| d.output.kind = kind::HIDDEN);
    refused(&|d| d.output.pool = pool::MEAN);
    refused(&|d| d.output.columns = 1);
    refused(&|d| d.output.flags = flags::NORMALIZE);
    refused(&|d| d.output.buffer = 4);
    let scores = |d: &mut Descs, pool, columns| {
        (d.output.kind, d.output.pool, d.output.columns) = (kind::SCORES, pool, columns);
    };
    refused(&|d| scores(d, pool::FIRST, 8));
    refused(&|d| scores(d, pool::FIRST, 0));
    refused(&|d| scores(d, pool::NONE, VOCAB as u64));
    refused(&|d| (d.output.kind, d.output.pool, d.output.flags) = (kind::SCORES, pool::LAST, 4));
    refused(&|d| d.entry.outputs.count = 0);
}
