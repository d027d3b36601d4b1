//! The least cost within a budget of errors, exactly.
//!
//! A price of errors turns the budget into costs; at the best price the cheapest values are a lower
//! bound (Lagrange's dual), and the cheapest that keep to the budget an upper one. A value dearer
//! at that price than the upper bound cannot be in the solution, and since elimination gives the
//! least cost of each part together with all the rest, nearly everything is left out: first from the values that are
//! tried at further prices, and at the best price from single functions. For the rest, all pairs of cost and error are
//! kept that no other beats in both.

use super::eliminate::{Bucket, Costs, Prices, Tree, Values, Weighed};
use super::sums::{Offsets, Sums};
use std::rc::Rc;

/// Prices tried at most; any of them gives a valid bound.
const PRICES: usize = 40;
/// Parts of the gap between both bounds that are tried: a solution within one part is the best.
const PARTS: [f64; 4] = [1.0 / 64.0, 1.0 / 16.0, 1.0 / 4.0, 1.0];
/// Share of the gap between both bounds at which values are left out once more: finding them takes as long as some
/// prices.
const NARROWED: f64 = 0.5;
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
    /// The values that may be in the solution, and what is known of its cost.
    Between(Narrowed, Bracket),
}

/// Bounds on either side of the least cost.
struct Bracket {
    /// Most that errors may add up to.
    budget: f64,
    /// The cheapest values known that are beyond it.
    over: Values,
    /// The cheapest values known that keep to the budget.
    within: Values,
    /// Lower bound of the cost...
    lower: f64,
    /// ...and the prices by which it is known.
    prices: Prices,
}

/// A tree without values that cannot be in the solution.
struct Narrowed {
    tree: Tree,
    /// By variable: the values that are left, as numbers of the whole tree's.
    kept: Vec<Vec<usize>>,
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
        let (narrowed, bracket) = match self.known(budget, tolerance)? {
            Knowledge::Best(best) => return Ok(best),
            Knowledge::Between(narrowed, bracket) => (narrowed, bracket),
        };
        let costs = narrowed.tree.eliminate(bracket.prices);
        let rest = narrowed.tree.rest(&costs);
        for part in PARTS {
            let most = bracket.lower + bracket.gap() * part;
            let search = Search { tree: &narrowed.tree, costs: &costs, rest: &rest, budget, most };
            match search.best() {
                // All solutions up to that cost have been looked at.
                Ok(Some(best)) if best.weighed.cost <= search.most => return Ok(narrowed.whole(best)),
                Ok(_) => {}
                Err(Failure::Intricate) if tolerance > 0.0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(bracket.within)
    }

    /// Bounds at the best price, or the solution if the budget does not matter or they meet, up to a tolerance.
    fn known(&self, budget: f64, tolerance: f64) -> Result<Knowledge, Failure> {
        let mut narrowed = Narrowed::new(self);
        let at = |narrowed: &Narrowed, prices| narrowed.minimum(prices).ok_or(Failure::Infeasible);
        let free = Prices { cost: 1.0, error: 0.0 };
        let (over, _) = at(&narrowed, free)?;
        if over.weighed.error <= budget {
            return Ok(Knowledge::Best(over));
        }
        let (within, _) = at(&narrowed, Prices { cost: 0.0, error: 1.0 })?;
        if within.weighed.error > budget {
            return Err(Failure::Infeasible);
        }
        let mut bracket = Bracket { budget, lower: over.weighed.cost, prices: free, over, within };
        let mut gap = bracket.gap();
        for _ in 0..PRICES {
            let prices = bracket.next();
            let (found, costs) = at(&narrowed, prices)?;
            let is_last = !bracket.improve(found, prices);
            if bracket.gap() <= tolerance * bracket.lower {
                return Ok(Knowledge::Best(bracket.within));
            }
            if is_last {
                break;
            }
            if bracket.prices == prices && bracket.gap() < NARROWED * gap {
                gap = bracket.gap();
                let most = bracket.within.weighed.cost + prices.error * budget;
                narrowed.narrow(&costs, most, &bracket.within);
            }
        }
        Ok(Knowledge::Between(narrowed, bracket))
    }

    /// Least costs at some prices.
    fn rest(&self, costs: &Costs) -> Rest {
        let left = &costs.left;
        let mut rest: Vec<Vec<f64>> = left.iter().map(|costs| vec![f64::INFINITY; costs.len()]).collect();
        let mut values: Vec<Vec<f64>> = self.domains().iter().map(|n| vec![f64::INFINITY; *n]).collect();
        let all: f64 = self.last().map(|b| left[b][0]).sum();
        self.last().for_each(|b| rest[b][0] = all - left[b][0]);
        for (b, bucket) in self.buckets.iter().enumerate().rev() {
            let (few, all) = (self.few(bucket, costs), self.earlier(bucket, costs));
            let (earlier, later) = rest.split_at_mut(b);
            let of_values = &mut values[bucket.variable];
            let own = of_values.len();
            let (offsets, mut whole) = (all.offsets(), vec![]);
            self.of_few(bucket, &few).visit_blocks(&all, |number, at, block| {
                whole.clear();
                for (row, outside) in block.chunks_exact(own).zip(&later[0][number..]) {
                    whole.extend(row.iter().map(|sum| sum + outside));
                }
                whole.chunks_exact(own).for_each(|row| lower(of_values, row));
                for ((e, at), offsets) in bucket.earlier.iter().zip(at).zip(&offsets) {
                    let least = &mut earlier[*e][*at..];
                    match offsets {
                        Offsets::Contiguous => lower(least, &whole),
                        Offsets::At(places) => {
                            for (at, of) in places.iter().zip(&whole) {
                                let least = &mut least[*at];
                                *least = if of < least { *of } else { *least };
                            }
                        }
                    }
                }
            });
            for e in &bucket.earlier {
                // (Without what the function itself costs, which is infinite where the sum is.)
                let own = |(rest, own): (&mut f64, &f64)| *rest = if rest.is_finite() { *rest - own } else { *rest };
                earlier[*e].iter_mut().zip(&left[*e]).for_each(own);
            }
        }
        Rest { left: rest, values }
    }
}

impl Bracket {
    fn gap(&self) -> f64 {
        self.within.weighed.cost - self.lower
    }

