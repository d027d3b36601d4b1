//! MobileBERT (arXiv 2004.02984): BERT whose layers compute in narrow rows, with several MLPs each,
//! and whose embeddings are made of a token's row and its neighbours' rows.

use crate::arch::blocks::attention::attend;
use crate::arch::blocks::encoder::{FIELDS, WIDEN, placed};
use crate::arch::blocks::learned_positions::Positions;
use crate::arch::blocks::neighbour_rows::neighbours;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mobilebert",
    class: "MobileBertModel",
    fields: &[IDENTITY, MODEL, FIELDS, OWN],
    fixed: fixed! {
        Words(&["absolute"]) => position_embedding_type;
        On => use_bottleneck key_query_shared_bottleneck;
        Off => use_bottleneck_attention;
        // The class derives it from the others.
        Same("intra_bottleneck_size") => true_hidden_size;
    },
    goldens: &["mobilebert", "mobilebert_classes"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const OWN: &[Field] = fields! {
    embedding_size, intra_bottleneck_size, num_feedforward_networks, trigram_input, normalization_type,
    classifier_activation: Accepts::Flag,
};

/// LayerNorm's addend where the class does not give one.
const USUAL_EPS: f32 = 1e-5;

/// The model.
#[derive(Debug)]
struct MobileBert {
    /// The parts in common with other encoders: facts, positions, types, the head.
    encoder: Encoder,
    /// Attention of a layer.
    attention: Attention,
    /// Columns of the table.
    narrow: usize,
    /// Columns of the rows that layers compute in.
    inner: usize,
    /// Columns of an MLP.
    ffn: usize,
    /// Activation of the MLPs.
    act: UnaryOp,
    /// MLPs of a layer before its last one.
    more: usize,
    /// Neighbours count.
    trigrams: bool,
    /// Norms are LayerNorm with this, else a product and a sum.
    eps: Option<f32>,
}

fn read(f: &Fields) -> Result<MobileBert, ConfigError> {
    let facts = Facts::read(f, None, 512, true)?;
    let inner = f.size("intra_bottleneck_size").or(128);
    let queries = f.required_size("num_attention_heads")?;
    if !inner.is_multiple_of(queries) {
        let expected = format!("a multiple of `num_attention_heads` ({queries})");
        return Err(f.invalid("intra_bottleneck_size", &inner, expected));
    }
    let heads = Heads { queries, kv: queries, dim: inner / queries };
    let (ffn, act) = (f.required_size("intermediate_size")?, common::activation(f, "hidden_act", UnaryOp::Relu));
    let eps = common::eps(f, "layer_norm_eps", 1e-12)?;
    let normalized = match f.text("normalization_type") {
        None | Some("no_norm") => false,
        Some("layer_norm") => true,
        Some(other) => {
            let help = "this architecture supports `no_norm` and `layer_norm`".into();
            return Err(f.unsupported("normalization_type", format!("\"{other}\""), help));
        }
    };
    let rows = facts.max_position;
    let mut encoder = Encoder::alike(facts, heads, (ffn, act), eps);
    encoder.embedding.positions = Some(Positions { rows, first: 0, filler: None });
    encoder.classes = ClassHead { dense: f.flag_or("classifier_activation", true), ..ClassHead::BERT };
    encoder.embedding.types = f.size("type_vocab_size").or(2);
    encoder.spare = &["mobilebert.pooler.", "pooler.", "cls.", "mobilebert.embeddings.embedding_transformation."];
    Ok(MobileBert {
        encoder,
        attention: Attention { causal: false, ..Attention::plain(heads, None) },
        narrow: f.size("embedding_size").or(128),
        inner,
        ffn,
        act,
        more: f.size("num_feedforward_networks").or(4).saturating_sub(1),
        trigrams: f.flag_or("trigram_input", true),
        eps: normalized.then_some(eps),
    })
}

impl MobileBert {
    /// A norm of `width` columns, of one of several MLPs if there is a number.
    #[track_caller]
    fn normed(&self, f: &mut Draft, part: Part, at: Option<usize>, x: Value, width: usize) -> Value {
        // Two of them ignore the file's value.
        let usual = part == TABLE_NORM || part == MLP_POST_NORM;
        let x = self.eps.map_or(x, |eps| {
            let eps = F32::new(if usual { USUAL_EPS } else { eps });
            f.op(Op::Standardize { eps, width }, &[x])
        });
        let mut of = |kind| match at {
            None => f.weight(part, kind, &[width]),
            Some(i) => f.numbered(part, kind, i, &[width]),
        };
        let (gain, bias) = (of(Kind::Gain), of(Kind::Bias));
        let x = f.mul(x, gain);
        f.add(x, bias)
    }

    /// `norm(x + down(act(up(x))))`
    #[track_caller]
    fn mlp(&self, f: &mut Draft, [up, down, after]: [Part; 3], at: Option<usize>, x: Value) -> Value {
        let product = |f: &mut Draft, part, x, [out, inner]: [usize; 2]| {
            let Some(i) = at else { return linear(f, part, [out, inner], true, x) };
            let (w, b) = (f.numbered(part, Kind::Matrix, i, &[out, inner]), f.numbered(part, Kind::Bias, i, &[out]));
            let y = f.matmul(x, w);
            f.add(y, b)
        };
        let y = product(f, up, x, [self.ffn, self.inner]);
        let y = f.unary(self.act, y);
        let y = product(f, down, y, [self.inner, self.ffn]);
        let x = f.add(y, x);
        self.normed(f, after, at, x, self.inner)
    }

    /// `embed`: the tokens' rows, beside their neighbours' rows.
    fn embedding(&self, l: &mut Lifter) -> Result<Carried, FrontendError> {
        let (vocab, hidden) = (self.encoder.facts.vocab, self.encoder.facts.hidden);
        let mut f = l.func("embed");
        let mut table = f.weight(TABLE, Kind::Table, &[vocab, self.narrow]);
        let (learned, others) = self.encoder.tables_beside(&mut f, &mut table, hidden);
        let (tokens, positions) = (f.input(Input::Tokens), f.input(Input::Positions));
        let mut x = f.op(Op::Embed, &[table, tokens]);
        let mut width = self.narrow;
        if self.trigrams {
            let [next, before] = neighbours(&mut f, x, width, positions);
            x = f.op(Op::ConcatCols, &[next, x, before]);
            width = width.saturating_mul(3);
        }
        if self.trigrams || width != hidden {
            x = linear(&mut f, WIDEN, [hidden, width], true, x);
        }
        let x = placed(&mut f, x, learned.map(|table| (table, positions)), others);
        let x = self.normed(&mut f, TABLE_NORM, None, x, hidden);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }

    fn layer(&self, l: &mut Lifter, i: usize, x: &Carried) -> Result<Carried, FrontendError> {
        let (hidden, inner, heads) = (self.encoder.facts.hidden, self.inner, self.attention.heads);
        let mut f = l.layer("layer", i);
        let x = f.carried("x", x);
        let positions = f.input(Input::Positions);
        let kv = f.kv("kv", heads.kv, (heads.dim, heads.dim), None);
        let narrowed = |f: &mut Draft, [part, after]: [Part; 2]| {
            let y = linear(f, part, [inner, hidden], true, x);
            self.normed(f, after, None, y, inner)
        };
        let (rows, asked) = (narrowed(&mut f, [INTO, INTO_NORM]), narrowed(&mut f, [INTO_ATTN, INTO_ATTN_NORM]));
        let q = linear(&mut f, ATTN_Q, [inner, inner], true, asked);
        let k = linear(&mut f, ATTN_K, [inner, inner], true, asked);
        // Values come from the wide rows.
        let v = linear(&mut f, ATTN_V, [inner, hidden], true, x);
        let y = attend(&mut f, &self.attention, self.encoder.norm, [q, k, v], kv, positions, None);
        let y = linear(&mut f, ATTN_OUT, [inner, inner], true, y);
        let y = f.add(y, rows);
        let mut y = self.normed(&mut f, ATTN_POST_NORM, None, y, inner);
        for at in 0..self.more {
            y = self.mlp(&mut f, [MORE_UP, MORE_DOWN, MORE_NORM], Some(at), y);
        }
        let y = self.mlp(&mut f, [MLP_UP, MLP_DOWN, MLP_POST_NORM], None, y);
        let y = linear(&mut f, OUT_OF, [hidden, inner], true, y);
        let y = f.add(y, x);
        let y = self.normed(&mut f, OUT_OF_NORM, None, y, hidden);
        Ok(f.call(&[y])?.pop().unwrap_or_default())
    }
}

impl Shape for MobileBert {
    answered_by! { encoder: facts yields spare }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let mut x = self.embedding(l)?;
        for i in 0..self.encoder.facts.layers {
            x = self.layer(l, i, &x)?;
        }
        self.encoder.head(l, &x)
    }
}

