//! Decoders: embedding, layers of attention and an MLP, head. Data describe the differences of
//! their architectures.

use crate::arch::blocks::attention::{Attention, Form, HeadForm, Norm, capped, linear, norm, product, scaled};
pub(crate) use crate::arch::blocks::defaults::Defaults;
use crate::arch::blocks::drafts::Drafts;
use crate::arch::blocks::embedding_and_head::{picked, projected, table_with};
use crate::arch::blocks::entry::Shape;
use crate::arch::blocks::experts::{
    EXPERTS_NORM, EXPERTS_POST_NORM, Experts, MLP_OWN_NORM, mixture, router_input, sparse_by_types,
};
use crate::arch::blocks::fused_rows::FusedRows;
pub(crate) use crate::arch::blocks::layer::{Half, Layer, Norms};
use crate::arch::blocks::lifter::{Carried, Draft, Lifter};
use crate::arch::blocks::mlp::{Mlp, mlp};
use crate::arch::blocks::names::{
    ATTN_NORM, ATTN_POST_NORM, HEAD, Kind, LAYER_SCALE, MLP_NORM, MLP_POST_NORM, POSITIONS, Part, SCORE, TABLE_NORM,
};
use crate::arch::blocks::norm_gates::{ATTN_NORM_GATE, MLP_NORM_GATE, gated_norm};
use crate::arch::blocks::outputs::Yields;
use crate::arch::blocks::per_layer_embeddings::{self, LayerRows};
use crate::arch::blocks::recurrent_mixer::Mixer;
use crate::arch::blocks::residual_average::{all_averaged, averaged};
use crate::arch::blocks::sinusoidal_positions::Sines;
use crate::arch::blocks::token_mixer::{Context, selecting};
use crate::arch::blocks::weight_forms::root_of_width;
use crate::config::common::{self, DefaultHeads, Facts, Heads};
use crate::config::fields::Fields;
use crate::config::{ConfigError, rope as read_rope, sections};
use crate::error::FrontendError;
use crate::rope::{self, RopeConfig, Sections};
use llmcc_ir::graph::{AXES, Input, Op, UnaryOp, Value};
use llmcc_ir::output::{Output, Pool, Rows, RowsName};

/// A decoder.
#[derive(Clone, Debug)]
pub(crate) struct Decoder {
    /// Sizes and token ids that any model has.
    pub facts: Facts,
    /// All norms.
    pub norm: Norm,
    /// Where the norms of a block are.
    pub norms: Norms,
    /// How the norms of the blocks differ from `norm`.
    pub block_norms: BlockNorms,
    /// The layers.
    pub layers: Vec<Layer>,
    /// Rotary tables, which the layers share.
    pub ropes: Vec<RopeConfig>,
    /// From token ids to the rows of the first layer.
    pub embedding: Embedding,
    /// From the rows of the last layer to logits.
    pub head: Head,
    /// Factors and limits of embeddings, of the residual stream and of logits.
    pub scales: Scales,
    /// Embeddings for each layer.
    pub rows: Option<LayerRows>,
    /// Tensors of parts that are not compiled.
    pub ignored: Ignored,
    /// Names of the layers that predict further tokens, where those are compiled.
    pub draft: Option<Drafts>,
}

/// From token ids to the rows of the first layer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Embedding {
    /// Rows of the table after the vocabulary's, for tokens that no text has.
    pub more_rows: usize,
    /// Added to the embeddings of tokens, by position.
    pub positions: Option<Positions>,
    /// Columns of the table and of the head, where a matrix leads to the width of the layers and another back.
    pub narrow: Option<usize>,
    /// Norm of the embeddings.
    pub norm: Option<Norm>,
    /// Frequencies of the first rotary table are multiplied by the exponentials of learned numbers.
    pub learned_rope: bool,
    /// Pairs of the first rotary table turn along axes.
    pub sections: Option<Sections>,
}

