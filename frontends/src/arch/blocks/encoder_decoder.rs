//! Models of two stacks: an encoder reads a text as a whole, and a decoder writes another one, each token of which sees
//! the first by cross-attention.
//!
//! A module of such a model has two entries. `step` is the decoder; `encode` is the encoder, after whose last layer the
//! keys and values of each decoder layer are computed and stored, once per text. Both are of one sequence, whose source
//! and target tokens are counted apart: `encode` appends to the one, `step` to the other.

use crate::arch::blocks::attention::{Attention, attention, linear, norm, scaled};
use crate::arch::blocks::attention_scores::attended;
use crate::arch::blocks::embedding_and_head::{gathered, head_apart};
use crate::arch::blocks::encoder::Encoder;
use crate::arch::blocks::entry::Shape;
use crate::arch::blocks::lifter::{Carried, Draft, Lifter};
use crate::arch::blocks::mlp::mlp;
use crate::arch::blocks::names::{
    ATTN_NORM, ATTN_POST_NORM, CROSS_K, CROSS_NORM, CROSS_OUT, CROSS_POST_NORM, CROSS_Q, CROSS_V, HEAD, Kind, MLP_NORM,
    MLP_POST_NORM, NORM, Names, Part,
};
use crate::arch::blocks::sound_rows::SoundRows;
use crate::config::common::Facts;
use crate::error::FrontendError;
use llmcc_ir::graph::{ENCODE, Input, Op, Value};

/// Rows that are added to logits.
pub(crate) const LOGITS_BIAS: Part = Part("logits_bias");

/// An encoder and a decoder.
#[derive(Clone, Debug)]
pub(crate) struct EncoderDecoder {
    /// The first stack.
    pub encoder: Encoder,
    /// Names of its tensors, and of keys and values that the decoder's layers make of its rows.
    pub encoder_names: Names,
    /// It reads clips of sound; else tokens.
    pub sound: Option<SoundRows>,
    /// The second stack; a token sees no later one in its attention.
    pub decoder: Encoder,
    /// Cross-attention of each of its layers.
    pub cross: Attention,
    /// Its keys have a bias, where its queries and values do.
    pub cross_key_bias: bool,
    /// Multiplies the rows that logits are made of.
    pub head_scale: Option<f32>,
    /// A bias of logits, stored as a tensor `[1, vocab]`, where the checkpoint has it.
    pub head_bias: bool,
}

impl EncoderDecoder {
    /// Decoder layer `i`; its state of keys and values of the source is only read here. Gives the number of that state,
    /// too.
    fn layer(&self, l: &mut Lifter, i: usize, x: &Carried) -> Result<(Carried, usize), FrontendError> {
        let (d, spec) = (&self.decoder, &self.decoder.layers[i]);
        let mut f = l.layer("decoder_layer", i);
        let x = f.carried("x", x);
        let positions = f.input(Input::Positions);
        let a = &spec.attention;
        let kv = f.kv("kv", a.heads.kv, (a.heads.dim, a.heads.dim), None);
        let own = |f: &mut Draft, h| attention(f, a, d.norm, h, kv, positions, None);
        let x = d.residual(&mut f, [ATTN_NORM, ATTN_POST_NORM], x, true, own);
        let (heads, dim) = (self.cross.heads.kv, self.cross.heads.dim);
        let source = f.kv("source", heads, (dim, dim), None);
        let state = f.last_state();
        let x =
            d.residual(&mut f, [CROSS_NORM, CROSS_POST_NORM], x, true, |f, h| self.crossed(f, h, source, positions));
        let x = d.residual(&mut f, [MLP_NORM, MLP_POST_NORM], x, true, |f, h| mlp(f, &spec.mlp, h));
        Ok((f.call(&[x])?.pop().unwrap_or_default(), state))
    }

