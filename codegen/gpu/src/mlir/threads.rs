//! Threads: who runs, where they meet.

use super::{Builder, I32, V};
use llmcc_ir::gpu::program::{Op, Sync};

impl Builder {
    /// A special register: `tid.x`, `ctaid.y`, `nctaid.x`, ...
    pub fn sreg(&mut self, name: &str) -> V {
        let v = self.op(I32, format!("nvvm.read.ptx.sreg.{name} : i32"));
        match name {
            "tid.x" => self.record_thread(v),
            // The first block has as much work as any.
            "ctaid.x" | "ctaid.y" | "ctaid.z" => self.assume(v, &[0]),
            _ => {}
        }
        v
    }
    /// Meets all threads of the block, or, inside of [`Builder::team`], all threads of the team.
    pub fn barrier(&mut self) {
        match self.team {
            None => self.barrier_all(),
            Some((id, threads)) => self.barrier_of(id, i64::from(threads)),
        }
    }
    /// Meets all threads of the block, also inside of [`Builder::team`].
    pub fn barrier_all(&mut self) {
        self.record(Op::Barrier(Sync::Block));
        self.effect("nvvm.barrier");
    }
    /// Meets so many threads at barrier `id`.
    pub fn barrier_of(&mut self, id: V, threads: i64) {
        let sync = self.record_threads(id, threads as u32);
        self.record(Op::Barrier(sync));
        let threads = self.i32(threads);
        self.effect(format!("nvvm.barrier id = {id} number_of_threads = {threads}"));
    }
    /// Counts at barrier `id`, where so many threads come, without waiting for them.
    pub fn barrier_arrive(&mut self, id: V, threads: i64) {
        let sync = self.record_threads(id, threads as u32);
        self.record(Op::BarrierArrive(sync));
        let threads = self.i32(threads);
        self.effect(format!("nvvm.barrier.arrive id = {id} number_of_threads = {threads}"));
    }
    /// Emits code that only the first `threads` threads of the block run: whole warps. Its barriers
    /// are theirs.
    pub fn team<R>(&mut self, threads: u32, body: impl FnOnce(&mut Builder) -> R) -> R {
        let id = self.i32(1);
        self.team_at(id, threads, body)
    }
    /// Emits code that so many threads of the block run, whole warps: all that have this `id`, 1 to
    /// 15. Its barriers are theirs.
    pub fn team_at<R>(&mut self, id: V, threads: u32, body: impl FnOnce(&mut Builder) -> R) -> R {
        let before = self.team.replace((id, threads));
        let result = body(self);
        self.team = before;
        result
    }
    /// Meets the threads of the warp.
    pub fn sync_warp(&mut self) {
        let all = self.i32(-1);
        self.record(Op::Barrier(Sync::Warp));
        self.effect(format!("nvvm.bar.warp.sync {all} : i32"));
    }
}
