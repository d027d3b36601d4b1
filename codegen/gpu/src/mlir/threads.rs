//! Threads: who runs, where they meet.

use super::{Builder, I32, V};

impl Builder {
    /// A special register: `tid.x`, `ctaid.y`, `nctaid.x`, ...
    pub fn sreg(&mut self, name: &str) -> V {
        self.op(I32, format!("nvvm.read.ptx.sreg.{name} : i32"))
    }
    /// Meets all threads of the block, or, inside of [`Builder::team`], those of the team.
    pub fn barrier(&mut self) {
        match self.team {
            None => self.effect("nvvm.barrier"),
            Some(threads) => {
                let (id, threads) = (self.i32(1), self.i32(i64::from(threads)));
                self.effect(format!("nvvm.barrier id = {id} number_of_threads = {threads}"));
            }
        }
    }
    /// Meets all threads of the block, also inside of [`Builder::team`].
    pub fn barrier_all(&mut self) {
        self.effect("nvvm.barrier");
    }
    /// Emits code that only the first `threads` threads of the block run: whole warps. Its barriers are theirs.
    pub fn team<R>(&mut self, threads: u32, body: impl FnOnce(&mut Builder) -> R) -> R {
        let before = self.team.replace(threads);
        let result = body(self);
        self.team = before;
        result
    }
    /// Meets the threads of the warp.
    pub fn sync_warp(&mut self) {
        let all = self.i32(-1);
        self.effect(format!("nvvm.bar.warp.sync {all} : i32"));
    }
}
