use super::{PackError, QuantError, TensorBytes, WeightSource, pack, weight_offsets};
use llmcc_ir::eval::{WeightTensor, eval_weight};
use llmcc_ir::graph::{BinaryOp, F32, ModelInfo, Module, Op, UnaryOp, Weight};
use llmcc_ir::plan::{PackedWeight, Plan, Storage, WeightExpr};
use llmcc_ir::quant::{BLOCK, Code, CodedRow, FORMATS, Format, Packing, ScaleKind, StoredRows, pack_block, unpack_row};
use llmcc_ir::ty::{DType, TensorType};
use std::sync::Mutex;

/// A checkpoint in memory that notes which tensors are released.
struct Memory {
    tensors: Vec<(String, DType, Vec<usize>, Vec<u8>)>,
    released: Mutex<Vec<String>>,
}

impl WeightSource for Memory {
    fn tensor(&self, name: &str) -> Option<TensorBytes<'_>> {
        let (_, dtype, shape, data) = self.tensors.iter().find(|t| t.0 == name)?;
        Some(TensorBytes { dtype: *dtype, shape: shape.clone(), data })
    }
    fn release(&self, name: &str) {
        self.released.lock().unwrap().push(name.into());
    }
}

fn values(n: usize, seed: u32) -> Vec<f32> {
    (0..n as u32)
        .map(|i| {
            (i.wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(97_003)) >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

fn encode(dtype: DType, x: &[f32]) -> Vec<u8> {
    match dtype {
        DType::F32 => x.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::F16 => x.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect(),
        DType::Bf16 => x.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect(),
        DType::F64 => x.iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect(),
        DType::I8 | DType::U8 | DType::I32 | DType::I64 | DType::Coded(_) => unreachable!(),
    }
}

/// `(name, dtype, shape)` of each weight, with generated values.
fn setup(weights: &[(&str, DType, &[usize])]) -> (Module, Memory) {
    let mut source = Memory { tensors: vec![], released: Mutex::new(vec![]) };
    let mut list = vec![];
    for (i, (name, dtype, shape)) in weights.iter().enumerate() {
        let bytes = encode(*dtype, &values(shape.iter().product(), i as u32));
        source.tensors.push((name.to_string(), *dtype, shape.to_vec(), bytes));
        let ty = TensorType::new(*dtype, shape.iter().map(|n| (*n).into()));
        list.push(Weight { name: name.to_string(), ty, data: None });
    }
    let info = ModelInfo { vocab: 1, hidden: 1, max_context: 1 };
    (Module { name: "m".into(), info, weights: list, states: vec![], funcs: vec![], entries: vec![] }, source)
}

fn plan(module: &Module, weights: Vec<(WeightExpr, Storage)>) -> Plan {
    let weights = weights.into_iter().map(|(expr, storage)| PackedWeight { expr, storage }).collect();
    Plan {
        name: "m".into(),
        info: module.info,
        states: vec![],
        kernels: vec![],
        weights,
        slots: vec![],
        entries: vec![],
        regimes: vec![],
    }
}

fn leaf(module: &Module, source: &Memory, i: usize) -> WeightTensor {
    let w = &module.weights[i];
    let (_, dtype, shape, bytes) = &source.tensors[i];
    assert_eq!(w.name, source.tensors[i].0);
    let data = match dtype {
        DType::F32 => bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect(),
        DType::F16 => bytes.chunks(2).map(|b| half::f16::from_le_bytes(b.try_into().unwrap()).to_f32()).collect(),
        DType::Bf16 => bytes.chunks(2).map(|b| half::bf16::from_le_bytes(b.try_into().unwrap()).to_f32()).collect(),
        _ => bytes.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap()) as f32).collect(),
    };
    WeightTensor::new(shape.clone(), data).unwrap()
}

fn w(i: usize) -> WeightExpr {
    WeightExpr::Weight(i)
}

fn op<const N: usize>(op: Op, args: [WeightExpr; N]) -> WeightExpr {
    WeightExpr::Op(op, args.into())
}

/// Packs and compares with the definition: `eval_weight`, then `pack_block` on the whole matrix.
fn check(module: &Module, source: &Memory, expr: WeightExpr, formats: &[&str]) {
    let tensor = eval_weight(&expr, &|i| Ok(leaf(module, source, i))).unwrap();
    for format in formats {
        let format = Format::parse(format).unwrap();
        let storage = match tensor.shape[..] {
            [n, k] => Storage::Matrix { n, k, format },
            _ => Storage::Vector { len: tensor.data.len() },
        };
        let plan = plan(module, vec![(expr.clone(), storage)]);
        let mut got = vec![];
        pack(&plan, module, source, &mut got, &mut |_| ()).unwrap();
        let mut want = vec![];
        match storage {
            Storage::Vector { len } => {
                want.extend(tensor.data.iter().flat_map(|v| v.to_le_bytes()));
                assert_eq!(want.len(), len * 4);
            }
            Storage::Matrix { k, .. } => {
                for rows in tensor.data.chunks(BLOCK * k) {
                    let mut block = vec![0; format.block_bytes(k)];
                    pack_block(format, rows, k, &mut block).unwrap();
                    want.extend(block);
                }
            }
        }
        want.resize(want.len().next_multiple_of(64), 0);
        assert!(got == want, "{expr:?} as {format}");
    }
}

#[test]
fn streams_exactly_what_the_evaluator_defines() {
    use DType::{Bf16, F16, F32 as Float, F64};
    let (m, mut s) = setup(&[
        ("a", Bf16, &[100, 172]),
        ("b", Bf16, &[37, 172]),
        ("cols", Float, &[172]),
        ("rows", F16, &[100]),
        ("same", F64, &[100, 172]),
        ("half", F16, &[300, 33]),
    ]);
    let all = &["f32", "bf16", "w4g32", "w4ag64", "w8g128", "bf16.frag", "w4g32.frag", "w8g128.frag"];
    let mul = || Op::Binary(BinaryOp::Mul);
    check(&m, &s, w(0), all);
    check(&m, &s, w(5), all);
    check(&m, &s, op(Op::ScaleCols, [w(0), w(2)]), all);
    check(&m, &s, op(Op::ScaleRows, [w(0), w(3)]), all);
    check(&m, &s, op(Op::UnitRows, [w(0)]), all);
    check(&m, &s, op(Op::StandardRows { eps: F32::new(1e-5) }, [w(0)]), all);
    check(&m, &s, op(Op::MulTransposed, [w(0), op(Op::SliceRows { start: 0, len: 7 }, [w(0)])]), &["f32"]);
    check(&m, &s, op(Op::MulTransposed, [w(0), op(Op::SliceRows { start: 3, len: 1 }, [w(0)])]), &["f32"]);
    check(&m, &s, op(Op::Transpose, [w(0)]), all);
    check(&m, &s, op(Op::Transpose, [op(Op::ScaleRows, [w(0), w(3)])]), &["f32"]);
    check(&m, &s, op(Op::ConcatRows, [w(0), w(1), op(Op::SliceRows { start: 5, len: 20 }, [w(0)])]), all);
    check(&m, &s, op(Op::SliceRows { start: 17, len: 60 }, [op(Op::ConcatRows, [w(1), w(0)])]), all);
    let pick = |[run, start, len, pairs]: [usize; 4]| Op::PickRows { run, start, len, pairs };
    check(&m, &s, op(pick([20, 4, 11, 6]), [w(0)]), all);
    check(&m, &s, op(pick([10, 0, 10, 10]), [op(Op::ScaleRows, [w(0), w(3)])]), all);
    check(&m, &s, op(pick([20, 4, 11, 6]), [w(3)]), &["f32"]);
    check(&m, &s, op(Op::FillRows { run: 10, to: 16 }, [w(0)]), all);
    check(&m, &s, op(Op::FillRows { run: 25, to: 32 }, [op(Op::ScaleRows, [w(0), w(3)])]), all);
    check(&m, &s, op(Op::FillRows { run: 20, to: 23 }, [w(3)]), &["f32"]);
    let order: Vec<f32> = (0..172).map(|j| (j * 5 % 172) as f32).collect();
    let cols = std::mem::replace(&mut s.tensors[2].3, encode(Float, &order));
    check(&m, &s, op(Op::PlaceCols, [w(0), w(2)]), all);
    // The 100 elements, some more than once.
    s.tensors[2].3 = encode(Float, &(0..172).map(|j| (j * 5 % 100) as f32).collect::<Vec<f32>>());
    check(&m, &s, op(Op::LookUp, [w(3), w(2)]), &["f32"]);
    s.tensors[2].3 = cols;
    check(&m, &s, op(Op::Row { index: 36 }, [w(1)]), &["f32"]);
    check(&m, &s, op(Op::Binary(BinaryOp::Add), [w(0), op(Op::Row { index: 3 }, [w(1)])]), all);
    check(&m, &s, op(mul(), [w(0), op(Op::Const { value: F32::new(0.3) }, [])]), all);
    check(&m, &s, op(Op::Binary(BinaryOp::Add), [w(0), w(2)]), all);
    check(&m, &s, op(Op::Binary(BinaryOp::Sub), [w(0), w(4)]), all);
    check(&m, &s, op(Op::Unary(UnaryOp::Neg), [w(0)]), all);
    check(&m, &s, op(mul(), [w(2), w(2)]), &["f32"]);
    check(&m, &s, op(Op::ConcatRows, [w(2), w(3)]), &["f32"]);
    check(&m, &s, op(Op::SliceRows { start: 3, len: 9 }, [w(3)]), &["f32"]);
}

#[test]
fn large_matrices_go_through_many_tasks_in_order() {
    let (m, s) = setup(&[("big", DType::Bf16, &[20_011, 64])]);
    check(&m, &s, w(0), &["w4g32", "bf16"]);
}

#[test]
fn weights_are_aligned_reported_and_released_after_their_last_use() {
    let (m, s) = setup(&[("a", DType::F32, &[40, 40]), ("v", DType::F32, &[5])]);
    let w4 = Format::parse("w4g32").unwrap();
    let plan = plan(
        &m,
        vec![
            (w(0), Storage::Matrix { n: 40, k: 40, format: w4 }),
            (w(1), Storage::Vector { len: 5 }),
            (w(0), Storage::Matrix { n: 40, k: 40, format: Format::F32 }),
        ],
    );
    let (mut out, mut heard) = (vec![], vec![]);
    let report = pack(&plan, &m, &s, &mut out, &mut |b| heard.push(b)).unwrap();
    assert_eq!(weight_offsets(&plan), [0, w4.packed_bytes(40, 40) as u64, w4.packed_bytes(40, 40) as u64 + 64]);
    assert_eq!(out.len() as u64, report.bytes);
    assert!(heard.is_sorted() && heard.last() == Some(&report.bytes));
    assert_eq!(*s.released.lock().unwrap(), ["v", "a"]);
    assert_eq!(report.tensors[0].name, "a");
    let QuantError { relative_rms, max, too_small } = report.tensors[0].error.unwrap();
    assert_eq!(too_small, None);
    // Uniform values in groups of 32: a step of amax/8, error step/√12 against a signal of amax/√3.
    assert!((0.05..0.08).contains(&relative_rms), "{relative_rms}");
    assert!((0.06..=0.13).contains(&max), "{max}");
    assert_eq!(report.tensors[2].error, None);
}

#[test]
fn bad_values_and_tensors_are_located() {
    let storage = Storage::Matrix { n: 60, k: 33, format: Format::parse("w4g32").unwrap() };
    let error = |m: &Module, s: &Memory| {
        let plan = plan(m, vec![(w(0), storage)]);
        pack(&plan, m, s, &mut vec![], &mut |_| ()).unwrap_err()
    };
    let (m, mut s) = setup(&[("a", DType::F32, &[60, 33])]);
    s.tensors[0].3[(50 * 33 + 7) * 4..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    let e = error(&m, &s);
    assert_eq!(
        e.to_string(),
        "a: row 50, column 7: NaN is not a finite number, so the checkpoint is damaged: download or convert it again"
    );
    s.tensors[0].3[(50 * 33 + 7) * 4..][..4].copy_from_slice(&1e30f32.to_le_bytes());
    let large = |what: &str| format!("a: row 50, column {what}");
    let number = "1000000000000000000000000000000";
    assert_eq!(
        error(&m, &s).to_string(),
        large(&format!(
            "0: {number} is too large for w4g32, whose scales are f16: give --format w4zg32, whose scales are f32, or \
             --dtype bf16"
        ))
    );
    let plan = plan(&m, vec![(w(0), Storage::Matrix { n: 60, k: 33, format: Format::F16 })]);
    let e = pack(&plan, &m, &s, &mut vec![], &mut |_| ()).unwrap_err();
    assert_eq!(e.to_string(), large(&format!("7: {number} is too large for f16: give --dtype bf16 or --dtype f32")));
    // A convolution: a row for each output.
    s.tensors[0].2 = vec![60, 11, 3];
    assert!(!matches!(error(&m, &s), PackError::Mismatch { .. }));
    s.tensors[0].2 = vec![33, 60];
    assert!(matches!(error(&m, &s), PackError::Mismatch { .. }));
    s.tensors.clear();
    assert!(matches!(error(&m, &s), PackError::Missing(name) if name == "a"));
}

/// Weights that are too small for f16 scales are refused; every other matrix is as exact as one of large weights.
#[test]
fn weights_too_small_for_scales() {
    let (m, mut s) = setup(&[("a", DType::F32, &[32, 256])]);
    let numbers = values(32 * 256, 0);
    for format in FORMATS.iter().flat_map(|d| d.formats()).filter(|f| f.is_quantized()) {
        let plan = plan(&m, vec![(w(0), Storage::Matrix { n: 32, k: 256, format })]);
        let mut packed = |scaled: &dyn Fn(usize, f32) -> f32| {
            let numbers: Vec<f32> = numbers.iter().enumerate().map(|(i, x)| scaled(i / 256, *x)).collect();
            s.tensors[0].3 = encode(DType::F32, &numbers);
            let report = pack(&plan, &m, &s, &mut vec![], &mut |_| ()).unwrap();
            (report.tensors[0].error.unwrap().relative_rms, report.check_scales(&plan).map_err(|e| e.to_string()))
        };
        let (plain, checked) = packed(&|_, x| x);
        assert_eq!(checked, Ok(()), "{format}");
        let mut refused = false;
        for power in [5, 10, 15, 20, 25] {
            let (error, checked) = packed(&|_, x| x * 0.5f32.powi(power));
            match checked {
                Ok(()) => assert!(error <= 1.26 * plain, "{format} 2^-{power}: {error}, not {plain}"),
                Err(e) => assert!(e.starts_with("a: row ") && e.contains("is too small for"), "{e}"),
            }
            refused |= error > 1.26 * plain;
        }
        let halves = format.encoding().scales.iter().flatten().any(|s| s.kind == ScaleKind::F16);
        assert_eq!(refused, halves, "{format}");
        // Rows of next to nothing beside others are lost without harm.
        let (_, checked) = packed(&|row, x| if row < 16 { x } else { x * 1e-7 });
        assert_eq!(checked, Ok(()), "{format}");
    }
}

/// No operation, and no omission, makes a non-finite value finite.
#[test]
fn no_numbers_are_found_wherever_they_are() {
    let whole = Storage::Matrix { n: 4, k: 3, format: Format::F32 };
    let half = Storage::Matrix { n: 2, k: 3, format: Format::F32 };
    let first = op(Op::SliceRows { start: 0, len: 2 }, [w(0)]);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let (m, mut s) = setup(&[("a", DType::F32, &[4, 3])]);
        s.tensors[0].3[11 * 4..][..4].copy_from_slice(&bad.to_le_bytes());
        let message = |list: Vec<(WeightExpr, Storage)>| {
            let packed = pack(&plan(&m, list), &m, &s, &mut vec![], &mut |_| ());
            packed.map_err(|e| e.to_string()).unwrap_err()
        };
        assert!(message(vec![(first.clone(), half)]).starts_with("a: row 3, column 2: "), "{bad}");
        // An operation can make a non-finite value finite, so its operand is named.
        for f in [UnaryOp::Sigmoid, UnaryOp::Exp, UnaryOp::Tanh, UnaryOp::Relu] {
            let found = message(vec![(op(Op::Unary(f), [w(0)]), whole)]);
            assert!(found.starts_with(&format!("a: row 3, column 2: {bad} is not a finite number")), "{found}");
        }
    }
    // A reciprocal that is a number, times a scale that is one, may be none.
    let format = Format::parse("nvfp4").unwrap();
    let mut row = CodedRow::new(&format.encoding(), 16);
    row.codes.fill(7);
    (row.factors[0].0, row.above[0].0) = (448.0, 1e38);
    assert_eq!(row.not_finite(&format.encoding()), Some(0));
    row.above[0].0 = 1e30;
    assert_eq!(row.not_finite(&format.encoding()), None);
}

/// Codes of a checkpoint, drawn at random: no quantizer would make these.
struct Codes {
    format: Format,
    rows: Vec<CodedRow>,
}

impl Codes {
    fn random(format: Format, n: usize, k: usize) -> Codes {
        let e = format.encoding();
        let mut seed = 7u32;
        let mut next = move |most: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) % most
        };
        let rows = (0..n)
            .map(|_| {
                let mut row = CodedRow::new(&e, k);
                // The last of 8-bit floats is no number.
                let most = (1 << e.bits()) - u32::from(matches!(e.code, Code::Float(_))) * 129;
                row.codes.iter_mut().for_each(|c| *c = next(most) as u8);
                if e.code == Code::Pairs {
                    row.codes.chunks_mut(4).flat_map(|four| four.iter_mut().skip(2)).for_each(|c| *c = e.zero_code());
                }
                for level in 0..2 {
                    let Some(scale) = e.scales[level] else { continue };
                    let mut factor = || match scale.kind {
                        ScaleKind::Unsigned { bits } => next(1 << bits) as f32,
                        ScaleKind::Signed { bits } => next(1 << bits) as f32 - (1 << (bits - 1)) as f32,
                        ScaleKind::Six => next(64) as f32 - 32.0,
                        ScaleKind::E8m0 => 2f32.powi(next(20) as i32 - 10),
                        ScaleKind::E4m3 => next(16) as f32 / 16.0,
                        ScaleKind::F32 | ScaleKind::F16 | ScaleKind::Bf16 => next(64) as f32 / 64.0,
                    };
                    let of = if level == 0 { &mut row.factors } else { &mut row.above };
                    of.iter_mut().for_each(|f| *f = (factor(), if scale.minimum { factor() } else { 0.0 }));
                }
                row
            })
            .collect();
        Codes { format, rows }
    }

    fn matrix(&self) -> Vec<f32> {
        let mut out = vec![0f32; self.rows.len() * self.rows[0].codes.len()];
        StoredRows::values(&self, 0, &mut out);
        out
    }
}

