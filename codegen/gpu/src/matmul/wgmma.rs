//! Products of many rows by `wgmma` (sm_90a): 128 columns (of all lanes) by 128 or 256 rows of input per block.
//!
//! Two groups of four warps have 64 columns each. Weights are the A operand, in registers: a warp's 16 columns are a strip in fragment order, decoded as
//! everywhere. Input is the B operand, in shared memory in lines of 128 bytes with the 128-byte swizzle, where `wgmma` reads the columns of each step of 16 in
//! order; fragment order has permuted them, so input must be stored permuted in the same way: element `16t + 4s + e` of a unit goes to place `16s + 2t + e mod 2 + 8·(e / 2)`. A thread
//! takes half of a row of a unit, the four pieces of 16 bytes that hold two steps, and stores their words in another order: registers are renamed,
//! nothing is shuffled, and no bank conflicts arise. Copies by hardware could not do that, and would leave it to another kernel to permute.
//!
//! One barrier per unit orders it all. Turn `i` of a thread: it decodes its weights of unit `i`, meets the others, starts the products of unit `i`, and while they run stores
//! what it loaded of unit `i + 1`, makes that visible to the asynchronous proxy, and starts loading unit `i + 2` to registers; then it waits for the products. The stage
//! that is stored to was last read by the products of unit `i − 2`, which every group had finished when it came to the barrier of turn `i − 1`.
//!
//! The second group decodes after the barrier, so that it does while the products of the first run, which decodes while those of the second do. (Decoding
//! the next unit while the own products run would be simpler, but `ptxas` takes the registers that it writes for operands of what runs, and waits after every `wgmma`.)
//!
//! Registers: 128 sums for 256 rows, 32 of input under way, 16 of weights; 256 threads may have 255 each.

use super::decode::{self, Scaling};
use super::tiles::ROW;
use super::weights::Weights;
use super::work::{self, Block, Room, Share};
use super::{PhaseCx, Plan, input};
use crate::cx::Args;
use crate::mlir::{Builder, Cmp, Elem, I32, I64, StructElem, Ty, V, V4I32};
use crate::{Source, epilogue};
use llmcc_abi::layout::round_up;
use llmcc_codegen::CodegenError;
use llmcc_ir::gpu::schedule::{self, WGMMA_STAGES};
use std::fmt::Write;

/// Shared memory starts with a word that tells all threads something; stages are aligned to 1024 bytes, as the swizzle wants.
const STAGES_AT: usize = 1024;

/// Offsets in shared memory: stages, then rings; the sums take the place of both.
struct Map {
    rings: usize,
    spare: usize,
    bytes: usize,
}

impl Map {
    fn new(plan: &Plan<'_>, phases: &[PhaseCx<'_>]) -> Map {
        let s = plan.schedule;
        let most = |f: &dyn Fn(&PhaseCx<'_>) -> usize| phases.iter().map(f).max().unwrap_or(0);
        let spare = |p: &PhaseCx<'_>| {
            let of = |seg| epilogue::shared_bytes(plan.cx, seg, s.rows, p.tile_n);
            p.segments.iter().map(of).max().unwrap_or(0)
        };
        let rings = STAGES_AT + WGMMA_STAGES * s.rows * ROW;
        let end = rings + most(&|p| s.warps * p.phase.stages * schedule::unit_bytes(p.formats[0]));
        let spare_at = round_up(STAGES_AT + most(&|p| schedule::sums_bytes(1, s.rows, &p.segments[0])), 16);
        Map { rings, spare: spare_at, bytes: end.max(spare_at + most(&spare)) }
    }
}

/// Emits the kernel.
///
/// # Errors
/// Operands of the wrong kind, or more shared memory than there is.
pub fn emit(plan: &Plan<'_>) -> Result<Source, CodegenError> {
    let phases = plan.phases()?;
    let map = Map::new(plan, &phases);
    work::kernel(plan, &phases, map.bytes, |b, args, block, _, p| Product { plan, p, args, block, map: &map }.emit(b))
}

/// A phase while it is emitted.
struct Product<'a> {
    plan: &'a Plan<'a>,
    p: &'a PhaseCx<'a>,
    args: Args<'a>,
    block: Block,
    map: &'a Map,
}

