//! Memory: buffers whose lives do not overlap share a slot.
//!
//! A buffer lives from the launch that writes it to the last launch that reads it, both included: a
//! kernel's inputs and outputs never share. Slots are coloured greedily on the interference graph,
//! largest buffers first; regimes share slots, each as large as its largest user, since only one
//! regime runs at a time.

use crate::PassError;
use llmcc_ir::kernel::Body;
use llmcc_ir::output::{EntryOutput, Output};
use llmcc_ir::plan::{Buffer, Candidates, Operand, Plan, Regime, Slot};
use llmcc_ir::ty::Dim;
use petgraph::graph::{NodeIndex, UnGraph};
use std::collections::BTreeMap;

/// A buffer's life, in launch numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    from: usize,
    to: usize,
}

/// A result that the runtime reads after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An output of an entry.
    Output(Output),
    /// The most probable tokens of each row of logits.
    Candidates,
}

/// The buffers of results, in each regime.
#[derive(Clone, Debug, Default)]
pub struct ResultBuffers {
    /// By regime: outputs in the order of the entry, then the candidates, if there are any.
    pub by_regime: Vec<Vec<(Kind, usize)>>,
    /// By regime: buffers of the entry's taps in their order.
    pub taps: Vec<Vec<TapBuffers>>,
}

/// Buffers of a tap in a regime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapBuffers {
    /// The call at whose end they are read.
    pub call: usize,
    /// Its rows.
    pub rows: usize,
    /// Its routes.
    pub routes: Option<usize>,
}

impl TapBuffers {
    fn all(self) -> impl Iterator<Item = usize> {
        std::iter::once(self.rows).chain(self.routes)
    }
}

impl ResultBuffers {
    /// Every kind of result of any regime once: a slot holds it, whichever entry runs.
    fn kinds(&self) -> Vec<Kind> {
        let mut kinds = vec![];
        for (kind, _) in self.by_regime.iter().flatten() {
            if !kinds.contains(kind) {
                kinds.push(*kind);
            }
        }
        kinds
    }
}

/// Assigns every buffer of the plan to a slot. Results get slots for themselves, the first ones.
///
/// # Errors
/// A regime without output.
pub fn assign(plan: &mut Plan, results: &ResultBuffers) -> Result<(), PassError> {
    let mut slots = Slots::default();
    let mut placed = vec![];
    let kinds = results.kinds();
    // Places of the taps of the entry at hand.
    let mut taps = Taps::default();
    for (i, regime) in plan.regimes.iter().enumerate() {
        if i == 0 || plan.regimes[i - 1].entry != regime.entry {
            taps = Taps::place(plan, results, i, &mut slots);
        }
        let own = results.by_regime.get(i).filter(|all| all.iter().all(|(_, b)| *b < regime.buffers.len()));
        let own = own.ok_or_else(|| PassError::Extract("the output is not computed".into()))?;
        let mut fixed: BTreeMap<usize, Place> = taps.of_regime(&results.taps[i]);
        fixed.extend(own.iter().map(|(kind, b)| (*b, Place::Result(place_of(&kinds, *kind)))));
        placed.push(color(regime, lives(regime, &results.taps[i]), &fixed, &mut slots));
    }
    let Slots { tokens: token_slots, rows: row_slots } = slots;
    plan.slots = kinds.iter().map(|kind| slot_of(plan, results, *kind)).collect();
    let fixed = plan.slots.len();
    plan.slots.extend(token_slots.iter().map(|b| Slot { per_token: *b, per_row: 0 }));
    plan.slots.extend(row_slots.iter().map(|b| Slot { per_token: 0, per_row: *b }));
    place_results(plan, results, &kinds);
    let tokens = token_slots.len();
    let slot = |place: Place| match place {
        Place::Result(i) => i,
        Place::Tokens(i) => fixed + i,
        Place::Rows(i) => fixed + tokens + i,
    };
    for (regime, places) in plan.regimes.iter_mut().zip(placed) {
        regime.buffers.iter_mut().zip(places).for_each(|(b, place)| b.slot = slot(place));
    }
    place_taps(plan, results);
    Ok(())
}

