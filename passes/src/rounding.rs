//! How values are rounded: by which operations a solution computes them.
//!
//! Classes of the e-graph hold what is equal over the real numbers. `(x·g)·c` and `x·(g·c)` are, but
//! round differently, and a token's bits must not depend on how many others are in its step. So
//! regimes may fuse kernels as they like, but compute everything by the operations of the first.
//!
//! A `Term` is a value as the tree of operations over parameters and weights that gives its bits,
//! whichever kernels the operations are in. Kernels that compute the same operations in the same
//! order have the same bits (the invariants of `llmcc_codegen::cpu`), so terms forget where one
//! kernel ends and the next begins.

use crate::egraph::Graph;
use crate::extract::{Candidate, Chosen, How, Problem, available};
use crate::spec::{Output, Spec};
use egg::Id;
use llmcc_ir::graph::{BinaryOp, F32};
use llmcc_ir::kernel::{Body, Embed, Expr, Kernel, Norm, ParamId, ParamKind, RowElem, RowNorm, Segment, Store};
use std::collections::{BTreeMap, BTreeSet};

/// A value by the operations that give its bits; equal numbers are equal bits.
type Term = usize;

/// How an operation's rows depend on its operands' rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// No rows: a weight or a number.
    Fixed,
    /// Each row is a function of the same row of each operand.
    RowWise,
    /// Anything else.
    Opaque,
}

struct TermNode {
    label: String,
    operands: Vec<Term>,
    reach: Reach,
}

/// Terms, each once.
#[derive(Default)]
struct Terms {
    nodes: Vec<TermNode>,
    known: BTreeMap<(String, Vec<Term>), Term>,
}

/// The outputs of the kernel in a class.
type Values = BTreeMap<Id, Vec<Term>>;

/// The operations of a function in its first regime.
pub struct Operations {
    terms: Terms,
    /// Terms before this one are parts of the first regime's.
    first: Term,
    values: Values,
    roots: Vec<Vec<Term>>,
}

impl Operations {
    /// The operations of a solution.
    pub fn new(g: &Graph, problem: &Problem, chosen: &Chosen) -> Operations {
        let mut terms = Terms::default();
        let values = of_solution(&mut terms, g, problem, chosen);
        let roots = roots(problem, &values);
        Operations { first: terms.nodes.len(), terms, values, roots }
    }

    /// Whether another solution has them too.
    pub fn are_of(&mut self, g: &Graph, problem: &Problem, chosen: &Chosen) -> bool {
        let values = of_solution(&mut self.terms, g, problem, chosen);
        roots(problem, &values) == self.roots
    }

    /// The candidates that would compute something by other operations. Those are candidates to
    /// forbid later. Candidates of the first regime, and other fusions of the same operations, are
    /// allowed.
    pub fn others(&mut self, g: &Graph, problem: &Problem) -> BTreeSet<(Id, usize)> {
        let mut values: Values =
            self.values.iter().filter(|(c, _)| problem.classes.contains_key(c)).map(|(c, v)| (*c, v.clone())).collect();
        // A by-product that another fusion stores is part of the first regime's computation.
        loop {
            let before = values.len();
            for (class, candidates) in &problem.classes {
                if values.contains_key(class) {
                    continue;
                }
                let found = candidates.iter().find_map(|c| {
                    let outputs = of_candidate(&mut self.terms, g, c, &values)?;
                    outputs.iter().all(|t| *t < self.first).then_some(outputs)
                });
                if let Some(outputs) = found {
                    values.insert(*class, outputs);
                }
            }
            if values.len() == before {
                break;
            }
        }
        let mut out = BTreeSet::new();
        for (class, candidates) in &problem.classes {
            for (i, c) in candidates.iter().enumerate() {
                let outputs = of_candidate(&mut self.terms, g, c, &values);
                if outputs.is_none() || outputs.as_ref() != values.get(class) {
                    out.insert((*class, i));
                }
            }
        }
        out
    }
}

fn roots(problem: &Problem, values: &Values) -> Vec<Vec<Term>> {
    problem.roots.iter().map(|r| values.get(r).cloned().unwrap_or_default()).collect()
}

/// The values of all classes that a solution computes.
fn of_solution(terms: &mut Terms, g: &Graph, problem: &Problem, chosen: &Chosen) -> Values {
    let mut values = Values::new();
    // Each round has at least one more, as solutions have no cycles.
    loop {
        let before = values.len();
        for (class, i) in chosen {
            if !values.contains_key(class)
                && let Some(outputs) = of_candidate(terms, g, &problem.classes[class][*i], &values)
            {
                values.insert(*class, outputs);
            }
        }
        if values.len() == before {
            return values;
        }
    }
}

