//! Room for adapters that are loaded while the model runs.
//!
//! An adapter of PEFT adds `s·(x·Aᵀ)·Bᵀ` to a product `x·Wᵀ` (LoRA, arXiv 2106.09685). So beside
//! each product whose matrix is a tensor of the checkpoint, or rows of one in any order, two more
//! are made, with matrices that the sequence's adapter has (`adapter_matmul`), and their result is
//! added. That is done on the graph as the front end made it, whatever the architecture; the passes
//! treat the sum as any other. Products of the same rows share both: the `A` of all of them are one
//! matrix, the `B` lie below each other.

use llmcc_ir::graph::{Arg, BinaryOp, Func, Module, Node, Op, Param, Role, Value, ValueType, picked_row};
use llmcc_ir::state::{AdapterSpec, StateSpec};
use llmcc_ir::ty::{DType, Dim, TensorType};
use llmcc_text::adapter::{AdaptedMatrix, PlaceOfRows};
use std::collections::BTreeSet;

pub use llmcc_text::adapter::AdapterTable;

/// Products that share one pair of matrices.
const MOST_PARTS: usize = 8;
/// The largest rank.
pub const MOST_RANK: usize = 512;

/// How much room there is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterSlots {
    /// Adapters at a time: 1 to [`AdapterSpec::MOST`].
    pub count: usize,
    /// The largest rank of theirs: 1 to [`MOST_RANK`].
    pub rank: usize,
    /// Factors are kept as f32, else as bf16, half the bytes; `None` = whoever compiles chooses, and
    /// [`reserve`] takes bf16.
    pub wide: Option<bool>,
    /// Modules that they may change, by the ends of their names (`q_proj`); none: all products of
    /// layers.
    pub targets: Vec<String>,
}

impl AdapterSlots {
    /// Whether there is to be room for adapters of a tensor.
    fn wants(&self, tensor: &str) -> bool {
        self.targets.is_empty() || self.targets.iter().any(|t| names(tensor, t))
    }
}

/// A product that adapters may change.
struct AdaptedProduct {
    /// Index of the node.
    node: usize,
    /// Parameter that the matrix is made of.
    param: usize,
    /// The tensor's rows that the matrix has, in order.
    rows: Vec<usize>,
    /// Rows that the tensor has as a matrix `[outputs, inputs]`.
    outputs: usize,
}

/// Products of the same rows.
struct SharedRows {
    x: Value,
    inputs: usize,
    targets: Vec<AdaptedProduct>,
}

/// Makes room for adapters in a module; returns each matrix's place for factors, and the names of
/// matrices without room for any.
///
/// # Errors
/// A message naming a target that does not exist, or saying that there is nothing to adapt.
pub fn reserve(module: &mut Module, slots: &AdapterSlots) -> Result<(AdapterTable, Vec<String>), String> {
    let mut table =
        AdapterTable { slots: slots.count, rank: slots.rank, wide: slots.wide == Some(true), matrices: vec![] };
    let mut left = vec![];
    for func in 0..module.funcs.len() {
        let groups = groups(module, func, slots, &mut left);
        for group in &groups {
            bind(module, func, group, slots, &mut table);
        }
        if !groups.is_empty() {
            module.funcs[func] = extended(&module.funcs[func], &groups, slots);
        }
    }
    let lacking = slots.targets.iter().find(|t| !table.matrices.iter().any(|m| names(&m.name, t)));
    match lacking {
        Some(target) => Err(format!(
            "--lora-targets: no product of the model's layers has a matrix `{target}`; possible are: {}",
            kinds(module, slots).join(", ")
        )),
        None if table.matrices.is_empty() => Err("--lora-slots: no product of the model can have an adapter".into()),
        None => Ok((table, left)),
    }
}

/// Kinds of matrices that there can be room for.
fn kinds(module: &Module, slots: &AdapterSlots) -> Vec<String> {
    let mut out: Vec<String> = vec![];
    let all = AdapterSlots { targets: vec![], ..slots.clone() };
    for func in 0..module.funcs.len() {
        for target in groups(module, func, &all, &mut vec![]).into_iter().flat_map(|g| g.targets) {
            for name in bound(module, func, target.param).into_iter().flatten() {
                let kind = stem(name).rsplit('.').next().unwrap_or_default().to_string();
                if !out.contains(&kind) {
                    out.push(kind);
                }
            }
        }
    }
    out
}