/// Tells each entry the slots of its taps. Their buffers have the same in all of its regimes.
fn place_taps(plan: &mut Plan, results: &ResultBuffers) {
    for (index, entry) in plan.entries.iter_mut().enumerate() {
        let Some(at) = plan.regimes.iter().position(|r| r.entry == index) else { continue };
        let slot = |buffer: usize| plan.regimes[at].buffers.get(buffer).map_or(usize::MAX, |b| b.slot);
        for (tap, buffers) in entry.taps.iter_mut().zip(&results.taps[at]) {
            tap.at = slot(buffers.rows);
            if let (Some(routes), Some(buffer)) = (&mut tap.routes, buffers.routes) {
                routes.at = slot(buffer);
            }
        }
    }
}

/// Bytes of slots while buffers are placed in them.
#[derive(Default)]
struct Slots {
    tokens: Vec<usize>,
    rows: Vec<usize>,
}

impl Slots {
    /// The first slot for a buffer that is in none of the `taken` places, grown to its size, or a new one.
    fn pick(&mut self, b: &Buffer, taken: &[Place]) -> Place {
        if b.rows == Dim::Tokens {
            Place::Tokens(pick(&mut self.tokens, b.row_bytes(), |s| !taken.contains(&Place::Tokens(s))))
        } else {
            Place::Rows(pick(&mut self.rows, b.row_bytes(), |s| !taken.contains(&Place::Rows(s))))
        }
    }
}

/// Places of the buffers of an entry's taps: the same in all of its regimes, as a tap has one slot.
#[derive(Default)]
struct Taps {
    /// By tap: places of its rows and routes.
    places: Vec<Vec<Place>>,
}

impl Taps {
    /// Places them. Two that live in the same call of any regime have different slots. `first` is the entry's first
    /// regime.
    fn place(plan: &Plan, results: &ResultBuffers, first: usize, slots: &mut Slots) -> Taps {
        let entry = plan.regimes[first].entry;
        let regimes: Vec<usize> = (first..plan.regimes.len()).take_while(|r| plan.regimes[*r].entry == entry).collect();
        // A buffer of several taps, by its index in the first regime, is one in all of them.
        let mut calls: BTreeMap<usize, Life> = BTreeMap::new();
        for r in regimes {
            let launches = &plan.regimes[r].launches;
            let lives = lives(&plan.regimes[r], &results.taps[r]);
            for (tap, original) in results.taps[r].iter().zip(&results.taps[first]) {
                for (b, key) in tap.all().zip(original.all()) {
                    let call = |launch: usize| launches.get(launch).map_or(0, |l| l.call);
                    let life = lives.get(b).map_or(Life { from: 0, to: usize::MAX }, |l| *l);
                    let life = Life { from: call(life.from), to: call(life.to).max(tap.call) };
                    let all = calls.entry(key).or_insert(life);
                    *all = Life { from: all.from.min(life.from), to: all.to.max(life.to) };
                }
            }
        }
        let mut placed: BTreeMap<usize, Place> = BTreeMap::new();
        for (buffer, life) in &calls {
            let meets = |other: &Life| life.from <= other.to && other.from <= life.to;
            let taken: Vec<Place> = placed.iter().filter(|(b, _)| meets(&calls[*b])).map(|(_, p)| *p).collect();
            if let Some(b) = plan.regimes[first].buffers.get(*buffer) {
                placed.insert(*buffer, slots.pick(b, &taken));
            }
        }
        let of_tap = |t: &TapBuffers| t.all().filter_map(|b| placed.get(&b).copied()).collect();
        Taps { places: results.taps[first].iter().map(of_tap).collect() }
    }

    /// The places by buffer of a regime.
    fn of_regime(&self, taps: &[TapBuffers]) -> BTreeMap<usize, Place> {
        taps.iter().zip(&self.places).flat_map(|(t, places)| t.all().zip(places.iter().copied())).collect()
    }
}

/// The slot of a kind of results: the first ones are those of the kinds, in their order.
fn place_of(kinds: &[Kind], kind: Kind) -> usize {
    kinds.iter().position(|k| *k == kind).unwrap_or_default()
}