/// Embeddings of positions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Positions {
    /// Rows of a stored table, from this row on.
    Learned(usize),
    /// Rows of a computed table.
    Sines(Sines),
}

/// From the rows of the last layer to logits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// The output of the last layer is normalized.
    pub norm: bool,
    /// A matrix, an activation and a norm before the head.
    pub dense: Option<DenseHead>,
    /// The head has a bias.
    pub bias: bool,
    /// The rows of the head have a norm of 1.
    pub unit: bool,
    /// Columns of an embedding's rows, where a matrix makes them from the layers' rows.
    pub made: Option<usize>,
}

impl Head {
    /// A norm and a matrix.
    pub(crate) const PLAIN: Head = Head { norm: true, dense: None, bias: false, unit: false, made: None };
}

/// How the norms of the blocks differ from the whole model's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockNorms {
    /// Norms before and after a block.
    pub own: Option<[Norm; 2]>,
    /// Rank of the gates of norms before attention and before experts.
    pub gates: Option<usize>,
}

/// Tensors of parts that are not compiled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ignored {
    /// The indexer of attention, which leaves no token out of contexts as long as those compiled for.
    pub indexer: bool,
    /// Experts from this index on are for tokens of images, and have a router of their own.
    pub image_experts: Option<usize>,
}

/// The layers before a head as for masked tokens: `norm(act(dense(x)))`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DenseHead {
    /// Activation.
    pub act: UnaryOp,
    /// The matrix has a bias.
    pub bias: bool,
}

/// The matrix before the head.
pub(crate) const HEAD_DENSE: Part = Part("head.dense");
/// The norm before the head.
pub(crate) const HEAD_NORM: Part = Part("head.norm");

/// Logarithms of the factors of frequencies.
pub(crate) const ROPE_POWERS: Part = Part("rope.powers");

/// From the columns of the table to the width of the layers.
pub(crate) const WIDEN: Part = Part("widen");
/// And back.
pub(crate) const NARROW: Part = Part("narrow");

/// Numbers that multiply; `None` = 1.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scales {
    /// Rows of the embedding table.
    pub embedding: Option<f32>,
    /// Factor of a block's contribution to the residual stream.
    pub residual: Option<f32>,
    /// Rows of the embedding table, by the root of their width, rounded to the type of the table.
    pub embedding_root: bool,
    /// Logits.
    pub logits: Option<f32>,
    /// Logits are `cap·tanh(x/cap)`.
    pub cap: Option<f32>,
    /// Blocks read the sum so far over the root of the number of summands.
    pub averaged: bool,
}

impl Decoder {
    /// Reads [`common::MODEL`], [`common::ATTENTION`], [`common::ROTARY`], [`common::MLP`] and the
    /// fields about windows. Layers are all alike, but for their windows: pre-norm, without biases.
    pub(crate) fn read(f: &Fields, d: &Defaults) -> Result<Decoder, ConfigError> {
        Decoder::read_with(f, d, |heads, max_position| {
            Ok(vec![read_rope::read_partial(f, heads.dim, max_position, d.theta, d.partial)?])
        })
    }

