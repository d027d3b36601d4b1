//! Attention over pages: every level equals the scalar reference bit for bit, the reference equals
//! softmax in f64, and no row depends on its neighbours.

#[path = "attend/kinds.rs"]
mod kinds;
#[path = "attend/parts.rs"]
mod parts;

use crate::support::{Guarded, Rng, levels};
use half::{bf16, f16};
use llmcc_abi::layout::{kv_nibble, page};
use llmcc_abi::{
    ATTEND_BLOCK, ATTEND_PARTS, AttendArgs, AttendFn, AttendMore, AttendWith, AttendWithFn, PAGE_TOKENS, Uk,
    attend_shared, attend_work, kv_dtype,
};
use llmcc_ukernels::{Level, table};
use std::ops::Range;

struct Case {
    dtype: u32,
    d: usize,
    /// Elements of a value.
    dv: usize,
    /// Keys end with the values.
    latent: bool,
    heads: usize,
    kv_heads: usize,
    head: usize,
    window: usize,
    positions: Vec<i32>,
    /// `[tokens][kv_heads·heads·max(d, dv) + 3]`: rows lie apart.
    q: Vec<f32>,
    /// The same for the part stored as keys, where that is not all.
    own: Vec<f32>,
    pool: Vec<u8>,
    pages: Vec<u32>,
    /// 0 = none.
    softcap: f32,
    /// `[kv_heads·heads]`, or none.
    sinks: Vec<f32>,
    /// `[kv_heads·heads·(2·reach + 1)]`, or as many for each head as slots are given, or none.
    bias: Vec<f32>,
    /// `[kv_heads·heads·d·(2·reach + 1)]` each, keys and queries of distances, or none.
    relative: Vec<Vec<f32>>,
    reach: usize,
    bias_slots: usize,
    /// The window is a chunk.
    chunked: bool,
    /// Only the last of so many positions each is seen.
    every: usize,
    /// How many first slots there are alone, and from which distance on they are seen; 0: all slots.
    first: [usize; 2],
    /// Maxima and sums are wanted.
    sums: bool,
    /// Numbers of the slots that a single token sees; empty: those up to its position.
    selected: Vec<f32>,
    /// Length of the sequence, whose tokens look both ways.
    end: Option<usize>,
    /// Keys of KV head `head`, f64 `[slot][d]` and `[slot][dv]`.
    keys: Vec<Vec<f64>>,
    values: Vec<Vec<f64>>,
}

const SCALE: f32 = 0.125;

fn bits(dtype: u32) -> usize {
    kv_dtype::bits(dtype).expect("a type")
}

impl Case {
    fn random(dtype: u32, d: usize, heads: usize, window: usize, positions: Vec<i32>, rng: &mut Rng) -> Case {
        let slots = *positions.iter().max().expect("tokens") as usize + 1;
        Case::of(dtype, (d, d, heads), window, (positions, slots), rng)
    }

    /// With values of `dv` elements, which end the keys if these are `latent`.
    fn widths(
        dtype: u32,
        (d, dv, latent): (usize, usize, bool),
        heads: usize,
        positions: Vec<i32>,
        rng: &mut Rng,
    ) -> Case {
        let slots = *positions.iter().max().expect("tokens") as usize + 1;
        let mut case = Case::of(dtype, (if latent { d - dv } else { d }, dv, heads), 0, (positions, slots), rng);
        if latent {
            (case.d, case.latent) = (d, true);
            for (key, value) in case.keys.iter_mut().zip(&case.values) {
                key.extend(value);
            }
        }
        case
    }