/// Into the narrow rows of a layer.
const INTO: Part = Part("inner");
/// Norm of these.
const INTO_NORM: Part = Part("inner.norm");
/// Into those that queries and keys are made of.
const INTO_ATTN: Part = Part("inner.attn");
/// Norm of these.
const INTO_ATTN_NORM: Part = Part("inner.attn.norm");
/// Back into wide rows.
const OUT_OF: Part = Part("outer");
/// Norm of these.
const OUT_OF_NORM: Part = Part("outer.norm");
/// Into an MLP before the last.
const MORE_UP: Part = Part("more.up");
/// Out of it.
const MORE_DOWN: Part = Part("more.down");
/// Norm after it.
const MORE_NORM: Part = Part("more.norm");

const NAMES: Table = names! {
    "mobilebert." {
        TABLE => "embeddings.word_embeddings", POSITIONS => "embeddings.position_embeddings",
        TYPES => "embeddings.token_type_embeddings", WIDEN => "embeddings.embedding_transformation",
        TABLE_NORM => "embeddings.LayerNorm", POOLER => "pooler.dense",
    }
    "mobilebert.encoder.layer.{}." {
        INTO => "bottleneck.input.dense", INTO_NORM => "bottleneck.input.LayerNorm",
        INTO_ATTN => "bottleneck.attention.dense", INTO_ATTN_NORM => "bottleneck.attention.LayerNorm",
        ATTN_Q => "attention.self.query", ATTN_K => "attention.self.key", ATTN_V => "attention.self.value",
        ATTN_OUT => "attention.output.dense", ATTN_POST_NORM => "attention.output.LayerNorm",
        MORE_UP => "ffn.{e}.intermediate.dense", MORE_DOWN => "ffn.{e}.output.dense",
        MORE_NORM => "ffn.{e}.output.LayerNorm", MLP_UP => "intermediate.dense", MLP_DOWN => "output.dense",
        MLP_POST_NORM => "output.LayerNorm", OUT_OF => "output.bottleneck.dense",
        OUT_OF_NORM => "output.bottleneck.LayerNorm",
    }
    "" { CLASSES => "classifier" }
};
