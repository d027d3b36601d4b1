//! Weight expressions: how packing computes a class of weights.

use crate::egraph::{Graph, Term, operation};
use egg::Id;
use llmcc_ir::graph::Op;
use llmcc_ir::plan::WeightExpr;
use std::collections::BTreeMap;

/// The smallest expression of every class of weights, over the function's parameters (`Weight(i)` =
/// parameter `i`).
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
        let head = match t {
            Term::Param(i) => return Some((1, WeightExpr::Weight(*i as usize))),
            Term::Float(c) => return Some((1, WeightExpr::Op(Op::Const { value: *c }, vec![]))),
            Term::Op(head, _) => *head,
            Term::Int(_) | Term::Attr(_) | Term::Quant(_) | Term::Kernel(..) | Term::Proj(..) | Term::Store(..) => {
                return None;
            }
        };
        if !head.packs() {
            return None;
        }
        let (op, args) = operation(g, t)?;
        let args: Option<Vec<&(usize, WeightExpr)>> = args.iter().map(|c| self.best.get(&g.find(*c))).collect();
        let args = args?;
        let size = 1 + args.iter().map(|a| a.0).sum::<usize>();
        let args = args.into_iter().flat_map(|(_, arg)| match arg {
            // Nested in the e-graph only.
            WeightExpr::Op(inner, parts) if *inner == op && head.facts().variadic => parts.clone(),
            arg => vec![arg.clone()],
        });
        Some((size, WeightExpr::Op(op.clone(), args.collect())))
    }
}
