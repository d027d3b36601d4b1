//! Exact minimisation of a sum of functions, each of few variables, by eliminating the variables
//! one after the other.
//!
//! A variable is eliminated by replacing all functions that read it by one: their sum's minimum
//! over it. The cost is exponential in the number of variables that one function reads at a time,
//! not in the number of all: it follows the width of the problem's graph, and a layer's dataflow
//! has a small width. Known as nonserial dynamic programming (Bertelè and Brioschi 1972) or bucket
//! elimination (Dechter 1999); for e-graphs see Goharshady et al., "Fast and Optimal Extraction for
//! Sparse Equality Graphs" (2024).

use std::borrow::Cow;
use std::collections::BTreeSet;

/// Sums to compute at most: some seconds, and a gigabyte.
const MOST: f64 = 1e9;

/// The score of a variable that an order of elimination minimises, given which variables share
/// functions.
type Rule = fn(&Network, &[BTreeSet<usize>], usize) -> f64;
/// No rule is known to be best; making an order costs little. The first ones keep the remaining
/// functions small, and prefer large variables.
const ORDERS: [Rule; 5] = [
    |net, graph, v| net.logs(&graph[v]),
    |net, graph, v| net.logs(&graph[v]) - 0.5 * net.log(v),
    |net, graph, v| net.logs(&graph[v]) - net.log(v),
    |net, graph, v| net.logs(&graph[v]) - 1.5 * net.log(v),
    // How many pairs of variables share a function that did not, weighted by their values.
    |net, graph, v| {
        let missing = |w: &usize| net.logs(&(&graph[v] - &graph[*w])) - net.log(*w);
        graph[v].iter().map(|w| net.log(*w) * missing(w)).sum()
    },
];

/// A function of a bucket: the network's own, or the result of an earlier bucket.
#[derive(Clone, Copy, Debug)]
enum Function {
    Own(usize),
    Left(usize),
}

/// A sum of functions of variables with finitely many values each.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    /// Numbers of values.
    domains: Vec<usize>,
    tables: Vec<CostTable>,
}

/// A function of the variables in `scope`; the last changes fastest.
#[derive(Clone, Debug)]
struct CostTable {
    scope: Vec<usize>,
    weighed: Vec<Weighed>,
}

/// The minimised cost and the bounded error. Both are infinite for forbidden values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Weighed {
    pub(super) cost: f64,
    pub(super) error: f64,
}

/// Prices of a unit of cost and of a unit of error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prices {
    pub(super) cost: f64,
    pub(super) error: f64,
}

/// The order of elimination of a [`Network`], and the functions of each variable.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    net: Network,
    pub(super) buckets: Vec<Bucket>,
}

/// An eliminated variable: its functions' sum's minimum over it is a function of `scope`.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    pub(super) variable: usize,
    scope: Vec<usize>,
    /// Functions that read it: first the network's own...
    pub(super) tables: Vec<usize>,
    /// ...then those that earlier buckets have left.
    pub(super) earlier: Vec<usize>,
}

/// Values of all variables, with their cost.
#[derive(Clone, Debug)]
pub(super) struct Values {
    pub(super) of: Vec<usize>,
    pub(super) weighed: Weighed,
}

/// All functions at certain prices.
pub(super) struct Costs {
    pub(super) prices: Prices,
    /// The network's own.
    own: Vec<Vec<f64>>,
    /// The functions that the buckets leave.
    pub(super) left: Vec<Vec<f64>>,
}

/// A function: its variables, and its values.
type Part<'a> = (&'a [usize], &'a [f64]);

/// Values of a sum of functions that is computed beforehand.
const SMALL: usize = 1 << 12;

impl Network {
    /// A new variable of `values` values.
    pub(super) fn variable(&mut self, values: usize) -> usize {
        self.domains.push(values);
        self.domains.len() - 1
    }

    /// Adds a function of variables.
    pub(super) fn add(&mut self, scope: Vec<usize>, of: impl Fn(&[usize]) -> Weighed) {
        let mut weighed = vec![];
        let mut values = vec![0; scope.len()];
        for number in 0..self.size(&scope) {
            let mut left = number;
            for (value, v) in values.iter_mut().zip(&scope).rev() {
                (*value, left) = (left % self.domains[*v], left / self.domains[*v]);
            }
            weighed.push(of(&values));
        }
        self.tables.push(CostTable { scope, weighed });
    }

