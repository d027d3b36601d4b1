//! One failing case per rule: a valid thing, one change, the code it must be reported under.

use super::*;
use crate::eval::fixture;
use crate::eval::{Batch, OperandData, eval_kernel};
use crate::graph::{Arg, Entry, F32, Func, Input, Module, Node, Op, Role, UnaryOp, Value, ValueType};
use crate::kernel::{Body, Expr, Kernel, Matmul, ParamKind, Pointwise, RowElem};
use crate::kv::{KvDType, KvSpec};
use crate::output::{EntryOutput, Output};
use crate::plan::{Buffer, Operand, PackedWeight, Plan, PlanEntry, Slot, Storage, WeightExpr};
use crate::quant::{Elem, Packing};
use crate::state::StateSpec;
use crate::tap::{Tap, TappedWeight};
use crate::ty::{DType, Dim, TensorType};
use fixture::{FFN, HIDDEN, VOCAB, add, f32_rows, kernel, out, param, segment};

fn paged(state: &mut StateSpec) -> &mut KvSpec {
    state.paged_mut().expect("keys and values")
}

fn spec() -> KvSpec {
    fixture::spec(KvDType::F32, None)
}

fn w4() -> Format {
    Format::new(Elem::W4, 32)
}

fn codes(found: &[Diagnostic]) -> Vec<&'static str> {
    found.iter().map(|d| d.code).collect()
}

/// `found` has the rule `code`, and the place of its first finding reads `place`.
fn expect(found: &[Diagnostic], code: &str, place: &str) {
    match found.iter().find(|d| d.code == code) {
        Some(d) => assert_eq!(d.place.to_string(), place, "{d}"),
        None => panic!("no `{code}` among {:#?}", found.iter().map(ToString::to_string).collect::<Vec<_>>()),
    }
}

// Graph level.

fn bad_module(code: &str, place: &str, change: impl FnOnce(&mut Module)) {
    let mut m = fixture::module(spec());
    change(&mut m);
    expect(&verify_module(&m), code, place);
}

fn bad_layer(code: &str, place: &str, change: impl FnOnce(&mut Func)) {
    bad_module(code, place, |m| change(&mut m.funcs[1]));
}

#[test]
fn valid_things_have_no_findings() {
    assert_eq!(verify_module(&fixture::module(spec())), []);
    for format in [Format::F32, w4()] {
        let plan = fixture::plan(spec(), format);
        assert_eq!(verify_plan(&plan), []);
        assert_eq!(verify_packed(&plan, &fixture::module(spec()).weights), []);
    }
}

#[test]
fn all_findings_are_collected() {
    let mut m = fixture::module(spec());
    m.info.vocab = 0;
    m.funcs[1].nodes[0].args = vec![Value(99)];
    m.entries[0].outputs[0].at = 77;
    let found = verify_module(&m);
    for code in ["model-info", "undefined-value", "output"] {
        assert!(codes(&found).contains(&code), "{code}");
    }
}

#[test]
fn functions_are_typed_ssa() {
    let rows: ValueType = TensorType::rows(Dim::Tokens, HIDDEN).into();
    bad_layer("undefined-value", "function `layer`, node 0 (`normalize`)", |f| f.nodes[0].args = vec![Value(13)]);
    bad_layer("undefined-value", "function `layer`", |f| f.results = vec![Value(99)]);
    bad_layer("ill-typed", "function `layer`, node 2 (`matmul`)", |f| f.nodes[2].args.swap(0, 1));
    bad_layer("recorded-type", "function `layer`, node 0 (`normalize`)", |f| {
        f.nodes[0].ty = TensorType::rows(Dim::Tokens, HIDDEN + 1).into();
    });
    bad_layer("attribute", "function `layer`, node 0 (`normalize`)", |f| {
        f.nodes[0].op = Op::Normalize { eps: F32::new(f32::NAN), width: HIDDEN };
    });
    bad_layer("state-result", "function `layer`", |f| f.results.push(Value(3)));
    bad_layer("duplicate-name", "function `layer`, parameter `rope`", |f| f.params[0].name = "rope".into());
    bad_layer("empty-name", "function `layer`, parameter ``", |f| f.params[0].name.clear());
    // Absurd sizes and missing arguments are findings, not overflows.
    bad_layer("ill-typed", "function `layer`, node 8 (`attention`)", |f| {
        f.nodes[8].op = Op::Attention {
            heads: usize::MAX,
            scale: F32::new(1.0),
            softcap: F32::new(0.0),
            causal: true,
            chunked: false,
            biased: false,
            sums: false,
        };
    });
    bad_layer("ill-typed", "function `layer`, node 8 (`attention`)", |f| {
        if let Op::Attention { softcap, .. } = &mut f.nodes[8].op {
            *softcap = F32::new(-1.0);
        }
    });
    bad_layer("ill-typed", "function `layer`, node 0 (`concat_cols`)", |f| {
        f.nodes[0] = Node { op: Op::ConcatCols, args: vec![], ty: rows };
    });
}

