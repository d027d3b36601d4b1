//! Every shape compiles for every target: kernels that a target cannot spread over its machine are
//! passed over, not chosen.

use crate::common::Toy;
use llmcc_ir::quant::Format;
use llmcc_ir::target::{self, TARGETS};
use llmcc_passes::{ActPolicy, Options, compile};

/// Random cases, unless `LLMCC_CASES` says how many.
const CASES: u64 = 40;

fn toy(hidden: usize, heads: usize, kv_heads: usize, head_dim: usize, ffn: usize) -> Toy {
    Toy { hidden, heads, kv_heads, head_dim, ffn, vocab: 320, ..Toy::llama() }
}

fn options(target: &str, format: &str) -> Options {
    Options::new(target::find(target).unwrap(), Format::parse(format).unwrap())
}

/// Costs of the plan are finite: it has no kernel without a schedule.
fn check(toy: Toy, opts: &Options) {
    let case = || format!("{toy:?} {} {:?} {}", opts.target.name, opts.formats, opts.act);
    let compiled = compile(&toy.module(), opts).unwrap_or_else(|e| panic!("{}: {e}", case()));
    assert!(compiled.costs.iter().flatten().all(|c| c.is_finite() && *c > 0.0), "{}", case());
}

#[test]
fn heads_whose_tiles_fit_nowhere_are_rotated_by_kernels_of_their_own() {
    for head_dim in [22, 26, 50] {
        for target in ["sm80", "sm90"] {
            check(toy(8 * head_dim, 8, 4, head_dim, 256), &options(target, "f32"));
        }
    }
    for (hidden, ffn, head_dim) in [(3200, 8640, 100), (2560, 6912, 80)] {
        check(toy(hidden, 32, 32, head_dim, ffn), &Options { act: ActPolicy::Fp8, ..options("sm90", "fp8") });
    }
}

#[test]
fn random_shapes_compile_for_every_target() {
    let cases = std::env::var("LLMCC_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(CASES);
    let mut s = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = move |n: usize| {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        (s >> 33) as usize % n
    };
    for _ in 0..cases {
        let kv_heads = 1 + next(16);
        let heads = kv_heads * [1, 2, 3, 4, 7, 8][next(6)].min(64 / kv_heads);
        let head_dim = [2, 8, 16][next(3)] * (1 + next(32));
        let head_dim = head_dim.clamp(16, 256);
        let hidden = if next(2) == 0 { heads * head_dim } else { 8 * (1 + next(512)) };
        let ffn = [1, 2, 16, 64][next(4)] * (1 + next(220));
        let toy = Toy {
            bias: next(2) == 0,
            qk_norm: next(3) == 0,
            tied: next(2) == 0,
            window: (next(3) == 0).then_some(64),
            vocab: 1 + next(2000),
            ..toy(hidden, heads, kv_heads, head_dim, ffn)
        };
        let target = &TARGETS[next(TARGETS.len())];
        let format = ["f32", "f16", "bf16", "w8g32", "w8g128", "w4g32", "w4g64", "w4g128", "w4ag32", "fp8"][next(10)];
        let acts = [ActPolicy::F32, ActPolicy::Int8, ActPolicy::F16, ActPolicy::Bf16, ActPolicy::Fp8];
        let mut opts = options(target.name, format);
        let asked = acts[next(5)];
        // Combinations that the command line accepts.
        if target.multiplies(asked)
            && (asked != ActPolicy::Fp8 || format == "fp8")
            && (asked != ActPolicy::F16 || format != "f32")
        {
            opts.act = asked;
        }
        check(toy, &opts);
    }
}
