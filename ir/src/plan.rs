//! Plan level: how a step runs.
//!
//! A [`Plan`] has the distinct kernels once, and for each entry and regime (a range of `T`) the sequence of
//! their launches with operands bound to buffers, weights and states. Buffers are assigned to slots
//! by liveness; each slot's size is linear in `T` and `R`, so the peak is a formula known before
//! anything is loaded.

use crate::graph::{ModelInfo, Op, ValueType};
use crate::kernel::{Kernel, RowElem};
use crate::kv::KvSpec;
use crate::output::{self, EntryOutput, Output};
use crate::quant::Format;
use crate::state::{self, StateSpec, Tracks};
use crate::tap::Tap;
use crate::ty::{Dim, TensorType};

/// A scheduled model.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Name of the model.
    pub name: String,
    /// Sizes.
    pub info: ModelInfo,
    /// States of a sequence.
    pub states: Vec<StateSpec>,
    /// Distinct kernels.
    pub kernels: Vec<Kernel>,
    /// Packed weights in file order.
    pub weights: Vec<PackedWeight>,
    /// Memory slots.
    pub slots: Vec<Slot>,
    /// Computations that a caller runs, those of the module.
    pub entries: Vec<PlanEntry>,
    /// Launch sequences by entry, in the order of the entries; for each ascending by `max_tokens`, and the last
    /// serves any size (`None`).
    pub regimes: Vec<Regime>,
}

/// A computation that a caller runs ([`crate::graph::Entry`]): where its results are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEntry {
    /// Name, unique in the plan.
    pub name: String,
    /// Outputs and their slots.
    pub outputs: Vec<EntryOutput>,
    /// The most probable tokens of each row of logits, where the plan finds them.
    pub candidates: Option<Candidates>,
    /// Inputs of products that the caller sees call by call, and their slots.
    pub taps: Vec<Tap>,
    /// Longest sequence of its track, in tokens, where that is not the model's.
    pub context: Option<usize>,
}

impl PlanEntry {
    /// The output that has a row for each token that the caller asks for.
    pub fn requested(&self) -> Option<EntryOutput> {
        output::requested(&self.outputs)
    }
}

/// The results of [`crate::kernel::TopK`] for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidates {
    /// Slot of the rows, f32 `[R, 2k + 1]`.
    pub slot: usize,
    /// Candidates per row.
    pub k: usize,
}

/// A piece of the activation arena, shared by buffers whose lives do not overlap:
/// `per_token·T + per_row·R` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Slot {
    /// Bytes per token.
    pub per_token: usize,
    /// Bytes per logits row.
    pub per_row: usize,
}

/// Launches of an entry for steps of at most `max_tokens` tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regime {
    /// Index in [`Plan::entries`].
    pub entry: usize,
    /// Largest `T`; `None` = any.
    pub max_tokens: Option<usize>,
    /// Buffers of this regime.
    pub buffers: Vec<Buffer>,
    /// Launches in order.
    pub launches: Vec<Launch>,
}

/// An activation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// `T` or `R`.
    pub rows: Dim,
    /// Columns.
    pub cols: usize,
    /// Storage.
    pub elem: RowElem,
    /// Slot it lives in.
    pub slot: usize,
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Index in [`Plan::kernels`].
    pub kernel: usize,
    /// One per parameter of the kernel.
    pub operands: Vec<Operand>,
    /// Call of the module's entry it belongs to (layers of a model are calls of one function).
    pub call: usize,
}

/// The operand of a launch for a kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// Buffer of the regime.
    Buffer(usize),
    /// Index in [`Plan::weights`].
    Weight(usize),
    /// Index in [`Plan::states`].
    State(usize),
}

/// A tensor as it lies in the artifact.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedWeight {
    /// How to compute it from the checkpoint.
    pub expr: WeightExpr,
    /// How it is stored.
    pub storage: Storage,
}

/// Storage of a packed weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    /// Blocks of 16 rows.
    Matrix {
        /// Rows.
        n: usize,
        /// Columns.
        k: usize,
        /// Element format.
        format: Format,
    },
    /// f32 vector.
    Vector {
        /// Elements.
        len: usize,
    },
}

