//! Encoders: every token sees the whole text (or pair of texts), and there are no logits. Data
//! describe the differences of their architectures.

use crate::arch::blocks::attention::{
    Attention, Form, HeadForm, Norm, Projection, QkNorm, attention, linear, norm, scaled,
};
use crate::arch::blocks::attention_scores::mean_so_far;
use crate::arch::blocks::decoder::inv_freq;
use crate::arch::blocks::embedding_and_head::{gathered, head_apart, projected};
use crate::arch::blocks::entry::Shape;
use crate::arch::blocks::experts::{Experts, mixture};
use crate::arch::blocks::learned_positions::{Positions, rows_without};
use crate::arch::blocks::lifter::{Carried, Draft, Lifter};
use crate::arch::blocks::masked_tokens::scaled_for_masks;
use crate::arch::blocks::mlp::{Mlp, mlp};
use crate::arch::blocks::names::{
    ATTN_NORM, ATTN_POST_NORM, CLASSES, Kind, MLP_NORM, MLP_POST_NORM, NORM, POOLER, POOLER_NORM, POSITIONS, Part,
    TABLE, TABLE_NORM, TASKS, TYPES,
};
use crate::arch::blocks::outputs::Yields;
use crate::arch::blocks::shared_layers::Groups;
use crate::arch::blocks::sinusoidal_positions::Sines;
use crate::config::ConfigError;
use crate::config::common::{self, DefaultHeads, Facts, Heads};
use crate::config::dictionary::fields;
use crate::config::fields::{Field, Fields};
use crate::config::known::{Neutral, fixed};
use crate::config::rope_base::read_ntk;
use crate::error::FrontendError;
use crate::rope::{RopeConfig, frequencies};
use llmcc_ir::graph::{BinaryOp, Input, Op, UnaryOp, Value};
use llmcc_ir::output::{Output, Pool, Rows, RowsName};

/// An encoder.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    /// Facts common to all models.
    pub facts: Facts,
    /// All norms.
    pub norm: Norm,
    /// Norms come before the blocks, with one more after the last; else after the residual
    /// addition.
    pub norm_first: bool,
    /// From token ids to the rows of the first layer.
    pub embedding: Embedding,
    /// The layers.
    pub layers: Vec<Layer>,
    /// Layers share their weights.
    pub groups: Option<Groups>,
    /// Rotary tables, which the layers share.
    pub ropes: Vec<RopeConfig>,
    /// Rows of a stored rotary table, sines before cosines, in place of these.
    pub turns: Option<usize>,
    /// How scores of classes are made.
    pub classes: ClassHead,
    /// Beginnings of the names of tensors that only other uses of the model read.
    pub spare: &'static [&'static str],
    /// Parts of the names of others that are not compiled.
    pub passes: &'static [&'static str],
}

/// From token ids to the rows of the first layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Embedding {
    /// There is a norm of the embeddings.
    pub norm: bool,
    /// Learned positions, if there are any.
    pub positions: Option<Positions>,
    /// Types of tokens; 0: there are none. Tokens of a single text have the first type, so only
    /// models that compare pairs of texts take types as input.
    pub types: usize,
    /// Tasks that texts may be for; 0: nothing is added for them. All texts are for the first.
    pub tasks: usize,
    /// The token that is masked, where the others are scaled by how many tokens are: see
    /// [`scaled_for_masks`]. Tables are as wide as the layers then.
    pub dropped: Option<usize>,
    /// Tables have so many columns, and a matrix with a bias to the width of the layers.
    pub narrow: Option<usize>,
    /// Sines in the place of learned positions, where the checkpoint has no table of them.
    pub sines: Option<Sines>,
    /// Multiplies the rows of tokens.
    pub scale: Option<f32>,
    /// Other functions read the table of tokens, unless the head has a matrix of its own.
    pub shared: bool,
}

