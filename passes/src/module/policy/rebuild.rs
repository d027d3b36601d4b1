//! A function whose caches keep a part of a sequence.
//!
//! A cache becomes two states: the last tokens, and the first ones as tokens far behind them see them. Attention to
//! either returns the sum of its weights, and both are joined in one softmax. Where some heads alone keep a part, their
//! columns have states of their own.

use super::caches::{cache_values, makes_rows, node_of, tables};
use super::kept::{Kept, Part};
use llmcc_ir::graph::{BinaryOp, Func, FuncBuilder, Mistake, Op, Role, UnaryOp, Value};
use llmcc_ir::kv::KvSpec;
use llmcc_ir::state::StateSpec;
use llmcc_ir::ty::{DType, Dim, TensorType};
use std::collections::BTreeMap;

/// An argument that calls of a changed function have after the earlier ones.
#[derive(Clone, Debug)]
pub(super) enum More {
    /// The first tokens of the cache that this parameter was.
    First(usize),
    /// The last tokens of it.
    Last(usize),
    /// The table of places in the cache, for the table that this parameter is.
    Table(usize),
    /// A list of columns.
    Columns(Vec<f32>),
}

/// A changed cache: values of the new function.
#[derive(Clone)]
struct Cache {
    part: Part,
    spec: KvSpec,
    last: Value,
    first: Value,
    /// The heads that keep the whole sequence, if there are any.
    rest: Option<Value>,
}

/// A function under change.
pub(super) struct Rebuild<'a> {
    f: &'a Func,
    kept: Kept,
    b: FuncBuilder,
    /// Values after the change, by those before.
    values: Vec<Value>,
    /// Changed caches, by their values before.
    caches: BTreeMap<Value, Cache>,
    /// Tables of places, and values that have their angles.
    placed: BTreeMap<Value, Value>,
    /// Lists of columns, with the parameters that they are.
    columns: Vec<(Vec<f32>, Value)>,
    more: Vec<More>,
}

