//! Implementations: kernels join the classes of the values they compute, after the equalities have
//! saturated.
//!
//! [`PHASES`] is the table. Every operation first gets a kernel of its own; then generic
//! absorptions make larger kernels out of the kernels found in the operand classes. Nothing here
//! knows of layers or attention blocks: that QKV, RoPE and the cache update end in one launch
//! follows from the absorptions. Phases run once each, in order (those that feed themselves, to a
//! bounded fixpoint), so no kernel is ever built on an approximation except through its `quant` and
//! `store` operands. A kernel reads matrices of one format only: more would multiply its variants.

mod adapters;
mod elementwise;
mod embed;
mod experts;
mod fragment;
mod generic;
mod merge;
mod prologue;
mod quantize;
mod readers;
mod recurrent;
mod rownorm;
mod way;

pub use readers::read_often;

use crate::ActPolicy;
use crate::egraph::{Form, Graph, Head, Term};
use crate::spec::{Draft, Output, Spec};
use crate::storage::Storages;
use egg::Id;
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::kernel::ParamKind;
use llmcc_ir::kv::KvSpec;
use llmcc_ir::quant::Format;
use llmcc_ir::target::TargetSpec;
use llmcc_ir::ty::Dim;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One phase: a name, whether to repeat until nothing changes, and its function of a class and an
/// operation in it.
pub struct Phase {
    /// Name in reports.
    pub name: &'static str,
    repeat: bool,
    run: Run,
}

