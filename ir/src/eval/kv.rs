//! Key/value state of one attention layer.

use super::rows::{amax, code_scale};
use super::{Batch, EvalError, selected};
use crate::graph::F32;
use crate::kv::{KvDType, KvSpec};
use half::{bf16, f16};
use std::ops::Range;

/// Keys and values of one attention layer by sequence and position, as stored: after rounding to
/// the element type.
#[derive(Clone, Debug, PartialEq)]
pub struct KvState {
    /// Shape and element type.
    pub spec: KvSpec,
    keys: Half,
    values: Half,
}

/// Keys, or values: `[sequence][position]`.
#[derive(Clone, Debug, PartialEq, Default)]
struct Half(Vec<Vec<Option<KvRow>>>);

/// One token's keys (or values) as stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KvRow {
    /// Stored elements of all heads: values, or codes.
    pub(super) data: Vec<f64>,
    /// Scales of codes, one per head; else empty.
    pub(super) scales: Vec<f32>,
}

/// Which half of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Keys,
    Values,
}

impl KvState {
    /// A state without tokens.
    pub fn new(spec: KvSpec) -> KvState {
        KvState { spec, keys: Half::default(), values: Half::default() }
    }

    /// Stores a token's keys, `[kv_heads · own_dim]`, rounding them.
    ///
    /// f16 and bf16 round once from f64; codes are of f32, per head, as
    /// [`quantize_q8_row`](super::quantize_q8_row) does a group; f32 keeps the f64 it is given (the
    /// kernel evaluator rounds before it stores). Tokens that have no row of their own
    /// ([`KvSpec::every`]) store nothing.
    pub fn store_key(&mut self, seq: usize, position: usize, x: &[f64]) {
        self.put(Part::Keys, seq, position, KvRow::round(&self.spec, true, x));
    }

    /// Stores a token's values, `[kv_heads · value_dim]`; see [`KvState::store_key`].
    pub fn store_value(&mut self, seq: usize, position: usize, x: &[f64]) {
        if self.spec.own_dim() == 0 {
            self.put(Part::Keys, seq, position, KvRow { data: vec![], scales: vec![] });
        }
        self.put(Part::Values, seq, position, KvRow::round(&self.spec, false, x));
    }

    /// The key of one KV head at a position, as stored.
    ///
    /// # Errors
    /// [`EvalError::MissingKv`] if none were stored.
    pub fn key(&self, seq: usize, position: usize, head: usize) -> Result<Vec<f64>, EvalError> {
        self.head(Part::Keys, seq, position, head).map(decode)
    }

    /// Values of one KV head at a position.
    ///
    /// # Errors
    /// [`EvalError::MissingKv`] if none were stored.
    pub fn value(&self, seq: usize, position: usize, head: usize) -> Result<Vec<f64>, EvalError> {
        self.head(Part::Values, seq, position, head).map(decode)
    }

    /// Sequences that have anything stored: one more than the largest sequence number.
    pub fn sequences(&self) -> usize {
        self.keys.0.len().max(self.values.0.len())
    }

    /// One more than the largest position stored for a sequence.
    pub fn len(&self, seq: usize) -> usize {
        let of = |half: &Half| half.0.get(seq).map_or(0, Vec::len);
        of(&self.keys).max(of(&self.values))
    }

    /// True if a sequence has nothing stored.
    pub fn is_empty(&self, seq: usize) -> bool {
        self.len(seq) == 0
    }

