//! The trait of each operation: its typing, and its evaluation.

use crate::eval::{AdapterState, Batch, EvalError, FixedState, KvState, State, Tensor, Value};
use crate::graph::value::ValueType;
use crate::kv::KvSpec;
use crate::state::{AdapterSpec, FixedSpec, StateSpec};
use crate::ty::{DType, Dim, TensorType};

/// Typing and meaning of an operation.
pub(crate) trait Rule {
    /// The type of the result. The number of arguments is that of the table.
    ///
    /// # Errors
    /// Says in words which rule the arguments break.
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String>;

    /// The result in f64, for arguments of the types that [`Rule::infer`] accepts. Where weights
    /// are computed it is rounded to f32.
    ///
    /// # Errors
    /// The batch names a token, row or position that does not exist.
    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError>;
}

/// Types of the arguments of an operation.
pub(crate) struct Types<'a> {
    /// Name of the operation.
    pub name: &'static str,
    pub args: &'a [ValueType],
}

impl<'a> Types<'a> {
    pub fn len(&self) -> usize {
        self.args.len()
    }

    pub fn tensor(&self, i: usize) -> Result<&'a TensorType, String> {
        let (name, t) = (self.name, &self.args[i]);
        t.tensor().ok_or_else(|| format!("argument {} of `{name}` must be a tensor, not {t}", i + 1))
    }

    pub fn kv(&self, i: usize) -> Result<KvSpec, String> {
        self.state(i, "an attention state", StateSpec::paged).copied()
    }

    /// A state of fixed size, `[heads, rows, cols]`.
    pub fn fixed(&self, i: usize, want: FixedSpec) -> Result<(), String> {
        let have = self.state(i, &want.to_string(), |s| s.fixed().filter(|have| **have == want));
        have.map(|_| ())
    }

    /// A matrix of adapters.
    pub fn adapter(&self, i: usize) -> Result<AdapterSpec, String> {
        self.state(i, "a matrix of adapters", StateSpec::adapter).copied()
    }

    /// A state of the kind that `get` asks for.
    fn state<T>(&self, i: usize, what: &str, get: impl Fn(&StateSpec) -> Option<&T>) -> Result<&T, String> {
        let t = &self.args[i];
        let wrong = || format!("argument {} of `{}` must be {what}, not {t}", i + 1, self.name);
        t.state().and_then(get).ok_or_else(wrong)
    }

    /// f32 activations `[M, cols]` or a float weight `[n, k]`: (rows, cols, dtype).
    fn matrix(&self, i: usize) -> Result<(Dim, usize, DType), String> {
        let t = self.tensor(i)?;
        match t.shape[..] {
            [r, Dim::Static(c)] if t.dtype.is_float() => Ok((r, c, t.dtype)),
            _ => Err(format!("argument {} of `{}` must be a float matrix, not {t}", i + 1, self.name)),
        }
    }

    /// An f32 matrix: rows and columns.
    pub fn activation(&self, i: usize) -> Result<(Dim, usize), String> {
        match self.matrix(i)? {
            (r, c, DType::F32) => Ok((r, c)),
            _ => Err(format!("argument {} of `{}` must be f32, not {}", i + 1, self.name, self.args[i])),
        }
    }

    pub fn weight_matrix(&self, i: usize) -> Result<(usize, usize), String> {
        match self.matrix(i)? {
            (Dim::Static(n), k, _) => Ok((n, k)),
            _ => Err(format!("argument {} of `{}` must be a weight matrix, not {}", i + 1, self.name, self.args[i])),
        }
    }

    /// A float vector: its length.
    pub fn vector(&self, i: usize) -> Result<usize, String> {
        let t = self.tensor(i)?;
        match t.shape[..] {
            [Dim::Static(n)] if t.dtype.is_float() => Ok(n),
            _ => Err(format!("argument {} of `{}` must be a float vector, not {t}", i + 1, self.name)),
        }
    }

    /// `i32 [dim]`
    pub fn index(&self, i: usize, dim: Dim) -> Result<(), String> {
        let t = self.tensor(i)?;
        let want = TensorType::new(DType::I32, [dim]);
        if *t == want { Ok(()) } else { Err(format!("argument {} of `{}` must be {want}, not {t}", i + 1, self.name)) }
    }

    pub fn same(&self, what: &str, a: usize, b: usize) -> Result<(), String> {
        if a == b { Ok(()) } else { Err(format!("`{}`: {what} differ: {a} and {b}", self.name)) }
    }

    pub fn multiple(&self, what: &str, n: usize, of: usize) -> Result<(), String> {
        if of > 0 && n.is_multiple_of(of) {
            Ok(())
        } else {
            Err(format!("`{}`: {what} {of} does not divide {n} columns", self.name))
        }
    }

    pub fn range(&self, start: usize, len: usize, of: usize) -> Result<(), String> {
        if len > 0 && start.checked_add(len).is_some_and(|e| e <= of) {
            Ok(())
        } else {
            Err(format!("`{}`: range {start}..{start}+{len} lies outside 0..{of}", self.name))
        }
    }
}

/// Values of the arguments of an operation, and its further inputs and outputs.
pub(crate) struct Operands<'a> {
    pub args: &'a [Value],
    /// All states.
    pub states: &'a mut [State],
    pub batch: &'a Batch,
}

impl<'a> Operands<'a> {
    pub fn tensor(&self, i: usize) -> Result<&'a Tensor, EvalError> {
        match self.args.get(i) {
            Some(Value::Tensor(t)) => Ok(t),
            Some(Value::State(_)) | None => {
                Err(EvalError::malformed("", format!("argument {} must be a tensor", i + 1)))
            }
        }
    }

    /// Keys and values: their index among the states, and they themselves.
    pub fn kv(&mut self, i: usize) -> Result<(usize, &mut KvState), EvalError> {
        let found = self.state(i).and_then(|(at, state)| Some((at, state.paged_mut()?)));
        found.ok_or_else(|| not_a(i, "an attention state"))
    }

    /// A state of fixed size.
    pub fn fixed(&mut self, i: usize) -> Result<&mut FixedState, EvalError> {
        let found = self.state(i).and_then(|(_, state)| state.fixed_mut());
        found.ok_or_else(|| not_a(i, "a state of fixed size"))
    }

    /// A matrix of adapters.
    pub fn adapter(&mut self, i: usize) -> Result<&AdapterState, EvalError> {
        let found = self.state(i).and_then(|(_, state)| state.adapter());
        found.ok_or_else(|| not_a(i, "a matrix of adapters"))
    }

    fn state(&mut self, i: usize) -> Option<(usize, &mut State)> {
        match self.args.get(i)? {
            Value::State(at) => Some((*at, self.states.get_mut(*at)?)),
            Value::Tensor(_) => None,
        }
    }
}

fn not_a(i: usize, what: &str) -> EvalError {
    EvalError::malformed("", format!("argument {} must be {what}", i + 1))
}