    /// [`read`](Decoder::read) with other rotary tables, made of the heads and the longest
    /// sequence.
    pub(crate) fn read_with(
        f: &Fields,
        d: &Defaults,
        ropes: impl FnOnce(Heads, usize) -> Result<Vec<RopeConfig>, ConfigError>,
    ) -> Result<Decoder, ConfigError> {
        let facts = Facts::read(f, d.vocab, d.max_position, d.tied)?;
        let heads = Heads::read(f, facts.hidden, DefaultHeads { queries: d.heads, kv: d.kv_heads, dim: d.head_dim })?;
        let ffn = f.size_or("intermediate_size", d.ffn.map(|n| facts.hidden.saturating_mul(n)))?;
        let norm = Norm::rms(common::eps(f, d.eps.0, d.eps.1)?);
        let ropes = ropes(heads, facts.max_position)?;
        let act = common::activation(f, d.act.0, d.act.1);
        let mlp = Mlp::gated(ffn, act);
        let windows = common::windows(f, d.window, facts.layers)?;
        let layers = windows
            .into_iter()
            .map(|window| Layer {
                attention: Attention::plain(heads, window),
                mixer: None,
                beside: None,
                norms: None,
                only: None,
                mlp,
                experts: None,
                scaled: false,
                shares: None,
            })
            .collect();
        let (norms, scales) = (Norms::Before, Scales::default());
        Ok(Decoder {
            facts,
            norm,
            norms,
            layers,
            ropes,
            block_norms: BlockNorms::default(),
            embedding: Embedding::default(),
            head: Head::PLAIN,
            scales,
            rows: None,
            ignored: Ignored::default(),
            draft: None,
        })
    }

    /// Turns the pairs of the first rotary table along axes, as the file's sections say, or the `usual` ones.
    pub(crate) fn with_sections(
        mut self,
        f: &Fields,
        form: sections::Form,
        usual: [usize; AXES],
    ) -> Result<Decoder, ConfigError> {
        if let Some(rope) = self.ropes.first() {
            self.embedding.sections = sections::read(f, rope.dim, form, usual)?;
        }
        Ok(self)
    }

    /// Changes the attention of every layer.
    pub(crate) fn with_attention(mut self, change: impl Fn(usize, &mut Attention)) -> Decoder {
        self.layers.iter_mut().enumerate().for_each(|(i, l)| change(i, &mut l.attention));
        self
    }

    /// Changes the attention of every layer that has heads of its own, and their form.
    pub(crate) fn with_heads(mut self, change: impl Fn(usize, &mut Attention, &mut HeadForm)) -> Decoder {
        self.layers.iter_mut().enumerate().for_each(|(i, l)| l.attention.change_heads(|a, h| change(i, a, h)));
        self
    }

    /// Gives queries, keys, values and the output of attention a bias, if they are to have one.
    pub(crate) fn with_attention_bias(self, bias: bool) -> Decoder {
        self.with_heads(|_, _, h| (h.qkv_bias, h.out_bias) = (bias, bias))
    }

    /// The same, and biases of the MLP, as [`common::ATTENTION_BIAS`] and [`common::MLP_BIAS`] say.
    pub(crate) fn with_biases(self, f: &Fields) -> Decoder {
        let mlp = f.flag("mlp_bias");
        self.with_attention_bias(f.flag("attention_bias")).with_mlp(|m| m.bias = mlp)
    }

    /// Attention sees later tokens too if [`common::CAUSAL`] says so; then those as far away as the window
    /// is long are in it, on either side.
    pub(crate) fn both_ways_if_said(self, f: &Fields) -> Decoder {
        if f.flag_or("is_causal", true) {
            return self;
        }
        self.with_attention(|_, a| (a.causal, a.window) = (false, a.window.map(|w| w + 1)))
    }

    /// Whether the layer after layer `i` reads the tokens that this one has selected with an indexer of its own.
    pub(crate) fn shares_selection(&self, i: usize) -> bool {
        let shared = |i: usize| match self.layers.get(i).map(|l| l.attention.form) {
            Some(Form::Latent(latent)) => latent.indexer.map(|i| i.shared),
            Some(Form::Heads(_)) | None => None,
        };
        shared(i) == Some(false) && shared(i + 1) == Some(true)
    }

    /// Replaces the attention of those layers that have something else.
    pub(crate) fn with_mixers(mut self, mixer: impl Fn(usize) -> Option<Mixer>) -> Decoder {
        self.layers.iter_mut().enumerate().for_each(|(i, l)| l.mixer = mixer(i));
        self
    }

    /// Changes the MLP of every layer.
    pub(crate) fn with_mlp(mut self, change: impl Fn(&mut Mlp)) -> Decoder {
        self.layers.iter_mut().for_each(|l| change(&mut l.mlp));
        self
    }

