//! The choice of experts: a warp per token, whose lanes hold every 32nd expert in registers.
//!
//! Sums over experts go per lane in ascending order, then over lanes in a fixed tree: a token's
//! result depends on its logits alone.

use crate::cx::{Args, Cx, when_below};
use crate::expr::unary;
use crate::mlir::{Builder, Cmp, Elem, F32, I1, I32, V, WARP};
use crate::piece::{col_at, row_at};
use crate::{Source, blocks, per_rows};
use llmcc_ir::graph::{Router, Score, UnaryOp};
use llmcc_ir::kernel::{Route, RowElem};

/// An index above all experts'.
const NONE: i64 = 1 << 20;
const WARP_MASKS: [i64; 5] = [16, 8, 4, 2, 1];

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &Route) -> Source {
    let (experts, cols) = (cx.cols(k.x), cx.cols(k.out));
    let (mlir, program) = cx.function(WARP as u32, 1, |b, args| {
        let m = cx.row_count(b, args);
        let row = b.sreg("ctaid.x");
        when_below(b, row, m, |b| {
            let out = row_at(b, args.operand(k.out), cols, RowElem::F32, row);
            let mut t = Token::load(b, args, k, experts, row);
            let weights = t.choose(b, &k.router, out);
            let first = b.cmpc(Cmp::Eq, t.lane, 0);
            b.if_(first, |b| {
                for (i, w) in weights.into_iter().enumerate() {
                    let p = b.atc(out, 4 * (k.router.top + i) as i64);
                    b.store(w, p);
                }
            });
        });
    });
    Source::new(cx.entry(), (mlir, program), WARP as u32, [per_rows(1), blocks(1), blocks(1)])
}

/// A lane's knowledge of the experts of a token.
struct Token {
    lane: V,
    experts: usize,
    logits: Vec<V>,
    biases: Vec<V>,
    /// Those that are there and not out of the question (`i1`).
    open: Vec<V>,
}

/// The best of some experts, in every lane.
struct Best {
    key: V,
    number: V,
    /// Its score.
    score: V,
}

impl Token {
    fn load(b: &mut Builder, args: Args<'_>, k: &Route, experts: usize, row: V) -> Token {
        let lane = b.sreg("tid.x");
        let line = row_at(b, args.operand(k.x), experts, RowElem::F32, row);
        let mut t = Token { lane, experts, logits: vec![], biases: vec![], open: vec![] };
        for i in 0..experts.div_ceil(WARP) {
            let e = t.number(b, i);
            let there = b.cmpc(Cmp::Slt, e, experts as i64);
            let last = b.i32(experts as i64 - 1);
            let e = b.min(e, last);
            let p = col_at(b, line, Elem::F32, e);
            t.logits.push(b.load(p, F32));
            let p = col_at(b, args.operand(k.bias), Elem::F32, e);
            t.biases.push(b.load(p, F32));
            t.open.push(there);
        }
        t
    }

    /// Number of the lane's expert `i`.
    fn number(&self, b: &mut Builder, i: usize) -> V {
        b.addc(self.lane, (i * WARP) as i64)
    }

    /// Stores the numbers of the chosen experts; gives their weights, in every lane.
    fn choose(&mut self, b: &mut Builder, r: &Router, out: V) -> Vec<V> {
        if r.score == Score::Mixer {
            return self.mix(b, r, out);
        }
        let scores = self.scores(b, r.score);
        let ranked = if r.score == Score::SigmoidOfChosen { &self.logits } else { &scores };
        let keys = self.keys(b, r, ranked);
        if r.groups > 1 {
            self.leave_groups_out(b, r, &keys);
        }
        let mut weights = vec![];
        for slot in 0..r.top {
            let best = self.best(b, &keys, &scores);
            self.take(b, &best, out, slot);
            weights.push(best.score);
        }
        if r.score == Score::Chosen {
            softmax_of(b, &mut weights);
        }
        let eps = b.f32(r.eps.get());
        let zero = b.f32(0.0);
        let sum = weights.iter().fold(zero, |sum, w| b.fadd(sum, *w));
        let sum = b.fadd(sum, eps);
        let scale = b.f32(r.scale.get());
        weights
            .into_iter()
            .map(|w| {
                let w = if r.normalize { b.fdiv(w, sum) } else { w };
                b.fmul(w, scale)
            })
            .collect()
    }

