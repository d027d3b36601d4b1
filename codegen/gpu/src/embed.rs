//! Embedding: rows of a table in fragment order by token id, position or type.
//!
//! A block per token; a thread takes four adjacent columns at a time, which lie together (or in two
//! places) in one lane's part of a tile, see [`llmcc_abi::layout`].

use crate::cx::{Cx, share_out, when_below};
use crate::mlir::{Builder, Cmp, Elem, F32, I16, I32, I64, V, WARP};
use crate::piece::{self, col_at, row_at};
use crate::{Source, blocks, codes, per_rows};
use llmcc_abi::GpuCtx;
use llmcc_abi::layout::{self, BLOCK, FRAGMENT_K, fragment_bits};
use llmcc_ir::graph::F32 as F32Attr;
use llmcc_ir::kernel::{Embed, Index, RowElem};
use llmcc_ir::quant::{Code, Float, Format, Per, Scale};
use std::mem::offset_of;

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &Embed) -> Source {
    let Embed { table, index, every, shift, scale, add, out } = *k;
    let ((cols, to), format) = (cx.rows(out), cx.kernel.matrix(table).format);
    let storage = piece::storage(to);
    let threads = (cols / 4).next_multiple_of(WARP).clamp(WARP, 256) as u32;
    let (mlir, program) = cx.function(threads, 1, |b, args| {
        let m = cx.row_count(b, args);
        let row = b.sreg("ctaid.x");
        when_below(b, row, m, |b| {
            let token = args.array_at(b, offset(index), row);
            let shifted = b.addc(token, shift.unwrap_or(0) as i64);
            let of_table = b.divc(shifted, every as i64);
            let entry = Entry::of(b, args.operand(table), cols, format, of_table);
            let line = row_at(b, args.operand(out), cols, to, row);
            let add = add.map(|add| row_at(b, args.operand(add), cols, RowElem::F32, row));
            let quads = b.i32(cols.div_ceil(4) as i64);
            share_out(b, quads, threads, |b, quad| {
                let mut values = entry.four(b, quad);
                if scale != F32Attr::new(1.0) {
                    let scale = b.f32(scale.get());
                    values.iter_mut().for_each(|v| *v = b.fmul(*v, scale));
                }
                if let Some(add) = add {
                    values = added(b, add, cols, quad, values);
                }
                store(b, line, storage, cols, quad, &values);
            });
        });
    });
    Source::new(cx.entry(), (mlir, program), threads, [per_rows(1), blocks(1), blocks(1)])
}

/// Where the numbers of tokens are found that name their rows.
fn offset(index: Index) -> usize {
    match index {
        Index::Tokens => offset_of!(GpuCtx, tokens),
        Index::Positions => offset_of!(GpuCtx, positions),
        Index::Types => offset_of!(GpuCtx, arrays.types),
    }
}

/// Values plus columns `4·quad..` of an f32 row, as far as they exist.
fn added(b: &mut Builder, line: V, cols: usize, quad: V, values: Vec<V>) -> Vec<V> {
    let first = b.shlc(quad, 2);
    if cols.is_multiple_of(4) {
        let p = col_at(b, line, Elem::F32, first);
        let more = piece::load(b, p, Elem::F32, values.len());
        return values.into_iter().zip(more).map(|(x, y)| b.fadd(x, y)).collect();
    }
    let one = |b: &mut Builder, (i, x): (usize, V)| {
        let col = b.addc(first, i as i64);
        let inside = b.cmpc(Cmp::Slt, col, cols as i64);
        let sum = |b: &mut Builder| {
            let p = col_at(b, line, Elem::F32, col);
            let y = b.load(p, F32);
            vec![b.fadd(x, y)]
        };
        b.if_else(inside, &[F32], sum, |_| vec![x])
    };
    values.into_iter().enumerate().flat_map(|v| one(b, v)).collect()
}

