//! Lossy alternatives: the forms in which the weights and states of a function may be stored, and
//! the error of each.
//!
//! They are decided on after the equalities have saturated, so that no equality is derived from
//! one. With a single format nothing is measured.

use crate::egraph::{Graph, Head, Term};
use crate::measure::Measured;
use crate::module::layers::LayerMatrices;
use crate::pack::moved_only;
use crate::schedule::state_param;
use crate::weights::WeightTerms;
use crate::{Options, PassError};
use egg::Id;
use llmcc_ir::graph::{Arg, F32, Module, Op, Reads, ValueType};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::plan::WeightExpr;
use llmcc_ir::quant::{Elem, Float, Format};
use llmcc_ir::state::StateSpec;
use llmcc_ir::ty::DType;
use std::collections::{BTreeMap, BTreeSet};

/// Largest relative error of a cache type that is chosen without being asked for, when there is no
/// error budget.
pub const CACHE_ERROR: f64 = 0.01;

/// The forms of each class of a function, the first being the one preferred where costs are equal.
#[derive(Clone, Debug, Default)]
pub struct Storages {
    /// Matrices that kernels read.
    pub packed: BTreeMap<Id, Vec<(Format, Option<F32>)>>,
    /// Attention states as they are read: updated, or only read; those not mentioned stay of their
    /// type.
    pub cached: BTreeMap<Id, Vec<(KvDType, Option<F32>)>>,
}

/// A matrix that a function reads.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Over the function's parameters.
    pub expr: WeightExpr,
    /// The expression over the module's weights in each call, without repetitions.
    pub bound: BTreeSet<WeightExpr>,
    /// Elements.
    pub elements: usize,
    /// Elements of a row, at least 1.
    pub columns: usize,
    /// Whether rows of it are looked up, and it is not multiplied.
    pub table: bool,
    /// The format of the codes that it is made of.
    pub coded: Option<Format>,
    /// Whether its products choose experts, or it is part of mixing residual streams.
    pub routes: bool,
}

/// The matrices of a function by class; not those whose codes have changed places where the product
/// may as well read the codes as they are: they would be decoded, and rounded again.
pub fn matrices(module: &Module, opts: &Options, func: usize, g: &Graph) -> Result<BTreeMap<Id, Matrix>, PassError> {
    let terms = WeightTerms::new(g);
    let mut out: BTreeMap<Id, Matrix> = BTreeMap::new();
    let routers = routers(g);
    for class in g.classes() {
        for t in &class.nodes {
            let Some((head, _, args)) = t.operation() else { continue };
            for (w, (_, reads)) in args.iter().zip(head.facts().args) {
                let table = match reads {
                    Reads::Matrix => false,
                    Reads::Table => true,
                    Reads::Any
                    | Reads::Deciding
                    | Reads::Weight
                    | Reads::Input(_)
                    | Reads::State
                    | Reads::Replaced
                    | Reads::Updated => {
                        continue;
                    }
                };
                let w = g.find(*w);
                if head == Head::MatMul && opts.keep_codes && placed_codes(g, w) && has_codes(g, &class.nodes) {
                    continue;
                }
                let Some(expr) = terms.get(g, w).cloned() else { continue };
                let ty = g[w].data.ty.as_ref().and_then(ValueType::tensor);
                let elements = ty.map_or(0, |t| t.shape.iter().filter_map(|d| d.known()).product());
                let columns = ty.and_then(|t| t.shape.last()?.known()).unwrap_or(1).max(1);
                let coded = ty.and_then(|t| t.dtype.coded());
                let routes = routers.contains(&w);
                let bound = || bound(module, func, &expr);
                let m = out.entry(w).or_insert_with(|| Matrix {
                    bound: bound(),
                    expr: expr.clone(),
                    elements,
                    columns,
                    table,
                    coded,
                    routes,
                });
                m.table &= table;
            }
        }
    }
    // All parts of one tensor are stored alike.
    let leaves = |m: &Matrix| {
        let mut all = BTreeSet::new();
        m.expr.leaves(&mut |w| {
            all.insert(w);
        });
        all
    };
    let parts: BTreeSet<usize> = out.values().filter(|m| m.routes).flat_map(leaves).collect();
    out.values_mut().for_each(|m| m.routes |= leaves(m).is_subset(&parts) && !parts.is_empty());
    Ok(out)
}

