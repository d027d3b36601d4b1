//! What `docs/adding-target.md` says, tried: a machine that is in no table of targets.

use llmcc_cli::session::CompileOptions;
use llmcc_ir::quant::Format;
use llmcc_ir::target::{self, TargetSpec};
use llmcc_tests::{Artifact, Golden, golden, logits_in_pieces, options};

/// AVX2 with other rates and more cores.
fn newcomer() -> &'static TargetSpec {
    let known = target::find("x86-64-v3").expect("a target");
    let spec = TargetSpec { name: "newcomer", about: "a line of no table", memory: 9e9, cores: 6, ..*known };
    Box::leak(Box::new(spec))
}

#[test]
fn a_target_is_one_line() {
    let name = "llama3";
    let g = Golden::load(name);
    for (format, exact) in [("f32", true), ("w4g32", false)] {
        let with = |target| CompileOptions {
            targets: vec![target],
            weights: Some(Format::parse(format).expect("a format")),
            act: None,
            ..options(&golden(name))
        };
        let logits = Artifact::compile(&with(newcomer()));
        let logits = logits_in_pieces(&logits.open(1), &g.tokens, &[7, 1, 32]);
        if exact {
            let rows: Vec<usize> = (0..g.tokens.len()).collect();
            assert!(g.error(&logits, &rows) <= 2.0 * g.reference_error(true));
        } else {
            // The same rows are rounded in the same way; only tiles may differ, which change no bit.
            let known = with(target::find("x86-64-v3").expect("a target"));
            let want = logits_in_pieces(&Artifact::compile(&known).open(1), &g.tokens, &[7, 1, 32]);
            assert_eq!(logits, want);
        }
    }
}
