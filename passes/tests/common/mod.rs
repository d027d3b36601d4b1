//! A small Llama-like model as a module, its weights, and evaluation of plans against the graph
//! level.

#![allow(missing_docs, reason = "tests")]

use llmcc_ir::eval::{Batch, State, eval_module, eval_plan};
use llmcc_ir::graph::{
    Arg, BinaryOp, Call, Entry, F32, Func, FuncBuilder, Input, ModelInfo, Module, Op, Role, Router, STEP, UnaryOp,
    Value, ValueType, Weight,
};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::output::{EntryOutput, Output};
use llmcc_ir::plan::{Plan, Storage, WeightExpr};
use llmcc_ir::quant::unpack_row;
use llmcc_ir::ty::{DType, Dim, TensorType};
use llmcc_passes::pack::{TensorBytes, WeightSource, pack, weight_offsets};
use std::borrow::Cow;

/// Sizes and variants.
#[derive(Clone, Copy, Debug)]
pub struct Toy {
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub ffn: usize,
    pub vocab: usize,
    pub layers: usize,
    pub bias: bool,
    pub qk_norm: bool,
    pub tied: bool,
    pub window: Option<usize>,
    /// Scores with a softcap, sinks and biases, tokens that look both ways, two sets of rotary frequencies.
    pub other: bool,
    /// Experts, two per token, in place of the MLP; 0: none.
    pub experts: usize,
    /// Inputs of the products of layers are rounded to integers of 8 bits, by a scale of their own.
    pub rounds: bool,
    /// An activation of several operations, in place of the gated one: all read one product.
    pub parts: bool,
}

impl Toy {
    pub fn llama() -> Toy {
        Toy {
            hidden: 64,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            ffn: 96,
            vocab: 80,
            layers: 2,
            bias: false,
            qk_norm: false,
            tied: false,
            window: None,
            other: false,
            experts: 0,
            rounds: false,
            parts: false,
        }
    }

    /// Sizes that fit nothing evenly, with everything that a layer may have.
    pub fn uneven() -> Toy {
        Toy {
            hidden: 172,
            heads: 3,
            kv_heads: 1,
            head_dim: 24,
            ffn: 100,
            vocab: 77,
            bias: true,
            qk_norm: true,
            tied: true,
            ..Toy::llama()
        }
    }

    pub fn spec(&self) -> KvSpec {
        KvSpec {
            dtype: KvDType::F32,
            kv_heads: self.kv_heads,
            key_dim: self.head_dim,
            value_dim: self.head_dim,
            latent: false,
            window: self.window,
            every: 1,
            first: None,
        }
    }

