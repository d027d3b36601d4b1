//! Attention against the limits of the machine: `cargo run --release -p llmcc-benches --bin
//! attention [-- threads [part of a case's name]]`.
//!
//! Decoding reads each key and value once, so its bound is the streaming bandwidth measured here;
//! prompts multiply, so theirs is the measured f32 peak. Both are shown for each case. Layers are
//! so many that no cache holds them; every thread has KV heads of its own, as in a model. Cases
//! `cached` have one layer that the second-level cache holds: the time of the instructions alone.

use std::sync::Barrier;
use std::time::Instant;

use llmcc_abi::layout::page;
use llmcc_abi::{ATTEND_PARTS, AttendArgs, AttendFn, PAGE_TOKENS, Uk, attend_work, kv_dtype};
use llmcc_benches::peaks::{self, Rows};
use llmcc_benches::stream::Memory;
use llmcc_benches::team::Team;
use llmcc_ukernels::{detect, table};

const TYPES: [(&str, u32, usize); 4] =
    [("f32", kv_dtype::F32, 4), ("f16", kv_dtype::F16, 2), ("bf16", kv_dtype::BF16, 2), ("int8", kv_dtype::INT8, 1)];

/// Heads of a model: query heads per KV head, KV heads, elements.
#[derive(Clone, Copy)]
struct Shape {
    heads: usize,
    kv_heads: usize,
    d: usize,
}

/// Tokens at the end of a context, and the cache they see.
struct Case {
    shape: Shape,
    dtype: u32,
    bytes: usize,
    /// Positions `from..from + tokens`, 16 per call.
    from: usize,
    tokens: usize,
    /// Passes through a layer in a round, and layers in memory, which they go through in turns.
    passes: usize,
    layers: usize,
    pool: Memory,
    pages: Vec<u32>,
    q: Vec<f32>,
}

impl Case {
    fn new(
        shape: Shape,
        (dtype, bytes): (u32, usize),
        from: usize,
        tokens: usize,
        passes: usize,
        layers: usize,
    ) -> Case {
        let pages = (from + tokens).div_ceil(PAGE_TOKENS);
        let layout = page(shape.kv_heads, shape.d, shape.d, 8 * bytes);
        let mut pool = Memory::new(layers * pages * layout.bytes, true).expect("memory for the cache");
        let values = layout.k_scales.min(layout.bytes);
        let mut state = 1u32;
        for page in pool.bytes_mut().chunks_exact_mut(layout.bytes) {
            for at in (0..values).step_by(bytes) {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // Small numbers of either sign in every format.
                match bytes {
                    4 => {
                        page[at..at + 4].copy_from_slice(&((state >> 8) as f32 / (1 << 23) as f32 - 1.0).to_le_bytes())
                    }
                    2 => page[at..at + 2].copy_from_slice(&((state >> 16) as u16 & 0x83ff | 0x3800).to_le_bytes()),
                    _ => page[at] = (state >> 24) as u8,
                }
            }
            page[values..].chunks_exact_mut(4).for_each(|s| s.copy_from_slice(&0.01f32.to_le_bytes()));
        }
        let q = (0..tokens * shape.kv_heads * shape.heads * shape.d).map(|i| (i % 17) as f32 / 17.0 - 0.5).collect();
        Case { shape, dtype, bytes, from, tokens, passes, layers, pool, pages: (0..pages as u32).collect(), q }
    }

    /// Bytes of the cache that a step reads in a layer, scales among them.
    fn read(&self) -> usize {
        let scales = if self.bytes == 1 { 4 } else { 0 };
        2 * (self.from + self.tokens) * self.shape.kv_heads * (self.shape.d * self.bytes + scales)
    }

    /// Operations (a multiplication and an addition are two) of a layer.
    fn operations(&self) -> usize {
        let seen: usize = (self.from + 1..=self.from + self.tokens).sum();
        4 * seen * self.shape.kv_heads * self.shape.heads * self.shape.d
    }

