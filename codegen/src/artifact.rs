//! The data segment of an artifact: every table the runtime walks, from a [`Plan`].

use crate::{Code, Object};
use llmcc_abi as abi;

use llmcc_ir::kernel::{Attention, Body, Embed, Index, Kernel, ParamKind, RopeTable};
use llmcc_ir::output::{EntryOutput, Output, Pool, Rows, RowsName};
use llmcc_ir::plan::{Launch, Operand, Plan, Regime, Slot};
use llmcc_ir::state::{Lifetime, StateSpec};
use llmcc_ir::tap::{Tap, TappedWeight};
use llmcc_ir::target::{Arch, CpuArch, CpuIsa, TargetSpec};
use llmcc_ir::ty::Dim;
use std::collections::BTreeSet;

/// Texts stored beside the tables; all may be empty.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    /// JSON manifest.
    pub manifest: Vec<u8>,
    /// `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// Special tokens and chat template, as JSON.
    pub text_config: Vec<u8>,
    /// Licences of the software in the runtime, which reads none of it.
    pub notices: Vec<u8>,
    /// The module and the choices made for it, which the runtime does not read either.
    pub recipe: Vec<u8>,
}

/// One version of the model: for one target, with its own kernels, regimes, buffers and packed
/// weights. A fat artifact has several.
#[derive(Clone, Copy)]
pub struct Alternative<'a> {
    /// Kernels and their launches.
    pub plan: &'a Plan,
    /// The machine it is for.
    pub target: &'a TargetSpec,
    /// Machine code of the plan's kernels, in order.
    pub objects: &'a [Object],
    /// Byte offset of each of the plan's weights, from the start of this alternative's own weights.
    pub weight_offsets: &'a [u64],
    /// Where this alternative's weights lie in the weights segment; the offset is a multiple of 64.
    pub weights: abi::Span,
}

/// The code segment: kernels one after the other, each at a multiple of 64 bytes.
pub struct CodeSegment {
    /// Machine code.
    pub bytes: Vec<u8>,
    /// For each alternative, where each of its kernels is, in plan order.
    pub placed: Vec<Vec<Placed>>,
}

/// Where a kernel lies in the code segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Offset of its machine code, or of its PTX.
    pub code: u64,
    /// PTX with its final NUL; empty for a CPU.
    pub ptx: abi::Span,
    /// cubin; may be empty.
    pub cubin: abi::Span,
}

/// Lays out the machine code of all alternatives, given by their objects.
pub fn layout_code(alternatives: &[&[Object]]) -> CodeSegment {
    let mut code = CodeSegment { bytes: vec![], placed: vec![] };
    for objects in alternatives {
        let placed = objects.iter().map(|o| code.place(o)).collect();
        code.placed.push(placed);
    }
    code
}

impl CodeSegment {
    fn place(&mut self, o: &Object) -> Placed {
        let gpu = match &o.code {
            Code::Native(native) => return Placed { code: self.append(&native.bytes, &[]).off, ..Placed::default() },
            Code::Gpu(gpu) => gpu,
        };
        let ptx = self.append(gpu.ptx.as_bytes(), b"\0");
        let cubin = if gpu.cubin.is_empty() { abi::Span::default() } else { self.append(&gpu.cubin, &[]) };
        Placed { code: ptx.off, ptx, cubin }
    }

    fn append(&mut self, bytes: &[u8], end: &[u8]) -> abi::Span {
        // 0xCC (int3 on x86): a jump into padding traps instead of running on.
        self.bytes.resize(self.bytes.len().next_multiple_of(64), 0xCC);
        let off = self.bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(end);
        abi::Span { off, len: (bytes.len() + end.len()) as u64 }
    }
}

/// The data segment.
pub struct Data {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Where texts lie in it, ascending, with their kinds ([`abi::tree::part`]); all the rest are
    /// tables.
    pub texts: Vec<(u32, abi::Span)>,
}

