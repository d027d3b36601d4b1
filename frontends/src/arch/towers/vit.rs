//! Vision transformers (arXiv 2010.11929) of images of one size: CLIP's (arXiv 2103.00020) and SigLIP's (arXiv
//! 2303.15343). Patches are the tokens; each sees all others.
//!
//! The caller gives patches as rows, their channels one after the other. A class token is a row of zeros before them:
//! its vector is added to its row of the table of positions.

use crate::arch::blocks::attention::{Attention, Norm, linear, norm, parts, product, stored};
use crate::arch::blocks::attention_scores::attended;
use crate::arch::blocks::lifter::{Carried, Draft, Lifter};
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_QKV, ATTN_V, Kind, MLP_DOWN, MLP_NORM, MLP_UP, POSITIONS, Part,
};
use crate::config::ConfigError;
use crate::config::common::{self, Heads};
use crate::config::dictionary::fields;
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::{Neutral, fixed};
use crate::error::FrontendError;
use crate::rope::{self, RopeConfig, RopeScaling, Sections};
use llmcc_ir::graph::{Input, Op, UnaryOp, Value};
use serde_json::{Map, json};

/// The matrix that patches are multiplied by, stored as a convolution.
pub(crate) const PATCH: Part = Part("patch");
/// The vector of the class token.
pub(crate) const CLASS: Part = Part("class");
/// The norm before the layers.
pub(crate) const FIRST_NORM: Part = Part("first_norm");

/// Fields of `vision_config` of films (Qwen2-VL).
const OF_FILMS: &[Field] = &[
    Field::new("depth", Accepts::Size(1 << 12)),
    Field::new("embed_dim", Accepts::Size(1 << 16)),
    Field::new("num_heads", Accepts::Size(1 << 12)),
    Field::new("hidden_act", Accepts::OneOf(&["quick_gelu", "gelu", "gelu_pytorch_tanh"])),
    Field::new("mlp_ratio", Accepts::Number),
    Field::new("in_channels", Accepts::Size(4)).or(&["in_chans"]),
    Field::new("patch_size", Accepts::Size(1 << 10)).or(&["spatial_patch_size"]),
    Field::new("spatial_merge_size", Accepts::Size(16)),
    Field::new("temporal_patch_size", Accepts::Size(16)),
    Field::new("hidden_size", Accepts::Size(1 << 20)),
];

/// Fields of `vision_config`.
const FIELDS: &[Field] = fields! {
    hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, layer_norm_eps,
    hidden_act: Accepts::OneOf(&["quick_gelu", "gelu", "gelu_pytorch_tanh"]),
};

/// Fields for sizes of images.
const SIZES: &[Field] = &[
    Field::new("image_size", Accepts::Size(1 << 14)),
    Field::new("patch_size", Accepts::Size(1 << 10)),
    Field::new("num_channels", Accepts::Size(4)),
];

/// Fields of CLIP's other half, and of the head that nothing here reads.
const FIXED: &[(&str, Neutral)] = fixed! { Any => projection_dim vocab_size vision_use_head; };

/// The activation of MLPs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Plain(UnaryOp),
    /// `x·σ(1.702·x)` (`quick_gelu`).
    Quick,
}

/// How patches know where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Places {
    /// By a table of rows that are added to theirs.
    Table,
    /// The same after a class token, and a norm then.
    AfterClass,
    /// Queries and keys, whose matrices are stored as one with that of values, turn by row and column.
    Turned,
}

/// The base of the frequencies by which they turn.
const THETA: f64 = 10_000.0;

/// Differences of the configuration classes.
pub(crate) struct Defaults {
    /// `model_type` of `vision_config`.
    pub model_types: &'static [&'static str],
    /// `patch_size`.
    pub patch: usize,
    /// `layer_norm_eps`.
    pub eps: f64,
    /// Tanh-GELU; else `quick_gelu`.
    pub tanh: bool,
    /// There is a class token, and a norm before the layers; else the patches have a bias.
    pub class: bool,
}

/// CLIP's.
pub(crate) const CLIP: Defaults =
    Defaults { model_types: &["clip_vision_model"], patch: 32, eps: 1e-5, tanh: false, class: true };
/// SigLIP's.
pub(crate) const SIGLIP: Defaults =
    Defaults { model_types: &["siglip_vision_model"], patch: 16, eps: 1e-6, tanh: true, class: false };