/// The parameters that operations of a function replace.
fn replaced(g: &Graph) -> BTreeSet<u32> {
    let mut out = BTreeSet::new();
    for t in g.classes().flat_map(|c| &c.nodes) {
        let Some((head, _, operands)) = t.operation() else { continue };
        let state = head.facts().replaces().and_then(|arg| operands.get(arg));
        for t in state.iter().flat_map(|id| &g[**id].nodes) {
            if let Term::Param(i) = t {
                out.insert(*i);
            }
        }
    }
    out
}

/// Whether a matrix is one of codes with its columns in another order.
fn placed_codes(g: &Graph, w: Id) -> bool {
    let codes = |t: &Term| matches!(t, Term::Op(Head::PlaceCols, c) if c.first().is_some_and(|w| coded(g, *w)));
    g[w].nodes.iter().any(codes)
}

/// Whether one of these products multiplies codes.
fn has_codes(g: &Graph, nodes: &[Term]) -> bool {
    nodes.iter().any(|t| matches!(t, Term::Op(Head::MatMul, c) if c.get(1).is_some_and(|w| coded(g, *w))))
}

fn coded(g: &Graph, w: Id) -> bool {
    g[w].data.ty.as_ref().and_then(ValueType::tensor).is_some_and(|t| t.dtype.coded().is_some())
}

/// Classes of matrices whose products, whatever is added to them, decide something: they choose experts
/// or mix streams ([`Reads::Deciding`]).
fn routers(g: &Graph) -> BTreeSet<Id> {
    let mut logits: Vec<Id> = vec![];
    for t in g.classes().flat_map(|c| &c.nodes) {
        let Some((head, _, operands)) = t.operation() else { continue };
        let facts = head.facts();
        // Keys that are compared with such a query decide as it does.
        if head == Head::Select {
            logits.extend(operands.iter().map(|id| g.find(*id)));
        }
        let read = facts.each_arg().zip(operands);
        logits.extend(read.filter(|((_, reads), _)| *reads == Reads::Deciding).map(|(_, id)| g.find(*id)));
    }
    let (mut seen, mut out) = (BTreeSet::new(), BTreeSet::new());
    while let Some(class) = logits.pop() {
        if !seen.insert(class) {
            continue;
        }
        for t in &g[class].nodes {
            match t {
                Term::Op(Head::MatMul, children) => out.extend(children.get(1).map(|w| g.find(*w))),
                Term::Op(
                    Head::Binary(_)
                    | Head::Unary(_)
                    | Head::Rope
                    | Head::Standardize
                    | Head::KvAppend
                    | Head::ConcatCols,
                    children,
                ) => {
                    logits.extend(children.iter().map(|c| g.find(*c)).filter(|c| !g[*c].data.weight));
                }
                _ => {}
            }
        }
    }
    out
}

/// The weights of an expression over a function's parameters, in each of its calls.
fn bound(module: &Module, func: usize, expr: &WeightExpr) -> BTreeSet<WeightExpr> {
    let in_call =
        |args: &Vec<Arg>| expr.substitute(&|i| if let Some(Arg::Weight(w)) = args.get(i) { Some(*w) } else { None });
    module.calls().filter(|c| c.func == func).filter_map(|c| in_call(&c.args)).collect()
}

/// Everything that products of the module read, by function.
pub struct Products<'a> {
    module: &'a Module,
    opts: &'a Options,
    /// Weights that are an operand of a product.
    multiplied: BTreeSet<WeightExpr>,
    measured: &'a Measured,
    /// Where a format has some of the values only.
    layers: Option<LayerMatrices>,
}