/// The outputs of a candidate; `None` where a value that it needs is not known.
fn of_candidate(terms: &mut Terms, g: &Graph, c: &Candidate, values: &Values) -> Option<Vec<Term>> {
    let mut children = vec![];
    for child in &c.children {
        children.push(match values.get(child) {
            Some(of_child) => of_child.clone(),
            None if available(g, *child) => {
                let reach = if g[*child].data.weight { Reach::Fixed } else { Reach::Opaque };
                vec![terms.node(format!("class {child}"), vec![], reach)]
            }
            None => return None,
        });
    }
    match &c.how {
        How::Kernel(kernel) => {
            let inputs: Option<Vec<Term>> = children.iter().map(|t| t.first().copied()).collect();
            Some(Reading { terms, kernel, inputs: inputs? }.outputs())
        }
        How::Proj(i) => children.first()?.get(*i).map(|t| vec![*t]),
        How::Stored => children.into_iter().next(),
    }
}

impl Terms {
    fn node(&mut self, label: String, operands: Vec<Term>, reach: Reach) -> Term {
        let key = (label, operands);
        if let Some(t) = self.known.get(&key) {
            return *t;
        }
        self.nodes.push(TermNode { label: key.0.clone(), operands: key.1.clone(), reach });
        self.known.insert(key, self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    fn row_wise(&mut self, label: String, operands: Vec<Term>) -> Term {
        self.node(label, operands, Reach::RowWise)
    }

    fn binary(&mut self, op: BinaryOp, mut operands: Vec<Term>) -> Term {
        if matches!(op, BinaryOp::Add | BinaryOp::Mul | BinaryOp::Max | BinaryOp::Min) {
            operands.sort_unstable();
        }
        self.row_wise(format!("{op:?}"), operands)
    }

    fn number(&mut self, x: F32) -> Term {
        self.node(format!("{x:?}"), vec![], Reach::Fixed)
    }

    /// `x` rounded to the storage of rows.
    fn stored(&mut self, x: Term, elem: RowElem) -> Term {
        if elem == RowElem::F32 { x } else { self.row_wise(format!("stored as {elem}"), vec![x]) }
    }

    /// The rows of `x` whose logits are needed: gathered from its operands.
    fn gathered(&mut self, x: Term) -> Term {
        match self.nodes[x].reach {
            Reach::Fixed => x,
            Reach::Opaque => self.node("gathered".into(), vec![x], Reach::Opaque),
            Reach::RowWise => {
                let label = self.nodes[x].label.clone();
                let operands = self.nodes[x].operands.clone().into_iter().map(|t| self.gathered(t)).collect();
                self.row_wise(label, operands)
            }
        }
    }
}

/// A kernel whose inputs are known.
struct Reading<'a> {
    terms: &'a mut Terms,
    kernel: &'a Kernel,
    inputs: Vec<Term>,
}

impl Reading<'_> {
    fn outputs(&mut self) -> Vec<Term> {
        let spec = Spec { kernel: self.kernel.clone(), inputs: self.inputs.len() };
        let outputs = spec.outputs().into_iter().enumerate();
        outputs.map(|(i, o)| self.output(i, o)).collect()
    }

    fn output(&mut self, number: usize, output: Output) -> Term {
        let kernel = self.kernel;
        match (&kernel.body, output) {
            (Body::RowNorm(n), Output::Rows(out)) => {
                let x = self.row_norm(n);
                self.in_storage(x, out)
            }
            (Body::Embed(e), Output::Rows(_)) => self.embed(e),
            (Body::Matmul(_) | Body::ExpertMatmul(_) | Body::Pointwise(_), Output::Rows(out)) => {
                let mut parts: Vec<(usize, Term)> = vec![];
                for s in kernel.body.segments() {
                    if let Store::Rows { param, start } = s.store
                        && param == out
                    {
                        parts.push((start, self.segment(s)));
                    }
                }
                parts.sort_unstable();
                let x = match parts[..] {
                    [(0, x)] => x,
                    _ => {
                        let (starts, parts): (Vec<usize>, Vec<Term>) = parts.into_iter().unzip();
                        self.terms.row_wise(format!("columns from {starts:?}"), parts)
                    }
                };
                self.in_storage(x, out)
            }
            (Body::Matmul(_) | Body::ExpertMatmul(_) | Body::Pointwise(_), Output::Kv(kv)) => {
                let mut operands = vec![self.operand(kv)];
                for (key, s) in kernel.body.segments().iter().filter_map(|s| match s.store {
                    Store::KvKey(_) => Some((true, s)),
                    Store::KvValue(_) => Some((false, s)),
                    Store::Rows { .. } => None,
                }) {
                    let x = self.segment(s);
                    operands.push(self.terms.row_wise(if key { "key" } else { "value" }.into(), vec![x]));
                }
                operands[1..].sort_unstable();
                self.terms.node("cached".into(), operands, Reach::Opaque)
            }
            (_, Output::Rows(out)) => {
                let x = self.opaque(number);
                self.in_storage(x, out)
            }
            (_, Output::Kv(_)) => self.opaque(number),
        }
    }

