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
    let mut token_slots: Vec<usize> = vec![];
    let mut row_slots: Vec<usize> = vec![];
    let mut placed = vec![];
    let kinds = results.kinds();
    for (i, regime) in plan.regimes.iter().enumerate() {
        let results = results.by_regime.get(i).filter(|all| all.iter().all(|(_, b)| *b < regime.buffers.len()));
        let results = results.ok_or_else(|| PassError::Extract("the output is not computed".into()))?;
        let results: Vec<(usize, usize)> = results.iter().map(|(kind, b)| (place_of(&kinds, *kind), *b)).collect();
        placed.push(color(regime, &results, &mut token_slots, &mut row_slots));
    }
    plan.slots = kinds.iter().map(|kind| slot_of(plan, results, *kind)).collect();
    let fixed = plan.slots.len();
    plan.slots.extend(token_slots.iter().map(|b| Slot { per_token: *b, per_row: 0 }));
    plan.slots.extend(row_slots.iter().map(|b| Slot { per_token: 0, per_row: *b }));
    place_results(plan, results, &kinds);
    let tokens = token_slots.len();
    for (regime, places) in plan.regimes.iter_mut().zip(placed) {
        for (b, place) in regime.buffers.iter_mut().zip(places) {
            b.slot = match place {
                Place::Result(i) => i,
                Place::Tokens(i) => fixed + i,
                Place::Rows(i) => fixed + tokens + i,
            };
        }
    }
    Ok(())
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

fn lives(regime: &Regime) -> Vec<Life> {
    let mut lives = vec![Life { from: usize::MAX, to: 0 }; regime.buffers.len()];
    for (i, launch) in regime.launches.iter().enumerate() {
        for op in &launch.operands {
            if let Operand::Buffer(b) = op {
                lives[*b].from = lives[*b].from.min(i);
                lives[*b].to = lives[*b].to.max(i);
            }
        }
    }
    lives
}

/// Places the buffers of one regime, `results` (slot and buffer) in slots of their own; slots grow to their largest
/// buffer.
fn color(
    regime: &Regime,
    results: &[(usize, usize)],
    token_slots: &mut Vec<usize>,
    row_slots: &mut Vec<usize>,
) -> Vec<Place> {
    let lives = lives(regime);
    let mut graph: UnGraph<usize, ()> = UnGraph::new_undirected();
    let nodes: Vec<NodeIndex> = (0..lives.len()).map(|i| graph.add_node(i)).collect();
    for a in 0..lives.len() {
        for b in 0..a {
            if lives[a].from <= lives[b].to && lives[b].from <= lives[a].to {
                graph.add_edge(nodes[a], nodes[b], ());
            }
        }
    }
    let mut order: Vec<usize> = (0..lives.len()).filter(|b| results.iter().all(|(_, result)| result != b)).collect();
    let size = |b: &Buffer| b.row_bytes();
    order.sort_by_key(|i| (usize::MAX - size(&regime.buffers[*i]), *i));
    let mut places: Vec<Option<Place>> = vec![None; lives.len()];
    results.iter().for_each(|(slot, b)| places[*b] = Some(Place::Result(*slot)));
    for i in order {
        let taken: Vec<Place> = graph.neighbors(nodes[i]).filter_map(|n| places[graph[n]]).collect();
        let bytes = size(&regime.buffers[i]);
        places[i] = Some(if regime.buffers[i].rows == Dim::Tokens {
            Place::Tokens(pick(token_slots, bytes, |s| !taken.contains(&Place::Tokens(s))))
        } else {
            Place::Rows(pick(row_slots, bytes, |s| !taken.contains(&Place::Rows(s))))
        });
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