impl Embedding {
    /// Rows of tokens, and their norm.
    const PLAIN: Embedding = Embedding {
        norm: true,
        positions: None,
        types: 0,
        tasks: 0,
        dropped: None,
        narrow: None,
        sines: None,
        scale: None,
        shared: false,
    };
}

/// `x` with the rows of its tokens' positions, of a table by these, and of their types.
pub(crate) fn placed(f: &mut Draft, x: Value, positions: Option<(Value, Value)>, types: Option<Value>) -> Value {
    let mut x = x;
    if let Some((table, positions)) = positions {
        let y = f.op(Op::EmbedPositions { every: 1, shift: 0 }, &[table, positions]);
        x = f.add(x, y);
    }
    if let Some(table) = types {
        let types = f.input(Input::Types);
        let y = f.op(Op::EmbedTypes, &[table, types]);
        x = f.add(x, y);
    }
    x
}

/// The norm after the input was added once more.
pub(crate) const AGAIN_NORM: Part = Part("attn.again_norm");
/// From the columns of the tables to the width of the layers.
pub(crate) const WIDEN: Part = Part("widen");
/// Sines and cosines of rotary positions.
pub(crate) const TURNS: Part = Part("turns");
/// Frequencies of rotary positions, which count in place of those that follow from the configuration.
pub(crate) const FREQUENCIES: Part = Part("inv_freq");

/// A layer of an [`Encoder`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    /// Its attention.
    pub attention: Attention,
    /// There is a norm before attention (if norms come first).
    pub attention_norm: bool,
    /// The input is added once more to the output of attention and its norm, and normalized again.
    /// False: where the checkpoint has that norm, with norms of queries and keys.
    pub again: Option<bool>,
    /// Its MLP.
    pub mlp: Mlp,
    /// Experts in its place.
    pub experts: Option<Experts>,
}

/// The head of a classifier: `classes(act(pooler(row)))` of one token's row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassHead {
    /// Whose row.
    pub pool: Pool,
    /// There is a matrix between, with an activation; else scores are made of the row itself.
    pub dense: bool,
    /// Its activation.
    pub act: UnaryOp,
    /// The matrix between has a bias.
    pub bias: bool,
    /// Its result is normalized.
    pub norm: bool,
    /// It reads every row, and its scores are the mean of theirs.
    pub late: bool,
}

impl ClassHead {
    /// Whose row `classifier_pooling` says: the first token's, or the mean of all.
    pub(crate) fn pool(f: &Fields) -> Result<Pool, ConfigError> {
        match f.text("classifier_pooling") {
            None | Some("cls") => Ok(Pool::First),
            Some("mean") => Ok(Pool::Mean),
            Some(other) => {
                let help = "this architecture supports `cls` and `mean`".into();
                Err(f.unsupported("classifier_pooling", format!("\"{other}\""), help))
            }
        }
    }

    /// That of BERT.
    pub(crate) const BERT: ClassHead =
        ClassHead { pool: Pool::First, dense: true, act: UnaryOp::Tanh, bias: true, norm: false, late: false };
}

/// Fields of BERT and those after it.
pub(crate) const FIELDS: &[Field] = fields! {
    num_attention_heads, intermediate_size, hidden_act, layer_norm_eps, type_vocab_size,
};

/// Those without kinds of tokens.
pub(crate) const FIELDS_WITHOUT_TYPES: &[Field] =
    fields! { num_attention_heads, intermediate_size, hidden_act, layer_norm_eps };

/// The token that fills texts up: learned positions begin after its number, where they do not with 0.
pub(crate) const FILL: &[Field] = fields! { pad_token_id };

/// Fields that the class decides.
pub(crate) const FIXED: &[(&str, Neutral)] = fixed! {
    Words(&["absolute"]) => position_embedding_type;
    Off => is_decoder add_cross_attention;
};