#[test]
fn weights_and_data_are_kept_apart() {
    let neg = |arg: u32, ty: ValueType| Node { op: Op::Unary(UnaryOp::Neg), args: vec![Value(arg)], ty };
    let table: ValueType = TensorType::rows(Dim::Static(VOCAB), HIDDEN).into();
    bad_module("weights-only", "function `embed`, node 2 (`slice_rows`)", |m| {
        let op = Op::SliceRows { start: 0, len: 1 };
        let f = &mut m.funcs[0];
        f.params[2].role = Role::Data;
        f.nodes.push(Node { op, args: vec![Value(2)], ty: TensorType::rows(Dim::Static(1), HIDDEN).into() });
    });
    bad_module("shared-weight", "function `embed`, node 2 (`neg`)", |m| m.funcs[0].nodes.push(neg(2, table)));
    bad_layer("needs-weight", "function `layer`, node 2 (`matmul`)", |f| f.params[5].role = Role::Data);
    bad_layer("param-role", "function `layer`, parameter `wq`", |f| f.params[5].role = Role::Data);
    bad_layer("param-role", "function `layer`, parameter `kv`", |f| f.params[3].role = Role::Data);
    bad_layer("kv-spec", "function `layer`, parameter `kv`", |f| {
        f.params[3].ty = ValueType::State(KvSpec { kv_heads: 0, ..spec() }.into())
    });
}

#[test]
fn states_are_linear() {
    // Node 7 appends, node 8 attends.
    bad_layer("stale-state", "function `layer`, node 8 (`attention`)", |f| f.nodes[8].args[1] = Value(3));
    bad_layer("stale-state", "function `layer`, node 19 (`kv_append`)", |f| {
        let again = f.nodes[7].clone();
        f.nodes.push(again);
    });
}

