//! The choice of experts.

use super::{Family, Field, Outcome, Param, ParamId, ReadFamily, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::graph::{Attr, AttrType, Router, Score};
use crate::text::{KernelReader, Parsed, Parser};
use crate::verify::KernelVerifier;

/// The experts of each token: a row of the output has the numbers of the chosen ones in the order
/// of their ranking, as f32, then their weights. Work items are rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Route {
    /// Logits of the experts, f32.
    pub x: ParamId,
    /// What is added to the scores for the choice only, one per expert.
    pub bias: ParamId,
    /// How experts are chosen.
    pub router: Router,
    /// Output, f32 `[T, 2·top]`.
    pub out: ParamId,
}

impl Family for Route {
    fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use)) {
        f(&mut self.x, Use::READ);
        f(&mut self.bias, Use::READ);
        f(&mut self.out, Use::WRITE);
    }

    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        let rows = v.kernel.rows;
        let (x, bias, out) = (v.f32_rows(self.x, rows), v.vector(self.bias), v.f32_rows(self.out, rows));
        let Some(experts) = x else { return };
        if let Some(what) = self.router.misfit(experts) {
            v.error("experts", what);
        }
        if let Some(len) = bias.filter(|len| *len != experts) {
            v.error("vector-length", format!("has {len} biases for {experts} experts"));
        }
        if let Some(have) = out {
            v.columns(self.out, have, self.router.top.saturating_mul(2));
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let bias: Vec<f64> = x.vector(self.bias).iter().map(|b| f64::from(*b)).collect();
        let row = |i: usize| {
            let (chosen, weights) = self.router.choose(&x.row(self.x, i), &bias);
            chosen.into_iter().map(|e| e as f64).chain(weights).collect()
        };
        Ok(Outcome::rows(vec![(Store::all(self.out), (0..x.m).map(row).collect())]))
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        let Router { score, top, normalize, eps, scale, groups, kept, pairs } = &self.router;
        let Attr::Word(score) = score.to_attr() else { return vec![] };
        vec![
            ("x", Field::Operand(self.x)),
            ("bias", Field::Operand(self.bias)),
            ("score", Field::Word(score)),
            ("top", Field::Size(*top)),
            ("normalize", Field::Flag(*normalize)),
            ("eps", Field::Real(*eps)),
            ("scale", Field::Real(*scale)),
            ("groups", Field::Size(*groups)),
            ("kept", Field::Size(*kept)),
            ("pairs", Field::Flag(*pairs)),
            ("out", Field::Operand(self.out)),
        ]
    }
}

impl ReadFamily for Route {
    fn read<'a>(r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<Route> {
        Ok(Route {
            x: r.field(p, "x")?,
            bias: r.field(p, "bias")?,
            router: Router {
                score: p.field_word::<Score>("score")?,
                top: p.field_size("top")?,
                normalize: p.eat_word("normalize"),
                eps: p.field_real("eps")?,
                scale: p.field_real("scale")?,
                groups: p.field_size("groups")?,
                kept: p.field_size("kept")?,
                pairs: p.eat_word("pairs"),
            },
            out: r.field(p, "out")?,
        })
    }
}
