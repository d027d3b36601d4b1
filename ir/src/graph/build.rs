//! Building functions with types checked as they grow.
//!
//! Parameters and operations may be added in any order, so that a block of a model is one function
//! that asks for a weight where it uses it. [`FuncBuilder::finish`] puts the parameters first, as a
//! [`Func`] has them.

use super::{BinaryOp, F32, Func, Node, Op, Param, Role, UnaryOp, Value, ValueType};
use std::fmt;
use std::panic::Location;

/// Builds a [`Func`]; every operation is typed when added.
///
/// The first operation that breaks a typing rule is kept as the [`Mistake`], and whatever comes
/// after it is passed over, so structure is written down without a `?` behind each operation. The
/// [`Value`]s are good for this builder only: finishing numbers them anew.
pub struct FuncBuilder {
    name: String,
    /// In the order they were added.
    defs: Vec<Def>,
    mistake: Option<Mistake>,
    stopped: bool,
}

enum Def {
    Param(Param),
    Node(Node),
}

/// An operation whose arguments break its typing rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The operation.
    pub op: &'static str,
    /// Types of the arguments.
    pub args: Vec<String>,
    /// The rule, in words.
    pub rule: String,
    /// Where the operation was added.
    pub at: &'static Location<'static>,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "operation `{}` of ({}) at {}:{}: {}",
            self.op,
            self.args.join(", "),
            self.at.file(),
            self.at.line(),
            self.rule
        )
    }
}

/// The value built after a mistake.
const NONE: Value = Value(u32::MAX);

impl FuncBuilder {
    /// An empty function.
    pub fn new(name: impl Into<String>) -> FuncBuilder {
        FuncBuilder { name: name.into(), defs: vec![], mistake: None, stopped: false }
    }

    /// Adds a parameter.
    pub fn param(&mut self, name: impl Into<String>, ty: impl Into<ValueType>, role: Role) -> Value {
        self.push(Def::Param(Param { name: name.into(), ty: ty.into(), role }))
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// The typing rule that the arguments break.
    pub fn try_op(&mut self, op: Op, args: &[Value]) -> Result<Value, String> {
        let types: Option<Vec<_>> = args.iter().map(|v| self.ty(*v).cloned()).collect();
        let ty = op.infer(&types.ok_or("argument is not defined yet")?)?;
        Ok(self.push(Def::Node(Node { op, args: args.to_vec(), ty })))
    }

    /// Adds an operation that should be well typed; finishing reports the first that is not.
    #[track_caller]
    pub fn op(&mut self, op: Op, args: &[Value]) -> Value {
        if self.stopped || self.mistake.is_some() {
            return NONE;
        }
        let (name, at) = (op.name(), Location::caller());
        self.try_op(op, args).unwrap_or_else(|rule| {
            let args = args.iter().map(|v| self.ty(*v).map_or("?".into(), ToString::to_string)).collect();
            self.mistake = Some(Mistake { op: name, args, rule, at });
            NONE
        })
    }

    /// Adds nothing any more: for a caller that has an error of its own, which this value stands
    /// for.
    pub fn stop(&mut self) -> Value {
        self.stopped = true;
        NONE
    }

    fn push(&mut self, def: Def) -> Value {
        self.defs.push(def);
        Value(self.defs.len() as u32 - 1)
    }

    /// `x·wᵀ`
    #[track_caller]
    pub fn matmul(&mut self, x: Value, w: Value) -> Value {
        self.op(Op::MatMul, &[x, w])
    }
    /// `a + b`
    #[track_caller]
    pub fn add(&mut self, a: Value, b: Value) -> Value {
        self.op(Op::Binary(BinaryOp::Add), &[a, b])
    }
    /// `a · b`
    #[track_caller]
    pub fn mul(&mut self, a: Value, b: Value) -> Value {
        self.op(Op::Binary(BinaryOp::Mul), &[a, b])
    }
    /// Elementwise function.
    #[track_caller]
    pub fn unary(&mut self, op: UnaryOp, a: Value) -> Value {
        self.op(Op::Unary(op), &[a])
    }
    /// A scalar.
    pub fn scalar(&mut self, x: f32) -> Value {
        self.op(Op::Const { value: F32::new(x) }, &[])
    }
    /// RMSNorm: normalize runs of `width` columns, then multiply by `gain` (`[N]`; for QK norm the
    /// gain is repeated per head by the caller).
    #[track_caller]
    pub fn rms_norm(&mut self, x: Value, gain: Value, eps: f32, width: usize) -> Value {
        let n = self.op(Op::Normalize { eps: F32::new(eps), width }, &[x]);
        self.mul(n, gain)
    }

    /// Type of a value defined so far.
    pub fn ty(&self, v: Value) -> Option<&ValueType> {
        self.defs.get(v.0 as usize).map(|d| match d {
            Def::Param(p) => &p.ty,
            Def::Node(n) => &n.ty,
        })
    }

    /// The operation that makes a value, and its arguments; `None` of parameters.
    pub fn made_by(&self, v: Value) -> Option<(&Op, &[Value])> {
        match self.defs.get(v.0 as usize)? {
            Def::Param(_) => None,
            Def::Node(n) => Some((&n.op, &n.args)),
        }
    }

    /// The role of a parameter; `None` for the result of an operation.
    pub fn role(&self, v: Value) -> Option<Role> {
        match self.defs.get(v.0 as usize)? {
            Def::Param(p) => Some(p.role),
            Def::Node(_) => None,
        }
    }

    /// Ends the function. Parameters come first, each kind in the order it was added.
    ///
    /// # Errors
    /// The first operation that was not well typed.
    pub fn try_finish(self, results: &[Value]) -> Result<Func, Mistake> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        let params = self.defs.iter().filter(|d| matches!(d, Def::Param(_))).count() as u32;
        let (mut param, mut node) = (0..params, params..);
        let places: Vec<Option<u32>> =
            self.defs.iter().map(|d| if matches!(d, Def::Param(_)) { param.next() } else { node.next() }).collect();
        let place = |v: &Value| Value(places.get(v.0 as usize).copied().flatten().unwrap_or(v.0));
        let mut func =
            Func { name: self.name, params: vec![], nodes: vec![], results: results.iter().map(place).collect() };
        for def in self.defs {
            match def {
                Def::Param(p) => func.params.push(p),
                Def::Node(n) => func.nodes.push(Node { args: n.args.iter().map(place).collect(), ..n }),
            }
        }
        Ok(func)
    }