    /// Forbids some values of these variables.
    pub(super) fn forbid(&mut self, scope: Vec<usize>, these: impl Fn(&[usize]) -> bool) {
        self.add(scope, |v| if these(v) { Weighed::FORBIDDEN } else { Weighed::default() });
    }

    /// A good order of elimination. `None` where that would take too long.
    pub(super) fn tree(self) -> Option<Tree> {
        let orders = ORDERS.iter().map(|rule| self.order(*rule));
        let (work, order) = orders.min_by(|a, b| a.0.total_cmp(&b.0))?;
        if work > MOST {
            return None;
        }
        // Functions not eliminated yet: scope, and the table or the bucket that left it.
        let mut functions: Vec<(Vec<usize>, Function)> =
            self.tables.iter().enumerate().map(|(i, t)| (t.scope.clone(), Function::Own(i))).collect();
        let mut buckets = vec![];
        for variable in order {
            let (read, rest): (Vec<_>, Vec<_>) =
                functions.into_iter().partition(|(scope, _)| scope.contains(&variable));
            let scope: BTreeSet<usize> = read.iter().flat_map(|(scope, _)| scope.iter().copied()).collect();
            let scope: Vec<usize> = scope.into_iter().filter(|v| *v != variable).collect();
            let own = |f: &(Vec<usize>, Function)| if let Function::Own(t) = f.1 { Some(t) } else { None };
            let left = |f: &(Vec<usize>, Function)| if let Function::Left(b) = f.1 { Some(b) } else { None };
            let (tables, earlier) = (read.iter().filter_map(own).collect(), read.iter().filter_map(left).collect());
            functions = rest;
            functions.push((scope.clone(), Function::Left(buckets.len())));
            buckets.push(Bucket { variable, scope, tables, earlier });
        }
        Some(Tree { net: self, buckets })
    }

    /// An order in which the next variable always is the least by a rule, with the number of sums.
    fn order(&self, rule: Rule) -> (f64, Vec<usize>) {
        let mut graph: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.domains.len()];
        for t in &self.tables {
            for v in &t.scope {
                graph[*v].extend(t.scope.iter().filter(|w| *w != v));
            }
        }
        let mut open: BTreeSet<usize> = (0..graph.len()).collect();
        let (mut order, mut work) = (vec![], 0.0);
        let size = |of: &BTreeSet<usize>| of.iter().map(|v| self.domains[*v] as f64).product::<f64>();
        while let Some(variable) =
            open.iter().copied().min_by(|a, b| rule(self, &graph, *a).total_cmp(&rule(self, &graph, *b)))
        {
            open.remove(&variable);
            order.push(variable);
            let around = std::mem::take(&mut graph[variable]);
            work += size(&around) * self.domains[variable] as f64;
            for v in &around {
                graph[*v].extend(around.iter().filter(|w| *w != v));
                graph[*v].remove(&variable);
            }
        }
        (work, order)
    }

    fn log(&self, variable: usize) -> f64 {
        (self.domains[variable] as f64).ln()
    }

    fn logs(&self, variables: &BTreeSet<usize>) -> f64 {
        variables.iter().map(|v| self.log(*v)).sum()
    }

    /// Combinations of the values of these variables.
    fn size(&self, variables: &[usize]) -> usize {
        variables.iter().fold(1, |n, v| n.saturating_mul(self.domains[*v]))
    }
}

impl Weighed {
    /// The cost of impossible values.
    pub(super) const FORBIDDEN: Weighed = Weighed { cost: f64::INFINITY, error: f64::INFINITY };

    /// As one number.
    pub(super) fn at(self, prices: Prices) -> f64 {
        if self.cost.is_finite() { self.cost * prices.cost + self.error * prices.error } else { f64::INFINITY }
    }
}

impl std::ops::Add for Weighed {
    type Output = Weighed;

    fn add(self, other: Weighed) -> Weighed {
        Weighed { cost: self.cost + other.cost, error: self.error + other.error }
    }
}

impl Tree {
    /// The values with the least sum at these prices, of equal ones the lower, and all functions;
    /// `None` if all values are forbidden.
    pub(super) fn minimum(&self, prices: Prices) -> Option<(Values, Costs)> {
        let costs = self.eliminate(prices);
        let sum: f64 = self.last().map(|b| costs.left[b][0]).sum();
        sum.is_finite().then(|| (self.values(&costs), costs))
    }

