//! Facts about each e-class: its type, whether it is known when compiling, whether it is a
//! constant.

use super::lang::{Form, Term};
use super::origin::{Join, Origins};
use egg::{Analysis, DidMerge, EClass, EGraph, Id};
use llmcc_ir::graph::{Attr, F32, Func, Op, Role, ValueType};
use llmcc_ir::kv::KvSpec;
use llmcc_ir::state::StateSpec;

/// The e-graph of one function.
pub type Graph = EGraph<Term, Facts>;

/// Context of the analysis: the function's parameters.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    params: Vec<(ValueType, Role)>,
    /// Which rule or phase added each node.
    pub(super) origins: Origins,
    /// Which rule joined two classes that were there before.
    pub(super) joins: Vec<Join>,
    /// Whether rules may change the values of weights: not when weights are stored in f16 or bf16,
    /// where the changed value would round a second time.
    pub may_change_weights: bool,
}

impl Facts {
    /// Facts for the parameters of `func`.
    pub fn new(func: &Func, may_change_weights: bool) -> Facts {
        let params = func.params.iter().map(|p| (p.ty.clone(), p.role)).collect();
        Facts { params, origins: Origins::default(), joins: vec![], may_change_weights }
    }

    /// Facts for the given parameters; weights may change.
    pub fn of_params(params: Vec<(ValueType, Role)>) -> Facts {
        Facts { params, origins: Origins::default(), joins: vec![], may_change_weights: true }
    }
}

/// Facts about a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Data {
    /// Type of the value; `None` for attributes, kernels with several results and int8 rows.
    pub ty: Option<ValueType>,
    /// Integer attribute.
    pub int: Option<usize>,
    /// Scalar constant.
    pub constant: Option<F32>,
    /// Attribute of another kind.
    pub attr: Option<Attr>,
    /// Known when compiling: a function of weights and constants.
    pub weight: bool,
    /// Computed from a weight that other functions read too.
    pub shared: bool,
}

impl Data {
    /// `[rows, cols]` of an f32 matrix of rows or a weight matrix.
    pub fn cols(&self) -> Option<usize> {
        self.ty.as_ref()?.tensor()?.cols()
    }

    /// Rank of the tensor.
    pub fn rank(&self) -> Option<usize> {
        Some(self.ty.as_ref()?.tensor()?.shape.len())
    }
}

/// Classes in the order of their ids.
pub fn classes(g: &Graph) -> Vec<&EClass<Term, Data>> {
    let mut all: Vec<_> = g.classes().collect();
    all.sort_by_key(|c| c.id);
    all
}

/// Members of a class in the order by which extraction and dumps number them.
pub fn members(class: &EClass<Term, Data>) -> Vec<&Term> {
    let mut all: Vec<&Term> = class.nodes.iter().collect();
    all.sort();
    all
}

/// Attribute value of a class.
pub fn attr(g: &Graph, id: Id) -> Option<Attr> {
    let d = &g[id].data;
    d.int.map(Attr::Size).or(d.constant.map(Attr::Real)).or_else(|| d.attr.clone())
}

impl Analysis<Term> for Facts {
    type Data = Data;

    fn make(g: &mut Graph, term: &Term, _: Id) -> Data {
        match term {
            Term::Param(i) => match g.analysis.params.get(*i as usize) {
                Some((ty, role)) => Data {
                    ty: Some(ty.clone()),
                    weight: matches!(role, Role::Weight | Role::SharedWeight),
                    shared: *role == Role::SharedWeight,
                    ..Data::default()
                },
                None => Data::default(),
            },
            Term::Int(i) => Data { int: Some(*i), ..Data::default() },
            Term::Float(x) => Data {
                ty: Op::Const { value: *x }.infer(&[]).ok(),
                constant: Some(*x),
                weight: true,
                ..Data::default()
            },
            Term::Attr(value) => Data { attr: Some(value.clone()), ..Data::default() },
            Term::Op(..) => data_of_operation(g, term),
            Term::Quant([_, x]) => Data { weight: g[*x].data.weight, shared: g[*x].data.shared, ..Data::default() },
            Term::Store(form, _, [of]) => stored(g, *form, *of),
            Term::Kernel(..) | Term::Proj(..) => Data::default(),
        }
    }

    fn merge(&mut self, to: &mut Data, from: Data) -> DidMerge {
        let before = to.clone();
        to.ty = to.ty.take().or_else(|| from.ty.clone());
        to.int = to.int.or(from.int);
        to.constant = to.constant.or(from.constant);
        to.attr = to.attr.take().or_else(|| from.attr.clone());
        to.weight |= from.weight;
        to.shared |= from.shared;
        DidMerge(*to != before, *to != from)
    }
}

/// A packed weight is known when compiling too; a cache has the type in which it is kept.
fn stored(g: &Graph, form: Form, of: Id) -> Data {
    let Data { ty, weight, shared, .. } = g[of].data.clone();
    let kept = ty.as_ref().and_then(ValueType::state).and_then(StateSpec::paged);
    let ty = match (form, kept) {
        (Form::Cached(dtype), Some(spec)) => Some(ValueType::State(KvSpec { dtype, ..*spec }.into())),
        (_, _) => ty,
    };
    Data { ty, weight, shared, ..Data::default() }
}

/// The form and the value of a class made by [`Term::Store`].
pub fn store_of(g: &Graph, class: Id) -> Option<(Form, Option<F32>, Id)> {
    let store =
        |t: &Term| if let Term::Store(form, error, [of]) = t { Some((*form, *error, g.find(*of))) } else { None };
    g[class].nodes.iter().find_map(store)
}

/// An operation with its attributes by name, and its operands; `None` of other terms.
pub fn operation<'t>(g: &Graph, term: &'t Term) -> Option<(Op, &'t [Id])> {
    let (head, attributes, operands) = term.operation()?;
    let values: Option<Vec<Attr>> = attributes.iter().map(|c| attr(g, *c)).collect();
    Some((head.build(&values?)?, operands))
}

fn data_of_operation(g: &Graph, term: &Term) -> Data {
    let operands = term.operation().map_or(&[][..], |(_, _, operands)| operands);
    let types: Option<Vec<ValueType>> = operands.iter().map(|c| g[*c].data.ty.clone()).collect();
    let ty = operation(g, term).zip(types).and_then(|((op, _), types)| op.infer(&types).ok());
    Data {
        ty,
        int: None,
        constant: None,
        attr: None,
        weight: operands.iter().all(|c| g[*c].data.weight),
        shared: operands.iter().any(|c| g[*c].data.shared),
    }
}
