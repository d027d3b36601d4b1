//! From a tile of accumulators to stored results: the same for pointwise kernels and all products.
//!
//! The threads of a block share out the elements of a tile, in pieces of up to four columns,
//! neighbours in a row to neighbouring threads. Normalized subexpressions and int8 cache entries
//! need something of a whole run of columns first: each gets a pass that writes its values to
//! shared memory, and one in which a warp per run reduces them.

use crate::cx::{Args, Cx, share_out};
use crate::expr::{Env, Normalized, SharedTile, Slots, normalized, piece_of};
use crate::mlir::{Builder, Cmp, Elem, F32, I8, I32, V, WARP};
use crate::piece::{self, col_at, row_at};
use llmcc_abi::{PAGE_TOKENS, layout};
use llmcc_ir::kernel::{Expr, Norm, ParamId, Segment, Store};
use llmcc_ir::kv::KvSpec;

/// A tile whose accumulators are complete.
pub struct Tile<'a> {
    /// One per lane.
    pub acc: &'a [SharedTile],
    /// First row in the step.
    pub row0: V,
    /// Rows inside the step (`i32`).
    pub rows: V,
    /// Most rows.
    pub max_rows: usize,
    /// First column in the segment: a multiple of `max_cols`.
    pub col0: V,
    /// Columns inside the segment (`i32`); runs of columns lie wholly inside or outside.
    pub cols: V,
    /// Most columns.
    pub max_cols: usize,
    /// Shared memory that the epilogue may use: [`shared_bytes`] bytes, at a multiple of 16.
    pub spare: V,
    /// Threads of the block.
    pub threads: u32,
    /// Meaning of the rows in products of experts.
    pub slots: Option<Slots<'a>>,
}

/// Bytes of shared memory that the epilogue of a segment needs besides the accumulators.
pub fn shared_bytes(cx: &Cx<'_>, s: &Segment, rows: usize, cols: usize) -> usize {
    let with_runs = |run: usize| values_bytes(rows, cols) + (rows * cols.div_ceil(run) * 4).next_multiple_of(16);
    let norms: usize = normalized(&s.expr).iter().map(|(n, _, _)| with_runs(n.width)).sum();
    let store = match s.store {
        Store::KvKey(p) | Store::KvValue(p) if cx.kernel.kv(p).dtype.encoding().is_quantized() => {
            with_runs(stored_dim(cx, p, &s.store))
        }
        Store::KvKey(_) | Store::KvValue(_) | Store::Rows { .. } => 0,
    };
    norms + store
}

/// Elements that a store to the cache `p` keeps of a head.
fn stored_dim(cx: &Cx<'_>, p: ParamId, store: &Store) -> usize {
    cx.kernel.kv(p).stored_dim(matches!(store, Store::KvKey(_)))
}

/// Bytes of the values of a tile: rows are cut in whole pieces.
fn values_bytes(rows: usize, cols: usize) -> usize {
    (rows * cols * 4).next_multiple_of(16)
}

/// Columns of the pieces in which a segment is computed and stored.
fn piece_width(cx: &Cx<'_>, s: &Segment, tile: &Tile<'_>) -> usize {
    let cut = piece_of(cx, &s.expr, s.n, tile.acc, 4);
    let columns = match s.store {
        // 16-bit rows start at multiples of 16 bytes.
        Store::Rows { param, start } if cx.kernel.rows(param).elem.is_half() => vec![start],
        Store::Rows { param, start } => vec![start, cx.cols(param)],
        Store::KvKey(p) | Store::KvValue(p) => vec![stored_dim(cx, p, &s.store)],
    };
    piece::widest(cut, columns.into_iter().chain([s.n, tile.max_cols]))
}

