//! Other kinds of softmax, in each of the kernels.

use super::*;

impl Shape {
    /// Elements of keys, and of queries, of distances.
    fn near_len(&self) -> Option<usize> {
        self.relative.map(|reach| self.heads() * self.d * (2 * reach + 1))
    }

    /// Their operands, if there are any.
    pub(super) fn near_params(&self) -> Vec<Param> {
        let of = |name: &str, len| Param { name: name.into(), kind: ParamKind::Vector { len } };
        self.near_len().map_or(vec![], |len| vec![of("near_keys", len), of("near_queries", len)])
    }

    /// Their values.
    pub(super) fn near_values(&self, rng: &mut Rng) -> [Vec<f32>; 2] {
        [0, 1].map(|_| (0..self.near_len().unwrap_or(0)).map(|_| rng.float() * 2.0).collect())
    }

    /// Positions that a token at `position` sees.
    pub(super) fn sees(&self, position: usize, end: usize) -> std::ops::Range<usize> {
        match self.window {
            Some(chunk) if self.chunked => position / chunk * chunk..position + 1,
            _ => self.spec().sees(position, (!self.causal).then_some(end)),
        }
    }
}

impl Step {
    /// Products of the query with the key of a distance, and of the key with its query.
    pub(super) fn near(
        &self,
        shape: &Shape,
        (head, position, p): (usize, usize, usize),
        q: &[f32],
        k: &[f64],
    ) -> Vec<f64> {
        let Some(reach) = shape.relative else { return vec![] };
        let far = (p as i64 - position as i64).clamp(-(reach as i64), reach as i64) + reach as i64;
        let at = |d: usize| (head * shape.d + d) * (2 * reach + 1) + far as usize;
        let of = |d: usize| [f64::from(q[d]) * f64::from(self.near[0][at(d)]), f64::from(self.near[1][at(d)]) * k[d]];
        (0..shape.d).flat_map(of).collect()
    }

    /// Bias of the key at `p` in a head for a query at `position`.
    pub(super) fn biased(&self, shape: &Shape, head: usize, position: usize, p: usize) -> f64 {
        let Some(goes_by) = shape.bias else { return 0.0 };
        let (of_head, far) = (&self.bias[head * goes_by.width()..], p as f64 - position as f64);
        match goes_by {
            ScoreBias::Slopes => -f64::from(of_head[0]) * far.abs(),
            ScoreBias::Distances(r) => of_head[(far.clamp(-(r as f64), r as f64) as i64 + r as i64) as usize].into(),
            ScoreBias::Positions(count) => of_head[p.min(count - 1)].into(),
        }
    }
}

/// Softcaps, sinks, and tokens that look both ways, in each of the kernels.
#[test]
fn other_kinds_of_softmax() {
    let prompt = prompts(&[(2, 5, 20), (0, 0, 33), (1, 77, 1), (3, 16, 16)]);
    let whole = prompts(&[(0, 0, 70), (1, 0, 9)]);
    for (softcap, sinks, causal) in [(Some(2.0), false, true), (None, true, true), (Some(30.0), true, false)] {
        let of = |shape: Shape| Shape { softcap, sinks, causal, ..shape };
        check(&of(DECODE), &[RAGGED, LONG]);
        check(&of(Shape { dtype: KvDType::Int8, window: Some(50), out: RowElem::F32, ..DECODE }), &[MIXED, LONG]);
        check(&of(Shape { d: 36, group: 3, window: Some(20), ..DECODE }), &[RAGGED, MIXED]);
        check(&of(Shape { d: 256, kv_heads: 1, dtype: KvDType::Bf16, target: "sm86", ..DECODE }), &[MIXED]);
        assert_eq!(of(PROMPT).source().threads, 384);
        check(&of(PROMPT), &[&prompt, &whole]);
        check(&of(Shape { window: Some(9), target: "sm80", ..PROMPT }), &[&prompt, &whole]);
        check(&of(Shape { dtype: KvDType::Int8, target: "sm80", ..PROMPT }), &[&prompt]);
        check(&of(Shape { window: Some(9), d: 128, ..PROMPT }), &[&whole]);
    }
}

/// Slopes and tables, without tensor cores; chunks in each of the kernels.
#[test]
fn biases_and_chunks() {
    let prompt = prompts(&[(2, 5, 20), (0, 0, 33), (1, 77, 1), (3, 16, 16)]);
    for (bias, sinks, causal) in [
        (ScoreBias::Slopes, false, true),
        (ScoreBias::Distances(9), true, false),
        (ScoreBias::Distances(200), false, true),
        (ScoreBias::Positions(40), false, true),
        (ScoreBias::Positions(2000), false, false),
    ] {
        let of = |shape: Shape| Shape { bias: Some(bias), sinks, causal, ..shape };
        check(&of(DECODE), &[RAGGED, LONG]);
        check(&of(Shape { dtype: KvDType::Int8, window: Some(50), out: RowElem::F32, ..DECODE }), &[MIXED]);
        check(&of(PROMPT), &[&prompt]);
    }
    let of = |chunk, shape: Shape| Shape { window: Some(chunk), chunked: true, ..shape };
    check(&of(70, DECODE), &[RAGGED, LONG]);
    check(&of(50, Shape { dtype: KvDType::Int8, out: RowElem::F32, ..DECODE }), &[MIXED, LONG]);
    check(&of(16, Shape { d: 36, group: 3, ..DECODE }), &[RAGGED, MIXED]);
    check(&of(9, Shape { bias: Some(ScoreBias::Slopes), ..DECODE }), &[MIXED]);
    for target in ["sm90", "sm80"] {
        check(&of(9, Shape { target, ..PROMPT }), &[&prompt]);
        check(&of(40, Shape { target, ..PROMPT }), &[&prompt]);
    }
}

/// Keys and queries of distances that go on for longer than contexts, and not, over any cache.
#[test]
fn keys_and_queries_of_distances() {
    let prompt = prompts(&[(2, 0, 20), (0, 0, 33), (1, 0, 9)]);
    for (reach, dtype) in [(5, KvDType::F16), (100, KvDType::Int8), (0, KvDType::Int4), (30, KvDType::F32)] {
        let of = |shape: Shape| Shape { relative: Some(reach), causal: false, dtype, d: 24, ..shape };
        check(&of(Shape { group: 1, ..DECODE }), &[RAGGED]);
        check(&of(Shape { out: RowElem::F32, ..PROMPT }), &[&prompt]);
    }
}

/// As many chunks as there can be.
#[test]
fn decode_of_a_very_long_context() {
    let shape = Shape { kv_heads: 1, group: 2, d: 32, ..DECODE };
    check(&shape, &[&[(0, 5000)], &[(0, 4095), (1, 2)]]);
}
