//! Addends of layers by the last tokens: rows of a table by hashes of the last two tokens, of the
//! last three and so on, gated stream by stream and convolved over time. Tokens before the last end
//! of a text do not count.

use super::streams::Streams;
use crate::arch::blocks::attention::scaled;
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::recurrent::{dilated, over_time, split_each};
use crate::hashing::{factors, next_prime};
use llmcc_ir::graph::Hashes;

/// A part of the table, `{e}` its number.
const SHARD: Part = Part("ngrams.shard");
/// The table where it is stored as one.
const WHOLE: Part = Part("ngrams.table");
const KEYS: Part = Part("ngrams.keys");
const VALUES: Part = Part("ngrams.values");
const KEY_NORM: Part = Part("ngrams.key_norm");
const QUERY_NORM: Part = Part("ngrams.query_norm");
const CONV_NORM: Part = Part("ngrams.conv_norm");
const CONV: Part = Part("ngrams.conv");

pub(super) const NGRAMS: Table = names! {
    "model.layers.{}." {
        SHARD => "ple.ple_embedding.ngram_embedding.shard_{e}", WHOLE => "ple.ple_embedding.ngram_embedding",
        KEYS => "ple.key_proj", VALUES => "ple.value_proj", KEY_NORM => "ple.norm_key",
        QUERY_NORM => "ple.norm_query", CONV_NORM => "ple.norm_conv", CONV => "ple.conv1d",
    }
    "" {
        // Files that have one table only, without the number of its layer.
        WHOLE => "model.ngram_embedding",
    }
};

pub(super) const FIELDS: &[Field] = fields! {
    ple_layer_ids, ple_embed_dim, ple_conv_kernel_size, ngram_size, heads_per_ngram, ngram_vocab_size_base,
    make_ngram_vocab_size_divisible_by, seed, split_ngram_parts,
};

/// Ids up to here are exact as numbers of f32.
const MOST_IDS: usize = 1 << 24;

/// Addend by the last tokens.
#[derive(Clone, Debug)]
pub(super) struct NGram {
    /// Tokens of the longest n-gram.
    size: usize,
    /// The token before the first, which also ends a text.
    eos: u32,
    /// Columns of all rows of a token.
    width: usize,
    /// Tokens that the convolution sees, so many apart as an n-gram has.
    conv: usize,
    /// Parts that tables are stored in.
    shards: usize,
    /// The layers, each with its table.
    layers: Vec<(usize, NgramRows)>,
}

/// The table of a layer.
#[derive(Clone, Debug)]
struct NgramRows {
    factors: Vec<usize>,
    sizes: Vec<usize>,
    /// NgramRows with those that fill up.
    padded: usize,
}