/// Computes and stores a tile. All threads of the block take part; the accumulators are visible to
/// all (a barrier has passed).
pub fn run(cx: &Cx<'_>, b: &mut Builder, args: Args<'_>, s: &Segment, tile: &Tile<'_>) {
    let width = piece_width(cx, s, tile);
    let mut env = Env {
        cx,
        args,
        n: s.n,
        width,
        row0: tile.row0,
        col0: tile.col0,
        acc: tile.acc,
        normalized: vec![],
        slots: tile.slots,
    };
    let mut spare = tile.spare;
    for (norm, whole, x) in normalized(&s.expr) {
        let (values, factors) = carve(b, &mut spare, tile, norm.width, env.normalized.len());
        materialize(b, &env, x, values, tile);
        let Norm { eps, width, center } = norm;
        let eps = eps.get();
        if center {
            subtract_means(b, &env, tile, width, (values, factors));
        }
        reduce_runs(
            b,
            tile,
            width,
            values,
            factors,
            |b, sum, x| b.fma(x, x, sum),
            |b, a, c| b.fadd(a, c),
            move |b, sum| {
                let (scale, eps) = (b.f32(1.0 / width as f32), b.f32(eps));
                let mean = b.fma(sum, scale, eps);
                b.rsqrt(mean)
            },
        );
        env.normalized.push((whole.clone(), Normalized { values, factors, width }));
    }
    match s.store {
        Store::Rows { param, start } => store_rows(b, &env, &s.expr, tile, param, start),
        Store::KvKey(p) => store_kv(b, &env, &s.expr, tile, p, true, spare),
        Store::KvValue(p) => store_kv(b, &env, &s.expr, tile, p, false, spare),
    }
}

/// Takes room for the values of a tile and one number per run, after `depth` others.
fn carve(b: &mut Builder, spare: &mut V, tile: &Tile<'_>, run: usize, depth: usize) -> (SharedTile, SharedTile) {
    b.room(*spare, &format!("values {depth}"), values_bytes(tile.max_rows, tile.max_cols));
    let values = SharedTile { base: *spare, stride: tile.max_cols, scale: None, row_scale: None };
    let base = b.atc(*spare, values_bytes(tile.max_rows, tile.max_cols) as i64);
    let factors = SharedTile { base, stride: tile.max_cols.div_ceil(run), scale: None, row_scale: None };
    b.room(base, &format!("factors {depth}"), tile.max_rows * factors.stride * 4);
    *spare = b.atc(base, (tile.max_rows * factors.stride * 4).next_multiple_of(16) as i64);
    (values, factors)
}

/// Runs `body(row, col)` for every piece of the tile.
fn pieces(b: &mut Builder, env: &Env<'_>, tile: &Tile<'_>, body: impl FnOnce(&mut Builder, V, V)) {
    let per_row = tile.max_cols.div_ceil(env.width) as i64;
    let n = b.mulc(tile.rows, per_row);
    share_out(b, n, tile.threads, |b, i| {
        let row = b.divc(i, per_row);
        let start = b.mulc(row, per_row);
        let piece = b.sub(i, start);
        let col = b.mulc(piece, env.width as i64);
        // Only the last tile of a segment may be narrower.
        if env.n.is_multiple_of(tile.max_cols) {
            body(b, row, col);
        } else {
            let inside = b.cmp(Cmp::Slt, col, tile.cols);
            b.if_(inside, |b| body(b, row, col));
        }
    });
}

fn materialize(b: &mut Builder, env: &Env<'_>, x: &Expr, to: SharedTile, tile: &Tile<'_>) {
    pieces(b, env, tile, |b, row, col| {
        let v = env.values(b, x, row, col);
        let p = to.at(b, row, col);
        piece::store(b, &v, p, Elem::F32);
    });
    b.barrier();
}

