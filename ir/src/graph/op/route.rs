//! Choosing experts, and their products.

use super::attr::words;
use super::of::{Combine, ExpertMatMul, ExpertVector, Route};
use super::rule::{Operands, Rule, Types};
use super::{Attr, AttrKind, AttrType};
use crate::eval::{EvalError, Value, dot};
use crate::graph::value::{F32, ValueType};
use crate::ty::TensorType;

pub use llmcc_abi::route::Score;

/// Names of the scores in `.lir` text.
const SCORES: &[&str] = &["softmax", "chosen", "sigmoid", "mixer", "sigmoid_of_chosen", "given"];

words!(Score: SCORES);

/// How experts are chosen and weighted: the attributes of `route`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Router {
    /// Function from logits to the experts' scores.
    pub score: Score,
    /// Experts chosen for each token.
    pub top: usize,
    /// Weights are divided by their sum.
    pub normalize: bool,
    /// Added to that sum; of [`Score::Mixer`] the width of the band around the best logit.
    pub eps: F32,
    /// Multiplies the weights.
    pub scale: F32,
    /// Groups of adjacent experts, the best of which are kept; 1: all are one group.
    pub groups: usize,
    /// Groups whose experts may be chosen.
    pub kept: usize,
    /// A group counts as much as its two best experts together, else as its best.
    pub pairs: bool,
}

impl Router {
    /// The `top` best experts by `softmax`, whose weights are their probabilities, normalized or
    /// not, as in most mixtures.
    pub fn softmax(top: usize, normalize: bool) -> Router {
        let (eps, scale) = (F32::new(0.0), F32::new(1.0));
        Router { score: Score::Softmax, top, normalize, eps, scale, groups: 1, kept: 1, pairs: false }
    }

    /// Why the attributes do not fit so many experts.
    pub fn misfit(&self, experts: usize) -> Option<String> {
        let Router { score, top, eps, scale, groups, kept, pairs, normalize: _ } = *self;
        let per_group = experts.checked_div(groups).unwrap_or(0);
        if experts > llmcc_abi::route::MOST_EXPERTS {
            Some(format!("{experts} experts are more than {}", llmcc_abi::route::MOST_EXPERTS))
        } else if groups == 0 || !experts.is_multiple_of(groups) {
            Some(format!("{experts} experts do not make {groups} equal groups"))
        } else if kept == 0 || kept > groups {
            Some(format!("keeps {kept} of {groups} groups"))
        } else if top == 0 || top > kept * per_group || top > llmcc_abi::route::MOST_CHOSEN {
            let most = (kept * per_group).min(llmcc_abi::route::MOST_CHOSEN);
            Some(format!("chooses {top} experts of {most}"))
        } else if pairs && per_group < 2 {
            Some("groups of one expert have no pairs".into())
        } else if score == Score::Mixer && (top != 2 || groups != 1) {
            Some("the sparse mixer chooses two experts of one group".into())
        } else if !eps.get().is_finite() || eps.get() < 0.0 || !scale.get().is_finite() {
            Some("a number is not finite, or negative".into())
        } else {
            None
        }
    }

    /// Indices of the chosen experts in the order of their ranking (equal ones by index; NaN comes
    /// last), and their weights, for the logits of a token.
    pub fn choose(&self, logits: &[f64], bias: &[f64]) -> (Vec<usize>, Vec<f64>) {
        if self.score == Score::Mixer {
            return self.mix(logits);
        }
        let scores: Vec<f64> = match self.score {
            Score::Softmax => softmax(logits, |_| true),
            Score::Chosen | Score::Mixer | Score::Given => logits.to_vec(),
            Score::Sigmoid | Score::SigmoidOfChosen => logits.iter().map(|z| 1.0 / (1.0 + (-z).exp())).collect(),
        };
        // A softmax keeps the order of its logits, but numbers that differ may round to one.
        let order: Vec<f64> = match self.score {
            Score::Softmax if bias.iter().all(|b| *b == 0.0) && self.groups == 1 => logits.to_vec(),
            Score::SigmoidOfChosen => logits.iter().zip(bias).map(|(z, b)| z + b).collect(),
            Score::Softmax | Score::Sigmoid | Score::Chosen | Score::Mixer | Score::Given => {
                scores.iter().zip(bias).map(|(s, b)| s + b).collect()
            }
        };
        let per_group = logits.len() / self.groups;
        let group_scores: Vec<f64> = order
            .chunks(per_group)
            .map(|group| {
                let best = best(group, if self.pairs { 2 } else { 1 }, |_| true);
                best.into_iter().map(|i| group[i]).sum()
            })
            .collect();
        let kept = best(&group_scores, self.kept, |_| true);
        let chosen = best(&order, self.top, |e| kept.contains(&(e / per_group)));
        let mut weights: Vec<f64> = match self.score {
            Score::Chosen => {
                let all = softmax(logits, |e| chosen.contains(&e));
                chosen.iter().map(|e| all[*e]).collect()
            }
            Score::Softmax | Score::Sigmoid | Score::SigmoidOfChosen | Score::Mixer | Score::Given => {
                chosen.iter().map(|e| scores[*e]).collect()
            }
        };
        let sum: f64 = weights.iter().sum::<f64>() + f64::from(self.eps.get());
        let scale = f64::from(self.scale.get());
        weights.iter_mut().for_each(|w| *w = if self.normalize { *w / sum } else { *w } * scale);
        (chosen, weights)
    }

