//! The least cost within a budget of errors, exactly.
//!
//! A price of errors turns the budget into costs; at the best price the cheapest values are a lower
//! bound (Lagrange's dual), and the cheapest that keep to the budget an upper one. A value dearer
//! at that price than the upper bound cannot be in the solution, and since elimination gives the
//! least cost of each part together with all the rest, nearly everything is left out. For the rest,
//! all pairs of cost and error are kept that no other beats in both.

use super::eliminate::{Bucket, BucketSums, Costs, Prices, Tree, Values, Weighed};
use std::rc::Rc;

/// Prices tried at most; any of them gives a valid bound.
const PRICES: usize = 40;
/// Parts of the gap between both bounds that are tried: a solution within one part is the best.
const PARTS: [f64; 4] = [1.0 / 64.0, 1.0 / 16.0, 1.0 / 4.0, 1.0];
/// Pairs kept beyond which another method is better.
const MOST: usize = 4_000_000;
/// Largest difference of sums in another order.
const ROUNDING: f64 = 1e-12;

/// Values of some variables.
#[derive(Clone, Default)]
struct Label {
    weighed: Weighed,
    chosen: Vec<Rc<Chosen>>,
}

/// The value of a variable, with the values of the variables that were eliminated before it.
struct Chosen {
    variable: usize,
    value: usize,
    earlier: Vec<Rc<Chosen>>,
}

/// The state of knowledge before a search.
enum Knowledge {
    /// The solution.
    Best(Values),
    /// Bounds on either side of it.
    Between(Bounds),
}

/// See [`Knowledge`].
struct Bounds {
    /// All functions at the best price.
    costs: Costs,
    /// Lower bound of the cost at that price, budget included.
    lower: f64,
    /// The cheapest values known that keep to the budget.
    upper: Values,
}

/// Why there are no values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// All are forbidden, or beyond the budget.
    Infeasible,
    /// Finding them takes too long.
    Intricate,
}

impl Tree {
    /// The values with the least cost whose errors add up to `budget` at most. With a `tolerance`, values whose cost is
    /// larger by at most this share of it do, too, and so do the best known ones where the search would take too long.
    ///
    /// # Errors
    /// See [`Failure`].
    pub(super) fn within(&self, budget: f64, tolerance: f64) -> Result<Values, Failure> {
        let Bounds { costs, lower, upper } = match self.known(budget)? {
            Knowledge::Best(best) => return Ok(best),
            Knowledge::Between(bounds) => bounds,
        };
        if upper.weighed.cost - lower <= tolerance * lower {
            return Ok(upper);
        }
        let rest = self.rest(&costs);
        for part in PARTS {
            let gap = (upper.weighed.cost - lower) * part;
            let search = Search { tree: self, costs: &costs, rest: &rest, budget, most: lower + gap };
            match search.best() {
                // All solutions up to that cost have been looked at.
                Ok(Some(best)) if best.weighed.cost <= search.most => return Ok(best),
                Ok(_) => {}
                Err(Failure::Intricate) if tolerance > 0.0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(upper)
    }

    /// Bounds at the best price, or the solution if the budget does not matter or they meet.
    fn known(&self, budget: f64) -> Result<Knowledge, Failure> {
        let at = |cost: f64, error: f64| self.minimum(Prices { cost, error }).ok_or(Failure::Infeasible);
        let (mut over, mut costs) = at(1.0, 0.0)?;
        if over.weighed.error <= budget {
            return Ok(Knowledge::Best(over));
        }
        let (mut within, _) = at(0.0, 1.0)?;
        if within.weighed.error > budget {
            return Err(Failure::Infeasible);
        }
        let mut lower = over.weighed.cost;
        for _ in 0..PRICES {
            // Where both cost the same, anything that is cheaper lies between them.
            let next = (within.weighed.cost - over.weighed.cost) / (over.weighed.error - within.weighed.error);
            let prices = Prices { cost: 1.0, error: next };
            let (found, functions) = at(prices.cost, prices.error)?;
            let bound = found.weighed.at(prices) - next * budget;
            if bound > lower {
                (costs, lower) = (functions, bound);
            }
            if found.weighed == within.weighed || found.weighed == over.weighed {
                break;
            }
            if found.weighed.error <= budget {
                within = found;
            } else {
                over = found;
            }
        }
        let upper = within;
        Ok(if upper.weighed.cost <= lower {
            Knowledge::Best(upper)
        } else {
            Knowledge::Between(Bounds { costs, lower, upper })
        })
    }

    /// The least cost of the rest, for each entry of the functions that buckets leave.
    fn rest(&self, costs: &Costs) -> Vec<Vec<f64>> {
        let left = &costs.left;
        let mut rest: Vec<Vec<f64>> = left.iter().map(|costs| vec![f64::INFINITY; costs.len()]).collect();
        let all: f64 = self.last().map(|b| left[b][0]).sum();
        self.last().for_each(|b| rest[b][0] = all - left[b][0]);
        for (b, bucket) in self.buckets.iter().enumerate().rev() {
            let sums = self.sums(bucket, costs);
            let first = bucket.tables.len();
            sums.visit(|number, at| {
                let outside = rest[b][number];
                for x in sums.values() {
                    let sum = sums.of(at, x) + outside;
                    if !sum.is_finite() {
                        continue;
                    }
                    let at = sums.with(at, x);
                    for (i, earlier) in bucket.earlier.iter().enumerate() {
                        let entry = at[first + i];
                        let others = sum - sums.one(first + i, entry);
                        rest[*earlier][entry] = rest[*earlier][entry].min(others);
                    }
                }
            });
        }
        rest
    }
}

/// For the cheapest values whose cost at the prices is at most `most`, the budget included.
struct Search<'a> {
    tree: &'a Tree,
    costs: &'a Costs,
    rest: &'a [Vec<f64>],
    budget: f64,
    most: f64,
}

impl Search<'_> {
    /// `None` if there are none.
    ///
    /// # Errors
    /// Too many would have to be kept.
    fn best(&self) -> Result<Option<Values>, Failure> {
        let mut labels: Vec<Vec<Vec<Label>>> = vec![];
        let mut kept = 0;
        for bucket in 0..self.tree.buckets.len() {
            let found = self.labels(bucket, &labels);
            kept += found.iter().map(Vec::len).sum::<usize>();
            if kept > MOST {
                return Err(Failure::Intricate);
            }
            labels.push(found);
        }
        let none = vec![Label::default()];
        let all = self.tree.last().fold(none, |all, bucket| undominated(self.pairs(&all, &labels[bucket][0], 0.0)));
        Ok(all.into_iter().next().map(|best| self.values(&best)))
    }

