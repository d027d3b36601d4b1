//! Exactness of extraction with decisions, against enumeration.

use super::eliminate::{Network, Prices, Weighed};
use super::problem::MARGIN;
use super::sums::{Offsets, Sums};
use super::*;
use proptest::prelude::*;

/// Numbers below the argument: xorshift.
fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut s = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |n| {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        (s >> 33) as usize % n
    }
}

/// The total error of the options that a solution uses.
fn error(p: &Problem, chosen: &Chosen) -> f64 {
    let used: Stores = chosen.iter().flat_map(|(class, i)| p.classes[class][*i].requires.iter().copied()).collect();
    let options = p.decisions.iter().flat_map(|d| &d.options);
    options.filter(|a| a.stores.iter().any(|s| used.contains(s))).map(|a| a.error).sum()
}

/// A small random problem. Classes read only later ones, so there are no cycles; class `n - 1`
/// needs nothing.
fn problem(seed: u64, classes: usize, options: usize) -> Problem {
    with(seed, classes, options, false)
}

/// The same; if `wild`, with costs from 1 ns to 1000 s and errors from 1e-18 to 1e6 of the budget.
fn with(seed: u64, classes: usize, options: usize, wild: bool) -> Problem {
    let mut next = random(seed);
    let store = |d: usize, o: usize| Id::from(1000 + 10 * d + o);
    let mut out = Problem::of(BTreeMap::new(), vec![Id::from(0)]);
    for class in 0..classes {
        let mut candidates = vec![];
        for _ in 0..1 + next(4) {
            let later: BTreeSet<Id> = (0..next(3))
                .filter(|_| class + 1 < classes)
                .map(|_| class + 1 + next(classes - class - 1))
                .map(Id::from)
                .collect();
            let requires: BTreeSet<Id> = (0..next(2)).map(|_| store(next(2), next(options))).collect();
            candidates.push(Candidate {
                node: None,
                how: How::Stored,
                children: vec![],
                needs: later.into_iter().collect(),
                requires: requires.into_iter().collect(),
                seconds: (1 + next(40)) as f64 * if wild { 10f64.powi(next(13) as i32 - 9) } else { 1e-6 },
            });
        }
        out.classes.insert(Id::from(class), candidates);
    }
    for d in 0..2 {
        // Some forms cost by themselves.
        let unit = if wild { 1.0 } else { 1e-6 };
        let mut options_of = vec![];
        for o in 0..options {
            let error = o as f64 * if wild { 0.3 * 10f64.powi(next(25) as i32 - 18) } else { 0.3 };
            let seconds = (next(2) * next(40)) as f64 * unit;
            options_of.push(Alternative { stores: vec![store(d, o)], error, seconds });
        }
        out.decisions.push(Decision { options: options_of });
    }
    out
}

/// The cheapest program by trying all combinations of candidates.
fn brute_force(p: &Problem) -> Option<f64> {
    let sizes: Vec<(Id, usize)> = p.classes.iter().map(|(c, v)| (*c, v.len())).collect();
    let mut best: Option<f64> = None;
    let total: usize = sizes.iter().map(|s| s.1).product();
    for mut code in 0..total {
        let mut pick = BTreeMap::new();
        for (class, n) in &sizes {
            pick.insert(*class, code % n);
            code /= n;
        }
        let solved = p.reachable(|c| pick.get(&c).copied()).ok()?;
        let used: BTreeSet<Id> = solved.chosen.iter().flat_map(|(c, i)| p.classes[c][*i].requires.clone()).collect();
        let each =
            p.decisions.iter().map(|d| d.options.iter().filter(|o| used.contains(&o.stores[0])).collect::<Vec<_>>());
        let each: Vec<Vec<&Alternative>> = each.collect();
        let error: f64 = each.iter().flatten().map(|a| a.error).sum();
        if each.iter().all(|taken| taken.len() <= 1)
            && error <= (1.0 - MARGIN) * p.budget
            && best.is_none_or(|b| solved.seconds < b)
        {
            best = Some(solved.seconds);
        }
    }
    best
}

/// A function of some variables.
type Values = BTreeMap<Vec<usize>, Weighed>;

/// A random sum of functions of one to three of `variables` variables.
fn network(seed: u64, variables: usize) -> (Network, impl Fn(&[usize]) -> Weighed, Vec<usize>) {
    let mut next = random(seed);
    let mut net = Network::default();
    let domains: Vec<usize> = (0..variables).map(|_| 1 + next(4)).collect();
    domains.iter().for_each(|n| {
        net.variable(*n);
    });
    let mut tables: Vec<(Vec<usize>, Values)> = vec![];
    for _ in 0..2 * variables {
        let scope: Vec<usize> =
            (0..1 + next(3)).map(|_| next(variables)).collect::<BTreeSet<_>>().into_iter().collect();
        let mut values = vec![vec![]];
        for v in &scope {
            values =
                values.iter().flat_map(|of| (0..domains[*v]).map(move |x| [of.as_slice(), &[x]].concat())).collect();
        }
        let mut weighed = || match next(5) {
            0 => Weighed::FORBIDDEN,
            1 => Weighed { cost: next(50) as f64, error: 0.0 },
            _ => Weighed { cost: next(50) as f64, error: next(30) as f64 / 100.0 },
        };
        let table: Values = values.into_iter().map(|of| (of, weighed())).collect();
        net.add(scope.clone(), |v| table[v]);
        tables.push((scope, table));
    }
    let sum = move |values: &[usize]| {
        let of = |(scope, table): &(Vec<usize>, Values)| table[&scope.iter().map(|v| values[*v]).collect::<Vec<_>>()];
        tables.iter().map(of).fold(Weighed::default(), |a, b| a + b)
    };
    (net, sum, domains)
}