    /// All functions.
    fn eliminate(&self, prices: Prices) -> Costs {
        let own = self.net.tables.iter().map(|t| t.weighed.iter().map(|w| w.at(prices)).collect()).collect();
        let mut costs = Costs { prices, own, left: vec![] };
        for bucket in &self.buckets {
            let few = self.few(self.parts(bucket, &costs));
            let few = few.iter().map(|(scope, costs)| (scope.as_slice(), costs.as_ref())).collect();
            let sums = BucketSums::new(self, bucket, few);
            let mut left = Vec::with_capacity(self.net.size(&bucket.scope));
            sums.visit(|_, at| left.push(sums.values().map(|x| sums.of(at, x)).fold(f64::INFINITY, f64::min)));
            costs.left.push(left);
        }
        costs
    }

    /// The functions of a bucket: their variables and values.
    fn parts<'a>(&'a self, bucket: &'a Bucket, costs: &'a Costs) -> Vec<Part<'a>> {
        let tables = bucket.tables.iter().map(|t| (self.net.tables[*t].scope.as_slice(), costs.own[*t].as_slice()));
        let left = |b: &usize| (self.buckets[*b].scope.as_slice(), costs.left[*b].as_slice());
        tables.chain(bucket.earlier.iter().map(left)).collect()
    }

    /// The same sum of fewer functions: small ones are added up beforehand.
    fn few<'a>(&self, mut parts: Vec<Part<'a>>) -> Vec<(Vec<usize>, Cow<'a, [f64]>)> {
        parts.sort_by_key(|(_, costs)| std::cmp::Reverse(costs.len()));
        let mut groups: Vec<(BTreeSet<usize>, Vec<Part<'a>>)> = vec![];
        for part in parts {
            let joined = |scope: &BTreeSet<usize>| scope.iter().chain(part.0).copied().collect::<BTreeSet<usize>>();
            let size = |scope: &BTreeSet<usize>| scope.iter().map(|v| self.net.domains[*v]).product::<usize>();
            let fits = |scope: &BTreeSet<usize>| size(&joined(scope)) <= SMALL.max(size(scope));
            match groups.iter_mut().find(|(scope, _)| fits(scope)) {
                Some((scope, of)) => {
                    *scope = joined(scope);
                    of.push(part);
                }
                None => groups.push((part.0.iter().copied().collect(), vec![part])),
            }
        }
        groups.into_iter().map(|(scope, of)| self.added(scope, &of)).collect()
    }

    /// The sum of functions, for all values of `scope`.
    fn added<'a>(&self, scope: BTreeSet<usize>, parts: &[Part<'a>]) -> (Vec<usize>, Cow<'a, [f64]>) {
        if let [(scope, costs)] = parts {
            return (scope.to_vec(), Cow::Borrowed(costs));
        }
        let scope: Vec<usize> = scope.into_iter().collect();
        let strides: Vec<Vec<usize>> = scope.iter().map(|v| self.strides(*v, parts)).collect();
        let mut sum = Vec::with_capacity(self.net.size(&scope));
        self.visit(&scope, &strides, parts.len(), |_, at| {
            sum.push(parts.iter().zip(at).map(|((_, costs), at)| costs[*at]).sum());
        });
        (scope, Cow::Owned(sum))
    }

    /// In each function, the distance of values that differ by one in a variable; 0 where the
    /// function does not read it.
    fn strides(&self, variable: usize, parts: &[Part<'_>]) -> Vec<usize> {
        let after = |scope: &[usize], at: usize| self.net.size(&scope[at + 1..]);
        let stride = |scope: &[usize]| scope.iter().position(|v| *v == variable).map_or(0, |at| after(scope, at));
        parts.iter().map(|(scope, _)| stride(scope)).collect()
    }

    /// Visits all values of these variables, the last one changing fastest: their number, and the
    /// entries of `functions` functions.
    fn visit(&self, scope: &[usize], strides: &[Vec<usize>], functions: usize, mut each: impl FnMut(usize, &[usize])) {
        let mut values = vec![0; scope.len()];
        let mut at = vec![0; functions];
        for number in 0..self.net.size(scope) {
            each(number, &at);
            for i in (0..scope.len()).rev() {
                let full = values[i] + 1 == self.net.domains[scope[i]];
                for (at, stride) in at.iter_mut().zip(&strides[i]) {
                    *at = if full { *at - stride * values[i] } else { *at + stride };
                }
                values[i] = if full { 0 } else { values[i] + 1 };
                if !full {
                    break;
                }
            }
        }
    }

    /// Last buckets of the connected parts: they leave constants.
    pub(super) fn last(&self) -> impl Iterator<Item = usize> {
        (0..self.buckets.len()).filter(|b| self.buckets[*b].scope.is_empty())
    }

    /// Values of all variables: the last eliminated is decided first.
    fn values(&self, costs: &Costs) -> Values {
        let mut of = vec![0; self.net.domains.len()];
        for bucket in self.buckets.iter().rev() {
            let sums = self.sums(bucket, costs);
            let at = sums.entries(&of);
            let best = sums.values().min_by(|a, b| sums.of(&at, *a).total_cmp(&sums.of(&at, *b)));
            of[bucket.variable] = best.unwrap_or(0);
        }
        let entry = |t: &CostTable| t.scope.iter().fold(0, |at, v| at * self.net.domains[*v] + of[*v]);
        let weighed = self.net.tables.iter().map(|t| t.weighed[entry(t)]).fold(Weighed::default(), |a, b| a + b);
        Values { of, weighed }
    }

    /// The functions of a bucket, one by one.
    pub(super) fn sums<'a>(&'a self, bucket: &'a Bucket, costs: &'a Costs) -> BucketSums<'a> {
        BucketSums::new(self, bucket, self.parts(bucket, costs))
    }

    /// The sum of the network's own functions in a bucket, at entries as [`BucketSums::visit`] gives them.
    pub(super) fn weighed(&self, bucket: &Bucket, entries: &[usize]) -> Weighed {
        let of = |(t, at): (&usize, &usize)| self.net.tables[*t].weighed[*at];
        bucket.tables.iter().zip(entries).map(of).fold(Weighed::default(), |a, b| a + b)
    }
}

