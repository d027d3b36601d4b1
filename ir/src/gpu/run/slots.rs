//! Slots: their writes and reads, and whether the next access is ordered with them.

use super::super::program::{Scope, Slot};
use super::super::unroll::Step;
use super::{Event, Kind, Machine, Pass, Read, SlotState, Write, may_overlap};

/// If the thread itself wrote the bytes last, that orders its read: the same operation's writes by
/// other threads lie beside them, unless their bytes say otherwise.
fn others_that_meet(a: usize, step: Step<'_>, writes: &mut Vec<Write>) {
    let meets = |w: &Write| may_overlap(w.bytes, step.bytes);
    let mine = |w: &&Write| w.actor == a && meets(w);
    let numbers: Vec<usize> = writes.iter().filter(mine).map(|w| w.number).collect();
    if !numbers.is_empty() {
        writes.retain(|w| w.actor == a || !numbers.contains(&w.number) || w.bytes.is_some() && meets(w));
    }
}

impl<'a> Machine<'a> {
    /// Buffers of a warp are not seen by other warps.
    pub(super) fn tracked(&self, slot: Slot) -> bool {
        self.pass != Pass::Warps || self.program.buffers[slot.buffer].scope == Scope::Block
    }

    pub(super) fn name(&self, slot: Slot) -> &'a str {
        let program = self.program;
        &program.buffers[slot.buffer].name
    }

    pub(super) fn slot(&mut self, slot: Slot, index: i64) -> &mut SlotState {
        let ring = &mut self.slots[slot.buffer];
        let stage = index.rem_euclid(ring.len() as i64) as usize;
        &mut ring[stage]
    }

    /// The contents of a slot have been written, and the actor may see them.
    pub(super) fn visible(
        &mut self,
        a: usize,
        slot: Slot,
        step: Step<'a>,
        which: usize,
        own: bool,
        asynchronous: bool,
    ) {
        if !self.tracked(slot) {
            return;
        }
        let number = step.number;
        let mut writes: Vec<Write> = self
            .slot(slot, step.index[which])
            .writes
            .iter()
            .filter(|w| may_overlap(w.apart, step.apart))
            .copied()
            .collect();
        if own {
            others_that_meet(a, step, &mut writes);
        }
        // The thread's own first: of several reasons the nearest.
        writes.sort_by_key(|w| w.actor != a);
        let name = self.name(slot);
        if writes.is_empty() {
            return self.find(
                "read-before-write",
                number,
                format!("`{name}` is read before anything is written there"),
            );
        }
        for w in writes {
            let by = w.number;
            if !self.knows(a, w.event) {
                let pending = w.event.clock == 3 * a + 1 || w.event.clock >= 3 * self.actors.len();
                let (code, message) = if pending {
                    ("read-before-wait", format!("`{name}` is read before its copy by operation {by} is waited for"))
                } else {
                    (
                        "read-before-barrier",
                        format!(
                            "no barrier lies between this read of `{name}` and the writes of others in operation {by}"
                        ),
                    )
                };
                return self.find(code, number, message);
            } else if asynchronous && w.generic && w.fence.is_none_or(|t| self.actors[a].clock[3 * w.actor] < t) {
                let message = format!(
                    "`{name}`, written in operation {by}, is read asynchronously without `fence_async` between the write and the barrier"
                );
                self.find("missing-proxy-fence", number, message);
            }
        }
    }

    /// The slots whose place a buffer takes: all stages of others.
    pub(super) fn covered(&self, slot: Slot) -> Vec<(usize, usize)> {
        let over = &self.program.buffers[slot.buffer].over;
        over.iter().flat_map(|b| (0..self.slots[*b].len()).map(move |i| (*b, i))).collect()
    }

    pub(super) fn read(&mut self, slot: Slot, index: i64, read: Read) {
        if self.tracked(slot) {
            self.slot(slot, index).reads.push(read);
            for (b, i) in self.covered(slot) {
                self.slots[b][i].reads.push(read);
            }
        }
    }

    pub(super) fn write(&mut self, a: usize, slot: Slot, step: Step<'a>, event: Event, by: Kind) {
        if !self.tracked(slot) {
            return;
        }
        let stages = self.slots[slot.buffer].len() as i64;
        let own = (slot.buffer, step.index[0].rem_euclid(stages) as usize);
        for place in std::iter::once(own).chain(self.covered(slot)) {
            self.write_to(a, (place, slot.buffer), step, event, by);
        }
    }

    pub(super) fn write_to(
        &mut self,
        a: usize,
        ((buffer, stage), of): ((usize, usize), usize),
        step: Step<'a>,
        event: Event,
        by: Kind,
    ) {
        let (number, generic) = (step.number, by != Kind::Bulk);
        let mut state = std::mem::take(&mut self.slots[buffer][stage]);
        let program = self.program;
        let name = &program.buffers[buffer].name;
        // Two buffers that take the place of a third need not share a byte; nor do two stages of one,
        // which are told apart in its own slots only.
        let meets = |other: usize| {
            let over = |a: usize, b: usize| program.buffers[a].over.contains(&b);
            if of == other { buffer == of } else { over(of, other) || over(other, of) }
        };
        let late = |r: &&Read| meets(r.of) && !self.knows(a, r.event) && may_overlap(r.apart, step.apart);
        if let Some(r) = state.reads.iter().find(late) {
            let message = format!("`{name}` is written while operation {} may still read it", r.number);
            self.find("overwrite-while-read", number, message);
        }
        for w in &state.writes {
            // Several asynchronous copies, or several stores, fill different parts of a slot; one
            // kind over the other cannot be told apart from a race.
            let other = match self.pass {
                Pass::Threads => w.by != by && may_overlap(w.apart, step.apart),
                _ => {
                    let other_kind = w.event.clock != event.clock && (w.actor == a || !generic);
                    self.actors[w.actor].role != self.actors[a].role || other_kind
                }
            };
            if other && !self.knows(a, w.event) {
                let message = format!("`{name}` is written while operation {} still writes it", w.number);
                self.find("overwrite-in-flight", number, message);
            } else if !generic && w.generic && w.fence.is_none_or(|t| self.actors[a].clock[3 * w.actor] < t) {
                let message = format!(
                    "`{name}`, written in operation {}, is overwritten asynchronously without `fence_async` before",
                    w.number
                );
                self.find("missing-proxy-fence", number, message);
            }
        }
        // Contents that were read, and are known to have been, make room for others; bytes apart
        // from others replace their own.
        if step.apart.is_some() {
            state.writes.retain(|w| w.actor != a || w.apart != step.apart);
        } else if !state.reads.is_empty() {
            state = SlotState::default();
        }
        let bytes = step.bytes.filter(|_| of == buffer);
        state.writes.push(Write { by, bytes, apart: step.apart, event, actor: a, number, generic, fence: None });
        self.slots[buffer][stage] = state;
    }
}
