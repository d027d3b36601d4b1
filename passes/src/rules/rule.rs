//! One rule: its two sides, its guard, and what both may ask of a match.

use crate::egraph::{Graph, Head, Term, provenance};
use egg::{Applier, Id, Pattern, PatternAst, Rewrite, Subst, Symbol, Var};
use llmcc_ir::graph::{F32, Input};

/// One directional equality: every match of `left` also equals `right`.
pub struct Rule {
    /// Name, unique among all rules.
    pub name: &'static str,
    /// Pattern: operations with attributes first, `?variables`, numbers.
    pub left: &'static str,
    /// The equal term.
    pub right: Right,
    /// Where it holds.
    pub guard: fn(&Match<'_>) -> bool,
    /// How the test harness makes an instance: a value for each variable of `left`.
    pub sample: &'static [(&'static str, Sample)],
}

/// Right side of a rule.
pub enum Right {
    /// A pattern over the variables of the left side.
    Text(&'static str),
    /// Built by hand; `None` = does not apply.
    Build(fn(&mut Builder<'_>) -> Option<Id>),
}

/// A value for a variable in the test harness. Sizes are names that the harness draws (`K`, `N`,
/// `P`: any; `S`, `L`: a range inside `N`; `S2`, `L2`: a range inside `L`; `W`: divides `K`; `D`: a
/// head; `Q`: two heads) or numbers.
#[derive(Clone, Copy, Debug)]
pub enum Sample {
    /// Rows `[T, n]`.
    Rows(&'static str),
    /// A weight matrix `[n, k]`.
    Matrix(&'static str, &'static str),
    /// A weight vector.
    Vector(&'static str),
    /// A weight vector that names each of so many columns once.
    Order(&'static str),
    /// A scalar constant, a multiple of 1/16.
    Const,
    /// A scalar constant by which a division is exact.
    PowerOfTwo,
    /// A small positive attribute.
    Eps,
    /// An attribute that is yes or no.
    Flag(bool),
    /// An integer attribute.
    Int(&'static str),
    /// An input array.
    Index(Input),
    /// An attention state of one head of `D` columns with keys and values of this step appended.
    Appended,
}

impl Rule {
    /// `None` if a side does not parse; a test keeps that from happening.
    pub(super) fn rewrite(&'static self) -> Option<Rewrite<Term, crate::egraph::Facts>> {
        let left: Pattern<Term> = self.left.parse().ok()?;
        let right = match self.right {
            Right::Text(text) => Some(text.parse::<Pattern<Term>>().ok()?.ast),
            Right::Build(_) => None,
        };
        Rewrite::new(self.name, left, RuleApplier { rule: self, right }).ok()
    }
}

struct RuleApplier {
    pub(super) rule: &'static Rule,
    pub(super) right: Option<PatternAst<Term>>,
}

impl Applier<Term, crate::egraph::Facts> for RuleApplier {
    fn apply_one(
        &self,
        g: &mut Graph,
        class: Id,
        subst: &Subst,
        _: Option<&PatternAst<Term>>,
        rule: Symbol,
    ) -> Vec<Id> {
        if !(self.rule.guard)(&Match { graph: g, subst }) {
            return vec![];
        }
        let before = g.nodes().len();
        let built = match (&self.rule.right, &self.right) {
            (Right::Build(build), _) => build(&mut Builder { graph: g, subst }),
            (Right::Text(_), Some(ast)) => Some(g.add_instantiation(ast, subst)),
            (Right::Text(_), None) => None,
        };
        provenance::note(g, self.rule.name);
        let Some(id) = built else { return vec![] };
        if usize::from(id) < before {
            provenance::joined(g, [class, id], self.rule.name);
        }
        debug_assert_eq!(g[id].data.ty, g[class].data.ty, "rule {rule} changes the type");
        if g[id].data.ty == g[class].data.ty && g.union_trusted(class, id, rule) { vec![id] } else { vec![] }
    }
}

fn class_of(subst: &Subst, name: &str) -> Option<Id> {
    subst.get(name.parse::<Var>().ok()?).copied()
}

/// A match as a guard sees it.
pub struct Match<'a> {
    pub(super) graph: &'a Graph,
    pub(super) subst: &'a Subst,
}

impl Match<'_> {
    pub(super) fn data(&self, name: &str) -> Option<&crate::egraph::Data> {
        class_of(self.subst, name).map(|id| &self.graph[id].data)
    }

    /// A weight vector of as many elements as `of` has columns.
    pub fn vector_over(&self, name: &str, of: &str) -> bool {
        let (Some(v), Some(of)) = (self.data(name), self.data(of)) else { return false };
        v.weight && v.rank() == Some(1) && v.cols() == of.cols()
    }

    /// A weight vector.
    pub fn vector(&self, name: &str) -> bool {
        self.data(name).is_some_and(|d| d.weight && d.rank() == Some(1))
    }

    /// A weight vector with an element for each row of the matrix `of`.
    pub fn vector_of_rows(&self, name: &str, of: &str) -> bool {
        let rows = self.data(of).and_then(|d| d.ty.as_ref()?.tensor()?.shape.first()?.known());
        self.vector(name) && rows.is_some() && self.data(name).and_then(|d| d.cols()) == rows
    }

    /// A scalar constant.
    pub fn constant(&self, name: &str) -> bool {
        self.data(name).is_some_and(|d| d.constant.is_some())
    }

    /// Not known when compiling.
    pub fn runtime(&self, name: &str) -> bool {
        self.data(name).is_some_and(|d| !d.weight && d.ty.is_some())
    }

    /// A weight whose values may be changed for this use: no other function reads it, and the
    /// storage format does not make the change round a second time, as codes would.
    pub fn may_change(&self, name: &str) -> bool {
        self.graph.analysis.may_change_weights && self.own(name) && !self.coded(name)
    }

    /// Codes with scales, as the checkpoint has them.
    pub fn coded(&self, name: &str) -> bool {
        self.data(name).and_then(|d| d.ty.as_ref()?.tensor()).is_some_and(|t| t.dtype.coded().is_some())
    }

    /// A weight that no other function reads: a part or permutation of it may be stored in its
    /// place.
    pub fn own(&self, name: &str) -> bool {
        self.data(name).is_some_and(|d| d.weight && !d.shared)
    }

    /// Stored in one type, as rows of one matrix are.
    pub fn alike(&self, a: &str, b: &str) -> bool {
        let dtype = |name: &str| Some(self.data(name)?.ty.as_ref()?.tensor()?.dtype);
        dtype(a).is_some() && dtype(a) == dtype(b)
    }

    /// f32 (a weight may be narrower).
    pub fn f32(&self, name: &str) -> bool {
        let f32 = llmcc_ir::ty::DType::F32;
        self.data(name).and_then(|d| d.ty.as_ref()?.tensor()).is_some_and(|t| t.dtype == f32)
    }

    /// The same type.
    pub fn same_type(&self, a: &str, b: &str) -> bool {
        matches!((self.data(a), self.data(b)), (Some(a), Some(b)) if a.ty.is_some() && a.ty == b.ty)
    }
}

/// A match as a right side built by hand sees it.
pub struct Builder<'a> {
    pub(super) graph: &'a mut Graph,
    pub(super) subst: &'a Subst,
}

impl Builder<'_> {
    /// Class of a variable.
    pub fn class(&self, name: &str) -> Option<Id> {
        class_of(self.subst, name)
    }

    /// Integer attribute of a variable.
    pub fn int(&self, name: &str) -> Option<usize> {
        self.graph[self.class(name)?].data.int
    }

    /// Scalar constant of a variable.
    pub fn float(&self, name: &str) -> Option<f32> {
        self.graph[self.class(name)?].data.constant.map(F32::get)
    }

    /// Columns of a variable.
    pub fn cols(&self, name: &str) -> Option<usize> {
        self.graph[self.class(name)?].data.cols()
    }

    /// Rows of a weight, or elements of a vector.
    pub fn weight_rows(&self, name: &str) -> Option<usize> {
        self.graph[self.class(name)?].data.ty.as_ref()?.tensor()?.shape.first()?.known()
    }

    /// A finite constant.
    pub fn constant(&mut self, x: f32) -> Option<Id> {
        x.is_finite().then(|| self.graph.add(Term::Float(F32::new(x))))
    }

    /// An integer attribute.
    pub fn integer(&mut self, i: usize) -> Id {
        self.graph.add(Term::Int(i))
    }

    /// An operation: attributes, then operands.
    pub fn op(&mut self, head: Head, children: &[Id]) -> Id {
        self.graph.add(Term::Op(head, children.into()))
    }
}

/// A guard that always holds.
pub(super) fn always(_: &Match<'_>) -> bool {
    true
}