    /// The sparse mixer of arXiv 2409.12136 when it infers: the best expert, with its share in a
    /// softmax of those near it, then the same of the others.
    fn mix(&self, logits: &[f64]) -> (Vec<usize>, Vec<f64>) {
        let (mut chosen, mut weights) = (vec![], vec![]);
        for _ in 0..self.top {
            let Some(top) = best(logits, 1, |e| !chosen.contains(&e)).first().copied() else { break };
            let most = logits[top];
            let near = |e: usize| {
                let z = logits[e];
                !chosen.contains(&e) && (most - z) / z.abs().max(most) <= 2.0 * f64::from(self.eps.get())
            };
            weights.push(softmax(logits, near)[top] * f64::from(self.scale.get()));
            chosen.push(top);
        }
        (chosen, weights)
    }
}

/// Numbers of the `count` largest of those that may be taken, descending; equal ones ascending by
/// number; NaN counts as smaller than all.
fn best(x: &[f64], count: usize, may: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut all: Vec<usize> = (0..x.len()).filter(|i| may(*i)).collect();
    // Without a negative zero, which would be smaller than the other.
    let key = |i: usize| if x[i].is_nan() { f64::NEG_INFINITY } else { x[i] + 0.0 };
    all.sort_by(|a, b| key(*b).total_cmp(&key(*a)).then(a.cmp(b)));
    all.truncate(count);
    all
}

/// Softmax over some numbers; 0 for the others.
fn softmax(x: &[f64], of: impl Fn(usize) -> bool) -> Vec<f64> {
    let some = || x.iter().enumerate().filter(|(i, _)| of(*i));
    let most = some().fold(f64::NEG_INFINITY, |m, (_, z)| m.max(*z));
    let sum: f64 = some().map(|(_, z)| (z - most).exp()).sum();
    (0..x.len()).map(|i| if of(i) { (x[i] - most).exp() / sum } else { 0.0 }).collect()
}

/// The expert that slot `slot` of a row of routes names, below `experts`.
pub(crate) fn expert(routes: &[f64], slot: usize, experts: usize) -> Result<usize, EvalError> {
    let number = routes.get(slot).copied().unwrap_or(f64::NAN);
    if number >= 0.0 && number < experts as f64 && number.fract() == 0.0 {
        Ok(number as usize)
    } else {
        Err(EvalError::batch(format!("expert {number} of {experts}")))
    }
}

/// The weighted sum of the runs of `y`, in their order.
pub(crate) fn combined(weights: &[f64], y: &[f64]) -> Vec<f64> {
    let n = y.len() / weights.len().max(1);
    (0..n).map(|j| weights.iter().enumerate().map(|(s, w)| w * y[s * n + j]).sum()).collect()
}

impl Route {
    fn router(&self) -> Router {
        let Route { score, top, normalize, eps, scale, groups, kept, pairs } = *self;
        Router { score, top, normalize, eps, scale, groups, kept, pairs }
    }
}