/// Builds the data segment: the tables of each alternative (`code` was laid out from the same
/// list), ordered by preference within a kind. The texts are stored once.
pub fn data_segment(alternatives: &[Alternative], code: &CodeSegment, texts: &Texts) -> Data {
    let mut b = Builder { bytes: vec![] };
    let mut placed_texts = vec![];
    let mut link: Option<usize> = None;
    for (alternative, placed) in alternatives.iter().zip(&code.placed) {
        b.align();
        let at = b.bytes.len();
        if let Some(previous) = link {
            let field = previous + std::mem::offset_of!(abi::ModelDesc, alternative);
            b.bytes[field..][..8].copy_from_slice(&(at as u64).to_le_bytes());
        }
        b.bytes.resize(at + size_of::<abi::ModelDesc>(), 0);
        let mut desc = model(&mut b, alternative, placed);
        if link.is_none() {
            desc.manifest = b.span(&texts.manifest);
            desc.tokenizer = b.span(&texts.tokenizer);
            desc.text_config = b.span(&texts.text_config);
            use abi::tree::part::{MANIFEST, NOTICES, RECIPE, TEXT_CONFIG, TOKENIZER};
            placed_texts.extend([(MANIFEST, desc.manifest), (TOKENIZER, desc.tokenizer)]);
            placed_texts.extend([(TEXT_CONFIG, desc.text_config), (NOTICES, b.span(&texts.notices))]);
            placed_texts.push((RECIPE, b.span(&texts.recipe)));
        }
        b.bytes[at..][..size_of::<abi::ModelDesc>()].copy_from_slice(bytes_of(std::slice::from_ref(&desc)));
        link = Some(at);
    }
    Data { bytes: b.bytes, texts: placed_texts }
}

/// Descriptor of one alternative, without texts, and the tables it refers to.
fn model(b: &mut Builder, a: &Alternative, placed: &[Placed]) -> abi::ModelDesc {
    let plan = a.plan;
    let kernels: Vec<abi::KernelDesc> = plan
        .kernels
        .iter()
        .zip(a.objects)
        .zip(placed)
        .map(|((k, o), at)| abi::KernelDesc {
            code: at.code,
            name: b.span(k.name.as_bytes()),
            scratch: o.scratch,
            scratch_per_m: o.scratch_per_m,
            shared_per_block: o.native().map_or(0, |native| native.shared_per_block),
        })
        .collect();
    let gpu: Vec<abi::GpuKernelDesc> = a
        .objects
        .iter()
        .zip(placed)
        .filter_map(|(o, at)| Some((o.gpu()?, at)))
        .map(|(g, at)| abi::GpuKernelDesc {
            entry: b.span(g.entry.as_bytes()),
            ptx: at.ptx,
            cubin: at.cubin,
            threads: g.threads,
            shared: g.shared,
            grid: g.grid,
        })
        .collect();
    let slots = plan.slots.iter().map(buffer);
    let (regimes, steps, operands) = launches(plan, a);
    abi::ModelDesc {
        magic: abi::MODEL_MAGIC,
        version: abi::ABI_VERSION,
        isa: isa(a.target),
        vocab: plan.info.vocab as u64,
        hidden: plan.info.hidden as u64,
        max_context: plan.info.max_context as u64,
        entries: entries(b, plan),
        buffers: b.table(&slots.collect::<Vec<_>>()),
        kernels: b.table(&kernels),
        regimes: b.table(&regimes),
        steps: b.table(&steps),
        operands: b.table(&operands),
        states: b.table(&states(plan)),
        gpu: b.table(&gpu),
        weights: a.weights,
        ..abi::ModelDesc::default()
    }
}

fn buffer(slot: &Slot) -> abi::BufferDesc {
    abi::BufferDesc { per_token: slot.per_token as u64, per_row: slot.per_row as u64, fixed: 64 }
}

/// Descriptors of all entries.
fn entries(b: &mut Builder, plan: &Plan) -> abi::Table {
    let (mut first, mut descs, tracks) = (0, vec![], plan.tracks().entries);
    for (index, e) in plan.entries.iter().enumerate() {
        let outputs: Vec<abi::OutputDesc> = e.outputs.iter().map(|o| output(plan, o)).collect();
        let regimes = plan.regimes_of(index).count() as u32;
        descs.push(abi::EntryDesc {
            name: b.span(e.name.as_bytes()),
            inputs: b.table(&inputs(plan, index)),
            outputs: b.table(&outputs),
            taps: taps(b, &e.taps),
            first_regime: first,
            regimes,
            flags: flags(plan, index),
            candidates_buffer: e.candidates.map_or(0, |c| c.slot as u64),
            candidates: e.candidates.map_or(0, |c| c.k as u64),
            track: tracks[index] as u32,
            context: e.context.map_or(0, |n| n as u32),
        });
        first += regimes;
    }
    b.table(&descs)
}