    /// Attention of query head `h` at `position` over the positions `seen` of `seq`, with the
    /// largest score and the sum of the weights relative to it. `q`: `[key_dim]`.
    fn attend(
        &self,
        (seq, position, seen): (usize, usize, &[usize]),
        q: &[f64],
        h: usize,
        of: &Attend<'_>,
    ) -> Result<(Vec<f64>, [f64; 2]), EvalError> {
        let head = h / (of.heads / self.spec.kv_heads);
        let mut scores = Vec::with_capacity(seen.len() + 1);
        for p in seen.iter().copied() {
            let (own, rest) = q.split_at(self.spec.own_dim());
            let mut product = 0.0;
            if !own.is_empty() {
                let (key, step) = self.head(Part::Keys, seq, p, head)?;
                product = step * super::scalar::dot(own, key) + of.near(h, position, p, q, (key, step));
            }
            if self.spec.latent {
                let (value, step) = self.head(Part::Values, seq, p, head)?;
                product += step * super::scalar::dot(rest, value);
            }
            let score = f64::from(of.scale.get()) * product;
            let score = of.softcap.map_or(score, |cap| f64::from(cap.get()) * (score / f64::from(cap.get())).tanh());
            scores.push(score + of.bias(h, position, p));
        }
        // The sink is the last score, whose value is zero.
        scores.extend(of.sinks.map(|sinks| sinks[h]));
        if scores.is_empty() {
            return Ok((vec![0.0; self.spec.value_dim], [f64::from(f32::MIN), 0.0]));
        }
        let max = scores.iter().fold(f64::NEG_INFINITY, |m, s| if s.is_nan() { *s } else { m.max(*s) });
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let mut out = vec![0.0; self.spec.value_dim];
        for (p, w) in seen.iter().copied().zip(&weights) {
            let (value, step) = self.head(Part::Values, seq, p, head)?;
            for (o, v) in out.iter_mut().zip(value) {
                *o += w / sum * step * v;
            }
        }
        Ok((out, [max, sum]))
    }

    fn half(&self, part: Part) -> &Half {
        match part {
            Part::Keys => &self.keys,
            Part::Values => &self.values,
        }
    }

    pub(super) fn get(&self, part: Part, seq: usize, position: usize) -> Option<&KvRow> {
        self.half(part).0.get(seq)?.get(position)?.as_ref()
    }

    pub(super) fn put(&mut self, part: Part, seq: usize, position: usize, row: KvRow) {
        if self.spec.row(position).is_none() {
            return;
        }
        let half = match part {
            Part::Keys => &mut self.keys,
            Part::Values => &mut self.values,
        };
        if half.0.len() <= seq {
            half.0.resize(seq + 1, vec![]);
        }
        let rows = &mut half.0[seq];
        if rows.len() <= position {
            rows.resize(position + 1, None);
        }
        rows[position] = Some(row);
    }

    /// Numbers of one head as stored, and their factor.
    fn head(&self, part: Part, seq: usize, position: usize, head: usize) -> Result<(&[f64], f64), EvalError> {
        let row = self.get(part, seq, position).ok_or(EvalError::MissingKv { seq, position })?;
        let d = self.spec.stored_dim(part == Part::Keys);
        Ok((&row.data[head * d..][..d], row.scales.get(head).map_or(1.0, |s| f64::from(*s))))
    }
}

fn decode((data, step): (&[f64], f64)) -> Vec<f64> {
    data.iter().map(|v| step * v).collect()
}

impl KvRow {
    pub(super) fn round(spec: &KvSpec, key: bool, x: &[f64]) -> KvRow {
        let each = |f: fn(f64) -> f64| KvRow { data: x.iter().map(|v| f(*v)).collect(), scales: vec![] };
        match spec.dtype {
            KvDType::F32 => each(|v| v),
            KvDType::F16 => each(|v| f16::from_f64(v).to_f64()),
            KvDType::Bf16 => each(|v| bf16::from_f64(v).to_f64()),
            KvDType::Int8 | KvDType::Int4 => {
                let most = spec.dtype.most().unwrap_or(1) as f32;
                let mut row = KvRow { data: vec![], scales: vec![] };
                for head in x.chunks(spec.stored_dim(key)) {
                    let head: Vec<f32> = head.iter().map(|v| *v as f32).collect();
                    let (scale, inverse) = code_scale(amax(&head), most);
                    row.scales.push(scale);
                    row.data.extend(
                        head.iter()
                            .map(|v| if inverse > 0.0 { f64::from((v * inverse).round_ties_even()) } else { 0.0 }),
                    );
                }
                row
            }
        }
    }
}

