//! One artifact that writes text and makes embeddings.

use llmcc_cli::loaded::{GenOptions, Model};
use llmcc_cli::options::CompileOptions;
use llmcc_ir::output::Pool;
use llmcc_passes::ActPolicy;
use llmcc_tests::{Artifact, options, quantized, root};

fn greedy(model: &Model, prompt: &[i32]) -> Vec<i32> {
    let o = GenOptions { max_tokens: 24, ignore_eos: true, ..GenOptions::default() };
    let pieces = model.generate(None, prompt, &o).expect("a generation");
    pieces.map(|p| p.expect("a token").token).collect()
}

fn rows(model: &Model, texts: &[Vec<i32>], pooling: Option<Pool>) -> Vec<Vec<f32>> {
    let all = model.embed_as(texts, None, pooling).expect("rows");
    all.chunks_exact(model.info().embed_columns).map(<[f32]>::to_vec).collect()
}

fn texts(model: &Model) -> Vec<Vec<i32>> {
    let texts = ["Once upon a time", "The little dog ran to the park and", "a"];
    texts.iter().map(|t| model.tokenize(t, true).expect("tokens")).collect()
}

/// Text and embeddings have the bits of artifacts that make one of them alone, in any order of calls. (With 4 bits a
/// table that is the head, too, has the head's format.)
#[test]
fn both_entries_compute_as_alone() {
    let example = root().join("examples/tiny-llama/model");
    for o in [options(&example), quantized(&example, "w8g32", ActPolicy::Int8)] {
        let plain = Artifact::compile(&o);
        let embedder = Artifact::compile(&CompileOptions { embed: true, ..o.clone() });
        let both = Artifact::compile(&CompileOptions { also_embed: true, ..o.clone() });
        let (text, embeds, model) = (plain.open(2), embedder.open(2), both.open(2));
        assert_eq!((text.info().embed_columns, model.info().embed_columns), (0, model.info().hidden));
        assert_eq!((model.info().columns, model.info().output), (text.info().columns, text.info().output));
        let texts = texts(&model);
        let want = rows(&embeds, &texts, None);
        for _ in 0..2 {
            assert_eq!(rows(&model, &texts, None), want);
            assert_eq!(greedy(&model, &texts[0]), greedy(&text, &texts[0]));
        }
        let refused = text.embed(&texts, None).expect_err("no rows").to_string();
        assert!(refused.contains("--also-embed"), "{refused}");
        let size = |a: &Artifact| std::fs::metadata(&a.path).expect("a file").len();
        let grown = size(&both) - size(&plain);
        assert!(grown < 64 << 10, "{grown} bytes more");
    }
}

/// The caller's pooling is that of the rows of a text: a causal model's row of a token is the last one of the text that
/// ends there.
#[test]
fn the_caller_names_the_pooling() {
    let both = CompileOptions { also_embed: true, ..options(&root().join("examples/tiny-llama/model")) };
    let artifact = Artifact::compile(&both);
    let model = artifact.open(2);
    let text = texts(&model).swap_remove(1);
    let prefixes: Vec<Vec<i32>> = (1..=text.len()).map(|n| text[..n].to_vec()).collect();
    let of_tokens = rows(&model, &prefixes, Some(Pool::Last));
    let values: Vec<f64> = of_tokens.concat().into_iter().map(f64::from).collect();
    for (pool, name) in Pool::ALL {
        let want: Vec<f32> = pool.of(&values, model.info().hidden).into_iter().map(|x| x as f32).collect();
        assert_eq!(rows(&model, std::slice::from_ref(&text), Some(*pool)), [want], "{name}");
    }
}