    fn scores(&self, b: &mut Builder, score: Score) -> Vec<V> {
        match score {
            Score::Chosen | Score::Mixer | Score::Given => self.logits.clone(),
            Score::Sigmoid | Score::SigmoidOfChosen => {
                self.logits.iter().map(|z| unary(b, UnaryOp::Sigmoid, *z)).collect()
            }
            Score::Softmax => {
                let (sum, exps) = self.exponentials(b, &self.open);
                exps.into_iter().map(|e| b.fdiv(e, sum)).collect()
            }
        }
    }

    /// `e^(z − largest)` of some experts, and its sum; 0 for the others.
    fn exponentials(&self, b: &mut Builder, of: &[V]) -> (V, Vec<V>) {
        let (least, zero) = (b.f32(f32::NEG_INFINITY), b.f32(0.0));
        let mut most = least;
        for (z, of) in self.logits.iter().zip(of) {
            let z = b.select(*of, *z, least);
            most = b.fmax(most, z);
        }
        let most = b.reduce(most, &WARP_MASKS, |b, x, y| b.fmax(x, y));
        let (mut sum, mut exps) = (zero, vec![]);
        for (z, of) in self.logits.iter().zip(of) {
            let z = b.fsub(*z, most);
            let e = unary(b, UnaryOp::Exp, z);
            let e = b.select(*of, e, zero);
            sum = b.fadd(sum, e);
            exps.push(e);
        }
        let sum = b.reduce(sum, &WARP_MASKS, |b, x, y| b.fadd(x, y));
        (sum, exps)
    }

    /// Keys by which experts are compared: NaN is the smallest.
    fn keys(&self, b: &mut Builder, r: &Router, scores: &[V]) -> Vec<V> {
        let zero = b.f32(0.0);
        // A softmax keeps the order of its logits, but numbers that differ may round to one.
        let plain = (r.score == Score::Softmax && r.groups <= 1).then(|| {
            let mut most = zero;
            for bias in &self.biases {
                let size = b.op(F32, format!("math.absf {bias} : f32"));
                most = b.fmax(most, size);
            }
            let most = b.reduce(most, &WARP_MASKS, |b, x, y| b.fmax(x, y));
            b.op(I1, format!("arith.cmpf oeq, {most}, {zero} : f32"))
        });
        let mut keys = vec![];
        for (i, (score, bias)) in scores.iter().zip(&self.biases).enumerate() {
            let key = b.fadd(*score, *bias);
            let key = plain.map_or(key, |plain| b.select(plain, self.logits[i], key));
            keys.push(number_or_least(b, key));
        }
        keys
    }

    /// The best of the open experts: the first of the largest.
    fn best(&self, b: &mut Builder, keys: &[V], scores: &[V]) -> Best {
        let zero = b.f32(0.0);
        let mut best = Best { key: b.f32(f32::NEG_INFINITY), number: b.i32(NONE), score: zero };
        for (i, key) in keys.iter().enumerate() {
            let other = Best { key: *key, number: self.number(b, i), score: scores[i] };
            let better = better(b, &other, &best);
            let better = b.and(better, self.open[i]);
            best = pick(b, better, other, best);
        }
        for mask in WARP_MASKS {
            let other = Best {
                key: b.shuffle_xor(best.key, mask),
                number: b.shuffle_xor(best.number, mask),
                score: b.shuffle_xor(best.score, mask),
            };
            let better = better(b, &other, &best);
            best = pick(b, better, other, best);
        }
        best
    }

    /// Takes an expert out, and stores its number.
    fn take(&mut self, b: &mut Builder, best: &Best, out: V, slot: usize) {
        self.close(b, best.number);
        let first = b.cmpc(Cmp::Eq, self.lane, 0);
        let number = b.sitofp(best.number, F32);
        b.if_(first, |b| {
            let p = b.atc(out, 4 * slot as i64);
            b.store(number, p);
        });
    }

    fn close(&mut self, b: &mut Builder, number: V) {
        for i in 0..self.open.len() {
            let e = self.number(b, i);
            let other = b.cmp(Cmp::Ne, e, number);
            self.open[i] = b.and(self.open[i], other);
        }
    }