    /// Names and shapes of a layer's weights; 0 columns = vector.
    fn layer_weights(&self) -> Vec<(&'static str, usize, usize)> {
        let (h, q, kv) = (self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut w = vec![
            ("g1", h, 0),
            ("wq", q, h),
            ("wk", kv, h),
            ("wv", kv, h),
            ("wo", h, q),
            ("g2", h, 0),
            ("wg", self.ffn * self.experts.max(1), h),
            ("wu", self.ffn * self.experts.max(1), h),
            ("wd", h * self.experts.max(1), self.ffn),
        ];
        if self.experts > 0 {
            w.extend([("router", self.experts, h), ("bias", self.experts, 0)]);
        }
        if self.rounds {
            w.push(("scale", 1, 0));
        }
        if self.bias {
            w.extend([("bq", q, 0), ("bk", kv, 0), ("bv", kv, 0)]);
        }
        if self.other {
            w.extend([("sinks", self.heads, 0), ("distances", 9 * self.heads, 0)]);
        }
        if self.qk_norm {
            w.extend([("nq", self.head_dim, 0), ("nk", self.head_dim, 0)]);
        }
        w
    }

    /// Number of rotary frequencies.
    fn frequencies(&self) -> usize {
        if self.other { self.head_dim } else { self.head_dim / 2 }
    }

    fn embed_func(&self) -> Func {
        let mut f = FuncBuilder::new("embed");
        let tokens = f.param("tokens", ints(Dim::Tokens), Role::Data);
        let positions = f.param("positions", ints(Dim::Tokens), Role::Data);
        let role = if self.tied { Role::SharedWeight } else { Role::Weight };
        let table = f.param("table", matrix(self.vocab, self.hidden), role);
        let freq = f.param("inv_freq", vector(self.frequencies()), Role::Weight);
        let x = f.op(Op::Embed, &[table, tokens]);
        let rope = f.op(
            Op::RopeTable { scale: F32::new(1.0), border: if self.other { 3 } else { 0 }, most: 0 },
            &[positions, freq],
        );
        f.finish(&[x, rope])
    }

    fn layer_func(&self) -> Func {
        let mut f = FuncBuilder::new("layer");
        let x = f.param("x", rows(self.hidden), Role::Data);
        let table = f.param("rope", rows(self.head_dim), Role::Data);
        let positions = f.param("positions", ints(Dim::Tokens), Role::Data);
        let kv = f.param("kv", ValueType::State(self.spec().into()), Role::State);
        let names = self.layer_weights();
        let w: Vec<Value> = names
            .iter()
            .map(|(name, n, k)| f.param(*name, if *k == 0 { vector(*n) } else { matrix(*n, *k) }, Role::Weight))
            .collect();
        let get = |name: &str| names.iter().position(|n| n.0 == name).map(|i| w[i]);
        let of_inputs = get("scale");
        let h = f.rms_norm(x, w[0], 1e-5, self.hidden);
        let mut qkv = vec![];
        for (i, (bias, gain)) in [("bq", Some("nq")), ("bk", Some("nk")), ("bv", None)].into_iter().enumerate() {
            let mut y = Toy::product(&mut f, h, w[1 + i], of_inputs);
            if let Some(b) = get(bias) {
                y = f.add(y, b);
            }
            if let Some(g) = gain.and_then(get) {
                y = f.rms_norm(y, g, 1e-6, self.head_dim);
            }
            qkv.push(y);
        }
        let q = f.op(Op::Rope { head_dim: self.head_dim }, &[qkv[0], table]);
        let k = f.op(Op::Rope { head_dim: self.head_dim }, &[qkv[1], table]);
        let kv = f.op(Op::KvAppend, &[kv, k, qkv[2], positions]);
        let scale = F32::new(1.0 / (self.head_dim as f32).sqrt());
        let softcap = F32::new(if self.other { 2.0 } else { 0.0 });
        let (causal, biased) = (!self.other, self.other);
        let (chunked, sums) = (false, false);
        let op = Op::Attention { heads: self.heads, scale, softcap, causal, chunked, biased, sums };
        let a = match get("sinks").zip(get("distances")) {
            Some((sinks, distances)) => f.op(op, &[q, kv, positions, sinks, distances]),
            None => f.op(op, &[q, kv, positions]),
        };
        let o = Toy::product(&mut f, a, w[4], of_inputs);
        let x = f.add(x, o);
        let h = f.rms_norm(x, w[5], 1e-5, self.hidden);
        let d = match get("router").zip(get("bias")) {
            None if self.parts => {
                let y = f.matmul(h, w[6]);
                let y = parts(&mut f, y);
                f.matmul(y, w[8])
            }
            None => {
                let (g, u) = (Toy::product(&mut f, h, w[6], of_inputs), Toy::product(&mut f, h, w[7], of_inputs));
                let g = f.unary(UnaryOp::Silu, g);
                let h = f.mul(g, u);
                Toy::product(&mut f, h, w[8], of_inputs)
            }
            Some(router) => self.mixture(&mut f, h, &w[6..9], router, of_inputs),
        };
        let x = f.add(x, d);
        f.finish(&[x])
    }

    fn product(f: &mut FuncBuilder, x: Value, w: Value, scale: Option<Value>) -> Value {
        Toy::rounded(f, x, scale, |f, x| f.matmul(x, w))
    }

    /// A product with `x`, or with the integers next to multiples of it.
    fn rounded(
        f: &mut FuncBuilder,
        x: Value,
        scale: Option<Value>,
        product: impl Fn(&mut FuncBuilder, Value) -> Value,
    ) -> Value {
        let Some(scale) = scale else { return product(f, x) };
        let x = f.op(Op::Binary(BinaryOp::Div), &[x, scale]);
        let x = f.unary(UnaryOp::RoundI8, x);
        let y = product(f, x);
        f.mul(y, scale)
    }

    /// Two experts of each token.
    fn mixture(
        &self,
        f: &mut FuncBuilder,
        h: Value,
        w: &[Value],
        (router, bias): (Value, Value),
        of_inputs: Option<Value>,
    ) -> Value {
        let (experts, top) = (self.experts, 2);
        let logits = f.matmul(h, router);
        let Router { score, normalize, eps, scale, groups, kept, pairs, .. } = Router::softmax(top, true);
        let op = Op::Route { score, top, normalize, eps, scale, groups, kept, pairs };
        let routes = f.op(op, &[logits, bias]);
        let product = |f: &mut FuncBuilder, x, w| {
            Toy::rounded(f, x, of_inputs, |f, x| f.op(Op::ExpertMatMul { experts, top, cols: 0 }, &[x, w, routes]))
        };
        let (g, u) = (product(f, h, w[0]), product(f, h, w[1]));
        let g = f.unary(UnaryOp::Silu, g);
        let inner = f.mul(g, u);
        let y = product(f, inner, w[2]);
        let weights = f.op(Op::SliceCols { start: top, len: top }, &[routes]);
        f.op(Op::Combine, &[weights, y])
    }

    fn head_func(&self) -> Func {
        let mut f = FuncBuilder::new("head");
        let x = f.param("x", rows(self.hidden), Role::Data);
        let out_rows = f.param("out_rows", ints(Dim::Rows), Role::Data);
        let gain = f.param("g", vector(self.hidden), Role::Weight);
        let role = if self.tied { Role::SharedWeight } else { Role::Weight };
        let table = f.param("table", matrix(self.vocab, self.hidden), role);
        let x = f.op(Op::GatherRows, &[x, out_rows]);
        let x = f.rms_norm(x, gain, 1e-5, self.hidden);
        let y = f.matmul(x, table);
        f.finish(&[y])
    }

    pub fn module(&self) -> Module {
        let weight = |name: String, n: usize, k: usize| {
            let ty = if k == 0 { TensorType::vector(n) } else { TensorType::rows(Dim::Static(n), k) };
            Weight { name, ty, data: None }
        };
        let mut weights =
            vec![weight("embed".into(), self.vocab, self.hidden), weight("$inv_freq".into(), self.frequencies(), 0)];
        let d = self.head_dim;
        weights[1].data = Some((0..self.frequencies()).map(|j| 10000f32.powf(-2.0 * j as f32 / d as f32)).collect());
        let args = vec![Arg::Input(Input::Tokens), Arg::Input(Input::Positions), Arg::Weight(0), Arg::Weight(1)];
        let mut step = vec![Call { func: 0, args }];
        for layer in 0..self.layers {
            let x = if layer == 0 { 0 } else { layer + 1 };
            let mut args = vec![Arg::Value(x), Arg::Value(1), Arg::Input(Input::Positions), Arg::State(layer)];
            for (name, n, k) in self.layer_weights() {
                args.push(Arg::Weight(weights.len()));
                let data = (name == "scale").then(|| vec![0.0625]);
                weights.push(Weight { data, ..weight(format!("layers.{layer}.{name}"), n, k) });
            }
            step.push(Call { func: 1, args });
        }
        let gain = Arg::Weight(weights.len());
        weights.push(weight("norm".into(), self.hidden, 0));
        let head = if self.tied {
            Arg::Weight(0)
        } else {
            weights.push(weight("head".into(), self.vocab, self.hidden));
            Arg::Weight(weights.len() - 1)
        };
        step.push(Call { func: 2, args: vec![Arg::Value(self.layers + 1), Arg::Input(Input::OutRows), gain, head] });
        Module {
            name: "toy".into(),
            info: ModelInfo { vocab: self.vocab, hidden: self.hidden, max_context: 64 },
            weights,
            states: vec![self.spec().into(); self.layers],
            funcs: vec![self.embed_func(), self.layer_func(), self.head_func()],
            entries: vec![Entry {
                name: STEP.into(),
                calls: step,
                outputs: vec![EntryOutput { output: Output::Logits, at: self.layers + 2 }],
                taps: vec![],
                context: None,
            }],
        }
    }
}

/// `y·sigmoid(y) + (eᵐ − m)`, where m is the lesser of y and 0.
fn parts(f: &mut FuncBuilder, y: Value) -> Value {
    let zero = f.scalar(0.0);
    let lesser = f.op(Op::Binary(BinaryOp::Min), &[y, zero]);
    let (e, s) = (f.unary(UnaryOp::Exp, lesser), f.unary(UnaryOp::Sigmoid, y));
    let left = f.mul(y, s);
    let right = f.op(Op::Binary(BinaryOp::Sub), &[e, lesser]);
    f.add(left, right)
}

fn matrix(n: usize, k: usize) -> ValueType {
    TensorType::rows(Dim::Static(n), k).into()
}

fn vector(n: usize) -> ValueType {
    TensorType::vector(n).into()
}

fn ints(dim: Dim) -> ValueType {
    TensorType::new(DType::I32, [dim]).into()
}

fn rows(cols: usize) -> ValueType {
    TensorType::rows(Dim::Tokens, cols).into()
}

/// Pseudo-random numbers in −1…1.
pub fn random(seed: u64, n: usize) -> Vec<f32> {
    let mut s = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        (s >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..20).for_each(|_| {
        next();
    });
    (0..n).map(|_| next()).collect()
}

/// Random weights of a module, as a checkpoint of f32 tensors.
pub struct Weights {
    names: Vec<String>,
    shapes: Vec<Vec<usize>>,
    pub values: Vec<Vec<f32>>,
    bytes: Vec<Vec<u8>>,
}

impl Weights {
    pub fn random(module: &Module) -> Weights {
        let mut w = Weights { names: vec![], shapes: vec![], values: vec![], bytes: vec![] };
        for (i, weight) in module.weights.iter().enumerate() {
            let shape: Vec<usize> = weight.ty.shape.iter().filter_map(|d| d.known()).collect();
            let count: usize = shape.iter().product();
            let gain = shape.len() == 1;
            let scale = if gain { 0.3 } else { 1.5 / (shape[1] as f32).sqrt() };
            let base = if gain && !weight.name.contains(".b") { 1.0 } else { 0.0 };
            let values = weight
                .data
                .clone()
                .unwrap_or_else(|| random(i as u64 + 1, count).iter().map(|v| base + scale * v).collect());
            w.bytes.push(values.iter().flat_map(|v| v.to_le_bytes()).collect());
            w.values.push(values);
            w.names.push(weight.name.clone());
            w.shapes.push(shape);
        }
        w
    }
}

impl Weights {
    /// Changes the elements of weight `i`, given their numbers.
    pub fn change(&mut self, i: usize, change: impl Fn(usize, &mut f32)) {
        self.values[i].iter_mut().enumerate().for_each(|(at, v)| change(at, v));
        self.bytes[i] = self.values[i].iter().flat_map(|v| v.to_le_bytes()).collect();
    }
}

impl WeightSource for Weights {
    fn tensor(&self, name: &str) -> Option<TensorBytes<'_>> {
        let i = self.names.iter().position(|n| n == name)?;
        Some(TensorBytes { dtype: DType::F32, shape: self.shapes[i].clone(), data: &self.bytes[i] })
    }
    fn release(&self, _: &str) {}
}

