//! How each operation of the graph comes to be computed.

use super::{Context, OpNode, generic};
use crate::egraph::Head;
use crate::spec::Draft;
use egg::Id;
use llmcc_ir::graph::{BinaryOp, UnaryOp};

/// How an operation comes to be computed.
pub enum Way {
    /// By a kernel of its own family.
    Kernel(fn(&mut Context<'_>, Id, &OpNode) -> Vec<Draft>),
    /// In the expression of any kernel that computes its operands, or of a pointwise one.
    Expression(Function),
    /// By storing its operands side by side.
    Join,
    /// By storing its operands into the state that it replaces.
    Store,
    /// When packing: there is nothing to run.
    Packed,
}

/// What an expression makes of its operands.
#[derive(Clone, Copy)]
pub enum Function {
    /// A function of each element.
    Unary(UnaryOp),
    /// A function of the elements of two operands.
    Binary(BinaryOp),
    /// Attributes: eps, width.
    Normalize,
    /// Attribute: head size. The table is read from a buffer.
    Rope,
    /// Attributes: start, length.
    Slice,
}

impl Function {
    /// How many of the operands are expressions themselves.
    pub fn operands(self) -> usize {
        match self {
            Function::Unary(_) | Function::Normalize | Function::Rope | Function::Slice => 1,
            Function::Binary(_) => 2,
        }
    }
}

/// The way of an operation.
pub fn way(head: Head) -> Way {
    match head {
        Head::MatMul => Way::Kernel(generic::matmuls),
        Head::Attention => Way::Kernel(generic::attentions),
        Head::Embed => Way::Kernel(generic::embeds),
        Head::RopeTable => Way::Kernel(generic::rope_table),
        Head::GatherRows => Way::Kernel(generic::gather),
        Head::Unary(f) => Way::Expression(Function::Unary(f)),
        Head::Binary(f) => Way::Expression(Function::Binary(f)),
        Head::Normalize => Way::Expression(Function::Normalize),
        Head::Rope => Way::Expression(Function::Rope),
        Head::SliceCols => Way::Expression(Function::Slice),
        Head::ConcatCols => Way::Join,
        Head::KvAppend => Way::Store,
        Head::Const | Head::Transpose | Head::ScaleCols | Head::ScaleRows | Head::ConcatRows | Head::SliceRows => {
            Way::Packed
        }
    }
}
