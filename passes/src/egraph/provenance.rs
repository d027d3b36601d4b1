//! The members of the classes of an e-graph with the rules and phases that added them.

use super::{Graph, Term};
use egg::{Id, Language};
use std::collections::BTreeMap;

/// Notes that all nodes without an origin were added by `name`.
pub fn note(g: &mut Graph, name: &'static str) {
    let nodes = g.nodes().len();
    g.analysis.origins.until(nodes, name);
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
}
