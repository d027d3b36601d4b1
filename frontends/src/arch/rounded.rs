//! Products whose input is rounded by numbers that were fixed when the checkpoint was quantized.

use super::lifter::Draft;
use super::rounded_inputs::RoundedInput;
use crate::checkpoint::InputRounding;
use llmcc_ir::graph::{BinaryOp, Op, Value};

impl Draft<'_, '_> {
    /// `x·wᵀ`; the input rounded, where the checkpoint says so of the matrix that `w` has its rows of.
    #[track_caller]
    pub(super) fn matmul(&mut self, x: Value, w: Value) -> Value {
        if let Some(how) = self.input_of(w) {
            return self.rounded_product(x, w, how);
        }
        let parts = match self.made_by(w) {
            Some((Op::ConcatRows, parts)) if parts.iter().any(|w| self.input_of(*w).is_some()) => parts.to_vec(),
            _ => return (**self).matmul(x, w),
        };
        // Each with its own input.
        let products: Vec<Value> = parts.iter().map(|w| self.matmul(x, *w)).collect();
        self.op(Op::ConcatCols, &products)
    }

    /// How the input of products with a matrix, or with some of its rows, is rounded.
    fn input_of(&self, mut w: Value) -> Option<InputRounding> {
        loop {
            if let Some((_, how)) = self.rounded.matrices.iter().find(|(of, _)| *of == w) {
                return Some(*how);
            }
            // Of weights the numbers change, and the columns do not.
            let (Op::SliceRows { .. } | Op::PickRows { .. } | Op::PlaceCols | Op::Binary(_), args) = self.made_by(w)?
            else {
                return None;
            };
            w = *args.first()?;
        }
    }

    /// `scale·(number(x / scale + zero) − zero)·wᵀ`: the scale after the product, so that what is
    /// multiplied are numbers that 16 bits hold.
    #[track_caller]
    fn rounded_product(&mut self, x: Value, w: Value, how: InputRounding) -> Value {
        let known = self.rounded.inputs.iter().find(|i| (i.x, i.how) == (x, how)).copied();
        let input = known.unwrap_or_else(|| self.rounded_input(x, how));
        let y = (**self).matmul(input.numbers, w);
        self.mul(y, input.scale)
    }

    #[track_caller]
    fn rounded_input(&mut self, x: Value, how: InputRounding) -> RoundedInput {
        let scale = self.fixed_number("scale", how.scale);
        let codes = self.op(Op::Binary(BinaryOp::Div), &[x, scale]);
        let numbers = if how.zero == 0.0 {
            self.unary(how.number, codes)
        } else {
            let zero = self.fixed_number("zero", how.zero);
            let codes = self.add(codes, zero);
            let codes = self.unary(how.number, codes);
            self.op(Op::Binary(BinaryOp::Sub), &[codes, zero])
        };
        let input = RoundedInput { x, how, numbers, scale };
        self.rounded.inputs.push(input);
        input
    }

    /// A number that is another one in each layer.
    fn fixed_number(&mut self, what: &str, x: f32) -> Value {
        let name = format!("input_{what}{}", self.rounded.inputs.len());
        let [layer, half] = self.place().map(|i| i.map_or_else(String::new, |i| i.to_string()));
        // Weights of one name are one, and have one number.
        let constant = format!("$input_{what}.{layer}.{half}.{:08x}", x.to_bits());
        self.computed(&name, &constant, vec![x])
    }
}