#[test]
fn modules_bind_what_functions_need() {
    let call = "call 1 of `layer`";
    bad_module("model-info", "", |m| m.info.hidden = 0);
    bad_module("duplicate-name", "function `embed`", |m| m.funcs[1].name = "embed".into());
    bad_module("duplicate-name", "tensor `embed`", |m| m.weights[2].name = "embed".into());
    bad_module("weight-type", "tensor `norm`", |m| m.weights.last_mut().unwrap().ty.dtype = DType::I8);
    bad_module("weight-type", "tensor `norm`", |m| m.weights.last_mut().unwrap().ty.shape = vec![Dim::Tokens]);
    bad_module("weight-data", "tensor `$inv_freq`", |m| m.weights[1].data = Some(vec![0.0]));
    bad_module("positions", "call 0 of `embed`", |m| {
        m.info.max_context = VOCAB + 1;
        let node = &mut m.funcs[0].nodes[0];
        (node.op, node.args[1]) = (Op::EmbedPositions { every: 1, shift: 0 }, Value(1));
    });
    bad_module("positions", "call 0 of `embed`", |m| {
        m.info.max_context = 4 * VOCAB;
        let node = &mut m.funcs[0].nodes[0];
        (node.op, node.args[1]) = (Op::EmbedPositions { every: 4, shift: 1 }, Value(1));
    });
    bad_module("kv-spec", "state 1", |m| paged(&mut m.states[1]).window = Some(0));
    bad_module("call-func", "call 1 of `9`", |m| m.entries[0].calls[1].func = 9);
    bad_module("call-args", call, |m| m.entries[0].calls[1].args.truncate(3));
    bad_module("call-arg", call, |m| m.entries[0].calls[1].args[0] = Arg::Value(2));
    bad_module("call-arg", call, |m| m.entries[0].calls[1].args[4] = Arg::Weight(999));
    bad_module("call-role", call, |m| m.entries[0].calls[1].args[4] = Arg::Value(0));
    bad_module("call-role", call, |m| m.entries[0].calls[1].args[0] = Arg::Weight(0));
    bad_module("call-type", call, |m| m.entries[0].calls[1].args.swap(4, 5));
    bad_module("call-type", call, |m| m.entries[0].calls[1].args[2] = Arg::Input(Input::OutRows));
    bad_module("call-type", call, |m| paged(&mut m.states[0]).window = Some(3));
    bad_module("state-calls", "state 0", |m| m.entries[0].calls[2].args[3] = Arg::State(0));
    bad_module("unused-state", "state 1", |m| m.entries[0].calls[2].args[3] = Arg::State(0));
    bad_module("unused-weight", "tensor `layers.1.g1`", |m| {
        m.entries[0].calls[2].args[4] = m.entries[0].calls[1].args[4]
    });
    bad_module("unshared-weight", call, |m| m.entries[0].calls[2].args[4] = m.entries[0].calls[1].args[4]);
    bad_module("output", "", |m| m.entries[0].outputs[0].at = 0);
    bad_module("output", "", |m| m.entries[0].outputs[0].at = 77);
    bad_module("hidden", "", |m| {
        let at = m.entries[0].outputs[0].at;
        m.entries[0].outputs.push(EntryOutput { output: Output::Hidden, at });
    });
    bad_module("hidden", "", |m| {
        m.entries[0].outputs.push(EntryOutput { output: Output::Hidden, at: 77 });
    });
}

#[test]
fn entries_have_names_and_outputs_of_their_own() {
    bad_module("entries", "", |m| m.entries.clear());
    bad_module("duplicate-name", "", |m| m.entries.extend(m.entries.clone()));
    bad_module("output", "", |m| m.entries[0].outputs.clear());
    bad_module("output", "", |m| {
        let output = m.entries[0].outputs[0];
        m.entries[0].outputs.push(output);
    });
    // Calls are counted over all entries.
    bad_module("call-args", "call 5 of `layer`", |m| {
        m.entries.push(Entry { name: "other".into(), ..m.entries[0].clone() });
        m.entries[1].calls[1].args.truncate(3);
    });
    bad_plan("entries", "", |p| p.entries.clear());
    bad_plan("duplicate-name", "", |p| p.entries.extend(p.entries.clone()));
    bad_plan("entries", "regime 1", |p| p.regimes[1].entry = 1);
    bad_plan("regimes", "", |p| p.entries.push(PlanEntry { name: "other".into(), ..p.entries[0].clone() }));
    bad_plan("entries", "", |p| {
        p.entries.push(PlanEntry { name: "other".into(), ..p.entries[0].clone() });
        p.regimes[0].entry = 1;
    });
}

/// A tap names a result of its call, of its type, and a weight of the module (`passes/tests/taps.rs` has more).
#[test]
fn taps_are_rows_of_their_calls() {
    let tap = |weight: &str| {
        let weights = vec![TappedWeight { name: weight.into(), expert: None }];
        Tap { at: 0, call: 0, rows: Dim::Tokens, columns: 3, routes: None, weights }
    };
    let first = |m: &Module| m.weights[0].name.clone();
    bad_module("tap", "", |m| {
        let name = first(m);
        m.entries[0].taps.push(tap(&name));
    });
    bad_module("tap", "", |m| m.entries[0].taps.push(Tap { columns: m.info.hidden, ..tap("of nobody") }));
    bad_plan("tap", "regime 0", |p| p.entries[0].taps.push(Tap { at: 77, ..tap("any") }));
    // The embedding's rows are what a function of the fixture gives.
    let mut m = fixture::module(spec());
    let shown = Tap { columns: m.info.hidden, ..tap(&first(&m)) };
    m.entries[0].taps.push(shown);
    assert_eq!(verify_module(&m), []);
}

