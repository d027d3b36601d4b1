//! A kernel's results, against bounds on f32 arithmetic; and the bounds' own values against the
//! evaluator.

use crate::bound::{Approx, ULP, of_binary, of_norm, of_rope, of_unary};
use crate::case::Case;
use llmcc_abi::layout::excess_parts;
use llmcc_ir::eval::{KvState, OperandData, Q8Rows, excesses};
use llmcc_ir::graph::{BinaryOp, UnaryOp};
use llmcc_ir::kernel::{Body, Embed, ExpertMatmul, Expr, ParamId, ParamKind, RowElem, RowNorm, Segment, Store};
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::unpack_row;
use std::ops::Range;

/// Absolute error of the evaluator itself: f64 rounding of values of moderate size.
const ORACLE: f64 = 1e-11;

/// Absolute error of a backend's elementary function where it takes `x` to `value`.
pub type OwnError = fn(UnaryOp, x: f64, value: f64) -> f64;

/// Bounds on a backend's results for a case.
pub struct Bounds<'a> {
    case: &'a Case,
    own: OwnError,
    oracle: Vec<OperandData<'static>>,
}

/// Where an expression is evaluated.
struct At {
    /// Columns.
    n: usize,
    row: usize,
    /// Row of the products.
    product: usize,
    /// Slot and its expert, in products of experts.
    slot: Option<(usize, usize)>,
}

