//! Kernels as they stand in the e-graph: canonical, without name, without chosen tiles.

use egg::Id;
use llmcc_ir::graph::F32;
use llmcc_ir::kernel::{Body, Expr, Kernel, Norm, Param, ParamId, ParamKind, RowElem, Store};
use llmcc_ir::ty::Dim;
use std::collections::BTreeMap;
use std::fmt;

/// A kernel whose first `inputs` operands are the children of its e-node and whose other operands
/// are its outputs.
///
/// Operands are numbered in the order in which the body mentions them, so that kernels built along
/// different ways are equal when they are the same. Tile sizes are 0: they are chosen when a regime
/// is costed, since no other kernel depends on them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spec {
    /// The kernel, with an empty name.
    pub kernel: Kernel,
    /// Operands that are inputs.
    pub inputs: usize,
}

/// A result of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A matrix of rows, written through this operand.
    Rows(ParamId),
    /// The updated attention state of this operand.
    Kv(ParamId),
}

impl Spec {
    /// Results in order: matrices of rows, then the attention state.
    pub fn outputs(&self) -> Vec<Output> {
        let mut out: Vec<Output> = (self.inputs..self.kernel.params.len()).map(Output::Rows).collect();
        let kv = self.kernel.body.segments().iter().find_map(|s| match s.store {
            Store::KvKey(p) | Store::KvValue(p) => Some(p),
            Store::Rows { .. } => None,
        });
        out.extend(kv.map(Output::Kv));
        out
    }

    /// Operand kind of an input.
    pub fn kind(&self, param: ParamId) -> &ParamKind {
        &self.kernel.params[param].kind
    }
}

/// Nodes of an expression.
pub fn expr_size(e: &Expr) -> usize {
    let mut n = 0;
    e.visit(&mut |_| n += 1);
    n
}

/// A kernel under construction: operands are any numbers, bound to e-classes (inputs) or declared
/// as outputs.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Kind of the kernel's rows.
    pub rows: Dim,
    /// The computation.
    pub body: Body,
    bound: BTreeMap<ParamId, (Option<Id>, ParamKind)>,
    next: ParamId,
}

impl Draft {
    /// A draft whose body is set by `build`, which declares operands on the way.
    pub fn new(rows: Dim, build: impl FnOnce(&mut Draft) -> Body) -> Draft {
        let placeholder = Body::Pointwise(llmcc_ir::kernel::Pointwise { segments: vec![] });
        let mut d = Draft { rows, body: placeholder, bound: BTreeMap::new(), next: 0 };
        d.body = build(&mut d);
        d
    }

    /// Reopens a kernel of the e-graph.
    pub fn open(spec: &Spec, children: &[Id]) -> Draft {
        let bind = |(i, p): (usize, &Param)| (i, (children.get(i).copied(), p.kind.clone()));
        Draft {
            rows: spec.kernel.rows,
            body: spec.kernel.body.clone(),
            bound: spec.kernel.params.iter().enumerate().map(bind).collect(),
            next: spec.kernel.params.len(),
        }
    }

    /// Takes over the operands of another kernel; returns its body in this draft's numbering.
    pub fn import(&mut self, spec: &Spec, children: &[Id]) -> Body {
        let base = self.next;
        for (i, p) in spec.kernel.params.iter().enumerate() {
            self.bound.insert(base + i, (children.get(i).copied(), p.kind.clone()));
        }
        self.next += spec.kernel.params.len();
        let mut body = spec.kernel.body.clone();
        body.visit_operands(&mut |p, _| *p += base);
        body
    }

    /// Declares an input.
    pub fn input(&mut self, class: Id, kind: ParamKind) -> ParamId {
        self.declare(Some(class), kind)
    }

    /// Declares an output of `cols` columns.
    pub fn output(&mut self, cols: usize, elem: RowElem) -> ParamId {
        self.declare(None, ParamKind::Rows { rows: self.rows, cols, elem })
    }

    fn declare(&mut self, class: Option<Id>, kind: ParamKind) -> ParamId {
        self.bound.insert(self.next, (class, kind));
        self.next += 1;
        self.next - 1
    }

    /// Class and kind of an operand.
    pub fn operand(&self, p: ParamId) -> Option<&(Option<Id>, ParamKind)> {
        self.bound.get(&p)
    }

    /// Whether all matrices that it reads have one format.
    pub fn reads_one_format(&self) -> bool {
        let format = |(_, kind): &(Option<Id>, ParamKind)| {
            if let ParamKind::Matrix { format, .. } = kind { Some(*format) } else { None }
        };
        let mut formats = self.bound.values().filter_map(format);
        formats.next().is_none_or(|first| formats.all(|f| f == first))
    }

    /// Changes the element storage of an output.
    pub fn set_elem(&mut self, p: ParamId, to: RowElem) {
        if let Some((_, ParamKind::Rows { elem, .. })) = self.bound.get_mut(&p) {
            *elem = to;
        }
    }