    /// Gives the table rows after the vocabulary's, which a head does not have; `tables`: their
    /// place, in words.
    pub(crate) fn with_more_rows(mut self, f: &Fields, rows: usize, tables: &str) -> Result<Decoder, ConfigError> {
        if self.facts.tied {
            let help = format!("this architecture has a head of fewer rows than its {tables}");
            return Err(f.unsupported("tie_word_embeddings", "true".into(), help));
        }
        self.embedding.more_rows = rows;
        Ok(self)
    }

    /// Gives layers experts.
    pub(crate) fn with_experts(mut self, of_layer: impl Fn(usize) -> Option<Experts>) -> Decoder {
        self.layers.iter_mut().enumerate().for_each(|(i, l)| l.experts = of_layer(i));
        self
    }

    /// Gives experts to the layers that [`sparse_by_types`] names.
    pub(crate) fn with_sparse(self, f: &Fields, first: usize, experts: Experts) -> Result<Decoder, ConfigError> {
        let sparse = sparse_by_types(f, self.layers.len(), first)?;
        Ok(self.with_experts(|i| sparse[i].then_some(experts)))
    }
}

impl Shape for Decoder {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn columns(&self) -> usize {
        self.head.made.or(self.embedding.narrow).unwrap_or(self.facts.hidden)
    }

    fn is_turned(&self) -> bool {
        self.layers.iter().any(|l| matches!(l.attention.form, Form::Heads(heads) if heads.transposed))
    }

    fn yields(&self) -> Yields {
        match self.layers.iter().all(|l| l.attention.causal) {
            true => Yields::LogitsOrRows(Pool::Last),
            // Tokens that see later ones cannot be predicted by them.
            false => Yields::Rows { pool: Pool::Mean, classes: Pool::Last },
        }
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (mut x, ropes) = embedding(l, self)?;
        let rows = self.rows.map(|of| per_layer_embeddings::all(l, of, self.norm, &x)).transpose()?;
        let (mut selection, mut fused) = (None, FusedRows::of(l));
        for (i, spec) in self.layers.iter().enumerate() {
            fused.take(i, &x);
            if !self.passes(i) {
                x = selecting_layer(l, self, i, spec, (&x, rows.as_ref()), &ropes, &mut selection)?;
            }
        }
        fused.take(self.layers.len(), &x);
        fused.lift(l)?;
        head(l, self, &x)
    }

    fn spare(&self) -> &'static [&'static str] {
        if self.head.dense.is_some() { &["lm_head.", "decoder."] } else { &[] }
    }

    fn shares_keys(&self, layer: usize) -> bool {
        self.layers.get(layer).is_some_and(|l| l.shares.is_some())
    }

    fn chooses(&self, tensor: &str) -> bool {
        let of_images = |count: &usize| {
            let expert = tensor.split_once(".mlp.experts.").and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
            tensor.ends_with(".mlp.gate.weight_1") || expert.is_some_and(|e: usize| e >= *count && e < 2 * *count)
        };
        let indexer = [".self_attn.indexer.", ".self_attn.index_", ".attention.indexer."];
        self.ignored.indexer && indexer.iter().any(|part| tensor.contains(part))
            || self.ignored.image_experts.as_ref().is_some_and(of_images)
    }

    fn passes(&self, layer: usize) -> bool {
        self.layers.get(layer).is_some_and(|l| l.only == Some(Half::Neither))
    }
}

