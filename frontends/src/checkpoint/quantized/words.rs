//! Integers of 1 to 8 bits in 32-bit words, with a scale and a zero for each group of columns:
//! `scale·(u − zero)`. Methods differ in the place of a code.

use super::tensors::is_f16;
use super::{COMPUTED, Part, grouped_type, unit};
use crate::checkpoint::safetensors::TensorInfo;
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout};
use llmcc_ir::quant::{CodedRow, Elem};
use std::ops::Range;
use std::sync::Arc;

/// Where AWQ puts each eighth of a word's outputs.
const AWQ_PLACE: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];
/// Columns of a matrix whose order is kept, as numbers that f32 holds.
const MOST_COLUMNS: usize = 1 << 24;

/// Where codes, zeros and scales are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordOrder {
    /// GPTQ: codes `[in, out]`, an output's codes being a stream of bits along the inputs; zeros
    /// `[groups, out]`, a stream along the outputs, stored less `less`; scales `[groups, out]`.
    Inputs {
        /// 1 in the first version of the format.
        less: u32,
    },
    /// AWQ: the same, in words of eight adjacent outputs in an order of their own.
    Awq,
    /// compressed-tensors: codes `[out, in]` along the inputs; zeros `[out, groups]` along the
    /// outputs; scales `[out, groups]`.
    Columns {
        /// A stream of bits, as of version 0.13; before, words of whole codes. The same but of 3, 5, 6
        /// and 7 bits.
        dense: bool,
    },
    /// AWQ's GEMV: codes as those; zeros `[out, words]` in words along the groups; scales
    /// `[out, 8·words]`.
    Gemv {
        /// Words of a row's zeros.
        words: usize,
    },
    /// AWQ's GEMV-fast: codes of four rows and 64 columns together, in an order of their own; minima
    /// (`−scale·zero`, f16) in place of zeros and scales `[groups and padding, out]`.
    GemvFast,
}

/// Where GEMV-fast puts a code, as the number of a nibble: `pack_intweight` of AutoAWQ. Within 32
/// columns, `8a + 2b + c` is at `8b + 4c + a`; four rows follow each other, 64 columns at a time.
fn fast_place(columns: usize, row: usize, col: usize) -> usize {
    let (a, b, c) = (col % 32 / 8, col % 8 / 2, col % 2);
    let col = col / 32 * 32 + 8 * b + 4 * c + a;
    (row / 4 * columns + col / 64 * 64) * 4 + row % 4 * 64 + col % 64
}

/// The tensors of a matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    pub order: WordOrder,
    /// Bits of a code.
    pub bits: usize,
    pub codes: Part,
    /// None: all are in the middle of the codes.
    pub zeros: Option<Part>,
    pub scales: Part,
    /// There is one scale, and one zero.
    pub one: bool,
}

/// Sizes of a matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub n: usize,
    pub k: usize,
    pub groups: usize,
    /// Columns of a group, where they do not follow from the number of groups.
    pub group: Option<usize>,
}

impl Words {
    /// The middle of the codes.
    fn middle(&self) -> u32 {
        1 << (self.bits - 1)
    }

    /// Code `i` of a stream of bits.
    fn of_stream(&self, i: usize, word: impl Fn(usize) -> u32) -> u32 {
        let (at, shift) = (i * self.bits / 32, i * self.bits % 32);
        let low = word(at) >> shift;
        // Codes of 3 bits cross words.
        let high = if shift + self.bits > 32 { word(at + 1) << (32 - shift) } else { 0 };
        self.masked(low | high)
    }

    /// The code at a place of a word.
    fn of_word(&self, word: u32, place: usize) -> u32 {
        self.masked(word >> (place * self.bits))
    }

    fn masked(&self, bits: u32) -> u32 {
        bits & ((1 << self.bits) - 1)
    }

