//! Values of a module that may be divided by a vector exactly: `x·Wᵀ = (x/s)·(W·diag(s))ᵀ`.
//!
//! A [`Group`] is a value that only products read. Its matrices take the columns' scales `s`, and the value is divided
//! by `s` where it is made, without an operation at run time: in the gain (and bias) of a norm, in the rows of the
//! matrix that makes the other factor of a gated product, before ReLU, or in the rows of a value projection, whose
//! columns pass through attention as they are. Columns that come from one column (heads that share a KV head) or that
//! meet one matrix column (the experts of a token) have one scale. Values that nothing can divide are counted.
//!
//! SmoothQuant (arXiv 2211.10438, section 4) and AWQ (arXiv 2306.00978, section 3.2) move scales by this equality.

use llmcc_ir::graph::{Arg, BinaryOp, Call, Func, Module, Node, Op, Reads, Role, UnaryOp, Value, ValueType};
use llmcc_ir::plan::WeightExpr;
use llmcc_ir::state::StateSpec;
use std::collections::{BTreeMap, BTreeSet};

/// A value that products read, and what its scales change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Index of the function.
    pub func: usize,
    /// The value.
    pub value: Value,
    /// Scales.
    pub columns: usize,
    /// Matrices of the products: their columns are multiplied.
    pub readers: Vec<Operand>,
    /// Weights that make the value: gains, biases and rows of matrices are divided.
    pub producers: Vec<Operand>,
}

/// A weight that an operation of a function reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Index of the operation.
    pub node: usize,
    /// Index of its argument.
    pub arg: usize,
    /// Part of the weight that takes scales.
    pub part: Part,
    /// The scale of each column, row or element.
    pub scales: Vec<usize>,
    /// Whether a product decides something by it: it is stored exactly.
    pub exact: bool,
}

/// Part of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Columns of a matrix.
    Columns,
    /// Rows of a matrix.
    Rows,
    /// Elements of a vector.
    Elements,
}

/// Groups of a module, by function and value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// Values that may be divided.
    pub movable: Vec<Group>,
    /// For each function, values of products that may not.
    pub fixed: Vec<usize>,
}

/// A weight or a state of a module.
type Place = (bool, usize);

/// The calls that bind each weight and state.
type Bound = BTreeMap<Place, Vec<usize>>;

/// The weight or the state that an argument is.
fn place(arg: &Arg) -> Option<Place> {
    match arg {
        Arg::Weight(w) => Some((false, *w)),
        Arg::State(s) => Some((true, *s)),
        Arg::Value(_) | Arg::Input(_) => None,
    }
}

/// Finds the groups of a module.
pub fn find(module: &Module) -> Groups {
    let all: Vec<Vec<Group>> = (0..module.funcs.len()).map(|at| of_func(module, at)).collect();
    let calls: Vec<&Call> = module.calls().collect();
    let mut bound = Bound::new();
    for (at, call) in calls.iter().enumerate() {
        for place in call.args.iter().filter_map(place) {
            bound.entry(place).or_default().push(at);
        }
    }
    let mut out = Groups::default();
    for (at, of_func) in all.iter().enumerate() {
        let own =
            |group: &&Group| calls.iter().filter(|c| c.func == at).all(|c| alone(module, group, c, &calls, &bound));
        // Functions that compute the same stay alike.
        let same = |group: &&Group| {
            let like = |(f, _): &(usize, &Vec<Group>)| module.funcs[*f].extends(&module.funcs[at]);
            all.iter().enumerate().filter(like).all(|(_, others)| others.iter().any(|g| g.value == group.value))
        };
        let movable: Vec<Group> = of_func.iter().filter(own).filter(same).cloned().collect();
        out.fixed.push(products(&module.funcs[at]).len() - movable.len());
        out.movable.extend(movable);
    }
    out
}

/// The weight that a value is, or is computed from, over a function's parameters.
pub fn expression(f: &Func, v: Value) -> Option<WeightExpr> {
    let at = v.0 as usize;
    if let Some(param) = f.params.get(at) {
        return matches!(param.role, Role::Weight | Role::SharedWeight).then_some(WeightExpr::Weight(at));
    }
    let node = f.nodes.get(at - f.params.len())?;
    if !node.op.facts().packs() {
        return None;
    }
    let args: Option<Vec<WeightExpr>> = node.args.iter().map(|v| expression(f, *v)).collect();
    Some(WeightExpr::Op(node.op.clone(), args?))
}

