//! How each operation of the graph comes to be computed.

use super::{Context, OpNode, adapters, embed, evict, experts, generic, recurrent, select, windows};
use crate::egraph::Head;
use crate::spec::Draft;
use egg::Id;
use llmcc_ir::graph::{BinaryOp, UnaryOp};

/// How an operation comes to be computed.
pub enum Way {
    /// By a kernel of its own family.
    Kernel(fn(&mut Context<'_>, Id, &OpNode) -> Option<Draft>),
    /// By one for each form in which its weight or its state may be stored.
    Kernels(fn(&mut Context<'_>, Id, &OpNode) -> Vec<Draft>),
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
    /// Normalized runs of columns.
    Normalize,
    /// Rotated heads. The table is read from a buffer.
    Rope,
    /// Some of the columns.
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
            Function::Unary(_) | Function::Normalize | Function::Rope | Function::Slice => 1,
            Function::Binary(_) => 2,
        }
    }
}

/// Adds the kernels of one operation that has a family of its own.
pub fn run(cx: &mut Context<'_>, class: Id, op: &OpNode) {
    match way(op.op.head()) {
        Way::Kernel(draft) => {
            if let Some(draft) = draft(cx, class, op) {
                cx.put(class, draft);
            }
        }
        Way::Kernels(drafts) => drafts(cx, class, op).into_iter().for_each(|draft| cx.put(class, draft)),
        Way::Expression(_) | Way::Join | Way::Store | Way::Packed => {}
    }
}

/// The way of an operation.
pub fn way(head: Head) -> Way {
    match head {
        Head::MatMul => Way::Kernels(generic::matmuls),
        Head::Route => Way::Kernel(experts::route),
        Head::ExpertMatMul => Way::Kernels(experts::matmuls),
        Head::HeadMatMul => Way::Kernels(experts::by_heads),
        Head::ExpertVector => Way::Expression(Function::Expert),
        Head::Combine => Way::Expression(Function::Combine),
        Head::PickCols => Way::Expression(Function::Pick),
        Head::Attention => Way::Kernels(generic::attentions),
        Head::LatentAttention => Way::Kernels(generic::latent_attentions),
        Head::Select => Way::Kernels(select::selections),
        Head::SelectWindows => Way::Kernels(windows::selections),
        Head::WindowBounds => Way::Kernel(windows::bounds),
        Head::SelectedAttention => Way::Kernels(select::attentions),
        Head::SelectedLatentAttention => Way::Kernels(select::latent_attentions),
        Head::RelativeAttention => Way::Kernels(generic::relative_attentions),
        Head::Embed | Head::EmbedPositions | Head::EmbedTypes => Way::Kernels(generic::embeds),
        Head::TokenIds => Way::Kernel(embed::token_ids),
        Head::GivenRows => Way::Kernel(embed::given_rows),
        Head::Substitute => Way::Kernel(embed::substitute),
        Head::EmbedHashed => Way::Kernels(embed::hashed),
        Head::RopeTable | Head::RopeAxes => Way::Kernel(generic::rope_table),
        Head::EvictingAttention => Way::Kernel(evict::attention),
        Head::CausalConv => Way::Kernel(recurrent::causal_conv),
        Head::Recurrence => Way::Kernel(recurrent::recurrence),
        Head::Wkv => Way::Kernel(recurrent::wkv),
        Head::WindowMeans => Way::Kernel(recurrent::window_means),
        Head::AbsMaxScale => Way::Kernel(generic::absmax_scale),
        Head::Sinkhorn => Way::Kernel(generic::sinkhorn),
        Head::AdapterMatMul => Way::Kernel(adapters::matmul),
        Head::GatherRows => Way::Kernel(generic::gather),
        Head::Unary(f) => Way::Expression(Function::Unary(f)),
        Head::Binary(f) => Way::Expression(Function::Binary(f)),
        Head::Normalize | Head::Standardize => Way::Expression(Function::Normalize),
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