/// Descriptors of an entry's taps.
fn taps(b: &mut Builder, taps: &[Tap]) -> abi::Table {
    let weight = |b: &mut Builder, w: &TappedWeight| abi::TappedWeightDesc {
        name: b.span(w.name.as_bytes()),
        expert: w.expert.map_or(abi::NO_EXPERT, |e| e as u64),
    };
    let tap = |b: &mut Builder, t: &Tap| {
        let weights: Vec<_> = t.weights.iter().map(|w| weight(b, w)).collect();
        abi::TapDesc {
            weights: b.table(&weights),
            columns: t.columns as u64,
            buffer: t.at as u64,
            routes: t.routes.map_or(0, |r| r.at as u64),
            call: t.call as u32,
            rows: row_kind(t.rows),
            experts: t.routes.map_or(0, |r| r.experts as u32),
            top: t.routes.map_or(0, |r| r.top as u32),
            flags: if t.routes.is_some_and(|r| r.apart) { abi::tap_flags::APART } else { 0 },
        }
    };
    let descs: Vec<_> = taps.iter().map(|t| tap(b, t)).collect();
    b.table(&descs)
}

/// The ABI's code of rows (`llmcc_abi::rows`).
fn row_kind(rows: Dim) -> u32 {
    if rows == Dim::Rows { abi::rows::OUT } else { abi::rows::TOKENS }
}

/// The arrays that an entry takes with the tokens.
fn inputs(plan: &Plan, entry: usize) -> Vec<abi::InputDesc> {
    let rows = match placeholder(plan, entry) {
        Some(token) => (abi::input::ROWS_OF_TOKEN, token),
        None => (abi::input::ROWS, 0),
    };
    let axes = ((abi::input::AXES, 0), if takes_axes(plan, entry) { abi::AXES } else { 0 });
    let all = [((abi::input::TYPES, 0), types(plan, entry)), (rows, given(plan, entry)), axes];
    let there = all.into_iter().filter(|(_, size)| *size > 0);
    there.map(|((kind, token), size)| abi::InputDesc { kind, token: token as u32, size: size as u64 }).collect()
}

fn output(plan: &Plan, o: &EntryOutput) -> abi::OutputDesc {
    let (_, columns) = plan.info.rows(o.output);
    abi::OutputDesc {
        kind: output_kind(o.output),
        pool: pooling(o.output),
        flags: match o.output {
            Output::Rows(Rows { normalize: true, .. }) => abi::output::flags::NORMALIZE,
            _ => 0,
        },
        columns: columns as u64,
        buffer: o.at as u64,
    }
}

fn output_kind(output: Output) -> u32 {
    match output {
        Output::Logits => abi::output::kind::LOGITS,
        Output::Hidden => abi::output::kind::HIDDEN,
        Output::Image => abi::output::kind::IMAGE,
        Output::Rows(rows) => match rows.name {
            RowsName::Embedding => abi::output::kind::EMBEDDING,
            RowsName::Scores => abi::output::kind::SCORES,
        },
    }
}

fn pooling(output: Output) -> u32 {
    match output {
        Output::Logits | Output::Hidden | Output::Image => abi::output::pool::NONE,
        Output::Rows(rows) => pool(rows.pool),
    }
}

/// The ABI's code of a pooling (`llmcc_abi::output::pool`).
pub fn pool(pool: Pool) -> u32 {
    match pool {
        Pool::Mean => abi::output::pool::MEAN,
        Pool::First => abi::output::pool::FIRST,
        Pool::Last => abi::output::pool::LAST,
        Pool::Max => abi::output::pool::MAX,
        Pool::Root => abi::output::pool::ROOT,
        Pool::Weighted => abi::output::pool::WEIGHTED,
    }
}

/// The kernels that an entry launches.
fn kernels_of(plan: &Plan, entry: usize) -> impl Iterator<Item = &Kernel> {
    plan.regimes_of(entry).flat_map(|r| &r.launches).filter_map(|l| plan.kernels.get(l.kernel))
}

fn flags(plan: &Plan, entry: usize) -> u64 {
    match (whole(plan, entry), runs(plan, entry)) {
        (true, _) => abi::entry_flags::WHOLE,
        (false, Some(_)) => abi::entry_flags::RUNS,
        (false, None) => 0,
    }
}

/// Whether tokens of an entry see later ones, so that a sequence is computed in one step: attention both ways over a
/// state that the entry itself updates.
pub fn whole(plan: &Plan, entry: usize) -> bool {
    looks_ahead(plan, entry) && placeholder(plan, entry).is_none()
}

/// The id of the tokens of an entry that see later ones of those that they stand together with, and no others: where
/// rows are given for it, and attention is both ways.
pub fn runs(plan: &Plan, entry: usize) -> Option<usize> {
    placeholder(plan, entry).filter(|_| looks_ahead(plan, entry))
}