/// The functions of a bucket, to be added up.
pub(super) struct BucketSums<'a> {
    tree: &'a Tree,
    bucket: &'a Bucket,
    /// By function: its values...
    costs: Vec<&'a [f64]>,
    /// ...and the distance of those that differ by one in the bucket's variable.
    own: Vec<usize>,
    /// The same for each variable of the scope.
    strides: Vec<Vec<usize>>,
}

impl<'a> BucketSums<'a> {
    fn new(tree: &'a Tree, bucket: &'a Bucket, parts: Vec<Part<'a>>) -> BucketSums<'a> {
        let own = tree.strides(bucket.variable, &parts);
        let strides = bucket.scope.iter().map(|v| tree.strides(*v, &parts)).collect();
        BucketSums { tree, bucket, costs: parts.into_iter().map(|(_, costs)| costs).collect(), own, strides }
    }

    /// Values of the bucket's variable.
    pub(super) fn values(&self) -> std::ops::Range<usize> {
        0..self.tree.net.domains[self.bucket.variable]
    }

    /// The sum where the functions' entries are `at` for the scope, and the variable is `x`.
    pub(super) fn of(&self, at: &[usize], x: usize) -> f64 {
        self.costs.iter().zip(at).zip(&self.own).map(|((costs, at), own)| costs[at + x * own]).sum()
    }

    /// The value of one function.
    pub(super) fn one(&self, function: usize, entry: usize) -> f64 {
        self.costs[function][entry]
    }

    /// Entries of the functions where the variable is `x`.
    pub(super) fn with(&self, at: &[usize], x: usize) -> Vec<usize> {
        at.iter().zip(&self.own).map(|(at, own)| at + x * own).collect()
    }

    /// Entries of the functions where all variables have these values, the bucket's own being 0.
    fn entries(&self, values: &[usize]) -> Vec<usize> {
        let mut at = vec![0; self.own.len()];
        for (v, strides) in self.bucket.scope.iter().zip(&self.strides) {
            at.iter_mut().zip(strides).for_each(|(at, stride)| *at += stride * values[*v]);
        }
        at
    }

    /// Visits all values of the scope, the last variable changing fastest: their number, and the
    /// functions' entries.
    pub(super) fn visit(&self, each: impl FnMut(usize, &[usize])) {
        self.tree.visit(&self.bucket.scope, &self.strides, self.own.len(), each);
    }
}
