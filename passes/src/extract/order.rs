//! Orders in which variables are eliminated: each time the variable with the least score, by several rules.

/// Variables that share functions.
#[derive(Clone)]
struct Graph {
    /// Logarithms of numbers of values.
    logs: Vec<f64>,
    /// Variables that share a function with each, ascending.
    near: Vec<Vec<usize>>,
}

/// A score that an order minimises.
struct Rule {
    score: fn(&Graph, usize) -> f64,
    /// Whether the score depends on the neighbours of neighbours, too.
    far: bool,
}

/// No rule is known to be best; making an order costs little. The first ones keep the remaining
/// functions small, and prefer large variables.
const RULES: [Rule; 5] = [
    Rule { score: |g, v| g.sum(&g.near[v]), far: false },
    Rule { score: |g, v| g.sum(&g.near[v]) - 0.5 * g.logs[v], far: false },
    Rule { score: |g, v| g.sum(&g.near[v]) - g.logs[v], far: false },
    Rule { score: |g, v| g.sum(&g.near[v]) - 1.5 * g.logs[v], far: false },
    // How many pairs of variables share a function that did not, weighted by their values.
    Rule { score: |g, v| g.near[v].iter().map(|w| g.logs[*w] * (g.missing(v, *w) - g.logs[*w])).sum(), far: true },
];

/// The order with the least number of sums, of equal ones that of the first rule, for variables with so many values
/// each, and functions of the variables in each scope. `None` where there are more than `most` sums.
pub(super) fn order<'a>(domains: &[usize], scopes: impl Iterator<Item = &'a [usize]>, most: f64) -> Option<Vec<usize>> {
    let graph = Graph::new(domains, scopes);
    let mut best: Option<(f64, Vec<usize>)> = None;
    for rule in &RULES {
        let bound = best.as_ref().map_or(f64::INFINITY, |(work, _)| *work);
        best = graph.clone().order(domains, rule, bound).or(best);
    }
    best.filter(|(work, _)| *work <= most).map(|(_, order)| order)
}

impl Graph {
    fn new<'a>(domains: &[usize], scopes: impl Iterator<Item = &'a [usize]>) -> Graph {
        let mut near = vec![vec![]; domains.len()];
        for scope in scopes {
            for v in scope {
                near[*v].extend(scope.iter().filter(|w| *w != v));
            }
        }
        near.iter_mut().for_each(sort);
        Graph { logs: domains.iter().map(|n| (*n as f64).ln()).collect(), near }
    }

    /// The order by a rule, with the number of sums. `None` where that is not less than `bound`.
    fn order(mut self, domains: &[usize], rule: &Rule, bound: f64) -> Option<(f64, Vec<usize>)> {
        let mut open: Vec<usize> = (0..domains.len()).collect();
        let mut scores: Vec<f64> = open.iter().map(|v| (rule.score)(&self, *v)).collect();
        let (mut order, mut work) = (vec![], 0.0);
        // The first of equal ones.
        while let Some(at) = (0..open.len()).min_by(|a, b| scores[open[*a]].total_cmp(&scores[open[*b]])) {
            let variable = open.remove(at);
            order.push(variable);
            let around = self.eliminate(variable);
            work += around.iter().map(|v| domains[*v] as f64).product::<f64>() * domains[variable] as f64;
            if work >= bound {
                return None;
            }
            for v in self.changed(around, rule.far) {
                scores[v] = (rule.score)(&self, v);
            }
        }
        (work < bound).then_some((work, order))
    }

    /// Takes a variable out, whose neighbours share a function then; these.
    fn eliminate(&mut self, variable: usize) -> Vec<usize> {
        let around = std::mem::take(&mut self.near[variable]);
        for v in &around {
            let near = &mut self.near[*v];
            near.extend(around.iter().filter(|w| *w != v));
            sort(near);
            near.retain(|w| *w != variable);
        }
        around
    }

    /// Variables whose scores change where the neighbours of these have changed.
    fn changed(&self, these: Vec<usize>, far: bool) -> Vec<usize> {
        if !far {
            return these;
        }
        let mut all: Vec<usize> = these.iter().flat_map(|v| self.near[*v].iter().copied()).collect();
        all.extend(these);
        sort(&mut all);
        all
    }

    fn sum(&self, variables: &[usize]) -> f64 {
        variables.iter().map(|v| self.logs[*v]).sum()
    }

    /// The sum over neighbours of `v` that share no function with `w`.
    fn missing(&self, v: usize, w: usize) -> f64 {
        let mut others = self.near[w].iter().peekable();
        let not_near = |x: &&usize| {
            while others.next_if(|other| other < x).is_some() {}
            others.peek() != Some(x)
        };
        self.near[v].iter().filter(not_near).map(|x| self.logs[*x]).sum()
    }
}

