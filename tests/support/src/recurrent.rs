//! Convolutions over time and linear recurrences: random ones, and steps cut in two.

use crate::{Case, Gen};
use llmcc_ir::eval::{Batch, FixedState, OperandData, Rows, State};
use llmcc_ir::graph::Update;
use llmcc_ir::kernel::{
    AdapterMatmul, Body, CausalConv, Param, ParamId, ParamKind, Recurrence, RowElem, WindowBounds, WindowMeans, Wkv,
};
use llmcc_ir::state::{AdapterSpec, FixedSpec};
use llmcc_ir::ty::{DType, Dim};
use std::ops::Range;

impl Gen {
    /// Rows with columns before and after those that are read; the first of these.
    pub(crate) fn slice(&mut self, cols: usize) -> (ParamId, usize) {
        let before = self.rng.pick(self.margins.before);
        let after = self.rng.pick(self.margins.after);
        (self.input(Dim::Tokens, before + cols + after), before)
    }

    /// Numbers from 0 to 1.
    fn below_one(&mut self, cols: usize) -> ParamId {
        let p = self.input(Dim::Tokens, cols);
        self.change_rows(p, |x| 1.0 / (1.0 + x.abs()));
        p
    }

    /// A convolution over `width` tokens.
    pub fn convolution(&mut self, width: usize, channels: usize) -> Body {
        self.rows = Dim::Tokens;
        let (x, start) = self.slice(channels);
        let taps = self.vector(width * channels);
        let state = self.fixed(FixedSpec { heads: 1, rows: width - 1, cols: channels });
        let out = self.output(channels, RowElem::F32);
        Body::CausalConv(CausalConv { x, start, taps, width, state, out })
    }

    /// An operand that is the same for all tokens half of the time: a vector of numbers from 0 to
    /// 1.
    fn each_below_one(&mut self, len: usize) -> ParamId {
        if self.rng.chance(2) {
            return self.below_one(len);
        }
        let p = self.vector(len);
        self.change_vector(p, |x| 1.0 / (1.0 + x.abs()));
        p
    }

    /// A linear recurrence, with decays per row or per head.
    pub fn recurrence(&mut self, spec: FixedSpec, groups: usize, update: Update, per_row: bool) -> Body {
        self.rows = Dim::Tokens;
        let FixedSpec { heads, rows, cols } = spec;
        let ((q, q_start), (k, k_start)) = (self.slice(groups * rows), self.slice(groups * rows));
        // Keys of a length below 1, so that the state does not grow.
        let short = move |x: f32| x / (2.0 * rows as f32).sqrt();
        self.change_rows(k, short);
        let (v, v_start) = self.slice(heads * cols);
        let (decay, with) = match update {
            Update::Scan => {
                let rates = self.vector(heads * rows * cols);
                self.change_vector(rates, |x| -x.abs());
                (self.below_one(heads * cols), rates)
            }
            Update::Plain | Update::Delta | Update::Erase | Update::Bonus => {
                let decay = self.each_below_one(if per_row { heads * rows } else { heads });
                let with = match update {
                    Update::Plain | Update::Delta => self.each_below_one(heads),
                    Update::Erase => self.keys(groups * rows, short),
                    Update::Bonus | Update::Scan => self.vector(heads * rows),
                };
                (decay, with)
            }
        };
        let write = (update == Update::Erase).then(|| self.keys(groups * rows, short));
        let state = self.fixed(spec);
        let out = self.output(heads * cols, RowElem::F32);
        Body::Recurrence(Recurrence {
            q,
            q_start,
            k,
            k_start,
            groups,
            v,
            v_start,
            decay,
            update,
            with,
            write,
            state,
            out,
        })
    }

    fn keys(&mut self, cols: usize, short: impl Fn(f32) -> f32) -> ParamId {
        let p = self.input(Dim::Tokens, cols);
        self.change_rows(p, short);
        p
    }

    /// A product with adapters; some sequences have none.
    pub fn adapter_matmul(&mut self, k: usize, parts: &[usize]) -> Body {
        self.rows = Dim::Tokens;
        let (x, start) = self.slice(parts.len() * k);
        let n = parts.iter().sum();
        let dtype = if self.rng.chance(2) { DType::Bf16 } else { DType::F32 };
        let adapter = self.adapter(AdapterSpec { n, k, slots: 3, dtype });
        let out = self.output(n, RowElem::F32);
        Body::AdapterMatmul(AdapterMatmul { x, start, parts: parts.to_vec(), adapter, out })
    }

    /// Means with weights that decay.
    pub fn wkv(&mut self, channels: usize) -> Body {
        self.rows = Dim::Tokens;
        let ((k, k_start), (v, v_start)) = (self.slice(channels), self.slice(channels));
        // Keys whose exponentials f32 does not hold.
        self.change_rows(k, |x| 100.0 * x);
        let (decay, bonus) = (self.vector(channels), self.vector(channels));
        self.change_vector(decay, |x| -x.abs());
        let state = self.fixed(FixedSpec { heads: 1, rows: 3, cols: channels });
        let out = self.output(channels, RowElem::F32);
        Body::Wkv(Wkv { k, k_start, v, v_start, decay, bonus, state, out })
    }

