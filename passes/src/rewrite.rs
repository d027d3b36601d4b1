//! Single passes on functions of the graph level, for people who look at what a rewrite does (`llmcc opt`).
//!
//! A pass puts a function into an e-graph, applies some of the [`rules`] to saturation, and takes out the function
//! with the least work at run time. Among equal ones that is the one with the fewest terms of the original: a rewrite
//! that saves nothing is shown all the same.

use crate::PassError;
use crate::egraph::convert::{Converted, convert};
use crate::egraph::{Graph, Term, classes, members, operation};
use crate::rules::{self, Rule, THEMES};
use egg::{Id, Language};
use llmcc_ir::diag::Severity;
use llmcc_ir::graph::{Func, Node, Op, Value, ValueType};
use llmcc_ir::ty::Dim;
use llmcc_ir::verify::verify_func;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A pass by its name.
#[derive(Clone)]
pub struct Pass {
    /// Name.
    pub name: &'static str,
    rules: Vec<&'static Rule>,
}

/// The pass of all rewrites.
pub const ALL: &str = "rewrite";
/// The pass without a rewrite: equal operations become one, and unused ones none.
pub const DEDUP: &str = "dedup";

/// The pass of a name: a rule's, a theme's, [`ALL`] or [`DEDUP`].
pub fn find(name: &str) -> Option<Pass> {
    passes().find(|(pass, _)| pass.name == name).map(|(pass, _)| pass)
}

/// Every pass, with a line about it.
pub fn passes() -> impl Iterator<Item = (Pass, String)> {
    let common = [
        (Pass { name: DEDUP, rules: vec![] }, "equal operations become one, unused ones none".to_owned()),
        (Pass { name: ALL, rules: rules::all().collect() }, "all rewrites below, to saturation".to_owned()),
    ];
    let theme = |(name, rules): &(&'static str, &'static [Rule])| {
        let pass = Pass { name, rules: rules.iter().collect() };
        let of_theme = rules.iter().map(|r| (Pass { name: r.name, rules: vec![r] }, said(r)));
        let about = format!("the {} rewrites of passes/src/rules/{name}.rs", rules.len());
        std::iter::once((pass, about)).chain(of_theme).collect::<Vec<_>>()
    };
    common.into_iter().chain(THEMES.iter().flat_map(theme))
}

/// A rule as text.
fn said(rule: &Rule) -> String {
    match rule.right {
        rules::Right::Text(right) => format!("{} => {right}", rule.left),
        rules::Right::Build(_) => format!("{} => (built by a function)", rule.left),
    }
}

/// A function after a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewritten {
    /// The function.
    pub func: Func,
    /// How often each rule was applied, those that never were left out.
    pub applied: BTreeMap<String, usize>,
    /// Whether the saturation ended before a limit.
    pub saturated: bool,
}

/// Applies a pass to a function. Its parameters and results stay as they are.
///
/// # Errors
/// A function that breaks the rules of the graph level.
pub fn rewrite(func: &Func, pass: &Pass) -> Result<Rewritten, PassError> {
    if let Some(d) = verify_func(func).into_iter().find(|d| d.severity == Severity::Error) {
        return Err(PassError::invalid(func, d.to_string()));
    }
    let Converted { graph, roots, results, .. } = convert(func, true)?;
    let original: BTreeSet<Term> = graph.nodes().iter().cloned().collect();
    let rules::Applied { graph, applied, saturated, .. } = rules::apply(graph, &pass.rules);
    let original = original.into_iter().map(|t| t.map_children(|c| graph.find(c))).collect();
    let rebuilt = Rebuilding::new(&graph, original).func(func, &roots, results)?;
    match verify_func(&rebuilt).into_iter().find(|d| d.severity == Severity::Error) {
        Some(d) => Err(PassError::Verify { pass: "rewrite", what: d.to_string() }),
        None => Ok(Rewritten { func: rebuilt, applied, saturated }),
    }
}

/// Cost of a term with all that it needs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost {
    /// Multiply-adds and elements of a token at run time.
    work: f64,
    /// Terms of the original function.
    original: f64,
    /// Terms.
    terms: f64,
}

impl Cost {
    fn plus(self, other: Cost) -> Cost {
        let (work, original) = (self.work + other.work, self.original + other.original);
        Cost { work, original, terms: self.terms + other.terms }
    }

