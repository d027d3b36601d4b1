//! Products whose input is rounded by numbers that were fixed when the checkpoint was quantized.

use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::rounded_inputs::{RoundedInput, RoundedSlots};
use crate::checkpoint::{InputRounding, InputScale};
use llmcc_ir::graph::{BinaryOp, F32, Op, Role, Value};

impl Draft<'_, '_> {
    /// `x·wᵀ`; the input rounded, where the checkpoint says so of the matrix that `w` has its rows of.
    #[track_caller]
    pub(crate) fn matmul(&mut self, x: Value, w: Value) -> Value {
        if let Some(input) = self.rounded_for(x, w) {
            return self.rounded_product(input, w);
        }
        let parts = match self.made_by(w) {
            Some((Op::ConcatRows, parts)) if parts.iter().any(|w| self.input_of(*w).is_some()) => parts.to_vec(),
            _ => return (**self).matmul(x, w),
        };
        // Each with its own input.
        let products: Vec<Value> = parts.iter().map(|w| self.matmul(x, *w)).collect();
        self.op(Op::ConcatCols, &products)
    }

    /// `x·wᵀ` of several matrices, the products beside each other: of one matrix below the other where all are
    /// stored alike, which a method that quantizes each by itself may not have done.
    #[track_caller]
    pub(crate) fn matmul_all(&mut self, x: Value, each: &[Value]) -> Value {
        if let [one] = each {
            return self.matmul(x, *one);
        }
        let types: Vec<_> = each.iter().map(|w| self.ty(*w).and_then(|t| t.tensor()).map(|t| t.dtype)).collect();
        if types.windows(2).all(|two| two[0] == two[1]) {
            let all = self.op(Op::ConcatRows, each);
            return self.matmul(x, all);
        }
        let products: Vec<Value> = each.iter().map(|w| self.matmul(x, *w)).collect();
        self.op(Op::ConcatCols, &products)
    }

    /// How the input of products with a matrix, or with some of its rows, is rounded.
    fn input_of(&self, w: Value) -> Option<InputRounding> {
        Some(self.input_and_gain_of(w)?.0)
    }

    /// `x` as a matrix has the input of its products: normalized first, if at all, and rounded; `None` where it
    /// is taken as it is.
    #[track_caller]
    fn rounded_for(&mut self, x: Value, w: Value) -> Option<RoundedInput> {
        let (how, gain) = self.input_and_gain_of(w)?;
        let Some((eps, gain)) = how.norm.zip(gain) else { return Some(self.rounded_input(x, how, 1)) };
        let width = self.columns(x);
        let x = self.op(Op::Normalize { eps: F32::new(eps), width }, &[x]);
        let x = self.mul(x, gain);
        Some(self.rounded_input(x, how, 1))
    }

    /// How an input is rounded, and its gain where it is normalized first.
    fn input_and_gain_of(&self, mut w: Value) -> Option<(InputRounding, Option<Value>)> {
        loop {
            if let Some((_, how, gain)) = self.rounded.matrices.iter().find(|(of, ..)| *of == w) {
                return Some((*how, *gain));
            }
            // Weights only change their numbers, not their columns.
            let (
                Op::SliceRows { .. }
                | Op::PickRows { .. }
                | Op::PlaceCols
                | Op::Flatten
                | Op::Transpose
                | Op::Binary(_),
                args,
            ) = self.made_by(w)?
            else {
                return None;
            };
            w = *args.first()?;
        }
    }

    /// `x` as products with a matrix round it, and otherwise as it is.
    #[track_caller]
    pub(crate) fn as_input_of(&mut self, w: Value, x: Value) -> Value {
        let Some(input) = self.rounded_for(x, w) else { return x };
        let numbers = self.codes_less_zero(input);
        self.scaled_back(numbers, input)
    }

    /// `[T, top·rows]`: `x`, or the columns of it that each slot has, times the matrices of the experts of
    /// `routes`. `w`: these, `[experts·rows, k]`, and as they are multiplied, of `cols` columns; `rounded` as
    /// the first say.
    #[track_caller]
    pub(crate) fn expert_product(
        &mut self,
        x: Value,
        [w, blocks]: [Value; 2],
        routes: Value,
        (experts, top, cols): (usize, usize, usize),
    ) -> Value {
        let product = Op::ExpertMatMul { experts, top, cols };
        let Some(each) = self.inputs_of_experts(w, experts) else { return self.op(product, &[x, blocks, routes]) };
        if each.iter().any(|how| how.norm.is_some()) {
            return self.misfit("experts normalize their inputs, which is not supported");
        }
        if each.iter().all(|how| *how == each[0]) {
            let runs = if self.columns(x) == self.columns(w) { 1 } else { top };
            let input = self.rounded_input(x, each[0], runs);
            let mut y = self.op(product, &[input.codes, blocks, routes]);
            if let Some(less) = input.less {
                let vector = self.sums_of_rows(w, Some(less));
                let less = self.op(Op::ExpertVector { experts, top }, &[vector, routes]);
                y = self.add(y, less);
            }
            return self.scaled_back(y, input);
        }
        if each.iter().any(|how| how.scale.fixed().is_none()) {
            return self.misfit("experts of a layer round their inputs in different ways");
        }
        let less = self.less_of_experts(w, &each, top, routes);
        let known = self.rounded.of_experts.iter().find(|i| i.x == x && i.each == each).cloned();
        let input = known.unwrap_or_else(|| self.rounded_slots(x, w, routes, (top, each)));
        let y = self.op(product, &[input.codes, blocks, routes]);
        let y = less.map_or(y, |less| self.add(y, less));
        let scales = self.slots(input.scales, top, y);
        self.mul(y, scales)
    }