impl<'a> Rebuild<'a> {
    pub fn new(f: &'a Func, kept: Kept, caches: &[(usize, Part)]) -> Rebuild<'a> {
        let mut r = Rebuild {
            f,
            kept,
            b: FuncBuilder::new(&f.name),
            values: vec![],
            caches: BTreeMap::new(),
            placed: BTreeMap::new(),
            columns: vec![],
            more: vec![],
        };
        let part = |i: usize| caches.iter().find(|(param, _)| *param == i).map(|(_, part)| part);
        for (i, p) in f.params.iter().enumerate() {
            let spec = p.ty.state().and_then(StateSpec::paged).copied();
            let changed = part(i).zip(spec).map(|(part, spec)| part.rest(spec).unwrap_or_else(|| kept.last(spec)));
            let ty = changed.map_or(p.ty.clone(), |spec| StateSpec::from(spec).into());
            r.values.push(r.b.param(&p.name, ty, p.role));
        }
        caches.iter().for_each(|(param, part)| r.cache(*param, part));
        r
    }

    /// The states of a cache, and the tables of places for those who read it.
    fn cache(&mut self, param: usize, part: &Part) {
        let f = self.f;
        let Some(spec) = f.params[param].ty.state().and_then(StateSpec::paged).copied() else { return };
        let (of, own) = (part.of(spec), self.values[param]);
        let rest = part.rest(spec).map(|_| own);
        let last = match rest {
            Some(_) => {
                self.more.push(More::Last(param));
                self.state(&format!("{}.last", f.params[param].name), self.kept.last(of))
            }
            None => own,
        };
        self.more.push(More::First(param));
        let first = self.state(&format!("{}.first", f.params[param].name), self.kept.sinks(of));
        self.caches.insert(Value(param as u32), Cache { part: part.clone(), spec, last, first, rest });
        if !self.kept.places {
            return;
        }
        let all = cache_values(f, param);
        let read = f.nodes.iter().filter(|n| matches!(n.op, Op::Attention { .. }) && all.contains(&n.args[1]));
        for table in read.flat_map(|n| tables(f, n.args[0])) {
            let Some(p) = f.params.get(table.0 as usize) else { continue };
            if !self.placed.contains_key(&table) {
                let places = self.b.param(self.name(&format!("{}.places", p.name)), p.ty.clone(), p.role);
                self.placed.insert(table, places);
                self.more.push(More::Table(table.0 as usize));
            }
        }
    }

    fn state(&mut self, name: &str, spec: KvSpec) -> Value {
        self.b.param(self.name(name), StateSpec::from(spec), Role::State)
    }

    /// A name that no parameter has.
    fn name(&self, want: &str) -> String {
        let mut name = want.to_string();
        while self.f.params.iter().any(|p| p.name == name) {
            name.push('x');
        }
        name
    }

    /// The function, and what its calls are to bind beside.
    ///
    /// # Errors
    /// The first operation that is not well typed.
    pub fn all(mut self) -> Result<(Func, Vec<More>), Mistake> {
        let f = self.f;
        for (i, node) in f.nodes.iter().enumerate() {
            let args: Vec<Value> = node.args.iter().map(|v| self.values[v.0 as usize]).collect();
            let cache = node.args.iter().find_map(|v| self.caches.get(v)).cloned();
            let new = match (&node.op, cache) {
                (Op::KvAppend, Some(cache)) => {
                    let cache = self.append(cache, &args[1..]);
                    let own = cache.rest.unwrap_or(cache.last);
                    self.caches.insert(f.node_value(i), cache);
                    own
                }
                (Op::Attention { .. }, Some(cache)) => self.attention(&node.op, node.args[0], &args, &cache),
                (op, _) => self.b.op(op.clone(), &args),
            };
            self.values.push(new);
        }
        let results: Vec<Value> = f.results.iter().map(|v| self.values[v.0 as usize]).collect();
        Ok((self.b.try_finish(&results)?, self.more))
    }

    /// Appends keys, values and positions.
    fn append(&mut self, cache: Cache, args: &[Value]) -> Cache {
        let Cache { part, spec, last, first, rest } = cache;
        let (mut of_part, mut of_rest) = (args.to_vec(), args.to_vec());
        if let Part::Heads(mask) = &part {
            for (i, dim) in [(0, spec.key_dim), (1, spec.value_dim)] {
                [of_part[i], of_rest[i]] = self.divided(args[i], mask, 1, dim);
            }
        }
        let rest = rest.map(|rest| self.b.op(Op::KvAppend, &[&[rest], &of_rest[..]].concat()));
        let last = self.b.op(Op::KvAppend, &[&[last], &of_part[..]].concat());
        let first = self.b.op(Op::KvAppend, &[&[first], &of_part[..]].concat());
        Cache { part, spec, last, first, rest }
    }

    /// Attention to the last tokens and to the first ones, and of the other heads to all.
    fn attention(&mut self, op: &Op, query: Value, args: &[Value], cache: &Cache) -> Value {
        let Op::Attention { heads, scale, softcap, causal, chunked, biased, .. } = *op else { return self.b.stop() };
        let of = |heads, sums| Op::Attention { heads, scale, softcap, causal, chunked, biased, sums };
        let far = if self.kept.places { self.place(query) } else { args[0] };
        let (Part::Heads(mask), Some(rest)) = (&cache.part, cache.rest) else {
            let near = self.b.op(of(heads, true), &[&[args[0], cache.last], &args[2..]].concat());
            let far = self.b.op(of(heads, true), &[far, cache.first, args[2]]);
            return self.joined([near, far], heads, cache.spec.value_dim);
        };
        let (group, dim) = (heads / cache.spec.kv_heads.max(1), cache.spec.key_dim);
        let [near, whole] = self.divided(args[0], mask, group, dim);
        let far = if far == args[0] { near } else { self.divided(far, mask, group, dim)[0] };
        let part = group * mask.iter().filter(|part| **part).count();
        let whole = self.b.op(of(heads - part, false), &[whole, rest, args[2]]);
        let near = self.b.op(of(part, true), &[near, cache.last, args[2]]);
        let far = self.b.op(of(part, true), &[far, cache.first, args[2]]);
        let streams = self.joined([near, far], part, cache.spec.value_dim);
        let both = self.b.op(Op::ConcatCols, &[streams, whole]);
        // Where each column of the result is in both.
        let dim = cache.spec.value_dim;
        let [of_part, of_whole] = columns(mask, group, dim);
        let mut order = vec![0.0; heads * dim];
        for (at, column) in of_part.iter().chain(&of_whole).enumerate() {
            order[*column] = at as f32;
        }
        self.pick(both, order)
    }

    /// The columns of heads that keep a part, and the columns of the others, each of `group · dim` for a KV head.
    fn divided(&mut self, x: Value, mask: &[bool], group: usize, dim: usize) -> [Value; 2] {
        columns(mask, group, dim).map(|of| self.pick(x, of.into_iter().map(|column| column as f32).collect()))
    }

    /// Columns of rows, in this order.
    fn pick(&mut self, x: Value, columns: Vec<f32>) -> Value {
        let known = self.columns.iter().find(|(of, _)| *of == columns).map(|(_, list)| *list);
        let list = known.unwrap_or_else(|| {
            let ty = TensorType::new(DType::F32, [Dim::Static(columns.len())]);
            let list = self.b.param(self.name(&format!("columns{}", self.columns.len())), ty, Role::SharedWeight);
            self.more.push(More::Columns(columns.clone()));
            self.columns.push((columns, list));
            list
        });
        self.b.op(Op::PickCols, &[x, list])
    }

    /// A value with the angles of its place in the cache.
    fn place(&mut self, v: Value) -> Value {
        if let Some(known) = self.placed.get(&v) {
            return *known;
        }
        let now = self.values[v.0 as usize];
        let Some(node) = node_of(self.f, v).filter(|n| !makes_rows(&n.op)) else { return now };
        let new = if let Op::RopeTable { .. } = node.op {
            let args: Vec<Value> = node.args.iter().map(|v| self.values[v.0 as usize]).collect();
            self.b.op(self.kept.placed(&node.op), &args)
        } else {
            let args: Vec<Value> = node.args.iter().map(|v| self.place(*v)).collect();
            let same = args.iter().zip(&node.args).all(|(new, old)| *new == self.values[old.0 as usize]);
            if same { now } else { self.b.op(node.op.clone(), &args) }
        };
        self.placed.insert(v, new);
        new
    }

    /// The result of one softmax over the scores of attention to the last tokens and to the first ones, of `heads`
    /// heads with values of `dim` elements.
    ///
    /// With `e = e^(far's largest score − near's)`, the first tokens weigh `far's sum · e` for each `near's sum`. A
    /// difference beyond [`LARGEST`] leaves nothing of the last ones in f32, so it is cut there, lest `e` be infinite.
    fn joined(&mut self, [near, far]: [Value; 2], heads: usize, dim: usize) -> Value {
        let columns = heads * dim;
        let b = &mut self.b;
        let part = |b: &mut FuncBuilder, x, start, len| b.op(Op::SliceCols { start, len }, &[x]);
        let [most_near, most_far] = [near, far].map(|x| part(b, x, columns, heads));
        let [sum_near, sum_far] = [near, far].map(|x| part(b, x, columns + heads, heads));
        let difference = b.op(Op::Binary(BinaryOp::Sub), &[most_far, most_near]);
        let largest = b.scalar(LARGEST);
        let difference = b.op(Op::Binary(BinaryOp::Min), &[difference, largest]);
        let e = b.unary(UnaryOp::Exp, difference);
        let weight = b.mul(sum_far, e);
        let all = b.add(sum_near, weight);
        let share = b.op(Op::Binary(BinaryOp::Div), &[weight, all]);
        let share = self.pick(share, (0..columns).map(|column| (column / dim) as f32).collect());
        let b = &mut self.b;
        let [near, far] = [near, far].map(|x| part(b, x, 0, columns));
        let step = b.op(Op::Binary(BinaryOp::Sub), &[far, near]);
        let step = b.mul(share, step);
        b.add(near, step)
    }
}

/// The largest difference of scores that counts: sums are of at most 2³⁰ weights, and `2³⁰·e⁻⁶⁰` is nothing beside 1.
const LARGEST: f32 = 60.0;

/// The columns of heads that keep a part, and of the others, with `group` heads of `dim` columns for each KV head.
fn columns(mask: &[bool], group: usize, dim: usize) -> [Vec<usize>; 2] {
    let each = group * dim;
    [true, false].map(|wanted| {
        let heads = mask.iter().enumerate().filter(|(_, part)| **part == wanted);
        heads.flat_map(|(head, _)| head * each..(head + 1) * each).collect()
    })
}
