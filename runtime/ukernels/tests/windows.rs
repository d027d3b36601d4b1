//! The choice of windows of a cache: every level has that of a sort of all.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "entries of a table of this machine, and memory that the test owns"
)]

use crate::support::{Guarded, Rng, levels};
use llmcc_abi::layout::page;
use llmcc_abi::{PAGE_TOKENS, SelectWindowsArgs, SelectWindowsFn, Uk, kv_dtype, select_windows_work};
use llmcc_ukernels::{Level, table};

struct Case {
    kv_heads: usize,
    group: usize,
    d: usize,
    every: usize,
    windows: usize,
    position: usize,
    q: Vec<f32>,
    /// Rows of bounds, each `[2][kv_heads][d]`.
    rows: Vec<Vec<f32>>,
}

impl Case {
    /// Small whole numbers, so that many scores are equal, and no sum is rounded.
    fn random(rng: &mut Rng) -> Case {
        let [kv_heads, group, d] = [1 + rng.below(3), 1 + rng.below(3), 1 + rng.below(20)];
        let [every, windows] = [2 + rng.below(15), 1 + rng.below(20)];
        let position = rng.below(every * 90);
        let mut whole = |n: usize| (0..n).map(|_| rng.below(7) as f32 - 3.0).collect::<Vec<f32>>();
        let q = whole(kv_heads * group * d);
        let rows = (0..position / every).map(|_| whole(2 * kv_heads * d)).collect();
        Case { kv_heads, group, d, every, windows, position, q, rows }
    }

    fn columns(&self) -> usize {
        2 * self.kv_heads * self.d
    }

    fn numbers(&self) -> usize {
        self.kv_heads * (self.windows + 1) * self.every
    }

    /// The numbers that a level selects; every operand ends at inaccessible memory.
    fn run(&self, level: Level) -> Vec<f32> {
        let bytes = |x: &[f32]| Guarded::from_bytes(&x.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
        let layout = page(1, 0, self.columns(), kv_dtype::bits(kv_dtype::F32).unwrap());
        let count = self.rows.len().div_ceil(PAGE_TOKENS);
        let mut pool = vec![0xff; (count + 1) * layout.bytes];
        let pages: Vec<u8> = (0..count).flat_map(|i| ((count - i) as u32).to_le_bytes()).collect();
        for (i, row) in self.rows.iter().enumerate() {
            let at = (count - i / PAGE_TOKENS) * layout.bytes + layout.v + i % PAGE_TOKENS * self.columns() * 4;
            row.iter().enumerate().for_each(|(j, x)| pool[at + 4 * j..][..4].copy_from_slice(&x.to_le_bytes()));
        }
        let (q, pool, pages) = (bytes(&self.q), Guarded::from_bytes(&pool), Guarded::from_bytes(&pages));
        let mut out = Guarded::from_bytes(&vec![0xff; self.numbers() * 4]);
        let work = select_windows_work(self.kv_heads, self.d, self.windows).next_multiple_of(64);
        let mut work = Guarded::from_bytes(&vec![0xff; work]);
        let args = SelectWindowsArgs {
            q: q.as_ptr().cast(),
            kv_heads: self.kv_heads as u64,
            group: self.group as u64,
            d: self.d as u64,
            position: self.position as u64,
            every: self.every as u64,
            windows: self.windows as u64,
            dtype: kv_dtype::F32.into(),
            pool: pool.as_ptr(),
            pages: pages.as_ptr().cast(),
            page_bytes: layout.bytes as u64,
            v: layout.v as u64,
            v_scales: layout.v_scales as u64,
            out: out.as_mut_ptr().cast(),
            work: work.as_mut_ptr(),
        };
        let f = unsafe { std::mem::transmute::<usize, SelectWindowsFn>(table(level).f[Uk::SelectWindows as usize]) };
        unsafe { f(&args) };
        out.as_bytes().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    /// The windows of a KV head with the largest sums of products, by a sort of all.
    fn of_head(&self, head: usize) -> Vec<f32> {
        let Case { group, d, every, .. } = *self;
        let score = |row: &Vec<f32>| {
            let term = |(i, q): (usize, &f32)| {
                let [a, b] = [0, self.kv_heads * d].map(|half| q * row[half + head * d + i % d]);
                if *q < 0.0 { a } else { b }
            };
            self.q[head * group * d..][..group * d].iter().enumerate().map(term).sum::<f32>()
        };
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.sort_by(|a, b| score(&self.rows[*b]).partial_cmp(&score(&self.rows[*a])).unwrap());
        order.truncate(self.windows);
        order.sort_unstable();
        let own = self.rows.len() * every..self.position + 1;
        let all = order.into_iter().flat_map(|w| w * every..(w + 1) * every).chain(own);
        let mut all: Vec<f32> = all.map(|n| n as f32).collect();
        all.resize((self.windows + 1) * every, -1.0);
        all
    }
}

#[test]
fn the_best_windows_are_selected() {
    for seed in 0..200 {
        let case = Case::random(&mut Rng(seed + 1));
        let want: Vec<f32> = (0..case.kv_heads).flat_map(|head| case.of_head(head)).collect();
        for level in levels() {
            assert_eq!(case.run(level), want, "{level:?}, seed {seed}");
        }
    }
}