/// The tensors that the calls of a function bind to a parameter; `None` for other weights.
fn bound(module: &Module, func: usize, param: usize) -> Vec<Option<&str>> {
    let calls = module.calls().filter(|c| c.func == func);
    let name = |arg: Option<&Arg>| match arg {
        Some(Arg::Weight(w)) => {
            module.weights.get(*w).filter(|w| w.data.is_none() && w.name.ends_with(".weight")).map(|w| w.name.as_str())
        }
        Some(Arg::Value(_) | Arg::State(_) | Arg::Input(_)) | None => None,
    };
    calls.map(|c| name(c.args.get(param))).collect()
}

fn stem(tensor: &str) -> &str {
    tensor.strip_suffix(".weight").unwrap_or(tensor)
}

/// Whether a tensor is that of a module whose name ends so.
fn names(tensor: &str, target: &str) -> bool {
    stem(tensor).strip_suffix(target).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The products of a function that adapters may change. Tensors of products that may not, though they
/// are wanted, come to be `left`.
fn groups(module: &Module, func: usize, slots: &AdapterSlots, left: &mut Vec<String>) -> Vec<SharedRows> {
    let f = &module.funcs[func];
    let mut out: Vec<SharedRows> = vec![];
    for (node, n) in f.nodes.iter().enumerate().filter(|(_, n)| n.op == Op::MatMul) {
        let [x, w] = n.args[..] else { continue };
        let Some((rows, inputs)) = tokens(f, x) else { continue };
        let Some(MadeOf { param, order, outputs }) = stored(f, w) else { continue };
        let tensors = bound(module, func, param);
        let found: Vec<&str> = tensors.iter().flatten().copied().filter(|name| slots.wants(name)).collect();
        if found.is_empty() || rows != Dim::Tokens {
            continue;
        }
        let Some(order) = order.filter(|_| tensors.iter().all(Option::is_some)) else {
            left.extend(found.into_iter().map(str::to_string));
            continue;
        };
        let target = AdaptedProduct { node, param, rows: order, outputs };
        match out.iter_mut().find(|g| g.x == x && g.targets.len() < MOST_PARTS) {
            Some(group) => group.targets.push(target),
            None => out.push(SharedRows { x, inputs, targets: vec![target] }),
        }
    }
    // If a matrix is used in other ways, too, an adapter would change only a part.
    let products: BTreeSet<usize> = out.iter().flat_map(|g| &g.targets).map(|t| t.node).collect();
    for group in &mut out {
        group.targets.retain(|t| {
            let all = only_products(f, t.param, &products);
            if !all {
                left.extend(bound(module, func, t.param).into_iter().flatten().map(str::to_string));
            }
            all
        });
    }
    out.retain(|group| !group.targets.is_empty());
    left.sort();
    left.dedup();
    out
}

/// Whether all that is made of a parameter are these products, or the matrices of them.
fn only_products(f: &Func, param: usize, products: &BTreeSet<usize>) -> bool {
    let mut made = BTreeSet::from([Value(param as u32)]);
    f.nodes.iter().enumerate().all(|(i, node)| {
        let uses: Vec<bool> = node.args.iter().map(|arg| made.contains(arg)).collect();
        if !uses.contains(&true) {
            return true;
        }
        let rows = matches!(node.op, Op::SliceRows { .. } | Op::PickRows { .. } | Op::Transpose | Op::ConcatRows);
        if rows {
            made.insert(Value((f.params.len() + i) as u32));
        }
        rows || products.contains(&i) && uses == [false, true]
    })
}

/// Rows and columns of activations.
fn tokens(f: &Func, x: Value) -> Option<(Dim, usize)> {
    match f.ty(x)?.tensor()?.shape[..] {
        [rows, Dim::Static(cols)] => Some((rows, cols)),
        _ => None,
    }
}

/// The source of a matrix.
struct MadeOf {
    param: usize,
    /// The rows of it, in order, if it has no more than rows of it.
    order: Option<Vec<usize>>,
    /// How many rows the parameter has, as a matrix `[outputs, inputs]`.
    outputs: usize,
}

impl MadeOf {
    /// Rows of it.
    fn picked(self, rows: impl Iterator<Item = usize>) -> MadeOf {
        let order = self.order.map(|order| rows.map(|i| order[i]).collect());
        MadeOf { order, ..self }
    }
}

/// The parameter that a matrix is made of, if it is one.
fn stored(f: &Func, w: Value) -> Option<MadeOf> {
    let at = w.0 as usize;
    if let Some(param) = f.params.get(at) {
        let outputs = param.ty.tensor()?.shape.first()?.known()?;
        let weight = matches!(param.role, Role::Weight | Role::SharedWeight);
        return weight.then(|| MadeOf { param: at, order: Some((0..outputs).collect()), outputs });
    }
    let node = f.nodes.get(at - f.params.len())?;
    let of = *node.args.first()?;
    let from = stored(f, of)?;
    if node.op == Op::ConcatRows {
        let parts: Option<Vec<MadeOf>> = node.args.iter().map(|part| stored(f, *part)).collect();
        let parts = parts.filter(|parts| parts.iter().all(|p| p.param == from.param));
        let order = parts.and_then(|parts| parts.into_iter().map(|p| p.order).collect::<Option<Vec<_>>>());
        return Some(MadeOf { order: order.map(|parts| parts.concat()), ..from });
    }
    let len = from.order.as_ref().map_or(0, Vec::len);
    if let Op::SliceRows { start, len } = node.op {
        return Some(from.picked(start..start + len));
    }
    if let Op::PickRows { run, start, len: kept, pairs } = node.op {
        return Some(from.picked((0..len / run * kept).map(|i| picked_row([run, start, kept, pairs], i))));
    }
    let shape = &node.ty.tensor()?.shape;
    if node.op == Op::Transpose && (of.0 as usize) < f.params.len() && shape.len() == 2 {
        // The tensor as it is stored.
        let outputs = shape.first()?.known()?;
        return Some(MadeOf { order: Some((0..outputs).collect()), outputs, ..from });
    }
    Some(MadeOf { order: None, ..from })
}

/// Runs of a first row, a number of rows, and the distance from one to the next.
fn runs(rows: &[usize]) -> Vec<[usize; 3]> {
    let mut out: Vec<[usize; 3]> = vec![];
    for row in rows {
        match out.last_mut() {
            Some([first, count, step]) if *count == 1 && row > first => (*count, *step) = (2, row - *first),
            Some([first, count, step]) if *count > 1 && *row == *first + *count * *step => *count += 1,
            _ => out.push([*row, 1, 1]),
        }
    }
    out
}

fn whole(n: usize) -> usize {
    n.next_multiple_of(AdapterSpec::BLOCK)
}

impl SharedRows {
    /// Rows of the joined `A` that count.
    fn ranks(&self, slots: &AdapterSlots) -> usize {
        self.targets.len() * slots.rank
    }

    /// Rows of `B` of each product, with padding.
    fn parts(&self) -> Vec<usize> {
        self.targets.iter().map(|t| whole(t.rows.len())).collect()
    }

    /// The two matrices.
    fn specs(&self, slots: &AdapterSlots) -> [AdapterSpec; 2] {
        let dtype = if slots.wide == Some(true) { DType::F32 } else { DType::Bf16 };
        let of = |n, k| AdapterSpec { n, k, slots: slots.count, dtype };
        [of(whole(self.ranks(slots)), self.inputs), of(self.parts().iter().sum(), slots.rank)]
    }
}

/// Makes the states of a group, binds them in each call, and writes down whose factors they hold.
fn bind(module: &mut Module, func: usize, group: &SharedRows, slots: &AdapterSlots, table: &mut AdapterTable) {
    let specs = group.specs(slots);
    let parts = group.parts();
    let names: Vec<Vec<String>> = group
        .targets
        .iter()
        .map(|t| bound(module, func, t.param).into_iter().map(|n| n.unwrap_or_default().to_string()).collect())
        .collect();
    for (at, call) in module.entries.iter_mut().flat_map(|e| &mut e.calls).filter(|c| c.func == func).enumerate() {
        let first = module.states.len();
        module.states.extend(specs.map(StateSpec::Adapter));
        call.args.extend([Arg::State(first), Arg::State(first + 1)]);
        let place = |i: usize, row: usize| PlaceOfRows { state: first + i, shape: [specs[i].n, specs[i].k], row };
        let mut row = 0;
        for (i, target) in group.targets.iter().enumerate() {
            let name = names[i][at].clone();
            // Other layers of the same function may be wanted without this one.
            if slots.wants(&name) {
                let (a, b, rows) = (place(0, i * slots.rank), place(1, row), runs(&target.rows));
                let (inputs, outputs) = (group.inputs, target.outputs);
                table.matrices.push(AdaptedMatrix { name, inputs, outputs, a, b, rows });
            }
            row += parts[i];
        }
    }
}

/// The function with the adapters' additions to its products.
fn extended(f: &Func, groups: &[SharedRows], slots: &AdapterSlots) -> Func {
    let mut out = Func { name: f.name.clone(), params: f.params.clone(), nodes: vec![], results: vec![] };
    for (i, group) in groups.iter().enumerate() {
        for (spec, what) in group.specs(slots).into_iter().zip(["a", "b"]) {
            let name = format!("adapter{i}.{what}");
            out.params.push(Param { name, ty: ValueType::State(spec.into()), role: Role::State });
        }
    }
    let mut values: Vec<Value> = (0..f.params.len() as u32).map(Value).collect();
    // Each group's addend, once it exists.
    let mut added: Vec<Option<Value>> = vec![None; groups.len()];
    for (at, node) in f.nodes.iter().enumerate() {
        let args: Vec<Value> = node.args.iter().map(|v| values[v.0 as usize]).collect();
        let mut value = push(&mut out, node.op.clone(), args, node.ty.clone());
        let of = groups
            .iter()
            .enumerate()
            .find_map(|(g, group)| group.targets.iter().position(|t| t.node == at).map(|target| (g, group, target)));
        if let Some((g, group, target)) = of {
            let x = values[group.x.0 as usize];
            let params = (f.params.len() + 2 * g) as u32;
            let all = *added[g].get_or_insert_with(|| add(&mut out, group, slots, x, params));
            let parts = group.parts();
            let (start, len) = (parts[..target].iter().sum(), group.targets[target].rows.len());
            let mine = if parts.len() == 1 && parts[0] == len { all } else { slice(&mut out, all, start, len) };
            value = push(&mut out, Op::Binary(BinaryOp::Add), vec![value, mine], node.ty.clone());
        }
        values.push(value);
    }
    out.results = f.results.iter().map(|v| values[v.0 as usize]).collect();
    out
}

/// Both products of a group.
fn add(out: &mut Func, group: &SharedRows, slots: &AdapterSlots, x: Value, params: u32) -> Value {
    let [a, b] = group.specs(slots);
    let rows = |n: usize| ValueType::from(TensorType::rows(Dim::Tokens, n));
    let ranks = group.ranks(slots);
    let mut low = push(out, Op::AdapterMatMul { parts: vec![a.n] }, vec![x, Value(params)], rows(a.n));
    if a.n != ranks {
        low = slice(out, low, 0, ranks);
    }
    push(out, Op::AdapterMatMul { parts: group.parts() }, vec![low, Value(params + 1)], rows(b.n))
}

fn slice(out: &mut Func, x: Value, start: usize, len: usize) -> Value {
    push(out, Op::SliceCols { start, len }, vec![x], TensorType::rows(Dim::Tokens, len).into())
}

fn push(out: &mut Func, op: Op, args: Vec<Value>, ty: ValueType) -> Value {
    out.nodes.push(Node { op, args, ty });
    Value((out.params.len() + out.nodes.len()) as u32 - 1)
}

#[cfg(test)]
mod tests;