/// `embed`: rows of the table, and the rotary tables that layers share.
pub(crate) fn embedding(l: &mut Lifter, d: &Decoder) -> Result<(Carried, Vec<Carried>), FrontendError> {
    let mut f = l.func("embed");
    let table = table_with(&mut f, d.embedding.more_rows, d.embedding.narrow.unwrap_or(d.facts.hidden));
    let mut of_table = |(i, rope)| match d.embedding.sections.filter(|_| i == 0) {
        Some(sections) => inv_freq_of_axes(&mut f, rope, sections),
        None => inv_freq(&mut f, rope, i),
    };
    let mut frequencies: Vec<(Value, Op)> = d.ropes.iter().enumerate().map(&mut of_table).collect();
    if let (true, Some((first, _)), Some(rope)) = (d.embedding.learned_rope, frequencies.first_mut(), d.ropes.first()) {
        let powers = f.weight(ROPE_POWERS, Kind::Bare, &[rope.dim / 2]);
        let factors = f.unary(UnaryOp::Exp, powers);
        *first = f.mul(*first, factors);
    }
    let tokens = f.input(Input::Tokens);
    let x = f.op(Op::Embed, &[table, tokens]);
    let x = match d.embedding.narrow {
        Some(width) => linear(&mut f, WIDEN, [d.facts.hidden, width], false, x),
        None => x,
    };
    let x = scaled(&mut f, x, d.scales.embedding);
    let root = d.scales.embedding_root.then(|| root_of_width(&f, table, d.facts.hidden));
    let x = scaled(&mut f, x, root);
    let mut x = f.with_images(x);
    let placed = d.embedding.positions.is_some();
    let sections = d.embedding.sections.filter(|_| !frequencies.is_empty());
    let plain = frequencies.len() > usize::from(sections.is_some());
    let positions = (placed || plain).then(|| f.input(Input::Positions));
    if let Some(positions) = positions.filter(|_| placed) {
        let table = positions_table(&mut f, d);
        let rows = f.op(Op::EmbedPositions { every: 1, shift: 0 }, &[table, positions]);
        x = f.add(x, rows);
    }
    if let Some(spec) = d.embedding.norm {
        x = norm(&mut f, TABLE_NORM, spec, x, d.facts.hidden);
    }
    let mut results = vec![x];
    let axes = sections.map(|_| f.input(Input::Axes));
    for (i, (inv_freq, table)) in frequencies.into_iter().enumerate() {
        let by = if i == 0 { axes.or(positions) } else { positions };
        results.extend(by.map(|by| f.op(table, &[by, inv_freq])));
    }
    let mut carried = f.call(&results)?.into_iter();
    let x = carried.next();
    Ok((x.unwrap_or_default(), carried.collect()))
}

/// The table of positions.
fn positions_table(f: &mut Draft, d: &Decoder) -> Value {
    let (skip, len) = match d.embedding.positions {
        Some(Positions::Sines(sines)) => return sines.table(f, d.facts.hidden),
        Some(Positions::Learned(skip)) => (skip, d.facts.max_position),
        None => (0, d.facts.max_position),
    };
    let table = f.weight(POSITIONS, Kind::Table, &[len.saturating_add(skip), d.facts.hidden]);
    if skip > 0 { f.op(Op::SliceRows { start: skip, len }, &[table]) } else { table }
}

/// The frequencies of rotary table `i`, and the operation that makes it of them.
pub(crate) fn inv_freq(f: &mut Draft, rope: &RopeConfig, i: usize) -> (Value, Op) {
    let rope = rope::frequencies(rope, f.max_context());
    let table = rope.table();
    let number = if i == 0 { String::new() } else { i.to_string() };
    (f.computed(&format!("inv_freq{number}"), &format!("$rope.inv_freq{number}"), rope.inv_freq), table)
}

/// The frequencies of the first rotary table along axes, and the operation that makes it of them.
fn inv_freq_of_axes(f: &mut Draft, rope: &RopeConfig, sections: Sections) -> (Value, Op) {
    let rope = rope::frequencies(rope, f.max_context());
    let spread = sections.spread(&rope.inv_freq);
    (f.computed("inv_freq", "$rope.inv_freq", spread), rope.table_of_axes())
}

