//! Every rule of the table, evaluated on both sides.

use super::{Right, Rule, Sample, all, runner};
use crate::egraph::{Attr, Facts, Graph, Head, Term};
use egg::{Id, Language, Pattern, Subst, Var};
use llmcc_ir::eval::{Batch, State, Tensor, Value as EvalValue, eval_func};
use llmcc_ir::graph::{F32, Func, FuncBuilder, Input, Op, Role, Value, ValueType};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::ty::{DType, Dim, TensorType};
use std::collections::{BTreeMap, BTreeSet};

const TOKENS: usize = 5;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }
    fn unit(&mut self) -> f64 {
        self.below(1 << 20) as f64 / f64::from(1 << 19) - 1.0
    }
}

/// Draws the named sizes.
fn sizes(r: &mut Random) -> BTreeMap<&'static str, usize> {
    let mut s = BTreeMap::new();
    let w = 1 + r.below(4);
    s.insert("W", w);
    s.insert("K", w * (1 + r.below(4)));
    s.insert("N", 3 + r.below(12));
    s.insert("P", 1 + r.below(9));
    let start = r.below(s["N"] - 1);
    s.insert("S", start);
    s.insert("L", 1 + r.below(s["N"] - start));
    let start = r.below(s["L"]);
    s.insert("S2", start);
    s.insert("L2", 1 + r.below(s["L"] - start));
    s.insert("D", 4);
    s.insert("Q", 8);
    s
}

struct Instance {
    params: Vec<(ValueType, Role)>,
    inputs: Vec<Option<Input>>,
    /// Parameters that are orders of columns.
    orders: BTreeSet<usize>,
    terms: Vec<(Var, Vec<Term>)>,
}

fn kv_spec() -> KvSpec {
    KvSpec {
        dtype: KvDType::F32,
        kv_heads: 1,
        key_dim: 4,
        value_dim: 4,
        latent: false,
        window: None,
        every: 1,
        first: None,
    }
}

impl Instance {
    fn param(&mut self, ty: impl Into<ValueType>, role: Role, input: Option<Input>) -> Term {
        self.params.push((ty.into(), role));
        self.inputs.push(input);
        Term::Param(self.params.len() as u32 - 1)
    }

    fn new(rule: &Rule, r: &mut Random) -> Instance {
        let sizes = sizes(r);
        let size = |name: &str| sizes.get(name).copied().unwrap_or_else(|| name.parse().unwrap());
        let mut i = Instance { params: vec![], inputs: vec![], orders: BTreeSet::new(), terms: vec![] };
        for (name, sample) in rule.sample {
            let terms = match *sample {
                Sample::Rows(n) => vec![i.param(TensorType::rows(Dim::Tokens, size(n)), Role::Data, None)],
                Sample::Matrix(n, k) => vec![i.param(TensorType::rows(size(n).into(), size(k)), Role::Weight, None)],
                Sample::Vector(n) => vec![i.param(TensorType::vector(size(n)), Role::Weight, None)],
                Sample::Order(n) => {
                    i.orders.insert(i.params.len());
                    vec![i.param(TensorType::vector(size(n)), Role::Weight, None)]
                }
                Sample::Const => vec![Term::Float(F32::new((1.0 + r.below(64) as f32) / 16.0))],
                Sample::PowerOfTwo => vec![Term::Float(F32::new((1 << r.below(8)) as f32 / 16.0))],
                Sample::Eps => vec![Term::Float(F32::new(1.0 / 1024.0))],
                Sample::Flag(yes) => vec![Term::Attr(Attr::Flag(yes))],
                Sample::Int(n) => vec![Term::Int(size(n))],
                Sample::Index(input) => {
                    let rows = if input == Input::OutRows { Dim::Rows } else { Dim::Tokens };
                    vec![i.param(TensorType::new(DType::I32, [rows]), Role::Data, Some(input))]
                }
                Sample::Appended => {
                    let kv = i.param(ValueType::State(kv_spec().into()), Role::State, None);
                    let k = i.param(TensorType::rows(Dim::Tokens, 4), Role::Data, None);
                    let v = i.param(TensorType::rows(Dim::Tokens, 4), Role::Data, None);
                    let p = i.param(TensorType::new(DType::I32, [Dim::Tokens]), Role::Data, Some(Input::Positions));
                    vec![kv, k, v, p]
                }
            };
            i.terms.push((name.parse().unwrap(), terms));
        }
        i
    }

    /// The left side in a new e-graph.
    fn graph(&self, left: &Pattern<Term>) -> (Graph, Id) {
        let mut g = Graph::new(Facts::of_params(self.params.clone()));
        let mut subst = Subst::with_capacity(8);
        for (var, terms) in &self.terms {
            let ids: Vec<Id> = terms.iter().map(|t| g.add(t.clone())).collect();
            let id = if ids.len() == 1 { ids[0] } else { g.add(Term::Op(Head::KvAppend, ids.into())) };
            subst.insert(*var, id);
        }
        let root = g.add_instantiation(&left.ast, &subst);
        g.rebuild();
        (g, root)
    }