/// What a thread knows of itself.
struct Thread<'a> {
    weights: Weights<'a>,
    warp: V,
    lane: V,
    ring: V,
    share: Share,
    /// Halves of rows that it copies: where each starts in the input, and where its four pieces go in a stage.
    halves: Vec<(V, [V; 4])>,
}

/// A place in one of several buffers: the turns go round.
fn next(b: &mut Builder, stage: V, stages: usize) -> V {
    let up = b.addc(stage, 1);
    let over = b.cmpc(Cmp::Sge, up, stages as i64);
    let zero = b.i32(0);
    b.select(over, zero, up)
}

impl<'a> Product<'a> {
    fn shared(&self, b: &mut Builder, at: usize) -> V {
        let base = b.shared();
        b.atc(base, at as i64)
    }

    fn rows(&self) -> usize {
        self.plan.schedule.rows
    }

    fn unit_bytes(&self) -> i64 {
        schedule::unit_bytes(self.p.formats[0]) as i64
    }

    fn emit(&self, b: &mut Builder) -> Result<(), CodegenError> {
        let share = work::share(b, self.plan, self.p, &self.block);
        let tid = b.sreg("tid.x");
        let (warp, lane) = (b.shrc(tid, 5), b.andc(tid, 31));
        let rings = self.shared(b, self.map.rings);
        let offset = b.mulc(warp, self.p.phase.stages as i64 * self.unit_bytes());
        let ring = b.at(rings, offset);
        let weights = Weights::single(b, self.plan, self.p, self.args, lane, warp);
        let halves = self.halves(b, tid)?;
        let th = Thread { weights, warp, lane, ring, share, halves };
        let kt = self.plan.kt() as i64;
        let (first, end, one) = (b.divc(share.lo, kt), b.divc(share.hi, kt), b.i32(1));
        let mut done = Ok(());
        b.for_((first, end, one), &[], |b, tile, _| {
            done = self.tile(b, &th, tile);
            vec![]
        });
        done
    }

    /// What a thread copies: half `h` of row `r`, for `2r + h` = its number and further ones. Rows beyond those of the step repeat the last one.
    fn halves(&self, b: &mut Builder, tid: V) -> Result<Vec<(V, [V; 4])>, CodegenError> {
        let threads = self.plan.schedule.warps * 32;
        let last = b.addc(self.block.rows, -1);
        (0..self.rows() * 2 / threads)
            .map(|i| {
                let n = b.addc(tid, (i * threads) as i64);
                let (row, h) = (b.shrc(n, 1), b.andc(n, 1));
                let source = b.min(row, last);
                let source = b.add(self.block.row0, source);
                let from = input::row(b, self.plan, self.args, source)?;
                let skip = b.shlc(h, 4);
                let from = b.at(from, skip);
                let (line, swizzle, first) = (b.shlc(row, 7), b.andc(row, 7), b.shlc(h, 2));
                let to = std::array::from_fn(|c| {
                    let piece = b.addc(first, c as i64);
                    let piece = b.xor(piece, swizzle);
                    let piece = b.shlc(piece, 4);
                    b.add(line, piece)
                });
                Ok((from, to))
            })
            .collect()
    }

    /// Loads a thread's part of unit `kt` of the input.
    fn load(&self, b: &mut Builder, th: &Thread<'_>, kt: V) -> Vec<V> {
        let column = b.mulc(kt, ROW as i64);
        let mut out = vec![];
        for (from, _) in &th.halves {
            let p = b.at(*from, column);
            for t in 0..4 {
                let p = b.atc(p, 32 * t);
                out.push(b.load_const(p, V4I32));
            }
        }
        out
    }

    /// Stores it in a stage, in the order of the steps, for the asynchronous proxy to read.
    fn store(&self, b: &mut Builder, th: &Thread<'_>, stage: V, x: &[V]) {
        let skip = b.mulc(stage, (self.rows() * ROW) as i64);
        let base = self.shared(b, STAGES_AT);
        let base = b.at(base, skip);
        for (i, (_, to)) in th.halves.iter().enumerate() {
            let words: Vec<Vec<V>> = x[4 * i..4 * i + 4].iter().map(|v| b.unpack(*v)).collect();
            for (c, to) in to.iter().enumerate() {
                // Piece c of the half: pair c mod 2 of its step c / 2, of all four lanes of a quad: that is word c of each loaded piece.
                let piece: Vec<V> = words.iter().map(|w| w[c]).collect();
                let v = b.pack(&piece);
                let p = b.at(base, *to);
                b.store(v, p);
            }
        }
        b.fence_proxy_async();
    }