/// Differences of the configuration classes of BERT and its successors.
pub(crate) struct Defaults {
    /// `type_vocab_size`.
    pub types: usize,
    /// Row of the first position in its table; unless it is 0, [`FILL`] counts where it is declared.
    pub first: usize,
    /// `layer_norm_eps`.
    pub eps: f64,
    /// `hidden_act`.
    pub act: UnaryOp,
    /// `max_position_embeddings`.
    pub max_position: usize,
    /// Beginnings of the names of tensors of other uses.
    pub spare: &'static [&'static str],
}

impl Defaults {
    /// BERT's defaults.
    pub(crate) const BERT: Defaults = Defaults {
        types: 2,
        first: 0,
        eps: 1e-12,
        act: UnaryOp::Gelu,
        max_position: 512,
        spare: &["bert.pooler.", "pooler.", "cls."],
    };
    /// RoBERTa's defaults; its padding token is the second of the vocabulary.
    pub(crate) const ROBERTA: Defaults =
        Defaults { first: 2, spare: &["roberta.pooler.", "pooler.", "lm_head."], ..Defaults::BERT };
}

impl Encoder {
    /// Reads [`common::MODEL`], [`FIELDS`] and [`FILL`].
    pub(crate) fn read(f: &Fields, d: &Defaults) -> Result<Encoder, ConfigError> {
        let mut facts = Facts::read(f, None, d.max_position, true)?;
        let rows = facts.max_position;
        let fill = f.count("pad_token_id").filter(|_| d.first > 0);
        let first = fill.map_or(d.first, |fill| fill.saturating_add(1));
        if rows <= first {
            let expected = format!("more than {first}: positions begin with row {first} of their table");
            return Err(f.invalid("max_position_embeddings", &rows, expected));
        }
        facts.max_position = rows - first;
        let heads = Heads::read(f, facts.hidden, DefaultHeads::default())?;
        let (ffn, act) = (f.required_size("intermediate_size")?, common::activation(f, "hidden_act", d.act));
        let mut e = Encoder::alike(facts, heads, (ffn, act), common::eps(f, "layer_norm_eps", d.eps)?);
        let filler = first.checked_sub(1).filter(|filler| *filler < e.facts.vocab);
        e.embedding.positions = Some(Positions { rows, first, filler });
        e.embedding.types = f.size("type_vocab_size").or(d.types);
        e.spare = d.spare;
        Ok(e)
    }

    /// BERT with rotary positions instead of learned ones, and with fused queries, keys and values.
    /// Reads [`ROTARY`](common::ROTARY) and [`FIELDS_WITHOUT_TYPES`].
    pub(crate) fn rotated(f: &Fields, facts: Facts, ffn: usize, eps: f64, theta: f64) -> Result<Encoder, ConfigError> {
        let heads = Heads::read(f, facts.hidden, DefaultHeads::default())?;
        let (ffn, act) = (f.size("intermediate_size").or(ffn), common::activation(f, "hidden_act", UnaryOp::Gelu));
        let rope = read_ntk(f, heads.dim, facts.max_position, theta)?;
        let mut e = Encoder::alike(facts, heads, (ffn, act), common::eps(f, "layer_norm_eps", eps)?);
        e.ropes = vec![rope];
        for layer in &mut e.layers {
            layer.attention.change_heads(|a, h| (h.projection, a.rotary) = (Projection::Fused, Some(0)));
        }
        Ok(e)
    }

    /// Equal layers, with biases, and norms after the residual addition; without positions and
    /// kinds of tokens.
    pub(crate) fn alike(facts: Facts, heads: Heads, (ffn, act): (usize, UnaryOp), eps: f32) -> Encoder {
        let mlp = Mlp { gated: false, bias: true, ..Mlp::gated(ffn, act) };
        let form = Form::Heads(HeadForm { qkv_bias: true, out_bias: true, ..HeadForm::PLAIN });
        let attention = Attention { rotary: None, causal: false, form, ..Attention::plain(heads, None) };
        Encoder {
            norm: Norm::layer(eps),
            norm_first: false,
            embedding: Embedding::PLAIN,
            layers: vec![Layer { attention, attention_norm: true, again: None, mlp, experts: None }; facts.layers],
            groups: None,
            ropes: vec![],
            turns: None,
            classes: ClassHead::BERT,
            spare: &[],
            passes: &[],
            facts,
        }
    }