    fn of(
        dtype: u32,
        (d, dv, heads): (usize, usize, usize),
        window: usize,
        (positions, slots): (Vec<i32>, usize),
        rng: &mut Rng,
    ) -> Case {
        let (kv_heads, head) = (3, 1);
        let count = slots.div_ceil(PAGE_TOKENS);
        let layout = page(kv_heads, d, dv, bits(dtype));
        // NaN everywhere: unwritten memory must not matter.
        let mut pool = vec![0xff; (count + 3) * layout.bytes];
        // In another order than the sequence's, with gaps at both ends.
        let pages: Vec<u32> = (0..count).map(|i| (count - i) as u32).collect();
        let (mut keys, mut values) = (vec![], vec![]);
        for slot in 0..slots {
            let base = pages[slot / PAGE_TOKENS] as usize * layout.bytes;
            let s = slot % PAGE_TOKENS;
            let mut put = |n: usize, part: usize, scales: usize, at: &dyn Fn(usize) -> usize, x: &[f32]| -> Vec<f64> {
                let amax = x.iter().fold(0f32, |m, v| m.max(v.abs()));
                let most = if dtype == kv_dtype::INT4 { 7.0 } else { 127.0 };
                if bits(dtype) <= 8 {
                    let at = base + scales + (n * PAGE_TOKENS + s) * 4;
                    pool[at..at + 4].copy_from_slice(&(amax / most).to_le_bytes());
                }
                let one = |(i, v): (usize, &f32)| {
                    let at = base + part + if dtype == kv_dtype::INT4 { at(i) } else { at(i) * bits(dtype) / 8 };
                    let mut write = |b: &[u8]| pool[at..at + b.len()].copy_from_slice(b);
                    match dtype {
                        kv_dtype::F32 => {
                            write(&v.to_le_bytes());
                            f64::from(*v)
                        }
                        kv_dtype::F16 => {
                            write(&f16::from_f32(*v).to_le_bytes());
                            f16::from_f32(*v).to_f64()
                        }
                        kv_dtype::BF16 => {
                            write(&bf16::from_f32(*v).to_le_bytes());
                            bf16::from_f32(*v).to_f64()
                        }
                        kv_dtype::INT4 => {
                            let code = (v * (most / amax)).round_ties_even() as i8;
                            // (Values lie where keys would, if none are stored.)
                            let key = scales == layout.k_scales;
                            let up = kv_nibble(if key { d } else { dv }, key, i).1;
                            pool[at] = pool[at] & !(15 << up) | (code as u8 & 15) << up;
                            f64::from(code) * f64::from(amax / most)
                        }
                        _ => {
                            let code = (v * (most / amax)).round_ties_even() as i8;
                            write(&[code as u8]);
                            f64::from(code) * f64::from(amax / most)
                        }
                    }
                };
                x.iter().enumerate().map(one).collect()
            };
            for n in 0..kv_heads {
                let k: Vec<f32> = (0..d).map(|_| rng.signed() * 2.0).collect();
                let v: Vec<f32> = (0..dv).map(|_| rng.signed()).collect();
                let key = |i| match dtype {
                    kv_dtype::INT4 => (n * d / 2 + kv_nibble(d, true, i).0) * PAGE_TOKENS + s,
                    _ => (n * d + i) * PAGE_TOKENS + s,
                };
                let value = |i| match dtype {
                    kv_dtype::INT4 => (n * PAGE_TOKENS + s) * dv / 2 + kv_nibble(dv, false, i).0,
                    _ => (n * PAGE_TOKENS + s) * dv + i,
                };
                let k = put(n, 0, layout.k_scales, &key, &k);
                let v = put(n, layout.v, layout.v_scales, &value, &v);
                if n == head {
                    keys.push(k);
                    values.push(v);
                }
            }
        }
        let mut queries =
            || (0..positions.len() * (kv_heads * heads * d.max(dv) + 3)).map(|_| rng.signed() * 2.0).collect();
        let (q, own) = (queries(), queries());
        let latent = false;
        let (softcap, sinks, bias, reach, bias_slots, chunked, end) = (0.0, vec![], vec![], 0, 0, false, None);
        Case {
            dtype,
            d,
            dv,
            latent,
            heads,
            kv_heads,
            head,
            window,
            positions,
            q,
            own,
            pool,
            pages,
            softcap,
            sinks,
            bias,
            relative: vec![],
            reach,
            bias_slots,
            chunked,
            every: 1,
            first: [0; 2],
            sums: false,
            selected: vec![],
            end,
            keys,
            values,
        }
    }

    /// Runs tokens `range`; every operand ends at inaccessible memory.
    fn run(&self, level: Level, range: Range<usize>) -> Vec<f32> {
        self.run_parts(level, range, std::slice::from_ref(&(0..ATTEND_PARTS)))
    }

    /// The same in several calls, one per part of the context.
    fn run_parts(&self, level: Level, range: Range<usize>, parts: &[Range<usize>]) -> Vec<f32> {
        self.run_heads(level, range, parts, self.head..self.head + 1)
    }