    /// Whether products with the matrices of experts round their input.
    pub(crate) fn rounds_experts(&self, w: Value, experts: usize) -> bool {
        self.inputs_of_experts(w, experts).is_some()
    }

    /// How the input of each expert is rounded; of one, if all have it in common.
    fn inputs_of_experts(&self, w: Value, experts: usize) -> Option<Vec<InputRounding>> {
        let each = match self.made_by(w) {
            Some((Op::ConcatRows, parts)) if parts.len() == experts => parts.to_vec(),
            _ => vec![w],
        };
        let each: Option<Vec<InputRounding>> = each.into_iter().map(|w| self.input_of(w)).collect();
        each.filter(|each| !each.is_empty())
    }

    /// `x` for each slot, rounded as the slot's expert has it.
    #[track_caller]
    fn rounded_slots(
        &mut self,
        x: Value,
        w: Value,
        routes: Value,
        (top, each): (usize, Vec<InputRounding>),
    ) -> RoundedSlots {
        let own = if self.columns(x) == self.columns(w) { self.op(Op::ConcatCols, &vec![x; top]) } else { x };
        let mut of_slots = |what: &str, number: fn(&InputRounding) -> f32| {
            let name = format!("experts_{what}{}", self.rounded.of_experts.len());
            let vector = self.computed(&name, &self.own_constant(&name), each.iter().map(number).collect());
            self.op(Op::ExpertVector { experts: each.len(), top }, &[vector, routes])
        };
        let scales = of_slots("scale", |how| how.scale.fixed().unwrap_or(1.0));
        let zeros = each.iter().any(|how| how.zero != 0.0).then(|| of_slots("zero", |how| how.zero));
        let wide = self.slots(scales, top, own);
        let mut codes = self.op(Op::Binary(BinaryOp::Div), &[own, wide]);
        if let Some(zeros) = zeros {
            let zeros = self.slots(zeros, top, own);
            codes = self.add(codes, zeros);
        }
        codes = self.unary(each[0].number, codes);
        let input = RoundedSlots { x, each, codes, scales };
        self.rounded.of_experts.push(input.clone());
        input
    }

    /// The excess of products with the matrices of experts, to subtract: `−zero_e·Σ w_j` for row
    /// `j` of expert `e`, for each slot. `None` where all zeros are 0.
    #[track_caller]
    fn less_of_experts(&mut self, w: Value, each: &[InputRounding], top: usize, routes: Value) -> Option<Value> {
        if each.iter().all(|how| how.zero == 0.0) {
            return None;
        }
        let sums = self.sums_of_rows(w, None);
        let rows = self.ty(w).and_then(|t| t.tensor()).and_then(|t| t.shape.first()?.known()).unwrap_or(0);
        let of_row = |i: usize| -each[i * each.len() / rows.max(1)].zero;
        let name = format!("experts_less{}", self.rounded.less_of_experts);
        self.rounded.less_of_experts += 1;
        let less = self.computed(&name, &self.own_constant(&name), (0..rows).map(of_row).collect());
        let vector = self.mul(sums, less);
        Some(self.op(Op::ExpertVector { experts: each.len(), top }, &[vector, routes]))
    }

    /// `[n]`, the sum of each row of a weight matrix `[n, k]`, or of its products with a number.
    #[track_caller]
    fn sums_of_rows(&mut self, w: Value, times: Option<Value>) -> Value {
        let k = self.columns(w);
        // A constant of one function alone, so that it may be changed.
        let constant = self.own_constant(&format!("ones.{k}"));
        let ones = self.table(&format!("ones{k}"), &constant, [1, k], vec![1.0; k], Role::Weight);
        let row = times.map_or(ones, |times| self.mul(ones, times));
        let sums = self.op(Op::MulTransposed, &[w, row]);
        self.op(Op::Flatten, &[sums])
    }

