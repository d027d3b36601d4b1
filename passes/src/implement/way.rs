//! How each operation of the graph comes to be computed.

use super::{Context, OpNode, adapters, embed, experts, generic, recurrent};
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

/// The function of an expression's operands.
#[derive(Clone, Copy)]
pub enum Function {
    /// A function of each element.
    Unary(UnaryOp),
    /// A function of the elements of two operands.
    Binary(BinaryOp),
    /// Attributes: eps, width.
    Normalize {
        /// The mean is subtracted first.
        center: bool,
    },
    /// Attribute: head size. The table is read from a buffer.
    Rope,
    /// Attributes: start, length.
    Slice,
    /// A vector and routes, neither an expression.
    Expert,
    /// Weights and rows, neither an expression.
    Combine,
    /// Rows and the order of their columns, neither an expression.
    Pick,
}

impl Function {
    /// How many of the operands are expressions themselves.
    pub fn operands(self) -> usize {
        match self {
            Function::Expert | Function::Combine | Function::Pick => 0,
            Function::Unary(_) | Function::Normalize { .. } | Function::Rope | Function::Slice => 1,
            Function::Binary(_) => 2,
        }
    }
}

/// The way of an operation.
pub fn way(head: Head) -> Way {
    match head {
        Head::MatMul => Way::Kernel(generic::matmuls),
        Head::Route => Way::Kernel(experts::route),
        Head::ExpertMatMul => Way::Kernel(experts::matmuls),
        Head::HeadMatMul => Way::Kernel(experts::by_heads),
        Head::ExpertVector => Way::Expression(Function::Expert),
        Head::Combine => Way::Expression(Function::Combine),
        Head::PickCols => Way::Expression(Function::Pick),
        Head::Attention => Way::Kernel(generic::attentions),
        Head::LatentAttention => Way::Kernel(generic::latent_attentions),
        Head::RelativeAttention => Way::Kernel(generic::relative_attentions),
        Head::Embed | Head::EmbedPositions | Head::EmbedTypes => Way::Kernel(generic::embeds),
        Head::TokenIds => Way::Kernel(embed::token_ids),
        Head::GivenRows => Way::Kernel(embed::given_rows),
        Head::EmbedHashed => Way::Kernel(embed::hashed),
        Head::RopeTable => Way::Kernel(generic::rope_table),
        Head::CausalConv => Way::Kernel(recurrent::convolutions),
        Head::Recurrence => Way::Kernel(recurrent::recurrences),
        Head::Wkv => Way::Kernel(recurrent::weighted_means),
        Head::WindowMeans => Way::Kernel(recurrent::means_of_windows),
        Head::AbsMaxScale => Way::Kernel(generic::row_scales),
        Head::Sinkhorn => Way::Kernel(generic::balanced),
        Head::AdapterMatMul => Way::Kernel(adapters::matmuls),
        Head::GatherRows => Way::Kernel(generic::gather),
        Head::Unary(f) => Way::Expression(Function::Unary(f)),
        Head::Binary(f) => Way::Expression(Function::Binary(f)),
        Head::Normalize => Way::Expression(Function::Normalize { center: false }),
        Head::Standardize => Way::Expression(Function::Normalize { center: true }),
        Head::Rope => Way::Expression(Function::Rope),
        Head::SliceCols => Way::Expression(Function::Slice),
        Head::ConcatCols => Way::Join,
        Head::KvAppend => Way::Store,
        Head::Const
        | Head::Transpose
        | Head::ScaleCols
        | Head::ScaleRows
        | Head::ConcatRows
        | Head::SliceRows
        | Head::LookUp
        | Head::UnitRows
        | Head::StandardRows
        | Head::MulTransposed
        | Head::Row
        | Head::PickRows
        | Head::FillRows
        | Head::PlaceCols
        | Head::RepeatEach
        | Head::Flatten => Way::Packed,
    }
}
