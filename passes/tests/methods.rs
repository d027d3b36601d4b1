//! Errors of a layer by each method, beside the ones that NumPy finds by the papers and the authors' code
//! (`tests/goldens/methods.py`).

use llmcc_ir::eval::{Q8Rows, Rows};
use llmcc_ir::graph::{Arg, Call, Entry, F32, FuncBuilder, ModelInfo, Module, Op, Role, STEP, Value, Weight};
use llmcc_ir::plan::WeightExpr;
use llmcc_ir::quant::{BLOCK, Format, unpack_row};
use llmcc_ir::ty::{DType, Dim, TensorType};
use llmcc_passes::method::{
    self, Coder, METHODS, Method, Moments, Moved, PRUNERS, Pruning, Sparsity, move_scales, runs,
};
use llmcc_passes::module::scales::bound;
use llmcc_passes::pack::{TensorBytes, WeightSource};
use llmcc_test_support::numbers;

/// No two exponents of AWQ are nearly equally good.
const SEED: u64 = 56;
const COLUMNS: usize = 256;
const SAMPLES: usize = 512;
const COMMON: usize = 16;
const ROWS: usize = 192;

/// Format, method, relative squared error of the products, and the same where inputs are rounded to int8, too.
const NUMPY: &[(&str, &str, f64, f64)] = &[
    ("w4g128", "nearest", 8.9899e-03, 9.1814e-03),
    ("w4g128", "least-squares", 5.2494e-03, 5.4424e-03),
    ("w4g128", "clip", 3.6859e-03, 3.8711e-03),
    ("w4g128", "gptq", 9.8399e-04, 1.1734e-03),
    ("w4g128", "awq", 4.7963e-03, 4.9055e-03),
    ("w4g128", "awq+clip", 3.4742e-03, 3.5849e-03),
    ("w4g128", "awq+gptq", 8.5219e-04, 9.6318e-04),
    ("w4g128", "smoothquant", 6.8570e-03, 6.8898e-03),
    ("w4g32", "nearest", 6.5376e-03, 6.6284e-03),
    ("w4g32", "least-squares", 2.9425e-03, 3.0281e-03),
    ("w4g32", "clip", 1.3925e-03, 1.4739e-03),
    ("w4g32", "gptq", 5.7089e-04, 6.5286e-04),
    ("w4g32", "awq", 2.4689e-03, 2.4965e-03),
    ("w4g32", "awq+clip", 1.2222e-03, 1.2498e-03),
    ("w4g32", "awq+gptq", 4.0102e-04, 4.2953e-04),
    ("w4g32", "smoothquant", 3.3695e-03, 3.3869e-03),
    ("w8g128", "nearest", 3.3831e-05, 2.2569e-04),
    ("w8g128", "least-squares", 2.4136e-05, 2.1661e-04),
    ("w8g128", "clip", 1.6736e-05, 2.0836e-04),
    ("w8g128", "gptq", 4.4530e-06, 1.9668e-04),
    ("w8g128", "awq", 1.9130e-05, 1.0742e-04),
    ("w8g128", "awq+clip", 1.3454e-05, 1.0192e-04),
    ("w8g128", "awq+gptq", 3.1596e-06, 9.1420e-05),
    ("w8g128", "smoothquant", 2.6950e-05, 5.7990e-05),
];

/// Format, sparsity, pruner, and the relative squared error of the products by least squares and by GPTQ afterwards.
const PRUNED: &[(&str, &str, &str, f64, f64)] = &[
    ("w4g128", "50%", "magnitude", 7.9317e-02, 7.7794e-02),
    ("w4g128", "50%", "wanda", 6.4609e-03, 2.7461e-03),
    ("w4g128", "50%", "sparsegpt", 5.6194e-03, 2.0601e-03),
    ("w4g128", "50%", "rose", 5.6194e-03, 2.0601e-03),
    ("w4g128", "2:4", "magnitude", 1.3974e-01, 1.3814e-01),
    ("w4g128", "2:4", "wanda", 1.0314e-02, 6.8525e-03),
    ("w4g128", "2:4", "sparsegpt", 6.6918e-03, 3.1673e-03),
    ("w4g128", "2:4", "rose", 6.2261e-03, 2.7412e-03),
    ("w4g128", "4:8", "magnitude", 1.0535e-01, 1.0365e-01),
    ("w4g128", "4:8", "wanda", 7.7253e-03, 4.1411e-03),
    ("w4g128", "4:8", "sparsegpt", 6.0984e-03, 2.4931e-03),
    ("w4g128", "4:8", "rose", 5.7717e-03, 2.2801e-03),
    ("w8g128", "50%", "magnitude", 7.7211e-02, 7.7219e-02),
    ("w8g128", "50%", "wanda", 1.3700e-03, 1.3486e-03),
    ("w8g128", "50%", "sparsegpt", 6.4899e-04, 6.3262e-04),
    ("w8g128", "50%", "rose", 6.4899e-04, 6.3262e-04),
    ("w8g128", "2:4", "magnitude", 1.3758e-01, 1.3757e-01),
    ("w8g128", "2:4", "wanda", 5.5016e-03, 5.4859e-03),
    ("w8g128", "2:4", "sparsegpt", 1.7898e-03, 1.7736e-03),
    ("w8g128", "2:4", "rose", 1.3517e-03, 1.3346e-03),
    ("w8g128", "4:8", "magnitude", 1.0310e-01, 1.0310e-01),
    ("w8g128", "4:8", "wanda", 2.8057e-03, 2.7820e-03),
    ("w8g128", "4:8", "sparsegpt", 1.1018e-03, 1.0864e-03),
    ("w8g128", "4:8", "rose", 8.9086e-04, 8.7591e-04),
];