impl StoredRows for &Codes {
    fn values(&self, from: usize, out: &mut [f32]) {
        let k = self.rows[0].codes.len();
        let rows = self.rows[from..].iter().zip(out.chunks_mut(k));
        rows.for_each(|(row, out)| row.decode(&self.format.encoding(), out));
    }
    fn codes(&self, row: usize, out: &mut CodedRow) {
        out.clone_from(&self.rows[row]);
    }
}

impl WeightSource for Codes {
    fn tensor(&self, _: &str) -> Option<TensorBytes<'_>> {
        None
    }
    fn rows(&self, _: &str) -> Option<Box<dyn StoredRows + '_>> {
        Some(Box::new(self))
    }
    fn release(&self, _: &str) {}
}

/// Codes and scales come out of packing as they went in, also where rows are cut, joined and filled
/// up; the report calls that exact. Where another format is asked for, the values of the codes are
/// packed.
#[test]
fn codes_pass_through() {
    let (n, k) = (70, 512);
    for format in FORMATS.iter().filter(|d| d.encoding.is_quantized()).flat_map(|d| d.formats()) {
        let source = Codes::random(format, n, k);
        let all = source.matrix();
        let (mut module, _) = setup(&[]);
        let ty = TensorType::new(DType::Coded(format), [n.into(), k.into()]);
        module.weights.push(Weight { name: "w".into(), ty, data: None });
        let part = |start, len| op(Op::SliceRows { start, len }, [w(0)]);
        let joined = op(Op::ConcatRows, [part(33, 37), part(0, 20)]);
        let expr = op(Op::FillRows { run: 57, to: 60 }, [joined]);
        let values: Vec<f32> = [&all[33 * k..], &all[..20 * k], &vec![0.0; 3 * k]].concat();
        for stored in [format, format.with_packing(Packing::Fragment), Format::F32] {
            let plan = plan(&module, vec![(expr.clone(), Storage::Matrix { n: 60, k, format: stored })]);
            let mut got = vec![];
            let report = pack(&plan, &module, &source, &mut got, &mut |_| ()).unwrap();
            assert_eq!(report.tensors[0].error, None, "{stored} of {format}");
            let mut row = vec![0f32; k];
            for (r, wanted) in values.chunks(k).enumerate() {
                unpack_row(stored, &got, k, r, &mut row);
                let same = row.iter().zip(wanted).all(|(a, b)| a.to_bits() == b.to_bits() || (*a == 0.0 && *b == 0.0));
                assert!(same, "row {r} of {stored} of {format}: {row:?} and {wanted:?}");
            }
        }
    }
}

