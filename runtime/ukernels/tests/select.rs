//! The choice of rows of a cache: every level has that of the scalar code, which has the best rows.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "entries of a table of this machine, and memory that the test owns"
)]

use crate::support::{Guarded, Rng, levels};
use llmcc_abi::layout::page;
use llmcc_abi::{ATTEND_BLOCK, PAGE_TOKENS, SELECT_SHARED, SelectArgs, SelectFn, Uk, kv_dtype, select_work};
use llmcc_ukernels::{Level, table};
use std::ops::Range;

struct Case {
    dtype: u32,
    d: usize,
    heads: usize,
    rows: usize,
    top: usize,
    q: Vec<f32>,
    weights: Vec<f32>,
    pool: Vec<u8>,
    pages: Vec<u32>,
}

impl Case {
    /// Rows of small whole numbers, so that many scores are equal, and no sum is rounded.
    fn random(dtype: u32, [d, heads, rows, top]: [usize; 4], rng: &mut Rng) -> Case {
        let layout = page(1, 0, d, kv_dtype::bits(dtype).unwrap());
        let count = rows.div_ceil(PAGE_TOKENS);
        let mut pool = vec![0xff; (count + 2) * layout.bytes];
        let pages: Vec<u32> = (0..count).map(|i| (count - i) as u32).collect();
        let mut whole = |n: usize| (0..n).map(|_| rng.below(7) as f32 - 3.0).collect::<Vec<f32>>();
        for row in 0..rows {
            let base = pages[row / PAGE_TOKENS] as usize * layout.bytes;
            let values = whole(d);
            for (i, v) in values.iter().enumerate() {
                let at = base + layout.v + row % PAGE_TOKENS * d * 4;
                if dtype == kv_dtype::F32 {
                    pool[at + 4 * i..][..4].copy_from_slice(&v.to_le_bytes());
                } else {
                    let at = base + layout.v + row % PAGE_TOKENS * d;
                    pool[at + i] = *v as i8 as u8;
                    let scale = base + layout.v_scales + row % PAGE_TOKENS * 4;
                    pool[scale..][..4].copy_from_slice(&0.5f32.to_le_bytes());
                }
            }
        }
        let (q, weights) = (whole(heads * d), whole(heads));
        Case { dtype, d, heads, rows, top, q, weights, pool, pages }
    }

    /// The numbers that a level selects, in several calls; every operand ends at inaccessible memory.
    fn run(&self, level: Level, parts: &[Range<u64>]) -> Vec<f32> {
        let bytes = |x: &[f32]| Guarded::from_bytes(&x.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
        let (q, weights, pool) = (bytes(&self.q), bytes(&self.weights), Guarded::from_bytes(&self.pool));
        let pages = Guarded::from_bytes(&self.pages.iter().flat_map(|p| p.to_le_bytes()).collect::<Vec<u8>>());
        let mut out = Guarded::from_bytes(&vec![0xff; self.top * 4]);
        let mut work = Guarded::from_bytes(&vec![0xff; select_work(self.d, self.top).next_multiple_of(64)]);
        let blocks = if parts.len() > 1 { self.rows.div_ceil(ATTEND_BLOCK) } else { 0 };
        let mut shared = vec![0xff; 64 + blocks * SELECT_SHARED];
        shared[..64].fill(0);
        let mut shared = Guarded::from_bytes(&shared);
        let layout = page(1, 0, self.d, kv_dtype::bits(self.dtype).unwrap());
        let args = SelectArgs {
            q: q.as_ptr().cast(),
            weights: weights.as_ptr().cast(),
            heads: self.heads as u64,
            d: self.d as u64,
            rows: self.rows as u64,
            top: self.top as u64,
            dtype: self.dtype.into(),
            pool: pool.as_ptr(),
            pages: pages.as_ptr().cast(),
            page_bytes: layout.bytes as u64,
            v: layout.v as u64,
            v_scales: layout.v_scales as u64,
            out: out.as_mut_ptr().cast(),
            work: work.as_mut_ptr(),
            part_from: 0,
            part_to: 0,
            shared: shared.as_mut_ptr(),
        };
        let f = unsafe { std::mem::transmute::<usize, SelectFn>(table(level).f[Uk::Select as usize]) };
        let call = |p: &Range<u64>| unsafe { f(&SelectArgs { part_from: p.start, part_to: p.end, ..args }) };
        assert_eq!(parts.iter().map(call).sum::<u64>(), 1);
        assert!(shared.as_bytes()[..64].iter().all(|b| *b == 0));
        out.as_bytes().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    /// The best rows, by a sort of all.
    fn expected(&self) -> Vec<f32> {
        let layout = page(1, 0, self.d, kv_dtype::bits(self.dtype).unwrap());
        let value = |row: usize, i: usize| {
            let base = self.pages[row / PAGE_TOKENS] as usize * layout.bytes + layout.v;
            let (slot, d) = (row % PAGE_TOKENS, self.d);
            match self.dtype {
                kv_dtype::F32 => f32::from_le_bytes(self.pool[base + (slot * d + i) * 4..][..4].try_into().unwrap()),
                _ => f32::from(self.pool[base + slot * d + i] as i8) * 0.5,
            }
        };
        let score = |row: usize| {
            let of_head = |h: usize| {
                let product: f32 = (0..self.d).map(|i| value(row, i) * self.q[h * self.d + i]).sum();
                product.max(0.0) * self.weights[h]
            };
            (0..self.heads).map(of_head).sum::<f32>()
        };
        let mut rows: Vec<(f32, usize)> = (0..self.rows).map(|row| (score(row), row)).collect();
        rows.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap());
        let mut best: Vec<usize> = rows.into_iter().take(self.top).map(|(_, row)| row).collect();
        best.sort_unstable();
        let mut out: Vec<f32> = best.into_iter().map(|row| row as f32).collect();
        out.resize(self.top, -1.0);
        out
    }
}

#[test]
fn all_levels_select_the_best_rows() {
    for seed in 0..200 {
        let mut rng = Rng(seed + 1);
        let dtype = [kv_dtype::F32, kv_dtype::INT8][rng.below(2)];
        let longest = [40, 1500][rng.below(2)];
        let sizes = [1 + rng.below(40), 1 + rng.below(20), 1 + rng.below(longest), 1 + rng.below(40)];
        let case = Case::random(dtype, sizes, &mut rng);
        let want = case.expected();
        let whole = std::slice::from_ref(&(0..16));
        assert_eq!(case.run(Level::Scalar, whole), want, "{sizes:?} of {dtype}");
        for level in levels() {
            assert_eq!(case.run(level, whole), want, "{level:?} {sizes:?} of {dtype}");
            assert_eq!(case.run(level, &[5..16, 0..1, 1..5]), want, "{level:?} {sizes:?} of {dtype} in parts");
        }
    }
}