impl<'a> Products<'a> {
    /// Forms for the matrices of all functions.
    pub fn new(
        module: &'a Module,
        opts: &'a Options,
        funcs: &[BTreeMap<Id, Matrix>],
        measured: &'a Measured,
    ) -> Products<'a> {
        let sparse = opts.formats.iter().any(|f| f.dense() != *f);
        let layers = sparse.then(|| LayerMatrices::of(module));
        Products { module, opts, multiplied: multiplied(funcs), measured, layers }
    }

    /// The forms of the classes of a function.
    pub fn storages(&self, matrices: &BTreeMap<Id, Matrix>, g: &Graph) -> Storages {
        let packed = matrices.iter().map(|(class, m)| (*class, self.formats(m))).collect();
        let mut cached = BTreeMap::new();
        let replaces = |t: &Term| matches!(t, Term::Op(head, _) if head.facts().replaces().is_some());
        let replaced = replaced(g);
        // A state that another function has updated is read in the form that it is kept in.
        let kept = |t: &Term| matches!(t, Term::Param(i) if !replaced.contains(i));
        if !self.opts.kv.is_empty() {
            for class in g.classes().filter(|c| c.nodes.iter().any(replaces) || c.nodes.iter().any(kept)) {
                if let Some(spec) = class.data.ty.as_ref().and_then(ValueType::state).and_then(StateSpec::paged)
                    && state_param(g, class.id).is_some()
                {
                    cached.insert(class.id, self.cache_types(*spec));
                }
            }
        }
        Storages { packed, cached }
    }

    fn formats(&self, m: &Matrix) -> Vec<(Format, Option<F32>)> {
        let Some(inside) = &self.opts.inside else { return self.allowed(m) };
        let forms = inside.forms(&m.bound);
        if self.opts.formats.len() > 1 && !forms.is_empty() {
            let error = |f: Format| Some((f, Some(F32::new(m.error(f, self.measured)? as f32))));
            return forms.into_iter().filter_map(error).collect();
        }
        let has = |f: Format| m.bound.iter().all(|e| inside.has(e, f, self.module));
        self.allowed(m).into_iter().filter(|(f, _)| has(*f)).collect()
    }

    fn allowed(&self, m: &Matrix) -> Vec<(Format, Option<F32>)> {
        if self.opts.trial.stores_plain(&m.bound) {
            return vec![(Format::F32.with_packing(self.opts.target.packing()), None)];
        }
        if let Some(own) = m.coded.filter(|_| self.opts.keep_codes) {
            return vec![(own.with_packing(self.opts.target.packing()), None)];
        }
        if self.computed(m) {
            return vec![(self.exact(), None)];
        }
        if m.table && self.whole(m) {
            return vec![(self.plain(m), None)];
        }
        if m.table && !m.bound.is_empty() && m.bound.is_disjoint(&self.multiplied) {
            match &self.opts.damage {
                Some(damage) if damage.tables => {}
                Some(_) => return vec![(self.plain(m), None)],
                None => return vec![(self.table_format(m), None)],
            }
        }
        if m.routes {
            return vec![(self.plain(m), None)];
        }
        if let [only] = self.opts.formats[..] {
            let own = self.opts.keep_types.then(|| self.moved(m)).flatten();
            return vec![(own.unwrap_or_else(|| self.dense_but_in_layers(only, m)), None)];
        }
        let allowed = |f: &&Format| self.opts.damage.as_ref().is_none_or(|d| d.allows(&m.bound, **f));
        let error = |f: &Format| Some((*f, m.error(*f, self.measured)?));
        let mut formats: Vec<(Format, f64)> = self.opts.formats.iter().filter(allowed).filter_map(error).collect();
        formats.sort_by(|a, b| a.1.total_cmp(&b.1));
        formats.into_iter().map(|(f, e)| (f, Some(F32::new(e as f32)))).collect()
    }

    /// A format; that of all values where it has some of them, and a matrix is none of a layer's.
    fn dense_but_in_layers(&self, format: Format, m: &Matrix) -> Format {
        let of_layers = |layers: &LayerMatrices| m.bound.iter().all(|e| layers.have(e, self.module));
        if self.layers.as_ref().is_none_or(of_layers) { format } else { format.dense() }
    }

    /// The format in which products read whole numbers, or numbers of few bits.
    fn exact(&self) -> Format {
        let plain = if self.opts.target.gpu().is_some() { Format::BF16 } else { Format::F32 };
        Format { elem: plain.elem, group: plain.group, ..self.opts.formats[0] }
    }

    /// Whether a matrix has nothing of the checkpoint, and would be quantized: matrices that a
    /// front end computed, all ones for example, stay exact.
    fn computed(&self, m: &Matrix) -> bool {
        if m.table || !self.opts.formats.iter().any(|f| f.is_quantized()) {
            return false;
        }
        let mut leaves = vec![];
        m.bound.iter().for_each(|expr| expr.leaves(&mut |w| leaves.push(w)));
        !leaves.is_empty() && leaves.iter().all(|w| self.module.weights.get(*w).is_some_and(|w| w.data.is_some()))
    }

    /// Whether a table holds whole numbers that a front end has made to select operations.
    fn whole(&self, m: &Matrix) -> bool {
        let mut leaves = vec![];
        m.bound.iter().for_each(|expr| expr.leaves(&mut |w| leaves.push(w)));
        let whole = |w: &usize| {
            let data = self.module.weights.get(*w).and_then(|w| w.data.as_ref());
            data.is_some_and(|data| data.iter().all(|x| x.fract() == 0.0))
        };
        !leaves.is_empty() && leaves.iter().all(whole)
    }

    /// Storage of a table that is only looked up. It costs memory, not time, so that it keeps 8
    /// bits where products have fewer; with a budget, only if 8 bits alone keep to it.
    fn table_format(&self, m: &Matrix) -> Format {
        let plain = self.plain(m);
        if let [only] = self.opts.formats[..] {
            return match only.is_quantized() {
                true if only.def().bits() >= 8 => only,
                true => eight_bits(only),
                false => plain,
            };
        }
        let eight = self.opts.formats.iter().copied().find(|f| *f == eight_bits(*f));
        let fits = |f: &Format| {
            m.error(*f, self.measured).is_some_and(|e| self.opts.error_budget.is_none_or(|most| e <= most))
        };
        eight.filter(fits).unwrap_or(plain)
    }

    /// The checkpoint's own type of a matrix, or f32 where it is computed.
    ///
    /// Matrices that choose experts are stored this way: they are a hundredth of the bytes a token
    /// reads, and a rounded logit may choose another expert.
    fn plain(&self, m: &Matrix) -> Format {
        let of_f32 = || Format { elem: Format::F32.elem, group: Format::F32.group, ..self.opts.formats[0] };
        self.moved(m).unwrap_or_else(of_f32)
    }

    /// The type that holds all numbers of a matrix which is of the checkpoint as it is, but for its order.
    fn moved(&self, m: &Matrix) -> Option<Format> {
        let mut types = vec![];
        for expr in &m.bound {
            if !moved_only(expr) {
                return None;
            }
            // A matrix that a front end computed, such as padding with zeros, has no type of the
            // checkpoint's.
            let of_file = |w: usize| self.module.weights.get(w).filter(|w| w.data.is_none()).map(|w| w.ty.dtype);
            expr.leaves(&mut |w| types.extend(of_file(w)));
        }
        if types.iter().any(|t| t.coded().is_some()) {
            return None;
        }
        let plain = match types.split_first()? {
            (DType::F16, rest) if rest.iter().all(|t| *t == DType::F16) => Format::F16,
            (DType::Bf16, rest) if rest.iter().all(|t| *t == DType::Bf16) => Format::BF16,
            _ => Format::F32,
        };
        Some(Format { elem: plain.elem, group: plain.group, ..self.opts.formats[0] })
    }

    fn cache_types(&self, spec: KvSpec) -> Vec<(KvDType, Option<F32>)> {
        let mut types: Vec<(KvDType, f64)> = self
            .opts
            .kv
            .iter()
            .filter(|d| d.holds(spec.own_dim()) && d.holds(spec.value_dim))
            .map(|d| (*d, cache_error(KvSpec { dtype: *d, ..spec })))
            .collect();
        types.sort_by(|a, b| a.1.total_cmp(&b.1));
        // Among types of one size the most exact: a kernel's cost depends on bytes, so that bf16
        // never is better than f16.
        types.dedup_by_key(|t| t.0.bits());
        let most = self.opts.error_budget.unwrap_or(CACHE_ERROR);
        let mut within: Vec<_> = types.iter().filter(|t| t.1 <= most).copied().collect();
        // Twice the memory buys nothing where 16 bits are exact enough.
        if within.iter().any(|t| t.0.float() != Some(Float::F32)) {
            within.retain(|t| t.0.float() != Some(Float::F32));
        }
        let types = if within.is_empty() { types[..1].to_vec() } else { within };
        types.into_iter().map(|(d, e)| (d, Some(F32::new(e as f32)))).collect()
    }
}