fn looks_ahead(plan: &Plan, entry: usize) -> bool {
    let own: BTreeSet<usize> = plan.updated_by(entry).collect();
    let ahead = |l: &Launch| {
        let Some(Body::Attention(Attention { causal: false, kv, .. })) = plan.kernels.get(l.kernel).map(|k| &k.body)
        else {
            return false;
        };
        matches!(l.operands.get(*kv), Some(Operand::State(s)) if own.contains(s))
    };
    plan.regimes_of(entry).flat_map(|r| &r.launches).any(ahead)
}

/// Types that a token of an entry may be of: rows of every table that is read by types; 0 without one.
pub fn types(plan: &Plan, entry: usize) -> usize {
    let rows = |k: &Kernel| {
        let Body::Embed(Embed { table, index: Index::Types, .. }) = &k.body else { return None };
        let ParamKind::Matrix { n, .. } = &k.params[*table].kind else { return None };
        Some(*n)
    };
    kernels_of(plan, entry).filter_map(rows).min().unwrap_or(0)
}

/// Whether tokens of an entry have positions along axes.
pub fn takes_axes(plan: &Plan, entry: usize) -> bool {
    kernels_of(plan, entry).any(|k| matches!(k.body, Body::RopeTable(RopeTable { axes: true, .. })))
}

/// Columns of the rows that come with the tokens of an entry; 0: there are none.
pub fn given(plan: &Plan, entry: usize) -> usize {
    let columns = |k: &Kernel| {
        let out = if let Body::GivenRows(g) = &k.body { Some(g.out) } else { None };
        let out = if let Body::Substitute(s) = &k.body { Some(s.out) } else { out };
        let ParamKind::Rows { cols, .. } = &k.params.get(out?)?.kind else { return None };
        Some(*cols)
    };
    kernels_of(plan, entry).find_map(columns).unwrap_or(0)
}

/// The id of the tokens of an entry in whose place rows are given; none: its rows come with all tokens.
pub fn placeholder(plan: &Plan, entry: usize) -> Option<usize> {
    kernels_of(plan, entry).find_map(|k| if let Body::Substitute(s) = &k.body { Some(s.token) } else { None })
}

/// The instruction-set level of a target (`llmcc_abi::isa`).
pub fn isa(target: &TargetSpec) -> u32 {
    match target.arch {
        Arch::Cpu(CpuArch { isa: CpuIsa::X86_64, .. }) => abi::isa::X86_64,
        Arch::Cpu(CpuArch { isa: CpuIsa::X86_64V3, .. }) => abi::isa::X86_64_V3,
        Arch::Cpu(CpuArch { isa: CpuIsa::X86_64V4, .. }) => abi::isa::X86_64_V4,
        Arch::Cpu(CpuArch { isa: CpuIsa::AArch64, .. }) => abi::isa::AARCH64,
        Arch::Gpu(gpu) => abi::isa::SM + gpu.sm,
    }
}

fn launches(plan: &Plan, a: &Alternative) -> (Vec<abi::RegimeDesc>, Vec<abi::StepDesc>, Vec<abi::OperandDesc>) {
    let (mut regimes, mut steps, mut operands) = (vec![], vec![], vec![]);
    for r in &plan.regimes {
        regimes.push(abi::RegimeDesc {
            max_tokens: r.max_tokens.map_or(abi::NONE, |m| m as u32),
            first_step: steps.len() as u32,
            steps: r.launches.len() as u32,
            reserved: 0,
        });
        for l in &r.launches {
            let kernel = &plan.kernels[l.kernel];
            let (items, per_m) = kernel.items();
            steps.push(abi::StepDesc {
                kernel: l.kernel as u32,
                rows: row_kind(kernel.rows),
                items: items as u32,
                items_per_m: per_m.into(),
                chunk: 0,
                first_operand: operands.len() as u32,
                operands: l.operands.len() as u32,
                layer: l.call as u32,
            });
            operands.extend(l.operands.iter().map(|o| operand(o, r, a)));
        }
    }
    (regimes, steps, operands)
}

fn operand(o: &Operand, regime: &Regime, a: &Alternative) -> abi::OperandDesc {
    match *o {
        Operand::Buffer(b) => {
            abi::OperandDesc { kind: abi::operand::BUFFER, index: regime.buffers[b].slot as u32, offset: 0 }
        }
        Operand::Weight(w) => {
            abi::OperandDesc { kind: abi::operand::WEIGHT, index: 0, offset: a.weights.off + a.weight_offsets[w] }
        }
        Operand::State(s) => abi::OperandDesc { kind: abi::operand::STATE, index: s as u32, offset: 0 },
    }
}

/// Descriptors of a plan's states.
pub fn states(plan: &Plan) -> Vec<abi::StateDesc> {
    let (groups, tracks) = (plan.groups(), plan.tracks().states);
    plan.states.iter().zip(groups.into_iter().zip(tracks)).map(state_desc).collect()
}

