//! Products of the tests, and how far off they may be.

use crate::support::{Case, Emulated, Gen, step_of};
use llmcc_gpu::llvm::Compiler;
use llmcc_ir::eval::{OperandData, Rows};
use llmcc_ir::gpu::schedule;
use llmcc_ir::graph::{BinaryOp, UnaryOp};
use llmcc_ir::kernel::{Body, Expr, Kernel, Matmul, Norm, ParamKind, Prologue, RowElem, Segment, Store};
use llmcc_ir::quant::{Code, Format, Packing, unpack_row};
use llmcc_ir::target::{TargetSpec, find};
use llmcc_ir::ty::Dim;
use std::borrow::Cow;

/// The parts of a product.
#[derive(Clone)]
pub struct Product {
    pub m: usize,
    pub k: usize,
    /// Columns and tile of each segment.
    pub segments: Vec<(usize, usize)>,
    pub lanes: usize,
    pub format: Format,
    /// Format of the segments after the first, if another.
    pub later: Option<Format>,
    /// Storage of the input, and prologue.
    pub x: RowElem,
    pub prologue: Option<(bool, bool, RowElem)>,
    pub tile_m: usize,
    pub k_parts: usize,
    /// Storage of the outputs.
    pub out: RowElem,
}

impl Product {
    pub fn new(m: usize, n: usize, k: usize, format: &str, x: RowElem) -> Product {
        let format = Format::parse(format).unwrap().with_packing(Packing::Fragment);
        Product {
            m,
            k,
            segments: vec![(n, 16)],
            lanes: 1,
            format,
            later: None,
            x,
            prologue: None,
            tile_m: 8,
            k_parts: 1,
            out: RowElem::F32,
        }
    }

    pub fn elem(&self) -> RowElem {
        self.prologue.map_or(self.x, |p| p.2)
    }

    pub fn input(&self, g: &mut Gen) -> usize {
        if self.x == RowElem::F32 { g.input(Dim::Tokens, self.k) } else { g.input_half(self.k, self.x) }
    }

    /// The kernel with its operands.
    pub fn case(&self) -> Case {
        self.case_with(|g, n, format| g.matrix(n, self.k, format))
    }

    /// The kernel alone.
    pub fn kernel(&self) -> Kernel {
        let empty = |g: &mut Gen, n, format| {
            g.push(ParamKind::Matrix { n, k: self.k, format }, OperandData::Matrix(Cow::Borrowed(&[])))
        };
        self.case_with(empty).kernel
    }

    pub fn case_with(&self, matrix: impl Fn(&mut Gen, usize, Format) -> usize) -> Case {
        let mut g = step_of((self.k as u64) << 20 ^ self.m as u64, self.m);
        let x = self.input(&mut g);
        let prologue = self.prologue.map(|(norm, gain, elem)| {
            let gain = gain.then(|| g.vector(self.k));
            Prologue { norm: norm.then_some(Norm::rms(1e-5, self.k)), gain, bias: None, elem }
        });
        let mut segments = vec![];
        for (i, (n, tile_n)) in self.segments.iter().enumerate() {
            let format = self.later.filter(|_| i > 0).unwrap_or(self.format);
            let weights = (0..self.lanes).map(|_| matrix(&mut g, *n, format)).collect();
            let param = g.output(*n, self.out);
            let expr = match self.lanes {
                1 => Expr::Acc(0),
                _ => Expr::Binary(
                    BinaryOp::Mul,
                    Box::new(Expr::Unary(UnaryOp::Silu, Box::new(Expr::Acc(0)))),
                    Box::new(Expr::Acc(1)),
                ),
            };
            segments.push(Segment { n: *n, weights, tile_n: *tile_n, expr, store: Store::Rows { param, start: 0 } });
        }
        g.case(Body::Matmul(Matmul { x, prologue, segments, tile_m: self.tile_m, k_parts: self.k_parts }))
    }
}

