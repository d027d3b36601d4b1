//! The documentation of the IR is true: its examples parse, verify and read back, its errors look
//! as shown, its tables are complete.

use llmcc_ir::diag::Diagnostic;
use llmcc_ir::eval::{Batch, WeightTensor, eval_module, eval_plan, eval_weight};
use llmcc_ir::graph::{BinaryOp, Module, UnaryOp};
use llmcc_ir::plan::{PackedWeight, Plan, Storage};
use llmcc_ir::quant::{BLOCK, pack_block};
use llmcc_ir::text::{Item, Source, render};
use llmcc_ir::verify::{verify_func, verify_kernel, verify_module, verify_packed, verify_plan};
use std::borrow::Cow;
use std::path::Path;

const PAGE: &str = include_str!("../../docs/ir.md");

/// The contents of all fenced blocks of a language, with the block that follows each.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<(&'a str, &'a str)> {
    let mut found = vec![];
    let mut rest = page;
    let fence = format!("\n```{language}\n");
    while let Some(at) = rest.find(&fence) {
        rest = &rest[at + fence.len()..];
        let block = rest.split("\n```").next().unwrap_or(rest);
        let next =
            rest[block.len() + 4..].split_once("\n```").and_then(|(_, b)| b.split_once('\n')).map_or("", |(_, b)| b);
        found.push((block, next.split("\n```").next().unwrap_or(next)));
    }
    found
}

fn findings(item: &Item) -> Vec<Diagnostic> {
    match item {
        Item::Module(m) => verify_module(m),
        Item::Func(f) => verify_func(f),
        Item::Kernel(k) => verify_kernel(k),
        Item::Plan(p) => verify_plan(p),
    }
}

/// Parses, verifies, prints and reads back.
fn check(name: &str, text: &str) -> Vec<Item> {
    let show = |e: &Diagnostic| render(e, text, name);
    let source = Source::parse(text).unwrap_or_else(|errors| panic!("{}", errors.iter().map(show).collect::<String>()));
    assert!(!source.items.is_empty(), "{name} has nothing in it:\n{text}");
    for item in &source.items {
        let found: String = findings(item).into_iter().map(|d| show(&source.locate(d))).collect();
        assert_eq!(found, "", "{text}");
        let printed = item.to_string();
        assert_eq!(
            Source::parse(&printed).expect("printed text reads back").items,
            std::slice::from_ref(item),
            "{printed}"
        );
    }
    source.items
}

#[test]
fn examples_parse_verify_and_read_back() {
    let examples = blocks(PAGE, "lir");
    assert!(examples.len() >= 5, "only {} examples", examples.len());
    let items: Vec<Item> = examples.iter().flat_map(|(text, _)| check("ir.md", text)).collect();
    // The plan is the one of the module.
    let module = items.iter().find_map(|i| if let Item::Module(m) = i { Some(m) } else { None }).expect("a module");
    let plan = items.iter().find_map(|i| if let Item::Plan(p) = i { Some(p) } else { None }).expect("a plan");
    assert_eq!(verify_packed(plan, &module.weights), []);
    same_logits(module, plan);
}

/// The plan computes the same as the module, except for int8 weights and activations in its
/// feed-forward block.
fn same_logits(module: &Module, plan: &Plan) {
    let mut seed = 1u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        half::bf16::from_f32((seed >> 40) as f32 / (1 << 23) as f32 - 1.0).to_f32()
    };
    let weights: Vec<Vec<f32>> = module
        .weights
        .iter()
        .map(|w| w.data.clone().unwrap_or_else(|| (0..w.ty.elements().expect("static")).map(|_| random()).collect()))
        .collect();
    let mut batch = Batch::default();
    batch.push(0, &[1, 2, 3], 0);
    batch.push(1, &[40], 7);
    let want = eval_module(module, &|i| weights[i].clone(), &mut [], &batch).expect("evaluates");
    let leaf = |i: usize| {
        let shape: Vec<usize> = module.weights[i].ty.shape.iter().filter_map(|d| d.known()).collect();
        Ok(WeightTensor::new(shape, weights[i].clone()).expect("fits"))
    };
    let packed = |w: &PackedWeight| {
        let tensor = eval_weight(&w.expr, &leaf).expect("evaluates");
        let Storage::Matrix { n, k, format } = w.storage else { panic!("the example has only matrices") };
        let mut bytes = vec![0; format.packed_bytes(n, k)];
        for (rows, block) in tensor.data.chunks(BLOCK * k).zip(bytes.chunks_mut(format.block_bytes(k))) {
            pack_block(format, rows, k, block).expect("packs");
        }
        Cow::Owned(bytes)
    };
    let packed: Vec<Cow<[u8]>> = plan.weights.iter().map(packed).collect();
    let got = eval_plan(plan, &packed, &mut [], &batch).expect("runs");
    assert_eq!(got.len(), want.len());
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|v| v * v).sum::<f64>().sqrt();
    let off = norm(&mut want.iter().zip(&got).map(|(a, b)| a - f64::from(*b))) / norm(&mut want.iter().copied());
    // A step of int8 is 1/127 of a group's largest element, for both factors of two products.
    assert!(off > 0.0 && off < 2.0 / 127.0, "relative error {off}");
}

#[test]
fn samples_of_the_text_tests_verify() {
    check("module.lir", include_str!("lir/module.lir"));
    check("kernels.lir", include_str!("lir/kernels.lir"));
}

#[test]
fn errors_look_as_shown() {
    let examples = blocks(PAGE, "lir-error");
    assert!(!examples.is_empty());
    for (text, shown) in examples {
        let errors = Source::parse(text).expect_err("the example is wrong");
        let rendered: Vec<String> = errors.iter().map(|e| render(e, text, "ir.md")).collect();
        assert_eq!(rendered.join("\n").trim_end(), shown);
    }
}

#[test]
fn elementwise_operations_are_documented() {
    let names = UnaryOp::ALL.iter().map(|(_, n)| n).chain(BinaryOp::ALL.iter().map(|(_, n)| n));
    let words: Vec<&str> = PAGE.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    for name in names {
        assert!(words.contains(name), "docs/ir.md does not mention `{name}`");
    }
}

/// Codes in calls of the given functions in the sources of a folder: `error("code", …)`.
fn codes(folder: &str, functions: &[&str]) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut codes = vec![];
    for entry in std::fs::read_dir(&folder).expect("the sources are there") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|e| e != "rs") || path.ends_with("tests.rs") {
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("readable");
        let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for function in functions {
            let call = format!("{function}(");
            let calls = source.split(&call).skip(1);
            let code = |call: &str| Some(call.trim_start().strip_prefix('"')?.split_once('"')?.0.to_string());
            codes.extend(
                calls
                    .filter_map(code)
                    .filter(|c| c.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')),
            );
        }
    }
    assert!(codes.len() > 10, "found only {codes:?}");
    codes
}

#[test]
fn every_error_code_is_documented() {
    let mut all = codes("src/verify", &["error", "warning", "range"]);
    all.extend(codes("src/text", &["fault", "error"]));
    all.extend(llmcc_ir::gpu::verify::RULES.iter().map(|(code, _)| code.to_string()));
    for code in all {
        assert!(PAGE.contains(&format!("`{code}`")), "docs/ir.md does not list the error `{code}`");
    }
}