    /// [`try_finish`](Self::try_finish) for functions that are known to be well typed.
    ///
    /// # Panics
    /// When they are not.
    #[track_caller]
    pub fn finish(self, results: &[Value]) -> Func {
        let name = self.name.clone();
        self.try_finish(results).unwrap_or_else(|e| panic!("{name}: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ty::{Dim, TensorType};

    fn weight(f: &mut FuncBuilder, name: &str, shape: [usize; 2]) -> Value {
        f.param(name, TensorType::rows(shape[0].into(), shape[1]), Role::Weight)
    }

    /// Parameters asked for where they are used make the function that has them in front.
    #[test]
    fn parameters_and_operations_interleave() {
        let x_type = TensorType::rows(Dim::Tokens, 8);
        let mut mixed = FuncBuilder::new("f");
        let x = mixed.param("x", x_type.clone(), Role::Data);
        let up = weight(&mut mixed, "up", [16, 8]);
        let h = mixed.matmul(x, up);
        let down = weight(&mut mixed, "down", [8, 16]);
        let y = mixed.matmul(h, down);
        let y = mixed.add(x, y);
        let mut sorted = FuncBuilder::new("f");
        let x = sorted.param("x", x_type, Role::Data);
        let (up, down) = (weight(&mut sorted, "up", [16, 8]), weight(&mut sorted, "down", [8, 16]));
        let h = sorted.matmul(x, up);
        let z = sorted.matmul(h, down);
        let z = sorted.add(x, z);
        let (mixed, sorted) = (mixed.finish(&[y]), sorted.finish(&[z]));
        assert_eq!(mixed, sorted);
        assert_eq!(mixed.nodes[1].args, [Value(3), Value(2)]);
    }

    /// The first operation that does not type is reported, with its line; later ones are not.
    #[test]
    fn the_first_mistake_is_reported() {
        let mut f = FuncBuilder::new("f");
        let x = f.param("x", TensorType::rows(Dim::Tokens, 8), Role::Data);
        let w = weight(&mut f, "w", [16, 4]);
        let (y, line) = (f.matmul(x, w), line!());
        let z = f.add(y, x);
        let late = f.matmul(x, x);
        let mistake = f.try_finish(&[z, late]).unwrap_err();
        assert_eq!((mistake.op, mistake.at.line(), mistake.at.file()), ("matmul", line, file!()));
        assert_eq!(
            mistake.to_string(),
            format!(
                "operation `matmul` of (f32[T, 8], f32[16, 4]) at {}:{line}: `matmul`: inner dimensions differ: 8 and 4",
                file!()
            )
        );
    }

    #[test]
    fn nothing_is_added_after_a_stop() {
        let mut f = FuncBuilder::new("f");
        let x = f.stop();
        let y = f.matmul(x, x);
        assert_eq!(f.try_finish(&[]).map(|f| f.nodes), Ok(vec![]));
        assert_eq!(x, y);
    }
}
