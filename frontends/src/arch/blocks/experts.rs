//! Mixtures of experts: a router chooses a few of many gated MLPs for each token, and adds up their
//! outputs. One MLP for all tokens may stand beside them.

mod by_token;
mod capacity;
mod row;
mod stored;

use crate::arch::blocks::attention::{Norm, capped, linear, norm, product, scaled, stored};
use crate::arch::blocks::clamps::{Limits, activated};
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{Kind, Part, ROUTER, SHARED_DOWN, SHARED_GATE, SHARED_GATE_UP, SHARED_MIX, SHARED_UP};
use crate::arch::blocks::weight_forms::split_rows;
use crate::config::ConfigError;
use crate::config::fields::Fields;
pub(crate) use by_token::TOKEN_EXPERTS;
use by_token::of_token;
use llmcc_ir::graph::{BinaryOp, F32, Op, Router, Score, UnaryOp, Value};
pub(crate) use row::{ExpertRow, ROW_DOWN, ROW_EACH_NORM, ROW_ENTRY_NORM, ROW_NORM, ROW_UP, scaled_first};
pub(crate) use stored::Stored;
use stored::{Matrices, Stack, in_blocks, matrices};

/// A mixture of experts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Experts {
    /// How experts are chosen by their scores.
    pub router: Router,
    /// How the router's logits are made, and which experts a token may have.
    pub routing: Routing,
    /// Number of experts.
    pub count: usize,
    /// Width of each.
    pub ffn: usize,
    /// Activation.
    pub act: UnaryOp,
    /// The input is multiplied by the activation of a gate, else activated itself; also in the MLP for all tokens.
    pub gated: bool,
    /// Limits of gate and up; not in the MLP for all tokens.
    pub limits: Option<Limits>,
    /// How the matrices are stored.
    pub stored: Stored,
    /// Added to the scores for the choice only.
    pub correction: Option<Part>,
    /// The MLP for all tokens.
    pub shared: Option<Shared>,
    /// How the experts stand in the layer.
    pub place: Place,
    /// The experts read a narrower row and write one; the router and the MLP for all tokens do not.
    pub row: Option<ExpertRow>,
}

/// How a router's logits are made, and which experts a token may have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Routing {
    /// The logits have biases.
    pub bias: bool,
    /// The matrix is stored `[in, out]`.
    pub transposed: bool,
    /// Logits are `cap·tanh(x/cap)`.
    pub cap: Option<f32>,
    /// Multiplies the logits.
    pub scale: Option<f32>,
    /// Scores are the roots of the logits' softplus.
    pub root_softplus: bool,
    /// A token has the experts that a table has for it; the scores weigh them only.
    pub by_token: bool,
    /// Only the first tokens of a text that choose an expert get its output, this many; for one expert per token.
    pub capacity: Option<usize>,
    /// Number of further experts, after the others, whose output is their input.
    pub zero: usize,
}

/// How experts stand in a layer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// Weights multiply the input of experts, not their output; for one expert per token.
    pub weigh_input: bool,
    /// Experts stand beside the layer's MLP, each behind norms of its own; the router reads the input of the
    /// layer's second block, see [`router_input`], and the weight of each expert has a factor.
    pub beside_mlp: bool,
    /// The sum of experts and of the MLP for all tokens is normalized.
    pub out_norm: bool,
}

/// An MLP beside the experts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    /// Width.
    pub ffn: usize,
    /// Its output is weighted by a sigmoid of the token.
    pub mixed: bool,
    /// Gate and up are stored as one matrix.
    pub fused: bool,
    /// Limits of gate and up.
    pub limits: Option<Limits>,
    /// The sum of its output and the experts' is divided by 2.
    pub averaged: bool,
}

impl Shared {
    /// One of this width that is added as it is.
    pub(crate) fn plain(ffn: usize) -> Shared {
        Shared { ffn, mixed: false, fused: false, limits: None, averaged: false }
    }
}

/// Norm of the output of an MLP beside experts.
pub(crate) const MLP_OWN_NORM: Part = Part("mlp.own_norm");
/// Norm of the experts' input beside an MLP.
pub(crate) const EXPERTS_NORM: Part = Part("experts.norm");
/// Norm of the experts' output.
pub(crate) const EXPERTS_POST_NORM: Part = Part("experts.post_norm");
/// Factor of the router's input.
pub(crate) const ROUTER_SCALE: Part = Part("router.scale");
/// Multiplies the weights of experts.
pub(crate) const EXPERT_SCALE: Part = Part("router.expert_scale");

