//! Random kernels as CPUs have them.

use llmcc_ir::eval::KvState;
use llmcc_ir::kernel::{ParamId, RowElem, Segment, Store, lcm};
use llmcc_ir::kv::KvSpec;
use llmcc_ir::quant::BLOCK;
use llmcc_ir::ty::Dim;
use llmcc_test_support::{Gen, Margins};

/// With a ragged batch of at most `tokens` tokens per sequence; a row for each, or for those whose
/// logits are wanted.
pub(super) fn random(seed: u64, tokens: usize, longest: usize) -> Gen {
    let mut g = Gen::new(seed, tokens, longest);
    g.margins = Margins::ANY;
    if g.rng.chance(4) {
        g.rows = Dim::Rows;
    }
    g
}

/// Segments with random widths, expressions and destinations. `weights`: makes the matrices of a
/// segment of `n` columns.
pub(super) fn segments(g: &mut Gen, weights: &mut dyn FnMut(&mut Gen, usize) -> Vec<ParamId>) -> Vec<Segment> {
    (0..g.rng.below(1, 4)).map(|_| segment(g, weights)).collect()
}

fn segment(g: &mut Gen, weights: &mut dyn FnMut(&mut Gen, usize) -> Vec<ParamId>) -> Segment {
    let (n, runs) = g.columns();
    let mut quantum = lcm(runs.first().copied().unwrap_or(1), BLOCK);
    let store = match g.rng.below(0, 4) {
        0 => {
            let group = g.rng.pick(&[16, 32, 64, 128]);
            let elem = g.rng.pick(&[RowElem::Q8 { group }, RowElem::Q8 { group }, RowElem::I8 { group }]);
            quantum = lcm(quantum, elem.run());
            let start = g.rng.below(0, 3) * elem.run();
            Store::Rows { param: g.output(start + n, elem), start }
        }
        1 if g.rows == Dim::Tokens => {
            let spec = g.spec(n, &runs);
            if spec.dtype.encoding().is_quantized() {
                quantum = lcm(quantum, spec.key_dim);
            }
            // The part that is not stored has another width.
            let key = g.rng.chance(2);
            let other = 2 * g.rng.below(1, 40);
            // Or values alone are, of several tokens.
            let alone = KvSpec { latent: true, every: g.rng.below(1, 6), ..spec };
            let spec = match key {
                true => KvSpec { value_dim: other, ..spec },
                false if g.rng.chance(2) => alone,
                false => KvSpec { key_dim: other, ..spec },
            };
            let kv = g.kv(KvState::new(spec));
            if key { Store::KvKey(kv) } else { Store::KvValue(kv) }
        }
        _ => {
            let start = g.rng.below(0, 9);
            let cols = start + n + g.rng.below(0, 5);
            Store::Rows { param: g.output(cols, RowElem::F32), start }
        }
    };
    // One tile for everything may have any size.
    let tile_n = if g.rng.chance(4) { n + g.rng.below(0, 5) } else { quantum * g.rng.below(1, 3) };
    let weights = weights(g, n);
    let depth = g.rng.below(0, 5);
    let expr = g.expr(depth, n, weights.len(), &runs);
    Segment { n, weights, tile_n, expr, store }
}
