//! Round trips of random IR, hostile texts, and the table of operations.

use super::testing;
use super::*;
use crate::graph::{Attr, BinaryOp, F32, Head, Op, UnaryOp};
use crate::kernel::{Body, Expr};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const MODULE: &str = include_str!("../../tests/lir/module.lir");
const KERNELS: &str = include_str!("../../tests/lir/kernels.lir");
const PLAN: &str = include_str!("../../tests/lir/plan.lir");

/// Fails with the rendered errors.
fn ok<T>(text: &str, parsed: Result<T, Vec<Diagnostic>>) -> T {
    parsed.unwrap_or_else(|errors| {
        panic!("{}{text}", errors.iter().map(|e| render(e, text, "printed.lir")).collect::<String>())
    })
}

proptest! {
    #![proptest_config(Config::with_cases(400))]

    #[test]
    fn modules_round_trip(m in testing::module()) {
        let text = print_module(&m);
        prop_assert_eq!(ok(&text, parse_module(&text)), m);
    }

    #[test]
    fn functions_round_trip(f in testing::func()) {
        let text = print_func(&f);
        prop_assert_eq!(ok(&text, parse_func(&text)), f);
    }

    #[test]
    fn kernels_round_trip(k in testing::kernel()) {
        let text = print_kernel(&k);
        prop_assert_eq!(ok(&text, parse_kernel(&text)), k);
    }

    #[test]
    fn plans_round_trip(p in testing::plan()) {
        let text = print_plan(&p);
        prop_assert_eq!(ok(&text, parse_plan(&text)), p);
    }

    #[test]
    fn every_operation_is_in_the_table_under_its_name(op in testing::op()) {
        let head = Head::parse(op.name()).expect("in the table");
        let (names, values): (Vec<&str>, Vec<Attr>) = op.attributes().into_iter().unzip();
        prop_assert_eq!(names, head.attributes().iter().map(|(name, _)| *name).collect::<Vec<_>>());
        prop_assert_eq!(head.build(&values), Some(op.clone()));
        prop_assert_eq!(head.build(&[&values[..], &[Attr::Size(0)]].concat()), None);
        prop_assert!(Head::names().contains(&op.name()) && op.head() == head);
    }

    #[test]
    fn floats_keep_their_bits(bits in any::<u32>()) {
        let x = f32::from_bits(bits);
        let text = format!("func @f() -> (f32[]) {{\n  %c = const{{value={}}} : f32[]\n  return %c\n}}", names::Float(x));
        let f = ok(&text, parse_func(&text));
        prop_assert_eq!(&f.nodes[0].op, &Op::Const { value: F32::new(x) });
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in any::<String>()) {
        fuzz::lir(text.as_bytes());
    }
}

proptest! {
    #![proptest_config(Config::with_cases(100))]

    #[test]
    fn the_verifier_has_an_answer_to_all_that_can_be_written(
        m in testing::module(), f in testing::func(), k in testing::kernel(), p in testing::plan()
    ) {
        for item in [Item::Module(m), Item::Func(f), Item::Kernel(k), Item::Plan(p)] {
            let _ = item.findings();
        }
    }
}

/// A fixed sequence of pseudo-random numbers (xorshift64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

/// Bytes that the language gives a meaning, to reach further than random ones do.
const PIECES: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    ",",
    ":",
    "=",
    "%",
    "@",
    "\"",
    "..",
    "->",
    "-",
    "#",
    ";",
    "\n",
    "\\",
    "0",
    "18446744073709551616",
    "1e99",
    "T",
    "weight ",
    "kv ",
    "acc0",
    "func ",
    "segment ",
    "é",
    "\u{ff}\0",
];

#[test]
fn mutated_texts_do_not_panic() {
    let mut rng = Rng(0x9E37_79B9_7F4A_7C15);
    for round in 0..10_000 {
        let sample = [MODULE, KERNELS, PLAN][round % 3].as_bytes();
        // A window of the sample, so that the mutation lies near.
        let from = if rng.below(2) == 0 { 0 } else { rng.below(sample.len()) };
        let mut text = sample[from..(from + 600).min(sample.len())].to_vec();
        for _ in 0..=rng.below(3) {
            let at = rng.below(text.len());
            match rng.below(4) {
                0 => text[at] = rng.below(256) as u8,
                1 => drop(text.drain(at..(at + rng.below(20)).min(text.len()))),
                2 => drop(text.splice(at..at, PIECES[rng.below(PIECES.len())].bytes())),
                _ => {
                    let to = (at + rng.below(60)).min(text.len());
                    let copy = text[at..to].to_vec();
                    let into = rng.below(text.len());
                    drop(text.splice(into..into, copy));
                }
            }
            if text.is_empty() {
                break;
            }
        }
        fuzz::lir(&text);
    }
}