    /// Keeps the experts of the best groups.
    fn leave_groups_out(&mut self, b: &mut Builder, r: &Router, keys: &[V]) {
        let each = (self.experts / r.groups) as i64;
        let all = self.open.clone();
        let mut of_group = vec![];
        for g in 0..r.groups {
            for (i, open) in all.iter().enumerate() {
                let e = self.number(b, i);
                let group = b.divc(e, each);
                let inside = b.cmpc(Cmp::Eq, group, g as i64);
                self.open[i] = b.and(*open, inside);
            }
            let first = self.best(b, keys, keys);
            let mut score = first.key;
            if r.pairs {
                self.close(b, first.number);
                let second = self.best(b, keys, keys);
                score = b.fadd(score, second.key);
            }
            of_group.push(number_or_least(b, score));
        }
        // A group is kept if fewer than so many are before it.
        let (one, zero) = (b.i32(1), b.i32(0));
        self.open = all;
        for (g, score) in of_group.iter().enumerate() {
            let mut before = zero;
            for (h, other) in of_group.iter().enumerate().filter(|(h, _)| *h != g) {
                let kind = if h < g { "oge" } else { "ogt" };
                let first = b.op(I1, format!("arith.cmpf {kind}, {other}, {score} : f32"));
                let more = b.select(first, one, zero);
                before = b.add(before, more);
            }
            let kept = b.cmpc(Cmp::Slt, before, r.kept as i64);
            for i in 0..self.open.len() {
                let e = self.number(b, i);
                let group = b.divc(e, each);
                let outside = b.cmpc(Cmp::Ne, group, g as i64);
                let stays = b.op(I1, format!("arith.ori {kept}, {outside} : i1"));
                self.open[i] = b.and(self.open[i], stays);
            }
        }
    }

    /// The sparse mixer.
    fn mix(&mut self, b: &mut Builder, r: &Router, out: V) -> Vec<V> {
        let mut weights = vec![];
        let keys: Vec<V> = self.logits.clone().into_iter().map(|z| number_or_least(b, z)).collect();
        for slot in 0..r.top {
            let logits = self.logits.clone();
            let best = self.best(b, &keys, &logits);
            let most = best.score;
            let band = b.f32(2.0 * r.eps.get());
            let mut near = vec![];
            for (z, open) in logits.iter().zip(self.open.clone()) {
                let size = b.op(F32, format!("math.absf {z} : f32"));
                let size = b.fmax(size, most);
                let distance = b.fsub(most, *z);
                let distance = b.fdiv(distance, size);
                let inside = b.op(I1, format!("arith.cmpf ole, {distance}, {band} : f32"));
                near.push(b.and(open, inside));
            }
            let (sum, _) = self.exponentials(b, &near);
            self.take(b, &best, out, slot);
            let scale = b.f32(r.scale.get());
            let one = b.f32(1.0);
            let share = b.fdiv(one, sum);
            weights.push(b.fmul(share, scale));
        }
        weights
    }
}

/// −∞ for NaN.
fn number_or_least(b: &mut Builder, x: V) -> V {
    let least = b.f32(f32::NEG_INFINITY);
    let nan = b.op(I1, format!("arith.cmpf uno, {x}, {x} : f32"));
    b.select(nan, least, x)
}

/// Whether `a` comes before `c`.
fn better(b: &mut Builder, a: &Best, c: &Best) -> V {
    let more = b.op(I1, format!("arith.cmpf ogt, {}, {} : f32", a.key, c.key));
    let equal = b.op(I1, format!("arith.cmpf oeq, {}, {} : f32", a.key, c.key));
    let lower = b.cmp(Cmp::Slt, a.number, c.number);
    let lower = b.and(equal, lower);
    b.op(I1, format!("arith.ori {more}, {lower} : i1"))
}

fn pick(b: &mut Builder, better: V, a: Best, c: Best) -> Best {
    debug_assert_eq!(a.number.ty, I32);
    Best {
        key: b.select(better, a.key, c.key),
        number: b.select(better, a.number, c.number),
        score: b.select(better, a.score, c.score),
    }
}

/// The softmax of a few numbers that every lane has.
fn softmax_of(b: &mut Builder, x: &mut [V]) {
    let least = b.f32(f32::NEG_INFINITY);
    let most = x.iter().fold(least, |m, z| b.fmax(m, *z));
    let mut sum = b.f32(0.0);
    for z in x.iter_mut() {
        let d = b.fsub(*z, most);
        *z = unary(b, UnaryOp::Exp, d);
        sum = b.fadd(sum, *z);
    }
    x.iter_mut().for_each(|z| *z = b.fdiv(*z, sum));
}