    fn values(&self, label: &Label) -> Values {
        let mut of = vec![0; self.tree.buckets.len()];
        let mut todo: Vec<&Rc<Chosen>> = label.chosen.iter().collect();
        while let Some(c) = todo.pop() {
            of[c.variable] = c.value;
            todo.extend(&c.earlier);
        }
        Values { of, weighed: label.weighed }
    }

    /// Labels that a bucket may leave, for each entry of its function.
    fn labels(&self, bucket: usize, earlier: &[Vec<Vec<Label>>]) -> Vec<Vec<Label>> {
        let of = &self.tree.buckets[bucket];
        let sums = self.tree.sums(of, self.costs);
        let mut out = vec![];
        sums.visit(|number, at| {
            let rest = self.rest[bucket][number];
            let mut found = vec![];
            for value in sums.values().filter(|x| !self.hopeless(sums.of(at, *x) + rest)) {
                let variable = of.variable;
                let chosen = |l: Label| vec![Rc::new(Chosen { variable, value, earlier: l.chosen })];
                let labels = self.sum(of, &sums, &sums.with(at, value), rest, earlier);
                found.extend(labels.into_iter().map(|l| Label { weighed: l.weighed, chosen: chosen(l) }));
            }
            out.push(undominated(found));
        });
        out
    }

    /// The sum of the functions of a bucket at these entries, where the rest costs at least `rest`.
    fn sum(
        &self,
        of: &Bucket,
        sums: &BucketSums<'_>,
        at: &[usize],
        rest: f64,
        earlier: &[Vec<Vec<Label>>],
    ) -> Vec<Label> {
        let (own, left) = at.split_at(of.tables.len());
        let one = |i: usize| sums.one(of.tables.len() + i, left[i]);
        let mut others: f64 = rest + (0..left.len()).map(one).sum::<f64>();
        let mut labels = vec![Label { weighed: self.tree.weighed(of, own), chosen: vec![] }];
        for (i, bucket) in of.earlier.iter().enumerate() {
            others -= one(i);
            labels = undominated(self.pairs(&labels, &earlier[*bucket][left[i]], others));
        }
        labels
    }

    /// One of each, where the rest costs at least `rest`.
    fn pairs(&self, some: &[Label], more: &[Label], rest: f64) -> Vec<Label> {
        let pair = |(a, b): (&Label, &Label)| Label {
            weighed: a.weighed + b.weighed,
            chosen: a.chosen.iter().chain(&b.chosen).cloned().collect(),
        };
        let all = some.iter().flat_map(|a| more.iter().map(move |b| (a, b))).map(pair);
        let within =
            |l: &Label| l.weighed.error <= self.budget && !self.hopeless(l.weighed.at(self.costs.prices) + rest);
        all.filter(within).collect()
    }

    /// Whether this cost at the prices exceeds the bound.
    fn hopeless(&self, cost: f64) -> bool {
        let most = self.most + self.budget * self.costs.prices.error;
        cost.is_nan() || cost > most * (1.0 + ROUNDING)
    }
}

/// Those that no other beats in both, by ascending cost.
fn undominated(mut labels: Vec<Label>) -> Vec<Label> {
    labels.sort_by(|a, b| {
        let (a, b) = (a.weighed, b.weighed);
        a.cost.total_cmp(&b.cost).then(a.error.total_cmp(&b.error))
    });
    let mut least = f64::INFINITY;
    labels.retain(|l| {
        let better = l.weighed.error < least;
        least = least.min(l.weighed.error);
        better
    });
    labels
}
