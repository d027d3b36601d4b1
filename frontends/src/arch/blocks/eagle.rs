//! EAGLE's draft layer (arXiv 2401.15077, 2406.16858, 2503.01840): of a row of the model and the token behind it, it
//! predicts the token after that one and the next row.
//!
//! EAGLE-1 and -2, which differ in the tree of guesses only: `fc` makes a row of the embedding of token `i + 1` and the
//! row that the model has of token `i` after its last norm; a layer without a norm before attention makes the next row
//! of it, and the model's head its logits.
//!
//! EAGLE-3: rows are made of three layers' inputs ([`super::fused_rows`]). Attention sees the norms of embedding and
//! row side by side; the sum with the row goes on. A norm and a head of the draft's own make logits, often of fewer
//! tokens: token `j` of them is token `j + d2t_j` of the model.
//!
//! The row that the layer leaves is the row of the next guess.

use crate::arch::blocks::attention::{Attention, Norm, attend, linear, norm};
use crate::arch::blocks::decoder::{self, Decoder};
use crate::arch::blocks::embedding_and_head::{gathered, table};
use crate::arch::blocks::families::draft_names::{EMBED_NORM, JOIN, ROW_NORM};
use crate::arch::blocks::layer::{Layer, Norms};
use crate::arch::blocks::lifter::{Carried, Draft, Lifter};
use crate::arch::blocks::mlp::mlp;
use crate::arch::blocks::names::{ATTN_K, ATTN_OUT, ATTN_Q, ATTN_V, HEAD, MLP_NORM, NORM};
use crate::error::FrontendError;
use crate::rope;
use llmcc_ir::graph::{Input, Op, Value};

/// The logit of tokens that a draft cannot guess.
const NEVER: f32 = -1e30;

/// A draft layer.
#[derive(Clone, Debug)]
pub(crate) struct Eagle {
    /// The draft as a decoder of one layer.
    pub decoder: Decoder,
    /// Its only layer.
    pub layer: Layer,
    /// How rows and embeddings meet.
    pub form: EagleForm,
}

/// The two forms of EAGLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EagleForm {
    /// EAGLE-1 and -2.
    One {
        /// `fc` has a bias.
        bias: bool,
    },
    /// EAGLE-3.
    Three {
        /// The norm of the row is what attention's output is added to.
        norm_first: bool,
        /// The model's token for each of the draft's, where these are other ones.
        tokens: Option<Vec<usize>>,
    },
}

impl Eagle {
    /// Lifts the draft of the model `base`.
    ///
    /// # Errors
    /// A tensor is missing, or has another shape.
    pub(crate) fn lift(&self, l: &mut Lifter, base: &Decoder) -> Result<(), FrontendError> {
        let (x, ropes) = self.embedding(l)?;
        match &self.form {
            EagleForm::One { bias } => {
                let x = self.joined(l, *bias, &x)?;
                let layer = Layer { norms: Some(Norms::BeforeMlp), ..self.layer };
                let x = decoder::layer(l, &self.decoder, 0, &layer, (&x, None), &ropes)?;
                // The head is the model's, also where the table is not.
                l.entry.drafter = None;
                let mut f = l.func("head");
                let x = f.carried("x", &x);
                f.keep(x);
                let x = gathered(&mut f, x);
                decoder::output(f, base, x)
            }
            EagleForm::Three { norm_first, tokens } => {
                let x = self.wide_layer(l, *norm_first, &x, &ropes)?;
                self.head(l, base, tokens.as_deref(), &x)
            }
        }
    }

    /// Embeddings, which no factor scales, and the rotary table.
    fn embedding(&self, l: &mut Lifter) -> Result<(Carried, Vec<Carried>), FrontendError> {
        let mut f = l.func("draft.embed");
        let table = table(&mut f, self.decoder.facts.hidden);
        let tokens = f.input(Input::Tokens);
        let mut results = vec![f.op(Op::Embed, &[table, tokens])];
        for (i, config) in self.decoder.ropes.iter().enumerate() {
            let rope = rope::frequencies(config, f.max_context());
            let table = rope.table();
            let inv_freq = f.computed(&format!("inv_freq{i}"), &format!("$draft.rope.inv_freq{i}"), rope.inv_freq);
            let positions = f.input(Input::Positions);
            results.push(f.op(table, &[positions, inv_freq]));
        }
        let mut carried = f.call(&results)?.into_iter();
        let x = carried.next().unwrap_or_default();
        Ok((x, carried.collect()))
    }

