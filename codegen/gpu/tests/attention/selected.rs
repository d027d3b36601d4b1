//! Attention to the rows that tokens select, of every kind of cache.

use super::company::same_bits_in_any_company;
use super::*;

impl Shape {
    /// The operand of the selections, if there are any.
    pub(super) fn selected_param(&self) -> Option<Param> {
        let kind = |cols| ParamKind::Rows { rows: Dim::Tokens, cols, elem: RowElem::F32 };
        self.selected.map(|cols| Param { name: "selected".into(), kind: kind(cols) })
    }

    /// About every second row that a token sees, the first ones if they are too many; of every fifth token none.
    pub(super) fn selections(&self, rng: &mut Rng, tokens: &[(usize, usize)]) -> Rows {
        let cols = self.selected.unwrap_or(0);
        let of_token = |(i, (_, position)): (usize, &(usize, usize))| {
            let some: Vec<f32> = (0..=*position).filter(|_| i % 5 != 4 && rng.chance(2)).map(|n| n as f32).collect();
            let rest = cols.saturating_sub(some.len());
            some.into_iter().take(cols).chain(std::iter::repeat_n(-1.0, rest)).collect::<Vec<f32>>()
        };
        let data = if cols > 0 { tokens.iter().enumerate().flat_map(of_token).collect() } else { vec![] };
        Rows { cols, data }
    }
}

impl Step {
    /// Positions that a token attends to.
    pub(super) fn seen(&self, shape: &Shape, token: usize) -> Vec<usize> {
        let (position, end) = (self.batch.positions[token] as usize, self.batch.ends()[token] as usize);
        match shape.selected {
            Some(_) => self.chosen.row(token).iter().take_while(|n| **n >= 0.0).map(|n| *n as usize).collect(),
            None => shape.sees(position, end).collect(),
        }
    }
}

/// DeepSeek-V3.2 and its heirs.
const LATENT: Shape = Shape {
    dtype: KvDType::Bf16,
    kv_heads: 1,
    d: 64,
    values: Some(512),
    latent: true,
    group: 16,
    selected: Some(80),
    ..DECODE
};

/// On tensor cores: few rows and many, in any page; selections of nothing, and of all that there is.
#[test]
fn selected_rows_of_wide_heads() {
    for shape in [
        LATENT,
        Shape { dtype: KvDType::F16, d: 16, values: Some(64), group: 5, sinks: true, target: "sm80", ..LATENT },
        Shape { d: 80, values: Some(64), group: 4, out: RowElem::F32, selected: Some(400), ..LATENT },
        // Keys that are values and nothing else; several KV heads.
        Shape { d: 0, values: Some(128), group: 3, selected: Some(5), ..LATENT },
        Shape { d: 64, latent: false, values: None, kv_heads: 2, group: 4, ..LATENT },
        Shape { d: 32, values: Some(128), group: 64, selected: Some(1000), target: "sm86", ..LATENT },
    ] {
        assert_eq!(shape.source().generic, None, "{shape:?}");
        check(&shape, &[RAGGED, LONG, MIXED]);
    }
}

#[test]
fn selected_rows_without_tensor_cores() {
    for (i, (dtype, _)) in KvDType::ALL.iter().enumerate() {
        for (d, values, latent) in [(8, Some(20), true), (0, Some(34), true), (36, None, false)] {
            let target = ["sm80", "sm90"][i % 2];
            let shape = Shape { dtype: *dtype, d, values, latent, group: 3, sinks: d == 0, target, ..LATENT };
            assert!(shape.source().generic.is_some(), "{shape:?}");
            check(&Shape { out: RowElem::F32, selected: Some(40), ..shape }, &[RAGGED, LONG]);
        }
    }
}

/// Selections of several chunks are dealt to many blocks or to few.
#[test]
fn selected_rows_have_the_same_bits_in_any_company() {
    let mut tokens = vec![(0, 1400), (1, 0), (2, 299), (3, 127), (4, 128), (5, 16)];
    tokens.extend((6..10).map(|s| (s, 3 * s)));
    let small = Shape { d: 16, values: Some(64), group: 4, out: RowElem::F32, selected: Some(600), ..LATENT };
    same_bits_in_any_company(&small, 5, &tokens);
    same_bits_in_any_company(&Shape { dtype: KvDType::F32, d: 6, values: Some(10), ..small }, 7, &tokens);
}