impl<'a> Bounds<'a> {
    /// For a backend whose elementary functions are off by `own`.
    pub fn new(case: &'a Case, own: OwnError) -> Bounds<'a> {
        Bounds { case, own, oracle: case.expected() }
    }

    /// Checks every segment of a product without prologue, or of a pointwise kernel.
    pub fn check_segments(&self, got: &[OperandData]) {
        let case = self.case;
        match &case.kernel.body {
            Body::Matmul(k) => {
                assert!(k.prologue.is_none(), "prologues are compared with row norms");
                let x: Vec<Vec<f64>> = (0..case.m()).map(|i| case.row(k.x, i)).collect();
                let int8 = matches!(case.operands[k.x], OperandData::Q8(_));
                for s in &k.segments {
                    let lanes: Vec<_> = s.weights.iter().map(|w| self.product(&x, *w, int8)).collect();
                    self.check_segment(s, &lanes, got);
                }
            }
            Body::Pointwise(k) => k.segments.iter().for_each(|s| self.check_segment(s, &[], got)),
            Body::ExpertMatmul(k) => self.check_experts(k, got),
            body => panic!("no segments in {body:?}"),
        }
    }

    /// Checks every slot of every row.
    fn check_experts(&self, k: &ExpertMatmul, got: &[OperandData]) {
        let (case, s) = (self.case, &k.segment);
        let int8 = matches!(case.operands[k.x], OperandData::Q8(_));
        let Store::Rows { param, .. } = s.store else { panic!("not rows") };
        for i in 0..case.m() {
            let (x, routes) = (case.row(k.x, i), k.routes.map(|routes| case.row(routes, i)));
            for slot in 0..k.top {
                let ParamKind::Matrix { k: inner, .. } = case.kernel.params[s.weights[0]].kind else {
                    panic!("not a matrix")
                };
                let own = k.own_input(x.len(), inner);
                let input = if own { &x[slot * inner..][..inner] } else { &x[..] };
                let expert = routes.as_ref().map_or(slot, |routes| routes[slot] as usize);
                let (first, rows) = (expert * k.rows(), [input.to_vec()]);
                let lane = |w: &ParamId| self.product_with(&rows, *w, int8, first..first + s.n);
                let lanes: Vec<_> = s.weights.iter().map(lane).collect();
                let at = At { n: s.n, row: i, product: 0, slot: Some((slot, expert)) };
                self.check_row(&self.expr(&s.expr, &at, &lanes), got, param, i, slot * s.n);
            }
        }
    }

    /// Checks every row of a row norm.
    pub fn check_row_norm(&self, got: &[OperandData]) {
        let case = self.case;
        let Body::RowNorm(RowNorm { x, gather, norm, gain, bias, residual, out }) = case.kernel.body else {
            panic!("no row norm")
        };
        let vector = |v: ParamId| match &case.operands[v] {
            OperandData::Vector(v) => v,
            _ => panic!("not a vector"),
        };
        for i in 0..case.m() {
            let row = case.row(x, if gather { case.batch.out_rows[i] } else { i });
            let mut values: Vec<Approx> = row.into_iter().map(Approx::exact).collect();
            if let Some(norm) = &norm {
                values = values.chunks(norm.width).flat_map(|run| of_norm(norm, run)).collect();
            }
            if let Some(gain) = gain {
                let gain = vector(gain);
                for (j, v) in values.iter_mut().enumerate() {
                    let gain = f64::from(gain[j % gain.len()]);
                    *v = Approx { value: v.value * gain, error: (v.error + ULP * v.value.abs()) * gain.abs() };
                }
            }
            if let Some(bias) = bias {
                let bias = vector(bias);
                let of = |j: usize| Approx::exact(bias[j % bias.len()].into());
                values = values.into_iter().enumerate().map(|(j, v)| of_binary(BinaryOp::Add, v, of(j))).collect();
            }
            if let Some(residual) = residual {
                let rows = case.row(residual, i).into_iter().map(Approx::exact);
                values = rows.zip(values).map(|(r, v)| of_binary(BinaryOp::Add, r, v)).collect();
            }
            self.check_row(&values, got, out, i, 0);
        }
    }

    /// Checks every row of a look-up.
    pub fn check_embed(&self, got: &[OperandData]) {
        let case = self.case;
        let Body::Embed(look_up) = &case.kernel.body else { panic!("no look-up") };
        let Embed { table, index, scale, add, out, .. } = *look_up;
        let (ParamKind::Matrix { k, format, .. }, OperandData::Matrix(bytes)) =
            (&case.kernel.params[table].kind, &case.operands[table])
        else {
            panic!("not a matrix")
        };
        let mut row = vec![0f32; *k];
        for i in 0..case.m() {
            let number = look_up.row(index.number(&case.batch, i));
            unpack_row(*format, bytes, *k, number as usize, &mut row);
            let scale = Approx::exact(scale.get().into());
            let scaled = row.iter().map(|v| of_binary(BinaryOp::Mul, Approx::exact((*v).into()), scale));
            let values: Vec<Approx> = match add.map(|add| case.row(add, i)) {
                Some(add) => scaled.zip(add).map(|(v, a)| of_binary(BinaryOp::Add, v, Approx::exact(a))).collect(),
                None => scaled.collect(),
            };
            self.check_row(&values, got, out, i, 0);
        }
    }

    /// `x·wᵀ` for every row and column.
    fn product(&self, x: &[Vec<f64>], weights: ParamId, int8: bool) -> Vec<Vec<Approx>> {
        let ParamKind::Matrix { n, .. } = self.case.kernel.params[weights].kind else { panic!("not a matrix") };
        self.product_with(x, weights, int8, 0..n)
    }

    /// The same with rows of the matrix.
    fn product_with(&self, x: &[Vec<f64>], weights: ParamId, int8: bool, rows: Range<usize>) -> Vec<Vec<Approx>> {
        let (ParamKind::Matrix { k, format, .. }, OperandData::Matrix(bytes)) =
            (&self.case.kernel.params[weights].kind, &self.case.operands[weights])
        else {
            panic!("not a matrix")
        };
        let mut out = vec![vec![]; x.len()];
        let mut w = vec![0f32; *k];
        for j in rows {
            unpack_row(*format, bytes, *k, j, &mut w);
            let largest = w.iter().fold(0f64, |m, v| m.max(f64::from(v.abs())));
            for (out, x) in out.iter_mut().zip(x) {
                let terms = || x.iter().zip(&w).map(|(a, b)| a * f64::from(*b));
                // int8 rows multiply code and minimum apart: each part may be twice as large as the
                // weights.
                let magnitude: f64 = if int8 && format.encoding().has_minimum() {
                    x.iter().map(|a| 4.0 * a.abs() * largest).sum()
                } else {
                    terms().map(f64::abs).sum()
                };
                out.push(Approx { value: terms().sum(), error: (*k as f64 + 4.0) * ULP * magnitude });
            }
        }
        out
    }

    fn expr(&self, e: &Expr, at: &At, lanes: &[Vec<Vec<Approx>>]) -> Vec<Approx> {
        let (n, i) = (at.n, at.row);
        let of = |e: &Expr| self.expr(e, at, lanes);
        match e {
            Expr::Acc(lane) => lanes[*lane][at.product].clone(),
            Expr::Rows { param, start } => {
                let start = start + at.slot.map_or(0, |(slot, _)| slot * n);
                self.case.row(*param, i)[start..start + n].iter().copied().map(Approx::exact).collect()
            }
            Expr::Expert { vector, routes, top } => {
                let OperandData::Vector(v) = &self.case.operands[*vector] else { panic!("not a vector") };
                let part = |expert: usize, n: usize| v[expert * n..][..n].iter().map(|v| Approx::exact((*v).into()));
                match at.slot {
                    Some((_, expert)) => part(expert, n).collect(),
                    None => {
                        let routes = self.case.row(*routes, i);
                        routes[..*top].iter().flat_map(|e| part(*e as usize, n / top)).collect()
                    }
                }
            }
            Expr::Pick { rows, order } => {
                let OperandData::Vector(order) = &self.case.operands[*order] else { panic!("not a vector") };
                let row = self.case.row(*rows, i);
                order.iter().map(|j| Approx::exact(row[*j as usize])).collect()
            }
            Expr::Combine { weights, from, y, count } => {
                let (w, y) = (self.case.row(*weights, i), self.case.row(*y, i));
                let term = |s: usize, j: usize| {
                    of_binary(BinaryOp::Mul, Approx::exact(w[from + s]), Approx::exact(y[s * n + j]))
                };
                let sum = |j: usize| (1..*count).fold(term(0, j), |sum, s| of_binary(BinaryOp::Add, sum, term(s, j)));
                (0..n).map(sum).collect()
            }
            Expr::Vector(param) => {
                let OperandData::Vector(v) = &self.case.operands[*param] else { panic!("not a vector") };
                (0..n).map(|j| Approx::exact(v[j % v.len()].into())).collect()
            }
            Expr::Const(c) => vec![Approx::exact(c.get().into()); n],
            Expr::Unary(op, x) => {
                of(x).into_iter().map(|x| of_unary(*op, x, |x, value| (self.own)(*op, x, value))).collect()
            }
            Expr::Binary(op, a, b) => of(a).into_iter().zip(of(b)).map(|(a, b)| of_binary(*op, a, b)).collect(),
            Expr::Normalize(norm, x) => of(x).chunks(norm.width).flat_map(|run| of_norm(norm, run)).collect(),
            Expr::Rope { head_dim, table, x } => {
                let (mut x, table) = (of(x), self.case.row(*table, i));
                x.chunks_mut(*head_dim).for_each(|head| of_rope(head, &table));
                x
            }
        }
    }

    fn check_segment(&self, s: &Segment, lanes: &[Vec<Vec<Approx>>], got: &[OperandData]) {
        for i in 0..self.case.m() {
            let values = self.expr(&s.expr, &At { n: s.n, row: i, product: i, slot: None }, lanes);
            match s.store {
                Store::Rows { param, start } => self.check_row(&values, got, param, i, start),
                Store::KvKey(p) | Store::KvValue(p) => {
                    self.check_cached(&values, got, p, i, matches!(s.store, Store::KvKey(_)))
                }
            }
        }
    }

    /// Checks columns `start..` of row `i` of an operand.
    pub fn check_row(&self, values: &[Approx], got: &[OperandData], param: ParamId, i: usize, start: usize) {
        let ParamKind::Rows { elem, .. } = self.case.kernel.params[param].kind else { panic!("not rows") };
        let place = |j: usize| format!("row {i}, column {j} of operand {param}\n{}", self.case.text());
        match (&got[param], &self.oracle[param]) {
            (OperandData::Rows(got), OperandData::Rows(oracle)) => {
                for (j, a) in values.iter().enumerate().filter(|(_, a)| a.is_bounded()) {
                    check(
                        a,
                        got.row(i)[start + j].into(),
                        oracle.row(i)[start + j].into(),
                        |a| rounding(a, elem),
                        || place(j),
                    );
                }
            }
            (OperandData::Q8(got), OperandData::Q8(_)) if matches!(elem, RowElem::I8 { .. }) => {
                check_integers(values, got, i, start);
            }
            (OperandData::Q8(got), OperandData::Q8(_)) => check_q8(values, got, i, start),
            o => panic!("not rows: {o:?}"),
        }
    }

    fn check_cached(&self, values: &[Approx], got: &[OperandData], param: ParamId, i: usize, key: bool) {
        let (Some(got), Some(oracle)) = (cache(&got[param]), cache(&self.oracle[param])) else { panic!("not a cache") };
        let batch = &self.case.batch;
        let (seq, position, spec) = (batch.seqs[i], batch.positions[i] as usize, got.spec);
        if spec.row(position).is_none() {
            return;
        }
        let read =
            |s: &KvState, h| if key { s.key(seq, position, h) } else { s.value(seq, position, h) }.expect("stored");
        for (h, head) in values.chunks(spec.stored_dim(key)).enumerate() {
            if !head.iter().all(Approx::is_bounded) {
                continue;
            }
            let largest = head.iter().fold(0f64, |m, a| m.max(a.size()));
            let (got, oracle) = (read(got, h), read(oracle, h));
            for (j, a) in head.iter().enumerate() {
                let stored = |a: &Approx| match spec.dtype {
                    KvDType::F32 => rounding(a, RowElem::F32),
                    KvDType::F16 => rounding(a, RowElem::F16),
                    KvDType::Bf16 => rounding(a, RowElem::Bf16),
                    KvDType::Int8 | KvDType::Int4 => {
                        let most = f64::from(spec.dtype.most().unwrap_or(1));
                        Some(largest / most * (0.5 + 1e-3) + a.error)
                    }
                };
                check(a, got[j], oracle[j], stored, || {
                    format!("token {i}, head {h}, element {j} of the cache ({spec})\n{}", self.case.text())
                });
            }
        }
    }
}

/// Error that storing may add; `None` for values that may overflow.
fn rounding(a: &Approx, elem: RowElem) -> Option<f64> {
    match elem {
        RowElem::F16 => (a.size() <= 65504.0).then_some(a.size() / 2048.0 + 2f64.powi(-25)),
        RowElem::Bf16 => Some(a.size() / 256.0),
        _ => Some(ULP * a.value.abs() + 1e-44),
    }
}

/// `stored`: the error that storing a value may add.
fn check(a: &Approx, got: f64, oracle: f64, stored: impl Fn(&Approx) -> Option<f64>, place: impl Fn() -> String) {
    let (Some(allowed), Some(own)) = (stored(a), stored(&Approx::exact(a.value))) else {
        assert!(got.abs() > 65000.0, "{got}, expected overflow of {a:?}: {}", place());
        return;
    };
    assert!((oracle - a.value).abs() <= own + ORACLE, "the evaluator's {oracle}, expected {}: {}", a.value, place());
    assert!((got - a.value).abs() <= a.error + allowed, "{got}, expected {a:?} within {allowed:e}: {}", place());
}

/// int8 rows: the scale belongs to values within the bounds, each code is a nearest one under that
/// scale, sums are exact.
fn check_q8(row: &[Approx], got: &Q8Rows, i: usize, start: usize) {
    for (g, part) in row.chunks(got.group).enumerate() {
        let at = i * got.groups() + start / got.group + g;
        let amax = part.iter().fold(0f64, |m, a| m.max(a.value.abs()));
        let error = part.iter().fold(0f64, |m, a| m.max(a.error));
        let scale = f64::from(got.scales[at]);
        let codes = &got.codes[i * got.cols + start + g * got.group..][..part.len()];
        check_sums(got, at, codes);
        if amax < 1e-30 || !part.iter().all(Approx::is_bounded) {
            continue;
        }
        assert!(
            (scale * 127.0 - amax).abs() <= error + 2.0 * ULP * amax + 1e-42,
            "scale {scale} for a largest magnitude of {amax}"
        );
        for (code, a) in codes.iter().zip(part) {
            let slack = 0.5 + a.error / scale + 127.0 * 2.0 * ULP;
            assert!((f64::from(*code) - a.value / scale).abs() <= slack, "code {code} for {a:?} at scale {scale}");
        }
    }
}

/// The sum of the codes of group `at`, and its excesses.
fn check_sums(got: &Q8Rows, at: usize, codes: &[i8]) {
    assert_eq!(got.sums[at], codes.iter().map(|c| i32::from(*c)).sum::<i32>(), "group {at}: {codes:?}");
    let (want, parts) = (excesses(codes, got.group), excess_parts(got.group));
    assert_eq!(got.excesses[at * parts..][..parts], want[..parts], "group {at}: {codes:?}");
}

/// Rows of integers: each code is a nearest one, scales are 1, sums are exact.
fn check_integers(row: &[Approx], got: &Q8Rows, i: usize, start: usize) {
    for (g, part) in row.chunks(got.group).enumerate() {
        let at = i * got.groups() + start / got.group + g;
        let codes = &got.codes[i * got.cols + start + g * got.group..][..part.len()];
        check_sums(got, at, codes);
        if !part.iter().all(Approx::is_bounded) {
            continue;
        }
        assert_eq!(got.scales[at], 1.0, "group {g}: {part:?}");
        for (code, a) in codes.iter().zip(part) {
            let [least, most] = [a.value - a.error, a.value + a.error].map(|v| v.clamp(-128.0, 127.0) as f32);
            let within = least.round_ties_even() as i8..=most.round_ties_even() as i8;
            assert!(within.contains(code), "code {code} for {a:?}");
        }
    }
}

fn cache<'a>(operand: &'a OperandData<'_>) -> Option<&'a KvState> {
    if let OperandData::State(state) = operand { state.paged() } else { None }
}
