//! A kernel's operations on shared memory, barriers and asynchronous registers, recorded while it
//! is printed: its skeleton ([`Program`]).
//!
//! Nobody describes a kernel a second time. Methods that print such an operation record it, methods
//! that compute 32-bit integers and addresses of shared memory record how, and so do loops and
//! branches; operations without an effect on these are dropped in the end. An emitter declares
//! buffers and `mbarrier`s ([`Builder::buffer`], [`Builder::barriers`]), sample values for numbers
//! that only a step knows ([`Builder::assume`]), and where threads touch bytes of their own
//! ([`Builder::apart`]).

use super::{Builder, F32, I1, I32, Left, Products, Ty, V};
use llmcc_ir::gpu::WARP;
use llmcc_ir::gpu::program::{
    Arrivals, Buffer, BufferId, Counter, Index, Op, Part, Phase, Program, Recorder, RegisterId, Scope, Slot, Source,
    Sync,
};
use llmcc_ir::gpu::value::{Arith, Carry, Merge, Value, ValueId};
use std::collections::HashMap;

/// A value of the text.
pub(super) type Key = (u32, Option<u16>);

pub(super) fn key(v: V) -> Key {
    (v.id, v.part)
}

/// Where a pointer points: into a buffer, so many bytes after its start.
#[derive(Clone, Copy)]
struct Place {
    buffer: BufferId,
    offset: ValueId,
}

/// A buffer's place in shared memory.
struct Region {
    at: usize,
    end: usize,
}

/// One `mbarrier`: its address, and which it is.
#[derive(Clone, Copy, Debug)]
pub struct Mbarrier {
    /// Its address in shared memory, an `i32`.
    pub at: V,
    pub(super) phase: Phase,
}

/// A buffer of shared memory, as [`Builder::buffer`] declares it.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    /// Name.
    pub name: &'a str,
    /// First byte.
    pub at: usize,
    /// Bytes of a stage, which is written and read as a whole.
    pub bytes: usize,
    /// Stages.
    pub stages: usize,
    /// No access has bank conflicts.
    pub conflict_free: bool,
    /// Buffers whose place it takes.
    pub over: &'a [&'a str],
}

/// The recording of a kernel.
pub(super) struct Recording {
    r: Recorder,
    known: HashMap<Key, ValueId>,
    constants: HashMap<i64, ValueId>,
    places: HashMap<Key, Place>,
    regions: Vec<Region>,
    /// Arrays of `mbarrier`s by the address of the first.
    arrays: HashMap<usize, usize>,
    /// Registers of asynchronous products.
    registers: HashMap<Key, RegisterId>,
    /// Values carried by loops, with the registers of products that go on into the next turn.
    carried: HashMap<Key, Option<RegisterId>>,
    /// Inside of [`Builder::apart`].
    apart: bool,
    /// Printing something that registers of products pass through.
    passing: bool,
    /// Registers of the products started last.
    started: RegisterId,
}

impl Recording {
    pub(super) fn new(name: &str, threads: u32) -> Recording {
        Recording {
            r: Recorder::new(name, threads.div_ceil(WARP as u32)),
            known: HashMap::new(),
            constants: HashMap::new(),
            places: HashMap::new(),
            regions: vec![],
            arrays: HashMap::new(),
            registers: HashMap::new(),
            carried: HashMap::new(),
            apart: false,
            passing: false,
            started: 0,
        }
    }

    pub(super) fn finish(self, early: Vec<String>) -> Program {
        // Loops and branches are closed where they are opened.
        Program { early, ..self.r.finish().unwrap_or_default().sliced() }
    }

    fn number(&mut self, x: i64) -> ValueId {
        let x = i64::from(x as i32);
        *self.constants.entry(x).or_insert_with(|| self.r.value(Value::Const(x)))
    }

    /// The recorded value of one of the text; one that nobody recorded is unknown.
    fn get(&mut self, v: V) -> ValueId {
        *self.known.entry(key(v)).or_insert_with(|| self.r.value(Value::Unknown(vec![0, 1])))
    }

