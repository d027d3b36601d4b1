//! Types of values, and numbers that can be attributes.

use crate::state::StateSpec;
use crate::ty::TensorType;
use std::fmt;

/// A finite f32 attribute with equality and order by bits, so that operations can be hashed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct F32(u32);

impl F32 {
    /// Wraps `x`.
    pub const fn new(x: f32) -> F32 {
        F32(x.to_bits())
    }
    /// The number.
    pub const fn get(self) -> f32 {
        f32::from_bits(self.0)
    }
}

impl fmt::Debug for F32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}

impl fmt::Display for F32 {
    /// Shortest text that reads back as the same number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}

/// Type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValueType {
    /// A tensor.
    Tensor(TensorType),
    /// A state.
    State(StateSpec),
}

impl ValueType {
    /// The state, if it is one.
    pub const fn state(&self) -> Option<&StateSpec> {
        match self {
            ValueType::Tensor(_) => None,
            ValueType::State(spec) => Some(spec),
        }
    }

    /// The tensor type, if a tensor.
    pub fn tensor(&self) -> Option<&TensorType> {
        match self {
            ValueType::Tensor(t) => Some(t),
            ValueType::State(_) => None,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueType::Tensor(t) => t.fmt(f),
            ValueType::State(s) => s.fmt(f),
        }
    }
}

impl From<StateSpec> for ValueType {
    fn from(s: StateSpec) -> ValueType {
        ValueType::State(s)
    }
}

impl From<TensorType> for ValueType {
    fn from(t: TensorType) -> ValueType {
        ValueType::Tensor(t)
    }
}