    /// The prices at which both sides cost the same: values that are cheaper lie between them.
    fn next(&self) -> Prices {
        let (over, within) = (self.over.weighed, self.within.weighed);
        Prices { cost: 1.0, error: (within.cost - over.cost) / (over.error - within.error) }
    }

    /// Takes the cheapest values at some prices. Returns whether they are new.
    fn improve(&mut self, found: Values, prices: Prices) -> bool {
        let bound = found.weighed.at(prices) - prices.error * self.budget;
        if bound > self.lower {
            (self.lower, self.prices) = (bound, prices);
        }
        let is_new = found.weighed != self.within.weighed && found.weighed != self.over.weighed;
        match found.weighed.error <= self.budget {
            _ if !is_new => {}
            true => self.within = found,
            false => self.over = found,
        }
        is_new
    }
}

impl Narrowed {
    fn new(tree: &Tree) -> Narrowed {
        Narrowed { tree: tree.clone(), kept: tree.domains().iter().map(|n| (0..*n).collect()).collect() }
    }

    /// See [`Tree::minimum`]. The values are those of the whole tree.
    fn minimum(&self, prices: Prices) -> Option<(Values, Costs)> {
        let (values, costs) = self.tree.minimum(prices)?;
        Some((self.whole(values), costs))
    }

    /// Leaves out values with which all together cost more than `most` at the prices of these costs, but for the best
    /// known ones.
    fn narrow(&mut self, costs: &Costs, most: f64, best: &Values) {
        let rest = self.tree.rest(costs);
        let is_kept = |cost: f64| cost <= most * (1.0 + ROUNDING);
        let of_variable = |((of, whole), best): ((&Vec<f64>, &Vec<usize>), &usize)| {
            (0..of.len()).filter(|x| is_kept(of[*x]) || whole[*x] == *best).collect()
        };
        let kept: Vec<Vec<usize>> = rest.values.iter().zip(&self.kept).zip(&best.of).map(of_variable).collect();
        self.tree = self.tree.restricted(&kept);
        for (whole, kept) in self.kept.iter_mut().zip(kept) {
            *whole = kept.into_iter().map(|x| whole[x]).collect();
        }
    }

    /// Values as those of the whole tree.
    fn whole(&self, mut values: Values) -> Values {
        values.of.iter_mut().zip(&self.kept).for_each(|(x, kept)| *x = kept[*x]);
        values
    }
}

/// Least costs at some prices, given a part of the values.
struct Rest {
    /// For each entry of the functions that buckets leave, of all the rest.
    left: Vec<Vec<f64>>,
    /// For each value of each variable, of all together.
    values: Vec<Vec<f64>>,
}

/// Each number becomes the lower of two.
fn lower(least: &mut [f64], of: &[f64]) {
    least.iter_mut().zip(of).for_each(|(least, of)| *least = if of < least { *of } else { *least });
}

/// For the cheapest values whose cost at the prices is at most `most`, the budget included.
struct Search<'a> {
    tree: &'a Tree,
    costs: &'a Costs,
    rest: &'a Rest,
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
            let rest = self.rest.left[bucket][number];
            let mut found = vec![];
            for value in sums.values().filter(|x| !self.hopeless(sums.of(at, *x) + rest)) {
                let variable = of.variable;
                let chosen = |l: Label| vec![Rc::new(Chosen { variable, value, earlier: l.chosen })];
                let labels = self.sum(of, &sums, &at.iter().map(|at| at + value).collect::<Vec<_>>(), rest, earlier);
                found.extend(labels.into_iter().map(|l| Label { weighed: l.weighed, chosen: chosen(l) }));
            }
            out.push(undominated(found));
        });
        out
    }

    /// The sum of the functions of a bucket at these entries, where the rest costs at least `rest`.
    fn sum(&self, of: &Bucket, sums: &Sums<'_>, at: &[usize], rest: f64, earlier: &[Vec<Vec<Label>>]) -> Vec<Label> {
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
