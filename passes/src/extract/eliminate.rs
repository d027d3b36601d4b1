//! Exact minimisation of a sum of functions, each of few variables, by eliminating the variables
//! one after the other.
//!
//! A variable is eliminated by replacing all functions that read it by one: their sum's minimum
//! over it. The cost is exponential in the number of variables that one function reads at a time,
//! not in the number of all: it follows the width of the problem's graph, and a layer's dataflow
//! has a small width. Known as nonserial dynamic programming (Bertelè and Brioschi 1972) or bucket
//! elimination (Dechter 1999); for e-graphs see Goharshady et al., "Fast and Optimal Extraction for
//! Sparse Equality Graphs" (2024).

use super::order::order;
use super::sums::{Part, Sums};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Sums to compute at most: some seconds, and a gigabyte.
const MOST: f64 = 1e9;

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

/// A function of the variables in `scope`; the last changes fastest. In a [`Tree`], it is the one that is eliminated
/// first.
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prices {
    pub(super) cost: f64,
    pub(super) error: f64,
}

/// The order of elimination of a [`Network`], and the functions of each variable.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    net: Network,
    /// The bucket of each variable.
    bucket_of: Vec<usize>,
    pub(super) buckets: Vec<Bucket>,
}

/// An eliminated variable: its functions' sum's minimum over it is a function of `scope`.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    pub(super) variable: usize,
    /// The variable that is eliminated next is the last.
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

/// A function that may be a sum: its variables, and its values.
type Owned<'a> = (Vec<usize>, Cow<'a, [f64]>);

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
        let mut weighed = Vec::with_capacity(self.size(&scope));
        let domains: Vec<usize> = scope.iter().map(|v| self.domains[*v]).collect();
        each_value(&domains, |values| weighed.push(of(values)));
        self.tables.push(CostTable { scope, weighed });
    }

    /// Forbids some values of these variables.
    pub(super) fn forbid(&mut self, scope: Vec<usize>, these: impl Fn(&[usize]) -> bool) {
        self.add(scope, |v| if these(v) { Weighed::FORBIDDEN } else { Weighed::default() });
    }

    /// A good order of elimination. `None` where that would take too long.
    pub(super) fn tree(self) -> Option<Tree> {
        let scopes = self.tables.iter().map(|table| table.scope.as_slice());
        let order = order(&self.domains, scopes, MOST)?;
        let mut bucket_of = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, variable)| bucket_of[*variable] = at);
        // Functions not eliminated yet: scope, and the table or the bucket that left it.
        let mut functions: Vec<(Vec<usize>, Function)> =
            self.tables.iter().enumerate().map(|(i, t)| (t.scope.clone(), Function::Own(i))).collect();
        let mut buckets = vec![];
        for variable in order {
            let (read, rest): (Vec<_>, Vec<_>) =
                functions.into_iter().partition(|(scope, _)| scope.contains(&variable));
            let scope: BTreeSet<usize> = read.iter().flat_map(|(scope, _)| scope.iter().copied()).collect();
            let mut scope: Vec<usize> = scope.into_iter().filter(|v| *v != variable).collect();
            scope.sort_by_key(|v| Reverse(bucket_of[*v]));
            let own = |f: &(Vec<usize>, Function)| if let Function::Own(t) = f.1 { Some(t) } else { None };
            let left = |f: &(Vec<usize>, Function)| if let Function::Left(b) = f.1 { Some(b) } else { None };
            let (tables, earlier) = (read.iter().filter_map(own).collect(), read.iter().filter_map(left).collect());
            functions = rest;
            functions.push((scope.clone(), Function::Left(buckets.len())));
            buckets.push(Bucket { variable, scope, tables, earlier });
        }
        Some(Tree { net: self.sorted(&bucket_of), bucket_of, buckets })
    }

    /// The same functions, each with the variable that is eliminated first as the last of its scope.
    fn sorted(mut self, bucket_of: &[usize]) -> Network {
        for table in &mut self.tables {
            let mut scope = table.scope.clone();
            scope.sort_by_key(|v| Reverse(bucket_of[*v]));
            let sizes: Vec<usize> = scope.iter().map(|v| self.domains[*v]).collect();
            *table = table.picked(&self.domains, scope, &sizes, |_, value| value);
        }
        self
    }

    /// Combinations of the values of these variables.
    fn size(&self, variables: &[usize]) -> usize {
        variables.iter().fold(1, |n, v| n.saturating_mul(self.domains[*v]))
    }
}