/// The classes or operations a phase looks at.
enum Run {
    /// Operations that happen at run time.
    Operations(fn(&mut Context<'_>, Id, &OpNode)),
    /// Rows stored in fewer bits: the class, the storage and the value.
    Quant(fn(&mut Context<'_>, Id, [Id; 2])),
    /// Classes of either.
    Classes(fn(&mut Context<'_>, Id)),
}

/// All phases in order.
pub const PHASES: &[Phase] = &[
    Phase { name: "generic", repeat: false, run: Run::Operations(generic::run) },
    Phase { name: "look-up", repeat: true, run: Run::Operations(embed::run) },
    Phase { name: "row-norm", repeat: true, run: Run::Operations(rownorm::run) },
    Phase { name: "epilogue", repeat: true, run: Run::Operations(elementwise::run) },
    Phase { name: "quantize", repeat: false, run: Run::Quant(quantize::run) },
    Phase { name: "store", repeat: false, run: Run::Operations(elementwise::run_stores) },
    Phase { name: "horizontal", repeat: false, run: Run::Operations(merge::run) },
    Phase { name: "prologue", repeat: false, run: Run::Classes(prologue::run) },
];

/// Rounds of a repeated phase.
const MAX_ROUNDS: usize = 8;
/// Kernels a class may hold before absorption leaves it alone, for each format that a weight may
/// have.
const MAX_KERNELS: usize = 48;
/// Nodes of an expression tree.
const MAX_EXPR: usize = 24;

/// An operation found in a class: attributes and operands apart.
#[derive(Clone, Debug)]
pub struct OpNode {
    head: Head,
    attrs: Vec<Id>,
    args: Vec<Id>,
}

/// State shared by the phases.
pub struct Context<'a> {
    /// The e-graph, clean (rebuilt) at the start of each round.
    pub graph: &'a mut Graph,
    act: ActPolicy,
    /// Whether the target multiplies int8 rows.
    multiplies_int8: bool,
    /// Packed classes of each class of weight matrices, by format.
    packed: BTreeMap<Id, Vec<(Format, Id)>>,
    /// Cached classes of each class of updated attention states; none where the type is fixed.
    cached: BTreeMap<Id, Vec<(KvSpec, Id)>>,
    max_kernels: usize,
    read_often: BTreeSet<Id>,
}

/// A kernel node of a class.
pub type KernelNode = (Arc<Spec>, Vec<Id>);

/// Adds kernels to every class, for one target. `storages` are the ways in which weights and states may be stored;
/// `read_often` are classes of values whose kernels are not absorbed ([`read_often`]).
pub fn implement(graph: &mut Graph, act: ActPolicy, target: &TargetSpec, storages: &Storages, read_often: &[Id]) {
    let read_often = read_often.iter().map(|id| graph.find(*id)).collect();
    let (packed, cached) = add_stores(graph, storages);
    let variants = packed.values().map(Vec::len).max().unwrap_or(1) * cached.values().map(Vec::len).max().unwrap_or(1);
    let multiplies_int8 = target.multiplies(ActPolicy::Int8);
    let mut cx =
        Context { graph, act, multiplies_int8, packed, cached, max_kernels: MAX_KERNELS * variants, read_often };
    for phase in PHASES {
        for _ in 0..if phase.repeat { MAX_ROUNDS } else { 1 } {
            let before = cx.graph.total_number_of_nodes();
            match phase.run {
                Run::Operations(run) => cx.operations().iter().for_each(|(class, op)| run(&mut cx, *class, op)),
                Run::Quant(run) => cx.quants().into_iter().for_each(|(class, of)| run(&mut cx, class, of)),
                Run::Classes(run) => cx.computed().into_iter().for_each(|class| run(&mut cx, class)),
            }
            cx.graph.rebuild();
            if cx.graph.total_number_of_nodes() == before {
                break;
            }
        }
    }
}

type Packed = BTreeMap<Id, Vec<(Format, Id)>>;
type Cached = BTreeMap<Id, Vec<(KvSpec, Id)>>;

/// Adds the stored forms of weights and states, each in a class of its own.
fn add_stores(graph: &mut Graph, storages: &Storages) -> (Packed, Cached) {
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
fn paged(graph: &Graph, class: Id) -> Option<KvSpec> {
    graph[class].data.ty.as_ref()?.state()?.paged().copied()
}

impl Context<'_> {
    /// The packed classes of a class of weights.
    fn packed(&self, class: Id) -> Vec<(Format, Id)> {
        self.packed.get(&self.graph.find(class)).cloned().unwrap_or_default()
    }

    /// The classes of an updated attention state, one for each type that it may be cached in.
    fn states(&self, class: Id) -> Vec<(KvSpec, Id)> {
        let class = self.graph.find(class);
        let forms = self.cached.get(&class).cloned();
        forms.unwrap_or_else(|| paged(self.graph, class).map(|spec| (spec, class)).into_iter().collect())
    }

    /// Every operation that happens at run time, with its class, in order of class number.
    fn operations(&self) -> Vec<(Id, OpNode)> {
        let op = |t: &Term| {
            let Term::Op(head, children) = t else { return None };
            let (attrs, args) = children.split_at(head.attributes().len());
            Some(OpNode { head: *head, attrs: attrs.to_vec(), args: args.to_vec() })
        };
        self.running().into_iter().filter_map(|(id, t)| Some((id, op(t)?))).collect()
    }

    /// Every [`Term::Quant`], in the same order.
    fn quants(&self) -> Vec<(Id, [Id; 2])> {
        let quant = |t: &Term| if let Term::Quant(of) = t { Some(*of) } else { None };
        self.running().into_iter().filter_map(|(id, t)| Some((id, quant(t)?))).collect()
    }

    /// The classes of both, ascending.
    fn computed(&self) -> Vec<Id> {
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
    fn running(&self) -> Vec<(Id, &Term)> {
        let mut classes: Vec<Id> =
            self.graph.classes().map(|c| c.id).filter(|id| !self.graph[*id].data.weight).collect();
        classes.sort();
        let sorted = |id: Id| {
            let mut nodes: Vec<&Term> = self.graph[id].nodes.iter().collect();
            nodes.sort();
            nodes.into_iter().map(move |t| (id, t))
        };
        classes.into_iter().flat_map(sorted).collect()
    }

    /// Kernels of a class with exactly one result.
    fn kernels(&self, class: Id) -> Vec<KernelNode> {
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
    fn row_kernels(&self, class: Id) -> Vec<KernelNode> {
        use llmcc_ir::kernel::RowElem::F32;
        let f32_rows = |s: &Spec| match s.outputs()[..] {
            [Output::Rows(p)] => matches!(s.kind(p), ParamKind::Rows { elem: F32, .. }),
            _ => false,
        };
        self.kernels(class).into_iter().filter(|(s, _)| f32_rows(s)).collect()
    }

    /// Whether the kernels of a class may be absorbed into the kernel that reads it.
    fn read_once(&self, class: Id) -> bool {
        !self.read_often.contains(&self.graph.find(class))
    }

    /// Adds a kernel with one result to the class of its value.
    fn put(&mut self, class: Id, draft: Draft) {
        let full = self.graph[class].nodes.iter().filter(|t| matches!(t, Term::Kernel(..))).count() >= self.max_kernels;
        if full || !draft.reads_one_format() {
            return;
        }
        let id = self.add(draft);
        self.graph.union(class, id);
    }

    /// Adds a kernel in a class of its own.
    fn add(&mut self, draft: Draft) -> Id {
        let (spec, children) = draft.finish();
        self.graph.add(Term::Kernel(Arc::new(spec), children.into()))
    }

    /// Where the rows of a class are: a slice of columns is read in the rows that it is of. Their
    /// class, and the first column.
    fn columns_of(&self, class: Id) -> (Id, usize) {
        let slice = self.graph[class].nodes.iter().find_map(|t| match t {
            Term::Op(Head::SliceCols, children) => match children[..] {
                [start, _, of] => Some((self.graph.find(of), self.graph[start].data.int?)),
                _ => None,
            },
            _ => None,
        });
        slice.filter(|(of, _)| self.rows_of(*of).is_some()).unwrap_or((class, 0))
    }

    /// Whether a class is rows of integers of −128 to 127, made so by an operation or cut out of such
    /// by up to `within` others.
    fn are_integers(&self, class: Id, within: usize) -> bool {
        let integers = |id: &Id| within > 0 && self.are_integers(*id, within - 1);
        self.graph[class].nodes.iter().any(|t| match t {
            Term::Op(Head::Unary(UnaryOp::RoundI8), _) => true,
            // Attributes, then the sliced operand; rows or an order of columns follow.
            Term::Op(head @ (Head::SliceCols | Head::GatherRows | Head::PickCols), children) => {
                children.get(head.attributes().len()).is_some_and(integers)
            }
            Term::Op(Head::ConcatCols, children) => children.iter().all(integers),
            _ => false,
        })
    }

    /// Rows and columns of a class of rows.
    fn rows_of(&self, class: Id) -> Option<(Dim, usize)> {
        let d = &self.graph[class].data;
        match d.ty.as_ref()?.tensor()?.shape[..] {
            [rows @ (Dim::Tokens | Dim::Rows), Dim::Static(cols)] if !d.weight => Some((rows, cols)),
            _ => None,
        }
    }

    /// `[n, k]` of a class of weight matrices.
    fn matrix_of(&self, class: Id) -> Option<(usize, usize)> {
        let d = &self.graph[class].data;
        match d.ty.as_ref()?.tensor()?.shape[..] {
            [Dim::Static(n), Dim::Static(k)] if d.weight => Some((n, k)),
            _ => None,
        }
    }

    /// Length of a class of weight vectors.
    fn vector_of(&self, class: Id) -> Option<usize> {
        let d = &self.graph[class].data;
        match d.ty.as_ref()?.tensor()?.shape[..] {
            [Dim::Static(n)] if d.weight => Some(n),
            _ => None,
        }
    }

    /// The operand kind of an f32 class of rows.
    fn rows_kind(&self, class: Id) -> Option<ParamKind> {
        let (rows, cols) = self.rows_of(class)?;
        Some(ParamKind::Rows { rows, cols, elem: llmcc_ir::kernel::RowElem::F32 })
    }
}