impl Rule for Route {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, experts) = a.activation(0)?;
        a.same("experts and their biases", experts, a.vector(1)?)?;
        match self.router().misfit(experts) {
            Some(what) => Err(format!("`route`: {what}")),
            None => Ok(TensorType::rows(m, 2 * self.top).into()),
        }
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (logits, bias) = (a.tensor(0)?, a.tensor(1)?);
        let row = |row: &[f64]| {
            let (chosen, weights) = self.router().choose(row, &bias.data);
            chosen.into_iter().map(|e| e as f64).chain(weights).collect()
        };
        Ok(Value::tensor(logits.map_rows(2 * self.top, |_, logits| row(logits))))
    }
}

/// `(rows, top)` of routes.
fn routes(a: &Types<'_>, i: usize, top: usize) -> Result<crate::ty::Dim, String> {
    let (m, cols) = a.activation(i)?;
    if top == 0 || cols != top.saturating_mul(2) {
        return Err(format!("`{}`: {top} experts per token need routes of {} columns", a.name, top.saturating_mul(2)));
    }
    Ok(m)
}

impl ExpertMatMul {
    /// Columns of a slot where all matrices have so many rows together.
    fn kept(&self, rows: usize) -> usize {
        if self.cols == 0 { rows / self.experts } else { self.cols }
    }
}

impl Rule for ExpertMatMul {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, cols) = a.activation(0)?;
        let (n, k) = a.weight_matrix(1)?;
        if routes(a, 2, self.top)? != m {
            return Err("`expert_matmul`: row counts differ".into());
        }
        if self.experts == 0 || !n.is_multiple_of(self.experts) {
            return Err(format!("`expert_matmul`: {n} rows do not fit {} experts", self.experts));
        }
        if self.cols > n / self.experts {
            return Err(format!("`expert_matmul`: {} of {} columns per expert", self.cols, n / self.experts));
        }
        if cols != k && Some(cols) != k.checked_mul(self.top) {
            return Err(format!("`expert_matmul`: {cols} columns are neither {k} nor {} times as many", self.top));
        }
        Ok(TensorType::rows(m, self.kept(n).saturating_mul(self.top)).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (x, w, routes) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
        let (n, k) = (w.shape[0] / self.experts, w.cols());
        let kept = self.kept(w.shape[0]);
        let mut data = vec![];
        for (x, routes) in x.rows().zip(routes.rows()) {
            for slot in 0..self.top {
                let x = if x.len() == k { x } else { &x[slot * k..][..k] };
                let e = expert(routes, slot, self.experts)?;
                data.extend(w.rows().skip(e * n).take(kept).map(|w| dot(x, w)));
            }
        }
        let shape = vec![x.shape[0], self.top * kept];
        Ok(Value::tensor(crate::eval::Tensor { shape, data }))
    }
}

impl Rule for ExpertVector {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let n = a.vector(0)?;
        let m = routes(a, 1, self.top)?;
        if self.experts == 0 || !n.is_multiple_of(self.experts) {
            return Err(format!("`expert_vector`: {n} elements do not fit {} experts", self.experts));
        }
        Ok(TensorType::rows(m, (n / self.experts).saturating_mul(self.top)).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (v, routes) = (a.tensor(0)?, a.tensor(1)?);
        let n = v.data.len() / self.experts;
        let mut data = vec![];
        for row in routes.rows() {
            for slot in 0..self.top {
                data.extend_from_slice(&v.data[expert(row, slot, self.experts)? * n..][..n]);
            }
        }
        let shape = vec![routes.shape[0], self.top * n];
        Ok(Value::tensor(crate::eval::Tensor { shape, data }))
    }
}

