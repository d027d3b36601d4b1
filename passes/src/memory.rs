//! Memory: buffers whose lives do not overlap share a slot.
//!
//! A buffer lives from the launch that writes it to the last launch that reads it, both included: a
//! kernel's inputs and outputs never share. Slots are coloured greedily on the interference graph,
//! largest buffers first; regimes share slots, each as large as its largest user, since only one
//! regime runs at a time.

use crate::PassError;
use llmcc_ir::kernel::Body;
use llmcc_ir::plan::{Buffer, Candidates, Operand, Plan, Regime, Slot};
use llmcc_ir::ty::Dim;
use petgraph::graph::{NodeIndex, UnGraph};

/// A buffer's life, in launch numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    from: usize,
    to: usize,
}

/// The buffers that the runtime reads after a step, in each regime.
#[derive(Clone, Debug, Default)]
pub struct ResultBuffers {
    /// That of the output.
    pub outputs: Vec<usize>,
    /// That of the hidden states; empty where the caller gets none.
    pub hidden: Vec<usize>,
    /// That of the candidates; empty where there are none.
    pub candidates: Vec<usize>,
}

impl ResultBuffers {
    /// Those that there are, the output first.
    fn all(&self) -> impl Iterator<Item = &[usize]> {
        let more = [&self.hidden, &self.candidates].into_iter().filter(|of| !of.is_empty());
        std::iter::once(&self.outputs).chain(more).map(Vec::as_slice)
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
    for (i, regime) in plan.regimes.iter().enumerate() {
        let buffer = |of: &[usize]| of.get(i).copied().filter(|b| *b < regime.buffers.len());
        let results: Option<Vec<usize>> = results.all().map(buffer).collect();
        let results = results.ok_or_else(|| PassError::Extract("the output is not computed".into()))?;
        placed.push(color(regime, &results, &mut token_slots, &mut row_slots));
    }
    plan.slots = results.all().map(|buffers| slot_of(plan, buffers)).collect();
    let fixed = plan.slots.len();
    plan.slots.extend(token_slots.iter().map(|b| Slot { per_token: *b, per_row: 0 }));
    plan.slots.extend(row_slots.iter().map(|b| Slot { per_token: 0, per_row: *b }));
    plan.output = 0;
    plan.hidden = (!results.hidden.is_empty()).then_some(1);
    plan.candidates = plan.kernels.iter().find_map(|k| match &k.body {
        Body::TopK(t) => Some(Candidates { slot: fixed - 1, k: t.k }),
        _ => None,
    });
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

/// A slot that holds one of the buffers, whichever regime runs.
fn slot_of(plan: &Plan, buffers: &[usize]) -> Slot {
    let of = plan.regimes.iter().zip(buffers).map(|(r, b)| &r.buffers[*b]);
    of.fold(Slot::default(), |slot, b| match b.rows {
        Dim::Tokens => Slot { per_token: slot.per_token.max(b.row_bytes()), ..slot },
        _ => Slot { per_row: slot.per_row.max(b.row_bytes()), ..slot },
    })
}

/// A slot before slots are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Buffer of a result of the step.
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

/// Places the buffers of one regime, `results` in slots of their own; slots grow to their largest
/// buffer.
fn color(regime: &Regime, results: &[usize], token_slots: &mut Vec<usize>, row_slots: &mut Vec<usize>) -> Vec<Place> {
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
    let mut order: Vec<usize> = (0..lives.len()).filter(|b| !results.contains(b)).collect();
    let size = |b: &Buffer| b.row_bytes();
    order.sort_by_key(|i| (usize::MAX - size(&regime.buffers[*i]), *i));
    let mut places: Vec<Option<Place>> = vec![None; lives.len()];
    results.iter().enumerate().for_each(|(i, b)| places[*b] = Some(Place::Result(i)));
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