/// The runtime's description of a state: lifetime and bytes; for keys and values also their sizes,
/// for inspection.
fn state_desc((state, (group, track)): (&StateSpec, (usize, usize))) -> abi::StateDesc {
    let desc = |kind: u32, window: usize| abi::StateDesc {
        kind,
        group: group as u32,
        window: window as u32,
        bytes: state.bytes() as u64,
        track: track as u32,
        ..abi::StateDesc::default()
    };
    let paged = |desc| {
        state.paged().map_or(desc, |kv| abi::StateDesc {
            kv_heads: kv.kv_heads as u32,
            key_dim: kv.own_dim() as u16,
            value_dim: if kv.uniform() { 0 } else { kv.value_dim as u16 },
            dtype: kv.dtype.number(),
            ..desc
        })
    };
    match state.lifetime() {
        Lifetime::Window(window) => paged(desc(abi::state::PAGED, window.unwrap_or(0))),
        Lifetime::Every(tokens) => paged(desc(abi::state::STRIDED, tokens)),
        Lifetime::First(tokens) => paged(desc(abi::state::FIRST, tokens)),
        Lifetime::Last => desc(abi::state::FIXED, 0),
        Lifetime::Chosen(slots) => desc(abi::state::ADAPTER, slots),
    }
}

struct Builder {
    bytes: Vec<u8>,
}

impl Builder {
    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    fn span(&mut self, data: &[u8]) -> abi::Span {
        let off = self.bytes.len() as u64;
        self.bytes.extend_from_slice(data);
        abi::Span { off, len: data.len() as u64 }
    }

    fn table<T: Descriptor>(&mut self, items: &[T]) -> abi::Table {
        self.align();
        let off = self.bytes.len() as u64;
        self.bytes.extend_from_slice(bytes_of(items));
        abi::Table { off, count: items.len() as u64 }
    }
}

/// Marks the `#[repr(C)]` descriptors of the ABI: integers only, no padding.
pub(crate) trait Descriptor: Copy {}
impl Descriptor for abi::ImageRef {}
impl Descriptor for abi::ModelDesc {}
impl Descriptor for abi::BufferDesc {}
impl Descriptor for abi::KernelDesc {}
impl Descriptor for abi::GpuKernelDesc {}
impl Descriptor for abi::EntryDesc {}
impl Descriptor for abi::InputDesc {}
impl Descriptor for abi::OutputDesc {}
impl Descriptor for abi::TapDesc {}
impl Descriptor for abi::TappedWeightDesc {}
impl Descriptor for abi::RegimeDesc {}
impl Descriptor for abi::StepDesc {}
impl Descriptor for abi::OperandDesc {}
impl Descriptor for abi::StateDesc {}
impl Descriptor for abi::tree::PartDesc {}

pub(crate) fn bytes_of<T: Descriptor>(items: &[T]) -> &[u8] {
    // SAFETY: `Descriptor` types are `repr(C)` integers without padding (checked by the size test
    // below), so every byte is initialised.
    unsafe { std::slice::from_raw_parts(items.as_ptr().cast(), size_of_val(items)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_have_no_padding() {
        assert_eq!(size_of::<abi::ImageRef>(), 16 + 8 + 10 * 8 + 32);
        assert_eq!(size_of::<abi::ModelDesc>(), 8 + 8 + 3 * 8 + 8 * 16 + 4 * 16 + 8);
        assert_eq!(size_of::<abi::EntryDesc>(), 4 * 16 + 8 + 3 * 8 + 8);
        assert_eq!(size_of::<abi::TapDesc>(), 16 + 3 * 8 + 4 * 4 + 8);
        assert_eq!(size_of::<abi::TappedWeightDesc>(), 16 + 8);
        assert_eq!(size_of::<abi::InputDesc>(), 16);
        assert_eq!(size_of::<abi::OutputDesc>(), 8 + 3 * 8);
        assert_eq!(size_of::<abi::BufferDesc>(), 24);
        assert_eq!(size_of::<abi::KernelDesc>(), 8 + 16 + 24);
        assert_eq!(size_of::<abi::GpuKernelDesc>(), 3 * 16 + 8 + 3 * 8);
        assert_eq!(size_of::<abi::RegimeDesc>(), 16);
        assert_eq!(size_of::<abi::StepDesc>(), 32);
        assert_eq!(size_of::<abi::OperandDesc>(), 16);
        assert_eq!(size_of::<abi::StateDesc>(), 32 + 8);
        assert_eq!(size_of::<abi::tree::PartDesc>(), 24 + 32);
    }
}