/// Reads its fields; `linear` says which layers may have it. None if no layer has it.
pub(super) fn read(f: &Fields, facts: &Facts, linear: &[bool]) -> Result<Option<NGram>, ConfigError> {
    const LAYERS: &str = "ple_layer_ids";
    let ids = f.numbers(LAYERS).unwrap_or_default();
    if ids.is_empty() {
        return Ok(None);
    }
    let mut layers = (0..linear.len()).filter(|i| ids.contains(&((i + 1) as f64))).peekable();
    let fits = |id: &f64| id.fract() == 0.0 && (1.0..=linear.len() as f64).contains(id) && linear[*id as usize - 1];
    if layers.peek().is_none() || !ids.iter().all(fits) {
        let help = "this architecture expects numbers of layers with linear attention (by `layer_types` or \
            `full_attention_interval`), from 1 to `num_hidden_layers`";
        return Err(f.unsupported(LAYERS, format!("{ids:?}"), help.into()));
    }
    let Some(eos) = facts.eos.first().copied() else { return Err(f.missing("eos_token_id")) };
    if facts.vocab > MOST_IDS {
        let help = format!("with `{LAYERS}` this architecture supports at most {MOST_IDS} tokens");
        return Err(f.unsupported("vocab_size", facts.vocab.to_string(), help));
    }
    let (size, width) = (f.size("ngram_size").or(3), f.size("ple_embed_dim").or(facts.hidden));
    if size < 2 {
        return Err(f.invalid("ngram_size", &size, "at least 2".into()));
    }
    let heads = (size - 1) * f.size("heads_per_ngram").or(8);
    if !width.is_multiple_of(heads) {
        let help = format!("this architecture has rows of a {heads}th of it, by `ngram_size` and `heads_per_ngram`");
        return Err(f.unsupported("ple_embed_dim", width.to_string(), help));
    }
    let conv = common::conv_width(f, "ple_conv_kernel_size", 4)?;
    let base = f.size("ngram_vocab_size_base").or(20_000_000);
    let multiple = f.size("make_ngram_vocab_size_divisible_by").or(128);
    let seed = f.count("seed").unwrap_or(1234) as u64;
    let mut prime = base - 1;
    let mut of_layer = |(number, layer)| {
        let mut next = || {
            prime = next_prime(prime);
            prime
        };
        let sizes: Vec<usize> = (0..heads).map(|_| next()).collect();
        let padded = sizes.iter().sum::<usize>().next_multiple_of(multiple);
        if padded > Hashes::MOST {
            let help = format!("this architecture supports tables of at most {} rows, not of {padded}", Hashes::MOST);
            return Err(f.unsupported("ngram_vocab_size_base", base.to_string(), help));
        }
        Ok((layer, NgramRows { factors: factors(facts.vocab, size, number, seed), sizes, padded }))
    };
    let layers = layers.enumerate().map(&mut of_layer).collect::<Result<Vec<_>, ConfigError>>()?;
    let shards = f.size("split_ngram_parts").or(512);
    Ok(Some(NGram { size, eos, width, conv, shards, layers }))
}

impl NGram {
    /// The integers that files have beside the tables.
    pub(super) fn integers(&self, tensor: &str) -> Option<Vec<i64>> {
        let (at, name) = tensor.split_once(".ple.ple_embedding.")?;
        let layer: usize = at.rsplit_once('.')?.1.parse().ok()?;
        let (_, rows) = self.layers.iter().find(|(of, _)| *of == layer)?;
        let numbers = match name {
            "layer_multipliers" => rows.factors.clone(),
            "ngram_heads_vocab_sizes" => rows.sizes.clone(),
            "ngram_heads_offsets" => (0..rows.sizes.len()).map(|i| rows.sizes.iter().take(i).sum()).collect(),
            _ => return None,
        };
        Some(numbers.into_iter().map(|n| n as i64).collect())
    }

    /// `last`: the ids of a token and those before it, as many as the longest n-gram has, the token's
    /// first. Before the first token there are ends of texts, and so beyond an end.
    pub(super) fn last_tokens(&self, l: &mut Lifter) -> Result<Carried, FrontendError> {
        let before = self.size - 1;
        let mut f = l.func("last");
        let tokens = f.input(Input::Tokens);
        let ids = f.op(Op::TokenIds, &[tokens]);
        // As distances from the end of a text, which are 0 where the state begins.
        let eos = f.scalar(self.eos as f32);
        let own = f.op(Op::Binary(BinaryOp::Sub), &[ids, eos]);
        let each = if before > 1 { f.op(Op::ConcatCols, &vec![own; before]) } else { own };
        // Column j has the value of j + 1 tokens before.
        let mut taps = vec![0.0; self.size * before];
        (0..before).for_each(|j| taps[(before - 1 - j) * before + j] = 1.0);
        let taps = f.shared_table("last.taps", "$last.taps", [self.size, before], taps);
        let all = over_time(&mut f, taps, [self.size, before], each);
        let (one, mut seen, mut out) = (f.scalar(1.0), None, vec![ids]);
        for distance in split_each(&mut f, all, 1, before) {
            let distance = seen.map_or(distance, |seen| f.mul(distance, seen));
            out.push(f.add(distance, eos));
            // 1 where no text ended yet, else 0.
            let size = magnitude(&mut f, distance);
            seen = Some(f.op(Op::Binary(BinaryOp::Min), &[size, one]));
        }
        let all = f.op(Op::ConcatCols, &out);
        Ok(f.call(&[all])?.pop().unwrap_or_default())
    }

