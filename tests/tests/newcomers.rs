//! `docs/adding-target.md`, tried: a machine that is in no table of targets. And a state and a
//! family of kernels that are not shipped, through artifact and runtime.

use llmcc_abi::Span;
use llmcc_cli::loaded::{EngineOptions, Model};
use llmcc_cli::session::CompileOptions;
use llmcc_codegen::Backend;
use llmcc_codegen::artifact::{Alternative, Texts, data_segment, layout_code};
use llmcc_codegen::cpu::CpuBackend;
use llmcc_codegen::link::{Linker, WeightsPlace};
use llmcc_ir::quant::Format;
use llmcc_ir::target::{self, Arch, CpuArch, RowKind, TargetSpec};
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
            assert!(g.error(&logits) <= 2.0 * g.reference_error(true));
        } else {
            // The same rows are rounded in the same way; only tiles may differ, which change no bit.
            let known = with(target::find("x86-64-v3").expect("a target"));
            let want = logits_in_pieces(&Artifact::compile(&known).open(1), &g.tokens, &[7, 1, 32]);
            assert_eq!(logits, want);
        }
    }
}

/// A processor that multiplies f32 rows only: integer weights are multiplied decoded, as with
/// `--act f32` elsewhere.
#[test]
fn a_target_may_multiply_f32_alone() {
    let known = target::find("x86-64-v3").expect("a target");
    let isa = known.cpu().expect("a processor");
    let rows = match &known.arch {
        Arch::Cpu(cpu) => Box::leak(cpu.rows.iter().copied().filter(|r| r.kind == RowKind::F32).collect::<Box<[_]>>()),
        Arch::Gpu(_) => unreachable!("a processor"),
    };
    assert_eq!(rows.len(), 1);
    let spec = TargetSpec { name: "f32-only", arch: Arch::Cpu(CpuArch { isa, rows }), ..*known };
    let only: &TargetSpec = Box::leak(Box::new(spec));
    let g = Golden::load("llama3");
    for format in ["w4g32", "w8g32", "w4ag32", "bf16"] {
        let logits = |target, act| {
            let options = CompileOptions {
                targets: vec![target],
                weights: Some(Format::parse(format).expect("a format")),
                act,
                ..options(&golden("llama3"))
            };
            logits_in_pieces(&Artifact::compile(&options).open(1), &g.tokens, &[7, 1, 32])
        };
        assert_eq!(logits(only, None), logits(known, Some(RowKind::F32)), "{format}");
    }
}

/// Rows of a table, to which each token of a sequence adds half of the row of the one before it.
const CLIMB: &str = "plan \"climb\" {
  info vocab=16 hidden=16 max_context=64
  tally 0: tally<u32, most 5>
  weight 0: matrix f32[16, 16] = weight 0
  kernel @embed rows T {
    param %table: matrix f32[16, 16]
    param %x: rows f32[T, 16]
    embed table=%table out=%x
  }
  kernel @climb rows T {
    param %x: rows f32[T, 16]
    param %n: tally<u32, most 5>
    param %y: rows f32[T, 16]
    climb x=%x step=0.5 tally=%n out=%y
  }
  kernel @logits rows R {
    param %x: rows f32[T, 16]
    param %y: rows f32[R, 16]
    row_norm x=%x gather out=%y
  }
  slot 0: per_token=64 per_row=0
  slot 1: per_token=64 per_row=0
  slot 2: per_token=0 per_row=64
  entry @step {
    logits slot 2
  }
  regime @step any {
    buffer %0: f32[T, 16] in slot 0
    buffer %1: f32[T, 16] in slot 1
    buffer %2: f32[R, 16] in slot 2
    call 0: @embed(weight 0, %0)
    call 1: @climb(%0, tally 0, %1)
    call 2: @logits(%1, %2)
  }
}
";