    /// The same for several KV heads in one call.
    fn run_heads(&self, level: Level, range: Range<usize>, parts: &[Range<usize>], heads: Range<usize>) -> Vec<f32> {
        let stride = self.stride();
        let (all, values) = (heads.len() * self.heads, heads.len() * self.heads * self.dv);
        let width = values + if self.sums { 2 * all } else { 0 };
        let bytes = |x: &[f32]| x.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let queries = |x: &[f32], d: usize| {
            let (from, width) = (range.start * stride + heads.start * self.heads * d, heads.len() * self.heads * d);
            Guarded::from_bytes(&bytes(&x[from..][..(range.len() - 1) * stride + width]))
        };
        let q = queries(&self.q, if self.latent { self.dv } else { self.d });
        let own = queries(&self.own, self.own_dim());
        let pool = Guarded::from_bytes(&self.pool);
        let positions: Vec<u8> = self.positions[range.clone()].iter().flat_map(|p| p.to_le_bytes()).collect();
        let positions = Guarded::from_bytes(&positions);
        let pages: Vec<u8> = self.pages.iter().flat_map(|p| p.to_le_bytes()).collect();
        let pages = Guarded::from_bytes(&pages);
        let n = range.len();
        let mut out = Guarded::from_bytes(&vec![0xff; ((n - 1) * stride + width) * 4]);
        let mut work =
            Guarded::from_bytes(&vec![0xff; attend_work(n * heads.len() * self.heads, self.d.max(self.dv)) * 4]);
        let blocks = (self.positions[range.start] as usize).max(self.end.unwrap_or(0)) / ATTEND_BLOCK + 1;
        let mut bytes = vec![0xff; 64 + if parts.len() > 1 { blocks * attend_shared(self.heads, self.dv) } else { 0 }];
        bytes[..64].fill(0);
        let mut shared = Guarded::from_bytes(&bytes);
        let sinks: Vec<u8> = self.sinks.iter().skip(heads.start * self.heads).flat_map(|x| x.to_le_bytes()).collect();
        let sinks = Guarded::from_bytes(&sinks);
        let before = heads.start * self.heads * self.bias_width();
        let bias: Vec<u8> = self.bias.iter().skip(before).flat_map(|x| x.to_le_bytes()).collect();
        let bias = Guarded::from_bytes(&bias);
        let near = [0, 1].map(|i| {
            let table = self.relative.get(i).map_or(&[][..], |t| &t[before * self.d..]);
            Guarded::from_bytes(&table.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
        });
        let ends: Vec<u8> = range.clone().flat_map(|_| (self.end.unwrap_or(0) as i32).to_le_bytes()).collect();
        let ends = Guarded::from_bytes(&ends);
        let selected = Guarded::from_bytes(&self.selected.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>());
        let more = AttendMore {
            softcap: self.softcap,
            values: self.dv as u32,
            own: if self.latent { own.as_ptr().cast() } else { std::ptr::null() },
            own_stride: stride as u64 * 4,
            sinks: if self.sinks.is_empty() { std::ptr::null() } else { sinks.as_ptr().cast() },
            ends: if self.end.is_none() { std::ptr::null() } else { ends.as_ptr().cast() },
            bias: if self.bias.is_empty() { std::ptr::null() } else { bias.as_ptr().cast() },
            reach: self.reach as u32,
            bias_slots: self.bias_slots as u32,
            relative_keys: if self.relative.is_empty() { std::ptr::null() } else { near[0].as_ptr().cast() },
            relative_queries: if self.relative.is_empty() { std::ptr::null() } else { near[1].as_ptr().cast() },
            chunked: self.chunked.into(),
            every: self.every as u32,
            first: self.first[0] as u32,
            behind: self.first[1] as u32,
            sums_after: all as u32,
            selected: if self.selected.is_empty() { std::ptr::null() } else { selected.as_ptr().cast() },
            selected_count: self.selected.len() as u64,
            sums: if self.sums { out.as_mut_ptr().cast::<f32>().wrapping_add(values) } else { std::ptr::null_mut() },
        };
        let layout = page(self.kv_heads, self.own_dim(), self.dv, bits(self.dtype));
        let part = |d: usize| heads.start * d * PAGE_TOKENS * bits(self.dtype) / 8;
        let args = AttendArgs {
            q: q.as_ptr().cast(),
            q_stride: stride as u64 * 4,
            tokens: n as u64,
            heads: self.heads as u64,
            kv_heads: heads.len() as u64,
            d: self.d as u64,
            scale: SCALE,
            dtype: self.dtype,
            positions: positions.as_ptr().cast(),
            window: self.window as u64,
            pool: pool.as_ptr(),
            pages: pages.as_ptr().cast(),
            page_bytes: layout.bytes as u64,
            k: part(self.own_dim()) as u64,
            v: (layout.v + part(self.dv)) as u64,
            k_scales: (layout.k_scales + heads.start * PAGE_TOKENS * 4) as u64,
            v_scales: (layout.v_scales + heads.start * PAGE_TOKENS * 4) as u64,
            out: out.as_mut_ptr().cast(),
            out_stride: stride as u64 * 4,
            work: work.as_mut_ptr().cast(),
            part_from: 0,
            part_to: 0,
            shared: shared.as_mut_ptr().cast(),
        };
        // SAFETY: the table has the right function at that place, the operands are as it wants
        // them.
        unsafe {
            let f: AttendFn = std::mem::transmute(table(level).f[Uk::Attend as usize]);
            let with: AttendWithFn = std::mem::transmute(table(level).f[Uk::AttendWith as usize]);
            let plain = self.softcap == 0.0 && self.sinks.is_empty() && self.end.is_none() && self.d == self.dv;
            let plain = plain && self.bias.is_empty() && self.relative.is_empty() && !self.chunked;
            let plain = plain && !self.latent && !self.sums && self.selected.is_empty() && self.first == [0; 2];
            let call = |p: &Range<usize>| {
                let args = AttendArgs { part_from: p.start as u64, part_to: p.end as u64, ..args };
                if plain { f(&args) } else { with(&AttendWith { args, more }) }
            };
            let done: u64 = parts.iter().map(call).sum();
            // Exactly one of them brings the results.
            assert_eq!(done, 1);
        }
        assert!(shared.as_bytes()[..64].iter().all(|b| *b == 0));
        let out: Vec<f32> =
            out.as_bytes().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        out.chunks(stride).flat_map(|row| row[..width].to_vec()).collect()
    }

    /// Numbers from one token's queries to the next's.
    fn stride(&self) -> usize {
        // Keys that are not stored whole were made with fewer elements.
        self.kv_heads * self.heads * self.own_dim().max(self.dv) + 3
    }

    /// Numbers of the bias for a head.
    fn bias_width(&self) -> usize {
        if self.bias_slots > 0 { self.bias_slots } else { 2 * self.reach + 1 }
    }

    /// Elements of a key that are stored as such.
    fn own_dim(&self) -> usize {
        if self.latent { self.d - self.dv } else { self.d }
    }

    /// The query of a token's head.
    fn query(&self, token: usize, head: usize) -> Vec<f32> {
        let of = |x: &[f32], d: usize| x[token * self.stride() + (self.head * self.heads + head) * d..][..d].to_vec();
        match self.latent {
            true => [of(&self.own, self.own_dim()), of(&self.q, self.dv)].concat(),
            false => of(&self.q, self.d),
        }
    }

    /// Softmax in f64.
    fn define(&self) -> Vec<f64> {
        let mut out = vec![];
        for (t, position) in self.positions.iter().enumerate() {
            let position = *position as usize;
            let first = match self.window {
                0 => 0,
                chunk if self.chunked => position / chunk * chunk,
                window => (position + 1).saturating_sub(window),
            };
            let mut sums = [vec![], vec![]];
            for h in 0..self.heads {
                let q = self.query(t, h);
                let score = |s: usize| {
                    let product = q.iter().zip(&self.keys[s]).map(|(a, b)| f64::from(*a) * b).sum::<f64>();
                    let s = f64::from(SCALE) * (product + self.near(h, position, s, &q, &self.keys[s]));
                    let cap = f64::from(self.softcap);
                    if cap == 0.0 { s } else { cap * (s / cap).tanh() }
                };
                let ahead = if self.window == 0 { usize::MAX } else { position + self.window };
                let end = self.end.map_or(position + 1, |end| end.min(ahead));
                let end = match self.first {
                    [0, _] => end / self.every,
                    [count, behind] => end.saturating_sub(behind).min(count),
                };
                let seen: Vec<usize> = (first..end).collect();
                let mut scores: Vec<f64> = seen.iter().map(|s| score(*s) + self.bias(h, position, *s)).collect();
                scores.extend(self.sinks.get(self.head * self.heads + h).map(|s| f64::from(*s)));
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let p: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
                let sum: f64 = p.iter().sum();
                sums[0].push(max.max(f32::MIN.into()));
                sums[1].push(sum);
                // No scores give zeros.
                let whole = if sum == 0.0 { 1.0 } else { sum };
                let weighted = |i: usize| p.iter().zip(&seen).map(|(p, s)| p * self.values[*s][i]).sum::<f64>();
                out.extend((0..self.dv).map(|i| weighted(i) / whole));
            }
            if self.sums {
                out.extend(sums.concat());
            }
        }
        out
    }

    fn check(&self) {
        let all = 0..self.positions.len();
        let expected = self.run(Level::Scalar, all.clone());
        let row = self.heads * (self.dv + if self.sums { 2 } else { 0 });
        for (i, (got, want)) in expected.iter().zip(self.define()).enumerate() {
            // 1 ulp per exponential and chains of at most 300 terms below 1 in magnitude; of a score
            // with a softcap, up to two of the largest.
            let most = 4e-6 + 2.0 * f64::from(self.softcap * f32::EPSILON);
            let most = most * if i % row < self.heads * self.dv { 1.0 } else { want.abs().max(1.0) };
            assert!((f64::from(*got) - want).abs() < most, "{got} instead of {want}");
        }
        let bits = |x: &[f32]| x.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        for level in levels() {
            let got = self.run(level, all.clone());
            assert_eq!(
                bits(&got),
                bits(&expected),
                "{level:?}, d={}, heads={}, dtype {}",
                self.d,
                self.heads,
                self.dtype
            );
            let single: Vec<f32> = all.clone().flat_map(|t| self.run(level, t..t + 1)).collect();
            assert_eq!(bits(&single), bits(&expected), "{level:?} one by one");
        }
    }
}

const DTYPES: [u32; 5] = [kv_dtype::F32, kv_dtype::F16, kv_dtype::BF16, kv_dtype::INT8, kv_dtype::INT4];

/// One of them for heads of `d` elements.
fn any_dtype(d: usize, rng: &mut Rng) -> u32 {
    DTYPES[rng.below(if d.is_multiple_of(2) { 5 } else { 4 })]
}

#[test]
fn decode_at_every_place_of_a_page() {
    let mut rng = Rng(11);
    for dtype in DTYPES {
        for position in [0, 1, 14, 15, 16, 31, 32, 100] {
            Case::random(dtype, 64, 4, 0, vec![position], &mut rng).check();
        }
    }
}

#[test]
fn prompts_across_pages() {
    let mut rng = Rng(12);
    for dtype in DTYPES {
        for (start, n) in [(0, 1), (0, 5), (0, 40), (13, 7), (47, 20)] {
            Case::random(dtype, 32, 3, 0, (start..start + n).collect(), &mut rng).check();
        }
    }
}

#[test]
fn windows() {
    let mut rng = Rng(13);
    for window in [1, 2, 15, 16, 17, 40] {
        for dtype in [kv_dtype::F16, kv_dtype::INT8, kv_dtype::INT4] {
            Case::random(dtype, 16, 2, window, (30..60).collect(), &mut rng).check();
        }
    }
}

#[test]
fn odd_sizes() {
    let mut rng = Rng(14);
    for d in [1, 4, 8, 12, 20, 80, 96, 100, 128, 136] {
        for heads in [1, 2, 5, 13] {
            let dtype = any_dtype(d, &mut rng);
            Case::random(dtype, d, heads, 0, vec![3, 4, 9, 20, 33], &mut rng).check();
        }
    }
}

#[test]
fn long_contexts() {
    let mut rng = Rng(15);
    for dtype in DTYPES {
        for (heads, window) in [(3, 0), (1, 300), (6, 600)] {
            Case::random(dtype, 24, heads, window, (500..520).chain([767, 768, 1000]).collect(), &mut rng).check();
        }
    }
}

/// Few rows, many (whose pages are widened and whose queries are copied), and more than a group of
/// them; contexts and windows that begin and end within a group of widened pages, heads of whole
/// parts of a query, of a part and a half, and of less than one.
#[test]
fn groups_of_all_sizes() {
    let mut rng = Rng(18);
    for heads in [23, 24, 25, 29, 63, 64, 65, 130] {
        for (d, window, positions) in
            [(32, 0, vec![70]), (24, 150, vec![330]), (9, 0, vec![255, 256]), (20, 33, vec![40, 300])]
        {
            let dtype = any_dtype(d, &mut rng);
            Case::random(dtype, d, heads, window, positions, &mut rng).check();
        }
    }
}

/// The tokens of one call of a prompt, as generated code cuts them, in all types.
#[test]
fn prompts_beyond_a_block() {
    let mut rng = Rng(19);
    for dtype in DTYPES {
        for (d, heads, window) in [(64, 4, 0), (80, 3, 0), (64, 4, 200)] {
            Case::random(dtype, d, heads, window, (504..520).collect(), &mut rng).check();
        }
    }
}

/// More query heads than a group of rows.
#[test]
fn many_heads() {
    Case::random(kv_dtype::F16, 16, 40, 0, vec![254, 255, 256, 300], &mut Rng(16)).check();
}