    fn code(&self, shards: &[Shard], s: &Sizes, row: usize, col: usize) -> u32 {
        let (codes, per) = (&self.codes, 32 / self.bits);
        match self.order {
            WordOrder::Inputs { .. } => self.of_stream(col, |w| codes.word(shards, w * s.n + row)),
            WordOrder::Awq => self.of_word(codes.word(shards, col * (s.n / per) + row / per), AWQ_PLACE[row % 8]),
            WordOrder::Columns { dense: true } => {
                let first = row * (s.k * self.bits).div_ceil(32);
                self.of_stream(col, |w| codes.word(shards, first + w))
            }
            WordOrder::Columns { dense: false } | WordOrder::Gemv { .. } => {
                self.of_word(codes.word(shards, row * s.k.div_ceil(per) + col / per), col % per)
            }
            WordOrder::GemvFast => {
                let place = fast_place(s.k, row, col);
                self.of_word(codes.word(shards, place / 8), place % 8)
            }
        }
    }

    /// Writes the codes of a row, where words hold whole ones of one row; else `false`.
    fn row(&self, shards: &[Shard], s: &Sizes, row: usize, out: &mut [u8]) -> bool {
        if !matches!(self.order, WordOrder::Columns { .. } | WordOrder::Gemv { .. })
            || !32usize.is_multiple_of(self.bits)
        {
            return false;
        }
        let per = 32 / self.bits;
        let size = s.k.div_ceil(per) * 4;
        let words = self.codes.bytes(shards).get(row * size..(row + 1) * size).unwrap_or_default();
        for (codes, word) in out.chunks_mut(per).zip(words.as_chunks::<4>().0) {
            let word = u32::from_le_bytes(*word);
            codes.iter_mut().enumerate().for_each(|(place, code)| *code = self.of_word(word, place) as u8);
        }
        true
    }

    /// The addend to all numbers of a group.
    fn minimum(&self, shards: &[Shard], s: &Sizes, row: usize, group: usize) -> f32 {
        match (self.order, &self.zeros) {
            (WordOrder::GemvFast, Some(minima)) => minima.float(shards, group * s.n + row),
            // Exact: 11 bits and at most 9.
            _ => -self.scale(shards, s, row, group) * self.zero(shards, s, row, group) as f32,
        }
    }

    fn zero(&self, shards: &[Shard], s: &Sizes, row: usize, group: usize) -> u32 {
        let Some(zeros) = &self.zeros else { return self.middle() };
        if self.one {
            // With 8 bits, from the middle.
            let zero = zeros.bytes(shards).first().map_or(0, |u| i32::from(*u as i8));
            return self.middle().saturating_add_signed(zero);
        }
        let per = 32 / self.bits;
        match self.order {
            WordOrder::Inputs { less } => {
                let across = s.n * self.bits / 32;
                let word = |w: usize| zeros.word(shards, group * across + w);
                // The amount subtracted from whole words is added again: a zero of 0 borrows from
                // the next one.
                match self.bits {
                    3 | 5 | 6 | 7 => self.masked(self.of_stream(row, word) + less),
                    bits => self.of_stream(row, |w| word(w).wrapping_add(less * ones(bits))),
                }
            }
            WordOrder::Awq => self.of_word(zeros.word(shards, group * (s.n / per) + row / per), AWQ_PLACE[row % 8]),
            WordOrder::Columns { dense: true } => self.of_stream(row, |w| zeros.word(shards, w * s.groups + group)),
            WordOrder::Columns { dense: false } => {
                self.of_word(zeros.word(shards, row / per * s.groups + group), row % per)
            }
            WordOrder::Gemv { words } => self.of_word(zeros.word(shards, row * words + group / per), group % per),
            // Its zeros are part of its minima.
            WordOrder::GemvFast => 0,
        }
    }