    /// The streams `x` before layer `i`, with its addend by the tokens `last`.
    pub(super) fn added(
        &self,
        l: &mut Lifter,
        i: usize,
        (streams, eps): (Streams, Norm),
        last: &Carried,
        x: Carried,
    ) -> Result<Carried, FrontendError> {
        let Some((_, rows)) = self.layers.iter().find(|(layer, _)| *layer == i) else { return Ok(x) };
        let mut f = l.layer("ngrams", i);
        let last = f.carried("last", last);
        let table = self.table(&mut f, rows);
        let hashed = Op::EmbedHashed { factors: rows.factors.clone(), sizes: rows.sizes.clone() };
        let found = f.op(hashed, &[table, last]);
        let found = f.call(&[found])?.pop().unwrap_or_default();
        let mut f = l.layer("recall", i);
        let (x, found) = (f.carried("x", &x), f.carried("found", &found));
        let hidden = f.facts().hidden;
        let gates = self.gates(&mut f, streams, eps, x, found);
        let value = linear(&mut f, VALUES, [hidden, self.width], false, found);
        let gated = streams.weighted(&mut f, gates, value);
        let normed = streams.normed(&mut f, CONV_NORM, eps, gated);
        let channels = streams.width(&f);
        let convolved = dilated(&mut f, CONV, [self.conv, channels], self.size, normed);
        let convolved = f.unary(UnaryOp::Silu, convolved);
        let y = f.add(gated, convolved);
        let x = f.add(x, y);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }

    /// The table of a layer, cut into parts of as many rows each but for the last.
    fn table(&self, f: &mut Draft, rows: &NgramRows) -> Value {
        let cols = self.width / rows.sizes.len().max(1);
        if f.stores(WHOLE, Kind::Table) {
            return f.weight(WHOLE, Kind::Table, &[rows.padded, cols]);
        }
        let of_part = rows.padded.div_ceil(self.shards).max(1);
        let starts = (0..rows.padded).step_by(of_part).enumerate();
        let shape = |start: usize| [of_part.min(rows.padded - start), cols];
        let parts: Vec<Value> = starts.map(|(e, start)| f.numbered(SHARD, Kind::Table, e, &shape(start))).collect();
        if let [one] = parts[..] { one } else { f.op(Op::ConcatRows, &parts) }
    }

    /// A gate for each stream: `σ(±√|k·q/√H|)` of its norm, `q`, and of a key of the rows found.
    fn gates(&self, f: &mut Draft, streams: Streams, eps: Norm, x: Value, found: Value) -> Value {
        let hidden = f.facts().hidden;
        let keys = linear(f, KEYS, [streams.width(f), self.width], false, found);
        let keys = streams.normed(f, KEY_NORM, eps, keys);
        let queries = streams.normed(f, QUERY_NORM, eps, x);
        let products = f.mul(keys, queries);
        // Sums over each stream.
        let width = streams.width(f);
        let own = |i: usize| if i / width == i % width / hidden { 1.0 } else { 0.0 };
        let own = (0..streams.count.saturating_mul(width)).map(own).collect();
        let own = f.shared_table("ngrams.own", "$ngrams.own", [streams.count, width], own);
        let score = f.matmul(products, own);
        let score = scaled(f, score, Some((1.0 / (hidden as f64).sqrt()) as f32));
        let size = magnitude(f, score);
        let least = f.scalar(1e-6);
        let root = f.op(Op::Binary(BinaryOp::Max), &[size, least]);
        let root = f.unary(UnaryOp::Sqrt, root);
        // The sign, 0 of 0: whatever is far enough from it, cut at 1.
        let cut = |f: &mut Draft, x| {
            let [one, less] = [1.0, -1.0].map(|c| f.scalar(c));
            let x = f.op(Op::Binary(BinaryOp::Min), &[x, one]);
            f.op(Op::Binary(BinaryOp::Max), &[x, less])
        };
        let sign = cut(f, score);
        let sign = scaled(f, sign, Some(2f32.powi(120)));
        let sign = cut(f, sign);
        let root = f.mul(root, sign);
        f.unary(UnaryOp::Sigmoid, root)
    }
}

