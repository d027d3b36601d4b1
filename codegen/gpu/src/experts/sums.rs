//! Sums of products: the parts of a block's warps, and how they are joined.

use super::{Map, Plan, ROWS, THREADS, Thread, WARPS};
use crate::cx::{Args, share_out};
use crate::matmul::decode::{self, Scales};
use crate::mlir::{Builder, Cmp, Elem, F16, F32, I16, I32, I64, V, V4I32};
use llmcc_ir::gpu::schedule::{self, TILE_K};
use llmcc_ir::quant::{BLOCK, Format};

impl Plan<'_> {
    /// Address of the strip of 16 rows that is a lane's tile of an expert.
    fn strip(&self, b: &mut Builder, args: Args<'_>, lane: usize, (expert, tile): (V, V)) -> V {
        let (w, format) = self.lanes[lane];
        let first = b.mulc(expert, (self.k.rows() / BLOCK) as i64);
        let strip = b.add(first, tile);
        let strip = b.zext(strip, I64);
        let offset = b.mulc(strip, format.block_bytes(self.inner) as i64);
        b.at(args.operand(w), offset)
    }

    /// Address of the columns of a pair's slot.
    fn input(&self, b: &mut Builder, args: Args<'_>, pair: V) -> V {
        let (token, slot) = (b.divc(pair, self.k.top as i64), b.remc(pair, self.k.top as i64));
        let line = self.row(b, args, token);
        if !self.k.own_input(self.cols, self.inner) {
            return line;
        }
        let skip = b.mulc(slot, (self.inner * self.elem.bytes()) as i64);
        b.at(line, skip)
    }

    fn is_f32(&self) -> bool {
        self.elem == Elem::F32
    }

    /// Units of the inner columns.
    fn units(&self) -> usize {
        self.inner.div_ceil(TILE_K)
    }

    /// 16 columns of a unit as words; zeros where there are none.
    fn words(&self, b: &mut Builder, line: V, unit: V, t: V) -> Vec<V> {
        if !self.inner.is_multiple_of(16) {
            return self.ragged(b, line, unit, t);
        }
        let bytes = 16 * self.elem.bytes();
        let skip = b.mulc(unit, 4 * bytes as i64);
        let own = b.mulc(t, bytes as i64);
        let at = b.add(skip, own);
        let read = |b: &mut Builder| {
            let p = b.at(line, at);
            let mut out = vec![];
            for piece in 0..bytes / 16 {
                let p = b.atc(p, 16 * piece as i64);
                let v = b.load(p, V4I32);
                out.extend(b.unpack(v));
            }
            out
        };
        if self.inner.is_multiple_of(TILE_K) {
            return read(b);
        }
        let inside = b.cmpc(Cmp::Slt, at, (self.inner * self.elem.bytes()) as i64);
        let zero = b.i32(0);
        b.if_else(inside, &vec![I32; bytes / 4], read, |_| vec![zero; bytes / 4])
    }

    /// The same where slots have no whole words of 16 bytes: element by element.
    fn ragged(&self, b: &mut Builder, line: V, unit: V, t: V) -> Vec<V> {
        let (skip, own) = (b.mulc(unit, TILE_K as i64), b.shlc(t, 4));
        let first = b.add(skip, own);
        let zero = b.i32(0);
        let element = |b: &mut Builder, i: usize| {
            let column = b.addc(first, i as i64);
            let inside = b.cmpc(Cmp::Slt, column, self.inner as i64);
            let read = |b: &mut Builder| {
                let at = b.mulc(column, self.elem.bytes() as i64);
                let p = b.at(line, at);
                let x = if self.is_f32() { b.load(p, I32) } else { b.load(p, I16) };
                vec![if self.is_f32() { x } else { b.zext(x, I32) }]
            };
            b.if_else(inside, &[I32], read, |_| vec![zero])[0]
        };
        let x: Vec<V> = (0..16).map(|i| element(b, i)).collect();
        if self.is_f32() {
            return x;
        }
        let pair = |b: &mut Builder, two: &[V]| {
            let high = b.shlc(two[1], 16);
            b.or(two[0], high)
        };
        x.chunks(2).map(|two| pair(b, two)).collect()
    }

    /// The words of a lane's codes in a unit, and the scales of its two rows.
    fn codes(&self, b: &mut Builder, format: Format, strip: V, unit: V, th: Thread) -> (Vec<V>, Option<Scales>) {
        let layout = format.block(self.inner);
        let bytes = format.tile_bytes() as i64;
        let (skip, own) = (b.mulc(unit, bytes), b.shlc(th.lane, 4));
        let at = b.add(skip, own);
        let p = b.at(strip, at);
        let mut words = vec![];
        for piece in 0..bytes / 512 {
            let p = b.atc(p, layout.codes as i64 + 512 * piece);
            let v = b.load_const(p, V4I32);
            words.extend(b.unpack(v));
        }
        if !format.is_quantized() {
            return (words, None);
        }
        if schedule::has_f32_factors(format) {
            return (words, self.factors(b, format, strip, unit, th));
        }
        let groups = TILE_K.div_ceil(usize::from(format.group));
        let first =
            if groups == 2 { b.shlc(unit, 1) } else { b.divc(unit, (usize::from(format.group) / TILE_K) as i64) };
        let mut group = first;
        if groups == 2 {
            // Lane t of a quad has columns 16t…16t+15.
            let half = b.shrc(th.t, 1);
            group = b.add(first, half);
        }
        let line = b.shlc(group, 5);
        let row = b.shlc(th.g, 1);
        let at = b.add(line, row);
        let p = b.at(strip, at);
        let read = |b: &mut Builder, from: i64| {
            std::array::from_fn(|h| {
                let p = b.atc(p, from + 16 * h as i64);
                b.load_const(p, F16)
            })
        };
        let scale = read(b, 0);
        let min = format.packed_encoding().has_minimum().then(|| read(b, layout.mins as i64));
        (words, Some(Scales { scale, min }))
    }

    /// Factors in f32, of both levels.
    fn factors(&self, b: &mut Builder, format: Format, strip: V, unit: V, th: Thread) -> Option<Scales> {
        let layout = format.block(self.inner);
        decode::factors(b, format, Builder::load_const, |b, run| {
            let index = decode::factor_of(b, run, th.g, th.t);
            let own = b.mulc(index, run.of.kind.bytes() as i64);
            let at = decode::line_of(b, run, unit).map_or(own, |line| b.add(own, line));
            (b.at(strip, at), run.in_block(&layout))
        })
    }

    /// Runs `body` for the units of a warp, with sums carried round.
    fn each_unit(
        &self,
        b: &mut Builder,
        th: Thread,
        sums: usize,
        body: impl FnOnce(&mut Builder, V, &[V]) -> Vec<V>,
    ) -> Vec<V> {
        let zero = b.f32(0.0);
        let (n, step) = (b.i32(self.units() as i64), b.i32(WARPS as i64));
        b.for_((th.warp, n, step), &vec![zero; sums], body)
    }

    /// Address of the input of the pair in row `row`. Rows beyond the last of the block repeat it;
    /// their results are not stored.
    fn line(&self, b: &mut Builder, args: Args<'_>, row: V, last: V, pair: &dyn Fn(&mut Builder, V) -> V) -> V {
        let row = b.min(row, last);
        let of = pair(b, row);
        self.input(b, args, of)
    }

    /// By tensor cores: of each lane four sums, as `mma` has them.
    pub(super) fn tensor_sums(
        &self,
        b: &mut Builder,
        args: Args<'_>,
        th: Thread,
        at: (V, V),
        rows: V,
        pair: &dyn Fn(&mut Builder, V) -> V,
    ) -> Vec<V> {
        let strips: Vec<V> = (0..self.lanes.len()).map(|lane| self.strip(b, args, lane, at)).collect();
        let last = b.addc(rows, -1);
        let line = self.line(b, args, th.g, last, pair);
        self.each_unit(b, th, 4 * strips.len(), |b, unit, sums| {
            let x = self.words(b, line, unit, th.t);
            let mut out = vec![];
            for (lane, strip) in strips.iter().enumerate() {
                let format = self.lanes[lane].1;
                let weights = self.codes(b, format, *strip, unit, th);
                out.extend(decode::multiply(b, format, self.elem, weights, &x, &sums[4 * lane..][..4]));
            }
            out
        })
    }

    /// By multiply-adds: for each lane and row, the sums of the lane's two rows of weights.
    pub(super) fn plain_sums(
        &self,
        b: &mut Builder,
        args: Args<'_>,
        th: Thread,
        at: (V, V),
        rows: V,
        pair: &dyn Fn(&mut Builder, V) -> V,
    ) -> Vec<V> {
        let strips: Vec<V> = (0..self.lanes.len()).map(|lane| self.strip(b, args, lane, at)).collect();
        let last = b.addc(rows, -1);
        let lines: Vec<V> = (0..self.k.tile_m as i64)
            .map(|r| {
                let row = b.i32(r);
                self.line(b, args, row, last, pair)
            })
            .collect();
        let per_lane = 2 * lines.len();
        let sums = self.each_unit(b, th, per_lane * strips.len(), |b, unit, sums| {
            let mut x = vec![];
            for line in &lines {
                let words = self.words(b, *line, unit, th.t);
                x.push(self.floats(b, &words));
            }
            let mut out = vec![];
            for (lane, strip) in strips.iter().enumerate() {
                let format = self.lanes[lane].1;
                let weights = self.codes(b, format, *strip, unit, th);
                out.extend(decode::multiply_add(b, format, weights, &x, &sums[per_lane * lane..][..per_lane]));
            }
            out
        });
        // The lanes of a quad have a quarter of the columns each.
        sums.into_iter().map(|v| b.reduce(v, &[1, 2], |b, x, y| b.fadd(x, y))).collect()
    }

    /// 16 columns as f32.
    fn floats(&self, b: &mut Builder, words: &[V]) -> Vec<V> {
        if self.is_f32() {
            return words.iter().map(|w| b.bitcast(*w, F32)).collect();
        }
        words.iter().flat_map(|w| crate::matmul::halves(b, *w, self.elem)).collect()
    }

    /// Writes a warp's sums to shared memory: `[warp][row][column of all lanes]`.
    pub(super) fn store_sums(&self, b: &mut Builder, map: &Map, th: Thread, sums: &[V]) {
        let stride = self.stride() as i64 * 4;
        let base = b.shared_in("sums", map.sums);
        let skip = b.mulc(th.warp, ROWS as i64 * stride);
        let base = b.at(base, skip);
        let own = b.shlc(th.g, 2);
        let base = b.at(base, own);
        let per_lane = sums.len() / self.lanes.len();
        if self.tensor {
            // Sums 0 and 1: row g of the strip, rows 2t and 2t + 1 of the input; 2 and 3: row g +
            // 8.
            let rows = b.mulc(th.t, 2 * stride);
            let base = b.at(base, rows);
            for (i, v) in sums.iter().enumerate() {
                let (lane, i) = ((i / per_lane) as i64, (i % per_lane) as i64);
                let p = b.atc(base, lane * BLOCK as i64 * 4 + i % 2 * stride + i / 2 * 32);
                b.store(*v, p);
            }
            return;
        }
        // All four threads of a quad have all sums: each stores rows of its own, every fourth. A
        // single row has four copies.
        let rows = b.mulc(th.t, stride);
        let base = b.at(base, rows);
        let is: Vec<V> = (1..4).map(|t| b.cmpc(Cmp::Eq, th.t, t)).collect();
        for lane in 0..self.lanes.len() {
            let of = &sums[per_lane * lane..][..per_lane];
            for (four, of) in of.chunks(8).enumerate() {
                for h in 0..2 {
                    let mut own = of[h];
                    for (t, row) in of.chunks(2).enumerate().skip(1) {
                        own = b.select(is[t - 1], row[h], own);
                    }
                    let p = b.atc(base, (lane * BLOCK * 4) as i64 + 4 * four as i64 * stride + 32 * h as i64);
                    b.store(own, p);
                }
            }
        }
    }

    /// Adds the warps' sums, in order, into the first warp's.
    pub(super) fn join(&self, b: &mut Builder, map: &Map) {
        let columns = (BLOCK * self.lanes.len()) as i64;
        let (stride, rows) = (self.stride() as i64 * 4, self.rows_stored() as i64);
        let base = b.shared_in("sums", map.sums);
        let n = b.i32(columns * rows);
        share_out(b, n, THREADS, |b, i| {
            let (row, col) = (b.divc(i, columns), b.remc(i, columns));
            let (line, own) = (b.mulc(row, stride), b.shlc(col, 2));
            let at = b.add(line, own);
            let p = b.at(base, at);
            b.apart(|b| {
                let mut sum = b.load(p, F32);
                for warp in 1..WARPS as i64 {
                    let p = b.atc(p, warp * ROWS as i64 * stride);
                    let more = b.load(p, F32);
                    sum = b.fadd(sum, more);
                }
                b.store(sum, p);
            });
        });
    }

    /// Rows that sums are stored of.
    fn rows_stored(&self) -> usize {
        if self.tensor { ROWS } else { self.k.tile_m }
    }
}