/// The inputs of attention beside queries and keys: see `attention` of the graph level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attend<'a> {
    /// Query heads.
    pub heads: usize,
    pub scale: F32,
    pub softcap: Option<F32>,
    /// `[heads]`
    pub sinks: Option<&'a [f64]>,
    /// As many for each head as [`ScoreBias`] says.
    pub bias: Option<&'a [f64]>,
    /// Keys and queries of distances, as `relative_attention` has them.
    pub relative: Option<[&'a [f64]; 2]>,
    pub causal: bool,
    /// The window is a chunk.
    pub chunked: bool,
    /// Maxima and sums come after the values.
    pub sums: bool,
    /// For each token the numbers of the rows that it sees, out of those that it may.
    pub selected: Option<&'a [Vec<f64>]>,
    /// Each KV head has as many of these numbers of its own.
    pub by_head: bool,
}

impl Attend<'_> {
    /// The usual softmax.
    pub fn plain(heads: usize, scale: F32) -> Attend<'static> {
        let (causal, chunked, sums, by_head) = (true, false, false, false);
        let (softcap, sinks, bias, relative, selected) = (None, None, None, None, None);
        Attend { heads, scale, softcap, sinks, bias, relative, causal, chunked, sums, selected, by_head }
    }

    /// Products with the key and the query of the distance, in head `h` of `q` and a key that is stored
    /// over `step`.
    fn near(&self, h: usize, position: usize, at: usize, q: &[f64], (key, step): (&[f64], f64)) -> f64 {
        let Some([keys, queries]) = self.relative else { return 0.0 };
        let width = keys.len() / (self.heads * q.len());
        let reach = (width / 2) as f64;
        let distance = (reach + (at as f64 - position as f64).clamp(-reach, reach)) as usize;
        let of = |table: &[f64], d: usize| table[(h * q.len() + d) * width + distance];
        let each = q.iter().zip(key).enumerate();
        each.map(|(d, (q, k))| q * of(keys, d) + of(queries, d) * step * k).sum()
    }

    /// Bias of the score of the key at `key` in head `h`.
    fn bias(&self, h: usize, position: usize, key: usize) -> f64 {
        let Some(bias) = self.bias else { return 0.0 };
        let width = bias.len() / self.heads;
        let (of_head, distance) = (&bias[h * width..][..width], key as f64 - position as f64);
        match ScoreBias::of(bias.len(), self.heads) {
            Ok(ScoreBias::Slopes) => -of_head[0] * distance.abs(),
            Ok(ScoreBias::Distances(reach)) => {
                let reach = reach as f64;
                of_head[(reach + distance.clamp(-reach, reach)) as usize]
            }
            Ok(ScoreBias::Positions(count)) => of_head[key.min(count - 1)],
            Err(_) => f64::NAN,
        }
    }

    /// Positions that a token sees, of `end` if it looks both ways.
    fn sees(&self, kv: &KvSpec, position: usize, end: Option<usize>) -> Range<usize> {
        match kv.window {
            Some(chunk) if self.chunked => position / chunk.max(1) * chunk..position + 1,
            _ => kv.sees(position, end),
        }
    }
}

/// Index of a score's bias, told by the count of numbers per head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreBias {
    /// One: `−slope` times the distance.
    Slopes,
    /// `2r + 1`: the number of the distance, which is at most this `r` either way.
    Distances(usize),
    /// An even count: a number per position of the key; the last one is for all positions beyond.
    Positions(usize),
}

impl ScoreBias {
    /// The meaning of `len` numbers of so many heads.
    ///
    /// # Errors
    /// A message, if they have none.
    pub fn of(len: usize, heads: usize) -> Result<ScoreBias, String> {
        match len.checked_div(heads).filter(|width| *width > 0 && width * heads == len) {
            Some(1) => Ok(ScoreBias::Slopes),
            Some(width) if width % 2 == 1 => Ok(ScoreBias::Distances(width / 2)),
            Some(width) => Ok(ScoreBias::Positions(width)),
            None => Err(format!("a bias of {len} numbers does not divide among {heads} heads")),
        }
    }