    /// The value of a whole body as a function of the operands that it reads.
    fn opaque(&mut self, number: usize) -> Term {
        let mut body = self.kernel.body.clone();
        let mut operands = vec![];
        body.visit_operands(&mut |p, _| {
            operands.extend(self.inputs.get(*p).copied());
            *p = 0;
        });
        if let Some(tile_m) = body.tile_m_mut() {
            *tile_m = 0;
        }
        self.terms.node(format!("{number} of {body:?}"), operands, Reach::Opaque)
    }

    /// The value of an input.
    fn operand(&mut self, p: ParamId) -> Term {
        match self.inputs.get(p) {
            Some(t) => *t,
            None => self.terms.node(format!("output {p}"), vec![], Reach::Opaque),
        }
    }

    fn in_storage(&mut self, x: Term, out: ParamId) -> Term {
        let rows = &self.kernel.params[out].kind;
        if let ParamKind::Rows { elem, .. } = rows { self.terms.stored(x, *elem) } else { x }
    }

    fn embed(&mut self, e: &Embed) -> Term {
        let table = self.operand(e.table);
        let mut x = self.terms.node(format!("rows by {:?}", e.index), vec![table], Reach::Opaque);
        if e.scale != F32::new(1.0) {
            let scale = self.terms.number(e.scale);
            x = self.terms.binary(BinaryOp::Mul, vec![x, scale]);
        }
        if let Some(add) = e.add {
            let add = self.operand(add);
            x = self.terms.binary(BinaryOp::Add, vec![x, add]);
        }
        x
    }

    fn row_norm(&mut self, n: &RowNorm) -> Term {
        let mut x = self.operand(n.x);
        if n.gather {
            x = self.terms.gathered(x);
        }
        let x = self.normalized(x, n.norm, n.gain, n.bias);
        match n.residual {
            Some(residual) => {
                let residual = self.operand(residual);
                self.terms.binary(BinaryOp::Add, vec![residual, x])
            }
            None => x,
        }
    }

    fn normalized(&mut self, x: Term, norm: Option<Norm>, gain: Option<ParamId>, bias: Option<ParamId>) -> Term {
        let mut x = norm.map_or(x, |norm| self.terms.row_wise(format!("{norm:?}"), vec![x]));
        for (op, vector) in [(BinaryOp::Mul, gain), (BinaryOp::Add, bias)] {
            if let Some(vector) = vector {
                let vector = self.operand(vector);
                x = self.terms.binary(op, vec![x, vector]);
            }
        }
        x
    }

    fn segment(&mut self, s: &Segment) -> Term {
        let body = &self.kernel.body;
        let mut lanes = vec![];
        if let Some(product) = body.product() {
            let mut x = self.operand(product.x);
            if let Some(p) = product.prologue {
                x = self.normalized(x, p.norm, p.gain, p.bias);
                x = self.terms.stored(x, p.elem);
            }
            let (label, routes) = match product.experts {
                Some(e) => (format!("product of {} of {}", e.top, e.experts), e.routes.map(|r| self.operand(r))),
                None => ("product".into(), None),
            };
            for w in &s.weights {
                let w = self.operand(*w);
                let operands = [x, w].into_iter().chain(routes).collect();
                lanes.push(self.terms.row_wise(label.clone(), operands));
            }
        }
        self.expr(&s.expr, s.n, &lanes)
    }

    fn expr(&mut self, e: &Expr, n: usize, lanes: &[Term]) -> Term {
        match e {
            Expr::Acc(lane) => lanes[*lane],
            Expr::Rows { param, start } => {
                let x = self.operand(*param);
                let kind = &self.kernel.params[*param].kind;
                let whole = *start == 0 && matches!(kind, ParamKind::Rows { cols, .. } if *cols == n);
                if whole { x } else { self.terms.row_wise(format!("{n} columns from {start}"), vec![x]) }
            }
            Expr::Vector(p) => self.operand(*p),
            Expr::Const(x) => self.terms.number(*x),
            Expr::Expert { vector, routes, top } => {
                let operands = vec![self.operand(*vector), self.operand(*routes)];
                self.terms.row_wise(format!("parts of {top}"), operands)
            }
            Expr::Pick { rows, order } => {
                let operands = vec![self.operand(*rows), self.operand(*order)];
                self.terms.row_wise("picked".into(), operands)
            }
            Expr::Combine { weights, from, y, count } => {
                let operands = vec![self.operand(*weights), self.operand(*y)];
                self.terms.row_wise(format!("{count} combined from {from}"), operands)
            }
            Expr::Unary(op, x) => {
                let x = self.expr(x, n, lanes);
                self.terms.row_wise(format!("{op:?}"), vec![x])
            }
            Expr::Binary(op, a, b) => {
                let operands = vec![self.expr(a, n, lanes), self.expr(b, n, lanes)];
                self.terms.binary(*op, operands)
            }
            Expr::Normalize(norm, x) => {
                let x = self.expr(x, n, lanes);
                self.terms.row_wise(format!("{norm:?}"), vec![x])
            }
            Expr::Rope { head_dim, table, x } => {
                let operands = vec![self.expr(x, n, lanes), self.operand(*table)];
                self.terms.row_wise(format!("rotated by {head_dim}"), operands)
            }
        }
    }
}