/// Ascending, each once.
fn sort(variables: &mut Vec<usize>) {
    variables.sort_unstable();
    variables.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The score by a rule, of all variables anew.
    fn score(logs: &[f64], graph: &[BTreeSet<usize>], rule: usize, v: usize) -> f64 {
        let sum = |of: &BTreeSet<usize>| of.iter().map(|w| logs[*w]).sum::<f64>();
        match rule {
            4 => graph[v].iter().map(|w| logs[*w] * (sum(&(&graph[v] - &graph[*w])) - logs[*w])).sum(),
            _ => sum(&graph[v]) - [0.0, 0.5, 1.0, 1.5][rule] * logs[v],
        }
    }

    /// The order by a rule, with its sums.
    fn plain(domains: &[usize], scopes: &[Vec<usize>], rule: usize) -> (f64, Vec<usize>) {
        let logs: Vec<f64> = domains.iter().map(|n| (*n as f64).ln()).collect();
        let mut graph = vec![BTreeSet::new(); domains.len()];
        for (scope, v) in scopes.iter().flat_map(|scope| scope.iter().map(move |v| (scope, *v))) {
            graph[v].extend(scope.iter().copied().filter(|w| *w != v));
        }
        let mut open: BTreeSet<usize> = (0..domains.len()).collect();
        let (mut order, mut work) = (vec![], 0.0);
        let of = |graph: &[BTreeSet<usize>], v: usize| score(&logs, graph, rule, v);
        while let Some(v) = open.iter().copied().min_by(|a, b| of(&graph, *a).total_cmp(&of(&graph, *b))) {
            open.remove(&v);
            order.push(v);
            let around = std::mem::take(&mut graph[v]);
            work += around.iter().map(|w| domains[*w] as f64).product::<f64>() * domains[v] as f64;
            for w in &around {
                graph[*w].extend(around.iter().filter(|x| *x != w));
                graph[*w].remove(&v);
            }
        }
        (work, order)
    }

    #[test]
    fn scores_that_are_kept_give_the_order_of_scores_made_anew() {
        let mut seed = 1u64;
        let mut below = |n: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % n
        };
        for case in 0..300 {
            let domains: Vec<usize> = (0..below(40)).map(|_| 1 + below(9)).collect();
            let scope = |below: &mut dyn FnMut(usize) -> usize| {
                let all: BTreeSet<usize> = (0..1 + below(4)).map(|_| below(domains.len())).collect();
                all.into_iter().collect::<Vec<_>>()
            };
            let scopes: Vec<Vec<usize>> = match domains.len() {
                0 => vec![],
                n => (0..below(2 * n)).map(|_| scope(&mut below)).collect(),
            };
            let all: Vec<_> = (0..RULES.len()).map(|rule| plain(&domains, &scopes, rule)).collect();
            let (work, best) = all.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).expect("rules");
            let got = |most| order(&domains, scopes.iter().map(Vec::as_slice), most);
            assert_eq!(got(work), Some(best), "case {case}");
            assert_eq!(got(work / 2.0).is_none(), work > 0.0, "case {case}");
        }
    }
}