/// Solves a badly scaled program, and compares it with the best.
fn badly_scaled(seed: u64, classes: usize, options: usize) {
    let p = with(seed, classes, options, true);
    let best = brute_force(&p);
    match p.solve(&BTreeSet::new()) {
        Ok(solved) => {
            // Kernels that cost less than 1e-8 of the whole do not count, and each class may have one.
            let small = classes as f64 * 1e-8;
            assert!(best.is_some_and(|b| (b - solved.seconds).abs() <= small * b), "{best:?} {}", solved.seconds);
            assert!(error(&p, &solved.chosen) <= p.budget);
        }
        Err(_) => assert!(best.is_none(), "{best:?} was missed"),
    }
}

/// A problem whose solution costs a thousandth of every class once.
#[test]
fn ties_stay_small_beside_a_cheap_solution() {
    badly_scaled(407_217, 6, 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn the_cheapest_program_within_the_budget_is_found(seed in 0u64..1_000_000, classes in 2usize..7, options in 2usize..4) {
        let p = problem(seed, classes, options);
        let best = brute_force(&p);
        match p.solve(&BTreeSet::new()) {
            Ok(solved) => {
                prop_assert!(best.is_some_and(|b| (b - solved.seconds).abs() < 1e-11), "{best:?} {}", solved.seconds);
                prop_assert!(error(&p, &solved.chosen) <= p.budget + 1e-9);
            }
            Err(_) => prop_assert!(best.is_none(), "{best:?} was missed"),
        }
    }

    #[test]
    fn badly_scaled_programs_are_solved_exactly(seed in 0u64..1_000_000, classes in 2usize..7, options in 2usize..4) {
        badly_scaled(seed, classes, options);
    }

    #[test]
    fn the_least_error_is_reachable_and_no_less(seed in 0u64..1_000_000, classes in 2usize..6) {
        let mut p = problem(seed, classes, 3);
        p.budget = 100.0;
        if brute_force(&p).is_some() {
            let solved = p.least_error().unwrap();
            let least = error(&p, &solved.chosen);
            p.budget = least + 1e-6;
            prop_assert!(brute_force(&p).is_some());
            p.budget = least - 1e-6;
            prop_assert!(brute_force(&p).is_none());
        }
    }

    #[test]
    fn elimination_finds_what_enumeration_finds(seed in 0u64..1_000_000, variables in 1usize..8, budget in 0.0f64..2.0) {
        let (net, sum, domains) = network(seed, variables);
        let mut all = vec![vec![]];
        for n in &domains {
            all = all.iter().flat_map(|of: &Vec<usize>| (0..*n).map(move |x| [of.as_slice(), &[x]].concat())).collect();
        }
        let least = |most: f64| {
            let of = all.iter().map(|v| sum(v)).filter(|w| w.cost.is_finite() && w.error <= most);
            of.map(|w| w.cost).min_by(f64::total_cmp)
        };
        let tree = net.tree().unwrap();
        let free = tree.minimum(Prices { cost: 1.0, error: 0.0 });
        prop_assert_eq!(free.map(|(v, _)| sum(&v.of).cost), least(f64::INFINITY));
        // Sums in another order differ by less than this; errors are hundredths.
        let budget = (budget * 100.0).floor() / 100.0 + 1e-9;
        let within = tree.within(budget, 0.0).ok();
        prop_assert!(within.as_ref().is_none_or(|v| sum(&v.of).error <= budget));
        prop_assert_eq!(within.map(|v| sum(&v.of).cost), least(budget));
    }
}

/// Sums by blocks, in which functions read all variables, the last one, or some: as one by one.
#[test]
fn sums_of_blocks_are_those_of_single_values() {
    let domains = [5, 2, 7, 3, 2, 11, 4];
    let scopes: [&[usize]; 4] = [&[0, 1, 2, 3, 4, 5, 6], &[6], &[1, 3, 6], &[0, 5, 6]];
    let mut next = random(3);
    let size = |scope: &[usize]| scope.iter().map(|v| domains[*v]).product::<usize>();
    let functions = scopes.map(|scope| (0..size(scope)).map(|_| next(1000) as f64).collect::<Vec<_>>());
    let parts = || scopes.iter().zip(&functions).map(|(scope, costs)| (*scope, costs.as_slice())).collect();
    let sums = Sums::new(&domains, scopes[0].to_vec(), parts());
    let (all, least) = (sums.all(), sums.least());
    assert_eq!((all.len(), least.len()), (18480, 4620));
    let mut visited = 0;
    sums.visit(|number, at| {
        let of: Vec<f64> = sums.values().map(|x| sums.of(at, x)).collect();
        assert_eq!(
            (&all[number * 4..][..4], least[number]),
            (&of[..], of.iter().copied().fold(f64::INFINITY, f64::min))
        );
        visited += 1;
    });
    assert_eq!(visited, least.len());
    let (mut from_blocks, offsets) = (vec![], sums.offsets());
    sums.visit_blocks(&sums, |number, at, block| {
        assert_eq!(number * 4, from_blocks.len());
        from_blocks.extend_from_slice(block);
        let place = |f: usize, i: usize| match &offsets[f] {
            Offsets::Contiguous => i,
            Offsets::At(places) => places[i],
        };
        for i in 0..block.len() {
            let sum: f64 = (0..scopes.len()).map(|f| functions[f][at[f] + place(f, i)]).sum();
            assert_eq!(sum, block[i]);
        }
    });
    assert_eq!(from_blocks, all);
}
