//! Asynchronous copies from global to shared memory (sm80).

use super::{Builder, V};
use llmcc_ir::gpu::program::Op;

/// How 16 bytes go from global to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// All levels.
    All,
    /// Second level only.
    L2,
}

impl Builder {
    /// Starts copying 16 bytes from global to shared memory.
    pub fn cp_async(&mut self, to: V, from: V, cache: Cache) {
        self.record_copy(to);
        let cache = if cache == Cache::All { "ca" } else { "cg" };
        self.effect(format!(
            "nvvm.cp.async.shared.global {to}, {from}, 16, cache = {cache} : !llvm.ptr<3>, !llvm.ptr<1>"
        ));
    }
    /// Starts copying 16 bytes; only the first `bytes` (an `i32`, 0 to 16) are read, the rest
    /// becomes zero.
    pub fn cp_async_some(&mut self, to: V, from: V, bytes: V) {
        self.record_copy(to);
        self.effect(format!(
            "nvvm.cp.async.shared.global {to}, {from}, 16, cache = cg, {bytes} : !llvm.ptr<3>, !llvm.ptr<1>, i32"
        ));
    }
    /// Ends a group of copies.
    pub fn cp_commit(&mut self) {
        self.record(Op::CpCommit);
        self.effect("nvvm.cp.async.commit.group");
    }
    /// Waits until at most `pending` groups are under way.
    pub fn cp_wait(&mut self, pending: usize) {
        self.record(Op::CpWait(pending as u32));
        self.effect(format!("nvvm.cp.async.wait.group {pending}"));
    }

    /// Makes this thread's writes to shared memory visible to asynchronous readers (wgmma, bulk
    /// copies).
    pub fn fence_proxy_async(&mut self) {
        self.record(Op::FenceAsync);
        self.asm_effect("fence.proxy.async.shared::cta;", "~{memory}", &[]);
    }
}