    /// Bounds of windows of `width` tokens.
    pub fn window_bounds(&mut self, width: usize, channels: usize) -> Body {
        self.rows = Dim::Tokens;
        let (x, start) = self.slice(channels);
        let state = self.fixed(FixedSpec { heads: 1, rows: 2, cols: channels });
        let out = self.output(2 * channels, RowElem::F32);
        Body::WindowBounds(WindowBounds { x, start, width, state, out })
    }

    /// Means of windows of `width` tokens, of `series` series.
    pub fn window_means(&mut self, width: usize, series: usize, channels: usize) -> Body {
        self.rows = Dim::Tokens;
        let all = series * channels;
        let ((k, k_start), (v, v_start)) = (self.slice(all), self.slice(all));
        // Keys whose exponentials f32 does not hold.
        self.change_rows(k, |x| 100.0 * x);
        let places = self.vector(width * all);
        let state = self.fixed(FixedSpec { heads: 1, rows: 3 * series, cols: channels });
        let out = self.output(channels, RowElem::F32);
        Body::WindowMeans(WindowMeans { k, k_start, v, v_start, places, width, state, out })
    }
}

impl Case {
    /// Rows and states equal the evaluator's, up to `tolerance` of the largest number there.
    ///
    /// # Panics
    /// When they do not.
    pub fn check_close(&self, got: &[OperandData], tolerance: f64) {
        let numbers = |o: &OperandData| -> Vec<f64> {
            match o {
                OperandData::Rows(r) => r.data.iter().map(|v| f64::from(*v)).collect(),
                OperandData::State(state) => fixed_numbers(state),
                _ => vec![],
            }
        };
        for (i, (want, got)) in self.expected().iter().zip(got).enumerate() {
            let (want, got) = (numbers(want), numbers(got));
            let most = want.iter().fold(1e-30, |m: f64, v| m.max(v.abs()));
            assert_eq!(want.len(), got.len());
            for (w, g) in want.iter().zip(&got) {
                assert!((w - g).abs() <= tolerance * most, "operand {i}: {g}, expected {w}\n{}", self.text());
            }
        }
    }

    /// Some of the tokens of a case whose kernel has a row per token.
    pub fn part(&self, tokens: Range<usize>) -> Case {
        let b = &self.batch;
        let batch = Batch {
            tokens: b.tokens[tokens.clone()].to_vec(),
            seqs: b.seqs[tokens.clone()].to_vec(),
            positions: b.positions[tokens.clone()].to_vec(),
            types: tokens.clone().map(|i| b.type_of(i)).collect(),
            hidden: tokens.clone().flat_map(|i| b.hidden_of(i).to_vec()).collect(),
            out_rows: vec![],
            ..Batch::default()
        };
        let operand = |(p, o): (&Param, &OperandData<'static>)| match (&p.kind, o) {
            (ParamKind::Rows { .. }, OperandData::Rows(r)) => OperandData::Rows(part_of(r, tokens.clone())),
            _ => o.clone(),
        };
        Case {
            kernel: self.kernel.clone(),
            batch,
            operands: self.kernel.params.iter().zip(&self.operands).map(operand).collect(),
        }
    }

    /// The operands after the tokens before `cut` and after the tokens from there on, by two steps;
    /// the second one goes on from the states that the first one leaves. Returns the second one's
    /// operands, and the expected ones if `whole` is the result of one step for all.
    pub fn cut(
        &self,
        cut: usize,
        whole: &[OperandData<'static>],
        run: &dyn Fn(&Case) -> Vec<OperandData<'static>>,
    ) -> Vec<(OperandData<'static>, OperandData<'static>)> {
        let mut second = self.part(cut..self.m());
        if cut > 0 {
            for (o, after) in second.operands.iter_mut().zip(run(&self.part(0..cut))) {
                if let OperandData::State(_) = o {
                    *o = after;
                }
            }
        }
        let wanted = whole.iter().map(|whole| match whole {
            OperandData::Rows(r) => OperandData::Rows(part_of(r, cut..self.m())),
            other => other.clone(),
        });
        run(&second).into_iter().zip(wanted).collect()
    }
}

/// The numbers of a state of fixed size; none of another one.
pub(crate) fn fixed_numbers(state: &State) -> Vec<f64> {
    let of = |s: &FixedState| (0..s.sequences()).flat_map(|seq| s.clone().of(seq).to_vec()).collect();
    state.fixed().map_or(vec![], of)
}

fn part_of(r: &Rows, tokens: Range<usize>) -> Rows {
    Rows { cols: r.cols, data: r.data[tokens.start * r.cols..tokens.end * r.cols].to_vec() }
}