/// A scale that is no number is found, with its place.
#[test]
fn scales_that_are_no_numbers_are_located() {
    let format = Format::parse("q4k").unwrap();
    let mut source = Codes::random(format, 40, 512);
    source.rows[21].above[1].0 = f32::INFINITY;
    let (mut module, _) = setup(&[]);
    let ty = TensorType::new(DType::Coded(format), [40.into(), 512.into()]);
    module.weights.push(Weight { name: "w".into(), ty, data: None });
    let plan = plan(&module, vec![(w(0), Storage::Matrix { n: 40, k: 512, format })]);
    let error = pack(&plan, &module, &source, &mut vec![], &mut |_| ()).unwrap_err().to_string();
    assert!(error.starts_with("w: row 21, column 256: ") && error.contains("not a finite number"), "{error}");
}

/// A value that is no number is told where no packed weight would show it.
#[test]
fn values_that_would_be_hidden() {
    let (module, source) = setup(&[("types", DType::F32, &[3, 4]), ("log", DType::F32, &[4])]);
    let with = |tensor: usize, at: usize, x: f32| {
        let mut tensors = source.tensors.clone();
        tensors[tensor].3[4 * at..][..4].copy_from_slice(&x.to_le_bytes());
        Memory { tensors, released: Mutex::new(vec![]) }
    };
    let row = |index| op(Op::Row { index }, [w(0)]);
    let exp = op(Op::Unary(UnaryOp::Exp), [w(1)]);
    let vector = Storage::Vector { len: 4 };
    let packed = |weights: Vec<WeightExpr>, source: &Memory| {
        let plan = plan(&module, weights.into_iter().map(|e| (e, vector)).collect());
        pack(&plan, &module, source, &mut vec![], &mut |_| ()).map_err(|e| e.to_string())
    };
    assert!(packed(vec![row(0), exp.clone()], &source).is_ok());
    for x in [f32::NAN, f32::INFINITY] {
        let said = packed(vec![row(0), exp.clone()], &with(0, 6, x)).unwrap_err();
        assert!(said.starts_with("types: row 1, column 2: ") && said.contains("not a finite number"), "{said}");
    }
    let said = packed(vec![row(0), exp.clone()], &with(1, 3, f32::NEG_INFINITY)).unwrap_err();
    assert!(said.starts_with("log: row 3, column 0: -inf"), "{said}");
    let slices = vec![row(0), row(1), op(Op::Row { index: 2 }, [w(0)])];
    let said = packed(slices, &with(0, 6, f32::NAN)).unwrap_err();
    assert!(said.starts_with("types: row 1, column 2: "), "{said}");
    let first = op(Op::PickRows { run: 3, start: 0, len: 1, pairs: 0 }, [w(0)]);
    assert!(packed(vec![first.clone()], &source).is_ok());
    let said = packed(vec![first], &with(0, 6, f32::NAN)).unwrap_err();
    assert!(said.starts_with("types: row 1, column 2: "), "{said}");
}