    fn set(&mut self, v: V, value: Value) {
        let id = self.r.value(value);
        self.known.insert(key(v), id);
    }

    fn two(&mut self, how: Arith, a: ValueId, b: ValueId) -> ValueId {
        self.r.value(Value::Two(how, a, b))
    }

    /// The slot at a pointer to shared memory, of `part`; that of memory which nobody declared is
    /// in no buffer, which the verifier finds.
    fn slot(&self, p: V, part: impl Fn(u32) -> Part, bytes: usize) -> Slot {
        let (buffer, stage) =
            self.places.get(&key(p)).map_or((BufferId::MAX, Index::at(0)), |p| (p.buffer, Index::value(p.offset)));
        Slot { buffer, stage, part: part(bytes as u32) }
    }

    /// The registers of sums: the same as before, as far as products, or turns of a loop before,
    /// had them.
    fn accumulators(&mut self, sums: &[V]) -> RegisterId {
        let known = sums.first().and_then(|v| self.registers.get(&key(*v)).copied());
        let carried = sums.first().and_then(|v| self.carried.get(&key(*v)).copied());
        let acc = known
            .or(carried.flatten())
            .unwrap_or_else(|| self.r.registers(format!("sums {}", self.r.program().registers.len())));
        for v in sums {
            if let Some(set) = self.carried.get_mut(&key(*v)) {
                *set = Some(acc);
            }
        }
        if known.is_none() && carried.is_none() && !sums.is_empty() {
            self.r.op(Op::RegisterWrite(acc));
        }
        acc
    }

    fn bytes(&self, p: V, bytes: usize) -> Slot {
        self.slot(p, if self.apart { Part::Apart } else { Part::Bytes }, bytes)
    }
}

fn tracked(ty: Ty) -> bool {
    ty == I32 || ty == I1
}

impl Builder {
    /// Declares a buffer of shared memory; addresses from [`Builder::shared_in`] on lie in it.
    pub fn buffer(&mut self, m: Memory<'_>) {
        let rec = &mut self.recording;
        let over = m.over.iter().filter_map(|n| rec.r.program().buffers.iter().position(|b| b.name == *n)).collect();
        let (bytes, stages) = (m.bytes.max(1) as u32, m.stages.max(1) as u32);
        rec.r.buffer(Buffer {
            name: m.name.into(),
            bytes,
            stages,
            scope: Scope::Block,
            conflict_free: m.conflict_free,
            over,
        });
        rec.regions.push(Region { at: m.at, end: m.at + m.bytes.max(1) * m.stages.max(1) });
    }

    /// Emits work of some blocks only, whose shared memory is laid out anew: addresses lie in the
    /// buffers that are declared inside.
    pub fn role<R>(&mut self, body: impl FnOnce(&mut Builder) -> R) -> R {
        let rec = &mut self.recording;
        rec.regions.iter_mut().for_each(|r| *r = Region { at: usize::MAX, end: 0 });
        rec.places.remove(&key(self.smem));
        rec.arrays.clear();
        body(self)
    }

    /// Declares as many `mbarrier`s as a ring has stages, 8 bytes each from byte `at` of shared
    /// memory on, that so many arrivals complete.
    pub fn barriers(&mut self, name: impl Into<String>, at: usize, stages: usize, arrivals: usize) {
        let id = self.recording.r.barrier(name, stages as u32, Arrivals::Count(arrivals as u32));
        self.recording.arrays.insert(at, id);
    }

    /// Byte `at` of shared memory, which belongs to a buffer.
    pub fn shared_in(&mut self, name: &str, at: usize) -> V {
        let p = self.atc(self.smem, at as i64);
        let named = self.recording.r.program().buffers.iter().position(|b| b.name == name);
        self.point(p, named, at);
        p
    }

    pub(super) fn point(&mut self, p: V, buffer: Option<BufferId>, at: usize) {
        let rec = &mut self.recording;
        let found = buffer.or_else(|| rec.regions.iter().position(|r| (r.at..r.end).contains(&at)));
        if let Some(buffer) = found {
            let offset = rec.number(at as i64 - rec.regions[buffer].at as i64);
            rec.places.insert(key(p), Place { buffer, offset });
        }
    }

