//! Barriers of threads: of the block, of a role or warp, and named ones, at which some only count.

use super::super::WARP;
use super::super::program::Sync;
use super::{Actor, Machine, Pass, join};

impl Machine<'_> {
    /// Stands at a barrier until all who share it do.
    pub(super) fn meet(&mut self, a: usize, sync: Sync) -> bool {
        if sync == Sync::Warp && self.pass == Pass::Warps {
            self.actors[a].at += 1;
            return true;
        }
        self.actors[a].meets = Some(sync);
        let role = self.actors[a].role;
        let shares = |x: &Actor<'_>| sync == Sync::Block || x.role == role;
        if !self.actors.iter().filter(|x| shares(x)).all(|x| x.meets == Some(sync)) {
            return false;
        }
        let mut all = self.actors[a].clock.clone();
        self.actors.iter().filter(|x| shares(x)).for_each(|x| join(&mut all, &x.clock));
        for (i, x) in self.actors.iter_mut().enumerate().filter(|(_, x)| shares(x)) {
            x.clock.copy_from_slice(&all);
            x.clock[3 * i] += 1;
            x.meets = None;
            x.at += 1;
        }
        true
    }

    /// Counts a warp at a named barrier, which completes with the last; whoever waits there goes
    /// on.
    pub(super) fn come(&mut self, a: usize, id: i64, threads: u32, waits: bool) {
        let role = self.actors[a].role;
        let lanes = self.actors.iter().filter(|x| x.role == role).count() as u32;
        let (clock, clocks) = (self.actors[a].clock.clone(), self.actors[a].clock.len());
        let state = self.named.entry(id).or_default();
        state.clock.resize(clocks, 0);
        join(&mut state.clock, &clock);
        // As many lanes as are followed of its warp stand for all.
        state.threads += WARP as u32 / lanes;
        if waits {
            state.waiting.push(a);
        }
        self.actors[a].clock[3 * a] += 1;
        if state.threads < threads {
            return;
        }
        let done = std::mem::take(state);
        for w in done.waiting {
            let actor = &mut self.actors[w];
            join(&mut actor.clock, &done.clock);
            actor.clock[3 * w] += 1;
            actor.meets = None;
            actor.at += 1;
        }
    }

    /// Stands at a named barrier until so many threads have come.
    pub(super) fn meet_named(&mut self, a: usize, id: i64, threads: u32) -> bool {
        let before = self.actors[a].at;
        if self.actors[a].meets.is_none() {
            self.actors[a].meets = Some(Sync::Threads(0, threads));
            self.come(a, id, threads, true);
        }
        self.actors[a].at != before
    }
}
