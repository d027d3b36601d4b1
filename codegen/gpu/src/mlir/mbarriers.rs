//! Additions of sm90 for pipelines between warps: `mbarrier`s in shared memory, copies in bulk that
//! report to them, registers moved between warps.
//!
//! An `mbarrier` counts arrivals and bytes. Its phase completes when all that it was initialized
//! for have arrived and all bytes that were announced are there; a waiting thread names the parity
//! of the phase.

use super::{Builder, Mbarrier, V};
use llmcc_ir::gpu::program::Op;

impl Builder {
    /// Initializes an `mbarrier` for so many arrivals per phase; see [`Builder::fence_mbarriers`].
    pub fn mbarrier_init(&mut self, barrier: &Mbarrier, arrivals: i64) {
        self.record(Op::BarrierInitAt(barrier.phase));
        let n = self.i32(arrivals);
        self.asm_effect("mbarrier.init.shared::cta.b64 [$0], $1;", "r,r,~{memory}", &[barrier.at, n]);
    }

    /// Makes initialized barriers known to the asynchronous proxy. A barrier of the block must
    /// follow.
    pub fn fence_mbarriers(&mut self) {
        self.record(Op::FenceInit);
        self.asm_effect("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;", "~{memory}", &[]);
    }

    /// Arrives: this thread's earlier writes are seen by threads that wait for the phase.
    pub fn mbarrier_arrive(&mut self, barrier: &Mbarrier) {
        self.record(Op::Arrive(barrier.phase));
        self.asm_effect("mbarrier.arrive.release.cta.shared::cta.b64 _, [$0];", "r,~{memory}", &[barrier.at]);
    }

    /// Arrives, and announces so many bytes.
    pub fn mbarrier_expect(&mut self, barrier: &Mbarrier, bytes: usize) {
        self.record(Op::Expect(barrier.phase, bytes as u32));
        let n = self.i32(bytes as i64);
        self.asm_effect(
            "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [$0], $1;",
            "r,r,~{memory}",
            &[barrier.at, n],
        );
    }

    /// Waits until the phase of this parity (0 or 1, `i32`) is complete. The phase before the first
    /// counts as complete, with parity 1.
    pub fn mbarrier_wait(&mut self, barrier: &Mbarrier, parity: V) {
        self.record_wait(barrier, parity);
        let text = "{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [$0], $1; @p bra DONE; bra AGAIN; DONE: }";
        self.asm_effect(text, "r,r,~{memory}", &[barrier.at, parity]);
    }

    /// Starts copying `bytes` adjacent bytes (a multiple of 16, as are both addresses) from global
    /// to shared memory; `barrier` counts them.
    pub fn bulk_copy(&mut self, to: V, from: V, bytes: usize, barrier: &Mbarrier) {
        self.record_bulk(to, barrier, bytes);
        let (to, n) = (self.shared_address(to), self.i32(bytes as i64));
        let text = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];";
        self.asm_effect(text, "r,l,r,r,~{memory}", &[to, from, n, barrier.at]);
    }

    /// Gives up registers: the warps of a group keep `n` per thread, a multiple of 8.
    pub fn fewer_registers(&mut self, n: usize) {
        self.record(Op::Registers(n as u32));
        self.asm_effect(&format!("setmaxnreg.dec.sync.aligned.u32 {n};"), "", &[]);
    }

    /// Waits for registers that others gave up, to have `n` per thread.
    pub fn more_registers(&mut self, n: usize) {
        self.record(Op::Registers(n as u32));
        self.asm_effect(&format!("setmaxnreg.inc.sync.aligned.u32 {n};"), "", &[]);
    }
}