    /// `p` is the start of so many bytes that are a buffer of their own.
    pub fn room(&mut self, p: V, name: &str, bytes: usize) {
        let rec = &mut self.recording;
        let zero = rec.number(0);
        let over =
            rec.places.get(&key(p)).map(|place| rec.r.program().buffers[place.buffer].over.clone()).unwrap_or_default();
        let known = rec.r.program().buffers.iter().position(|b| b.name == name);
        let buffer = known.unwrap_or_else(|| {
            // Nothing is found by its address.
            rec.regions.push(Region { at: usize::MAX, end: 0 });
            rec.r.buffer(Buffer {
                name: name.into(),
                bytes: 1,
                stages: 1,
                scope: Scope::Block,
                conflict_free: false,
                over,
            })
        });
        rec.r.grow(buffer, bytes.max(1) as u32);
        rec.places.insert(key(p), Place { buffer, offset: zero });
    }

    /// `p`, which lies in a buffer, belongs to another one declared on the same bytes, where each
    /// thread uses its own.
    pub fn point_as(&mut self, p: V, name: &str) {
        let rec = &mut self.recording;
        let named = rec.r.program().buffers.iter().position(|b| b.name == name);
        if let (Some(place), Some(buffer)) = (rec.places.get_mut(&key(p)), named) {
            place.buffer = buffer;
        }
    }

    /// `p` is byte `offset` of the buffer that begins at byte `start`.
    pub fn point_in(&mut self, p: V, start: usize, offset: V) {
        let rec = &mut self.recording;
        if let Some(buffer) = rec.regions.iter().position(|r| r.at == start) {
            let offset = rec.get(offset);
            rec.places.insert(key(p), Place { buffer, offset });
        }
    }

    /// Values to try, when the skeleton is verified, for a number that is not known before the
    /// kernel runs, and the same in all threads.
    pub fn assume(&mut self, v: V, samples: &[i64]) {
        let id = self.recording.get(v);
        self.recording.r.assume(id, samples);
    }

    /// Emits code in which each thread touches bytes of shared memory that no other touches before
    /// the next barrier.
    pub fn apart<R>(&mut self, body: impl FnOnce(&mut Builder) -> R) -> R {
        let before = std::mem::replace(&mut self.recording.apart, true);
        let result = body(self);
        self.recording.apart = before;
        result
    }

    pub(super) fn record(&mut self, op: Op) {
        self.recording.r.op(op);
    }

    pub(super) fn record_const(&mut self, v: V, x: i64) {
        let id = self.recording.number(x);
        self.recording.known.insert(key(v), id);
    }

    pub(super) fn record_thread(&mut self, v: V) {
        self.recording.set(v, Value::Thread);
    }

    /// `v` is computed from two others.
    pub(super) fn record_two(&mut self, v: V, name: &str, a: V, b: V) {
        if let Some(how) = Arith::named(name).filter(|_| tracked(a.ty) && tracked(v.ty)) {
            let (a, b) = (self.recording.get(a), self.recording.get(b));
            self.recording.set(v, Value::Two(how, a, b));
        }
    }

    pub(super) fn record_select(&mut self, v: V, c: V, a: V, b: V) {
        if tracked(v.ty) {
            let (c, a, b) = (self.recording.get(c), self.recording.get(a), self.recording.get(b));
            self.recording.set(v, Value::Select(c, a, b));
        }
    }

    /// `v` is the same number as `a`.
    pub(super) fn record_same(&mut self, v: V, a: V) {
        if tracked(a.ty) && tracked(v.ty) {
            let id = self.recording.get(a);
            self.recording.known.insert(key(v), id);
        }
        if let Some(place) = self.recording.places.get(&key(a)).copied() {
            self.recording.places.insert(key(v), place);
        }
    }

