//! Rules of the kernel level.

use super::{Access, Sink, accesses, format_ok, state_spec};
use crate::diag::{Diagnostic, Place};
use crate::graph::F32;
use crate::kernel::{Expr, Kernel, Norm, Param, ParamId, ParamKind, RowElem, Segment, Store, lcm};
use crate::quant::{BLOCK, Encoding, Format, ROW_GROUPS};
use crate::target::integer_rows;
use crate::ty::Dim;

/// Checks one kernel. Returns all findings.
pub fn verify_kernel(kernel: &Kernel) -> Vec<Diagnostic> {
    let mut v = KernelVerifier { kernel, sink: Sink::default() };
    if kernel.name.is_empty() {
        v.error("empty-name", "has no name");
    }
    if !matches!(kernel.rows, Dim::Tokens | Dim::Rows) {
        v.error("kernel-rows", format!("the rows of a kernel are T or R, not {}", kernel.rows));
    }
    v.sink.unique(kernel.params.iter().map(|p| (p.name.as_str(), v.param_place(p))).collect::<Vec<_>>().into_iter());
    kernel.params.iter().for_each(|p| v.param(p));
    v.packings();
    kernel.body.family().verify(&mut v);
    let accesses = accesses(kernel);
    v.races(&accesses);
    for (i, p) in kernel.params.iter().enumerate().filter(|(i, _)| accesses.iter().all(|a| a.param != *i)) {
        v.sink.warning("unused-param", v.param_place(p), format!("operand {i} is not used"));
    }
    v.sink.out
}

/// Input of a matmul, as its weights see it.
pub(crate) struct Input {
    pub cols: usize,
    /// Storage of the operands.
    pub elem: RowElem,
}

pub(crate) struct KernelVerifier<'a> {
    pub kernel: &'a Kernel,
    sink: Sink,
}

impl<'a> KernelVerifier<'a> {
    fn place(&self) -> Place {
        Place::Kernel { kernel: self.kernel.name.clone() }
    }

    fn param_place(&self, p: &Param) -> Place {
        Place::KernelParam { kernel: self.kernel.name.clone(), param: p.name.clone() }
    }

    fn segment_place(&self, segment: usize) -> Place {
        Place::Segment { kernel: self.kernel.name.clone(), segment }
    }

    pub fn error(&mut self, code: &'static str, message: impl Into<String>) {
        let place = self.place();
        self.sink.error(code, place, message);
    }

    fn param(&mut self, p: &Param) {
        let place = self.param_place(p);
        let problem = match p.kind {
            ParamKind::Rows { rows, .. } if !matches!(rows, Dim::Tokens | Dim::Rows) => {
                Some(format!("has {rows} rows instead of T or R"))
            }
            ParamKind::Rows { cols: 0, .. } => Some("has no columns".into()),
            ParamKind::Rows { elem, .. } if elem.group().is_some_and(|group| !ROW_GROUPS.contains(&group)) => {
                Some(format!("is quantized in groups of {}", elem.group().unwrap_or_default()))
            }
            ParamKind::Matrix { n, k, .. } if n == 0 || k == 0 => Some(format!("is an empty matrix [{n}, {k}]")),
            ParamKind::Matrix { format, .. } if !format_ok(format) => {
                Some(format!("has the format {format} in groups of {}", format.group))
            }
            ParamKind::Vector { len: 0 } => Some("is an empty vector".into()),
            ParamKind::State(spec) => return state_spec(&mut self.sink, &place, &spec),
            ParamKind::Rows { .. } | ParamKind::Matrix { .. } | ParamKind::Vector { .. } => None,
        };
        if let Some(problem) = problem {
            self.sink.error("param-kind", place, problem);
        }
    }