/// Packed bytes of every weight of a plan.
pub fn packed(plan: &Plan, module: &Module, weights: &Weights) -> Vec<Vec<u8>> {
    let mut out = vec![];
    pack(plan, module, weights, &mut out, &mut |_| ()).unwrap();
    let offsets = weight_offsets(plan);
    plan.weights.iter().zip(offsets).map(|(w, at)| out[at as usize..][..w.storage.bytes()].to_vec()).collect()
}

/// The model's weights as the plan stores them: decoded, and gains that were folded into a matrix
/// taken out of it again.
pub fn effective(plan: &Plan, weights: &Weights, packed: &[Vec<u8>]) -> Vec<Vec<f32>> {
    let mut values = weights.values.clone();
    for (w, bytes) in plan.weights.iter().zip(packed) {
        let Storage::Matrix { n, k, format } = w.storage else { continue };
        let mut decoded = vec![0f32; n * k];
        decoded.chunks_exact_mut(k).enumerate().for_each(|(r, row)| unpack_row(format, bytes, k, r, row));
        match &w.expr {
            WeightExpr::Weight(i) => values[*i] = decoded,
            WeightExpr::Op(Op::ScaleCols, args) => match args[..] {
                [WeightExpr::Weight(i), WeightExpr::Weight(g)] => {
                    let g = &weights.values[g];
                    decoded.chunks_exact_mut(k).for_each(|row| row.iter_mut().zip(g).for_each(|(v, g)| *v /= g));
                    values[i] = decoded;
                }
                _ => panic!("unexpected weight {:?}", w.expr),
            },
            other => panic!("unexpected weight {other:?}"),
        }
    }
    values
}