/// Two entries over the same states and weights, and a state that one writes and the other reads.
#[test]
fn entries_share_weights_and_states() {
    let mut m = fixture::module(spec());
    m.entries.push(Entry { name: "other".into(), ..m.entries[0].clone() });
    assert_eq!(verify_module(&m), []);
    let mut m = sharing(["stores", "reads"]);
    let mut reader = Entry { name: "reader".into(), ..m.entries[0].clone() };
    reader.calls[1].func = reader.calls[2].func;
    m.entries.push(reader);
    assert_eq!(verify_module(&m), []);
    m.entries.remove(0);
    let codes: Vec<_> = verify_module(&m).into_iter().map(|d| d.code).collect();
    assert_eq!(codes, ["state-calls"]);
}

/// A module whose two layers use one state, by the named functions.
fn sharing([first, second]: [&str; 2]) -> Module {
    let attend = "attention{heads=1, scale=0.5}(%x, %kv";
    let text = format!(
        r#"module "sharing" {{
  info vocab=8 hidden=8 max_context=16
  weight 0 "table": f32[8, 8]
  kv 0: kv<f32, 1x8>
  func @embed(%table: f32[8, 8] shared_weight, %tokens: i32[T]) -> (f32[T, 8]) {{
    %x = embed(%table, %tokens) : f32[T, 8]
    return %x
  }}
  func @stores(%x: f32[T, 8], %positions: i32[T], %kv: kv<f32, 1x8> state) -> (f32[T, 8]) {{
    %kv1 = kv_append(%kv, %x, %x, %positions) : kv<f32, 1x8>
    %y = {attend}1, %positions) : f32[T, 8]
    return %y
  }}
  func @reads(%x: f32[T, 8], %positions: i32[T], %kv: kv<f32, 1x8> state) -> (f32[T, 8]) {{
    %y = {attend}, %positions) : f32[T, 8]
    return %y
  }}
  func @head(%x: f32[T, 8], %rows: i32[R], %table: f32[8, 8] shared_weight) -> (f32[R, 8]) {{
    %last = gather_rows(%x, %rows) : f32[R, 8]
    %logits = matmul(%last, %table) : f32[R, 8]
    return %logits
  }}
  entry @step {{
    %a = @embed(weight 0, tokens)
    %b = @{first}(%a, positions, kv 0)
    %c = @{second}(%b, positions, kv 0)
    %logits = @head(%c, out_rows, weight 0)
    logits %logits
  }}
}}"#
    );
    crate::text::parse_module(&text).unwrap()
}

/// An entry takes rows of one width with its tokens, whatever the width of the model.
#[test]
fn given_rows_are_of_one_width() {
    let codes = |columns: usize| {
        let text = format!(
            r#"module "given" {{
  info vocab=8 hidden=8 max_context=16
  func @first(%rows: f32[T, 3]) -> (f32[T, 3]) {{
    %x = given_rows(%rows) : f32[T, 3]
    return %x
  }}
  func @second(%x: f32[T, 3], %rows: f32[T, {columns}], %wanted: i32[R]) -> (f32[R, 8]) {{
    %y = given_rows(%rows) : f32[T, {columns}]
    %both = concat_cols(%x, %y, %y) : f32[T, {}]
    %some = slice_cols{{start=0, len=8}}(%both) : f32[T, 8]
    %logits = gather_rows(%some, %wanted) : f32[R, 8]
    return %logits
  }}
  entry @step {{
    %a = @first(given)
    %logits = @second(%a, given, out_rows)
    logits %logits
  }}
}}"#,
            3 + 2 * columns
        );
        verify_module(&crate::text::parse_module(&text).unwrap()).into_iter().map(|d| d.code).collect::<Vec<_>>()
    };
    assert_eq!(codes(3), [""; 0]);
    assert_eq!(codes(4), ["given-rows"]);
}

#[test]
fn states_are_read_after_their_update() {
    let codes = |calls| verify_module(&sharing(calls)).into_iter().map(|d| d.code).collect::<Vec<_>>();
    assert_eq!(codes(["stores", "reads"]), [""; 0]);
    for calls in [["reads", "stores"], ["reads", "reads"], ["stores", "stores"]] {
        assert_eq!(codes(calls), ["state-calls"], "{calls:?}");
    }
}

// Kernel level.

const QKV: usize = 2;
const O: usize = 4;

