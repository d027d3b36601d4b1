//! Context of the phases: the e-graph with the stored forms of weights and states, and queries of it.

use crate::ActPolicy;
use crate::egraph::{Form, Graph, Head, Term, members, operation};
use crate::spec::{Draft, Output, Spec};
use crate::storage::Storages;
use egg::Id;
use llmcc_ir::graph::{Op, UnaryOp};
use llmcc_ir::kernel::{Norm, ParamKind};
use llmcc_ir::kv::KvSpec;
use llmcc_ir::quant::Format;
use llmcc_ir::target::TargetSpec;
use llmcc_ir::ty::Dim;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Kernels a class may hold before absorption leaves it alone, for each format that a weight may
/// have.
pub(super) const MAX_KERNELS: usize = 48;

/// Nodes of an expression tree.
pub(super) const MAX_EXPR: usize = 24;

/// An operation found in a class, and the classes of its operands.
#[derive(Clone, Debug)]
pub struct OpNode {
    pub(super) op: Op,
    pub(super) args: Vec<Id>,
}

impl OpNode {
    /// The normalization that it is, if it is one.
    pub(super) fn norm(&self) -> Option<Norm> {
        match self.op {
            Op::Normalize { eps, width } => Some(Norm { eps, width, center: false }),
            Op::Standardize { eps, width } => Some(Norm { eps, width, center: true }),
            _ => None,
        }
    }
}

/// Shared context of the phases.
pub struct Context<'a> {
    /// The e-graph, clean (rebuilt) at the start of each round.
    pub graph: &'a mut Graph,
    pub(super) act: ActPolicy,
    /// Whether the target multiplies int8 rows.
    pub(super) multiplies_int8: bool,
    /// Packed classes of each class of weight matrices, by format.
    pub(super) packed: BTreeMap<Id, Vec<(Format, Id)>>,
    /// Cached classes of each class of updated attention states; none where the type is fixed.
    pub(super) cached: BTreeMap<Id, Vec<(KvSpec, Id)>>,
    pub(super) max_kernels: usize,
    pub(super) read_often: BTreeSet<Id>,
}

/// A kernel node of a class.
pub type KernelNode = (Arc<Spec>, Vec<Id>);

pub(super) type Packed = BTreeMap<Id, Vec<(Format, Id)>>;

pub(super) type Cached = BTreeMap<Id, Vec<(KvSpec, Id)>>;

/// Adds the stored forms of weights and states, each in a class of its own.
pub(super) fn add_stores(graph: &mut Graph, storages: &Storages) -> (Packed, Cached) {
    let mut packed = Packed::new();
    for (class, forms) in &storages.packed {
        let add =
            |(format, error): &(Format, _)| (*format, graph.add(Term::Store(Form::Packed(*format), *error, [*class])));
        packed.insert(*class, forms.iter().map(add).collect());
    }
    let mut cached = Cached::new();
    for (class, forms) in &storages.cached {
        let Some(spec) = paged(graph, *class) else { continue };
        let add = |(dtype, error): &(_, _)| {
            (KvSpec { dtype: *dtype, ..spec }, graph.add(Term::Store(Form::Cached(*dtype), *error, [*class])))
        };
        cached.insert(*class, forms.iter().map(add).collect());
    }
    graph.rebuild();
    (packed, cached)
}

/// The keys and values that a class is.
pub(super) fn paged(graph: &Graph, class: Id) -> Option<KvSpec> {
    graph[class].data.ty.as_ref()?.state()?.paged().copied()
}

impl<'a> Context<'a> {
    /// The context of a graph, with the stored forms of its weights and states added to it.
    pub(super) fn new(
        graph: &'a mut Graph,
        act: ActPolicy,
        target: &TargetSpec,
        storages: &Storages,
        read_often: &[Id],
    ) -> Context<'a> {
        let read_often = read_often.iter().map(|id| graph.find(*id)).collect();
        let (packed, cached) = add_stores(graph, storages);
        let variants =
            packed.values().map(Vec::len).max().unwrap_or(1) * cached.values().map(Vec::len).max().unwrap_or(1);
        let multiplies_int8 = target.multiplies(ActPolicy::Int8);
        Context { graph, act, multiplies_int8, packed, cached, max_kernels: MAX_KERNELS * variants, read_often }
    }
}