    fn scale(&self, shards: &[Shard], s: &Sizes, row: usize, group: usize) -> f32 {
        let place = match self.order {
            _ if self.one => 0,
            WordOrder::Columns { .. } => row * s.groups + group,
            WordOrder::Gemv { words } => row * words * 8 + group,
            WordOrder::Inputs { .. } | WordOrder::Awq | WordOrder::GemvFast => group * s.n + row,
        };
        self.scales.float(shards, place)
    }

    /// Whether all zeros are the middle of the codes.
    fn all_middle(&self, shards: &[Shard], s: &Sizes) -> bool {
        let mut all = (0..s.groups).flat_map(|g| (0..s.n).map(move |row| (row, g)));
        self.zeros.is_none() || all.all(|(row, g)| self.zero(shards, s, row, g) == self.middle())
    }

    /// Groups up to the last that has a scale other than 0, of the `room` for them.
    pub fn groups_used(&self, shards: &[Shard], s: &Sizes, room: usize) -> usize {
        let used = |group: &usize| (0..s.n).any(|row| self.scale(shards, s, row, *group) != 0.0);
        (0..room).rev().find(used).map_or(0, |group| group + 1)
    }

    /// Checks zeros against the settings, where they are symmetric or unknown. Zeros of symmetric
    /// codes are the middle. The two versions of GPTQ's format store that in two ways, and files
    /// say the one and have the other: the zeros that are the middle in the other way are read so,
    /// which `true` says. (Engines that take `sym` at its word do the same; asymmetric codes whose
    /// zeros are all one beside the middle do not occur.)
    ///
    /// # Errors
    /// Symmetric codes have other zeros, and engines differ in which of the two they believe.
    pub fn settle(&mut self, shards: &[Shard], s: &Sizes, symmetric: Option<bool>) -> Result<bool, String> {
        // Its zeros are part of its minima.
        if symmetric == Some(false) || self.order == WordOrder::GemvFast || self.all_middle(shards, s) {
            return Ok(false);
        }
        if let WordOrder::Inputs { less } = self.order {
            let other = Words { order: WordOrder::Inputs { less: 1 - less.min(1) }, ..*self };
            if other.all_middle(shards, s) {
                *self = other;
                return Ok(true);
            }
        }
        match symmetric {
            Some(true) => Err(format!(
                "the settings say that its codes are symmetric, but some zeros in `qzeros` differ from the middle, {}",
                self.middle()
            )),
            Some(false) | None => Ok(false),
        }
    }

    /// The format that holds all numbers of codes in groups of `unit` columns exactly: of two that
    /// do the faster one.
    fn elem(&self, shards: &[Shard], s: &Sizes) -> Elem {
        if self.order == WordOrder::GemvFast {
            return Elem::W4A;
        }
        let middle = self.all_middle(shards, s);
        let half = || match self.order {
            // Other scales than the groups' may stand beside them.
            WordOrder::Gemv { .. } => (0..s.groups).all(|g| (0..s.n).all(|row| is_f16(self.scale(shards, s, row, g)))),
            _ => self.scales.fits_f16(shards, if self.one { 1 } else { s.groups * s.n }),
        };
        match self.bits {
            1 | 2 => Elem::named("w2z"),
            3 => Elem::named("w3z"),
            4 if middle && half() => Elem::W4,
            4 => Elem::named("w4z"),
            8 if middle && half() => Elem::W8,
            _ => Elem::named("w8z"),
        }
    }
}

/// A word whose codes are all 1.
fn ones(bits: usize) -> u32 {
    (0..32).step_by(bits).fold(0, |word, shift| word | 1 << shift)
}