fn bad_kernel(which: usize, code: &str, place: &str, change: impl FnOnce(&mut Kernel)) {
    let mut k = fixture::kernels(spec(), Format::F32).swap_remove(which);
    change(&mut k);
    expect(&verify_kernel(&k), code, place);
    // The evaluator refuses it too, rather than panic.
    let batch = Batch::single(&[0], 0);
    let mut operands: Vec<OperandData<'_>> = k.params.iter().map(|_| OperandData::Matrix(vec![].into())).collect();
    assert!(eval_kernel(&k, &batch, &mut operands).is_err());
}

fn mm(k: &mut Kernel) -> &mut Matmul {
    match &mut k.body {
        Body::Matmul(m) => m,
        other => panic!("not a matmul: {other:?}"),
    }
}

/// Sets the columns or storage of an operand.
fn retype(k: &mut Kernel, id: usize, cols: usize, elem: RowElem) {
    k.params[id].kind = ParamKind::Rows { rows: k.rows, cols, elem };
}

/// Mistakes that text cannot express; the others stand in `tests/lir/verify`.
#[test]
fn operands_exist_once_with_formats_of_the_table() {
    bad_kernel(O, "duplicate-name", "kernel `o`, operand `x`", |k| k.params[1].name = "x".into());
    bad_kernel(O, "param-range", "kernel `o`", |k| mm(k).x = 9);
    for format in [Format::new(Elem::W4, 0), Format::new(Elem::F32, 32)] {
        let kind = ParamKind::Matrix { n: 1, k: 1, format };
        bad_kernel(O, "param-kind", "kernel `o`, operand `extra`", |k| k.params.push(param("extra", kind)));
    }
}

#[test]
fn tiles_of_whole_groups_or_of_everything_are_fine() {
    // int8 rows in groups of 32, of 64 columns, as a tile that covers all needs no rule.
    for tile_n in [32, 64, 100] {
        let mut k = fixture::kernels(spec(), Format::F32).swap_remove(O);
        retype(&mut k, 3, 64, RowElem::Q8 { group: 32 });
        k.params[1].kind = ParamKind::Matrix { n: 64, k: HIDDEN, format: Format::F32 };
        mm(&mut k).segments[0] = crate::kernel::Segment { tile_n, ..segment(64, vec![1], Expr::Acc(0), out(3)) };
        assert_eq!(codes(&verify_kernel(&k)), ["unused-param"], "tiles of {tile_n}");
    }
}

/// Each element by the item that stores it.
#[test]
fn work_in_place_is_no_race() {
    let mut k = fixture::kernels(spec(), Format::F32).swap_remove(O);
    mm(&mut k).segments[0].expr = add(Expr::Acc(0), Expr::Rows { param: 3, start: 0 });
    assert_eq!(codes(&verify_kernel(&k)), ["unused-param"]);
}

#[test]
fn pointwise_work_has_no_accumulators() {
    let with = |expr, weights| {
        let params = vec![param("x", f32_rows(Dim::Tokens, 8)), param("out", f32_rows(Dim::Tokens, 8))];
        kernel(
            "p",
            Dim::Tokens,
            params,
            Body::Pointwise(Pointwise { segments: vec![segment(8, weights, expr, out(1))] }),
        )
    };
    let x = || Expr::Rows { param: 0, start: 0 };
    assert_eq!(verify_kernel(&with(x(), vec![])), []);
    expect(&verify_kernel(&with(add(x(), Expr::Acc(0)), vec![])), "acc-in-pointwise", "kernel `p`, segment 0");
    expect(&verify_kernel(&with(x(), vec![0])), "pointwise-weights", "kernel `p`, segment 0");
}

// Plan level.

fn bad_plan(code: &str, place: &str, change: impl FnOnce(&mut Plan)) {
    let mut p = fixture::plan(spec(), Format::F32);
    change(&mut p);
    expect(&verify_plan(&p), code, place);
}