/// One layer; gives the new residual stream.
pub(crate) fn layer(
    l: &mut Lifter,
    d: &Decoder,
    i: usize,
    spec: &Layer,
    (x, rows): (&Carried, Option<&Carried>),
    ropes: &[Carried],
) -> Result<Carried, FrontendError> {
    selecting_layer(l, d, i, spec, (x, rows), ropes, &mut None)
}

/// The same, of a layer that may read the tokens which an earlier one has selected, or select some itself.
fn selecting_layer(
    l: &mut Lifter,
    d: &Decoder,
    i: usize,
    spec: &Layer,
    (x, rows): (&Carried, Option<&Carried>),
    ropes: &[Carried],
    selection: &mut Option<Carried>,
) -> Result<Carried, FrontendError> {
    let norms = spec.norms.unwrap_or(d.norms);
    let mut f = l.layer("layer", i);
    let x = f.carried("x", x);
    let rows = rows.map(|rows| f.carried("rows", rows));
    let context = Context::of(&mut f, spec, ropes).selecting(&mut f, spec, selection.as_ref());
    let mut selected = None;
    let mut attend = |f: &mut Draft, h| {
        let h = gated_norm(f, ATTN_NORM_GATE, d.block_norms.gates, h);
        let (y, of_layer) = selecting(f, d.norm, spec, context, h);
        selected = of_layer.filter(|_| d.shares_selection(i));
        y
    };
    let x = if let Norms::Parallel { own } = norms {
        let h = norm(&mut f, ATTN_NORM, d.norm, x, d.facts.hidden);
        let second = if own { norm(&mut f, MLP_NORM, d.norm, x, d.facts.hidden) } else { h };
        let x = added(&mut f, d, x, |f| attend(f, h));
        added(&mut f, d, x, |f| feed(f, d, spec, x, second))
    } else {
        let (first, second) = ([ATTN_NORM, ATTN_POST_NORM], [MLP_NORM, MLP_POST_NORM]);
        let x = match (spec.only, norms) {
            (Some(Half::Second), _) => x,
            (_, Norms::BeforeMlp) => added(&mut f, d, x, |f| attend(f, x)),
            _ => residual(&mut f, d, norms, first, x, &mut attend),
        };
        if spec.only == Some(Half::First) {
            x
        } else {
            residual(&mut f, d, norms, second, x, |f, h| feed(f, d, spec, x, h))
        }
    };
    let x = match (d.rows, rows) {
        (Some(of), Some(rows)) => {
            let own = of.own(&mut f, i, rows);
            added(&mut f, d, x, |f| of.gated(f, d.norm, spec.mlp.act, x, own))
        }
        _ => x,
    };
    let x = if spec.scaled {
        let by = f.weight(LAYER_SCALE, Kind::Bare, &[1]);
        f.mul(x, by)
    } else {
        x
    };
    let mut results = f.call(&[x].into_iter().chain(selected).collect::<Vec<_>>())?.into_iter();
    let x = results.next().unwrap_or_default();
    *selection = results.next().or(selection.take());
    Ok(x)
}

/// The output of a layer's MLP or experts for `h`, the norm of `x`.
pub(crate) fn feed(f: &mut Draft, d: &Decoder, spec: &Layer, x: Value, h: Value) -> Value {
    match &spec.experts {
        Some(experts) if experts.place.beside_mlp => {
            let y = mlp(f, &spec.mlp, h);
            let y = norm(f, MLP_OWN_NORM, d.norm, y, d.facts.hidden);
            let h = norm(f, EXPERTS_NORM, d.norm, x, d.facts.hidden);
            let routed = router_input(f, d.norm, x);
            let z = mixture(f, experts, h, routed);
            let z = norm(f, EXPERTS_POST_NORM, d.norm, z, d.facts.hidden);
            f.add(y, z)
        }
        Some(experts) => {
            let h = gated_norm(f, MLP_NORM_GATE, d.block_norms.gates, h);
            let y = mixture(f, experts, h, h);
            if experts.place.out_norm { norm(f, EXPERTS_POST_NORM, d.norm, y, d.facts.hidden) } else { y }
        }
        None => mlp(f, &spec.mlp, h),
    }
}