    /// Numbers the operands (equal inputs become one, unused ones vanish) and returns the kernel
    /// with its children.
    pub fn finish(mut self) -> (Spec, Vec<Id>) {
        let mut inputs: Vec<(Id, ParamKind)> = vec![];
        let mut outputs: Vec<(ParamId, ParamKind)> = vec![];
        let bound = &self.bound;
        self.body.visit_operands(&mut |p, _| match bound.get(p) {
            Some((Some(id), kind)) if !inputs.iter().any(|(i, k)| i == id && k == kind) => {
                inputs.push((*id, kind.clone()))
            }
            Some((None, kind)) if !outputs.iter().any(|(o, _)| o == p) => outputs.push((*p, kind.clone())),
            _ => {}
        });
        self.body.visit_operands(&mut |p, _| {
            *p = match bound.get(p) {
                Some((Some(id), kind)) => inputs.iter().position(|(i, k)| i == id && k == kind).unwrap_or(0),
                _ => inputs.len() + outputs.iter().position(|(o, _)| o == p).unwrap_or(0),
            }
        });
        let children = inputs.iter().map(|(id, _)| *id).collect();
        let count = inputs.len();
        let kinds = inputs.into_iter().map(|(_, k)| k).chain(outputs.into_iter().map(|(_, k)| k));
        let params = kinds.enumerate().map(|(i, kind)| Param { name: param_name(i, count, &kind), kind }).collect();
        let kernel = Kernel { name: String::new(), rows: self.rows, params, body: self.body };
        (Spec { kernel, inputs: count }, children)
    }
}

fn param_name(i: usize, inputs: usize, kind: &ParamKind) -> String {
    let stem = match kind {
        ParamKind::Rows { .. } if i >= inputs => "out",
        ParamKind::Rows { .. } => "x",
        ParamKind::Matrix { .. } => "w",
        ParamKind::Vector { .. } => "v",
        ParamKind::State(state) => state.word(),
    };
    format!("{stem}{i}")
}

impl fmt::Display for Spec {
    /// One word per aspect, for dumps: `matmul[norm,q8g32|w4g32:1024->kvkey,...]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.kernel.body.short_name())?;
        let mut parts = vec![];
        if let Body::Matmul(m) = &self.kernel.body
            && let Some(p) = m.prologue
        {
            parts.extend(p.norm.map(|n| norm_word(n).to_string()));
            parts.extend(p.gain.map(|_| "gain".to_string()));
            parts.extend(p.bias.map(|_| "bias".to_string()));
            parts.extend(p.elem.group().map(|_| p.elem.to_string()));
            parts.extend(p.elem.is_half().then(|| p.elem.to_string()));
        }
        if let Body::RowNorm(n) = &self.kernel.body {
            parts.extend(n.gather.then(|| "gather".to_string()));
            parts.extend(n.norm.map(|n| norm_word(n).to_string()));
            parts.extend(n.gain.map(|_| "gain".to_string()));
            parts.extend(n.bias.map(|_| "bias".to_string()));
            parts.extend(n.residual.map(|_| "residual".to_string()));
        }
        if let Body::Embed(e) = &self.kernel.body {
            parts.extend(e.index.word().map(str::to_string));
            parts.extend((e.scale != F32::new(1.0)).then(|| format!("scale {}", e.scale)));
            parts.extend(e.add.map(|_| "add".to_string()));
        }
        for s in self.kernel.body.segments() {
            let to = match s.store {
                Store::Rows { .. } => "rows",
                Store::KvKey(_) => "key",
                Store::KvValue(_) => "value",
            };
            parts.push(format!("{}x{}:{}->{to}", s.weights.len(), s.n, ExprText(&s.expr)));
        }
        for p in &self.kernel.params[self.inputs..] {
            if let ParamKind::Rows { elem, .. } = p.kind
                && elem.group().is_some()
            {
                parts.push(format!("out:{elem}"));
            }
        }
        write!(f, "{}]", parts.join(","))
    }
}

/// A normalization in a word.
fn norm_word(n: Norm) -> &'static str {
    if n.center { "standard" } else { "norm" }
}

/// An expression in functional notation.
pub struct ExprText<'a>(pub &'a Expr);

impl fmt::Display for ExprText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Expr::Acc(l) => write!(f, "acc{l}"),
            Expr::Rows { param, start: 0 } => write!(f, "p{param}"),
            Expr::Rows { param, start } => write!(f, "p{param}+{start}"),
            Expr::Vector(p) => write!(f, "p{p}"),
            Expr::Const(c) => write!(f, "{c}"),
            Expr::Expert { vector, .. } => write!(f, "expert(p{vector})"),
            Expr::Pick { rows, order } => write!(f, "pick(p{rows},p{order})"),
            Expr::Combine { weights, y, count, .. } => write!(f, "combine{count}(p{weights},p{y})"),
            Expr::Unary(op, x) => write!(f, "{}({})", op.name(), ExprText(x)),
            Expr::Binary(op, a, b) => write!(f, "{}({},{})", op.name(), ExprText(a), ExprText(b)),
            Expr::Normalize(n, x) => write!(f, "{}{}({})", norm_word(*n), n.width, ExprText(x)),
            Expr::Rope { x, table, .. } => write!(f, "rope({},p{table})", ExprText(x)),
        }
    }
}

/// Chosen tile sizes, as ` 4x64,64`.
pub fn tiles(kernel: &Kernel) -> String {
    match &kernel.body {
        Body::Matmul(m) => {
            let n: Vec<String> = m.segments.iter().map(|s| s.tile_n.to_string()).collect();
            let parts = if m.k_parts == 1 { String::new() } else { format!(" in {} parts", m.k_parts) };
            format!(" {}x{}{parts}", m.tile_m, n.join(","))
        }
        Body::ExpertMatmul(m) => format!(" {}x{}", m.tile_m, m.segment.tile_n),
        _ => String::new(),
    }
}