/// For each run of `width` columns: folds its values with `step` from 0, lanes apart, joins the
/// lanes with `join`, stores `finish` of the result.
fn reduce_runs(
    b: &mut Builder,
    tile: &Tile<'_>,
    width: usize,
    values: SharedTile,
    to: SharedTile,
    step: impl Fn(&mut Builder, V, V) -> V,
    join: impl Fn(&mut Builder, V, V) -> V,
    finish: impl Fn(&mut Builder, V) -> V,
) {
    let tid = b.sreg("tid.x");
    let (warp, lane) = b.warp_and_lane(tid);
    let runs = b.divc(tile.cols, width as i64);
    let all = b.mul(runs, tile.rows);
    b.for_range(warp, all, i64::from(tile.threads) / WARP as i64, |b, i| {
        let row = b.div(i, runs);
        let skip = b.mul(row, runs);
        let run = b.sub(i, skip);
        let first = b.mulc(run, width as i64);
        let (zero, n, stride) = (b.f32(0.0), b.i32(width as i64), b.i32(WARP as i64));
        let sum = b.for_((lane, n, stride), &[zero], |b, j, acc| {
            let col = b.add(first, j);
            let p = values.at(b, row, col);
            let x = b.load(p, F32);
            vec![step(b, acc[0], x)]
        });
        let sum = b.reduce(sum[0], &[16, 8, 4, 2, 1], &join);
        let result = finish(b, sum);
        let first_lane = b.cmpc(Cmp::Eq, lane, 0);
        b.if_(first_lane, |b| {
            let p = to.at(b, row, run);
            b.store(result, p);
        });
    });
    b.barrier();
}

/// Subtracts from each run of `width` columns of `values` its mean, for which there is room in
/// `means`.
fn subtract_means(
    b: &mut Builder,
    env: &Env<'_>,
    tile: &Tile<'_>,
    width: usize,
    (values, means): (SharedTile, SharedTile),
) {
    let add = |b: &mut Builder, x: V, y: V| b.fadd(x, y);
    reduce_runs(b, tile, width, values, means, add, add, |b, sum| {
        let scale = b.f32(1.0 / width as f32);
        b.fmul(sum, scale)
    });
    pieces(b, env, tile, |b, row, col| {
        let p = values.at(b, row, col);
        let x = b.apart(|b| piece::load(b, p, Elem::F32, env.width));
        let run = b.divc(col, width as i64);
        let at = means.at(b, row, run);
        let mean = b.load(at, F32);
        let x: Vec<V> = x.into_iter().map(|x| b.fsub(x, mean)).collect();
        b.apart(|b| piece::store(b, &x, p, Elem::F32));
    });
    b.barrier();
}

fn store_rows(b: &mut Builder, env: &Env<'_>, e: &Expr, tile: &Tile<'_>, param: ParamId, start: usize) {
    let (cols, elem) = env.cx.rows(param);
    let storage = piece::storage(elem);
    let base = env.args.operand(param);
    pieces(b, env, tile, |b, row, col| {
        let v = env.values(b, e, row, col);
        let (row, slot) = env.row(b, row);
        let line = row_at(b, base, cols, elem, row);
        let col = env.column(b, col, slot);
        let col = b.addc(col, start as i64);
        let p = col_at(b, line, storage, col);
        piece::store(b, &v, p, storage);
    });
}

/// Where the element `col` (among all heads) of a token goes: its number in its part of the page.
fn place(b: &mut Builder, kv: KvSpec, col: V, slot: V, key: bool) -> V {
    if key {
        // [head][D][16]: the column counts heads and D already.
        let line = b.mulc(col, PAGE_TOKENS as i64);
        return b.add(line, slot);
    }
    let d = kv.value_dim as i64;
    let (head, within) = (b.divc(col, d), b.remc(col, d));
    let line = b.mulc(head, PAGE_TOKENS as i64);
    let line = b.add(line, slot);
    let line = b.mulc(line, d);
    b.add(line, within)
}

/// Where keys or values of a step go.
struct Cache<'a> {
    kv: KvSpec,
    page: layout::Page,
    pool: V,
    key: bool,
    env: &'a Env<'a>,
}