/// The matrix of the tensors; `index` has the group of each column. Else their fault.
pub(super) fn grouped(shards: &[Shard], words: Words, shape: Sizes, index: Option<Part>) -> Result<Entry, String> {
    let Sizes { n, k, groups, .. } = shape;
    let group = match shape.group {
        Some(group) => group,
        None if groups > 0 && k.is_multiple_of(groups) => k / groups,
        None => return Err(format!("{k} columns are not {groups} groups")),
    };
    if group == 0 || k.div_ceil(group) > groups {
        return Err(format!("{k} columns in groups of {group} are more than {groups} groups"));
    }
    let unit = unit(group).filter(|unit| k.is_multiple_of(*unit));
    let of = |i: usize| index.map_or(i / group, |p| p.word(shards, i) as usize);
    if let Some(i) = (0..k).find(|i| of(*i) >= groups) {
        return Err(format!("column {i} is in group {}, but there are {groups} groups", of(i)));
    }
    let order = match (0..k).all(|i| of(i) == i / group) {
        true => None,
        false => Some(sorted(k, group, of)),
    };
    let dtype = match (&order, unit) {
        (Some(None), _) | (_, None) => Some(&COMPUTED),
        (_, Some(unit)) => grouped_type(words.elem(shards, &shape), unit),
    };
    let dtype = dtype.ok_or_else(|| format!("there is no format of {} bits in groups of {group}", words.bits))?;
    // Decoded, columns are where the file has them.
    let order = order.flatten().filter(|_| unit.is_some()).map(Arc::new);
    let unit = unit.unwrap_or(group);
    let info = TensorInfo { dtype, shape: vec![n, k], bytes: words.codes.from..words.codes.to };
    let symmetric = dtype.dtype.and_then(|t| t.coded()).is_some_and(|f| !f.encoding().has_minimum());
    let layout = Grouped { words, shape, index, group, unit, symmetric, order: order.clone() };
    Ok(Entry { layout: Some(Arc::new(layout)), order, ..Entry::plain(words.codes.shard, info) })
}

/// The columns by their groups, where each group but the last has as many as a group has.
fn sorted(k: usize, group: usize, of: impl Fn(usize) -> usize) -> Option<Vec<u32>> {
    let mut columns: Vec<u32> = (0..u32::try_from(k).ok().filter(|_| k < MOST_COLUMNS)?).collect();
    columns.sort_by_key(|i| of(*i as usize));
    let whole = columns.iter().enumerate().all(|(j, i)| of(*i as usize) == j / group);
    whole.then_some(columns)
}

#[derive(Debug)]
struct Grouped {
    words: Words,
    shape: Sizes,
    /// The group of each column.
    index: Option<Part>,
    /// Columns of a group in the checkpoint, and of one of those that it is stored as.
    group: usize,
    unit: usize,
    /// The format has no minima.
    symmetric: bool,
    /// The columns as they are stored.
    order: Option<Arc<Vec<u32>>>,
}

impl Layout for Grouped {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        vec![self.words.codes.place()]
    }

    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow) {
        let code = |col: usize| self.words.code(shards, &self.shape, row, col) as u8;
        match &self.order {
            None if self.words.row(shards, &self.shape, row, &mut out.codes) => {}
            None => out.codes.iter_mut().enumerate().for_each(|(col, c)| *c = code(col)),
            Some(order) => out.codes.iter_mut().zip(&**order).for_each(|(c, col)| *c = code(*col as usize)),
        }
        for (g, f) in out.factors.iter_mut().enumerate() {
            let group = g * self.unit / self.group;
            let scale = self.words.scale(shards, &self.shape, row, group);
            let min = self.words.minimum(shards, &self.shape, row, group);
            *f = (scale, if self.symmetric { 0.0 } else { min });
        }
    }

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        let (words, shape) = (&self.words, &self.shape);
        for (col, v) in out.iter_mut().enumerate().take(shape.k) {
            let group = self.index.map_or(col / self.group, |p| p.word(shards, col) as usize);
            let (code, scale) = (words.code(shards, shape, row, col), words.scale(shards, shape, row, group));
            *v = match words.order {
                WordOrder::GemvFast => scale.mul_add(code as f32, words.minimum(shards, shape, row, group)),
                // A whole number, and so exact.
                _ => scale * (code as i32 - words.zero(shards, shape, row, group) as i32) as f32,
            };
        }
    }
}
