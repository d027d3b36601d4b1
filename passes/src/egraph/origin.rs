//! Which rule or phase added each node of an e-graph, by the order of their addition, and which joined two classes.

use egg::Id;

/// Two classes that a rule found to be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// A node of each.
    pub nodes: [Id; 2],
    /// The rule.
    pub rule: &'static str,
}

/// Names of the rules and phases that added the nodes, as runs of nodes in the order of their addition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// The end of each run, ascending, and its name.
    runs: Vec<(usize, &'static str)>,
}

impl Origins {
    /// The nodes added since the last run, up to the first `nodes` of the graph, are from `name`.
    pub(super) fn until(&mut self, nodes: usize, name: &'static str) {
        match self.runs.last_mut() {
            Some((end, _)) if *end >= nodes => {}
            Some((end, last)) if *last == name => *end = nodes,
            _ => self.runs.push((nodes, name)),
        }
    }

    /// The origin of node `at`.
    pub(super) fn of(&self, at: usize) -> Option<&'static str> {
        self.runs.get(self.runs.partition_point(|(end, _)| *end <= at)).map(|(_, name)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