/// `x` plus a block's output.
fn added(f: &mut Draft, d: &Decoder, x: Value, block: impl FnOnce(&mut Draft) -> Value) -> Value {
    let y = block(f);
    let y = scaled(f, y, d.scales.residual);
    f.add(x, y)
}

/// `x` plus a block's output, with its norms before and after.
fn residual(
    f: &mut Draft,
    d: &Decoder,
    norms: Norms,
    [before, after]: [Part; 2],
    x: Value,
    block: impl FnOnce(&mut Draft, Value) -> Value,
) -> Value {
    let [first, last] = d.block_norms.own.unwrap_or([d.norm; 2]);
    let normed = |f: &mut Draft, spec, part, x| norm(f, part, spec, x, d.facts.hidden);
    let own = averaged(f, d.scales.averaged, before, x);
    match norms {
        Norms::Around => {
            let x = added(f, d, x, |f| block(f, x));
            normed(f, first, before, x)
        }
        Norms::Before | Norms::Entering | Norms::BeforeMlp | Norms::Parallel { .. } => {
            let h = normed(f, first, before, own);
            added(f, d, if norms == Norms::Entering { h } else { x }, |f| block(f, h))
        }
        Norms::After | Norms::Both => {
            let h = if norms == Norms::After { own } else { normed(f, first, before, own) };
            added(f, d, x, |f| {
                let y = block(f, h);
                normed(f, last, after, y)
            })
        }
    }
}

/// `head`: logits of the requested rows, or the embedding's rows.
pub(crate) fn head(l: &mut Lifter, d: &Decoder, x: &Carried) -> Result<(), FrontendError> {
    let mut f = l.func("head");
    let last = if d.scales.averaged { all_averaged(d.norm, d.layers.len()) } else { d.norm };
    let x = picked(&mut f, d.head.norm.then_some(last), x);
    output(f, d, x)
}

/// The output of the wanted, normalized rows.
pub(crate) fn output(mut f: Draft, d: &Decoder, x: Value) -> Result<(), FrontendError> {
    let (columns, x) = match d.head.made.or(d.embedding.narrow) {
        Some(width) => (width, linear(&mut f, NARROW, [width, d.facts.hidden], false, x)),
        None => (d.facts.hidden, x),
    };
    if let Output::Rows(Rows { name: RowsName::Scores, width, .. }) = f.output() {
        let x = linear(&mut f, SCORE, [width, columns], false, x);
        f.call(&[x])?;
        return Ok(());
    }
    if let Some(embedding) = f.embedding() {
        let x = projected(&mut f, &embedding, x);
        f.call(&[x])?;
        return Ok(());
    }
    let x = match d.head.dense {
        Some(DenseHead { act, bias }) => {
            let x = linear(&mut f, HEAD_DENSE, [d.facts.hidden; 2], bias, x);
            let x = f.unary(act, x);
            norm(&mut f, HEAD_NORM, d.norm, x, d.facts.hidden)
        }
        None => x,
    };
    let shape = [d.facts.vocab, columns];
    let logits = if d.facts.tied {
        let table = f.tied_table(shape);
        let bias = d.head.bias.then(|| f.bias(HEAD, shape[0]));
        product(&mut f, x, table, bias)
    } else if d.head.unit {
        let w = f.matrix(HEAD, shape);
        let w = f.op(Op::UnitRows, &[w]);
        f.matmul(x, w)
    } else {
        linear(&mut f, HEAD, shape, d.head.bias, x)
    };
    let logits = scaled(&mut f, logits, d.scales.logits);
    let logits = capped(&mut f, logits, d.scales.cap);
    f.call(&[logits])?;
    Ok(())
}