    /// The numbers under which the weights of layer `i` are stored: of its group, and in it.
    fn stored_as(&self, i: usize) -> Vec<(usize, Option<usize>)> {
        match self.groups {
            None => vec![(i, None)],
            Some(groups) => {
                let group = groups.of(i, self.layers.len());
                (0..groups.inner).map(|layer| (group, Some(layer))).collect()
            }
        }
    }

    /// Norms of BERT: after the residual addition, and of embeddings.
    pub(crate) fn residual(
        &self,
        f: &mut Draft,
        [before, after]: [Part; 2],
        x: Value,
        normed: bool,
        block: impl FnOnce(&mut Draft, Value) -> Value,
    ) -> Value {
        let hidden = self.facts.hidden;
        if !self.norm_first {
            let y = block(f, x);
            let x = f.add(x, y);
            return norm(f, after, self.norm, x, hidden);
        }
        let h = if normed { norm(f, before, self.norm, x, hidden) } else { x };
        let y = block(f, h);
        f.add(x, y)
    }

    /// The tables of tokens, of positions, and of types less the first one.
    fn tables(&self, f: &mut Draft) -> (Value, Option<Value>, Option<Value>) {
        let (vocab, width) = (self.facts.vocab, self.embedding.narrow.unwrap_or(self.facts.hidden));
        let mut table = match self.embedding.shared && !head_apart(f) {
            true => f.tied_table([vocab, width]),
            false => f.weight(TABLE, Kind::Table, &[vocab, width]),
        };
        let (learned, others) = self.tables_beside(f, &mut table, width);
        (table, learned, others)
    }

    /// Tables of positions and of types less the first one, of so many columns; the row common to
    /// all tokens is added to the table of positions, or to the table of tokens.
    pub(crate) fn tables_beside(
        &self,
        f: &mut Draft,
        tokens: &mut Value,
        width: usize,
    ) -> (Option<Value>, Option<Value>) {
        let sines = self.embedding.sines.filter(|_| !f.stores(POSITIONS, Kind::Table));
        let mut learned = self.embedding.positions.map(|p| {
            if let Some(sines) = sines {
                return sines.table(f, width);
            }
            let table = f.weight(POSITIONS, Kind::Table, &[p.rows, width]);
            match p.start() {
                0 => table,
                start => f.op(Op::SliceRows { start, len: p.rows.saturating_sub(start) }, &[table]),
            }
        });
        // The first type's row is the same for all tokens of a single text: it may as well be in
        // another table. Others are added less that row, so that without them nothing is.
        let mut others = None;
        if self.embedding.types > 0 {
            let types = f.weight(TYPES, Kind::Table, &[self.embedding.types, width]);
            let first = f.op(Op::Row { index: 0 }, &[types]);
            let into = learned.as_mut().unwrap_or(tokens);
            *into = f.add(*into, first);
            let compares = matches!(f.output(), Output::Rows(Rows { name: RowsName::Scores, .. }));
            others = (self.embedding.types > 1 && compares).then(|| f.op(Op::Binary(BinaryOp::Sub), &[types, first]));
        }
        if self.embedding.tasks > 0 {
            let tasks = f.weight(TASKS, Kind::Table, &[self.embedding.tasks, width]);
            let first = f.op(Op::Row { index: 0 }, &[tasks]);
            let into = learned.as_mut().unwrap_or(tokens);
            *into = f.add(*into, first);
        }
        (learned, others)
    }

