//! XLNet (arXiv 1906.08237): BERT's layers, where distances have keys of their own (Transformer-XL, arXiv 1901.02860)
//! and where it counts whether two tokens are of one type.
//!
//! With the query `q` and the key `k` of two tokens, and three learned vectors `w`, `r`, `s`, a score is
//! `(q + w)·k + (q + r)·K + (q + s)·E`: `K` is the distance's key, and `E` one of two vectors, for tokens of the same
//! type or of different types. [`Op::RelativeAttention`] computes the first two terms for queries `q + r` and queries
//! of distances `w − r`, which are the same for all of them. The last term is `(q + s)·(E_other − E_same)` where types
//! differ, beside an addend that all scores of a token have: heads have a further column for each type, with 1 in a
//! key of that type, and `(q + s)·(E_same − E_other)` in a query of it.

use crate::arch::blocks::disentangled_attention::NEAR_K;
use crate::arch::blocks::families::disentangled_fields::whole;
use crate::arch::blocks::mlp::Mlp;
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::weight_forms::filled;
use llmcc_ir::graph::Role;

pub(crate) const ARCH: Arch = Arch {
    model_type: "xlnet",
    class: "XLNetModel",
    fields: &[IDENTITY, FIELDS, OWN],
    fixed: fixed! {
        Words(&["bi"]) => attn_type;
        Off => bi_data same_length summary_proj_to_labels;
        On => summary_use_proj;
        Words(&["last"]) => summary_type;
        // Rows of earlier texts, of which there are none, results of another class, and biases of layers, which
        // files always have.
        Any => mem_len reuse_len use_mems_eval use_mems_train start_n_top end_n_top untie_r;
        Any => tie_word_embeddings bos_token_id eos_token_id;
    },
    goldens: &["xlnet", "xlnet_classes", "xlnet_pairs"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const FIELDS: &[Field] = fields! {
    quantization_config, vocab_size | n_token, hidden_size | d_model, num_hidden_layers | n_layer,
    num_attention_heads | n_head, intermediate_size | d_inner, hidden_act | ff_activation, layer_norm_eps,
};

const OWN: &[Field] = &[
    Field::new("d_head", Accepts::Size(1 << 14)),
    // Below 1: distances count at any length.
    Field::new("clamp_len", Accepts::Number).unless(Neutral::Any),
    Field::new("summary_activation", Accepts::OneOf(SUMMARY_ACTS)).unless(Neutral::Any),
];

/// Activations of the row that scores of classes are made of.
const SUMMARY_ACTS: &[&str] = &["tanh", "gelu", "gelu_new", "relu", "silu"];

/// Types of tokens: of the two texts, of the last token, and of padding.
const KINDS: usize = 4;

/// Tokens of texts with which published models were trained; nothing in a file says so.
const TRAINED: usize = 512;

/// So many columns in the keys of all distances have numbers that f32 has.
const MOST: usize = (1 << 24) / (2 * TRAINED);

/// Added to queries for products with keys.
const OF_KEYS: Part = Part("attn.of_keys");
/// Added to queries for products with keys of distances.
const OF_DISTANCES: Part = Part("attn.of_distances");
/// Added to queries for products with vectors of types.
const OF_TYPES: Part = Part("attn.of_types");
/// The vectors of the same type and of another type.
const SAME_AND_OTHER: Part = Part("attn.same_and_other");

/// The model.
#[derive(Clone, Debug)]
struct XlNet {
    /// The parts that it has in common with other encoders.
    encoder: Encoder,
    heads: Heads,
    mlp: Mlp,
    /// Distances beyond this one have its key.
    farthest: usize,
}

fn read(f: &Fields) -> Result<XlNet, ConfigError> {
    let size = |name: &str, default: usize| f.size(name).or(default);
    let (hidden, queries) = (size("hidden_size", 1024), size("num_attention_heads", 16));
    if !hidden.is_multiple_of(queries) || !hidden.is_multiple_of(2) {
        return Err(f.invalid(
            "hidden_size",
            &hidden,
            format!("even, and a multiple of the number of heads ({queries})"),
        ));
    }
    // Numbers of elements in the table of distances are exact in f32.
    if hidden >= MOST {
        return Err(f.invalid("hidden_size", &hidden, format!("less than {MOST}")));
    }
    let dim = hidden / queries;
    if let Some(n) = f.size("d_head").value().filter(|n| *n != dim) {
        return Err(f.invalid("d_head", &n, format!("the width over the number of heads ({dim})")));
    }
    if matches!(f.get("summary_activation"), Given::Null) {
        let help = "this architecture expects an activation, such as `tanh`".into();
        return Err(f.unsupported("summary_activation", "null".into(), help));
    }
    let facts = Facts {
        name: None,
        vocab: size("vocab_size", 32_000),
        hidden,
        layers: size("num_hidden_layers", 24),
        max_position: TRAINED,
        tied: true,
        bos: None,
        eos: vec![],
    };
    let heads = Heads { queries, kv: queries, dim };
    let mlp = (size("intermediate_size", 4096), common::activation(f, "hidden_act", UnaryOp::Gelu));
    let mut e = Encoder::alike(facts, heads, mlp, common::eps(f, "layer_norm_eps", 1e-12)?);
    e.embedding.norm = false;
    let act = common::activation(f, "summary_activation", UnaryOp::Tanh);
    e.classes = ClassHead { pool: Pool::Last, act, ..ClassHead::BERT };
    e.spare = &["transformer.mask_emb", "mask_emb", "lm_loss."];
    let farthest = whole(f, "clamp_len")?.unwrap_or(TRAINED);
    let Some(mlp) = e.layers.first().map(|layer| layer.mlp) else { return Err(f.missing("num_hidden_layers")) };
    Ok(XlNet { encoder: e, heads, mlp, farthest })
}

impl XlNet {
    /// Columns of the heads together, and of a head of queries and keys with those of the types.
    fn widths(&self) -> (usize, usize) {
        (self.heads.queries * self.heads.dim, self.heads.dim + KINDS)
    }

    /// The matrix `[heads' columns, hidden]` of a part.
    #[track_caller]
    fn matrix(&self, f: &mut Draft, part: Part) -> Value {
        let (width, _) = self.widths();
        let w = f.weight(part, Kind::ByHead(self.heads.queries), &[self.encoder.facts.hidden, width]);
        f.op(Op::Transpose, &[w])
    }

    /// Heads of queries or keys `x`, each with [`KINDS`] more columns, which are those of `more` that `column` says
    /// for a head and a type.
    #[track_caller]
    fn widened(&self, f: &mut Draft, name: &str, [x, more]: [Value; 2], column: fn(usize, usize) -> usize) -> Value {
        let (dim, (width, _)) = (self.heads.dim, self.widths());
        let of_head = |h: usize| (h * dim..(h + 1) * dim).chain((0..KINDS).map(move |t| width + column(h, t)));
        let order = (0..self.heads.queries).flat_map(of_head).map(|c| c as f32).collect();
        let order = f.shared_constant(name, &format!("${name}"), order);
        let both = f.op(Op::ConcatCols, &[x, more]);
        f.op(Op::PickCols, &[both, order])
    }

    /// Queries `q` with `(q + s)·(E_same − E_other)` in the column of each token's type, `q` having the addend `r`
    /// already, and `shift` being `s − r`.
    #[track_caller]
    fn queries(&self, f: &mut Draft, q: Value, shift: Value) -> Value {
        let (heads, dim, (_, wide)) = (self.heads.queries, self.heads.dim, self.widths());
        let both = f.weight(SAME_AND_OTHER, Kind::Bare, &[2, heads, dim]);
        let both = f.op(Op::Flatten, &[both]);
        let [same, other] = split_rows(f, both, [heads, heads]);
        let of_types = f.add(q, shift);
        // Both are multiplied: their difference would be rounded to the type of weights.
        let products = [same, other].map(|vectors| {
            let vectors = filled(f, vectors, 1);
            f.op(Op::HeadMatMul { heads, cols: 1 }, &[of_types, vectors])
        });
        let of_types = f.op(Op::Binary(BinaryOp::Sub), &products);
        let q = self.widened(f, "queries.columns", [q, of_types], |h, _| h);
        let kept = move |t: usize, c: usize| c < dim || c == dim + t;
        let own = |t: usize| (0..heads * wide).map(move |c| f32::from(u8::from(kept(t, c % wide))));
        let own = (0..KINDS).flat_map(own).collect();
        let table = f.shared_table("queries.own", "$queries.own", [KINDS, heads * wide], own);
        let types = f.input(Input::Types);
        let own = f.op(Op::EmbedTypes, &[table, types]);
        f.mul(q, own)
    }

    /// Keys `k` with 1 in the column of each token's type.
    #[track_caller]
    fn keys(&self, f: &mut Draft, k: Value) -> Value {
        let ones = (0..KINDS * KINDS).map(|i| f32::from(u8::from(i % KINDS == i / KINDS))).collect();
        let table = f.shared_table("keys.own", "$keys.own", [KINDS, KINDS], ones);
        let types = f.input(Input::Types);
        let own = f.op(Op::EmbedTypes, &[table, types]);
        self.widened(f, "keys.columns", [k, own], |_, t| t)
    }

    /// Keys and queries of all distances, `w − r` being `difference`.
    #[track_caller]
    fn distances(&self, f: &mut Draft, difference: Value) -> [Value; 2] {
        let (hidden, dim, (width, wide)) = (self.encoder.facts.hidden, self.heads.dim, self.widths());
        let reach = self.farthest.min(f.max_context().saturating_sub(1));
        let count = 2 * reach + 1;
        // From the token that is the farthest after to the farthest before.
        let rows = (0..count).flat_map(|i| sines(reach as f64 - i as f64, hidden)).collect();
        let rows = f.table("distances", "$distances", [count, hidden], rows, Role::Weight);
        let w = self.matrix(f, NEAR_K);
        let made = f.op(Op::MulTransposed, &[rows, w]);
        let made = f.op(Op::Flatten, &[made]);
        let nothing = f.computed("nothing", "$nothing", vec![0.0]);
        // Columns of types have no part in distances.
        let column = |c: usize| Some(c % wide).filter(|d| *d < dim).map(|d| c / wide * dim + d);
        let all = (0..self.heads.queries * wide).flat_map(|c| (0..count).map(move |i| (column(c), i)));
        let keys = all.clone().map(|(c, i)| c.map_or(count * width, |c| i * width + c) as f32).collect();
        let queries = all.map(|(c, _)| c.unwrap_or(width) as f32).collect();
        let mut looked_up = |of: Value, name: &str, order: Vec<f32>| {
            let of = f.op(Op::ConcatRows, &[of, nothing]);
            let order = f.computed(name, &format!("${name}"), order);
            f.op(Op::LookUp, &[of, order])
        };
        [looked_up(made, "distances.keys", keys), looked_up(difference, "distances.queries", queries)]
    }

    /// The output of attention for rows `x`.
    #[track_caller]
    fn attention(&self, f: &mut Draft, x: Value) -> Value {
        let (hidden, heads, dim, (width, wide)) =
            (self.encoder.facts.hidden, self.heads.queries, self.heads.dim, self.widths());
        let [q, k, v] = [ATTN_Q, ATTN_K, ATTN_V].map(|part| {
            let w = self.matrix(f, part);
            f.matmul(x, w)
        });
        let [of_keys, of_distances, of_types] = [OF_KEYS, OF_DISTANCES, OF_TYPES].map(|part| {
            let b = f.weight(part, Kind::Bare, &[heads, dim]);
            f.op(Op::Flatten, &[b])
        });
        let [of_keys, of_types] = [of_keys, of_types].map(|b| f.op(Op::Binary(BinaryOp::Sub), &[b, of_distances]));
        let q = f.add(q, of_distances);
        let (q, k) = (self.queries(f, q, of_types), self.keys(f, k));
        let positions = f.input(Input::Positions);
        let kv = f.kv("kv", heads, (wide, dim), None);
        let kv = f.op(Op::KvAppend, &[kv, k, v, positions]);
        let [keys, queries] = self.distances(f, of_keys);
        let scale = F32::new((1.0 / (dim as f64).sqrt()) as f32);
        let y = f.op(Op::RelativeAttention { heads, scale }, &[q, kv, positions, keys, queries]);
        let out = f.weight(ATTN_OUT, Kind::ByHead(heads), &[hidden, width]);
        f.matmul(y, out)
    }

    fn layer(&self, l: &mut Lifter, i: usize, x: &Carried) -> Result<Carried, FrontendError> {
        let (hidden, eps) = (self.encoder.facts.hidden, self.encoder.norm);
        let mut f = l.layer("layer", i);
        let x = f.carried("x", x);
        let y = self.attention(&mut f, x);
        let y = f.add(y, x);
        let x = norm(&mut f, ATTN_POST_NORM, eps, y, hidden);
        let y = mlp(&mut f, &self.mlp, x);
        let y = f.add(y, x);
        let y = norm(&mut f, MLP_POST_NORM, eps, y, hidden);
        Ok(f.call(&[y])?.pop().unwrap_or_default())
    }
}

/// The row of a distance: sines, then cosines.
fn sines(distance: f64, width: usize) -> impl Iterator<Item = f32> {
    let angle = move |i: usize| distance / libm::pow(10_000.0, 2.0 * i as f64 / width as f64);
    let half = width / 2;
    let (sines, cosines) = ((0..half).map(angle).map(libm::sin), (0..half).map(angle).map(libm::cos));
    sines.chain(cosines).map(|x| x as f32)
}

impl Shape for XlNet {
    answered_by! { encoder: facts yields spare }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (mut x, _) = self.encoder.embedding(l)?;
        for i in 0..self.encoder.facts.layers {
            x = self.layer(l, i, &x)?;
        }
        self.encoder.head(l, &x)
    }
}

const NAMES: Table = names! {
    "transformer." { TABLE => "word_embedding" }
    "transformer.layer.{}." {
        ATTN_Q => "rel_attn.q", ATTN_K => "rel_attn.k", ATTN_V => "rel_attn.v", NEAR_K => "rel_attn.r",
        ATTN_OUT => "rel_attn.o", OF_KEYS => "rel_attn.r_w_bias", OF_DISTANCES => "rel_attn.r_r_bias",
        OF_TYPES => "rel_attn.r_s_bias", SAME_AND_OTHER => "rel_attn.seg_embed",
        ATTN_POST_NORM => "rel_attn.layer_norm", MLP_UP => "ff.layer_1", MLP_DOWN => "ff.layer_2",
        MLP_POST_NORM => "ff.layer_norm",
    }
    "" { POOLER => "sequence_summary.summary", CLASSES => "logits_proj" }
};

#[cfg(test)]
mod tests {
    use crate::arch::Model;
    use crate::testing::{config, with};
    use serde_json::json;

    #[test]
    fn distances_without_a_bound_are_those_of_training() {
        let farthest = |clamp: i32| {
            let shape =
                format!("{:?}", Model::parse(&with(config("xlnet"), json!({ "clamp_len": clamp }))).unwrap().shape);
            shape.rsplit("farthest: ").next().and_then(|rest| rest.split([' ', ',']).next()?.parse::<usize>().ok())
        };
        assert_eq!([-1, 0, 48].map(farthest), [Some(super::TRAINED), Some(super::TRAINED), Some(48)]);
    }
}