/// The error of rounding the weights to the tensor cores' input, relative to each.
pub fn weight_error(case: &Product) -> f64 {
    let e = case.format.encoding();
    // fp8 fits in both, and its scales multiply the sums; so do the scales of groups that have
    // whole units, where sums of a unit are kept apart.
    let sums = case.tile_m <= 8 && !e.has_minimum() && e.group().is_none_or(|group| group >= 64);
    let fits = schedule::is_fp8(case.format) || sums && !matches!(e.code, Code::Table { .. });
    match case.elem() {
        _ if fits || !schedule::has_operands(case.format) => 0.0,
        // The scale rounds too, or the number of a table.
        RowElem::Bf16 => 2f64.powi(-8),
        RowElem::F16 => 2f64.powi(-11),
        _ => 0.0,
    }
}

pub fn check_on(product: &Product, target: &TargetSpec) {
    let case = product.case();
    compare(product, &case.kernel, &case.expected(), &case.run(&Compiler::new(), target));
}

/// Error of a sum of products relative to the sum of their magnitudes: rounded weights
/// ([`weight_error`]), input that the prologue rounds differently where it differs in the last bit
/// of f32, and `k` additions in f32.
pub fn relative_error(case: &Product) -> f64 {
    let input = match case.prologue.map(|p| p.2) {
        Some(RowElem::Bf16) => 2f64.powi(-11),
        Some(RowElem::F16) => 2f64.powi(-14),
        _ => 0.0,
    };
    weight_error(case) + input + 2f64.powi(-22) * (case.k as f64).sqrt()
}

/// Σ|x·w| for each row of input, with the input as it is before the prologue; a normalized input is
/// 1.3 times as large as the rows of [`Gen`].
pub fn magnitudes(case: &Product, x: &Rows, w: &[f32]) -> Vec<f64> {
    let grow = if case.prologue.is_some_and(|p| p.0) { 2.0 } else { 1.0 };
    (0..case.m).map(|i| x.row(i).iter().zip(w).map(|(a, b)| f64::from(a * b).abs()).sum::<f64>() * grow).collect()
}

pub fn compare(case: &Product, kernel: &Kernel, want: &[OperandData<'_>], got: &[OperandData<'_>]) {
    let Body::Matmul(body) = &kernel.body else { unreachable!() };
    let OperandData::Rows(x) = &want[0] else { unreachable!() };
    let relative = relative_error(case);
    let store = if case.out == RowElem::F32 { 2f64.powi(-22) } else { 2f64.powi(-7) };
    for s in &body.segments {
        let Store::Rows { param, .. } = s.store else { unreachable!() };
        let (OperandData::Rows(want_y), OperandData::Rows(got_y)) = (&want[param], &got[param]) else { unreachable!() };
        let mut w = vec![0f32; case.k];
        for j in 0..s.n {
            let lane = |p: &usize| {
                let OperandData::Matrix(bytes) = &want[*p] else { unreachable!() };
                let ParamKind::Matrix { format, .. } = kernel.params[*p].kind else { unreachable!() };
                unpack_row(format, bytes, case.k, j, &mut w);
                magnitudes(case, x, &w)
            };
            let lanes: Vec<Vec<f64>> = s.weights.iter().map(lane).collect();
            for (i, first) in lanes[0].iter().enumerate() {
                // silu(a)·b: each factor's error times the other, at most; the slope of silu is
                // below 1.1.
                let bound = relative * if case.lanes == 2 { first * lanes[1][i] * 2.2 } else { *first };
                let (a, b) = (want_y.row(i)[j], got_y.row(i)[j]);
                let off = f64::from(a - b).abs();
                assert!(
                    off <= bound + f64::from(a).abs() * store,
                    "row {i} column {j}: {b}, not {a}: off by {off}, allowed {bound}"
                );
            }
        }
    }
}

pub fn check(product: &Product) {
    check_on(product, find("sm90").unwrap());
}

/// A target of so few multiprocessors that tiles must be shared out and cut at small sizes.
pub fn small(sms: u32) -> TargetSpec {
    let mut target = *find("sm90").unwrap();
    if let llmcc_ir::target::Arch::Gpu(gpu) = &mut target.arch {
        gpu.sms = sms;
        target.wish.cut = Some(true);
    }
    target
}