/// Links the plan by hand, as `session` links compiled ones.
fn link(text: &str, path: &std::path::Path) {
    let plan = llmcc_ir::text::parse_plan(text).expect("a plan");
    assert_eq!(llmcc_ir::verify::verify_plan(&plan), []);
    let target = target::find("x86-64").expect("a target");
    let objects: Vec<_> =
        plan.kernels.iter().map(|k| CpuBackend::default().lower(k, target).expect("CPUs have it")).collect();
    let code = layout_code(&[&objects]);
    let offsets = llmcc_passes::pack::weight_offsets(&plan);
    let mut table = vec![0; plan.weights[0].storage.bytes()];
    let rows: Vec<f32> = (0..256).map(|i| (i / 16) as f32).collect();
    llmcc_ir::quant::pack_block(Format::F32, &rows, 16, &mut table).expect("packs");
    let weights = Span { off: 0, len: table.len() as u64 };
    let alternative = Alternative { plan: &plan, target, objects: &objects, weight_offsets: &offsets, weights };
    let place = WeightsPlace::Embed;
    let mut linker = Linker::start(path, None, llmcc_rt_image::CORE, &code.bytes, place, weights.len).expect("started");
    std::io::Write::write_all(&mut linker.weights(offsets.clone()), &table).expect("written");
    linker.end_weights().expect("weights");
    let texts = Texts { manifest: b"{}".to_vec(), ..Texts::default() };
    linker.seal(&data_segment(&[alternative], &code, &texts)).expect("sealed");
    linker.finish().expect("finished");
}

/// The runtime keeps the state of each sequence, however its tokens are cut into steps.
#[test]
fn a_state_and_a_family_are_a_file_and_a_line_each() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let path = dir.path().join("climb.so");
    link(CLIMB, &path);
    for threads in [1, 2] {
        let options = EngineOptions { threads, ..EngineOptions::default() };
        let model = Model::open(&path, options).unwrap_or_else(|e| panic!("{e}"));
        let mut all = vec![];
        for cuts in [&[7][..], &[1, 1, 5], &[3, 4]] {
            // Two sequences side by side; the second one has the same tokens, backwards.
            let seqs = [model.seq_new().expect("a sequence"), model.seq_new().expect("a sequence")];
            let (mut at, mut out) = (0, [vec![], vec![]]);
            for n in cuts {
                let tokens: Vec<i32> = (at..at + n).flat_map(|i| [i, 6 - i]).collect();
                let of: Vec<i32> = (at..at + n).flat_map(|_| seqs).collect();
                let rows: Vec<u32> = (0..2 * *n as u32).collect();
                let logits = model.step(&tokens, &of, &rows).unwrap_or_else(|e| panic!("{e}"));
                logits.chunks(16).enumerate().for_each(|(i, row)| out[i % 2].push(row.to_vec()));
                at += n;
            }
            seqs.into_iter().for_each(|s| model.seq_free(s).expect("freed"));
            all.push(out);
        }
        for out in all {
            let [first, second] = &out;
            for (i, (a, b)) in first.iter().zip(second).enumerate() {
                let climbed = 0.5 * (i % 5) as f32;
                assert_eq!((a[0], b[15]), (i as f32 + climbed, 6.0 - i as f32 + climbed));
            }
            assert_eq!((first.len(), second.len()), (7, 7));
        }
    }
}

/// Shipped code has no newcomers: their feature is asked for by tests alone.
#[test]
fn newcomers_are_in_tests_only() {
    let root = llmcc_tests::root();
    for folder in
        ["ir", "frontends", "passes", "codegen", "codegen/gpu", "cli", "runtime/rt", "runtime/image", "benches"]
    {
        let text = std::fs::read_to_string(root.join(folder).join("Cargo.toml")).expect("a manifest");
        let shipped = text.split("[dev-dependencies]").next().unwrap_or_default();
        let lines = shipped.lines().filter(|l| l.contains("dummies") || l.contains("llmcc-test-support"));
        let found: Vec<&str> = lines.filter(|l| *l != "dummies = []").collect();
        assert!(found.is_empty(), "{folder}: {found:?}");
    }
}