/// `|x|`
fn magnitude(f: &mut Draft, x: Value) -> Value {
    let less = f.unary(UnaryOp::Neg, x);
    f.op(Op::Binary(BinaryOp::Max), &[x, less])
}

#[cfg(test)]
mod tests {
    use super::super::Qwen4;
    use crate::arch::Model;
    use crate::testing::{config, with};
    use llmcc_ir::graph::Hashes;
    use serde_json::json;
    use std::any::Any;

    /// The default sizes of Transformers' class; the numbers it has drawn and found, and the rows
    /// that it looks up for the tokens 248319, 12, 248046 (the end of a text) and 77777.
    #[test]
    fn tables_are_those_of_transformers() {
        let sizes = json!({
            "vocab_size": 248_320, "eos_token_id": 248_046, "num_hidden_layers": 8, "ple_layer_ids": [5, 1],
            "ple_embed_dim": 2048, "heads_per_ngram": "absent", "ngram_vocab_size_base": "absent", "seed": "absent",
            "make_ngram_vocab_size_divisible_by": "absent",
        });
        let model = Model::parse(&with(config("qwen4_exp_text"), sizes)).unwrap();
        let shape: &dyn Any = &*model.shape as &dyn Any;
        let Some(Qwen4 { ngrams: Some(ngrams), .. }) = shape.downcast_ref::<Qwen4>() else { panic!("none") };
        let of = |layer: usize, name: &str| {
            let tensor = format!("model.layers.{layer}.ple.ple_embedding.{name}");
            model.shape.integers(&tensor).unwrap()
        };
        assert_eq!(of(0, "layer_multipliers"), [23_703_573_157_769, 20_109_073_645_365, 8_052_911_324_071]);
        assert_eq!(of(4, "layer_multipliers"), [3_352_040_966_061, 19_752_442_147_475, 10_742_103_100_073]);
        let [first, second] = [0, 4].map(|layer| of(layer, "ngram_heads_vocab_sizes"));
        assert_eq!((first.len(), first[0], first[15]), (16, 20_000_003, 20_000_171));
        assert_eq!((second.len(), second[0], second[15]), (16, 20_000_213, 20_000_429));
        assert_eq!(of(4, "ngram_heads_offsets")[15], 300_004_617);
        let padded: Vec<usize> = ngrams.layers.iter().map(|(_, rows)| rows.padded).collect();
        assert_eq!(padded, [320_001_536, 320_005_120]);
        let rows = |table: usize, ids: [u64; 3]| {
            let of = &ngrams.layers[table].1;
            Hashes { factors: &of.factors, sizes: &of.sizes }.rows(&ids)
        };
        let end = 248_046;
        #[rustfmt::skip]
        let expected = [
            868_000, 23_476_279, 45_893_320, 62_523_585, 83_649_797, 117_596_033, 128_737_843, 157_342_449,
            176_501_454, 196_721_779, 204_641_080, 227_461_658, 249_639_833, 272_014_958, 299_517_260, 317_356_054,
        ];
        assert_eq!(rows(0, [248_319, end, end]), expected);
        #[rustfmt::skip]
        let expected = [
            7_041_993, 38_706_307, 57_153_943, 74_276_301, 80_083_642, 112_781_106, 128_599_025, 143_255_560,
            179_625_773, 191_491_784, 211_827_531, 239_115_289, 257_530_779, 276_399_373, 298_664_260, 310_322_194,
        ];
        assert_eq!(rows(1, [end, 12, 248_319]), expected);
        #[rustfmt::skip]
        let expected = [
            5_726_250, 28_334_079, 43_159_021, 75_152_437, 86_486_244, 107_141_214, 120_647_502, 159_955_053,
            175_990_381, 181_323_497, 210_163_827, 236_629_250, 258_717_902, 272_811_845, 288_732_015, 312_826_605,
        ];
        assert_eq!(rows(1, [77_777, end, end]), expected);
    }
}
