//! The cost of a new operation: a line of the table, and a file with its rule. Everything else of
//! this crate follows from the two; beyond it, `implement/way.rs` of the passes says how it is
//! computed.

use super::of::Riffle;
use super::rule::{Operands, Rule, Types};
use super::{Attr, AttrKind, AttrType, Head, Op};
use crate::eval::{Batch, EvalError, Tensor, Value, WeightTensor, eval_func, eval_weight};
use crate::graph::value::ValueType;
use crate::plan::WeightExpr;
use crate::text::{parse_func, parse_plan, print_func, print_plan};
use crate::verify::verify_func;

/// A set of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Parity {
    Even,
    Odd,
}

const WORDS: &[&str] = &["even", "odd"];

impl AttrType for Parity {
    const KIND: AttrKind = AttrKind::Word(WORDS);
    fn to_attr(&self) -> Attr {
        Attr::Word(WORDS[usize::from(*self == Parity::Odd)])
    }
    fn from_attr(attr: &Attr) -> Option<Parity> {
        match attr {
            Attr::Word("even") => Some(Parity::Even),
            Attr::Word("odd") => Some(Parity::Odd),
            _ => None,
        }
    }
}

impl Rule for Riffle {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (_, n) = a.activation(0)?;
        if self.by >= n || self.but.iter().any(|c| *c >= n) {
            return Err(format!("`riffle`: columns beyond {n}"));
        }
        Ok(a.args[0].clone())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let x = a.tensor(0)?;
        Ok(Value::tensor(x.map_rows(x.cols(), |i, row| {
            let mut row = row.to_vec();
            if (i % 2 == 1) == (self.rows == Parity::Odd) {
                self.but.iter().for_each(|c| row[*c] = 0.0);
                if self.left { row.rotate_left(self.by) } else { row.rotate_right(self.by) }
            }
            row
        })))
    }
}

const FUNC: &str = "func @f(
  %x: f32[T, 4],
) -> (f32[T, 4]) {
  %1 = riffle{by=1, left=true, rows=odd, but=[0, 2]}(%x) : f32[T, 4]
  return %1
}
";

fn riffle() -> Op {
    Op::Riffle { by: 1, left: true, rows: Parity::Odd, but: vec![0, 2] }
}

#[test]
fn it_is_read_verified_evaluated_and_printed() {
    let f = parse_func(FUNC).unwrap();
    assert_eq!(f.nodes[0].op, riffle());
    assert_eq!(verify_func(&f), []);
    assert_eq!(print_func(&f), FUNC);
    let x = Tensor::new([2, 4], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]).unwrap();
    let out = eval_func(&f, &[Value::tensor(x)], &mut [], &Batch::single(&[0, 0], 0)).unwrap();
    assert_eq!(out[0].data, [1.0, 2.0, 3.0, 4.0, 6.0, 0.0, 8.0, 0.0]);
}

#[test]
fn it_computes_weights_too() {
    let expr = WeightExpr::Op(riffle(), vec![WeightExpr::Weight(0)]);
    let leaf = |_| Ok(WeightTensor::new([2, 3], vec![0.1, 0.2, 0.3, 0.4, 0.5, 0.6]).unwrap());
    assert_eq!(eval_weight(&expr, &leaf).unwrap().data, [0.1, 0.2, 0.3, 0.5, 0.0, 0.0]);
    let text = "plan \"p\" {\n  info vocab=1 hidden=1 max_context=1\n  weight 0: vector f32[3] = riffle{by=1, left=true, rows=odd, but=[0, 2]}(weight 0) * 2.0\n  entry @step {\n    logits slot 0\n  }\n}\n";
    let plan = parse_plan(text).unwrap();
    assert!(matches!(&plan.weights[0].expr, WeightExpr::Op(Op::Binary(_), args) if args[0] == expr));
    assert_eq!(print_plan(&plan), text);
}

#[test]
fn its_mistakes_are_found() {
    let says = |text: &str, what: &str| {
        let found = match parse_func(text) {
            Ok(f) => verify_func(&f),
            Err(errors) => errors,
        };
        assert!(found.iter().any(|d| d.to_string().contains(what)), "{what}: {found:?}");
    };
    says(&FUNC.replace("odd", "add"), "`odd`");
    says(&FUNC.replace("true", "1"), "`false`, `true`");
    says(&FUNC.replace("[0, 2]", "2"), "expected `[`");
    says(&FUNC.replace(", but=[0, 2]", ""), "lacks `but`");
    says(&FUNC.replace("by=1", "by=4"), "columns beyond 4");
    says(&FUNC.replace("(%x)", "(%x, %x)"), "takes 1 arguments, not 2");
}

#[test]
fn the_head_of_every_name_builds_operations_of_that_name() {
    for name in Head::names() {
        let head = Head::parse(name).unwrap();
        assert_eq!(head.name(), name);
        let args = head.facts().args;
        assert!(!head.facts().variadic || !args.is_empty(), "`{name}`: which arguments may follow?");
    }
}

/// Files of the repository's production code that name it.
#[test]
fn it_is_named_in_two_files() {
    fn walk(dir: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs")
                && !path.ends_with("tests.rs")
                && std::fs::read_to_string(&path).unwrap().to_lowercase().contains("riffle")
            {
                found.push(path.file_name().unwrap().to_string_lossy().into_owned());
            }
        }
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = vec![];
    for dir in ["ir/src", "passes/src", "frontends/src", "codegen/src", "codegen/gpu/src", "cli/src"] {
        walk(&root.join(dir), &mut found);
    }
    found.sort();
    assert_eq!(found, ["mod.rs", "newcomer.rs"]);
}