    /// Evaluates a function of this instance's parameters.
    fn eval(&self, f: &Func, r: &mut Random) -> Vec<f64> {
        let batch = Batch { out_rows: vec![0, 2, 4], ..Batch::single(&[0; TOKENS], 0) };
        let mut states = vec![];
        let mut args = vec![];
        for (n, ((ty, _), input)) in self.params.iter().zip(&self.inputs).enumerate() {
            args.push(match (ty, input) {
                (ValueType::Tensor(t), None) if self.orders.contains(&n) => {
                    // Any first column, then the others around.
                    let cols = t.shape[0].known().unwrap();
                    let first = r.below(cols);
                    let data: Vec<f64> = (0..cols).map(|i| ((first + i) % cols) as f64).rev().collect();
                    EvalValue::tensor(Tensor::new([cols], data).unwrap())
                }
                (_, Some(input)) => batch.input(*input),
                (ValueType::State(_), None) => {
                    states.push(State::new(*ty.state().unwrap()));
                    EvalValue::State(states.len() - 1)
                }
                (ValueType::Tensor(t), None) => {
                    let shape: Vec<usize> = t.shape.iter().map(|d| d.eval(batch.env())).collect();
                    let data = (0..shape.iter().product()).map(|_| f64::from(r.unit() as f32)).collect();
                    EvalValue::tensor(Tensor::new(shape, data).unwrap())
                }
            });
        }
        let out = eval_func(f, &args, &mut states, &batch).unwrap();
        out[0].data.clone()
    }
}

/// Builds functions from e-nodes: each class by its smallest node that does not lead back to it.
struct Lowering<'a> {
    g: &'a Graph,
    f: FuncBuilder,
    params: Vec<Value>,
}

impl Lowering<'_> {
    fn class(&mut self, id: Id, above: &mut BTreeSet<Id>) -> Option<Value> {
        let id = self.g.find(id);
        if !above.insert(id) {
            return None;
        }
        let mut nodes: Vec<&Term> = self.g[id].nodes.iter().collect();
        nodes.sort_by_key(|t| (t.children().len(), (*t).clone()));
        let value = nodes.into_iter().find_map(|t| self.term(t, above));
        above.remove(&id);
        value
    }

    fn term(&mut self, t: &Term, above: &mut BTreeSet<Id>) -> Option<Value> {
        match t {
            Term::Param(i) => Some(self.params[*i as usize]),
            Term::Float(x) => Some(self.f.op(Op::Const { value: *x }, &[])),
            Term::Op(..) => {
                let (op, args) = crate::egraph::operation(self.g, t)?;
                let args: Option<Vec<Value>> = args.iter().map(|a| self.class(*a, above)).collect();
                self.f.try_op(op, &args?).ok()
            }
            Term::Int(_) | Term::Attr(_) | Term::Quant(_) | Term::Kernel(..) | Term::Proj(..) | Term::Store(..) => None,
        }
    }
}

fn lower(i: &Instance, g: &Graph, root: Id, t: &Term) -> Option<Func> {
    let mut f = FuncBuilder::new("side");
    let params =
        i.params.iter().enumerate().map(|(n, (ty, role))| f.param(format!("p{n}"), ty.clone(), *role)).collect();
    let mut l = Lowering { g, f, params };
    let value = l.term(t, &mut BTreeSet::from([g.find(root)]))?;
    Some(l.f.finish(&[value]))
}

/// Applies the rule to random instances and evaluates every member of the root's class; returns how
/// often the rule fired.
fn check(rule: &'static Rule) -> usize {
    let left: Pattern<Term> = rule.left.parse().unwrap();
    let mut fired = 0;
    for seed in 1..24u64 {
        let mut r = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let instance = Instance::new(rule, &mut r);
        let (g, root) = instance.graph(&left);
        let before = g[root].nodes.clone();
        let g = runner(g, std::iter::once(rule), 1).egraph;
        let values: Vec<Vec<f64>> = g[g.find(root)]
            .nodes
            .iter()
            .filter_map(|t| lower(&instance, &g, root, t))
            .map(|f| instance.eval(&f, &mut Random(seed)))
            .collect();
        fired += usize::from(g[g.find(root)].nodes.len() > before.len());
        for other in &values[1..] {
            assert_eq!(other.len(), values[0].len(), "{}", rule.name);
            for (a, b) in values[0].iter().zip(other) {
                assert!((a - b).abs() <= 1e-9 * (1.0 + a.abs()), "{} (seed {seed}): {a} and {b}", rule.name);
            }
        }
    }
    fired
}

#[test]
fn both_sides_of_every_rule_are_equal() {
    for rule in all() {
        assert!(check(rule) > 0, "`{}` never fired", rule.name);
    }
}

#[test]
fn rules_parse_and_their_variables_have_samples() {
    let mut names = BTreeSet::new();
    for rule in all() {
        assert!(names.insert(rule.name), "two rules are named `{}`", rule.name);
        assert!(rule.rewrite().is_some(), "`{}` does not parse", rule.name);
        let left: Pattern<Term> = rule.left.parse().unwrap();
        for var in left.vars() {
            let sampled = rule.sample.iter().any(|(n, _)| n.parse::<Var>().unwrap() == var);
            assert!(sampled, "`{}`: {var} has no sample", rule.name);
        }
        if let Right::Text(text) = rule.right {
            let right: Pattern<Term> = text.parse().unwrap();
            assert!(right.vars().iter().all(|v| left.vars().contains(v)), "`{}`: unbound variable", rule.name);
        }
    }
}

#[test]
fn a_wrong_rule_is_caught() {
    static WRONG: Rule = Rule {
        name: "wrong",
        left: "(mul (matmul ?x ?w) ?c)",
        right: Right::Text("(matmul ?x (add ?w ?c))"),
        guard: super::always,
        sample: &[("?x", Sample::Rows("K")), ("?w", Sample::Matrix("N", "K")), ("?c", Sample::Const)],
    };
    assert!(std::panic::catch_unwind(|| check(&WRONG)).is_err());
}