    /// `embed`: the sum of all tables, normalized, and the rotary tables that layers share.
    pub(crate) fn embedding(&self, l: &mut Lifter) -> Result<(Carried, Vec<Carried>), FrontendError> {
        let hidden = self.embedding.narrow.unwrap_or(self.facts.hidden);
        let mut f = l.func("embed");
        let (table, learned, others) = self.tables(&mut f);
        let tokens = f.input(Input::Tokens);
        let filler = self.embedding.positions.and_then(|p| Some((p, p.filler?)));
        let early = learned.is_some() && filler.is_none() || self.embedding.dropped.is_some();
        let positions = early.then(|| f.input(Input::Positions));
        let mut x = match self.embedding.dropped.zip(positions) {
            Some((mask, positions)) => scaled_for_masks(&mut f, table, tokens, positions, mask),
            None => f.op(Op::Embed, &[table, tokens]),
        };
        x = scaled(&mut f, x, self.embedding.scale);
        let counted = match (learned, filler) {
            (Some(table), Some((p, filler))) => {
                let y = rows_without(&mut f, (table, p.rows.saturating_sub(p.start())), tokens, filler);
                x = f.add(x, y);
                None
            }
            _ => learned.zip(positions),
        };
        x = placed(&mut f, x, counted, others);
        if self.embedding.norm {
            x = norm(&mut f, TABLE_NORM, self.norm, x, hidden);
        }
        if let Some(width) = self.embedding.narrow {
            x = linear(&mut f, WIDEN, [self.facts.hidden, width], true, x);
        }
        let mut results = vec![x];
        if !self.ropes.is_empty() || self.turns.is_some() {
            let positions = positions.unwrap_or_else(|| f.input(Input::Positions));
            results.extend(self.turns.map(|rows| self.turned(&mut f, rows, positions)));
            let stored = f.stores(FREQUENCIES, Kind::Bare);
            for (i, rope) in self.ropes.iter().enumerate() {
                let (inv_freq, table) = match stored {
                    true => {
                        let table = frequencies(rope, f.max_context()).table();
                        (f.weight(FREQUENCIES, Kind::Bare, &[rope.dim / 2]), table)
                    }
                    false => inv_freq(&mut f, rope, i),
                };
                results.push(f.op(table, &[positions, inv_freq]));
            }
        }
        let mut carried = f.call(&results)?.into_iter();
        let x = carried.next();
        Ok((x.unwrap_or_default(), carried.collect()))
    }

    /// The rotary table of tokens by a stored one.
    fn turned(&self, f: &mut Draft, rows: usize, positions: Value) -> Value {
        let dim = self.layers.first().map_or(0, |layer| layer.attention.heads.dim);
        let table = f.weight(TURNS, Kind::Table, &[rows, dim]);
        // Cosines come first here.
        let order = (0..dim).map(|j| ((j + dim / 2) % dim) as f32).collect();
        let order = f.computed("turns.order", "$turns.order", order);
        let table = f.op(Op::PlaceCols, &[table, order]);
        f.op(Op::EmbedPositions { every: 1, shift: 0 }, &[table, positions])
    }

    /// Layer `i`, of a group the `inner`-th.
    pub(crate) fn layer(
        &self,
        l: &mut Lifter,
        (i, inner): (usize, Option<usize>),
        spec: &Layer,
        x: &Carried,
        ropes: &[Carried],
    ) -> Result<Carried, FrontendError> {
        let mut f = match inner {
            Some(inner) => l.half("layer", i, inner),
            None => l.layer("layer", i),
        };
        let mut a = spec.attention;
        let again = spec.again.is_some_and(|always| always || f.stores(AGAIN_NORM, Kind::Gain));
        if again {
            a.change_heads(|_, h| h.qk_norm = Some(QkNorm::Row));
        }
        let a = &a;
        let x = f.carried("x", x);
        let rope = a.rotary.and_then(|table| ropes.get(table)).map(|rope| f.carried("rope", rope));
        let positions = f.input(Input::Positions);
        let kv = f.kv("kv", a.heads.kv, (a.heads.dim, a.heads.dim), a.window);
        let block = |f: &mut Draft, h| attention(f, a, self.norm, h, kv, positions, rope);
        let y = self.residual(&mut f, [ATTN_NORM, ATTN_POST_NORM], x, spec.attention_norm, block);
        let x = if again {
            let y = f.add(y, x);
            norm(&mut f, AGAIN_NORM, self.norm, y, self.facts.hidden)
        } else {
            y
        };
        let x = self.residual(&mut f, [MLP_NORM, MLP_POST_NORM], x, true, |f, h| match &spec.experts {
            Some(experts) => mixture(f, experts, h, h),
            None => mlp(f, &spec.mlp, h),
        });
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }

    /// `embed` and the layers: the rows after the last one.
    pub(crate) fn rows(&self, l: &mut Lifter) -> Result<Carried, FrontendError> {
        let (x, ropes) = self.embedding(l)?;
        self.after_layers(l, x, &ropes)
    }

    /// The rows after the last layer, by the rows before the first.
    pub(crate) fn after_layers(&self, l: &mut Lifter, x: Carried, ropes: &[Carried]) -> Result<Carried, FrontendError> {
        let mut x = x;
        for (i, spec) in self.layers.iter().enumerate() {
            for stored in self.stored_as(i) {
                x = self.layer(l, stored, spec, &x, ropes)?;
            }
        }
        Ok(x)
    }

    /// `head`: the wanted rows, or scores of classes by them.
    pub(crate) fn head(&self, l: &mut Lifter, x: &Carried) -> Result<(), FrontendError> {
        let hidden = self.facts.hidden;
        let mut f = l.func("head");
        let mut x = f.carried("x", x);
        let classes = match f.output() {
            Output::Rows(Rows { name: RowsName::Scores, width, .. }) => Some(width),
            Output::Rows(_) | Output::Logits | Output::Hidden | Output::Image => None,
        };
        let of_classes = classes.is_some() && self.classes.pool == Pool::Mean;
        let means = of_classes || f.embedding().is_some_and(|e| e.means_first());
        if !means {
            x = gathered(&mut f, x);
        }
        if self.norm_first {
            x = norm(&mut f, NORM, self.norm, x, hidden);
        }
        // The mean of scores equals the matrix applied to the mean.
        let late = of_classes && self.classes.late;
        if late {
            x = self.pooled(&mut f, x);
        }
        if means {
            x = mean_so_far(&mut f, x);
            x = gathered(&mut f, x);
        }
        if let Some(width) = classes {
            x = if late { x } else { self.pooled(&mut f, x) };
            x = linear(&mut f, CLASSES, [width, hidden], true, x);
        }
        if let Some(embedding) = f.embedding() {
            x = projected(&mut f, &embedding, x);
        }
        f.call(&[x])?;
        Ok(())
    }
}

impl Encoder {
    /// The row from which the scores of classes are made.
    fn pooled(&self, f: &mut Draft, x: Value) -> Value {
        if !self.classes.dense {
            return x;
        }
        let hidden = self.facts.hidden;
        let x = linear(f, POOLER, [hidden, hidden], self.classes.bias, x);
        let x = f.unary(self.classes.act, x);
        if self.classes.norm { norm(f, POOLER_NORM, self.norm, x, hidden) } else { x }
    }
}

impl Shape for Encoder {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn yields(&self) -> Yields {
        // The mean of all rows is made in the graph, and the last row has the whole of it.
        let classes = if self.classes.pool == Pool::Mean { Pool::Last } else { self.classes.pool };
        Yields::Rows { pool: Pool::Mean, classes }
    }

    fn spare(&self) -> &'static [&'static str] {
        self.spare
    }

    fn chooses(&self, tensor: &str) -> bool {
        self.passes.iter().any(|part| tensor.contains(part))
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let x = self.rows(l)?;
        self.head(l, &x)
    }
}