/// The same over the module's weights, in a call.
pub fn bound(f: &Func, call: &Call, v: Value) -> Option<WeightExpr> {
    let weight = |i: usize| if let Some(Arg::Weight(w)) = call.args.get(i) { Some(*w) } else { None };
    expression(f, v)?.substitute(&weight)
}

/// Whether no call of another kind reads a matrix or a state that a group changes in a call.
fn alone(module: &Module, group: &Group, call: &Call, calls: &[&Call], bound: &Bound) -> bool {
    let f = &module.funcs[call.func];
    let like = |other: &Call| {
        module.funcs[other.func].extends(f) && other.binds_as(&Call { func: other.func, ..call.clone() })
    };
    let alike = |param: usize| {
        let others = call.args.get(param).and_then(place).and_then(|place| bound.get(&place));
        others.into_iter().flatten().all(|at| like(calls[*at]))
    };
    let matrices = group.readers.iter().chain(&group.producers).filter(|o| o.part != Part::Elements);
    let mut params = BTreeSet::new();
    for operand in matrices {
        if let Some(e) = f.nodes.get(operand.node).and_then(|n| expression(f, *n.args.get(operand.arg)?)) {
            e.leaves(&mut |i| _ = params.insert(i));
        }
    }
    params.extend(states(f, group));
    params.into_iter().all(alike)
}

/// The parameters of states that hold a group's producers' rows.
fn states(f: &Func, group: &Group) -> BTreeSet<usize> {
    let (mut found, mut todo) = (BTreeSet::new(), vec![group.value]);
    while let Some(v) = todo.pop() {
        let Some(node) = (v.0 as usize).checked_sub(f.params.len()).and_then(|at| f.nodes.get(at)) else {
            found.extend(
                matches!(f.params.get(v.0 as usize).map(|p| p.role), Some(Role::State)).then_some(v.0 as usize),
            );
            continue;
        };
        // (Whatever a divided value is computed from by operations that a division passes.)
        if let (Op::Attention { .. }, [_, kv, ..]) | (Op::KvAppend, [kv, ..]) = (&node.op, &node.args[..]) {
            todo.push(*kv);
        } else if matches!(node.op, Op::Binary(_) | Op::Unary(_) | Op::GatherRows) {
            todo.extend(&node.args);
        }
    }
    found
}

/// Values that products of a function read, with the products.
fn products(f: &Func) -> BTreeMap<Value, Vec<usize>> {
    let mut out: BTreeMap<Value, Vec<usize>> = BTreeMap::new();
    for (at, node) in f.nodes.iter().enumerate() {
        if matches!(node.op, Op::MatMul | Op::ExpertMatMul { .. }) {
            out.entry(node.args[0]).or_default().push(at);
        }
    }
    out
}

/// The groups of a function by itself.
fn of_func(module: &Module, func: usize) -> Vec<Group> {
    let f = &module.funcs[func];
    let mut uses: BTreeMap<Value, usize> = BTreeMap::new();
    for v in f.nodes.iter().flat_map(|n| &n.args).chain(&f.results) {
        *uses.entry(*v).or_default() += 1;
    }
    let deciding = deciding(f);
    let walk = |(value, readers): (Value, Vec<usize>)| {
        let columns = columns(f, value)?;
        let walk = Walk { f, uses: &uses, joined: (0..columns).collect(), found: vec![] };
        walk.group(func, value, &readers, &deciding)
    };
    products(f).into_iter().filter_map(walk).collect()
}

/// Columns of a matrix of rows.
fn columns(f: &Func, v: Value) -> Option<usize> {
    f.ty(v)?.tensor()?.cols()
}