/// Stores columns `4·quad..` of a row, as far as they exist.
pub fn store(b: &mut Builder, line: V, storage: Elem, cols: usize, quad: V, values: &[V]) {
    let first = b.shlc(quad, 2);
    // A row of f32 starts at a multiple of 4 columns only if there are as many.
    if cols.is_multiple_of(4) {
        let p = col_at(b, line, storage, first);
        return piece::store(b, values, p, storage);
    }
    for (i, v) in values.iter().enumerate() {
        let col = b.addc(first, i as i64);
        let inside = b.cmpc(Cmp::Slt, col, cols as i64);
        b.if_(inside, |b| {
            let p = col_at(b, line, storage, col);
            piece::store(b, &[*v], p, storage);
        });
    }
}

/// A row of the table.
pub struct Entry {
    format: Format,
    block: layout::Block,
    /// Address of its block of 16 rows.
    base: V,
    /// Its number in the block.
    row: V,
    /// Offset in a tile of the lane that owns its first 16 columns.
    lane: V,
    /// 0 for the first eight rows of the block, 1 for the others.
    half: V,
}

impl Entry {
    /// The row of a table with this number.
    pub fn of(b: &mut Builder, table: V, cols: usize, format: Format, token: V) -> Entry {
        let number = b.shrc(token, BLOCK.trailing_zeros().into());
        let number = b.zext(number, I64);
        let offset = b.mulc(number, format.block_bytes(cols) as i64);
        let base = b.at(table, offset);
        let row = b.andc(token, BLOCK as i64 - 1);
        let (group, half) = (b.andc(row, 7), b.shrc(row, 3));
        let lane = b.shlc(group, 6);
        Entry { format, block: format.block(cols), base, row, lane, half }
    }

    /// The values of columns `4·quad..4·quad + 4`.
    pub fn four(&self, b: &mut Builder, quad: V) -> Vec<V> {
        // quad = 16·tile + 4·t + step: lane t of the four that own this row, mma step `step`.
        let (tile, t, step) = (b.shrc(quad, 4), b.shrc(quad, 2), b.andc(quad, 3));
        let t = b.andc(t, 3);
        let tile = b.mulc(tile, self.format.tile_bytes() as i64);
        let t = b.shlc(t, 4);
        let at = b.add(tile, self.lane);
        let at = b.add(at, t);
        let e = self.format.packed_encoding();
        match e.code {
            Code::Float(Float::F32) => self.plain(b, at, step, Elem::F32, (1024, 512)),
            Code::Float(Float::F16) => self.plain(b, at, step, Elem::F16, (512, 8)),
            Code::Float(Float::Bf16) => self.plain(b, at, step, Elem::Bf16, (512, 8)),
            Code::Float(Float::E4m3) => {
                let word = self.floats(b, at, step);
                let (scale, min) = self.factors(b, quad);
                let bias = codes::e4m3_bias(b);
                let value = |i| {
                    let x = codes::e4m3(b, word, i, bias);
                    codes::value(b, &e, x, scale, min)
                };
                (0..4).map(value).collect()
            }
            Code::Int { .. } | Code::Signed { .. } | Code::Table { .. } | Code::Trellis(_) | Code::Pairs => {
                let all = if fragment_bits(&e) == 4 { self.nibbles(b, at, step) } else { self.bytes(b, at, step) };
                let (scale, min) = self.factors(b, quad);
                let value = |code: &V| {
                    let x = codes::number(b, &e, *code);
                    codes::value(b, &e, x, scale, min)
                };
                all.iter().map(value).collect()
            }
        }
    }

    fn codes_at(&self, b: &mut Builder, offset: V) -> V {
        let codes = b.atc(self.base, self.block.codes as i64);
        b.at(codes, offset)
    }

    /// Floats: two pairs, `apart` bytes apart, in the chunk of `per_step` bytes of the step.
    fn plain(&self, b: &mut Builder, at: V, step: V, elem: Elem, (per_step, apart): (i64, i64)) -> Vec<V> {
        let chunk = b.mulc(step, per_step);
        let at = b.add(at, chunk);
        let half = b.mulc(self.half, 2 * elem.bytes() as i64);
        let at = b.add(at, half);
        let p = self.codes_at(b, at);
        let mut out = piece::load(b, p, elem, 2);
        let p = b.atc(p, apart);
        out.extend(piece::load(b, p, elem, 2));
        out
    }