    /// `fc`: a row of an embedding and a row.
    fn joined(&self, l: &mut Lifter, bias: bool, x: &Carried) -> Result<Carried, FrontendError> {
        let hidden = self.decoder.facts.hidden;
        let mut f = l.layer("draft.join", 0);
        let x = f.carried("x", x);
        let given = f.given(hidden);
        let both = f.op(Op::ConcatCols, &[x, given]);
        let x = linear(&mut f, JOIN, [hidden, 2 * hidden], bias, both);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }

    /// EAGLE-3's layer.
    fn wide_layer(
        &self,
        l: &mut Lifter,
        norm_first: bool,
        x: &Carried,
        ropes: &[Carried],
    ) -> Result<Carried, FrontendError> {
        let (hidden, eps, a) = (self.decoder.facts.hidden, self.decoder.norm, &self.layer.attention);
        let mut f = l.layer("draft.layer", 0);
        let x = f.carried("x", x);
        let rope = a.rotary.and_then(|i| ropes.get(i)).map(|rope| f.carried("rope", rope));
        let row = f.given(hidden);
        let x = norm(&mut f, EMBED_NORM, eps, x, hidden);
        let normed = norm(&mut f, ROW_NORM, eps, row, hidden);
        let both = f.op(Op::ConcatCols, &[x, normed]);
        let y = self.wide_attention(&mut f, (a, eps), both, rope);
        let x = f.add(if norm_first { normed } else { row }, y);
        let h = norm(&mut f, MLP_NORM, eps, x, hidden);
        let y = mlp(&mut f, &self.layer.mlp, h);
        let x = f.add(x, y);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }

    /// Attention over rows of twice the width.
    fn wide_attention(&self, f: &mut Draft, (a, eps): (&Attention, Norm), h: Value, rope: Option<Value>) -> Value {
        let (hidden, own) = (self.decoder.facts.hidden, a.own());
        let (queries, keys) = (a.heads.queries * a.heads.dim, a.heads.kv * a.heads.dim);
        let positions = f.input(Input::Positions);
        let kv = f.kv("kv", a.heads.kv, (a.heads.dim, a.heads.dim), a.window);
        let projected = [(ATTN_Q, queries), (ATTN_K, keys), (ATTN_V, keys)]
            .map(|(part, rows)| linear(f, part, [rows, 2 * hidden], own.qkv_bias, h));
        let y = attend(f, a, eps, projected, kv, positions, rope);
        linear(f, ATTN_OUT, [hidden, queries], own.out_bias, y)
    }

    /// EAGLE-3's norm and head, whose logits go to the places of the model's tokens.
    fn head(&self, l: &mut Lifter, base: &Decoder, tokens: Option<&[usize]>, x: &Carried) -> Result<(), FrontendError> {
        let (hidden, vocab) = (self.decoder.facts.hidden, base.facts.vocab);
        let mut f = l.func("draft.head");
        let x = f.carried("x", x);
        f.keep(x);
        let x = gathered(&mut f, x);
        let x = norm(&mut f, NORM, self.decoder.norm, x, hidden);
        let logits = linear(&mut f, HEAD, [tokens.map_or(vocab, <[usize]>::len), hidden], false, x);
        let logits = match tokens {
            None => logits,
            Some(tokens) => {
                let (columns, never) = places(tokens, vocab);
                let columns = f.computed("columns", "$draft.columns", columns);
                let never = f.computed("never", "$draft.never", never);
                let logits = f.op(Op::PickCols, &[logits, columns]);
                f.add(logits, never)
            }
        };
        f.call(&[logits])?;
        Ok(())
    }
}

/// For each token of the model its column among the draft's logits, and what is added there: of tokens that the draft
/// does not have any column, and [`NEVER`].
fn places(tokens: &[usize], vocab: usize) -> (Vec<f32>, Vec<f32>) {
    let (mut columns, mut never) = (vec![0.0; vocab], vec![NEVER; vocab]);
    for (j, token) in tokens.iter().enumerate() {
        if let (Some(column), Some(addend)) = (columns.get_mut(*token), never.get_mut(*token)) {
            // (Below 2²⁴: vocabularies are.)
            (*column, *addend) = (j as f32, 0.0);
        }
    }
    (columns, never)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_draft_vocabulary() {
        let (columns, never) = places(&[1, 4], 5);
        assert_eq!(columns, [0.0, 0.0, 0.0, 0.0, 1.0]);
        assert_eq!(never, [NEVER, 0.0, NEVER, NEVER, 0.0]);
    }
}