/// The layer of `methods.py`: two matrices and their inputs.
struct Layer {
    w: [Vec<f32>; 2],
    bytes: [Vec<u8>; 3],
    x: Vec<f32>,
    count: [u64; 1],
    squares: Vec<f64>,
    min: Vec<f32>,
    max: Vec<f32>,
    products: Vec<f64>,
    method: &'static Method,
    pruning: Option<Pruning>,
}

impl Layer {
    fn new() -> Layer {
        let of = |line: &str| numbers(SEED, line).unwrap();
        let w = [0, 1].map(|i| of(&format!("f32 w{i} {ROWS}x{COLUMNS} normal 0 0.05")));
        let own = of(&format!("f32 own {SAMPLES}x{COLUMNS} normal 0 0.5"));
        let common = of(&format!("f32 common {SAMPLES}x{COMMON} normal 0 1"));
        let mix = of(&format!("f32 mix {COMMON}x{COLUMNS} normal 0 0.25"));
        let size = of(&format!("f32 size {COLUMNS} uniform 0 1"));
        let mut x = vec![0f32; SAMPLES * COLUMNS];
        for (at, v) in x.iter_mut().enumerate() {
            let (i, j) = (at / COLUMNS, at % COLUMNS);
            let product = |c: usize| f64::from(common[i * COMMON + c]) * f64::from(mix[c * COLUMNS + j]);
            let sum: f64 = (0..COMMON).map(product).sum();
            *v = ((f64::from(own[at]) + sum) * (f64::from(size[j]).powi(6) * 12.0 + 0.2)) as f32;
        }
        let bytes = |x: &[f32]| x.iter().flat_map(|v| v.to_le_bytes()).collect();
        let bytes = [bytes(&w[0]), bytes(&w[1]), bytes(&[1.0; COLUMNS])];
        let mut layer = Layer {
            w,
            bytes,
            x,
            count: [SAMPLES as u64],
            squares: vec![0.0; COLUMNS],
            min: vec![f32::INFINITY; COLUMNS],
            max: vec![f32::NEG_INFINITY; COLUMNS],
            products: vec![0.0; COLUMNS * COLUMNS],
            method: &method::NEAREST,
            pruning: None,
        };
        for row in layer.x.chunks_exact(COLUMNS) {
            for (i, a) in row.iter().enumerate() {
                layer.squares[i] += f64::from(*a) * f64::from(*a);
                (layer.min[i], layer.max[i]) = (layer.min[i].min(*a), layer.max[i].max(*a));
                let products = &mut layer.products[i * COLUMNS..(i + 1) * COLUMNS];
                products.iter_mut().zip(row).for_each(|(sum, b)| *sum += f64::from(*a) * f64::from(*b));
            }
        }
        layer
    }

    /// `Σ e·M·eᵀ` over rows, `M` being the means of products.
    fn squared(&self, e: &[f64]) -> f64 {
        let of_row = |row: &[f64]| {
            let of_column = |(i, e): (usize, &f64)| {
                let products = &self.products[i * COLUMNS..(i + 1) * COLUMNS];
                e * products.iter().zip(row).map(|(m, e)| m * e).sum::<f64>()
            };
            row.iter().enumerate().map(of_column).sum::<f64>()
        };
        e.chunks_exact(COLUMNS).map(of_row).sum::<f64>() / SAMPLES as f64
    }
}