    /// `[T, top]` as wide as `like`: a number for each column of a slot.
    #[track_caller]
    fn slots(&mut self, numbers: Value, top: usize, like: Value) -> Value {
        let columns = self.columns(like);
        let each = (columns / top.max(1)).max(1);
        let name = format!("experts.slots{top}.{columns}");
        let order = self.shared_constant(&name, &format!("${name}"), (0..columns).map(|i| (i / each) as f32).collect());
        self.op(Op::PickCols, &[numbers, order])
    }

    /// Columns of a row; 0 for a value without any.
    fn columns(&self, v: Value) -> usize {
        self.ty(v).and_then(|t| t.tensor()).and_then(|t| t.cols()).unwrap_or(0)
    }

    /// `scale·(number(x / scale + zero)·wᵀ − zero·Σ w)`: scale and zero after the product, so that
    /// codes of 8 bits are multiplied.
    #[track_caller]
    fn rounded_product(&mut self, input: RoundedInput, w: Value) -> Value {
        let y = match input.less {
            // A value that other functions read too stays unchanged.
            Some(_) if self.is_shared(w) => {
                let numbers = self.codes_less_zero(input);
                (**self).matmul(numbers, w)
            }
            Some(less) => {
                let y = (**self).matmul(input.codes, w);
                let less = self.sums_of_rows(w, Some(less));
                self.add(y, less)
            }
            None => (**self).matmul(input.codes, w),
        };
        self.scaled_back(y, input)
    }

    /// Codes of an input, or products of them, times the codes' unit.
    #[track_caller]
    fn scaled_back(&mut self, y: Value, input: RoundedInput) -> Value {
        match input.how.scale {
            InputScale::Fixed(_) => self.mul(y, input.scale),
            InputScale::OfToken { .. } => self.by_runs(y, input.scale, input.runs),
        }
    }

    /// Each of so many runs of columns times a number of the row.
    #[track_caller]
    fn by_runs(&mut self, y: Value, numbers: Value, runs: usize) -> Value {
        if runs == 1 {
            return self.op(Op::Combine, &[numbers, y]);
        }
        let numbers = self.slots(numbers, runs, y);
        self.mul(y, numbers)
    }

    /// The numbers of an input: its codes, less the zero.
    #[track_caller]
    fn codes_less_zero(&mut self, input: RoundedInput) -> Value {
        input.less.map_or(input.codes, |less| self.add(input.codes, less))
    }

    /// Whether a weight is made of one that other functions read too.
    fn is_shared(&self, w: Value) -> bool {
        match self.made_by(w) {
            Some((_, args)) => args.iter().any(|w| self.is_shared(*w)),
            None => self.role(w) == Some(Role::SharedWeight),
        }
    }

    /// `x` rounded; where tokens have scales, each of `runs` runs of columns by one of its own.
    #[track_caller]
    fn rounded_input(&mut self, x: Value, how: InputRounding, runs: usize) -> RoundedInput {
        if let Some(known) = self.rounded.inputs.iter().find(|i| (i.x, i.how, i.runs) == (x, how, runs)) {
            return *known;
        }
        let (scale, mut codes) = match how.scale {
            InputScale::Fixed(scale) => {
                let scale = self.fixed_number("scale", scale);
                (scale, self.op(Op::Binary(BinaryOp::Div), &[x, scale]))
            }
            InputScale::OfToken { most, least } => {
                let (width, [most, least]) = (self.columns(x) / runs.max(1), [most, least].map(F32::new));
                let scales = self.op(Op::AbsMaxScale { width, most, least }, &[x]);
                let [times, back] = [0, runs].map(|start| self.op(Op::SliceCols { start, len: runs }, &[scales]));
                (back, self.by_runs(x, times, runs))
            }
        };
        let mut less = None;
        if how.zero != 0.0 {
            let zero = self.fixed_number("zero", how.zero);
            codes = self.add(codes, zero);
            less = Some(self.fixed_number("less", -how.zero));
        }
        let codes = self.unary(how.number, codes);
        let input = RoundedInput { x, how, runs, codes, less, scale };
        self.rounded.inputs.push(input);
        input
    }

    /// The name of a constant that no other layer has.
    fn own_constant(&self, name: &str) -> String {
        let [layer, half] = self.place().map(|i| i.map_or_else(String::new, |i| i.to_string()));
        format!("${name}.{layer}.{half}")
    }

    /// A number that is another one in each layer.
    fn fixed_number(&mut self, what: &str, x: f32) -> Value {
        let name = format!("input_{what}{}", self.rounded.inputs.len());
        // Weights of one name are one, and have one number.
        let constant = format!("{}.{:08x}", self.own_constant(&format!("input_{what}")), x.to_bits());
        self.computed(&name, &constant, vec![x])
    }
}