/// A vision transformer.
#[derive(Clone, Debug)]
pub(crate) struct Vit {
    /// Width of its rows.
    pub hidden: usize,
    heads: Heads,
    ffn: usize,
    /// Layers that the checkpoint has.
    pub stored: usize,
    /// Layers that are computed, from the first on.
    pub layers: usize,
    act: Act,
    /// All its norms.
    pub norm: Norm,
    channels: usize,
    /// Pixels of a patch's side.
    patch: usize,
    /// Patches of an image's side; 0: images have sides of their own.
    pub grid: usize,
    /// Most patches of an image with sides of its own.
    pub most: usize,
    /// Frames of a film that an image is, where patches are cut of films.
    pub frames: Option<usize>,
    /// How patches know where they are.
    pub places: Places,
    /// Patches come in squares of so many a side, the patches of a square one after the other.
    pub square: usize,
}

impl Vit {
    /// Reads `vision_config`.
    pub(crate) fn read(
        whole: &Fields,
        config: &Map<String, serde_json::Value>,
        d: &Defaults,
    ) -> Result<Vit, ConfigError> {
        let Some(map) = config.get("vision_config").and_then(serde_json::Value::as_object) else {
            return Err(whole.missing("vision_config"));
        };
        let f = whole.inside_alone(map, "vision_config.", &[IDENTITY, FIELDS, SIZES], FIXED)?;
        if let Some(other) = f.text("model_type").filter(|name| !d.model_types.contains(name)) {
            let help = format!("supported here is `{}`", d.model_types.join("`, `"));
            return Err(f.unsupported("model_type", format!("\"{other}\""), help));
        }
        let (hidden, heads) = (f.size("hidden_size").or(768), f.size("num_attention_heads").or(12));
        let (image, patch) = (f.size("image_size").or(224), f.size("patch_size").or(d.patch));
        if !hidden.is_multiple_of(heads) {
            return Err(f.invalid(
                "num_attention_heads",
                &heads,
                format!("a divisor of `hidden_size`, which is {hidden}"),
            ));
        }
        if patch > image {
            return Err(f.invalid("patch_size", &patch, format!("at most `image_size`, which is {image}")));
        }
        let act = match f.text("hidden_act") {
            Some("quick_gelu") => Act::Quick,
            None if !d.tanh => Act::Quick,
            _ => Act::Plain(common::activation(&f, "hidden_act", UnaryOp::GeluTanh)),
        };
        let layers = f.size("num_hidden_layers").or(12);
        Ok(Vit {
            hidden,
            heads: Heads { queries: heads, kv: heads, dim: hidden / heads },
            ffn: f.size("intermediate_size").or(3072),
            stored: layers,
            layers,
            act,
            norm: Norm::layer(common::eps(&f, "layer_norm_eps", d.eps)?),
            channels: f.size("num_channels").or(3),
            patch,
            grid: image / patch,
            most: 0,
            frames: None,
            places: if d.class { Places::AfterClass } else { Places::Table },
            square: 1,
        })
    }

    /// Reads `vision_config` of a tower that sees films, as Qwen2-VL (arXiv 2409.12191) has one: an image is a film whose
    /// frames are all the same. Images have sides of their own and at most `most` patches. Returns the width of the
    /// tower's rows in texts, too.
    pub(crate) fn of_films(
        whole: &Fields,
        config: &Map<String, serde_json::Value>,
        model_type: &str,
        most: usize,
    ) -> Result<(Vit, usize), ConfigError> {
        let Some(map) = config.get("vision_config").and_then(serde_json::Value::as_object) else {
            return Err(whole.missing("vision_config"));
        };
        let f = whole.inside_alone(map, "vision_config.", &[IDENTITY, OF_FILMS], &[])?;
        if let Some(other) = f.text("model_type").filter(|name| *name != model_type) {
            return Err(f.unsupported(
                "model_type",
                format!("\"{other}\""),
                format!("supported here is `{model_type}`"),
            ));
        }
        let (hidden, heads) = (f.size("embed_dim").or(1280), f.size("num_heads").or(16));
        // (A quarter of a head turns by the row, and one by the column.)
        if !hidden.is_multiple_of(heads) || !(hidden / heads).is_multiple_of(4) {
            let expected = format!("such that heads have a multiple of 4 of the {hidden} elements");
            return Err(f.invalid("num_heads", &heads, expected));
        }
        let ratio = f.number("mlp_ratio").unwrap_or(4.0);
        if !(ratio * hidden as f64 >= 1.0 && ratio <= 1024.0) {
            return Err(f.invalid("mlp_ratio", &ratio, "a positive number".into()));
        }
        let (layers, square) = (f.size("depth").or(32), f.size("spatial_merge_size").or(2));
        let act = match f.text("hidden_act") {
            Some("quick_gelu") | None => Act::Quick,
            _ => Act::Plain(common::activation(&f, "hidden_act", UnaryOp::Gelu)),
        };
        let vit = Vit {
            hidden,
            heads: Heads { queries: heads, kv: heads, dim: hidden / heads },
            ffn: (hidden as f64 * ratio) as usize,
            stored: layers,
            layers,
            act,
            norm: Norm::layer(1e-6),
            channels: f.size("in_channels").or(3),
            patch: f.size("patch_size").or(14),
            grid: 0,
            most,
            frames: Some(f.size("temporal_patch_size").or(2)),
            places: Places::Turned,
            square,
        };
        Ok((vit, f.size("hidden_size").or(3584)))
    }