impl Cache<'_> {
    /// Elements that are stored of a head.
    fn dim(&self) -> usize {
        self.kv.stored_dim(self.key)
    }

    /// Calls `f` with the page of the token in row `row` of the tile and the slot in it; not for a token
    /// that stores no row.
    fn slot(&self, b: &mut Builder, row: V, f: impl FnOnce(&mut Builder, V, V)) {
        let row = b.add(self.env.row0, row);
        let position = self.env.args.position(b, row);
        let at = |b: &mut Builder, position: V| {
            let (number, slot) = (b.shrc(position, 4), b.andc(position, PAGE_TOKENS as i64 - 1));
            let page = self.env.args.page(b, self.pool, self.page.bytes, row, number);
            f(b, page, slot);
        };
        if let Some(first) = self.kv.first {
            let stores = b.cmpc(Cmp::Slt, position, first.rows.min(i32::MAX as usize) as i64);
            return b.if_(stores, |b| at(b, position));
        }
        let every = self.kv.every as i64;
        if every <= 1 {
            return at(b, position);
        }
        // The last of so many tokens stores the row of all.
        let (window, place) = (b.divc(position, every), b.remc(position, every));
        let last = b.cmpc(Cmp::Eq, place, every - 1);
        b.if_(last, |b| at(b, window));
    }

    /// Stores elements of `elem` at columns `col..` of the segment.
    fn put(&self, b: &mut Builder, page: V, slot: V, col: V, values: &[V], elem: Elem) {
        let part = b.atc(page, if self.key { 0 } else { self.page.v as i64 });
        let col = b.add(self.env.col0, col);
        let first = place(b, self.kv, col, slot, self.key);
        let p = col_at(b, part, elem, first);
        let store = |b: &mut Builder, v: &[V], p: V| match elem {
            Elem::I8 if v.len() > 1 => {
                let v = b.pack(v);
                b.store(v, p);
            }
            Elem::I8 => b.store(v[0], p),
            _ => piece::store(b, v, p, elem),
        };
        if !self.key {
            return store(b, values, p);
        }
        // Neighbouring columns of a key are a row of slots apart.
        for (i, v) in values.iter().enumerate() {
            let p = b.atc(p, (i * PAGE_TOKENS * elem.bytes()) as i64);
            store(b, &[*v], p);
        }
    }

    /// Address of byte `byte` of a head's 4-bit codes.
    fn pair_at(&self, b: &mut Builder, page: V, slot: V, (head, byte): (V, V)) -> V {
        let half = self.dim() as i64 / 2;
        let part = b.atc(page, if self.key { 0 } else { self.page.v as i64 });
        let at = if self.key {
            let line = b.mulc(head, half);
            let line = b.add(line, byte);
            let line = b.shlc(line, 4);
            b.add(line, slot)
        } else {
            let line = b.shlc(head, 4);
            let line = b.add(line, slot);
            let line = b.mulc(line, half);
            b.add(line, byte)
        };
        b.at(part, at)
    }

    /// Stores the scale of the head of column `col`.
    fn put_scale(&self, b: &mut Builder, page: V, slot: V, col: V, scale: V) {
        let at = b.atc(page, if self.key { self.page.k_scales } else { self.page.v_scales } as i64);
        let col = b.add(self.env.col0, col);
        let head = b.divc(col, self.dim() as i64);
        let line = b.mulc(head, PAGE_TOKENS as i64);
        let index = b.add(line, slot);
        let p = col_at(b, at, Elem::F32, index);
        b.store(scale, p);
    }
}

fn store_kv(b: &mut Builder, env: &Env<'_>, e: &Expr, tile: &Tile<'_>, param: ParamId, key: bool, spare: V) {
    let kv = env.cx.kernel.kv(param);
    let page = kv.page();
    let cache = Cache { kv, page, pool: env.args.operand(param), key, env };
    if let Some(most) = kv.dtype.most() {
        return store_kv_codes(b, &cache, e, tile, (spare, most as f32));
    }
    let elem = piece::kv_storage(kv.dtype);
    pieces(b, env, tile, |b, row, col| {
        let v = env.values(b, e, row, col);
        cache.slot(b, row, |b, page, slot| cache.put(b, page, slot, col, &v, elem));
    });
}

