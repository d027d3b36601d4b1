//! Entries that observe an earlier one: they compute the same, and show more of it.
//!
//! A module is compiled without them. Their functions then take the kernels that the observed functions have, and
//! further ones for values that these leave in no buffer. So an observer changes no kernel and stores no weight of the
//! model, and its values have the bits of the entry that it observes.

use llmcc_ir::graph::{Call, Entry, Module};
use std::borrow::Cow;

/// A module without its observers.
pub struct Core<'a> {
    /// The module without observers, and the functions of these.
    pub module: Cow<'a, Module>,
    /// For each function of the whole module its schedule's place.
    pub funcs: Vec<FuncOf>,
}

/// Where a function gets its kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuncOf {
    /// It is this function of the core.
    Core(usize),
    /// It observes this function of the core.
    Observes(usize),
}

impl<'a> Core<'a> {
    /// Finds the observers of a module: entries with taps that make the calls of an earlier entry, by functions that
    /// differ in their results.
    pub fn new(whole: &'a Module) -> Core<'a> {
        let observed = |at: usize, e: &Entry| {
            !e.taps.is_empty() && whole.entries[..at].iter().any(|other| observes(whole, e, other))
        };
        let is_observer: Vec<bool> = whole.entries.iter().enumerate().map(|(at, e)| observed(at, e)).collect();
        if !is_observer.contains(&true) {
            let funcs = (0..whole.funcs.len()).map(FuncOf::Core).collect();
            return Core { module: Cow::Borrowed(whole), funcs };
        }
        let kept = || whole.entries.iter().zip(&is_observer).filter(|(_, observer)| !**observer).map(|(e, _)| e);
        let called: Vec<bool> =
            (0..whole.funcs.len()).map(|f| kept().flat_map(|e| &e.calls).any(|c| c.func == f)).collect();
        let base = |f: usize| (0..whole.funcs.len()).find(|b| called[*b] && whole.funcs[f].extends(&whole.funcs[*b]));
        // (A function that nobody calls stays.)
        let observes: Vec<Option<usize>> =
            (0..whole.funcs.len()).map(|f| if called[f] { None } else { base(f) }).collect();
        let mut next = 0;
        let place = |of: &Option<usize>| {
            next += usize::from(of.is_none());
            next - usize::from(of.is_none())
        };
        let places: Vec<usize> = observes.iter().map(place).collect();
        let func_of = |(f, of): (usize, &Option<usize>)| match of {
            Some(base) => FuncOf::Observes(places[*base]),
            None => FuncOf::Core(places[f]),
        };
        let funcs = observes.iter().enumerate().map(func_of).collect();
        let call = |c: &Call| Call { func: places[c.func], args: c.args.clone() };
        let module = Module {
            name: whole.name.clone(),
            info: whole.info,
            weights: whole.weights.clone(),
            states: whole.states.clone(),
            funcs: whole.funcs.iter().zip(&observes).filter(|(_, of)| of.is_none()).map(|(f, _)| f.clone()).collect(),
            entries: kept().map(|e| Entry { calls: e.calls.iter().map(call).collect(), ..e.clone() }).collect(),
        };
        Core { module: Cow::Owned(module), funcs }
    }
}

/// Whether each call of `e` computes what the call of `other` at the same place does.
fn observes(module: &Module, e: &Entry, other: &Entry) -> bool {
    let same = |(a, b): (&Call, &Call)| {
        let funcs = module.funcs.get(a.func).zip(module.funcs.get(b.func));
        funcs.is_some_and(|(f, g)| f.extends(g)) && a.binds_as(&Call { func: a.func, args: b.args.clone() })
    };
    e.calls.len() <= other.calls.len() && e.calls.iter().zip(&other.calls).all(same)
}