    /// `to` is so many bytes after `p`.
    pub(super) fn record_at(&mut self, to: V, p: V, offset: Result<V, i64>) {
        if p == self.smem && !self.recording.places.contains_key(&key(p)) {
            match offset {
                Err(at) => return self.point(to, None, at as usize),
                // Memory that is one buffer, or begins with one.
                Ok(offset) => {
                    if let Some(buffer) = self.recording.regions.iter().position(|r| r.at == 0) {
                        let offset = self.recording.get(offset);
                        self.recording.places.insert(key(to), Place { buffer, offset });
                    }
                    return;
                }
            }
        }
        let rec = &mut self.recording;
        let Some(place) = rec.places.get(&key(p)).copied() else { return };
        let by = match offset {
            Ok(v) => rec.get(v),
            Err(x) => rec.number(x),
        };
        let offset = rec.two(Arith::Add, place.offset, by);
        rec.places.insert(key(to), Place { offset, ..place });
    }

    pub(super) fn record_load(&mut self, p: V, bytes: usize) {
        if p.ty == Ty::Shared {
            let slot = self.recording.bytes(p, bytes);
            self.record(Op::Read { slot, pattern: None, own: false });
        }
    }

    pub(super) fn record_matrices(&mut self, p: V) {
        let slot = self.recording.slot(p, Part::Lanes, 16);
        self.record(Op::Read { slot, pattern: None, own: false });
    }

    pub(super) fn record_store(&mut self, p: V, bytes: usize) {
        if p.ty == Ty::Shared {
            let slot = self.recording.bytes(p, bytes);
            self.record(Op::Write { slot, pattern: None });
        }
    }

    pub(super) fn record_copy(&mut self, to: V) {
        let slot = self.recording.bytes(to, 16);
        self.record(Op::CpAsync(slot));
    }

    pub(super) fn record_bulk(&mut self, to: V, barrier: &Mbarrier, bytes: usize) {
        let slot = self.recording.slot(to, |_| Part::Some, 0);
        self.record(Op::BulkCopy(slot, barrier.phase, bytes as u32));
    }

    pub(super) fn record_wait(&mut self, barrier: &Mbarrier, parity: V) {
        let parity = self.recording.get(parity);
        self.record(Op::WaitParity(barrier.phase, parity));
    }

    /// A barrier of so many threads.
    pub(super) fn record_threads(&mut self, id: V, threads: u32) -> Sync {
        Sync::Threads(self.recording.get(id), threads)
    }

    /// The `mbarrier` of a stage of the array at byte `array`, whose address is `at`.
    pub fn mbarrier(&mut self, at: V, array: usize, stage: V) -> Mbarrier {
        let barrier = self.recording.arrays.get(&array).copied().unwrap_or(usize::MAX);
        let index = Index { follows: Some(Counter::Value(self.recording.get(stage))), plus: 0 };
        Mbarrier { at, phase: Phase { barrier, index } }
    }

    /// Opens a loop: its body sees the bounds and the carried values.
    pub(super) fn record_for(&mut self, (lo, hi, step): (V, V, V), turn: V, args: &[V]) {
        let rec = &mut self.recording;
        let bounds = [lo, hi, step].map(|v| rec.get(v));
        for a in args.iter().filter(|a| tracked(a.ty)) {
            rec.set(*a, Value::Carried);
        }
        rec.carried.extend(args.iter().filter(|a| a.ty == F32).map(|a| (key(*a), None)));
        rec.set(turn, Value::Carried);
        let turn = rec.get(turn);
        rec.r.begin_for(bounds, turn);
    }