/// [`CORRECTION`], stored as a matrix of one row.
pub(crate) const CORRECTION_ROW: Part = Part("router.correction_row");
/// The same, the first of two rows.
pub(crate) const CORRECTION_ROWS: Part = Part("router.correction_rows");
/// The same, which a checkpoint may be without.
pub(crate) const CORRECTION_IF_ANY: Part = Part("router.correction_if_any");

impl Experts {
    /// Columns of the experts' input.
    fn width(&self, f: &Draft) -> usize {
        self.row.map_or(f.facts().hidden, |row| row.width)
    }

    /// Checks combinations of fields: the names are the fields for the number of experts and for
    /// the experts per token.
    ///
    /// # Errors
    /// When there is no such choice.
    pub(crate) fn checked(self, f: &Fields, [count, top]: [&str; 2]) -> Result<Experts, ConfigError> {
        if let Some(what) = self.router.misfit(self.count.saturating_add(self.routing.zero)) {
            return Err(f.invalid(top, &self.router.top, format!("a choice of `{count}` experts: {what}")));
        }
        Ok(self)
    }

    /// Which layers have experts by `decoder_sparse_step` and `mlp_only_layers`.
    pub(crate) fn sparse_layers(f: &Fields, layers: usize) -> Vec<bool> {
        let step = f.size("decoder_sparse_step").or(1);
        let dense = f.numbers("mlp_only_layers").unwrap_or_default();
        (0..layers).map(|i| (i + 1).is_multiple_of(step) && !dense.contains(&(i as f64))).collect()
    }
}

/// A router that takes sigmoids of `top` experts' logits (if the file names no number), and whose normalized weights
/// are scaled by a field, given with its default.
pub(crate) fn sigmoid_router(f: &Fields, top: usize, (field, scale): (&str, f64)) -> Result<Router, ConfigError> {
    let scale = F32::new(f.factor_or(field, scale)? as f32);
    let chosen = Router::softmax(f.size("num_experts_per_tok").or(top), true);
    Ok(Router { score: Score::Sigmoid, scale, ..chosen })
}

/// Which layers have experts by `mlp_layer_types`: those from number `first` on, where nothing is
/// said.
pub(crate) fn sparse_by_types(f: &Fields, layers: usize, first: usize) -> Result<Vec<bool>, ConfigError> {
    let field = "mlp_layer_types";
    let Some(v) = f.get(field).value() else { return Ok((0..layers).map(|i| i >= first).collect()) };
    let flag = |v: &serde_json::Value| match v.as_str() {
        Some("sparse") => Some(true),
        Some("dense") => Some(false),
        _ => None,
    };
    let list: Option<Vec<bool>> = v.as_array().and_then(|list| list.iter().map(flag).collect());
    let expected = || format!("\"dense\" or \"sparse\" for each of {layers} layers");
    list.filter(|list| list.len() >= layers).ok_or_else(|| f.invalid_value(field, v, expected()))
}

/// The same, of those from number `first_k_dense_replace` on (1 if absent) every so many by
/// `moe_layer_freq` where nothing is said.
pub(crate) fn sparse_by_types_or_every(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let (first, every) = (f.count("first_k_dense_replace").unwrap_or(1), f.size("moe_layer_freq").or(1));
    match f.get("mlp_layer_types").value() {
        Some(_) => sparse_by_types(f, layers, 0),
        None => Ok((0..layers).map(|i| i >= first && i.is_multiple_of(every)).collect()),
    }
}

