//! `mbarrier`s: arrivals, bytes, phases.

use super::super::program::{Arrivals, Phase, Slot};
use super::super::unroll::Step;
use super::{Event, Kind, Machine, join};

impl<'a> Machine<'a> {
    /// Number of the clock of a barrier, its stage, and the phase its index means.
    pub(super) fn phase(&self, p: Phase, index: i64) -> (usize, usize, i64) {
        let stages = self.barriers[p.barrier].len() as i64;
        let before: usize = self.barriers[..p.barrier].iter().map(Vec::len).sum();
        let stage = index.rem_euclid(stages) as usize;
        (3 * self.actors.len() + before + stage, stage, index.div_euclid(stages))
    }

    pub(super) fn initialized(&mut self, a: usize, p: Phase, index: i64, number: usize) {
        let (program, stage) = (self.program, self.phase(p, index).1);
        if !self.ready[p.barrier][stage].is_some_and(|e| self.knows(a, e)) {
            let name = &program.barriers[p.barrier].name;
            let message = format!(
                "`{name}` is used before its initialization is known to this thread: initialize it, then meet at a barrier"
            );
            self.find("barrier-not-initialized", number, message);
        }
    }

    pub(super) fn arrive(&mut self, a: usize, p: Phase, step: Step<'a>, bytes: i64, index: i64) {
        self.initialized(a, p, index, step.number);
        let (clock, stage, _) = self.phase(p, index);
        let state = &mut self.barriers[p.barrier][stage];
        state.pending = state.pending.saturating_sub(1);
        state.bytes += bytes;
        join(&mut state.arriving, &self.actors[a].clock);
        self.actors[a].clock[3 * a] += 1;
        self.complete(p, clock, stage);
    }

    pub(super) fn bulk_copy(&mut self, a: usize, slot: Slot, p: Phase, bytes: i64, step: Step<'a>) {
        self.initialized(a, p, step.index[1], step.number);
        let stage = self.phase(p, step.index[1]).1;
        if !self.fenced[p.barrier][stage].is_some_and(|e| self.knows(a, e)) {
            let program = self.program;
            let name = &program.barriers[p.barrier].name;
            let message = format!(
                "the asynchronous proxy may not know of the initialization of `{name}`: fence it, then meet at a barrier"
            );
            self.find("missing-init-fence", step.number, message);
        }
        let (clock, stage, _) = self.phase(p, step.index[1]);
        let tick = self.barriers[p.barrier][stage].done + 1;
        self.write(a, slot, step, Event { clock, tick }, Kind::Bulk);
        self.bulk.retain(|b| b.0 != clock);
        self.bulk.push((clock, tick, step.number));
        self.barriers[p.barrier][stage].bytes -= bytes;
        self.complete(p, clock, stage);
    }

    /// Completes the current phase if nothing is missing.
    pub(super) fn complete(&mut self, p: Phase, clock: usize, stage: usize) {
        let count = match self.program.barriers[p.barrier].arrivals {
            Arrivals::One => 1,
            Arrivals::All => self.actors.len(),
            Arrivals::Role(r) => self.actors.iter().filter(|x| x.role == Some(r)).count(),
            Arrivals::Count(n) => n as usize,
        };
        let state = &mut self.barriers[p.barrier][stage];
        if state.pending == 0 && state.bytes == 0 {
            state.done += 1;
            state.pending = count as u32;
            state.arriving[clock] = state.done;
            let arriving = std::mem::take(&mut state.arriving);
            join(&mut state.completed, &arriving);
            state.arriving = vec![0; arriving.len()];
        }
    }

    pub(super) fn wait(&mut self, a: usize, p: Phase, step: Step<'a>, full: bool) -> bool {
        self.initialized(a, p, step.index[0], step.number);
        let (_, stage, turn) = self.phase(p, step.index[0]);
        let state = &self.barriers[p.barrier][stage];
        let wanted = turn + i64::from(full);
        // All the hardware tells is whether the number of completed phases is odd.
        if (i64::from(state.done) - wanted).rem_euclid(2) != 0 {
            return false;
        }
        if i64::from(state.done) != wanted {
            let program = self.program;
            let name = &program.barriers[p.barrier].name;
            let message = format!(
                "`{name}` has completed {} phases where {wanted} are waited for: parity cannot tell",
                state.done
            );
            self.find("barrier-phase", step.number, message);
        }
        let completed = &self.barriers[p.barrier][stage].completed;
        join(&mut self.actors[a].clock, completed);
        true
    }
}