/// Codes of up to `most` and a scale per head, from the largest magnitude of the head's values,
/// which are kept in shared memory.
fn store_kv_codes(b: &mut Builder, cache: &Cache<'_>, e: &Expr, tile: &Tile<'_>, (mut spare, most): (V, f32)) {
    let (env, d) = (cache.env, cache.dim());
    let (values, scales) = carve(b, &mut spare, tile, d, env.normalized.len());
    materialize(b, env, e, values, tile);
    let larger = |b: &mut Builder, m: V, x: V| {
        let x = b.op(F32, format!("math.absf {x} : f32"));
        b.fmax(m, x)
    };
    reduce_runs(b, tile, d, values, scales, larger, |b, x, y| b.fmax(x, y), |_, m| m);
    if cache.kv.dtype.bits() < 8 {
        return store_pairs(b, cache, (values, scales), tile, most);
    }
    pieces(b, env, tile, |b, row, col| {
        let p = values.at(b, row, col);
        let x = piece::load(b, p, Elem::F32, env.width);
        let run = b.divc(col, d as i64);
        let p = scales.at(b, row, run);
        let amax = b.load(p, F32);
        let code = |x| {
            let code = code(b, x, amax, most);
            b.trunc(code, I8)
        };
        let codes: Vec<V> = x.into_iter().map(code).collect();
        cache.slot(b, row, |b, page, slot| {
            cache.put(b, page, slot, col, &codes, Elem::I8);
            // The first piece of a head stores its scale.
            let within = b.remc(col, d as i64);
            let first = b.cmpc(Cmp::Eq, within, 0);
            b.if_(first, |b| {
                let c = b.f32(most);
                let scale = b.fdiv(amax, c);
                cache.put_scale(b, page, slot, col, scale);
            });
        });
    });
}

/// 4-bit codes, two to a byte (see `layout::kv_nibble`), a byte per thread at a time.
fn store_pairs(
    b: &mut Builder,
    cache: &Cache<'_>,
    (values, scales): (SharedTile, SharedTile),
    tile: &Tile<'_>,
    most: f32,
) {
    let d = cache.dim() as i64;
    let per_row = tile.max_cols as i64 / 2;
    let n = b.mulc(tile.rows, per_row);
    share_out(b, n, tile.threads, |b, i| {
        let row = b.divc(i, per_row);
        let start = b.mulc(row, per_row);
        let byte = b.sub(i, start);
        let run = b.divc(byte, d / 2);
        let first = b.mulc(run, d);
        // Only the last tile of a segment may be narrower.
        let inside = b.cmp(Cmp::Slt, first, tile.cols);
        b.if_(inside, |b| {
            let before = b.mulc(run, d / 2);
            let within = b.sub(byte, before);
            let column = if cache.key { b.shlc(within, 1) } else { within };
            let low = b.add(first, column);
            let high = b.addc(low, if cache.key { 1 } else { d / 2 });
            let p = scales.at(b, row, run);
            let amax = b.load(p, F32);
            let [low, high] = [low, high].map(|col| {
                let p = values.at(b, row, col);
                let x = b.load(p, F32);
                code(b, x, amax, most)
            });
            let (low, high) = (b.andc(low, 15), b.shlc(high, 4));
            let both = b.or(low, high);
            let both = b.trunc(both, I8);
            cache.slot(b, row, |b, page, slot| {
                let head = b.add(cache.env.col0, first);
                let head = b.divc(head, d);
                let p = cache.pair_at(b, page, slot, (head, within));
                b.store(both, p);
                let first_byte = b.cmpc(Cmp::Eq, within, 0);
                b.if_(first_byte, |b| {
                    let c = b.f32(most);
                    let scale = b.fdiv(amax, c);
                    cache.put_scale(b, page, slot, first, scale);
                });
            });
        });
    });
}

/// `round-half-even(x·(most/amax))`, 0 where that factor is not finite.
fn code(b: &mut Builder, x: V, amax: V, most: f32) -> V {
    let c = b.f32(most);
    let factor = b.fdiv(c, amax);
    let huge = b.f32(f32::MAX);
    let finite = b.op(crate::mlir::I1, format!("arith.cmpf ole, {factor}, {huge} : f32"));
    let zero = b.f32(0.0);
    let factor = b.select(finite, factor, zero);
    let scaled = b.fmul(x, factor);
    b.asm(I32, "cvt.rni.s32.f32 $0, $1;", "=r,f", &[scaled])
}