    /// Closes it.
    pub(super) fn record_end_for(&mut self, args: &[V], init: &[V], next: &[V], results: &[V]) {
        let rec = &mut self.recording;
        let mut carried = vec![];
        for (((arg, first), next), last) in
            args.iter().zip(init).zip(next).zip(results).filter(|(((a, _), _), _)| tracked(a.ty))
        {
            rec.set(*last, Value::Carried);
            let [arg, first, next, last] = [*arg, *first, *next, *last].map(|v| rec.get(v));
            carried.push(Carry { arg, first, next, last });
        }
        // Registers that products of the first turn find written, and those that every turn leaves
        // written.
        let (mut begun, mut rewritten) = (vec![], vec![]);
        for ((arg, next), last) in args.iter().zip(next).zip(results) {
            let left = rec.registers.get(&key(*next)).copied();
            if let Some(set) = rec.carried.remove(&key(*arg)).flatten() {
                begun.push(set);
                if left.is_none() {
                    rewritten.push(set);
                }
            }
            rec.registers.extend(left.map(|set| (key(*last), set)));
        }
        begun.dedup();
        rewritten.dedup();
        rewritten.into_iter().for_each(|set| rec.r.op(Op::RegisterWrite(set)));
        rec.r.end_for(carried, begun.into_iter().map(Op::RegisterWrite));
    }

    pub(super) fn record_if(&mut self, c: V) {
        let c = self.recording.get(c);
        self.recording.r.begin_choose(c);
    }

    pub(super) fn record_else(&mut self) {
        self.recording.r.begin_otherwise();
    }

    pub(super) fn record_end_if(&mut self, results: &[V], then: &[V], other: &[V]) {
        let rec = &mut self.recording;
        let mut merges = vec![];
        for ((result, then), other) in results.iter().zip(then).zip(other).filter(|((r, _), _)| tracked(r.ty)) {
            // Values of the sides, which are recorded in them.
            let (then, other) = (rec.get(*then), rec.get(*other));
            rec.set(*result, Value::Carried);
            merges.push(Merge { result: rec.get(*result), then, other });
        }
        rec.r.end_choose(merges);
    }

    /// Prints operations that pass registers of products through unchanged.
    pub(super) fn passing<R>(&mut self, body: impl FnOnce(&mut Builder) -> R) -> R {
        self.recording.passing = true;
        let result = body(self);
        self.recording.passing = false;
        result
    }

    /// Records a start of products.
    pub(super) fn record_products(&mut self, p: &Products<'_>) {
        let rec = &mut self.recording;
        let acc = rec.accumulators(p.sums);
        let slot = |rec: &Recording, p: V| rec.slot(p, |_| Part::Some, 0);
        let from = match p.left {
            Left::Shared(at) => Source::Shared(slot(rec, at)),
            Left::Registers(_) => {
                let set = rec.r.registers(format!("operand {}", rec.r.program().registers.len()));
                rec.r.op(Op::RegisterWrite(set));
                Source::Registers(set)
            }
        };
        rec.r.op(Op::WgmmaFence);
        rec.r.op(Op::Wgmma(p.atom, acc, from, slot(rec, p.right)));
        rec.r.op(Op::WgmmaCommit);
        rec.started = acc;
    }

    /// The accumulators of products are in `out`.
    pub(super) fn record_started(&mut self, out: &[V]) {
        let acc = self.recording.started;
        self.recording.registers.extend(out.iter().map(|v| (key(*v), acc)));
    }

    /// Records a wait for products: registers of `from` become `to`.
    pub(super) fn record_waited(&mut self, pending: usize, from: &[V], to: &[V]) {
        self.record(Op::WgmmaWait(pending as u32));
        let rec = &mut self.recording;
        for (f, t) in from.iter().zip(to) {
            if let Some(set) = rec.registers.get(&key(*f)).copied() {
                rec.registers.insert(key(*t), set);
            }
        }
    }

    /// Records uses of the registers of asynchronous products in an operation's text.
    pub(super) fn record_uses(&mut self, text: &str) {
        if self.recording.registers.is_empty() || self.recording.passing {
            return;
        }
        for key in named(text) {
            if let Some(set) = self.recording.registers.get(&key).copied() {
                self.record(Op::RegisterRead(set));
            }
        }
    }
}

/// The values that an operation's text names, in order.
pub(super) fn named(text: &str) -> impl Iterator<Item = Key> {
    let digits = |s: &str| s.len() - s.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    text.split('%').skip(1).filter_map(move |rest| {
        let n = digits(rest);
        let part = rest[n..].strip_prefix('#').and_then(|r| r[..digits(r)].parse().ok());
        Some((rest[..n].parse().ok()?, part))
    })
}
