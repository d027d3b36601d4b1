//! Building functions with types checked as they grow.

use super::{BinaryOp, F32, Func, Node, Op, Param, Role, UnaryOp, Value, ValueType};

/// Builds a [`Func`]; every operation is typed when added.
///
/// Methods panic on ill-typed use: a frontend validates the checkpoint's shapes first, so a failure here is a bug of the frontend.
pub struct FuncBuilder {
    func: Func,
}

impl FuncBuilder {
    /// An empty function.
    pub fn new(name: impl Into<String>) -> FuncBuilder {
        FuncBuilder { func: Func { name: name.into(), params: vec![], nodes: vec![], results: vec![] } }
    }

    /// Adds a parameter. All parameters come before the first operation.
    pub fn param(&mut self, name: impl Into<String>, ty: impl Into<ValueType>, role: Role) -> Value {
        assert!(self.func.nodes.is_empty(), "parameters come before operations");
        self.func.params.push(Param { name: name.into(), ty: ty.into(), role });
        Value(self.func.params.len() as u32 - 1)
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// The typing rule that the arguments break.
    pub fn try_op(&mut self, op: Op, args: &[Value]) -> Result<Value, String> {
        let types: Option<Vec<_>> = args.iter().map(|v| self.func.ty(*v).cloned()).collect();
        let ty = op.infer(&types.ok_or("argument is not defined yet")?)?;
        self.func.nodes.push(Node { op, args: args.to_vec(), ty });
        Ok(self.func.node_value(self.func.nodes.len() - 1))
    }

    /// Adds an operation that is known to be well typed.
    pub fn op(&mut self, op: Op, args: &[Value]) -> Value {
        let name = op.name();
        match self.try_op(op, args) {
            Ok(v) => v,
            Err(e) => panic!("{}: {name}: {e}", self.func.name),
        }
    }

    /// `x·wᵀ`
    pub fn matmul(&mut self, x: Value, w: Value) -> Value {
        self.op(Op::MatMul, &[x, w])
    }
    /// `a + b`
    pub fn add(&mut self, a: Value, b: Value) -> Value {
        self.op(Op::Binary(BinaryOp::Add), &[a, b])
    }
    /// `a · b`
    pub fn mul(&mut self, a: Value, b: Value) -> Value {
        self.op(Op::Binary(BinaryOp::Mul), &[a, b])
    }
    /// Elementwise function.
    pub fn unary(&mut self, op: UnaryOp, a: Value) -> Value {
        self.op(Op::Unary(op), &[a])
    }
    /// RMSNorm: normalize runs of `width` columns, then multiply by `gain` (`[N]`; for QK norm the gain is repeated per head by the caller).
    pub fn rms_norm(&mut self, x: Value, gain: Value, eps: f32, width: usize) -> Value {
        let n = self.op(Op::Normalize { eps: F32::new(eps), width }, &[x]);
        self.mul(n, gain)
    }

    /// Type of a value defined so far.
    pub fn ty(&self, v: Value) -> Option<&ValueType> {
        self.func.ty(v)
    }

    /// Ends the function.
    pub fn finish(mut self, results: &[Value]) -> Func {
        self.func.results = results.to_vec();
        self.func
    }
}