impl Context<'_> {
    /// The packed classes of a class of weights.
    pub(super) fn packed(&self, class: Id) -> Vec<(Format, Id)> {
        self.packed.get(&self.graph.find(class)).cloned().unwrap_or_default()
    }

    /// The classes of an updated attention state, one for each type that it may be cached in.
    pub(super) fn states(&self, class: Id) -> Vec<(KvSpec, Id)> {
        let class = self.graph.find(class);
        let forms = self.cached.get(&class).cloned();
        forms.unwrap_or_else(|| paged(self.graph, class).map(|spec| (spec, class)).into_iter().collect())
    }

    /// Every operation that happens at run time, with its class, in order of class number.
    pub(super) fn operations(&self) -> Vec<(Id, OpNode)> {
        let op = |t: &Term| operation(self.graph, t).map(|(op, args)| OpNode { op, args: args.to_vec() });
        self.running().into_iter().filter_map(|(id, t)| Some((id, op(t)?))).collect()
    }

    /// Every [`Term::Quant`], in the same order.
    pub(super) fn quants(&self) -> Vec<(Id, [Id; 2])> {
        let quant = |t: &Term| if let Term::Quant(of) = t { Some(*of) } else { None };
        self.running().into_iter().filter_map(|(id, t)| Some((id, quant(t)?))).collect()
    }

    /// The classes of both, ascending.
    pub(super) fn computed(&self) -> Vec<Id> {
        let mut classes: Vec<Id> = self
            .running()
            .into_iter()
            .filter(|(_, t)| matches!(t, Term::Op(..) | Term::Quant(_)))
            .map(|(id, _)| id)
            .collect();
        classes.dedup();
        classes
    }

    /// Nodes of the classes that are not known when compiling.
    pub(super) fn running(&self) -> Vec<(Id, &Term)> {
        let mut classes: Vec<Id> =
            self.graph.classes().map(|c| c.id).filter(|id| !self.graph[*id].data.weight).collect();
        classes.sort();
        let sorted = |id: Id| members(&self.graph[id]).into_iter().map(move |t| (id, t));
        classes.into_iter().flat_map(sorted).collect()
    }

    /// Kernels of a class with exactly one result.
    pub(super) fn kernels(&self, class: Id) -> Vec<KernelNode> {
        let mut out: Vec<KernelNode> = self.graph[class]
            .nodes
            .iter()
            .filter_map(|t| match t {
                Term::Kernel(spec, children) => Some((spec.clone(), children.to_vec())),
                _ => None,
            })
            .collect();
        out.sort();
        out
    }

    /// Kernels of a class that write one f32 matrix of rows.
    pub(super) fn row_kernels(&self, class: Id) -> Vec<KernelNode> {
        use llmcc_ir::kernel::RowElem::F32;
        let f32_rows = |s: &Spec| match s.outputs()[..] {
            [Output::Rows(p)] => matches!(s.kind(p), ParamKind::Rows { elem: F32, .. }),
            _ => false,
        };
        self.kernels(class).into_iter().filter(|(s, _)| f32_rows(s)).collect()
    }

    /// Whether the kernels of a class may be absorbed into the kernel that reads it.
    pub(super) fn read_once(&self, class: Id) -> bool {
        !self.read_often.contains(&self.graph.find(class))
    }

    /// Adds a kernel with one result to the class of its value.
    pub(super) fn put(&mut self, class: Id, draft: Draft) {
        let full = self.graph[class].nodes.iter().filter(|t| matches!(t, Term::Kernel(..))).count() >= self.max_kernels;
        if full || !draft.reads_one_format() {
            return;
        }
        let id = self.add(draft);
        self.graph.union(class, id);
    }

    /// Adds a kernel in a class of its own.
    pub(super) fn add(&mut self, draft: Draft) -> Id {
        let (spec, children) = draft.finish();
        self.graph.add(Term::Kernel(Arc::new(spec), children.into()))
    }

    /// Where the rows of a class are: a slice of columns is read in the rows that it is of. Their
    /// class, and the first column.
    pub(super) fn columns_of(&self, class: Id) -> (Id, usize) {
        let slice = self.slices(class).next();
        slice.filter(|(of, _)| self.rows_of(*of).is_some()).unwrap_or((class, 0))
    }

    /// The values that a class is columns of, each with the first column.
    pub(super) fn slices(&self, class: Id) -> impl Iterator<Item = (Id, usize)> + '_ {
        self.graph[class].nodes.iter().filter_map(|t| {
            let (Op::SliceCols { start, .. }, &[of]) = operation(self.graph, t)? else { return None };
            Some((self.graph.find(of), start))
        })
    }

    /// Whether a class is rows of integers of −128 to 127, made so by an operation or cut out of such
    /// by up to `within` others.
    pub(super) fn are_integers(&self, class: Id, within: usize) -> bool {
        let integers = |id: &Id| within > 0 && self.are_integers(*id, within - 1);
        self.graph[class].nodes.iter().any(|t| match t {
            Term::Op(Head::Unary(UnaryOp::RoundI8), _) => true,
            // Rows or an order of columns follow what it is cut out of.
            Term::Op(Head::SliceCols | Head::GatherRows | Head::PickCols, _) => {
                t.operation().and_then(|(_, _, operands)| operands.first()).is_some_and(integers)
            }
            Term::Op(Head::ConcatCols, children) => children.iter().all(integers),
            _ => false,
        })
    }

    /// Rows and columns of a class of rows.
    pub(super) fn rows_of(&self, class: Id) -> Option<(Dim, usize)> {
        let d = &self.graph[class].data;
        match d.ty.as_ref()?.tensor()?.shape[..] {
            [rows @ (Dim::Tokens | Dim::Rows), Dim::Static(cols)] if !d.weight => Some((rows, cols)),
            _ => None,
        }
    }

    /// `[n, k]` of a class of weight matrices.
    pub(super) fn matrix_of(&self, class: Id) -> Option<(usize, usize)> {
        let d = &self.graph[class].data;
        match d.ty.as_ref()?.tensor()?.shape[..] {
            [Dim::Static(n), Dim::Static(k)] if d.weight => Some((n, k)),
            _ => None,
        }
    }

    /// Length of a class of weight vectors.
    pub(super) fn vector_of(&self, class: Id) -> Option<usize> {
        let d = &self.graph[class].data;
        match d.ty.as_ref()?.tensor()?.shape[..] {
            [Dim::Static(n)] if d.weight => Some(n),
            _ => None,
        }
    }

    /// The operand kind of an f32 class of rows.
    pub(super) fn rows_kind(&self, class: Id) -> Option<ParamKind> {
        let (rows, cols) = self.rows_of(class)?;
        Some(ParamKind::Rows { rows, cols, elem: llmcc_ir::kernel::RowElem::F32 })
    }
}
