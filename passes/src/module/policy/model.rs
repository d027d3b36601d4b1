//! A module whose caches are to keep less: its layers, and what policies have done to them.

use super::caches;
use llmcc_ir::graph::{Arg, Func, Module, Node, Op};
use llmcc_ir::kv::KvSpec;
use std::collections::BTreeSet;

/// Layers that a policy is for; `None`: all. Text: `0-3+8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layers(pub Option<BTreeSet<usize>>);

impl Layers {
    pub fn parse(text: &str) -> Result<Layers, String> {
        let wrong = || format!("`layers={text}` is no list of layers, as in 0-3+8");
        let mut all = BTreeSet::new();
        for part in text.split('+') {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let bound = |text: &str| text.parse().ok().filter(|n: &usize| *n < 1 << 16);
            let (Some(from), Some(to)) = (bound(from), bound(to)) else { return Err(wrong()) };
            if from > to {
                return Err(wrong());
            }
            all.extend(from..=to);
        }
        Ok(Layers(Some(all)))
    }
}

/// A module under change.
pub struct Model<'a> {
    pub(super) module: &'a mut Module,
    /// The states of layers with attention that looks behind a token, as they were.
    pub(super) caches: Vec<usize>,
    /// Layers that have a policy.
    pub(super) used: BTreeSet<usize>,
}

/// The caches that a policy changes.
pub(super) struct Chosen {
    /// Layers with their states.
    pub states: Vec<(usize, usize)>,
    pub applied: Applied,
}

/// Which caches a policy has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Layers with attention that looks behind a token.
    pub layers: usize,
    /// How many of their caches were changed.
    pub changed: usize,
    /// Those asked for that were not, with the reason.
    pub left: Vec<(usize, String)>,
}

impl Model<'_> {
    /// The layers of a module.
    pub(super) fn of(module: &mut Module) -> Model<'_> {
        let caches = caches::caches(module);
        Model { module, caches, used: BTreeSet::new() }
    }

    /// The caches of the layers asked for, but those that `unfit` says must stay as they are.
    ///
    /// # Errors
    /// A message where a layer does not exist or has a policy already, or there is no such cache.
    pub(super) fn chosen(
        &mut self,
        layers: &Layers,
        unfit: impl Fn(&Module, usize) -> Option<String>,
    ) -> Result<Chosen, String> {
        let count = self.caches.len();
        if let Some(layer) = layers.0.iter().flatten().find(|layer| **layer >= count) {
            return Err(format!("there is no layer {layer} with a cache; the model has {count}"));
        }
        let mut applied = Applied { layers: count, ..Applied::default() };
        let mut states = vec![];
        for (layer, state) in self.caches.iter().copied().enumerate() {
            let asked = layers.0.as_ref().map(|of| of.contains(&layer));
            if asked == Some(false) || asked.is_none() && self.used.contains(&layer) {
                continue;
            }
            if !self.used.insert(layer) {
                return Err(format!("layer {layer} has a policy already; name the layers that each is for"));
            }
            match unfit(self.module, state) {
                Some(why) => applied.left.push((layer, why)),
                None => states.push((layer, state)),
            }
        }
        applied.changed = states.len();
        if states.is_empty() {
            let why = applied.left.first().map_or_else(
                || "the model has no attention that looks behind a token".to_string(),
                |(layer, why)| format!("no cache can be changed; that of layer {layer}: {why}"),
            );
            return Err(why);
        }
        Ok(Chosen { states, applied })
    }
}

/// Lets sequences have `context` tokens, more than the model has positions: tokens see others at distances that it has.
///
/// # Errors
/// A message where a layer keeps whole sequences, or positions are looked up.
pub fn lengthen(module: &mut Module, context: usize) -> Result<(), String> {
    let whole = |spec: &KvSpec| spec.window.is_none() && spec.first.is_none();
    let first = module.entries.first().map_or(&[][..], |entry| &entry.calls);
    let caches = caches::caches(module);
    for (layer, state) in caches.iter().enumerate() {
        let bound = first.iter().any(|call| call.args.contains(&Arg::State(*state)));
        if let Some(spec) = module.states[*state].paged().filter(|spec| bound && whole(spec)) {
            let most = module.info.max_context;
            return Err(format!("layer {layer} keeps all of a sequence ({spec}), so contexts end at {most} tokens"));
        }
    }
    let chooses = |n: &Node| matches!(n.op, Op::EvictingAttention { .. } | Op::SelectWindows { .. });
    if first.iter().any(|call| module.funcs[call.func].nodes.iter().any(chooses)) {
        let most = module.info.max_context;
        return Err(format!(
            "tokens that are chosen by weights or bounds keep their positions, so contexts end at {most} tokens"
        ));
    }
    let looked_up = |f: &Func| f.nodes.iter().any(|n| matches!(n.op, Op::EmbedPositions { .. }));
    if let Some(call) = first.iter().find(|call| looked_up(&module.funcs[call.func])) {
        let (name, most) = (&module.funcs[call.func].name, module.info.max_context);
        return Err(format!("`{name}` looks positions up in a table, so contexts end at {most} tokens"));
    }
    let most = module.info.max_context;
    for entry in module.entries.iter_mut().skip(1) {
        // (Others have the positions that they have.)
        entry.context.get_or_insert(most);
    }
    module.info.max_context = context;
    Ok(())
}