/// Tells each entry the slots of its results.
fn place_results(plan: &mut Plan, results: &ResultBuffers, kinds: &[Kind]) {
    let k = plan.kernels.iter().find_map(|k| if let Body::TopK(t) = &k.body { Some(t.k) } else { None });
    for (index, entry) in plan.entries.iter_mut().enumerate() {
        let first = plan.regimes.iter().position(|r| r.entry == index);
        let own = first.and_then(|r| results.by_regime.get(r)).map_or(&[][..], Vec::as_slice);
        for (kind, _) in own {
            let slot = place_of(kinds, *kind);
            match kind {
                Kind::Output(output) => entry.outputs.push(EntryOutput { output: *output, at: slot }),
                Kind::Candidates => entry.candidates = k.map(|k| Candidates { slot, k }),
            }
        }
    }
}

/// A slot that holds a result, whichever regime runs.
fn slot_of(plan: &Plan, results: &ResultBuffers, kind: Kind) -> Slot {
    let of_regime = |(r, all): (&Regime, &Vec<(Kind, usize)>)| {
        let (_, buffer) = all.iter().find(|(k, _)| *k == kind)?;
        r.buffers.get(*buffer).map(|b| (b.rows, b.row_bytes()))
    };
    let buffers = plan.regimes.iter().zip(&results.by_regime).filter_map(of_regime);
    buffers.fold(Slot::default(), |slot, (rows, bytes)| match rows {
        Dim::Tokens => Slot { per_token: slot.per_token.max(bytes), ..slot },
        _ => Slot { per_row: slot.per_row.max(bytes), ..slot },
    })
}

/// A slot before slots are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Slot of a result.
    Result(usize),
    Tokens(usize),
    Rows(usize),
}

/// The life of each buffer; buffers of taps live to the end of the tap's call.
fn lives(regime: &Regime, taps: &[TapBuffers]) -> Vec<Life> {
    let mut lives = vec![Life { from: usize::MAX, to: 0 }; regime.buffers.len()];
    for (i, launch) in regime.launches.iter().enumerate() {
        for op in &launch.operands {
            if let Operand::Buffer(b) = op {
                lives[*b].from = lives[*b].from.min(i);
                lives[*b].to = lives[*b].to.max(i);
            }
        }
    }
    for tap in taps {
        let end = regime.launches.partition_point(|l| l.call <= tap.call);
        for b in tap.all() {
            if let Some(life) = lives.get_mut(b) {
                life.to = life.to.max(end.saturating_sub(1));
            }
        }
    }
    lives
}

/// Places the buffers of one regime, some of which have `fixed` places; slots grow to their largest buffer.
fn color(regime: &Regime, lives: Vec<Life>, fixed: &BTreeMap<usize, Place>, slots: &mut Slots) -> Vec<Place> {
    let mut graph: UnGraph<usize, ()> = UnGraph::new_undirected();
    let nodes: Vec<NodeIndex> = (0..lives.len()).map(|i| graph.add_node(i)).collect();
    for a in 0..lives.len() {
        for b in 0..a {
            if lives[a].from <= lives[b].to && lives[b].from <= lives[a].to {
                graph.add_edge(nodes[a], nodes[b], ());
            }
        }
    }
    let mut order: Vec<usize> = (0..lives.len()).filter(|b| !fixed.contains_key(b)).collect();
    let size = |b: &Buffer| b.row_bytes();
    order.sort_by_key(|i| (usize::MAX - size(&regime.buffers[*i]), *i));
    let mut places: Vec<Option<Place>> = (0..lives.len()).map(|b| fixed.get(&b).copied()).collect();
    for i in order {
        let taken: Vec<Place> = graph.neighbors(nodes[i]).filter_map(|n| places[graph[n]]).collect();
        places[i] = Some(slots.pick(&regime.buffers[i], &taken));
    }
    places.into_iter().map(|p| p.unwrap_or(Place::Result(0))).collect()
}

/// The first free slot, grown to `bytes` if smaller, or a new one.
fn pick(slots: &mut Vec<usize>, bytes: usize, free: impl Fn(usize) -> bool) -> usize {
    match (0..slots.len()).find(|s| free(*s)) {
        Some(s) => {
            slots[s] = slots[s].max(bytes);
            s
        }
        None => {
            slots.push(bytes);
            slots.len() - 1
        }
    }
}