    /// Starts copying a warp's weights of unit `kt`, if there is one: always one group of copies.
    fn fetch(&self, b: &mut Builder, th: &Thread<'_>, tile: V, kt: V, slot: V) {
        let inside = b.cmpc(Cmp::Slt, kt, self.plan.kt() as i64);
        let skip = b.mulc(slot, self.unit_bytes());
        b.if_(inside, |b| {
            let slot = b.at(th.ring, skip);
            th.weights.fetch(b, tile, kt, slot);
        });
        b.cp_commit();
    }

    fn tile(&self, b: &mut Builder, th: &Thread<'_>, tile: V) -> Result<(), CodegenError> {
        let ring = self.p.phase.stages;
        for i in 0..ring - 1 {
            let (kt, slot) = (b.i32(i as i64), b.i32(i as i64));
            self.fetch(b, th, tile, kt, slot);
        }
        let (zero, one) = (b.i32(0), b.i32(1));
        let last = b.i32(self.plan.kt() as i64 - 1);
        let x = self.load(b, th, zero);
        self.store(b, th, zero, &x);
        let second = b.min(one, last);
        let held = self.load(b, th, second);
        let write = b.i32(ring as i64 - 1);
        let nothing = b.f32(0.0);
        // Stage of this unit, slots of the ring to read and to fill, input under way, sums.
        let mut init = vec![zero, zero, write];
        init.extend(&held);
        init.extend(vec![nothing; self.rows() / 2]);
        let end = b.i32(self.plan.kt() as i64);
        let n = 3 + held.len();
        let early = b.cmpc(Cmp::Slt, th.warp, 4);
        let out = b.for_((zero, end, one), &init, |b, kt, carried| {
            let (stage, read, write) = (carried[0], carried[1], carried[2]);
            let ahead = b.addc(kt, ring as i64 - 1);
            let decode = |b: &mut Builder| self.next_weights(b, th, tile, (ahead, read, write));
            // The groups take turns: one decodes while the other's products run.
            let a = b.if_else(early, &[I32; 16], decode, |b| vec![b.i32(0); 16]);
            b.barrier();
            let a = b.if_else(early, &[I32; 16], |_| a.clone(), decode);
            let sums = self.multiply(b, stage, &a, &carried[n..]);
            let after = next(b, stage, WGMMA_STAGES);
            self.store(b, th, after, &carried[3..n]);
            let ahead = b.addc(kt, 2);
            let ahead = b.min(ahead, last);
            let held = self.load(b, th, ahead);
            let sums = self.wait(b, &sums, &a);
            let mut out = vec![after, next(b, read, ring), next(b, write, ring)];
            out.extend(held);
            out.extend(sums);
            out
        });
        // Sums take the place of the stages.
        b.cp_wait(0);
        b.barrier();
        self.store_sums(b, th, &out[n..]);
        let room = Room { sums: self.shared(b, STAGES_AT), spare: self.shared(b, self.map.spare), flag: self.shared(b, 0) };
        work::finish(b, self.args, self.plan, self.p, (&self.block, th.share, &room), tile, 1)
    }

    /// Waits for the weights in slot `read` and decodes them, after starting to copy unit `ahead` to slot `write`.
    fn next_weights(&self, b: &mut Builder, th: &Thread<'_>, tile: V, (ahead, read, write): (V, V, V)) -> Vec<V> {
        b.cp_wait(self.p.phase.stages - 2);
        if th.weights.has_scales() {
            b.sync_warp();
        }
        self.fetch(b, th, tile, ahead, write);
        let skip = b.mulc(read, self.unit_bytes());
        let slot = b.at(th.ring, skip);
        self.weights(b, th, slot)
    }

