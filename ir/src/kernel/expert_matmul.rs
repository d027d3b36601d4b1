//! Products with the matrices of each token's experts.

use super::part::{Slots, family};
use super::{Experts, Expr, Family, Outcome, Param, ParamId, Product, RowElem, Segment, Store, Use};
use crate::eval::{EvalError, KernelRun, RowValues};
use crate::graph::expert;
use crate::quant::BLOCK;
use crate::verify::KernelVerifier;

family! {
    /// Products of rows with the matrices of their experts. A row of `routes` names the experts of
    /// its token, one for each of `top` slots; a slot's result stands in that slot's columns of the
    /// rows that are stored and that the expression reads: column `j` of slot `s` is column `s·n +
    /// j`, `n` being the columns of the segment.
    ///
    /// The matrices of all experts lie one below the other, `[experts·n, k]`, each padded to whole
    /// blocks of rows. Work items are column tiles of experts, all first tiles first: an item whose
    /// expert no token has reads nothing.
    ///
    /// Without `routes` slot `s` of every token has the matrix `s`: a product by heads (`head_matmul` of
    /// the graph level).
    ExpertMatmul {
        /// Input rows: `k` columns that all slots read, or `top·k`, `k` for each slot.
        x: ParamId as Use::READ,
        /// Numbers of the experts, f32 `[T, 2·top]`, as [`super::Route`] stores them. None: a slot's own
        /// number.
        routes: Option<ParamId> as Use::READ,
        /// Experts.
        experts: usize,
        /// Experts of a token.
        top: usize,
        /// Rows of an expert processed per pass over a tile's weights.
        tile_m: usize,
        /// The output of a slot: elementwise.
        segment: Segment as Slots,
    }
}

impl Family for ExpertMatmul {
    fn segments(&self) -> &[Segment] {
        std::slice::from_ref(&self.segment)
    }

    fn segments_mut(&mut self) -> &mut [Segment] {
        std::slice::from_mut(&mut self.segment)
    }

    fn product(&self) -> Option<Product<'_>> {
        let experts = Experts { routes: self.routes, experts: self.experts, top: self.top };
        Some(Product { x: self.x, prologue: None, experts: Some(experts) })
    }

    fn tile_m_mut(&mut self) -> Option<&mut usize> {
        Some(&mut self.tile_m)
    }

    fn share(&self) -> f64 {
        self.top as f64 / self.experts.max(1) as f64
    }

    fn has_whole_groups(&self, _: &[Param], elem: RowElem) -> bool {
        !elem.by_row() && self.segment.n.is_multiple_of(elem.run())
    }

    fn items(&self, _: &[Param]) -> (usize, bool) {
        (self.experts * self.segment.tiles(), false)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        let (s, rows) = (&self.segment, v.kernel.rows);
        if self.tile_m == 0 {
            v.error("tile-m", "processes 0 rows per pass");
        }
        let chosen = match self.routes {
            Some(_) => 1..=self.experts.min(llmcc_abi::route::MOST_CHOSEN),
            None => self.experts..=self.experts,
        };
        if self.experts == 0 || self.experts > llmcc_abi::route::MOST_EXPERTS || !chosen.contains(&self.top) {
            return v.error("experts", format!("chooses {} of {} experts", self.top, self.experts));
        }
        if s.n == 0 || s.tile_n == 0 || !s.tile_n.is_multiple_of(BLOCK) {
            let message = format!("has {} columns per expert in tiles of {}, not of whole blocks", s.n, s.tile_n);
            return v.error("segment-size", message);
        }
        if let Some(routes) = self.routes
            && let Some(have) = v.f32_rows(routes, rows)
        {
            v.columns(routes, have, 2 * self.top);
        }
        if let Some((cols, elem)) = v.rows(self.x, rows) {
            self.verify_lanes(v, cols, elem);
        }
        self.verify_expr(v, &s.expr);
        self.verify_store(v);
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let (s, cols) = (&self.segment, x.kernel.rows(self.x).cols);
        let mut out = RowValues::new();
        for i in 0..x.m {
            let (routes, row) = (self.routes.map(|routes| x.row(routes, i)), x.row(self.x, i));
            let mut values = vec![];
            for slot in 0..self.top {
                let e = match &routes {
                    Some(routes) => expert(routes, slot, self.experts)?,
                    None => slot,
                };
                let k = x.kernel.matrix(s.weights[0]).k;
                let input = if self.own_input(cols, k) { &row[slot * k..][..k] } else { &row[..] };
                let first = e * self.rows();
                let lane = |w: &ParamId| x.product_with(input, *w, first..first + s.n);
                let lanes: Vec<RowValues> = s.weights.iter().map(|w| vec![lane(w)]).collect();
                values.extend(x.slot(s, i, (slot, self.top), &lanes)?);
            }
            out.push(values);
        }
        Ok(Outcome::rows(vec![(s.store.clone(), out)]))
    }
}