/// The format of 8-bit integers with the groups of `f`, or with the largest there are.
fn eight_bits(f: Format) -> Format {
    let eight = Format { elem: Elem::W8, ..f };
    if eight.has_its_group() { eight } else { Format { group: 128, ..eight } }
}

/// The distinct weights that are an operand of a product.
pub fn multiplied(funcs: &[BTreeMap<Id, Matrix>]) -> BTreeSet<WeightExpr> {
    funcs.iter().flat_map(BTreeMap::values).filter(|m| !m.table).flat_map(|m| m.bound.iter().cloned()).collect()
}

/// Elements of the checkpoint's matrices that products read, in whatever expression. For a matrix
/// that is sliced, elements of the slices: a product of the whole, sliced afterwards, is the
/// alternative, and the choice is not known before the forms are.
pub fn parameters(module: &Module, funcs: &[BTreeMap<Id, Matrix>]) -> f64 {
    let mut slices: BTreeMap<usize, BTreeSet<(usize, usize)>> = BTreeMap::new();
    for w in multiplied(funcs) {
        slices_of(&w, &mut slices);
    }
    let elements = |(i, slices): (&usize, &BTreeSet<(usize, usize)>)| -> Option<usize> {
        let shape = &module.weights.get(*i)?.ty.shape;
        let whole: usize = shape.iter().filter_map(|d| d.known()).product();
        let rows = shape.first()?.known().filter(|_| shape.len() >= 2)?;
        let covered = |(rows, end): (usize, usize), (start, len): &(usize, usize)| {
            let to = end.max(start + len);
            (rows + to - end.max(*start), to)
        };
        let (read, _) = slices.iter().fold((0, 0), covered);
        Some(if slices.is_empty() { whole } else { whole / rows.max(1) * read.min(rows) })
    };
    slices.iter().filter_map(elements).sum::<usize>() as f64
}