impl WeightSource for Layer {
    fn tensor(&self, name: &str) -> Option<TensorBytes<'_>> {
        let at = ["w0", "w1", "gain"].iter().position(|n| *n == name)?;
        let shape = if at == 2 { vec![COLUMNS] } else { vec![ROWS, COLUMNS] };
        Some(TensorBytes { dtype: DType::F32, shape, data: &self.bytes[at] })
    }
    fn moments(&self, _: &str) -> Option<Moments<'_>> {
        let Layer { count, squares, min, max, products, .. } = self;
        Some(Moments { count, squares, min, max, products })
    }
    fn method(&self) -> &'static Method {
        self.method
    }
    fn release(&self, _: &str) {}
}

/// A norm, and two products of its result.
fn module() -> Module {
    let mut f = FuncBuilder::new("layer");
    let x = f.param("x", TensorType::rows(Dim::Tokens, COLUMNS), Role::Data);
    let gain = f.param("gain", TensorType::vector(COLUMNS), Role::Weight);
    let w: Vec<Value> =
        (0..2).map(|i| f.param(format!("w{i}"), TensorType::rows(ROWS.into(), COLUMNS), Role::Weight)).collect();
    let h = f.op(Op::Normalize { eps: F32::new(1e-5), width: COLUMNS }, &[x]);
    let h = f.mul(h, gain);
    let y: Vec<Value> = w.iter().map(|w| f.matmul(h, *w)).collect();
    let weight = |name: &str, ty: TensorType| Weight { name: name.into(), ty, data: None };
    let matrix = TensorType::rows(ROWS.into(), COLUMNS);
    let args = vec![Arg::Input(llmcc_ir::graph::Input::Given), Arg::Weight(0), Arg::Weight(1), Arg::Weight(2)];
    Module {
        name: "layer".into(),
        info: ModelInfo { vocab: 1, hidden: COLUMNS, max_context: 1 },
        weights: vec![weight("gain", TensorType::vector(COLUMNS)), weight("w0", matrix.clone()), weight("w1", matrix)],
        states: vec![],
        funcs: vec![f.finish(&y)],
        entries: vec![Entry { calls: vec![Call { func: 0, args }], ..Entry::new(STEP) }],
    }
}

/// The rows of a weight as a method stores them.
fn coded(layer: &Layer, module: &Module, e: &WeightExpr, w: &[f32], format: Format) -> Vec<f32> {
    let runs = runs(e, module, layer).unwrap();
    let mut coder = Coder::new(format, layer.method, COLUMNS, &runs).pruned(layer.pruning);
    coder.prepare(0, ROWS, &|at, out| out.copy_from_slice(&w[at * COLUMNS..][..out.len()]));
    let (mut packed, mut out) = (vec![0; format.block_bytes(COLUMNS)], vec![0f32; ROWS * COLUMNS]);
    for (block, (rows, out)) in w.chunks(BLOCK * COLUMNS).zip(out.chunks_mut(BLOCK * COLUMNS)).enumerate() {
        coder.pack(block * BLOCK, rows, &mut packed).unwrap();
        out.chunks_exact_mut(COLUMNS).enumerate().for_each(|(r, row)| unpack_row(format, &packed, COLUMNS, r, row));
    }
    out
}

/// Relative errors of the products: of rounded weights, and of rounded inputs, too.
fn errors(layer: &Layer, format: Format) -> [f64; 2] {
    let mut module = module();
    let moved = move_scales(&mut module, layer, format).unwrap();
    let one = Moved { moved: 1, kept: 0, left: 0 };
    assert_eq!(moved, if layer.method.moves.is_some() { one } else { Moved::default() });
    let (f, call) = (&module.funcs[0], &module.entries[0].calls[0]);
    let products = f.nodes.iter().filter(|n| n.op == Op::MatMul);
    let matrices: Vec<WeightExpr> = products.map(|n| bound(f, call, n.args[1]).unwrap()).collect();
    let s = match &matrices[0] {
        WeightExpr::Op(Op::ScaleCols, args) => match args[1] {
            WeightExpr::Weight(i) => module.weights[i].data.clone().unwrap(),
            WeightExpr::Op(..) => panic!("{:?}", args[1]),
        },
        _ => vec![1.0; COLUMNS],
    };
    let inputs: Vec<f32> = layer.x.iter().enumerate().map(|(at, x)| x / s[at % COLUMNS]).collect();
    let inputs = Q8Rows::quantize(&Rows { cols: COLUMNS, data: inputs }, format.group.into());
    let (mut own, mut all, mut signal) = (0.0, 0.0, 0.0);
    for (e, w) in matrices.iter().zip(&layer.w) {
        let scaled: Vec<f32> = w.iter().enumerate().map(|(at, w)| w * s[at % COLUMNS]).collect();
        let q = coded(layer, &module, e, &scaled, format);
        let error = |at: usize| f64::from(q[at]) / f64::from(s[at % COLUMNS]) - f64::from(w[at]);
        own += layer.squared(&(0..w.len()).map(error).collect::<Vec<_>>());
        signal += layer.squared(&w.iter().map(|w| f64::from(*w)).collect::<Vec<_>>());
        for (i, x) in layer.x.chunks_exact(COLUMNS).enumerate() {
            let rounded = inputs.row(i);
            for (q, w) in q.chunks_exact(COLUMNS).zip(w.chunks_exact(COLUMNS)) {
                let got: f64 = rounded.iter().zip(q).map(|(x, q)| x * f64::from(*q)).sum();
                let want: f64 = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
                all += (got - want).powi(2) / SAMPLES as f64;
            }
        }
    }
    [own / signal, all / signal]
}