    /// Codes of 8 bits, as `i32`.
    fn bytes(&self, b: &mut Builder, at: V, step: V) -> Vec<V> {
        let (chunk, within) = (b.shrc(step, 1), b.andc(step, 1));
        let (chunk, within) = (b.shlc(chunk, 9), b.shlc(within, 3));
        let at = b.add(at, chunk);
        let at = b.add(at, within);
        let half = b.shlc(self.half, 1);
        let at = b.add(at, half);
        let p = self.codes_at(b, at);
        let second = b.atc(p, 4);
        let mut out = vec![];
        for p in [p, second] {
            let pair = b.load_const(p, I16);
            let pair = b.zext(pair, I32);
            out.extend([b.andc(pair, 255), b.shrc(pair, 8)]);
        }
        out
    }

    /// Four e4m3 numbers.
    fn floats(&self, b: &mut Builder, at: V, step: V) -> V {
        let (chunk, within) = (b.shrc(step, 1), b.andc(step, 1));
        let (chunk, within) = (b.shlc(chunk, 9), b.shlc(within, 3));
        let at = b.add(at, chunk);
        let at = b.add(at, within);
        let half = b.shlc(self.half, 2);
        let at = b.add(at, half);
        let p = self.codes_at(b, at);
        b.load_const(p, I32)
    }

    /// Codes of 4 bits, as `i32`.
    fn nibbles(&self, b: &mut Builder, at: V, step: V) -> Vec<V> {
        let word = b.shlc(step, 2);
        let at = b.add(at, word);
        let p = self.codes_at(b, at);
        let word = b.load_const(p, I32);
        let skip = b.shlc(self.half, 2);
        let word = b.op(I32, format!("arith.shrui {word}, {skip} : i32"));
        [0, 16, 8, 24]
            .into_iter()
            .map(|shift| {
                let code = b.shrc(word, shift);
                b.andc(code, 15)
            })
            .collect()
    }

    /// The scale and the minimum of columns `4·quad..4·quad + 4`.
    fn factors(&self, b: &mut Builder, quad: V) -> (V, Option<V>) {
        let scales = self.format.packed_encoding().scales;
        let Some(of) = scales[0] else { return (b.f32(1.0), None) };
        let p = self.factor_at(b, of, quad, 0);
        let mut scale = codes::factor(b, of.kind, |b, ty| b.load_const(p, ty));
        let mut min = of.minimum.then(|| {
            let p = b.atc(p, self.block.mins as i64);
            codes::factor(b, of.kind, |b, ty| b.load_const(p, ty))
        });
        if let Some(above) = scales[1] {
            let p = self.factor_at(b, above, quad, self.block.above);
            let x = codes::factor(b, above.kind, |b, ty| b.load_const(p, ty));
            scale = b.fmul(scale, x);
            if let (Some(m), true) = (min, above.minimum) {
                let p = b.atc(p, self.block.above_mins as i64);
                let x = codes::factor(b, above.kind, |b, ty| b.load_const(p, ty));
                min = Some(b.fmul(m, x));
            }
        }
        (scale, min)
    }

    /// Where the scale of columns `4·quad..4·quad + 4` is, of those that begin at byte `first` of
    /// the block.
    fn factor_at(&self, b: &mut Builder, of: Scale, quad: V, first: usize) -> V {
        let index = match of.per {
            Per::Group(group) => {
                let group = b.divc(quad, i64::from(group / 4));
                let index = b.shlc(group, BLOCK.trailing_zeros().into());
                b.add(index, self.row)
            }
            Per::Row | Per::TokenHead => self.row,
        };
        let offset = b.shlc(index, of.kind.bytes().trailing_zeros().into());
        let base = b.atc(self.base, first as i64);
        b.at(base, offset)
    }
}

const _: () = assert!(FRAGMENT_K == 64 && BLOCK == 16);
