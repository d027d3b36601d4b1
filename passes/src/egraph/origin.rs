//! Which rule or phase added each node of an e-graph.

use super::{Graph, Term};
use egg::{Id, Language};
use std::collections::BTreeMap;

/// Names of the rules and phases that added the nodes, as runs of nodes in the order of their addition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// The end of each run, ascending, and its name.
    runs: Vec<(usize, &'static str)>,
}

impl Origins {
    /// The nodes added since the last run, up to the first `nodes` of the graph, are from `name`.
    fn until(&mut self, nodes: usize, name: &'static str) {
        match self.runs.last_mut() {
            Some((end, _)) if *end >= nodes => {}
            Some((end, last)) if *last == name => *end = nodes,
            _ => self.runs.push((nodes, name)),
        }
    }

    /// The origin of node `at`.
    fn of(&self, at: usize) -> Option<&'static str> {
        self.runs.get(self.runs.partition_point(|(end, _)| *end <= at)).map(|(_, name)| *name)
    }
}

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

    #[test]
    fn nodes_know_who_added_them() {
        let mut origins = Origins::default();
        for (nodes, name) in [(2, "model"), (2, "nothing"), (5, "a"), (6, "a"), (9, "b")] {
            origins.until(nodes, name);
        }
        assert_eq!(origins.runs, [(2, "model"), (6, "a"), (9, "b")]);
        let names: Vec<_> = (0..10).map(|i| origins.of(i).unwrap_or("?")).collect();
        assert_eq!(names, ["model", "model", "a", "a", "a", "a", "b", "b", "b", "?"]);
    }

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
        let all = super::origins(&g);
        assert_eq!(all.get(&(class, Term::Int(1))), Some(&"model"));
        assert_eq!(all.get(&(class, Term::Int(2))), Some(&"a-rule"));
        assert_eq!(all.len(), 2);
    }
}
