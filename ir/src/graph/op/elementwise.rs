//! Elementwise operations: functions of one and two numbers, and constants.

use super::of::{Binary, Const, Unary};
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Tensor, Value};
use crate::graph::value::ValueType;
use crate::ty::{DType, TensorType};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

/// A set of functions: the variants with their names.
macro_rules! functions {
    ($(#[$meta:meta])* $family:ident { $( #[doc = $doc:literal] $variant:ident $name:literal )* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $family { $( #[doc = $doc] $variant, )* }

        impl $family {
            /// Every function with its name in `.lir` text.
            pub const ALL: &[($family, &'static str)] = &[$( ($family::$variant, $name), )*];
            /// Name in `.lir` text.
            pub fn name(self) -> &'static str {
                match self { $( $family::$variant => $name, )* }
            }
            /// The function of this name.
            pub fn parse(name: &str) -> Option<$family> {
                Self::ALL.iter().find(|(_, n)| *n == name).map(|(f, _)| *f)
            }
        }
    };
}

functions! {
    /// Elementwise functions of one argument.
    UnaryOp {
        /// `-x`
        Neg "neg"
        /// `eˣ`
        Exp "exp"
        /// `1/(1+e⁻ˣ)`
        Sigmoid "sigmoid"
        /// `x/(1+e⁻ˣ)` (Elfwing et al., arXiv 1702.03118)
        Silu "silu"
        /// `x·Φ(x)` by the error function (arXiv 1606.08415)
        Gelu "gelu"
        /// `x/2·(1+tanh(√(2/π)·(x+0.044715x³)))`
        GeluTanh "gelu_tanh"
        /// `max(x, 0)`
        Relu "relu"
        /// `tanh x`
        Tanh "tanh"
        /// `max(x, 0)²` (arXiv 2109.08668)
        Relu2 "relu2"
        /// `ln(1 + eˣ)`
        Softplus "softplus"
        /// `√x`, 0 of negative numbers
        Sqrt "sqrt"
        /// the nearest integer of −128 to 127, ties to even: a code of 8 bits
        RoundI8 "round_i8"
        /// the nearest number of e4m3 (OCP 8-bit Floating Point, 1.0) of −448 to 448, ties to even
        RoundE4m3 "round_e4m3"
    }
}

functions! {
    /// Elementwise functions of two arguments.
    BinaryOp {
        /// `a + b`
        Add "add"
        /// `a - b`
        Sub "sub"
        /// `a · b`
        Mul "mul"
        /// `a / b`
        Div "div"
        /// the larger
        Max "max"
        /// the smaller
        Min "min"
    }
}

/// Magnitudes of e4m3 below this have the distance of those above it.
const E4M3_NORMAL: f64 = 0.015625;

impl UnaryOp {
    /// Whether small changes of the argument change the value little: of functions that round they
    /// may change it by a whole unit.
    pub fn is_continuous(self) -> bool {
        !matches!(self, UnaryOp::RoundI8 | UnaryOp::RoundE4m3)
    }

    /// The function in f64.
    pub fn eval(self, x: f64) -> f64 {
        match self {
            UnaryOp::Neg => -x,
            UnaryOp::Exp => x.exp(),
            UnaryOp::Sigmoid => sigmoid(x),
            UnaryOp::Silu => x * sigmoid(x),
            UnaryOp::Gelu => 0.5 * x * libm::erfc(-x * FRAC_1_SQRT_2),
            UnaryOp::GeluTanh => 0.5 * x * (1.0 + (FRAC_2_PI.sqrt() * (x + 0.044715 * x * x * x)).tanh()),
            UnaryOp::Relu => {
                // Not `max`, which would turn NaN into 0 and hide a mistake.
                if x < 0.0 { 0.0 } else { x }
            }
            UnaryOp::Tanh => x.tanh(),
            UnaryOp::Relu2 => {
                let x = UnaryOp::Relu.eval(x);
                x * x
            }
            UnaryOp::Softplus => UnaryOp::Relu.eval(x) + (-x.abs()).exp().ln_1p(),
            UnaryOp::Sqrt => UnaryOp::Relu.eval(x).sqrt(),
            // `clamp` keeps NaN.
            UnaryOp::RoundI8 => x.clamp(-128.0, 127.0).round_ties_even(),
            UnaryOp::RoundE4m3 => {
                let x = x.clamp(-448.0, 448.0);
                // The power of two below it; numbers of e4m3 are eighths of it.
                let power = f64::from_bits(x.abs().max(E4M3_NORMAL).to_bits() & !((1 << 52) - 1));
                (x * 8.0 / power).round_ties_even() * power / 8.0
            }
        }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl BinaryOp {
    /// The function in f64. NaN in either argument gives NaN.
    pub fn eval(self, a: f64, b: f64) -> f64 {
        match self {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            BinaryOp::Mul => a * b,
            BinaryOp::Div => a / b,
            BinaryOp::Max => {
                if a.is_nan() || a > b {
                    a
                } else {
                    b
                }
            }
            BinaryOp::Min => {
                if a.is_nan() || a < b {
                    a
                } else {
                    b
                }
            }
        }
    }
}

impl Rule for Unary {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let x = a.tensor(0)?.clone();
        // A function of codes is no code.
        let dtype = if x.dtype.coded().is_some() { DType::F32 } else { x.dtype };
        Ok(TensorType { dtype, ..x }.into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        Ok(Value::tensor(a.tensor(0)?.map(|v| self.of.eval(v))))
    }
}

impl Rule for Binary {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (x, y) = (a.tensor(0)?, a.tensor(1)?);
        if !x.dtype.is_float() || !y.dtype.is_float() {
            return Err(format!("`{}` needs floats, not {x} and {y}", a.name));
        }
        let tiled =
            y.shape.len() == 1 && matches!((x.cols(), y.cols()), (Some(n), Some(w)) if w > 0 && n.is_multiple_of(w));
        let broadcast = y.shape == x.shape || y.shape.is_empty() || tiled;
        if !broadcast {
            return Err(format!("`{}`: {y} does not broadcast to {x}", a.name));
        }
        Ok(TensorType::new(DType::F32, x.shape.iter().copied()).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (x, y) = (a.tensor(0)?, a.tensor(1)?);
        // The width of a tiled vector divides the columns, so that the flat index runs through it.
        let data = x.data.iter().enumerate().map(|(i, v)| self.of.eval(*v, y.data[i % y.data.len()])).collect();
        Ok(Value::tensor(Tensor { shape: x.shape.clone(), data }))
    }
}

impl Rule for Const {
    fn infer(&self, _: &Types<'_>) -> Result<ValueType, String> {
        Ok(TensorType::new(DType::F32, []).into())
    }

    fn eval(&self, _: Operands<'_>) -> Result<Value, EvalError> {
        Ok(Value::tensor(Tensor { shape: vec![], data: vec![self.value.get().into()] }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::e4m3_to_f32;

    #[test]
    fn rounding_goes_to_the_nearest_and_saturates() {
        for (op, x, y) in [
            (UnaryOp::RoundI8, 2.5, 2.0),
            (UnaryOp::RoundI8, -3.5, -4.0),
            (UnaryOp::RoundI8, 1e9, 127.0),
            (UnaryOp::RoundI8, -1e9, -128.0),
            (UnaryOp::RoundE4m3, 17.0, 16.0),
            (UnaryOp::RoundE4m3, -19.0, -20.0),
            (UnaryOp::RoundE4m3, 1e9, 448.0),
            (UnaryOp::RoundE4m3, 0.002, 0.001_953_125),
            (UnaryOp::RoundE4m3, 0.000_9, 0.0),
        ] {
            assert_eq!(op.eval(x), y, "{}({x})", op.name());
            assert!(op.eval(f64::NAN).is_nan());
        }
        // A number of e4m3 rounds to itself, any other to the nearest of them.
        let mut numbers: Vec<f64> = (0..=255u8).map(|u| f64::from(e4m3_to_f32(u))).filter(|x| !x.is_nan()).collect();
        numbers.sort_by(f64::total_cmp);
        for pair in numbers.windows(2) {
            let [a, b] = [pair[0], pair[1]];
            assert_eq!(UnaryOp::RoundE4m3.eval(a), a);
            assert_eq!(UnaryOp::RoundE4m3.eval(0.51 * a + 0.49 * b), a);
            assert_eq!(UnaryOp::RoundE4m3.eval(0.49 * a + 0.51 * b), b);
        }
    }
}
