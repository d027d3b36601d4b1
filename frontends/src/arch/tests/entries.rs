//! Models that write text and make embeddings: two entries of one module.

use super::*;
use llmcc_ir::diag::{Diagnostic, Place};
use llmcc_ir::eval::eval_entry;
use llmcc_ir::graph::{EMBED, STEP};

/// The fixtures of models that write text and may make embeddings, with what was lifted of each: text, embeddings,
/// and both.
fn all() -> impl Iterator<Item = (&'static str, Checkpoint, [Module; 3])> {
    goldens().filter_map(|name| {
        let ckpt = Checkpoint::open(&golden(name)).unwrap();
        let text = lift(&ckpt, &exact(name)).ok().filter(|m| m.output() == Output::Logits)?;
        let rows = lift(&ckpt, &Options { embed: true, ..exact(name) }).ok()?;
        let both = lift(&ckpt, &Options { also_embed: true, ..exact(name) });
        let both = both.unwrap_or_else(|e| panic!("{name}: {e}"));
        Some((name, ckpt, [text, rows, both]))
    })
}

/// The second entry adds weights and functions of its head alone, and nothing is stored twice.
#[test]
fn embeddings_beside_text() {
    let mut count = 0;
    for (name, _, [text, rows, both]) in all() {
        let of_entry = |m: &Module, entry: usize| m.entries[entry].calls.iter().map(|c| c.func).collect::<Vec<_>>();
        assert_eq!(both.entries.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), [STEP, EMBED], "{name}");
        assert_eq!((&text.entries[0], &text.funcs[..]), (&both.entries[0], &both.funcs[..text.funcs.len()]), "{name}");
        assert_eq!(text.weights[..], both.weights[..text.weights.len()], "{name}");
        // (Some heads are a call of a layer's function, or several calls.)
        let shared = of_entry(&both, 1).iter().filter(|f| **f < text.funcs.len()).count();
        assert!(shared + 2 >= rows.entries[0].calls.len(), "{name}: {shared} of {} calls", rows.entries[0].calls.len());
        // (Both heads have a last norm, whose gains a head may fold into its matrix: they are no shared weight.)
        let head = |place: &Place| matches!(place, Place::Call { func, .. } if func.ends_with("head"));
        let twice = |d: &Diagnostic| d.code == "unshared-weight" && head(&d.place);
        let found: Vec<_> = verify_module(&both).into_iter().filter(|d| !twice(d)).collect();
        assert_eq!(found, verify_module(&text), "{name}");
        count += 1;
    }
    assert!(count > 100, "{count} fixtures");
}

/// Each entry computes what a module of its own does.
#[test]
fn entries_compute_as_alone() {
    let few = ["llama", "qwen3", "gemma2", "gpt2", "mamba2", "qwen3_next", "deepseek_v3", "lfm2"];
    for (name, ckpt, modules) in all().filter(|(name, _, _)| few.contains(name)) {
        let batch = Batch::single(&[3, 1, 4, 1, 5, 9, 2, 6], 0);
        let run = |m: &Module, entry: usize| {
            let weights = |i: usize| ckpt.to_f32(&m.weights[i].name).unwrap();
            let mut states: Vec<State> = m.states.iter().map(|s| State::new(*s)).collect();
            eval_entry(m, &m.entries[entry], &weights, &mut states, &batch).unwrap()
        };
        let [text, rows, both] = &modules;
        assert_eq!(run(both, 0), run(text, 0), "{name}");
        assert_eq!(run(both, 1), run(rows, 0), "{name}");
    }
}

/// Models without text, and draft heads, have no such entry.
#[test]
fn embeddings_beside_no_text_are_refused() {
    let bert = Checkpoint::open(&golden("bert")).unwrap();
    let error = lift(&bert, &Options { also_embed: true, ..EXACT }).unwrap_err().to_string();
    assert!(error.contains("writes no text") && error.contains("leave out --also-embed"), "{error}");
}