impl ExpertMatmul {
    /// Whether each slot has input columns of its own.
    pub fn own_input(&self, cols: usize, k: usize) -> bool {
        cols != k || self.routes.is_none()
    }

    /// Rows of an expert's matrix, padding included.
    pub fn rows(&self) -> usize {
        self.segment.n.next_multiple_of(BLOCK)
    }

    fn verify_lanes(&self, v: &mut KernelVerifier<'_>, cols: usize, elem: RowElem) {
        let s = &self.segment;
        if s.weights.is_empty() {
            v.error("no-lanes", "a matmul segment needs weights");
        }
        let mut columns = None;
        for w in &s.weights {
            let Some((n, k, format)) = v.matrix(*w) else { continue };
            let all = self.rows().saturating_mul(self.experts);
            let same = cols == k && self.routes.is_some();
            let fits = n == all && (same || Some(cols) == k.checked_mul(self.top));
            if !fits {
                v.error("matrix-shape", format!("operand {w} is [{n}, {k}], which does not fit [{all}, {cols}]"));
            }
            let other = *columns.get_or_insert(k);
            if k != other {
                v.error("matrix-shape", format!("operand {w} has {k} columns, the first matrix {other}"));
            }
            v.multiplies(elem, format);
            if cols != k && !k.is_multiple_of(elem.run()) {
                v.error("store-group", format!("{k} columns of a slot are not whole groups of {}", elem.run()));
            }
            if elem.by_row() && cols != k {
                v.error("store-group", "fp8 rows have a scale of all their columns, not one for each slot");
            }
        }
        v.unused_lanes(s);
    }

    fn verify_expr(&self, v: &mut KernelVerifier<'_>, e: &Expr) {
        let s = &self.segment;
        match e {
            Expr::Acc(lane) => v.lane(*lane, s),
            Expr::Rows { param, start } => {
                if *start != 0 {
                    v.error("expr-columns", "rows of slots are read whole");
                }
                if let Some(have) = v.f32_rows(*param, v.kernel.rows) {
                    v.columns(*param, have, s.n * self.top);
                }
            }
            Expr::Vector(param) => v.divides(*param, s.n),
            Expr::Const(c) => v.finite("the constant", *c),
            Expr::Expert { vector, routes, top } => {
                if Some(*routes) != self.routes || *top != self.top {
                    v.error("experts", "adds what belongs to other experts");
                }
                if let Some(len) = v.vector(*vector).filter(|len| *len != s.n * self.experts) {
                    v.error("vector-length", format!("has {len} elements for {} experts of {}", self.experts, s.n));
                }
            }
            Expr::Unary(_, x) => self.verify_expr(v, x),
            Expr::Binary(_, a, b) => {
                self.verify_expr(v, a);
                self.verify_expr(v, b);
            }
            Expr::Normalize(..) | Expr::Rope { .. } | Expr::Pick { .. } | Expr::Combine { .. } => {
                v.error("experts", "only elementwise work follows the products of experts");
            }
        }
    }

    fn verify_store(&self, v: &mut KernelVerifier<'_>) {
        let s = &self.segment;
        let Store::Rows { param, start } = s.store else {
            return v.error("experts", "products of experts are stored in rows");
        };
        let Some((cols, elem)) = v.rows(param, v.kernel.rows) else { return };
        if start != 0 {
            v.error("store-columns", "rows of slots are stored whole");
        }
        v.columns(param, cols, s.n * self.top);
        if elem.by_row() {
            v.error("store-group", "fp8 rows have a scale of all their columns, which only row-wise kernels see");
        }
        let run = elem.run();
        if !s.n.is_multiple_of(run) {
            v.error("store-group", format!("{} columns of a slot are not whole groups of {run}", s.n));
        }
        if s.tile_n < s.n && !s.tile_n.is_multiple_of(run) {
            v.error("tile-n", format!("tiles of {} columns must be multiples of {run}", s.tile_n));
        }
    }
}
