//! A kernel with its operands and a step, and how these stand in memory.

use llmcc_abi::PAGE_TOKENS;
use llmcc_abi::layout::excess_parts;
use llmcc_ir::eval::{
    Batch, KvState, OperandData, Q8Rows, Rows, eval_kernel, fp8_rows_from_bytes, fp8_rows_to_bytes,
    half_rows_from_bytes, half_rows_to_bytes, q8_rows_from_bytes, q8_rows_to_bytes, rows_from_bytes, rows_to_bytes,
};
use llmcc_ir::kernel::{Kernel, ParamKind, RowElem};
use llmcc_ir::state::{Lifetime, State};

/// A kernel with its operands and a step.
#[derive(Clone)]
pub struct Case {
    /// The kernel.
    pub kernel: Kernel,
    /// The step's tokens.
    pub batch: Batch,
    /// An operand per parameter; outputs are NaN.
    pub operands: Vec<OperandData<'static>>,
}

impl Case {
    /// Rows of the kernel.
    pub fn m(&self) -> usize {
        self.kernel.rows.eval(self.batch.env())
    }

    /// The operands after the kernel, as the evaluator says.
    pub fn expected(&self) -> Vec<OperandData<'static>> {
        let mut operands = self.operands.clone();
        eval_kernel(&self.kernel, &self.batch, &mut operands).unwrap_or_else(|e| panic!("{e}\n{}", self.text()));
        operands
    }

    /// The kernel's text, for messages.
    pub fn text(&self) -> String {
        llmcc_ir::text::print_kernel(&self.kernel)
    }

    /// Row `i` of an operand, decoded.
    pub fn row(&self, param: usize, i: usize) -> Vec<f64> {
        match &self.operands[param] {
            OperandData::Rows(r) => r.row(i).iter().map(|v| f64::from(*v)).collect(),
            OperandData::Q8(r) => r.row(i),
            o => panic!("not rows: {o:?}"),
        }
    }

    fn states(&self) -> impl Iterator<Item = &KvState> {
        self.operands.iter().filter_map(|o| if let OperandData::State(s) = o { s.paged() } else { None })
    }

    /// Sequences of the step, and stored ones.
    fn sequences(&self) -> usize {
        let kept = |o: &OperandData| match o {
            OperandData::State(state) => state.sequences(),
            _ => 0,
        };
        let kept = self.operands.iter().map(kept);
        let stored = kept.max().unwrap_or(0);
        self.batch.seqs.iter().max().map_or(0, |s| s + 1).max(stored)
    }

    /// Pages of each sequence: scattered over the pool, every other page unused.
    pub fn tables(&self) -> Vec<Vec<u32>> {
        let sequences = self.sequences();
        let longest = self.lens().into_iter().max();
        let each = longest.unwrap_or(0).div_ceil(PAGE_TOKENS);
        let pages = sequences * each;
        let page = |s: usize, i: usize| match i {
            // The slot of an adapter; 0 without one.
            0 if self.without_adapter(s) => 0,
            _ => (2 * (pages - i * sequences - s) - 1) as u32,
        };
        (0..sequences).map(|s| (0..each).map(|i| page(s, i)).collect()).collect()
    }

    /// Whether the kernel multiplies by adapters and a sequence has none.
    fn without_adapter(&self, seq: usize) -> bool {
        let none =
            |o: &OperandData| matches!(o, OperandData::State(s) if s.adapter().is_some_and(|a| a.of(seq).is_none()));
        self.operands.iter().any(none)
    }

    /// The bytes of operand `i` as kernels read them; a cache as a pool of pages.
    pub fn bytes(&self, i: usize, tables: &[Vec<u32>]) -> Vec<u8> {
        match (&self.operands[i], &self.kernel.params[i].kind) {
            (OperandData::Rows(r), ParamKind::Rows { elem, .. }) if elem.is_half() => half_rows_to_bytes(r, *elem),
            (OperandData::Rows(r), _) => rows_to_bytes(r),
            (OperandData::Q8(r), _) => q8_rows_to_bytes(r),
            (OperandData::Fp8(r), _) => fp8_rows_to_bytes(r),
            (OperandData::Matrix(b), _) => b.to_vec(),
            (OperandData::Vector(v), _) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
            (OperandData::State(state), _) => {
                let pages = tables.iter().flatten().max().map_or(1, |p| *p as usize + 1);
                // All ones is NaN in every float format.
                let mut pool = vec![0xff; pages * state.spec().bytes()];
                state.to_pool(tables, &mut pool).expect("the pool has these pages");
                pool
            }
        }
    }

    /// Operand `i` from its bytes after the kernel; operands that no kernel writes are taken
    /// unchanged.
    pub fn operand(&self, i: usize, bytes: &[u8], tables: &[Vec<u32>]) -> OperandData<'static> {
        match self.kernel.params[i].kind {
            ParamKind::Rows { cols, elem: RowElem::F32, .. } => OperandData::Rows(rows_from_bytes(cols, bytes)),
            ParamKind::Rows { cols, elem: RowElem::Fp8, .. } => OperandData::Fp8(fp8_rows_from_bytes(cols, bytes)),
            ParamKind::Rows { cols, elem: RowElem::Q8 { group } | RowElem::I8 { group }, .. } => {
                OperandData::Q8(q8_rows_from_bytes(cols, group, bytes))
            }
            ParamKind::Rows { cols, elem, .. } => OperandData::Rows(half_rows_from_bytes(cols, elem, bytes)),
            // No step writes it.
            ParamKind::State(spec) if matches!(spec.lifetime(), Lifetime::Chosen(_)) => self.operands[i].clone(),
            ParamKind::State(spec) => {
                let state = State::from_pool(spec, tables, &self.lens(), bytes);
                OperandData::State(state.expect("the pool has these pages"))
            }
            ParamKind::Matrix { .. } | ParamKind::Vector { .. } => self.operands[i].clone(),
        }
    }

    /// Positions of each sequence that are stored after the step.
    pub fn lens(&self) -> Vec<usize> {
        let in_batch = |s: usize| {
            let positions = self.batch.positions.iter().zip(&self.batch.seqs);
            positions.filter(|(_, q)| **q == s).map(|(p, _)| *p as usize + 1).max().unwrap_or(0)
        };
        let stored = |s: usize| self.states().map(|k| k.len(s)).max().unwrap_or(0);
        (0..self.sequences()).map(|s| in_batch(s).max(stored(s))).collect()
    }

    /// The same with token `i` alone; nothing for kernels that read rows of another number.
    pub fn only(&self, i: usize) -> Option<Case> {
        let b = &self.batch;
        let batch = Batch {
            tokens: vec![b.tokens[i]],
            seqs: vec![0],
            positions: vec![b.positions[i]],
            types: vec![b.type_of(i)],
            hidden: b.hidden_of(i).to_vec(),
            axes: b.axes_of(i).to_vec(),
            out_rows: vec![0],
            ..Batch::default()
        };
        let rows = self
            .kernel
            .params
            .iter()
            .all(|p| !matches!(p.kind, ParamKind::Rows { rows, .. } if rows != self.kernel.rows));
        rows.then(|| Case {
            kernel: self.kernel.clone(),
            batch,
            operands: self.operands.iter().map(|o| row_of(o, i)).collect(),
        })
    }
}

/// Row `i` of rows; other operands as they are.
pub fn row_of(operand: &OperandData<'static>, i: usize) -> OperandData<'static> {
    match operand {
        OperandData::Rows(r) => OperandData::Rows(Rows { cols: r.cols, data: r.row(i).to_vec() }),
        OperandData::Q8(q) => {
            let (g, parts) = (q.groups(), q.groups() * excess_parts(q.group));
            OperandData::Q8(Q8Rows {
                cols: q.cols,
                group: q.group,
                codes: q.codes[i * q.cols..][..q.cols].to_vec(),
                scales: q.scales[i * g..][..g].to_vec(),
                sums: q.sums[i * g..][..g].to_vec(),
                excesses: q.excesses[i * parts..][..parts].to_vec(),
            })
        }
        other => other.clone(),
    }
}