/// The routes of `h`.
fn route(f: &mut Draft, m: &Experts, h: Value) -> Value {
    let hidden = f.facts().hidden;
    let count = m.count.saturating_add(m.routing.zero);
    let (w, b) = stored(f, ROUTER, [count, hidden], m.routing.bias, m.routing.transposed);
    let logits = product(f, h, w, b);
    let logits = capped(f, logits, m.routing.cap);
    let logits = scaled(f, logits, m.routing.scale);
    let logits = if m.routing.root_softplus {
        let scores = f.unary(UnaryOp::Softplus, logits);
        f.unary(UnaryOp::Sqrt, scores)
    } else {
        logits
    };
    let logits = if m.routing.by_token { of_token(f, (m.router.top, m.count), logits) } else { logits };
    let given = |part: &Part| *part != CORRECTION_IF_ANY || f.stores(*part, Kind::Bare);
    let bias = match m.correction.filter(given) {
        Some(CORRECTION_ROW) => {
            let row = f.weight(CORRECTION_ROW, Kind::Bare, &[1, count]);
            f.op(Op::Flatten, &[row])
        }
        Some(CORRECTION_ROWS) => {
            let rows = f.weight(CORRECTION_ROWS, Kind::Bare, &[2, count]);
            let row = f.op(Op::SliceRows { start: 0, len: 1 }, &[rows]);
            f.op(Op::Flatten, &[row])
        }
        Some(part) => f.weight(part, Kind::Bare, &[count]),
        None => return routes(f, m.router, count, logits),
    };
    routes_with(f, m.router, [logits, bias])
}

/// A router's choice among `count` experts by their logits alone.
#[track_caller]
pub(crate) fn routes(f: &mut Draft, router: Router, count: usize, logits: Value) -> Value {
    let bias = f.shared_constant("router.none", &format!("$router.none{count}"), vec![0.0; count]);
    routes_with(f, router, [logits, bias])
}

/// The same by logits and the addend to scores for the choice.
#[track_caller]
pub(crate) fn routes_with(f: &mut Draft, router: Router, by: [Value; 2]) -> Value {
    let Router { score, top, normalize, eps, scale, groups, kept, pairs } = router;
    f.op(Op::Route { score, top, normalize, eps, scale, groups, kept, pairs }, &by)
}

/// Products of the matrices of a token's experts, of `rows` rows each, with `x`, which all of them
/// read, or each its own part.
#[track_caller]
pub(crate) fn by_expert(
    f: &mut Draft,
    x: Value,
    (w, rows): (Value, usize),
    (routes, experts, top): (Value, usize, usize),
) -> Value {
    let (blocks, cols) = in_blocks(f, w, rows);
    f.expert_product(x, [w, blocks], routes, (experts, top, cols))
}

/// The weighted sum of a token's experts' outputs.
#[track_caller]
pub(crate) fn together(f: &mut Draft, routes: Value, top: usize, y: Value) -> Value {
    let weights = f.op(Op::SliceCols { start: top, len: top }, &[routes]);
    f.op(Op::Combine, &[weights, y])
}

/// A router's input from `x`: its norm without gains, times a learned row, divided by the root of
/// the width.
#[track_caller]
pub(crate) fn router_input(f: &mut Draft, eps: Norm, x: Value) -> Value {
    let hidden = f.facts().hidden;
    let x = norm(f, ROUTER, Norm { gain: false, bias: false, ..eps }, x, hidden);
    let row = f.weight(ROUTER_SCALE, Kind::Bare, &[hidden]);
    let x = f.mul(x, row);
    scaled(f, x, Some((1.0 / (hidden as f64).sqrt()) as f32))
}

/// The sum of the experts' outputs for each token of `h`; the router reads `routed`.
#[track_caller]
pub(crate) fn mixture(f: &mut Draft, m: &Experts, h: Value, routed: Value) -> Value {
    let own = m.row.map_or(h, |row| row.entered(f, h));
    let routes = route(f, m, routed);
    let routes = m.routing.capacity.map_or(routes, |most| capacity::within(f, m.count, most, routes));
    let (routes, kept) = if m.routing.zero > 0 { apart(f, m, routes, true) } else { (routes, None) };
    let y = mixed_by(f, m, own, routes, kept);
    m.shared.map_or(y, |shared| beside(f, m, shared, h, y))
}