impl CostTable {
    /// The same function with its variables, which have `domains` values here, in another order, and with `sizes` of
    /// their values each: `value` has a variable's, by number.
    fn picked(
        &self,
        domains: &[usize],
        scope: Vec<usize>,
        sizes: &[usize],
        value: impl Fn(usize, usize) -> usize,
    ) -> CostTable {
        let strides: Vec<usize> = scope.iter().map(|v| stride(domains, &self.scope, *v)).collect();
        let mut weighed = Vec::with_capacity(sizes.iter().product());
        each_value(sizes, |values| {
            let of = |((x, v), stride): ((&usize, &usize), &usize)| value(*v, *x) * stride;
            weighed.push(self.weighed[values.iter().zip(&scope).zip(&strides).map(of).sum::<usize>()]);
        });
        CostTable { scope, weighed }
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
    pub(super) fn eliminate(&self, prices: Prices) -> Costs {
        let own = self.net.tables.iter().map(|t| t.weighed.iter().map(|w| w.at(prices)).collect()).collect();
        let mut costs = Costs { prices, own, left: vec![] };
        for bucket in &self.buckets {
            let few = self.few(bucket, &costs);
            let left = self.of_few(bucket, &few).least();
            costs.left.push(left);
        }
        costs
    }

    /// The variables that the functions of a bucket read, its own being the last.
    fn all(&self, bucket: &Bucket) -> Vec<usize> {
        bucket.scope.iter().copied().chain([bucket.variable]).collect()
    }

    /// The functions of a bucket: their variables and values.
    fn parts<'a>(&'a self, bucket: &'a Bucket, costs: &'a Costs) -> Vec<Part<'a>> {
        let tables = bucket.tables.iter().map(|t| (self.net.tables[*t].scope.as_slice(), costs.own[*t].as_slice()));
        tables.chain(self.earlier_parts(bucket, costs)).collect()
    }

    fn earlier_parts<'a>(&'a self, bucket: &'a Bucket, costs: &'a Costs) -> impl Iterator<Item = Part<'a>> {
        bucket.earlier.iter().map(|b| (self.buckets[*b].scope.as_slice(), costs.left[*b].as_slice()))
    }

    /// Fewer functions with the sum of a bucket's: small ones are added up beforehand.
    pub(super) fn few<'a>(&'a self, bucket: &'a Bucket, costs: &'a Costs) -> Vec<Owned<'a>> {
        let mut parts = self.parts(bucket, costs);
        parts.sort_by_key(|(_, costs)| Reverse(costs.len()));
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
        let borrowed = |(scope, costs): Part<'a>| (scope.to_vec(), Cow::Borrowed(costs));
        let whole = bucket.scope.len() + 1;
        let mut few = vec![];
        for (at, (scope, of)) in groups.into_iter().enumerate() {
            // A sum of all variables would be as large as the one that is wanted. (The first is added up first anyway.)
            match of.len() == 1 || at == 0 && scope.len() == whole {
                true => few.extend(of.into_iter().map(borrowed)),
                false => few.push(self.added(scope, of)),
            }
        }
        few
    }

    /// The sum of functions, for all values of `scope`.
    fn added<'a>(&self, scope: BTreeSet<usize>, parts: Vec<Part<'_>>) -> Owned<'a> {
        let mut scope: Vec<usize> = scope.into_iter().collect();
        scope.sort_by_key(|v| Reverse(self.bucket_of[*v]));
        let sum = self.of_parts(scope.clone(), parts).all();
        (scope, Cow::Owned(sum))
    }

    /// The sum of functions that [`Tree::few`] has given for a bucket.
    pub(super) fn of_few<'a>(&self, bucket: &Bucket, few: &'a [Owned<'_>]) -> Sums<'a> {
        let parts = few.iter().map(|(scope, costs)| (scope.as_slice(), costs.as_ref())).collect();
        self.of_parts(self.all(bucket), parts)
    }

    /// The functions of a bucket that earlier buckets have left.
    pub(super) fn earlier<'a>(&'a self, bucket: &'a Bucket, costs: &'a Costs) -> Sums<'a> {
        self.of_parts(self.all(bucket), self.earlier_parts(bucket, costs).collect())
    }

    fn of_parts<'a>(&self, scope: Vec<usize>, parts: Vec<Part<'a>>) -> Sums<'a> {
        Sums::new(&self.net.domains, scope, parts)
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
    pub(super) fn sums<'a>(&'a self, bucket: &'a Bucket, costs: &'a Costs) -> Sums<'a> {
        self.of_parts(self.all(bucket), self.parts(bucket, costs))
    }

    /// The same tree where each variable has these values only, by number.
    pub(super) fn restricted(&self, kept: &[Vec<usize>]) -> Tree {
        let domains = kept.iter().map(Vec::len).collect();
        let of_table = |t: &CostTable| {
            let sizes: Vec<usize> = t.scope.iter().map(|v| kept[*v].len()).collect();
            t.picked(&self.net.domains, t.scope.clone(), &sizes, |v, value| kept[v][value])
        };
        let tables = self.net.tables.iter().map(of_table).collect();
        Tree { net: Network { domains, tables }, bucket_of: self.bucket_of.clone(), buckets: self.buckets.clone() }
    }

    /// The numbers of values of all variables.
    pub(super) fn domains(&self) -> &[usize] {
        &self.net.domains
    }

    /// The sum of the network's own functions in a bucket, at entries as [`Sums::visit`] gives them.
    pub(super) fn weighed(&self, bucket: &Bucket, entries: &[usize]) -> Weighed {
        let of = |(t, at): (&usize, &usize)| self.net.tables[*t].weighed[*at];
        bucket.tables.iter().zip(entries).map(of).fold(Weighed::default(), |a, b| a + b)
    }
}

/// The distance of values of a function that differ by one in a variable, which it reads.
fn stride(domains: &[usize], scope: &[usize], variable: usize) -> usize {
    scope.iter().rev().take_while(|v| **v != variable).map(|v| domains[*v]).product()
}

/// Visits all values of variables with so many values each, the last one changing fastest.
fn each_value(domains: &[usize], mut each: impl FnMut(&[usize])) {
    let mut values = vec![0; domains.len()];
    for number in 0..domains.iter().product() {
        let mut left: usize = number;
        for (value, n) in values.iter_mut().zip(domains).rev() {
            (*value, left) = (left % n, left / n);
        }
        each(&values);
    }
}