    /// Pixels of a patch's side.
    pub(crate) fn side(&self) -> usize {
        self.patch
    }

    /// Tokens of an image, at most.
    pub(crate) fn tokens(&self) -> usize {
        self.patches() + usize::from(self.class())
    }

    /// Patches of an image, at most.
    pub(crate) fn patches(&self) -> usize {
        if self.grid == 0 { self.most } else { self.grid * self.grid }
    }

    fn class(&self) -> bool {
        self.places == Places::AfterClass
    }

    /// Pixels of an image's side that patches are cut of.
    pub(crate) fn image(&self) -> usize {
        self.grid * self.patch
    }

    /// Elements of a patch.
    fn columns(&self) -> usize {
        self.channels * self.frames.unwrap_or(1) * self.patch * self.patch
    }

    /// For the runtime: how pixels become rows.
    pub(crate) fn document(&self) -> serde_json::Value {
        json!({
            "side": self.patch,
            "grid": self.grid,
            "most": self.most,
            "frames": self.frames.unwrap_or(1),
            "channels": self.channels,
            "square": self.square,
            "class": self.class(),
        })
    }

    /// The rows after the last computed layer.
    pub(crate) fn lift(&self, l: &mut Lifter) -> Result<Carried, FrontendError> {
        let (mut x, rope) = self.embedding(l)?;
        for i in 0..self.layers {
            x = self.layer(l, i, &x, rope.as_ref())?;
        }
        Ok(x)
    }

    /// The rows of patches, and the rotary table of their places.
    fn embedding(&self, l: &mut Lifter) -> Result<(Carried, Option<Carried>), FrontendError> {
        let (hidden, columns) = (self.hidden, self.columns());
        let mut f = l.func("patches");
        let x = f.given(columns);
        let kind = Kind::Patches { channels: self.channels, frames: self.frames, side: self.patch };
        let w = f.weight(PATCH, kind, &[hidden, columns]);
        let b = (self.places == Places::Table).then(|| f.bias(PATCH, hidden));
        let mut x = product(&mut f, x, w, b);
        let mut results = vec![];
        if self.places == Places::Turned {
            let axes = f.input(Input::Axes);
            let (inv_freq, table) = self.frequencies(&mut f);
            results.push(f.op(table, &[axes, inv_freq]));
        } else {
            let (table, positions) = (self.table(&mut f), f.input(Input::Positions));
            let y = f.op(Op::EmbedPositions { every: 1, shift: 0 }, &[table, positions]);
            x = f.add(x, y);
        }
        if self.class() {
            x = norm(&mut f, FIRST_NORM, self.norm, x, hidden);
        }
        results.insert(0, x);
        let mut carried = f.call(&results)?.into_iter();
        Ok((carried.next().unwrap_or_default(), carried.next()))
    }

    /// Frequencies of the places of patches, and the operation that makes their table: the first half of a head's pairs
    /// turns by the row, the other one alike by the column.
    fn frequencies(&self, f: &mut Draft) -> (Value, Op) {
        let config = RopeConfig { theta: THETA, dim: self.heads.dim / 2, scaling: RopeScaling::Default };
        let rope = rope::frequencies(&config, self.patches());
        let each = rope.inv_freq.len();
        let sections = Sections { sizes: [0, each, each], interleaved: false };
        let spread = sections.spread(&rope.inv_freq.repeat(2));
        (f.computed("inv_freq", "$image.rope.inv_freq", spread), rope.table_of_axes())
    }