/// The outputs for `own` of the experts that the routes name, plus the input returned by the
/// others, `kept` being their weight.
#[track_caller]
pub(crate) fn mixed_by(f: &mut Draft, m: &Experts, own: Value, routes: Value, kept: Option<Value>) -> Value {
    let (top, experts, width) = (m.router.top, m.count, m.width(f));
    let wanted = Matrices {
        stored: m.stored,
        width: m.width(f),
        ffn: m.ffn,
        count: m.count,
        zero: m.routing.zero,
        gated: m.gated,
    };
    let (gate, [up, down]) = matrices(f, &wanted);
    let weighted = |f: &mut Draft, y| {
        if !m.place.beside_mlp {
            return together(f, routes, top, y);
        }
        let weights = f.op(Op::SliceCols { start: top, len: top }, &[routes]);
        let factors = f.weight(EXPERT_SCALE, Kind::Bare, &[experts]);
        let factors = f.op(Op::ExpertVector { experts, top }, &[factors, routes]);
        let weights = f.mul(weights, factors);
        f.op(Op::Combine, &[weights, y])
    };
    let product = |f: &mut Draft, x, (w, bias): Stack, rows: usize| {
        let y = by_expert(f, x, (w, rows), (routes, experts, top));
        bias.map_or(y, |bias| {
            let bias = f.op(Op::ExpertVector { experts, top }, &[bias, routes]);
            f.add(y, bias)
        })
    };
    // A product with a multiple of a row is that multiple of the product.
    let entered = |f: &mut Draft, w: Stack| {
        if m.place.weigh_input && f.rounds_experts(w.0, experts) {
            // Rounded, it is not.
            let x = weighted(f, own);
            return product(f, x, w, m.ffn);
        }
        let y = product(f, own, w, m.ffn);
        if m.place.weigh_input { weighted(f, y) } else { y }
    };
    let gate = gate.map(|gate| entered(f, gate));
    let up = entered(f, up);
    let inner = match gate {
        Some(gate) => activated(f, m.act, m.limits, gate, |_| up),
        None => f.unary(m.act, up),
    };
    let y = product(f, inner, down, width);
    let y = m.row.map_or(y, |row| row.each(f, y));
    let y = if m.place.weigh_input { y } else { weighted(f, y) };
    let y = match kept {
        Some(weight) => {
            let own = f.op(Op::Combine, &[weight, own]);
            f.add(y, own)
        }
        None => y,
    };
    m.row.map_or(y, |row| row.left(f, y))
}

/// Routes to experts that compute something, and the total weight `[T, 1]` of the others, if
/// requested. The last expert stands in the others' slots, with a weight of 0.
#[track_caller]
pub(crate) fn apart(f: &mut Draft, m: &Experts, routes: Value, wanted: bool) -> (Value, Option<Value>) {
    let top = m.router.top;
    let [numbers, weights] = [0, top].map(|start| f.op(Op::SliceCols { start, len: top }, &[routes]));
    let [last, none, one] = [m.count as f32 - 1.0, 0.0, 1.0].map(|x| f.scalar(x));
    let beyond = f.op(Op::Binary(BinaryOp::Sub), &[numbers, last]);
    let beyond = f.op(Op::Binary(BinaryOp::Max), &[beyond, none]);
    let beyond = f.op(Op::Binary(BinaryOp::Min), &[beyond, one]);
    let kept = wanted.then(|| f.op(Op::Combine, &[weights, beyond]));
    let numbers = f.op(Op::Binary(BinaryOp::Min), &[numbers, last]);
    let own = f.mul(weights, beyond);
    let weights = f.op(Op::Binary(BinaryOp::Sub), &[weights, own]);
    (f.op(Op::ConcatCols, &[numbers, weights]), kept)
}

/// `y` plus the output of the MLP for all tokens.
fn beside(f: &mut Draft, m: &Experts, shared: Shared, h: Value, y: Value) -> Value {
    let hidden = f.facts().hidden;
    let shape = [shared.ffn, hidden];
    let inner = if m.gated {
        let [gate, up] = if shared.fused && !f.stores(SHARED_GATE, Kind::Matrix) {
            let all = f.matrix(SHARED_GATE_UP, [shared.ffn.saturating_mul(2), hidden]);
            split_rows(f, all, [shared.ffn; 2])
        } else {
            [f.matrix(SHARED_GATE, shape), f.matrix(SHARED_UP, shape)]
        };
        let gate = f.matmul(h, gate);
        activated(f, m.act, shared.limits, gate, |f| f.matmul(h, up))
    } else {
        let up = linear(f, SHARED_UP, shape, false, h);
        f.unary(m.act, up)
    };
    let mut s = linear(f, SHARED_DOWN, [hidden, shared.ffn], false, inner);
    if shared.mixed {
        let w = f.matrix(SHARED_MIX, [1, hidden]);
        let share = f.matmul(h, w);
        let share = f.unary(UnaryOp::Sigmoid, share);
        s = f.op(Op::Combine, &[share, s]);
    }
    let sum = f.add(y, s);
    scaled(f, sum, shared.averaged.then_some(0.5))
}