#[test]
fn errors_are_those_of_numpy() {
    let mut layer = Layer::new();
    let mut found: Vec<[f64; 2]> = vec![];
    for (format, name, ..) in NUMPY {
        layer.method = method::named(name).unwrap();
        found.push(errors(&layer, Format::parse(format).unwrap()));
        println!("{format} {name}: {:?}", found[found.len() - 1]);
    }
    for ((format, name, own, all), found) in NUMPY.iter().zip(&found) {
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
        assert!(near(found[0], *own) && near(found[1], *all), "{format} {name}: {found:?}, NumPy {own} {all}");
    }
    // The methods of a format have the same order.
    for (first, format) in NUMPY.iter().enumerate().step_by(METHODS.len()) {
        let all = first..first + METHODS.len();
        assert!(NUMPY[all.clone()].iter().all(|n| n.0 == format.0));
        let order = |error: &dyn Fn(usize) -> f64| -> Vec<&str> {
            let mut order: Vec<usize> = all.clone().collect();
            order.sort_by(|a, b| error(*a).total_cmp(&error(*b)));
            order.into_iter().map(|at| NUMPY[at].1).collect()
        };
        assert_eq!(order(&|at| found[at][0]), order(&|at| NUMPY[at].2), "{}", format.0);
    }
}

#[test]
fn errors_of_pruned_layers_are_those_of_numpy() {
    let mut layer = Layer::new();
    for of_format in PRUNED.chunks(PRUNERS.len()) {
        let mut before = [f64::INFINITY; 2];
        for (format, sparsity, name, plain, gptq) in of_format {
            let pruner = method::pruner(name).unwrap();
            layer.pruning = Some(Pruning { pruner, sparsity: Sparsity::parse(sparsity).unwrap() });
            let found = ["least-squares", "gptq"].map(|name| {
                layer.method = method::named(name).unwrap();
                errors(&layer, Format::parse(format).unwrap())[0]
            });
            println!("{format} {sparsity} {name}: {found:?}");
            for (found, numpy) in found.iter().zip([plain, gptq]) {
                assert!((found / numpy - 1.0).abs() < 0.01, "{format} {sparsity} {name}: {found}, NumPy {numpy}");
            }
            // The more a pruner knows, the less is lost.
            assert!(found.iter().zip(&before).all(|(now, before)| now <= before), "{format} {sparsity} {name}");
            before = found;
        }
    }
}

/// So many weights are zero as were asked for, in each row and in each tuple, whatever codes them and in which format.
#[test]
fn rows_have_the_zeros_asked_for() {
    let mut layer = Layer::new();
    let module = module();
    let e = WeightExpr::Weight(1);
    let w = layer.w[0].clone();
    for pruner in PRUNERS {
        for (sparsity, of, zeros) in
            [("50%", COLUMNS, 128), ("30%", COLUMNS, 76), ("2:4", 4, 2), ("1:4", 4, 3), ("5:8", 8, 3)]
        {
            layer.pruning = Some(Pruning { pruner, sparsity: Sparsity::parse(sparsity).unwrap() });
            for method in ["nearest", "least-squares", "clip", "gptq"] {
                layer.method = method::named(method).unwrap();
                for format in ["w8g32", "w4g128", "fp8", "nf4", "mxfp4", "q6k"] {
                    let found = coded(&layer, &module, &e, &w, Format::parse(format).unwrap());
                    let least = found.chunks(of).map(|part| part.iter().filter(|v| **v == 0.0).count()).min();
                    assert!(least >= Some(zeros), "{} {sparsity} {method} {format}: {least:?}", pruner.name);
                    let kept = found.iter().filter(|v| **v != 0.0).count();
                    let most = w.len() / of * (of - zeros);
                    assert!(kept <= most && kept * 10 > most * 7, "{} {sparsity} {method} {format}", pruner.name);
                }
            }
        }
    }
}
