//! E-graphs as text and as graphs: every member of every class, the rule or phase that added it, its predicted time in
//! each regime, and which of them were chosen.

use crate::egraph::{Data, Graph, Term, classes, members, provenance};
use crate::extract::{Problem, Solved};
use egg::{EClass, Id, Language};
use llmcc_ir::text::dot::Dot;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Predicted seconds of the members of classes in a regime, and whether they were chosen.
#[derive(Clone, Debug, Default)]
pub struct Costs(BTreeMap<(Id, usize), (f64, bool)>);

impl Costs {
    /// The costs of a solved problem.
    pub fn of(problem: &Problem, solved: &Solved) -> Costs {
        let mut all = BTreeMap::new();
        for (class, candidates) in &problem.classes {
            for (i, c) in candidates.iter().enumerate() {
                if let Some(node) = c.node {
                    all.insert((*class, node), (c.seconds, solved.chosen.get(class) == Some(&i)));
                }
            }
        }
        Costs(all)
    }
}

/// The lines before the functions.
pub const LEGEND: &str = "\
; A class has its members below it: terms that are equal. Behind `;` is the rule or phase that added a member, and of
; kernels the predicted time in each regime in µs: `*` is the choice, `-` a kernel that the regime cannot have.
; A rule that found two classes equal, both of which were there, stands above the members with a term of each.
";

/// The e-graph of a function.
pub struct Dump<'a> {
    /// Name of the function.
    pub func: &'a str,
    /// Its e-graph.
    pub graph: &'a Graph,
    /// Costs by regime.
    pub costs: &'a [Costs],
}

impl Dump<'_> {
    /// The classes in order of their ids, with their types and members.
    pub fn text(&self) -> String {
        let (origins, joins) = (provenance::origins(self.graph), provenance::joins(self.graph));
        let mut out = format!("func {} ({} nodes)\n", self.func, self.graph.total_number_of_nodes());
        for c in classes(self.graph) {
            let _ = writeln!(out, "  {}{}", c.id, class_type(c));
            for line in joins.get(&c.id).into_iter().flatten().map(join) {
                let _ = writeln!(out, "    ; {line}");
            }
            for (i, n) in members(c).into_iter().enumerate() {
                let about = self.about(&origins, c.id, n, i);
                let comment = if about.is_empty() { String::new() } else { format!("  ; {about}") };
                let _ = writeln!(out, "    {}{comment}", written(n));
            }
        }
        out
    }

    /// The classes as clusters of their members, with an edge from each operand's class to the member that reads it.
    /// Attributes stand in the labels. Chosen members are marked.
    pub fn dot(&self, dot: &mut Dot) {
        let (origins, joins) = (provenance::origins(self.graph), provenance::joins(self.graph));
        let id = |class: Id, member: usize| format!("{}.{class}.{member}", self.func);
        let is_value = |c: &EClass<Term, Data>| c.data.ty.is_some() || !c.nodes.iter().all(is_leaf);
        let values: Vec<&EClass<Term, Data>> = classes(self.graph).into_iter().filter(|c| is_value(c)).collect();
        for c in &values {
            let lines = joins.get(&c.id).into_iter().flatten().map(|j| format!("\n{}", join(j))).collect::<String>();
            dot.open(&format!("{}.{}", self.func, c.id), &format!("{}{}{lines}", c.id, class_type(c)));
            for (i, n) in members(c).into_iter().enumerate() {
                let about = self.about(&origins, c.id, n, i);
                dot.step(&id(c.id, i), &format!("{}\n{about}", written(n)));
            }
            dot.close();
        }
        for c in &values {
            for (i, n) in members(c).into_iter().enumerate() {
                for child in n.children().iter().map(|child| self.graph.find(*child)) {
                    if is_value(&self.graph[child]) {
                        dot.edge(&id(child, 0), &id(c.id, i), "");
                    }
                }
            }
        }
    }

    /// The origin of a member, and its costs.
    fn about(&self, origins: &BTreeMap<(Id, Term), &'static str>, class: Id, n: &Term, member: usize) -> String {
        let canonical = n.clone().map_children(|c| self.graph.find(c));
        let mut parts: Vec<String> =
            origins.get(&(class, canonical)).map(|name| (*name).to_owned()).into_iter().collect();
        let costs: Vec<String> = self.costs.iter().map(|c| cost(c, class, member)).collect();
        if costs.iter().any(|c| c != "-") {
            parts.push(costs.join(" "));
        }
        parts.join(": ")
    }
}

/// Terms of two classes, and the rule that joined these.
fn join(([left, right], rule): &([Term; 2], &'static str)) -> String {
    format!("{} = {}: {rule}", written(left), written(right))
}

/// Microseconds, with the mark of the choice.
fn cost(costs: &Costs, class: Id, member: usize) -> String {
    match costs.0.get(&(class, member)) {
        Some((seconds, chosen)) => format!("{:.3}{}", seconds * 1e6, if *chosen { "*" } else { "" }),
        None => "-".into(),
    }
}

fn is_leaf(n: &Term) -> bool {
    matches!(n, Term::Int(_) | Term::Float(_) | Term::Attr(_))
}

fn class_type(c: &EClass<Term, Data>) -> String {
    c.data.ty.as_ref().map_or(String::new(), |t| format!(": {t}"))
}

fn written(n: &Term) -> String {
    let children: Vec<String> = n.children().iter().map(ToString::to_string).collect();
    format!("{n}({})", children.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egraph::Facts;

    /// A rule that joined two classes stands above the members of the one that they are now.
    #[test]
    fn joins_are_written_with_their_rule() {
        let mut g = Graph::new(Facts::default());
        let [one, two] = [1, 2].map(|i| g.add(Term::Int(i)));
        provenance::note(&mut g, "model");
        let dump = |g: &Graph| Dump { func: "f", graph: g, costs: &[] }.text();
        assert!(!dump(&g).contains("a-rule"));
        provenance::joined(&mut g, [one, two], "a-rule");
        g.union(one, two);
        g.rebuild();
        let text = dump(&g);
        let joined = format!("    ; {} = {}: a-rule\n", written(&Term::Int(1)), written(&Term::Int(2)));
        assert!(text.contains(&joined), "{text}");
    }
}