    fn order(&self, other: &Cost) -> Ordering {
        let key = |c: &Cost| [c.work, c.original, c.terms];
        let pairs = key(self).into_iter().zip(key(other));
        pairs.map(|(a, b)| a.total_cmp(&b)).find(|o| *o != Ordering::Equal).unwrap_or(Ordering::Equal)
    }
}

/// The cheapest term of each class, and the function made of them so far.
struct Rebuilding<'a> {
    graph: &'a Graph,
    original: BTreeSet<Term>,
    best: BTreeMap<Id, (Cost, &'a Term)>,
    nodes: Vec<Node>,
    values: BTreeMap<Id, Value>,
}

impl<'a> Rebuilding<'a> {
    fn new(graph: &'a Graph, original: BTreeSet<Term>) -> Rebuilding<'a> {
        let mut this = Rebuilding { graph, original, best: BTreeMap::new(), nodes: vec![], values: BTreeMap::new() };
        let classes = classes(graph);
        let mut changed = true;
        while changed {
            changed = false;
            for class in &classes {
                for term in members(class) {
                    let Some(cost) = this.cost(class.id, term) else { continue };
                    if this.best.get(&class.id).is_none_or(|(old, _)| cost.order(old) == Ordering::Less) {
                        this.best.insert(class.id, (cost, term));
                        changed = true;
                    }
                }
            }
        }
        this
    }

    /// The cost of a term, once its operands have theirs.
    fn cost(&self, class: Id, term: &Term) -> Option<Cost> {
        let (work, original) = match term {
            Term::Op(..) => (self.work(class, term), f64::from(u8::from(self.original.contains(term)))),
            Term::Param(_) | Term::Int(_) | Term::Float(_) | Term::Attr(_) => (0.0, 0.0),
            Term::Quant(_) | Term::Kernel(..) | Term::Proj(..) | Term::Store(..) => return None,
        };
        let own = Cost { work, original, terms: 1.0 };
        term.children().iter().try_fold(own, |sum, child| Some(sum.plus(self.best.get(&self.graph.find(*child))?.0)))
    }

    /// The work of an operation for one token: nothing where it is done when packing.
    fn work(&self, class: Id, term: &Term) -> f64 {
        let data = &self.graph[class].data;
        if data.weight {
            return 0.0;
        }
        let elements = data.ty.as_ref().map_or(0.0, elements);
        let depth = match operation(self.graph, term) {
            Some((Op::MatMul, [x, _])) => self.graph[*x].data.cols().unwrap_or(1) as f64,
            _ => 1.0,
        };
        elements * depth
    }

    /// The function with the chosen terms.
    fn func(mut self, func: &Func, roots: &[Id], results: usize) -> Result<Func, PassError> {
        for i in 0..func.params.len() {
            if let Some(class) = self.graph.lookup(Term::Param(i as u32)) {
                self.values.entry(class).or_insert(Value(i as u32));
            }
        }
        let values: Option<Vec<Value>> = roots.iter().map(|root| self.value(func, self.graph.find(*root))).collect();
        let values = values.ok_or_else(|| PassError::invalid(func, "a result has no term".into()))?;
        Ok(Func {
            name: func.name.clone(),
            params: func.params.clone(),
            nodes: self.nodes,
            results: values[..results].to_vec(),
        })
    }

    /// The value of a class, computed by new operations where there is none yet. Files may nest
    /// operations to any depth, so this keeps its own stack.
    fn value(&mut self, func: &Func, root: Id) -> Option<Value> {
        let mut open = vec![root];
        while let Some(&class) = open.last() {
            if self.values.contains_key(&class) {
                open.pop();
                continue;
            }
            let (op, operands) = self.chosen(class)?;
            let missing: Vec<Id> = operands.iter().rev().copied().filter(|c| !self.values.contains_key(c)).collect();
            if missing.is_empty() {
                self.append(func, class, op, &operands)?;
                open.pop();
            }
            open.extend(missing);
        }
        self.values.get(&root).copied()
    }

    /// The operation of the cheapest term of a class, and the classes of its operands.
    fn chosen(&self, class: Id) -> Option<(Op, Vec<Id>)> {
        let term = self.best.get(&class)?.1;
        if let Term::Float(value) = term {
            return Some((Op::Const { value: *value }, vec![]));
        }
        let (op, operands) = operation(self.graph, term)?;
        let operands = if op.facts().variadic { self.spread(&op, operands) } else { operands.to_vec() };
        Some((op, operands.into_iter().map(|c| self.graph.find(c)).collect()))
    }

    /// Appends the operation that computes a class.
    fn append(&mut self, func: &Func, class: Id, op: Op, operands: &[Id]) -> Option<()> {
        let args: Vec<Value> = operands.iter().map(|c| self.values.get(c).copied()).collect::<Option<_>>()?;
        let types: Vec<ValueType> = args.iter().map(|v| self.ty(func, *v)).collect::<Option<_>>()?;
        let ty = op.infer(&types).ok()?;
        let value = Value((func.params.len() + self.nodes.len()) as u32);
        self.nodes.push(Node { op, args, ty });
        self.values.insert(class, value);
        Some(())
    }

    /// The operands of an operation of any number of them, which nests to the right in the e-graph.
    fn spread(&self, op: &Op, operands: &[Id]) -> Vec<Id> {
        let mut all = operands.to_vec();
        while let Some(last) = all.last().map(|c| self.graph.find(*c)) {
            let inner = self.best.get(&last).and_then(|(_, term)| operation(self.graph, term));
            match inner {
                Some((same, parts)) if same == *op && !self.values.contains_key(&last) => {
                    all.pop();
                    all.extend(parts);
                }
                _ => break,
            }
        }
        all
    }

    fn ty(&self, func: &Func, v: Value) -> Option<ValueType> {
        let i = v.0 as usize;
        match func.params.get(i) {
            Some(p) => Some(p.ty.clone()),
            None => self.nodes.get(i - func.params.len()).map(|n| n.ty.clone()),
        }
    }
}

/// Elements of a value of one token and one row.
fn elements(ty: &ValueType) -> f64 {
    let size = |d: &Dim| match d {
        Dim::Static(n) => *n as f64,
        Dim::Tokens | Dim::Rows => 1.0,
    };
    ty.tensor().map_or(0.0, |t| t.shape.iter().map(size).product())
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmcc_ir::text::{parse_func, print_func};

    fn run(text: &str, pass: &str) -> Rewritten {
        rewrite(&parse_func(text).unwrap(), &find(pass).unwrap()).unwrap()
    }

    const NORMED: &str = "func @f(%x: f32[T, 8], %g: f32[8] weight, %w: f32[4, 8] weight) -> (f32[T, 4]) {
  %h = mul(%x, %g) : f32[T, 8]
  %again = mul(%x, %g) : f32[T, 8]
  %unused = add(%h, %again) : f32[T, 8]
  %y = matmul(%again, %w) : f32[T, 4]
  return %y
}
";