/// A weight computed from the checkpoint when packing. Values are f32 (an f16/bf16/f32 tensor
/// converts exactly); each operation rounds once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightExpr {
    /// Module weight `i`.
    Weight(usize),
    /// An operation that weights may be computed by, and its arguments.
    Op(Op, Vec<WeightExpr>),
}

impl WeightExpr {
    /// Calls `f` with every module weight it reads.
    pub fn leaves(&self, f: &mut impl FnMut(usize)) {
        match self {
            WeightExpr::Weight(i) => f(*i),
            WeightExpr::Op(_, args) => args.iter().for_each(|x| x.leaves(f)),
        }
    }

    /// The same over other weights: `weight(i)` in place of weight `i`; `None` if one of them has
    /// none.
    pub fn substitute(&self, weight: &impl Fn(usize) -> Option<usize>) -> Option<WeightExpr> {
        Some(match self {
            WeightExpr::Weight(i) => WeightExpr::Weight(weight(*i)?),
            WeightExpr::Op(op, args) => {
                WeightExpr::Op(op.clone(), args.iter().map(|x| x.substitute(weight)).collect::<Option<_>>()?)
            }
        })
    }
}

impl Storage {
    /// Bytes, a multiple of 64.
    pub fn bytes(&self) -> usize {
        match *self {
            Storage::Matrix { n, k, format } => format.packed_bytes(n, k),
            Storage::Vector { len } => (len * 4).next_multiple_of(64),
        }
    }
}

impl Buffer {
    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        row_bytes(self.cols, self.elem)
    }
}

/// Bytes of one row of `cols` columns; the largest `usize` if there are more.
pub fn row_bytes(cols: usize, elem: RowElem) -> usize {
    match elem {
        RowElem::F32 => cols.saturating_mul(4),
        RowElem::F16 | RowElem::Bf16 if cols > usize::MAX / 32 => usize::MAX,
        RowElem::F16 | RowElem::Bf16 => llmcc_abi::layout::half_row(cols),
        // Codes, scales and padding are less than 16 bytes per column and 128 more.
        RowElem::Q8 { .. } | RowElem::I8 { .. } if cols > usize::MAX / 32 => usize::MAX,
        RowElem::Q8 { group } | RowElem::I8 { group } => crate::quant::q8_row_bytes(cols, group),
        RowElem::Fp8 if cols > usize::MAX / 32 => usize::MAX,
        RowElem::Fp8 => llmcc_abi::layout::fp8_row(cols).bytes,
    }
}

impl Plan {
    /// The output of the first entry whose rows a caller asks for; logits where there is none.
    pub fn output(&self) -> Output {
        self.entries.first().and_then(PlanEntry::requested).map_or(Output::Logits, |o| o.output)
    }

    /// Columns of [`Plan::output`].
    pub fn columns(&self) -> usize {
        self.info.rows(self.output()).1
    }

    /// Regimes of entry `entry`, ascending by their number of tokens.
    pub fn regimes_of(&self, entry: usize) -> impl Iterator<Item = &Regime> {
        self.regimes.iter().filter(move |r| r.entry == entry)
    }

    /// The states that entry `entry` updates; some several times.
    pub fn updated_by(&self, entry: usize) -> impl Iterator<Item = usize> {
        self.regimes_of(entry).flat_map(|r| &r.launches).flat_map(|l| self.updated(l))
    }

    /// The regime of entry `entry` that serves steps of `tokens` tokens.
    pub fn regime_for(&self, entry: usize, tokens: usize) -> Option<&Regime> {
        self.regimes_of(entry).find(|r| r.max_tokens.is_none_or(|most| tokens <= most))
    }

    /// Activation bytes of a step, the arena included: `(per token, per logits row)`.
    pub fn arena(&self) -> (usize, usize) {
        self.slots.iter().fold((0, 0), |(t, r), s| (t + s.per_token, r + s.per_row))
    }

    /// The tracks of entries and states.
    pub fn tracks(&self) -> Tracks {
        let updated = |entry| self.updated_by(entry).collect();
        Tracks::of(self.states.len(), &(0..self.entries.len()).map(updated).collect::<Vec<_>>())
    }