    /// Numbers of each head.
    pub fn width(self) -> usize {
        match self {
            ScoreBias::Slopes => 1,
            ScoreBias::Distances(reach) => 2 * reach + 1,
            ScoreBias::Positions(count) => count,
        }
    }
}

/// How far the `len` numbers go that distances have as keys, or as queries, of so many columns.
///
/// # Errors
/// Says in words why they do not.
pub fn relative_reach(len: usize, columns: usize) -> Result<usize, String> {
    match len.checked_div(columns).filter(|width| width % 2 == 1 && width * columns == len) {
        Some(width) => Ok(width / 2),
        None => Err(format!("{len} numbers do not give an odd number of distances for each of {columns} columns")),
    }
}

/// Attention of each token's queries `[heads · key_dim]` over its sequence, as at the graph level:
/// `[heads · value_dim]`.
pub(crate) fn attention(
    kv: &KvState,
    batch: &Batch,
    q: &[Vec<f64>],
    of: &Attend<'_>,
) -> Result<Vec<Vec<f64>>, EvalError> {
    let (d, groups, heads) = (kv.spec.key_dim, kv.spec.kv_heads, of.heads);
    let fits = d > 0 && groups > 0 && heads > 0 && heads.is_multiple_of(groups);
    let fits = fits && of.sinks.is_none_or(|s| s.len() == heads);
    let fits = fits && of.bias.is_none_or(|b| ScoreBias::of(b.len(), heads).is_ok());
    let fits = fits && of.selected.is_none_or(|s| s.len() == q.len());
    let whole = |table: &[f64]| relative_reach(table.len(), heads * d).is_ok();
    let fits = fits && of.relative.is_none_or(|[k, q]| k.len() == q.len() && whole(k) && !kv.spec.latent);
    if !fits || q.iter().any(|r| r.len() != heads * d) || q.len() != batch.seqs.len() {
        return Err(EvalError::malformed("", format!("attention of {heads} heads over {}", kv.spec)));
    }
    batch.check()?;
    let mut out = vec![];
    for (i, q) in q.iter().enumerate() {
        let end = (!of.causal).then(|| batch.sees.get(i).copied().unwrap_or_else(|| kv.len(batch.seqs[i])));
        let position = batch.positions[i] as usize;
        let seen = |group: usize| -> Vec<usize> {
            let own = |all: &[f64]| all[group * (all.len() / groups)..][..all.len() / groups].to_vec();
            match of.selected {
                Some(all) if of.by_head => selected(kv, position, &own(&all[i])),
                Some(all) => selected(kv, position, &all[i]),
                None => of.sees(&kv.spec, position, end).filter(|j| kv.spec.row(*j).is_some()).collect(),
            }
        };
        let seen: Vec<Vec<usize>> = (0..groups).map(seen).collect();
        let (mut row, mut sums) = (vec![], [vec![], vec![]]);
        for (h, q) in q.chunks(d).enumerate() {
            let (values, [most, sum]) = kv.attend((batch.seqs[i], position, &seen[h / (heads / groups)]), q, h, of)?;
            row.extend(values);
            sums[0].push(most);
            sums[1].push(sum);
        }
        if of.sums {
            row.extend(sums.concat());
        }
        out.push(row);
    }
    Ok(out)
}

/// Queries of latent attention: for each head its part for the stored keys, then its part for the
/// values.
pub(crate) fn whole_queries(kv: &KvSpec, heads: usize, own: &[f64], latent: &[f64]) -> Vec<f64> {
    let (of_key, of_value) = (kv.own_dim().max(1), kv.value_dim.max(1));
    let both = own.chunks(of_key).zip(latent.chunks(of_value)).take(heads);
    both.flat_map(|(own, latent)| own.iter().chain(latent)).copied().collect()
}