    /// The table of positions, in the order of the caller's patches.
    fn table(&self, f: &mut Draft) -> Value {
        let tokens = self.tokens();
        let table = f.weight(POSITIONS, Kind::Table, &[tokens, self.hidden]);
        if self.class() {
            let class = f.weight(CLASS, Kind::Bare, &[self.hidden]);
            let first = f.op(Op::SliceRows { start: 0, len: 1 }, &[table]);
            let first = f.add(first, class);
            // Rows of two tables have one type.
            let (rest, one) = (f.op(Op::SliceRows { start: 1, len: tokens - 1 }, &[table]), f.scalar(1.0));
            let rest = f.mul(rest, one);
            return f.op(Op::ConcatRows, &[first, rest]);
        }
        if self.square == 1 {
            return table;
        }
        let mut places = vec![0.0; tokens];
        for (i, patch) in order(self.grid, self.square).enumerate() {
            places[patch] = i as f32;
        }
        let places = f.computed("positions.order", "$image.positions.order", places);
        let turned = f.op(Op::Transpose, &[table]);
        let placed = f.op(Op::PlaceCols, &[turned, places]);
        f.op(Op::Transpose, &[placed])
    }

    fn layer(&self, l: &mut Lifter, i: usize, x: &Carried, rope: Option<&Carried>) -> Result<Carried, FrontendError> {
        let hidden = self.hidden;
        let mut f = l.layer("layer", i);
        let x = f.carried("x", x);
        let rope = rope.map(|rope| f.carried("rope", rope));
        let positions = f.input(Input::Positions);
        let kv = f.kv("kv", self.heads.kv, (self.heads.dim, self.heads.dim), None);
        let h = norm(&mut f, ATTN_NORM, self.norm, x, hidden);
        let [mut q, mut k, v] = self.attended_rows(&mut f, h);
        if let Some(rope) = rope {
            [q, k] = [q, k].map(|x| f.op(Op::Rope { head_dim: self.heads.dim }, &[x, rope]));
        }
        let kv = f.op(Op::KvAppend, &[kv, k, v, positions]);
        let scoring = Attention { causal: false, ..Attention::plain(self.heads, None) }.scoring();
        let y = attended(&mut f, &scoring, q, kv, positions);
        let y = linear(&mut f, ATTN_OUT, [hidden, hidden], true, y);
        let x = f.add(x, y);
        let h = norm(&mut f, MLP_NORM, self.norm, x, hidden);
        let h = linear(&mut f, MLP_UP, [self.ffn, hidden], true, h);
        let h = self.act.of(&mut f, h);
        let h = linear(&mut f, MLP_DOWN, [hidden, self.ffn], true, h);
        let x = f.add(x, h);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }

    /// Queries, keys and values, of matrices of their own or of one.
    fn attended_rows(&self, f: &mut Draft, h: Value) -> [Value; 3] {
        let hidden = self.hidden;
        if self.places != Places::Turned {
            return [ATTN_Q, ATTN_K, ATTN_V].map(|part| linear(f, part, [hidden, hidden], true, h));
        }
        let all = stored(f, ATTN_QKV, [3 * hidden, hidden], true, false);
        parts(f, all, [hidden; 3]).map(|(w, b)| product(f, h, w, b))
    }
}

impl Act {
    fn of(self, f: &mut Draft, x: Value) -> Value {
        match self {
            Act::Plain(act) => f.unary(act, x),
            Act::Quick => {
                let by = f.scalar(1.702);
                let scaled = f.mul(x, by);
                let gate = f.unary(UnaryOp::Sigmoid, scaled);
                f.mul(x, gate)
            }
        }
    }
}

/// The patches of a grid, counted row by row, in squares of `side` a side, which stand row by row.
pub(crate) fn order(grid: usize, side: usize) -> impl Iterator<Item = usize> {
    let squares = grid / side.max(1);
    (0..grid * grid).map(move |i| {
        let (square, inside) = (i / (side * side), i % (side * side));
        let row = square / squares * side + inside / side;
        row * grid + square % squares * side + inside % side
    })
}