/// Steps of mixed sizes over two sequences: prefill of 5, one decode step, a ragged batch, and a
/// long prefill.
pub fn batches(vocab: usize) -> Vec<Batch> {
    let ids = |seed: u64, n: usize| -> Vec<i32> {
        random(seed, n).iter().map(|v| ((v + 1.0) * 0.4999 * vocab as f32) as i32).collect()
    };
    let mut out = vec![Batch::single(&ids(1, 5), 0), Batch::single(&ids(2, 1), 5)];
    let mut mixed = Batch::default();
    mixed.push(0, &ids(3, 1), 6);
    mixed.push(1, &ids(4, 2), 0);
    out.push(mixed);
    let mut long = Batch::default();
    long.push(1, &ids(5, 36), 2);
    long.push(0, &ids(6, 1), 7);
    out.push(long);
    out
}

/// Largest difference between plan and graph over all steps, relative to the largest logit.
pub fn difference(module: &Module, plan: &Plan, weights: &Weights) -> f64 {
    let bytes = packed(plan, module, weights);
    let values = effective(plan, weights, &bytes);
    let bytes: Vec<Cow<'_, [u8]>> = bytes.iter().map(|b| b.as_slice().into()).collect();
    let states = || module.states.iter().map(|s| State::new(*s)).collect::<Vec<_>>();
    let (mut kv_plan, mut kv_graph) = (states(), states());
    let (mut worst, mut largest) = (0f64, 0f64);
    for batch in batches(module.info.vocab) {
        let got = eval_plan(plan, &bytes, &mut kv_plan, &batch).unwrap();
        let want = eval_module(module, &|i| values[i].clone(), &mut kv_graph, &batch).unwrap();
        assert_eq!(got.len(), want.len());
        for (g, w) in got.iter().zip(&want) {
            assert!(g.is_finite());
            worst = worst.max((f64::from(*g) - w).abs());
            largest = largest.max(w.abs());
        }
    }
    worst / largest
}