    /// The states that a launch updates.
    fn updated<'a>(&'a self, launch: &'a Launch) -> impl Iterator<Item = usize> + 'a {
        let written = self.kernels.get(launch.kernel).map(Kernel::written).unwrap_or_default();
        written.into_iter().filter_map(|param| match launch.operands.get(param) {
            Some(Operand::State(s)) => Some(*s),
            _ => None,
        })
    }

    /// The entry that stores what the first one reads of other tokens than its own: the source of a text. `None`: it
    /// reads its own tokens alone.
    pub fn source(&self) -> Option<usize> {
        let tracks = self.tracks();
        let own = tracks.entries.first()?;
        let operands = self.regimes_of(0).flat_map(|r| &r.launches).flat_map(|l| &l.operands);
        let track = |o: &Operand| if let Operand::State(s) = o { tracks.states.get(*s).copied() } else { None };
        let other = operands.filter_map(track).find(|track| track != own)?;
        tracks.entries.iter().position(|track| *track == other)
    }

    /// The longest sequence of an entry's track, in tokens.
    pub fn context(&self, entry: usize) -> usize {
        self.entries.get(entry).and_then(|e| e.context).unwrap_or(self.info.max_context)
    }

    /// The same of a track.
    pub fn track_context(&self, track: usize) -> usize {
        let entry = self.tracks().entries.iter().position(|of| *of == track);
        entry.map_or(self.info.max_context, |entry| self.context(entry))
    }

    /// The group of each state: see [`state::groups`].
    pub fn groups(&self) -> Vec<usize> {
        state::groups(&self.states, &self.tracks().states)
    }

    /// The states that are keys and values.
    pub fn kv(&self) -> impl Iterator<Item = &KvSpec> {
        self.states.iter().filter_map(StateSpec::paged)
    }

    /// For each packed weight the share that a step of one token reads: 1, or the chosen experts'
    /// share; 0 where rows are looked up, or none.
    pub fn shares(&self) -> Vec<f64> {
        let mut shares = vec![0f64; self.weights.len()];
        for l in self.regimes.first().map_or(&[][..], |r| &r.launches) {
            let Some(kernel) = self.kernels.get(l.kernel) else { continue };
            let share = kernel.body.share();
            for o in &l.operands {
                if let Operand::Weight(w) = o
                    && let Some(of) = shares.get_mut(*w)
                {
                    *of = of.max(share);
                }
            }
        }
        shares
    }

    /// Elements of all packed matrices, and of those that products of a token read.
    pub fn parameters(&self) -> (usize, usize) {
        let elements = |w: &PackedWeight| match w.storage {
            Storage::Matrix { n, k, .. } => n.saturating_mul(k),
            Storage::Vector { .. } => 0,
        };
        let all: Vec<usize> = self.weights.iter().map(elements).collect();
        let read = all.iter().zip(self.shares()).map(|(n, share)| *n as f64 * share).sum::<f64>();
        (all.iter().sum(), read as usize)
    }

    /// Bytes of all packed weights, each aligned to 64.
    pub fn weight_bytes(&self) -> usize {
        self.weights.iter().map(|w| w.storage.bytes()).sum()
    }
}

/// The type a weight expression yields, given the module's weights.
///
/// # Errors
/// Says which operation does not fit.
pub fn weight_type(expr: &WeightExpr, weights: &[crate::graph::Weight]) -> Result<TensorType, String> {
    match expr {
        WeightExpr::Weight(i) => Ok(weights.get(*i).ok_or_else(|| format!("no weight {i}"))?.ty.clone()),
        WeightExpr::Op(op, args) => {
            if !op.facts().packs() {
                return Err(format!("`{}` is computed when running, not when packing", op.name()));
            }
            let types: Result<Vec<ValueType>, String> =
                args.iter().map(|a| Ok(ValueType::Tensor(weight_type(a, weights)?))).collect();
            match op.infer(&types?)? {
                ValueType::Tensor(t) => Ok(t),
                ValueType::State(_) => Err("a weight cannot be a state".into()),
            }
        }
    }
}