    /// Attention of `h` to all tokens of the source.
    fn crossed(&self, f: &mut Draft, h: Value, source: Value, positions: Value) -> Value {
        let (a, own) = (&self.cross, self.cross.own());
        let width = a.heads.queries.saturating_mul(a.heads.dim);
        let hidden = self.decoder.facts.hidden;
        let q = linear(f, CROSS_Q, [width, hidden], own.qkv_bias, h);
        let y = attended(f, &a.scoring(), q, source, positions);
        linear(f, CROSS_OUT, [hidden, width], own.out_bias, y)
    }

    /// Logits of the wanted rows.
    fn head(&self, l: &mut Lifter, x: &Carried) -> Result<(), FrontendError> {
        let (vocab, hidden) = (self.decoder.facts.vocab, self.decoder.facts.hidden);
        let mut f = l.func("head");
        let x = f.carried("x", x);
        let x = gathered(&mut f, x);
        let x = if self.decoder.norm_first { norm(&mut f, NORM, self.decoder.norm, x, hidden) } else { x };
        let x = scaled(&mut f, x, self.head_scale);
        let table = match head_apart(&f) {
            true => f.matrix(HEAD, [vocab, hidden]),
            false => f.tied_table([vocab, hidden]),
        };
        let mut logits = f.matmul(x, table);
        if self.head_bias && f.stores(LOGITS_BIAS, Kind::Bare) {
            let bias = f.weight(LOGITS_BIAS, Kind::Bare, &[1, vocab]);
            let bias = f.op(Op::Flatten, &[bias]);
            logits = f.add(logits, bias);
        }
        f.call(&[logits])?;
        Ok(())
    }

    /// `encode`: the encoder, then the keys and values of each decoder layer, into the states `sources`.
    fn encode(&self, l: &mut Lifter, sources: &[usize]) -> Result<(), FrontendError> {
        let hidden = self.encoder.facts.hidden;
        let mut x = match self.sound {
            Some(sound) => {
                let x = sound.rows(l, hidden)?;
                self.encoder.after_layers(l, x, &[])?
            }
            None => self.encoder.rows(l)?,
        };
        if self.encoder.norm_first {
            let mut f = l.func("encoded");
            let row = f.carried("x", &x);
            let row = norm(&mut f, NORM, self.encoder.norm, row, hidden);
            x = f.call(&[row])?.pop().unwrap_or_default();
        }
        let (heads, own) = (self.cross.heads, self.cross.own());
        let shape = [heads.kv.saturating_mul(heads.dim), hidden];
        for (i, state) in sources.iter().enumerate() {
            let mut f = l.layer("source", i);
            let x = f.carried("x", &x);
            let positions = f.input(Input::Positions);
            let kv = f.state_of("source", *state);
            let [k, v] = [(CROSS_K, own.qkv_bias && self.cross_key_bias), (CROSS_V, own.qkv_bias)]
                .map(|(part, bias)| linear(&mut f, part, shape, bias, x));
            f.op(Op::KvAppend, &[kv, k, v, positions]);
            f.call(&[])?;
        }
        Ok(())
    }
}

impl Shape for EncoderDecoder {
    fn facts(&self) -> &Facts {
        &self.decoder.facts
    }

    fn spare(&self) -> &'static [&'static str] {
        self.decoder.spare
    }

    fn chooses(&self, tensor: &str) -> bool {
        self.decoder.passes.iter().any(|part| tensor.contains(part))
    }

    fn has_source(&self) -> bool {
        true
    }

    fn sound(&self) -> Option<SoundRows> {
        self.sound
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (mut x, _) = self.decoder.embedding(l)?;
        let mut sources = vec![];
        for i in 0..self.decoder.layers.len() {
            let (row, source) = self.layer(l, i, &x)?;
            x = row;
            sources.push(source);
        }
        self.head(l, &x)?;
        l.next_entry(ENCODE, self.encoder_names, self.sound.map(|sound| sound.tokens));
        self.encode(l, &sources)
    }
}