/// The weights that an expression reads, with the rows `(first, count)` of each slice.
fn slices_of(w: &WeightExpr, out: &mut BTreeMap<usize, BTreeSet<(usize, usize)>>) {
    match w {
        WeightExpr::Weight(i) => {
            out.entry(*i).or_default();
        }
        WeightExpr::Op(Op::SliceRows { start, len }, args) => {
            for x in args {
                slices_of(x, out);
                if let WeightExpr::Weight(i) = x {
                    out.entry(*i).or_default().insert((*start, *len));
                }
            }
        }
        WeightExpr::Op(_, args) => args.iter().for_each(|x| slices_of(x, out)),
    }
}

impl Matrix {
    /// Root mean square of the relative errors of everything bound; `None` where the format cannot
    /// hold one of them.
    pub fn error(&self, format: Format, measured: &Measured) -> Option<f64> {
        let squares: Option<Vec<f64>> =
            self.bound.iter().map(|w| measured.get(w)?.get(&format).filter(|e| e.is_finite()).map(|e| e * e)).collect();
        let squares = squares?;
        Some((squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt())
    }
}

/// A-priori relative error (root mean square) of cached keys and values.
///
/// Floats: the rounding error of a `p`-bit significand is uniform within half a unit in the last
/// place, and significands are distributed like `1/m`, so it is
/// `2^-p · √(E[m⁻²]/3) = 0.425 · 2^-p`. int8: steps of the largest element of a head over 127; of
/// `D` normally distributed elements the largest is about `√(2 ln 2D)` deviations, and the error of
/// a step is its 1/√12. A test holds both against Gaussian data.
pub fn cache_error(spec: KvSpec) -> f64 {
    let float = |bits: i32| 0.425 * 2f64.powi(-bits);
    let e = spec.dtype.encoding();
    match e.float() {
        Some(Float::F32) => 0.0,
        Some(Float::F16) => float(11),
        Some(Float::Bf16) => float(8),
        Some(Float::E4m3) => float(4),
        // Codes from −most to most.
        None => {
            (2.0 * (2.0 * spec.own_dim().max(spec.value_dim).max(1) as f64).ln()).sqrt()
                / (((1u32 << (e.bits() - 1)) - 1) as f64 * 12f64.sqrt())
        }
    }
}
