//! The members of the classes of an e-graph with the rules and phases that added them, and the rules that joined
//! classes.

use super::origin::Join;
use super::{Graph, Term};
use egg::{Id, Language};
use std::collections::BTreeMap;

/// Notes that all nodes without an origin were added by `name`.
pub fn note(g: &mut Graph, name: &'static str) {
    let nodes = g.nodes().len();
    g.analysis.origins.until(nodes, name);
}

/// Notes that a rule finds two classes to be equal, unless they are one already.
pub fn joined(g: &mut Graph, nodes: [Id; 2], rule: &'static str) {
    let nodes = nodes.map(|id| g.find(id));
    if nodes[0] != nodes[1] {
        g.analysis.joins.push(Join { nodes, rule });
    }
}

/// The rules that joined earlier classes to each class: one term of either, and the rule.
pub fn joins(g: &Graph) -> BTreeMap<Id, Vec<([Term; 2], &'static str)>> {
    let mut all: BTreeMap<Id, Vec<_>> = BTreeMap::new();
    for join in &g.analysis.joins {
        let terms = join.nodes.map(|id| g.nodes().get(usize::from(id)).cloned());
        if let [Some(left), Some(right)] = terms {
            let terms = [left, right].map(|t| t.map_children(|c| g.find(c)));
            all.entry(g.find(join.nodes[0])).or_default().push((terms, join.rule));
        }
    }
    all
}

/// The origin of each member of each class. A node that several rules make has the one that was first.
pub fn origins(g: &Graph) -> BTreeMap<(Id, Term), &'static str> {
    let mut all = BTreeMap::new();
    for (i, node) in g.nodes().iter().enumerate() {
        let Some(name) = g.analysis.origins.of(i) else { continue };
        let canonical = node.clone().map_children(|c| g.find(c));
        all.entry((g.find(Id::from(i)), canonical)).or_insert(name);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egraph::Facts;

    /// Equal nodes are one, of the first origin, in whatever class they come to be.
    #[test]
    fn members_keep_their_origin_when_classes_join() {
        let mut g = Graph::new(Facts::default());
        let one = g.add(Term::Int(1));
        note(&mut g, "model");
        let two = g.add(Term::Int(2));
        g.add(Term::Int(1));
        note(&mut g, "a-rule");
        g.union(one, two);
        g.rebuild();
        let class = g.find(one);
        let all = origins(&g);
        assert_eq!(all.get(&(class, Term::Int(1))), Some(&"model"));
        assert_eq!(all.get(&(class, Term::Int(2))), Some(&"a-rule"));
        assert_eq!(all.len(), 2);
    }

    /// Rules that join classes are named with a term of each, wherever these end up.
    #[test]
    fn classes_know_which_rules_joined_them() {
        let mut g = Graph::new(Facts::default());
        let [one, two, three] = [1, 2, 3].map(|i| g.add(Term::Int(i)));
        for (a, b, rule) in [(one, two, "a-rule"), (two, one, "again"), (three, two, "another")] {
            joined(&mut g, [a, b], rule);
            g.union(a, b);
        }
        g.rebuild();
        let all = joins(&g);
        let expected = vec![
            ([Term::Int(1), Term::Int(2)], "a-rule"),
            ([Term::Int(3), g.nodes()[usize::from(one)].clone()], "another"),
        ];
        assert_eq!(all, BTreeMap::from([(g.find(one), expected)]));
    }
}