impl Rule for Combine {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let ((m, slots), (rows, n)) = (a.activation(0)?, a.activation(1)?);
        if rows != m {
            return Err("`combine`: row counts differ".into());
        }
        a.multiple("number of weights", n, slots)?;
        Ok(TensorType::rows(m, n / slots).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (w, y) = (a.tensor(0)?, a.tensor(1)?);
        let weights: Vec<&[f64]> = w.rows().collect();
        Ok(Value::tensor(y.map_rows(y.cols() / w.cols(), |i, y| combined(weights[i], y))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(score: Score, top: usize) -> Router {
        Router { score, ..Router::softmax(top, false) }
    }

    #[test]
    fn equal_experts_come_in_the_order_of_their_numbers() {
        for score in Score::ALL {
            let (chosen, weights) = router(score, 2).choose(&[1.0, 3.0, 3.0, 3.0], &[0.0; 4]);
            assert_eq!(chosen, [1, 2], "{score:?}");
            assert_eq!(weights.len(), 2);
        }
        let (chosen, _) = router(Score::Softmax, 3).choose(&[f64::NAN, 0.0, f64::NAN, -1.0], &[0.0; 4]);
        assert_eq!(chosen, [1, 3, 0]);
    }

    #[test]
    fn weights_follow_from_the_score() {
        let e = |x: f64| x.exp();
        let close = |a: &[f64], b: &[f64]| {
            assert!(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?} {b:?}")
        };
        let logits = [0.5, -1.0, 2.0, 1.0];
        let (chosen, weights) = router(Score::Softmax, 2).choose(&logits, &[0.0; 4]);
        let all: f64 = logits.iter().map(|z| e(*z)).sum();
        assert_eq!(chosen, [2, 3]);
        close(&weights, &[e(2.0) / all, e(1.0) / all]);
        let (_, weights) = Router { normalize: true, ..router(Score::Softmax, 2) }.choose(&logits, &[0.0; 4]);
        let (_, of_chosen) = router(Score::Chosen, 2).choose(&logits, &[0.0; 4]);
        close(&weights, &[e(2.0) / (e(2.0) + e(1.0)), e(1.0) / (e(2.0) + e(1.0))]);
        close(&of_chosen, &weights);
        // A bias changes the choice, and no weight.
        let sigmoid = Router { scale: F32::new(2.5), ..router(Score::Sigmoid, 2) };
        let (chosen, weights) = sigmoid.choose(&logits, &[0.0, 1.0, 0.0, 0.0]);
        assert_eq!(chosen, [1, 2]);
        close(&weights, &[2.5 / (1.0 + e(1.0)), 2.5 / (1.0 + e(-2.0))]);
        // Scores that are given are weights.
        let given = Router { score: Score::Given, normalize: true, ..router(Score::Given, 2) };
        let (chosen, weights) = given.choose(&logits, &[0.75, 0.0, 0.0, 0.0]);
        assert_eq!(chosen, [2, 0]);
        close(&weights, &[0.8, 0.2]);
        // One that is added to logits needs to be larger.
        let late = Router { score: Score::SigmoidOfChosen, ..sigmoid };
        assert_eq!(late.choose(&logits, &[0.0, 1.0, 0.0, 0.0]).0, [2, 3]);
        let (chosen, weights) = late.choose(&logits, &[0.0, 3.5, 0.0, 0.0]);
        assert_eq!(chosen, [1, 2]);
        close(&weights, &[2.5 / (1.0 + e(1.0)), 2.5 / (1.0 + e(-2.0))]);
    }

    /// Three groups of two, two of them kept: by their best expert, or by both together.
    #[test]
    fn groups_limit_the_choice() {
        let logits = [9.0, -9.0, 4.0, 4.0, 5.0, 2.0];
        let one = Router { groups: 3, kept: 2, ..router(Score::Chosen, 3) };
        assert_eq!(one.choose(&logits, &[0.0; 6]).0, [0, 4, 5]);
        let both = Router { pairs: true, ..one };
        assert_eq!(both.choose(&logits, &[0.0; 6]).0, [4, 2, 3]);
    }

    #[test]
    fn attributes_that_fit_no_choice_are_refused() {
        assert_eq!(router(Score::Softmax, 2).misfit(4), None);
        for (wrong, what) in [
            (router(Score::Softmax, 5), "chooses 5"),
            (router(Score::Softmax, 0), "chooses 0"),
            (router(Score::Mixer, 3), "sparse mixer"),
            (Router { groups: 3, ..router(Score::Softmax, 1) }, "3 equal groups"),
            (Router { groups: 2, kept: 3, ..router(Score::Softmax, 1) }, "keeps 3 of 2"),
            (Router { groups: 4, kept: 2, pairs: true, ..router(Score::Softmax, 1) }, "no pairs"),
            (Router { eps: F32::new(f32::NAN), ..router(Score::Softmax, 1) }, "not finite"),
        ] {
            assert!(wrong.misfit(4).is_some_and(|m| m.contains(what)), "{what}: {:?}", wrong.misfit(4));
        }
    }
}
