//! Weight expressions: what a class of weights is computed from when packing.

use crate::egraph::{Graph, Head, Term};
use egg::Id;
use llmcc_ir::plan::WeightExpr;
use std::collections::BTreeMap;

/// The smallest expression of every class of weights, over the function's parameters (`Weight(i)` = parameter `i`).
pub struct WeightTerms {
    best: BTreeMap<Id, (usize, WeightExpr)>,
}

impl WeightTerms {
    /// Computes the expressions of all classes.
    pub fn new(g: &Graph) -> WeightTerms {
        let mut ids: Vec<Id> = g.classes().filter(|c| c.data.weight).map(|c| c.id).collect();
        ids.sort();
        let mut terms = WeightTerms { best: BTreeMap::new() };
        loop {
            let mut changed = false;
            for id in &ids {
                let found = g[*id].nodes.iter().filter_map(|t| terms.term(g, t)).min();
                if let Some(found) = found
                    && terms.best.get(id).is_none_or(|old| found < *old)
                {
                    terms.best.insert(*id, found);
                    changed = true;
                }
            }
            if !changed {
                return terms;
            }
        }
    }

    /// The expression of a class.
    pub fn get(&self, g: &Graph, class: Id) -> Option<&WeightExpr> {
        self.best.get(&g.find(class)).map(|(_, e)| e)
    }

    fn term(&self, g: &Graph, t: &Term) -> Option<(usize, WeightExpr)> {
        let (head, children) = match t {
            Term::Param(i) => return Some((1, WeightExpr::Weight(*i as usize))),
            Term::Float(c) => return Some((1, WeightExpr::Const(*c))),
            Term::Op(head, children) => (*head, children),
            Term::Int(_) | Term::Kernel(..) | Term::Proj(..) | Term::Store(..) => return None,
        };
        let (attrs, args) = children.split_at(head.attributes());
        let args: Option<Vec<&(usize, WeightExpr)>> = args.iter().map(|c| self.best.get(&g.find(*c))).collect();
        let args = args?;
        let size = 1 + args.iter().map(|a| a.0).sum::<usize>();
        let arg = |i: usize| Box::new(args[i].1.clone());
        let expr = match head {
            Head::Transpose => WeightExpr::Transpose(arg(0)),
            Head::ScaleCols => WeightExpr::ScaleCols(arg(0), arg(1)),
            Head::ScaleRows => WeightExpr::ScaleRows(arg(0), arg(1)),
            Head::ConcatRows => WeightExpr::ConcatRows(flatten(&args.iter().map(|a| &a.1).collect::<Vec<_>>())),
            Head::SliceRows => WeightExpr::SliceRows(g[attrs[0]].data.int?, g[attrs[1]].data.int?, arg(0)),
            Head::Binary(b) => WeightExpr::Binary(b, arg(0), arg(1)),
            Head::Unary(u) => WeightExpr::Unary(u, arg(0)),
            _ => return None,
        };
        Some((size, expr))
    }
}

fn flatten(parts: &[&WeightExpr]) -> Vec<WeightExpr> {
    let each = |p: &&WeightExpr| match p {
        WeightExpr::ConcatRows(xs) => xs.clone(),
        other => vec![(*other).clone()],
    };
    parts.iter().flat_map(each).collect()
}

/// Replaces parameter numbers by module weights; `None` if a parameter is not bound to a weight.
pub fn substitute(e: &WeightExpr, weight: &impl Fn(usize) -> Option<usize>) -> Option<WeightExpr> {
    let sub = |x: &WeightExpr| substitute(x, weight).map(Box::new);
    Some(match e {
        WeightExpr::Weight(i) => WeightExpr::Weight(weight(*i)?),
        WeightExpr::Const(c) => WeightExpr::Const(*c),
        WeightExpr::Transpose(x) => WeightExpr::Transpose(sub(x)?),
        WeightExpr::ScaleCols(a, b) => WeightExpr::ScaleCols(sub(a)?, sub(b)?),
        WeightExpr::ScaleRows(a, b) => WeightExpr::ScaleRows(sub(a)?, sub(b)?),
        WeightExpr::ConcatRows(xs) => WeightExpr::ConcatRows(xs.iter().map(|x| substitute(x, weight)).collect::<Option<_>>()?),
        WeightExpr::SliceRows(s, n, x) => WeightExpr::SliceRows(*s, *n, sub(x)?),
        WeightExpr::Binary(op, a, b) => WeightExpr::Binary(*op, sub(a)?, sub(b)?),
        WeightExpr::Unary(op, x) => WeightExpr::Unary(*op, sub(x)?),
    })
}