    /// One layer, the KV heads of one thread.
    fn layer(&self, f: AttendFn, layer: usize, heads: std::ops::Range<usize>, out: &mut [f32], work: &mut [f32]) {
        let Shape { heads: n, kv_heads, d } = self.shape;
        let layout = page(kv_heads, d, d, 8 * self.bytes);
        let stride = kv_heads * n * d;
        let positions: Vec<i32> = (self.from..self.from + self.tokens).map(|p| p as i32).collect();
        // One token takes all heads in one call.
        let together = if self.tokens == 1 { heads.len() } else { 1 };
        for head in heads.step_by(together) {
            for first in (0..self.tokens).step_by(16) {
                let part = head * d * PAGE_TOKENS * self.bytes;
                let args = AttendArgs {
                    q: self.q[first * stride + head * n * d..].as_ptr(),
                    q_stride: stride as u64 * 4,
                    tokens: 16.min(self.tokens - first) as u64,
                    heads: n as u64,
                    kv_heads: together as u64,
                    d: d as u64,
                    scale: 0.1,
                    dtype: self.dtype,
                    positions: positions[first..].as_ptr(),
                    window: 0,
                    pool: self.pool.bytes()[layer * self.pages.len() * layout.bytes..].as_ptr(),
                    pages: self.pages.as_ptr(),
                    page_bytes: layout.bytes as u64,
                    k: part as u64,
                    v: (layout.v + part) as u64,
                    k_scales: (layout.k_scales + head * PAGE_TOKENS * 4) as u64,
                    v_scales: (layout.v_scales + head * PAGE_TOKENS * 4) as u64,
                    out: out.as_mut_ptr(),
                    out_stride: (n * d * 4) as u64,
                    work: work.as_mut_ptr(),
                    part_from: 0,
                    part_to: ATTEND_PARTS as u64,
                    shared: std::ptr::null_mut(),
                };
                // SAFETY: every operand is as `AttendArgs` wants it; the level is this machine's.
                unsafe { f(&args) };
            }
        }
    }

    /// Seconds per layer: the median of rounds through all layers.
    fn seconds(&self, threads: usize) -> f64 {
        // SAFETY: this entry has this type.
        let f: AttendFn = unsafe { std::mem::transmute(table(detect()).f[Uk::Attend as usize]) };
        let Shape { heads, kv_heads, d } = self.shape;
        let barrier = Barrier::new(threads);
        let run = |thread: usize| {
            let (mut out, mut work) = (vec![0.0; 16 * heads * d], vec![0.0; attend_work(16 * heads, d)]);
            let own = kv_heads * thread / threads..kv_heads * (thread + 1) / threads;
            let mut times = vec![];
            for _ in 0..7 {
                barrier.wait();
                let start = Instant::now();
                for pass in 0..self.passes {
                    self.layer(f, pass % self.layers, own.clone(), &mut out, &mut work);
                }
                barrier.wait();
                times.push(start.elapsed().as_secs_f64() / self.passes as f64);
            }
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        std::thread::scope(|s| {
            let others: Vec<_> = (1..threads).map(|t| s.spawn(move || run(t))).collect();
            let mine = run(0);
            others.into_iter().for_each(|o| drop(o.join()));
            mine
        })
    }
}

fn main() {
    let threads: usize = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(1);
    println!("{} thread(s), microkernels {}", threads, detect().name());
    println!("{:<34} {:>5} {:>10} {:>7} {:>6} {:>8} {:>6}", "case", "cache", "us/layer", "GB/s", "%", "GFLOP/s", "%");
    let wanted =
        std::env::args().skip(1).find(|a| a.parse::<usize>().is_err() && !a.starts_with('-')).unwrap_or_default();
    let show = |name: &str, kind: &str, case: &dyn Fn() -> Case| {
        if !format!("{name} {kind}").contains(&wanted) {
            return;
        }
        let case = case();
        let peaks = peaks::measure(Team::new(threads), detect(), Rows::F32);
        // A fused multiply-add is two operations.
        let (stream, flops) = (peaks.bytes, 2.0 * peaks.macs);
        let seconds = case.seconds(threads);
        let (read, done) = (case.read() as f64 / seconds, case.operations() as f64 / seconds);
        let (a, b) = (read / stream * 100.0, done / flops * 100.0);
        println!(
            "{name:<34} {kind:>5} {:>10.1} {:>7.2} {a:>5.0}% {:>8.1} {b:>5.0}%",
            seconds * 1e6,
            read / 1e9,
            done / 1e9
        );
    };
    let shapes = [
        ("1.2B (32/8 heads of 64)", Shape { heads: 4, kv_heads: 8, d: 64 }),
        ("135M (9/3 heads of 64)", Shape { heads: 3, kv_heads: 3, d: 64 }),
        ("no groups (16 heads of 128)", Shape { heads: 1, kv_heads: 16, d: 128 }),
    ];
    for (name, shape) in shapes {
        for depth in [1024, 4096, 16384] {
            for (kind, dtype, bytes) in TYPES {
                let layer = 2 * depth * shape.kv_heads * shape.d * bytes;
                let layers = (192usize << 20).div_ceil(layer).max(2);
                show(&format!("{name} @{depth}"), kind, &|| {
                    Case::new(shape, (dtype, bytes), depth - 1, 1, layers, layers)
                });
            }
        }
        for (kind, dtype, bytes) in TYPES {
            show(&format!("{name} @512 cached"), kind, &|| Case::new(shape, (dtype, bytes), 511, 1, 100, 1));
        }
    }
    for prompt in [512, 2048] {
        for (kind, dtype, bytes) in TYPES {
            show(&format!("prompt of {prompt}, 1.2B"), kind, &|| {
                Case::new(shapes[0].1, (dtype, bytes), 0, prompt, 1, 1)
            });
        }
    }
}