    /// The warp's A operands of a unit.
    fn weights(&self, b: &mut Builder, th: &Thread<'_>, slot: V) -> Vec<V> {
        let half: Elem = decode::half(self.plan.elem);
        let format = self.p.formats[0];
        let (words, scales) = th.weights.read(b, slot, 0);
        let mut a = decode::fragments(b, format, half, &words);
        if let (Scaling::Weights, Some(s)) = (decode::scaling(format, false), scales) {
            decode::scale_weights(b, &mut a, s, half);
        }
        a.concat()
    }

    /// Starts four steps of `wgmma` on a stage: one piece of assembly, so that nothing comes between. The sums that it returns are for [`Product::wait`] only.
    fn multiply(&self, b: &mut Builder, stage: V, a: &[V], sums: &[V]) -> Vec<V> {
        let base = self.shared(b, STAGES_AT);
        let skip = b.mulc(stage, (self.rows() * ROW) as i64);
        let base = b.at(base, skip);
        let address = b.shared_address(base);
        let address = b.shrc(address, 4);
        let address = b.andc(address, 0x3fff);
        let address = b.zext(address, I64);
        // Lines of 128 bytes with their swizzle, groups of eight lines 1024 bytes apart.
        let descriptor = b.orc(address, (1u64 << 62 | 64 << 32 | 1 << 16) as i64);
        let n = sums.len();
        let half = if decode::half(self.plan.elem) == Elem::Bf16 { "bf16" } else { "f16" };
        let list: Vec<String> = (0..n).map(|i| format!("${i}")).collect();
        let list = list.join(", ");
        let mut text = String::from("{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma.fence.sync.aligned; ");
        for step in 0..4 {
            let a: Vec<String> = (0..4).map(|r| format!("${}", 2 * n + 4 * step + r)).collect();
            let _ = write!(
                text,
                "wgmma.mma_async.sync.aligned.m64n{}k16.f32.{half}.{half} {{{list}}}, {{{}}}, ${}, p, 1, 1, 0; ",
                self.rows(),
                a.join(", "),
                2 * n + 16 + step
            );
        }
        text.push_str("wgmma.commit_group.sync.aligned; }");
        let constraints = format!("{},{},~{{memory}}", through(n), ["l"; 4].join(","));
        let mut args = sums.to_vec();
        args.extend(a);
        args.extend((0..4).map(|step| b.addc(descriptor, 2 * step)));
        let s = b.asm_volatile(Ty::Struct(n as u8, StructElem::S(Elem::F32)), &text, &constraints, &args);
        b.members(s)
    }

    /// Waits for the products. The sums pass through, and the weights are named, so that nothing else gets the registers of either before.
    fn wait(&self, b: &mut Builder, sums: &[V], a: &[V]) -> Vec<V> {
        let args: Vec<V> = sums.iter().chain(a).copied().collect();
        let ty = Ty::Struct(sums.len() as u8, StructElem::S(Elem::F32));
        let s = b.asm_volatile(ty, "wgmma.wait_group.sync.aligned 0;", &format!("{},~{{memory}}", through(sums.len())), &args);
        b.members(s)
    }

    /// Writes a warp's sums to shared memory, `[row][column]`.
    fn store_sums(&self, b: &mut Builder, th: &Thread<'_>, sums: &[V]) {
        let stride = schedule::sums_stride(&self.p.segments[0]) as i64;
        let base = self.shared(b, STAGES_AT);
        let (g, t) = (b.shrc(th.lane, 2), b.andc(th.lane, 3));
        let line = b.mulc(t, 2 * stride);
        // Strips of all lanes follow each other, as warps do.
        let column = b.shlc(th.warp, 4);
        let column = b.add(column, g);
        let index = b.add(line, column);
        let offset = b.shlc(index, 2);
        let at = b.at(base, offset);
        for (i, v) in sums.iter().enumerate() {
            let (group, k) = (i / 4, i % 4);
            let row = (group * 8 + k % 2) as i64;
            let p = b.atc(at, (row * stride + 8 * (k / 2) as i64) * 4);
            b.store(*v, p);
        }
    }
}

/// Constraints of assembly on so many sums, in place, and the weights.
fn through(sums: usize) -> String {
    let tied: Vec<String> = (0..sums).map(|i| i.to_string()).collect();
    format!("{},{},{}", vec!["=f"; sums].join(","), tied.join(","), ["r"; 16].join(","))
}
