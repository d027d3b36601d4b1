//! Memory: buffers whose lives do not overlap share a slot.
//!
//! A buffer lives from the launch that writes it to the last launch that reads it, both included: a kernel's inputs and outputs never share. Slots are
//! coloured greedily on the interference graph, largest buffers first; regimes share slots, each as large as its largest user, since
//! only one regime runs at a time.

use crate::PassError;
use llmcc_ir::plan::{Buffer, Operand, Plan, Regime, Slot};
use llmcc_ir::ty::Dim;
use petgraph::graph::{NodeIndex, UnGraph};

/// A buffer's life, in launch numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    from: usize,
    to: usize,
}

/// Assigns every buffer of the plan to a slot. `logits` is the buffer of the logits in each regime: it gets slot 0 for itself.
///
/// # Errors
/// A regime without logits.
pub fn assign(plan: &mut Plan, logits: &[usize]) -> Result<(), PassError> {
    let mut token_slots: Vec<usize> = vec![];
    let mut row_slots: Vec<usize> = vec![];
    let mut placed = vec![];
    for (regime, logits) in plan.regimes.iter().zip(logits) {
        if *logits >= regime.buffers.len() {
            return Err(PassError::Extract("the logits are not computed".into()));
        }
        placed.push(color(regime, *logits, &mut token_slots, &mut row_slots));
    }
    let logits_row = plan.regimes.iter().zip(logits).map(|(r, l)| r.buffers[*l].row_bytes()).max().unwrap_or(0);
    plan.slots = vec![Slot { per_token: 0, per_row: logits_row }];
    plan.slots.extend(token_slots.iter().map(|b| Slot { per_token: *b, per_row: 0 }));
    plan.slots.extend(row_slots.iter().map(|b| Slot { per_token: 0, per_row: *b }));
    plan.logits = 0;
    let tokens = token_slots.len();
    for (regime, places) in plan.regimes.iter_mut().zip(placed) {
        for (b, place) in regime.buffers.iter_mut().zip(places) {
            b.slot = match place {
                Place::Logits => 0,
                Place::Tokens(i) => 1 + i,
                Place::Rows(i) => 1 + tokens + i,
            };
        }
    }
    Ok(())
}

/// A slot before slots are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Logits,
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

/// Places the buffers of one regime; slots grow to their largest buffer.
fn color(regime: &Regime, logits: usize, token_slots: &mut Vec<usize>, row_slots: &mut Vec<usize>) -> Vec<Place> {
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
    let mut order: Vec<usize> = (0..lives.len()).filter(|b| *b != logits).collect();
    let size = |b: &Buffer| b.row_bytes();
    order.sort_by_key(|i| (usize::MAX - size(&regime.buffers[*i]), *i));
    let mut places: Vec<Option<Place>> = vec![None; lives.len()];
    places[logits] = Some(Place::Logits);
    for i in order {
        let taken: Vec<Place> = graph.neighbors(nodes[i]).filter_map(|n| places[graph[n]]).collect();
        let bytes = size(&regime.buffers[i]);
        places[i] = Some(if regime.buffers[i].rows == Dim::Tokens {
            Place::Tokens(pick(token_slots, bytes, |s| !taken.contains(&Place::Tokens(s))))
        } else {
            Place::Rows(pick(row_slots, bytes, |s| !taken.contains(&Place::Rows(s))))
        });
    }
    places.into_iter().map(|p| p.unwrap_or(Place::Logits)).collect()
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