#[test]
fn plans_are_checked_with_their_kernels() {
    bad_plan("tile-m", "kernel `o`", |p| mm(&mut p.kernels[O]).tile_m = 0);
    bad_plan("k-parts", "kernel `o`", |p| mm(&mut p.kernels[O]).k_parts = 0);
    bad_plan("duplicate-name", "kernel `qkv`", |p| p.kernels[O].name = "qkv".into());
    bad_plan("kv-spec", "state 0", |p| paged(&mut p.states[0]).value_dim = 0);
    bad_plan("weight-storage", "packed weight 2", |p| p.weights[2].storage = Storage::Vector { len: 0 });
    bad_plan("unused-kernel", "kernel `extra`", |p| {
        let extra = Kernel { name: "extra".into(), ..p.kernels[O].clone() };
        p.kernels.push(extra);
    });
    bad_plan("unused-weight", "packed weight 21", |p| {
        p.weights.push(PackedWeight { expr: WeightExpr::Weight(0), storage: Storage::Vector { len: 1 } });
    });
}

#[test]
fn plans_fit_their_target() {
    let target = |name: &str| crate::target::find(name).unwrap();
    let (cpu, gpu) = (target("x86-64-v3"), target("sm90"));
    let mut p = fixture::plan(spec(), w4());
    assert_eq!(verify_target(&p, cpu), []);
    expect(&verify_target(&p, gpu), "target-packing", "packed weight 0");
    for k in &mut p.kernels {
        for param in &mut k.params {
            if let ParamKind::Matrix { format, .. } = &mut param.kind {
                *format = format.with_packing(Packing::Fragment);
            }
        }
    }
    for w in &mut p.weights {
        if let Storage::Matrix { format, .. } = &mut w.storage {
            *format = format.with_packing(Packing::Fragment);
        }
    }
    assert_eq!(verify_plan(&p), []);
    assert_eq!(verify_target(&p, gpu), []);
    expect(&verify_target(&p, cpu), "target-packing", "packed weight 0");
    p.regimes[0].buffers[3].elem = RowElem::Bf16;
    assert!(
        verify_target(&p, cpu).iter().chain(&verify_target(&p, gpu)).all(|d| d.code != "target-rows"),
        "both multiply bf16 rows"
    );
    p.regimes[0].buffers[3].elem = RowElem::F32;
    mm(&mut p.kernels[QKV]).prologue.as_mut().unwrap().elem = RowElem::F16;
    assert_eq!(verify_target(&p, gpu), []);
    expect(&verify_target(&p, cpu), "target-rows", "kernel `qkv`");
    p.regimes[0].buffers[3].elem = RowElem::Q8 { group: 32 };
    expect(&verify_target(&p, gpu), "target-rows", "regime 0, buffer 3");
}

#[test]
fn regimes_ascend_to_any_size() {
    bad_plan("regimes", "", |p| drop(p.regimes.pop()));
    bad_plan("regimes", "", |p| p.regimes.clear());
    bad_plan("regimes", "regime 0", |p| p.regimes[0].max_tokens = None);
    bad_plan("regimes", "regime 0", |p| p.regimes[0].max_tokens = Some(0));
    bad_plan("regimes", "regime 1", |p| {
        let again = p.regimes[0].clone();
        p.regimes.insert(1, again);
    });
}

#[test]
fn operands_match_their_parameters() {
    let launch = "regime 1, launch 4 of `o`";
    let at = |p: &mut Plan, i: usize, o: Operand| p.regimes[1].launches[4].operands[i] = o;
    bad_plan("launch-kernel", "regime 1, launch 4 of `99`", |p| p.regimes[1].launches[4].kernel = 99);
    bad_plan("launch-operands", launch, |p| p.regimes[1].launches[4].operands.truncate(2));
    for wrong in [Operand::Buffer(99), Operand::Buffer(5), Operand::Weight(0), Operand::State(0)] {
        bad_plan("operand-type", launch, |p| at(p, 0, wrong));
    }
    for wrong in [Operand::Weight(99), Operand::Weight(0), Operand::Weight(1), Operand::Buffer(0)] {
        bad_plan("operand-type", launch, |p| at(p, 1, wrong));
    }
    bad_plan("operand-type", "regime 0, launch 2 of `qkv`", |p| paged(&mut p.states[0]).window = Some(4));
    bad_plan("operand-type", "regime 1, launch 2 of `qkv`", |p| {
        p.regimes[1].launches[2].operands[2] = Operand::State(7)
    });
    bad_plan("aliased-operands", launch, |p| at(p, 2, Operand::Buffer(4)));
    bad_plan("state-groups", "regime 1, launch 3 of `attention`", |p| {
        paged(&mut p.states[1]).window = Some(4);
        p.regimes[1].launches[3].operands[0] = Operand::State(1);
    });
}