#[test]
fn every_prefix_of_the_samples_is_refused_or_read() {
    for sample in [MODULE, KERNELS, PLAN] {
        let step = (sample.len() / 400).max(1);
        for to in (0..sample.len()).step_by(step) {
            fuzz::lir(&sample.as_bytes()[..to]);
        }
    }
}

#[test]
fn deep_and_long_texts_neither_overflow_nor_slow_down() {
    let many = |piece: &str| piece.repeat(300_000);
    let segment = |e: &str| {
        format!("kernel @k rows T {{ param %y: rows f32[T, 1] pointwise {{ segment n=1 tile_n=1: %y[0..] = {e} }} }}")
    };
    for hostile in [many("("), many("neg("), many("1+"), many("-"), many("1*("), many("[")] {
        let errors = parse_kernel(&segment(&hostile)).expect_err("too deep");
        assert!(errors.len() <= lex::MAX_ERRORS);
    }
    for hostile in [
        many("{"),
        many("}"),
        many("("),
        many("func"),
        many("func @f("),
        many("\u{fffd} "),
        many("module \"\" {"),
        many("\""),
    ] {
        assert!(Source::parse(&hostile).expect_err("garbage").len() <= lex::MAX_ERRORS);
    }
    let errors = parse_kernel(&segment(&"1 + ".repeat(300))).expect_err("too high");
    assert_eq!(errors[0].code, "too-deep");
}

#[test]
fn expressions_up_to_the_limit_are_read() {
    let text = |e: String| {
        format!("kernel @k rows T {{ param %y: rows f32[T, 1] pointwise {{ segment n=1 tile_n=1: %y[0..] = {e} }} }}")
    };
    for e in [
        "1.0 + ".repeat(150) + "2.0",
        "neg(".repeat(150) + "1" + &")".repeat(150),
        "1 - (".repeat(95) + "1" + &")".repeat(95),
    ] {
        let k = ok("", parse_kernel(&text(e)));
        assert_eq!(ok("", parse_kernel(&print_kernel(&k))), k);
    }
}

#[test]
fn infix_needs_parentheses_only_where_the_tree_says_so() {
    let text = |e: &str| {
        format!("kernel @k rows T {{ param %y: rows f32[T, 1] pointwise {{ segment n=1 tile_n=1: %y[0..] = {e} }} }}")
    };
    let printed = |e: &str| {
        let k = ok(e, parse_kernel(&text(e)));
        let Body::Pointwise(b) = &k.body else { unreachable!("the text has a pointwise body") };
        let mut out = String::new();
        expr::print::<Expr>(&mut out, &b.segments[0].expr, &k.params);
        out
    };
    for same in [
        "1.0 - 2.0 - 3.0",
        "1.0 - (2.0 - 3.0)",
        "(1.0 + 2.0) * 3.0",
        "1.0 + 2.0 * 3.0",
        "-1.0 - -2.0",
        "max(1.0 + 2.0, neg(3.0)) / 4.0",
    ] {
        assert_eq!(printed(same), same);
    }
    assert_eq!(printed("add((1), mul(2, 3))"), "1.0 + 2.0 * 3.0");
    assert_eq!(printed("((1) - (2)) - 3"), "1.0 - 2.0 - 3.0");
}

#[test]
fn printing_is_linear_in_the_program() {
    // The largest program of the strategy's shapes repeated: 20 000 operations print and read back
    // at once.
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let mut f = (0..50)
        .map(|_| testing::func().new_tree(&mut runner).expect("generates").current())
        .max_by_key(|f| f.nodes.len())
        .expect("some");
    let nodes = f.nodes.clone();
    while f.nodes.len() < 20_000 {
        f.nodes.extend(nodes.iter().cloned());
    }
    let text = print_func(&f);
    assert_eq!(ok("", parse_func(&text)), f);
}

#[test]
fn findings_of_the_verifier_are_found_in_the_text() {
    let source = ok(MODULE, Source::parse(MODULE));
    let place = Place::Node { func: "layer".into(), node: 0, op: "normalize" };
    let d = source.locate(Diagnostic::error("example", place, "wrong"));
    let Place::Text(range) = d.place else { panic!("not located: {:?}", d.place) };
    assert!(MODULE[range.clone()].contains("= normalize{"), "{}", &MODULE[range]);
    let unknown = Diagnostic::error("example", Place::Slot { slot: 9 }, "wrong");
    assert_eq!(source.locate(unknown.clone()), unknown);
}

#[test]
fn every_operation_of_the_table_is_documented() {
    let page = include_str!("../../../docs/ir.md");
    let made_of_functions = |name: &str| UnaryOp::parse(name).is_some() || BinaryOp::parse(name).is_some();
    for name in
        Head::names().into_iter().filter(|name| !made_of_functions(name) && Head::parse(name) != Some(Head::Riffle))
    {
        let named = [format!("`{name}("), format!("`{name}{{")].iter().any(|n| page.contains(n.as_str()));
        assert!(named, "docs/ir.md has no line for `{name}`");
    }
}