    #[test]
    fn a_rewrite_alone() {
        let done = run(NORMED, "gain-into-matrix");
        let text = print_func(&done.func);
        assert!(text.contains("scale_cols(%w, %g)") && !text.contains(" mul("), "{text}");
        assert_eq!(done.applied.get("gain-into-matrix"), Some(&1));
        assert!(done.saturated);
        // By the theme and by all of them, too.
        for pass in ["scale", ALL] {
            assert_eq!(run(NORMED, pass).func, done.func, "{pass}");
        }
    }

    #[test]
    fn without_a_rewrite_equal_operations_become_one() {
        let done = run(NORMED, DEDUP);
        assert_eq!(done.func.nodes.len(), 2, "{}", print_func(&done.func));
        assert!(done.applied.is_empty());
        let again = rewrite(&done.func, &find(DEDUP).unwrap()).unwrap();
        assert_eq!(again.func, done.func);
    }

    #[test]
    fn operations_of_many_operands_come_back() {
        let text = "func @f(%x: f32[T, 8], %y: f32[T, 4]) -> (f32[T, 24]) {
  %z = concat_cols(%x, %y, %y, %x) : f32[T, 24]
  return %z
}
";
        let done = run(text, DEDUP);
        assert_eq!(done.func, parse_func(text).unwrap());
    }

    #[test]
    fn names_of_passes_differ() {
        let names: Vec<&str> = passes().map(|(pass, _)| pass.name).collect();
        let different: BTreeSet<&&str> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
        assert!(find("no-such-pass").is_none());
    }
}