#[test]
fn buffers_fit_their_slots() {
    bad_plan("buffer-type", "regime 0, buffer 3", |p| p.regimes[0].buffers[3].cols = 0);
    bad_plan("buffer-type", "regime 0, buffer 3", |p| p.regimes[0].buffers[3].rows = Dim::Static(1));
    bad_plan("slot-range", "regime 0, buffer 3", |p| p.regimes[0].buffers[3].slot = 99);
    bad_plan("slot-size", "regime 0, buffer 5", |p| p.slots[3].per_token = FFN * 4 - 1);
    bad_plan("slot-size", "regime 0, buffer 13", |p| {
        p.slots[6] = Slot { per_token: VOCAB * 2, per_row: VOCAB * 2 - 1 }
    });
    bad_plan("unused-buffer", "regime 0, buffer 14", |p| {
        p.regimes[0].buffers.push(Buffer { rows: Dim::Tokens, cols: 1, elem: RowElem::F32, slot: 0 });
    });
    // Room per token serves logits rows.
    let mut p = fixture::plan(spec(), Format::F32);
    p.slots[6] = Slot { per_token: VOCAB * 4, per_row: 0 };
    assert_eq!(verify_plan(&p), []);
}

#[test]
fn buffers_are_written_before_they_are_read() {
    bad_plan("read-before-write", "regime 1, launch 3 of `o`", |p| drop(p.regimes[1].launches.remove(3)));
    // Only a part is written.
    bad_plan("read-before-write", "regime 0, launch 3 of `attention`", |p| {
        let s = &mut mm(&mut p.kernels[QKV]).segments[0];
        s.n = 16;
        p.kernels[QKV].params[4].kind = ParamKind::Matrix { n: 16, k: HIDDEN, format: Format::F32 };
    });
    bad_plan("output", "regime 1", |p| drop(p.regimes[1].launches.pop()));
    bad_plan("output", "regime 0", |p| p.entries[0].outputs[0].at = 5);
    bad_plan("output", "regime 0", |p| p.entries[0].outputs[0].at = 55);
    bad_plan("hidden", "regime 0", |p| {
        let at = p.entries[0].outputs[0].at;
        p.entries[0].outputs.push(EntryOutput { output: Output::Hidden, at });
    });
}

#[test]
fn buffers_alive_together_have_their_own_slots() {
    bad_plan("slot-overlap", "regime 1, buffer 0", |p| p.regimes[1].buffers[4].slot = 1);
    // The input of a launch dies in it; its output must not take the place yet.
    bad_plan("slot-overlap", "regime 1, buffer 3", |p| p.regimes[1].buffers[4].slot = 4);
    // The logits live to the end.
    bad_plan("slot-overlap", "regime 1, buffer 12", |p| p.regimes[1].buffers[12].slot = 6);
}

#[test]
fn states_are_stored_once_before_attention() {
    bad_plan("state-order", "regime 1, launch 3 of `attention`", |p| {
        p.regimes[1].launches[3].operands[1] = Operand::State(1)
    });
    bad_plan("state-order", "regime 1, launch 7 of `qkv`", |p| {
        p.regimes[1].launches[7].operands[2] = Operand::State(0)
    });
}

#[test]
fn packed_weights_have_the_shape_of_their_expression() {
    let module = fixture::module(spec());
    let bad = |expr: WeightExpr, code: &str| {
        let mut p = fixture::plan(spec(), Format::F32);
        p.weights[3].expr = expr;
        expect(&verify_packed(&p, &module.weights), code, "packed weight 3");
    };
    bad(WeightExpr::Weight(999), "weight-expr");
    bad(WeightExpr::Weight(0), "weight-storage");
    bad(WeightExpr::Weight(1), "weight-storage");
    bad(WeightExpr::Op(Op::Transpose, vec![WeightExpr::Weight(1)]), "weight-expr");
    bad(WeightExpr::Op(Op::Transpose, vec![]), "weight-expr");
    bad(WeightExpr::Op(Op::MatMul, vec![WeightExpr::Weight(0), WeightExpr::Weight(0)]), "weight-expr");
}