    /// A kernel reads its matrices in one order.
    fn packings(&mut self) {
        let mut packings = self.kernel.params.iter().filter_map(|p| match p.kind {
            ParamKind::Matrix { format, .. } => Some((p, format.packing)),
            _ => None,
        });
        let Some((_, first)) = packings.next() else { return };
        if let Some((p, _)) = packings.find(|(_, packing)| *packing != first) {
            let place = self.param_place(p);
            self.sink.error("mixed-packing", place, format!("is not packed as {first:?} like the first matrix"));
        }
    }

    /// The kind of an operand that must be `what`; reports and yields `None` if it is another.
    pub(super) fn kind<T>(&mut self, id: ParamId, what: &str, get: impl Fn(&'a ParamKind) -> Option<T>) -> Option<T> {
        let Some(p) = self.kernel.params.get(id) else {
            self.error("param-range", format!("operand {id} does not exist; there are {}", self.kernel.params.len()));
            return None;
        };
        let found = get(&p.kind);
        if found.is_none() {
            let place = self.param_place(p);
            self.sink.error("param-kind", place, format!("must be {what}"));
        }
        found
    }

    /// `(columns, storage)` of a matrix of rows that has `rows` rows.
    pub fn rows(&mut self, id: ParamId, rows: Dim) -> Option<(usize, RowElem)> {
        let (have, cols, elem) = self.kind(id, "rows", |k| match *k {
            ParamKind::Rows { rows, cols, elem } => Some((rows, cols, elem)),
            _ => None,
        })?;
        if have != rows {
            let place = self.param_place(&self.kernel.params[id]);
            self.sink.error("param-rows", place, format!("must have {rows} rows, not {have}"));
        }
        Some((cols, elem))
    }

    /// Columns of f32 rows.
    pub fn f32_rows(&mut self, id: ParamId, rows: Dim) -> Option<usize> {
        let (cols, elem) = self.rows(id, rows)?;
        if elem != RowElem::F32 {
            let place = self.param_place(&self.kernel.params[id]);
            self.sink.error("param-elem", place, "must be f32 rows");
        }
        Some(cols)
    }

    /// Columns of f32 rows of the kernel, or elements of a vector, which is the same for all rows.
    pub fn f32_each(&mut self, id: ParamId) -> Option<usize> {
        match self.kernel.params.get(id).map(|p| &p.kind) {
            Some(ParamKind::Vector { len }) => Some(*len),
            Some(ParamKind::Rows { .. } | ParamKind::Matrix { .. } | ParamKind::State(_)) | None => {
                self.f32_rows(id, self.kernel.rows)
            }
        }
    }

    /// Columns of rows that are not quantized.
    pub fn float_rows(&mut self, id: ParamId, rows: Dim) -> Option<usize> {
        let (cols, elem) = self.rows(id, rows)?;
        if elem.is_quantized() {
            let place = self.param_place(&self.kernel.params[id]);
            self.sink.error("param-elem", place, "must not be int8 or fp8 rows");
        }
        Some(cols)
    }

    pub fn matrix(&mut self, id: ParamId) -> Option<(usize, usize, Format)> {
        self.kind(id, "a matrix", |k| match *k {
            ParamKind::Matrix { n, k, format } => Some((n, k, format)),
            _ => None,
        })
    }

    pub fn vector(&mut self, id: ParamId) -> Option<usize> {
        self.kind(id, "a vector", |k| match *k {
            ParamKind::Vector { len } => Some(len),
            _ => None,
        })
    }

    pub fn columns(&mut self, id: ParamId, have: usize, want: usize) {
        if have != want
            && let Some(p) = self.kernel.params.get(id)
        {
            let place = self.param_place(p);
            self.sink.error("param-columns", place, format!("must have {want} columns, not {have}"));
        }
    }

    pub fn tokens_only(&mut self) {
        if self.kernel.rows != Dim::Tokens {
            self.error("kernel-rows", format!("works on tokens: its rows must be T, not {}", self.kernel.rows));
        }
    }

    pub fn finite(&mut self, what: &str, x: F32) {
        if !x.get().is_finite() {
            self.error("attribute", format!("{what} {x} is not finite"));
        }
    }

    pub fn norm(&mut self, norm: &Norm, cols: usize) {
        self.finite("eps", norm.eps);
        if norm.width == 0 || !cols.is_multiple_of(norm.width) {
            self.error("norm-width", format!("runs of {} columns do not divide {cols} columns", norm.width));
        }
    }

    /// `input` is `None` in pointwise kernels.
    pub fn segments(&mut self, segments: &[Segment], input: Option<Input>) {
        if segments.is_empty() {
            self.error("no-segments", "computes nothing");
        }
        for (i, s) in segments.iter().enumerate() {
            let before = self.sink.out.len();
            if s.n == 0 || s.tile_n == 0 {
                self.error("segment-size", format!("has {} columns in tiles of {}", s.n, s.tile_n));
            } else {
                match &input {
                    Some(input) => self.lanes(s, input),
                    None if !s.weights.is_empty() => self.error("pointwise-weights", "pointwise work has no weights"),
                    None => {}
                }
                self.expr(&s.expr, s, input.is_some());
                let store_run = self.store(s);
                if input.is_some() {
                    self.tile(s, store_run);
                }
            }
            // Findings without an operand of their own are of this segment.
            let (whole, segment) = (self.place(), self.segment_place(i));
            self.sink.out[before..].iter_mut().filter(|d| d.place == whole).for_each(|d| d.place = segment.clone());
        }
    }

    fn lanes(&mut self, s: &Segment, input: &Input) {
        if s.weights.is_empty() {
            self.error("no-lanes", "a matmul segment needs weights");
        }
        for w in &s.weights {
            let Some((n, k, format)) = self.matrix(*w) else { continue };
            // An input that is no matrix of rows has been reported.
            if input.cols != 0 && (n, k) != (s.n, input.cols) {
                self.error("matrix-shape", format!("operand {w} is [{n}, {k}], but must be [{}, {}]", s.n, input.cols));
            }
            self.multiplies(input.elem, format);
        }
        self.unused_lanes(s);
    }

    /// Rows of `elem` are multiplied with matrices of `format`.
    pub fn multiplies(&mut self, elem: RowElem, format: Format) {
        match elem {
            RowElem::Q8 { group } if format.encoding().integer_group() != Some(group) => self.error(
                "int8-group",
                format!("int8 input in groups of {group} needs weights of integers in the same groups, not {format}"),
            ),
            RowElem::I8 { .. } if integer_rows(format) != Some(elem) => self.error(
                "int8-group",
                format!("{elem} input needs weights of integers, no table's, in the same groups, not {format}"),
            ),
            RowElem::Fp8 if format.encoding() != Encoding::FP8 => {
                self.error("fp8-weights", format!("fp8 input needs fp8 weights, not {format}"));
            }
            RowElem::F32 | RowElem::F16 | RowElem::Bf16 | RowElem::Q8 { .. } | RowElem::I8 { .. } | RowElem::Fp8 => {}
        }
    }

    /// Every product is used.
    pub fn unused_lanes(&mut self, s: &Segment) {
        let mut used = vec![false; s.weights.len()];
        s.expr.visit(&mut |e| {
            if let Expr::Acc(lane) = e
                && let Some(u) = used.get_mut(*lane)
            {
                *u = true;
            }
        });
        if let Some(lane) = used.iter().position(|u| !u) {
            let place = self.place();
            self.sink.warning("unused-lane", place, format!("accumulator {lane} is not used"));
        }
    }

    fn expr(&mut self, e: &Expr, s: &Segment, matmul: bool) {
        match e {
            Expr::Acc(_) if !matmul => self.error("acc-in-pointwise", "pointwise work has no accumulators"),
            Expr::Acc(lane) => self.lane(*lane, s),
            Expr::Rows { param, start } => {
                if let Some(cols) = self.f32_rows(*param, self.kernel.rows) {
                    self.range("expr-columns", *param, *start, s.n, cols);
                }
            }
            Expr::Vector(param) => self.divides(*param, s.n),
            Expr::Const(c) => self.finite("the constant", *c),
            Expr::Expert { vector, routes, top } => self.expert_leaf(s, *vector, *routes, (*top, matmul)),
            Expr::Pick { rows, order } => {
                self.f32_rows(*rows, self.kernel.rows);
                if let Some(len) = self.vector(*order).filter(|len| *len != s.n) {
                    self.error("vector-length", format!("an order of {len} columns is none of {}", s.n));
                }
            }
            Expr::Combine { weights, from, y, count } => {
                if *count == 0 {
                    self.error("experts", "combines nothing");
                }
                if let Some(cols) = self.f32_rows(*weights, self.kernel.rows) {
                    self.range("expr-columns", *weights, *from, *count, cols);
                }
                if let Some(cols) = self.f32_rows(*y, self.kernel.rows) {
                    self.columns(*y, cols, s.n.saturating_mul(*count));
                }
            }
            Expr::Unary(_, x) => self.expr(x, s, matmul),
            Expr::Binary(_, a, b) => {
                self.expr(a, s, matmul);
                self.expr(b, s, matmul);
            }
            Expr::Normalize(norm, x) => {
                self.norm(norm, s.n);
                self.expr(x, s, matmul);
            }
            Expr::Rope { head_dim, table, x } => {
                if *head_dim == 0 || !s.n.is_multiple_of(*head_dim) {
                    self.error("rope-heads", format!("heads of {head_dim} columns do not divide {} columns", s.n));
                }
                if let Some(d) = self.f32_rows(*table, self.kernel.rows).filter(|d| d % 2 != 0 || d > head_dim) {
                    self.error("rope-table", format!("a table of {d} columns does not fit heads of {head_dim}"));
                }
                self.expr(x, s, matmul);
            }
        }
    }

    /// There is such an accumulator.
    pub fn lane(&mut self, lane: usize, s: &Segment) {
        if lane >= s.weights.len() {
            self.error("acc-lane", format!("there is no accumulator {lane}; there are {}", s.weights.len()));
        }
    }

    /// A vector divides the columns of a segment.
    pub fn divides(&mut self, param: ParamId, n: usize) {
        if let Some(len) = self.vector(param).filter(|len| *len == 0 || !n.is_multiple_of(*len)) {
            self.error("vector-length", format!("a vector of {len} elements does not divide {n} columns"));
        }
    }

    /// A vector of parts for experts, where no product names the slot.
    fn expert_leaf(&mut self, s: &Segment, vector: ParamId, routes: ParamId, (top, matmul): (usize, bool)) {
        if matmul {
            return self.error("experts", "products of one matrix have no slots for experts");
        }
        if top == 0 || !s.n.is_multiple_of(top) {
            return self.error("experts", format!("{} columns are not {top} equal slots", s.n));
        }
        if let Some(have) = self.f32_rows(routes, self.kernel.rows) {
            self.columns(routes, have, 2 * top);
        }
        let part = s.n / top;
        if let Some(len) = self.vector(vector).filter(|len| !len.is_multiple_of(part)) {
            self.error("vector-length", format!("a vector of {len} elements has no parts of {part}"));
        }
    }

    pub fn range(&mut self, code: &'static str, param: ParamId, start: usize, n: usize, cols: usize) {
        if start.checked_add(n).is_none_or(|end| end > cols) {
            self.error(code, format!("columns {start}..{start}+{n} lie outside operand {param} with {cols} columns"));
        }
    }

    /// Columns that one tile must not split.
    fn store(&mut self, s: &Segment) -> usize {
        match s.store {
            Store::Rows { param, start } => {
                let Some((cols, elem)) = self.rows(param, self.kernel.rows) else { return 1 };
                self.range("store-columns", param, start, s.n, cols);
                if elem.by_row() {
                    self.error(
                        "store-group",
                        "fp8 rows have a scale of all their columns, which only row-wise kernels see",
                    );
                }
                let Some(group) = elem.group() else { return 1 };
                let run = elem.run();
                let whole = group > 0
                    && start.is_multiple_of(run)
                    && (s.n.is_multiple_of(run) || start.checked_add(s.n) == Some(cols));
                if !whole {
                    self.error(
                        "store-group",
                        format!("columns {start}..{start}+{} are not whole groups of {run}", s.n),
                    );
                }
                run
            }
            Store::KvKey(param) | Store::KvValue(param) => {
                if self.kernel.rows != Dim::Tokens {
                    self.error(
                        "kernel-rows",
                        format!("keys and values are stored for tokens: rows must be T, not {}", self.kernel.rows),
                    );
                }
                let Some(spec) = self.kv(param) else { return 1 };
                let key = matches!(s.store, Store::KvKey(_));
                if s.n != spec.width(key) {
                    self.error(
                        "kv-columns",
                        format!("{} columns are stored into {spec}, which needs {}", s.n, spec.width(key)),
                    );
                }
                // int8 has a scale per head.
                if spec.dtype.encoding().is_quantized() { spec.stored_dim(key).max(1) } else { 1 }
            }
        }
    }

    /// Tiles of matmuls: whole blocks, whole runs of columns, whole groups, unless one tile covers
    /// everything.
    fn tile(&mut self, s: &Segment, store_run: usize) {
        let runs_ok = {
            let mut ok = true;
            s.expr.visit(&mut |e| {
                if let Expr::Normalize(Norm { width: 0, .. }, _) | Expr::Rope { head_dim: 0, .. } = e {
                    ok = false;
                }
            });
            ok
        };
        if s.tile_n >= s.n || !runs_ok {
            return;
        }
        let unit = lcm(lcm(BLOCK, s.expr.column_run()), store_run);
        if !s.tile_n.is_multiple_of(unit) {
            self.error("tile-n", format!("tiles of {} columns must be multiples of {unit}", s.tile_n));
        }
    }

    /// Work items run at the same time: no item may read or store an element that another stores.
    /// An item may read exactly the elements it stores.
    fn races(&mut self, accesses: &[Access]) {
        if self.kernel.body.family().in_place() {
            return;
        }
        for (i, w) in accesses.iter().enumerate().filter(|(_, a)| a.write && !a.cols.is_empty()) {
            for (j, other) in accesses.iter().enumerate().filter(|(j, o)| *j != i && o.param == w.param) {
                let overlaps = other.cols.start < w.cols.end && w.cols.start < other.cols.end;
                // Each pair of writes once; reads of the element being written are fine within a
                // segment.
                let fine = if other.write {
                    j > i
                } else {
                    other.cols == w.cols && w.segment.is_some() && other.segment == w.segment
                };
                if overlaps && !fine {
                    let what = if other.write {
                        "stored twice"
                    } else {
                        "read by other work items than the one that stores them"
                    };
                    self.error("race", format!("columns {:?} of operand {} are {what}", w.cols, w.param));
                }
            }
        }
        self.segment_races();
    }

    /// A state is stored once; a rotation does not overwrite its table.
    fn segment_races(&mut self) {
        let segments = self.kernel.body.segments();
        for (i, s) in segments.iter().enumerate() {
            s.expr.visit(&mut |e| {
                if let (Expr::Rope { table, .. }, Store::Rows { param, .. }) = (e, &s.store)
                    && table == param
                {
                    let place = Place::Segment { kernel: self.kernel.name.clone(), segment: i };
                    self.sink.error("race", place, "stores over the table it reads");
                }
            });
            let kv = matches!(s.store, Store::KvKey(_) | Store::KvValue(_));
            if kv && segments[..i].iter().any(|t| t.store == s.store) {
                let place = self.segment_place(i);
                self.sink.error("race", place, "stores the same half of the state as an earlier segment");
            }
        }
    }
}