/// Operations whose results decide something, whatever is added to them.
fn deciding(f: &Func) -> BTreeSet<usize> {
    let mut todo: Vec<Value> = vec![];
    for node in &f.nodes {
        let facts = node.op.facts();
        let read = facts.each_arg().zip(&node.args).filter(|((_, reads), _)| *reads == Reads::Deciding);
        todo.extend(read.map(|(_, v)| *v));
    }
    let mut found = BTreeSet::new();
    while let Some(v) = todo.pop() {
        let Some(at) = (v.0 as usize).checked_sub(f.params.len()) else { continue };
        let Some(node) = f.nodes.get(at).filter(|_| found.insert(at)) else { continue };
        if matches!(node.op, Op::Binary(_) | Op::Unary(_) | Op::ConcatCols) {
            todo.extend(&node.args);
        }
    }
    found
}

/// A division on its way to the weights that take it.
struct Walk<'a> {
    f: &'a Func,
    /// How often each value is read.
    uses: &'a BTreeMap<Value, usize>,
    /// For each column of the group's value the first that has the same scale.
    joined: Vec<usize>,
    /// Weights, whose scales are named by columns of the group's value.
    found: Vec<Operand>,
}

impl Walk<'_> {
    fn group(mut self, func: usize, value: Value, products: &[usize], deciding: &BTreeSet<usize>) -> Option<Group> {
        let readers: Option<Vec<Operand>> = products.iter().map(|at| self.reader(*at, deciding.contains(at))).collect();
        let readers = readers?;
        if self.uses.get(&value) != Some(&readers.len()) {
            return None;
        }
        let all: Vec<usize> = (0..self.joined.len()).collect();
        if !self.divide(value, &all) {
            return None;
        }
        // Scales are counted.
        let first: Vec<usize> = (0..self.joined.len()).map(|c| self.first(c)).collect();
        let distinct: BTreeSet<usize> = first.iter().copied().collect();
        let rank: BTreeMap<usize, usize> = distinct.iter().enumerate().map(|(rank, c)| (*c, rank)).collect();
        let counted = |operands: Vec<Operand>| -> Vec<Operand> {
            let of = |o: Operand| Operand { scales: o.scales.iter().map(|c| rank[&first[*c]]).collect(), ..o };
            operands.into_iter().map(of).collect()
        };
        let (readers, producers) = (counted(readers), counted(self.found));
        Some(Group { func, value, columns: distinct.len(), readers, producers })
    }

    /// The matrix of a product that reads the value.
    fn reader(&mut self, at: usize, exact: bool) -> Option<Operand> {
        let node = &self.f.nodes[at];
        let columns = self.changeable(*node.args.get(1)?)?.1;
        let width = self.joined.len();
        if columns == 0 || !width.is_multiple_of(columns) {
            return None;
        }
        (columns..width).for_each(|c| self.join(c, c % columns));
        Some(Operand { node: at, arg: 1, part: Part::Columns, scales: (0..columns).collect(), exact })
    }

    /// Rows and columns of a matrix whose numbers may change: nothing else reads it, and it is not of codes.
    fn changeable(&self, w: Value) -> Option<(usize, usize)> {
        let mut leaves = vec![];
        expression(self.f, w)?.leaves(&mut |i| leaves.push(i));
        let own = |i: &usize| {
            let param = &self.f.params[*i];
            param.role == Role::Weight && param.ty.tensor().is_some_and(|t| t.dtype.coded().is_none())
        };
        let [rows, columns] = self.f.ty(w)?.tensor()?.shape[..] else { return None };
        let once = self.uses.get(&w) == Some(&1);
        (once && leaves.iter().all(own)).then_some((rows.known()?, columns.known()?))
    }

    /// The first column that has the same scale.
    fn first(&self, mut column: usize) -> usize {
        while self.joined[column] != column {
            column = self.joined[column];
        }
        column
    }

    /// Gives two columns one scale.
    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.first(a), self.first(b));
        self.joined[a.max(b)] = a.min(b);
    }

    /// Divides a value that nothing else reads; `scales` names the scale of each column. Where it cannot, nothing is
    /// found.
    fn divide(&mut self, v: Value, scales: &[usize]) -> bool {
        let before = (self.found.len(), self.joined.clone());
        let node = (v.0 as usize).checked_sub(self.f.params.len());
        let done = node.is_some_and(|at| self.divide_node(at, scales));
        if !done {
            self.found.truncate(before.0);
            self.joined = before.1;
        }
        done
    }

    /// Divides an operand that nothing else reads.
    fn divide_operand(&mut self, v: Value, scales: &[usize]) -> bool {
        self.uses.get(&v) == Some(&1) && columns(self.f, v) == Some(scales.len()) && self.divide(v, scales)
    }

    fn divide_node(&mut self, at: usize, scales: &[usize]) -> bool {
        let node: &Node = &self.f.nodes[at];
        let args = &node.args[..];
        if let (Op::Binary(BinaryOp::Mul), [a, b]) = (&node.op, args) {
            return self.vector(at, *b, scales) || self.divide_operand(*a, scales) || self.divide_operand(*b, scales);
        }
        if let (Op::Binary(BinaryOp::Div), [a, _]) = (&node.op, args) {
            return self.divide_operand(*a, scales);
        }
        if let (Op::Binary(BinaryOp::Add | BinaryOp::Sub), [a, b]) = (&node.op, args) {
            let own = a != b && self.divide_operand(*a, scales);
            return own && (self.vector(at, *b, scales) || self.divide_operand(*b, scales));
        }
        if let (Op::Unary(UnaryOp::Relu | UnaryOp::Neg) | Op::GatherRows, [a, ..]) = (&node.op, args) {
            return self.divide_operand(*a, scales);
        }
        if let (Op::MatMul, [_, w]) = (&node.op, args) {
            return self.rows(at, *w, scales);
        }
        if let (Op::ExpertMatMul { experts, top, cols: 0 }, [_, w, _]) = (&node.op, args) {
            let of_expert = scales.len() / (*top).max(1);
            (of_expert..scales.len()).for_each(|c| self.join(scales[c], scales[c % of_expert.max(1)]));
            return self.rows(at, *w, &scales[..of_expert].repeat(*experts));
        }
        if let (Op::Attention { heads, sums: false, .. }, [_, kv, ..]) = (&node.op, args) {
            return self.values(*heads, *kv, scales);
        }
        false
    }

    /// Divides a vector with an element for each column.
    fn vector(&mut self, node: usize, v: Value, scales: &[usize]) -> bool {
        let vector = |t: &ValueType| t.tensor().is_some_and(|t| t.shape.len() == 1 && t.dtype.coded().is_none());
        let known = expression(self.f, v).is_some() && self.f.ty(v).is_some_and(vector);
        let fits = known && columns(self.f, v) == Some(scales.len());
        if fits {
            self.found.push(Operand { node, arg: 1, part: Part::Elements, scales: scales.into(), exact: false });
        }
        fits
    }

    /// Divides the rows of a matrix.
    fn rows(&mut self, node: usize, w: Value, scales: &[usize]) -> bool {
        let fits = self.changeable(w).is_some_and(|(rows, _)| rows == scales.len());
        if fits {
            self.found.push(Operand { node, arg: 1, part: Part::Rows, scales: scales.into(), exact: false });
        }
        fits
    }

    /// Divides the values that attention reads: heads that share a KV head share scales.
    fn values(&mut self, heads: usize, kv: Value, scales: &[usize]) -> bool {
        let made = (kv.0 as usize).checked_sub(self.f.params.len()).map(|at| &self.f.nodes[at]);
        let Some(Node { op: Op::KvAppend, args, .. }) = made else { return false };
        let spec = self.f.ty(kv).and_then(ValueType::state).and_then(StateSpec::paged);
        let (Some(spec), [_, key, value, ..]) = (spec, &args[..]) else { return false };
        let (width, shared) = (spec.value_dim, heads / spec.kv_heads.max(1));
        let plain = !spec.latent && spec.own_dim() > 0 && spec.every <= 1 && key != value;
        if !plain || self.uses.get(&kv) != Some(&1) || scales.len() != heads * width || shared == 0 {
            return false;
        }
        let head = |column: usize| column / width / shared * shared * width + column % width;
        (0..scales.len()).for_each(|c| self.join(scales[c], scales[head(c)]));
        let firsts: Vec<usize> = (0..spec.kv_heads)
            .flat_map(|h| (0..width).map(move |d| h * shared * width + d))
            .map(|c| scales[c])
            .collect();
        self.divide_operand(*value, &firsts)
    }
}
