//! The model inside the artifact: where its segments are, and whether they can be trusted.
//!
//! The compiler patches `IMAGE_REF` in its copy of this library. Nothing read through it is trusted
//! before it has been checked: after [`Image::load`], every index, offset and span lies inside its
//! target, so the engine needs no checks.
//!
//! A fat artifact holds several versions of its model, for several machines. Each is an [`Image`]
//! of its own; `crate::select` chooses among them.

mod check;
pub mod cpu;
mod entry;
mod file;
mod integrity;
mod origin;
mod segment;
mod tap;

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::slice;
use std::sync::Arc;

use llmcc_abi::{
    ABI_VERSION, BufferDesc, FLAG_EXTERNAL_WEIGHTS, FLAG_UNHASHED_WEIGHTS, GpuKernelDesc, IMAGE_MAGIC, ImageRef,
    KernelDesc, ModelDesc, OperandDesc, RegimeDesc, Span, StateDesc, StepDesc, isa, operand, state,
    tree::{self, Hash, PartDesc, part},
};

use crate::error::{Error, Result};
use crate::reserve::need;
pub use entry::Entry;
use file::{Mapping, check_length, side_file, side_path};
use integrity::Sealed;
use segment::{MAX_ALTERNATIVES, Segment, Tables, damaged, read_desc, table, text_of, version_error};
pub use tap::{Routes, Tap, parts};

/// The patched static. `repr(transparent)` over uninitialised-looking storage so that the compiler
/// of this crate can neither fold its zeros nor move it to read-only data.
#[repr(transparent)]
struct Patched(std::cell::UnsafeCell<ImageRef>);

// SAFETY: written by nobody at run time, only in the file.
unsafe impl Sync for Patched {}

#[used]
#[unsafe(link_section = ".llmcc.image")]
static IMAGE_REF: Patched = Patched(std::cell::UnsafeCell::new(ImageRef {
    magic: IMAGE_MAGIC,
    version: 0,
    flags: 0,
    code_addr: 0,
    code_len: 0,
    data_addr: 0,
    data_len: 0,
    weights_addr: 0,
    weights_len: 0,
    file_len: 0,
    hashes_addr: 0,
    hashes_len: 0,
    parts: 0,
    root: [0; 32],
}));

unsafe extern "C" {
    /// The linker's name for the ELF header of the object this code is linked into.
    #[link_name = "__ehdr_start"]
    static EHDR_START: u8;
}

/// A checked version of the model: owned copies of the tables, and addresses of the segments.
pub struct Image {
    desc: ModelDesc,
    code: Segment,
    data: Segment,
    weights: Segment,
    /// Entries; at least one.
    pub entries: Vec<Entry>,
    /// Activation slots.
    pub buffers: Vec<BufferDesc>,
    /// Generated kernels.
    pub kernels: Vec<KernelDesc>,
    /// Kernel sequences of all entries ([`Entry::regimes`]).
    pub regimes: Vec<RegimeDesc>,
    /// Kernel invocations of all regimes.
    pub steps: Vec<StepDesc>,
    /// Pointers of all steps.
    pub operands: Vec<OperandDesc>,
    /// States of sequences.
    pub states: Vec<StateDesc>,
    /// Group of the states of each step (0 for one that has none).
    step_groups: Vec<u32>,
    /// Descriptions of GPU kernels beside `kernels`; empty for a CPU.
    pub gpu: Vec<GpuKernelDesc>,
    /// The weights are a private mapping of a file: pages may be dropped and come back.
    mapped: bool,
    /// Hash of the tokenizer, compared when that is read.
    tokenizer: Option<PartDesc>,
    /// Hash of the whole artifact.
    root: Option<Hash>,
    /// The side file's mapping, when the weights lie there.
    _side: Option<Arc<Mapping>>,
}

/// Where the parts of the artifact are in memory.
#[derive(Clone)]
struct Parts {
    code: Segment,
    data: Segment,
    weights: Segment,
    mapped: bool,
    tokenizer: Option<PartDesc>,
    root: Option<Hash>,
    side: Option<Arc<Mapping>>,
}

impl Image {
    /// The model of the artifact this code runs in: all its versions. Fails when there is none,
    /// when the file was damaged or stripped, when it is of another ABI version, or when its
    /// weights file is missing. Whether this machine can run a version is not checked here.
    pub fn load() -> Result<Vec<Image>> {
        // SAFETY: initialised static; volatile because the file on disk, not this source, has the
        // values.
        let at = unsafe { IMAGE_REF.0.get().read_volatile() };
        if at.version == 0 || at.data_addr == 0 {
            return Err(Error::artifact(
                "this is the bare llmcc runtime: no model was compiled into it. Use the .so written by `llmcc compile`",
            ));
        }
        if at.version != ABI_VERSION {
            return Err(version_error(at.version));
        }
        let here = (&raw const IMAGE_REF).cast();
        let path = origin::find(here)?;
        let sealed = check_length(path.as_deref(), at.file_len)
            .and_then(|()| Sealed::new(here, &raw const EHDR_START, &at))
            .and_then(|sealed| sealed.check(path.as_deref()).map(|()| sealed))
            .map_err(|e| origin::explain(e, here, path.as_deref()))?;
        let (weights, side) = if at.flags & FLAG_EXTERNAL_WEIGHTS != 0 {
            let path = side_path(path.as_deref())?;
            let labelled = at.flags & FLAG_UNHASHED_WEIGHTS == 0;
            let side = side_file(&path, if labelled { at.side_len() } else { at.weights_len })?;
            if labelled {
                sealed.check_label(&side, &path)?;
            }
            (Segment { ptr: side.ptr, len: at.weights_len }, Some(Arc::new(side)))
        } else {
            (sealed.segment(at.weights_addr, at.weights_len, "weights segment")?, None)
        };
        let code = sealed.segment(at.code_addr, at.code_len, "code")?;
        let data = sealed.segment(at.data_addr, at.data_len, "data segment")?;
        // Tables and texts are copied, and texts are parsed; the tokenizer is not, before it is used.
        let tokenizer = sealed.part(part::TOKENIZER).map_or(0, |p| p.len);
        need((2 << 20) + 6 * at.data_len.saturating_sub(tokenizer) as usize)?;
        let root = (at.flags & FLAG_UNHASHED_WEIGHTS == 0).then_some(at.root);
        let tokenizer = sealed.part(part::TOKENIZER);
        Image::versions(&Parts { code, data, weights, mapped: true, tokenizer, root, side })
    }

    /// The first version of a model whose segments lie anywhere in memory: for tests and for
    /// running freshly generated code in the compiler's own process.
    ///
    /// # Safety
    /// As [`Image::all_from_parts`].
    pub unsafe fn from_parts(
        code: *const u8,
        code_len: u64,
        data: &[u8],
        weights: *const u8,
        weights_len: u64,
    ) -> Result<Image> {
        // SAFETY: the caller's promise.
        let all = unsafe { Image::all_from_parts(code, code_len, data, weights, weights_len) }?;
        all.into_iter().next().ok_or_else(|| damaged("no model"))
    }

    /// As [`Image::load`], for segments anywhere in memory.
    ///
    /// # Safety
    /// `code` holds valid machine code (or, in tests, the kernel offsets are relative to it), and
    /// the three ranges outlive the images.
    pub unsafe fn all_from_parts(
        code: *const u8,
        code_len: u64,
        data: &[u8],
        weights: *const u8,
        weights_len: u64,
    ) -> Result<Vec<Image>> {
        let data = Segment { ptr: data.as_ptr(), len: data.len() as u64 };
        let (code, weights) = (Segment { ptr: code, len: code_len }, Segment { ptr: weights, len: weights_len });
        Image::versions(&Parts { code, data, weights, mapped: false, tokenizer: None, root: None, side: None })
    }

    /// Reads and checks the chain of descriptors.
    fn versions(parts: &Parts) -> Result<Vec<Image>> {
        let first = read_desc(parts.data, 0)?;
        let mut images = vec![Image::check(parts, first)?];
        let (mut at, mut next) = (0, first.alternative);
        while next != 0 {
            // Ascending, so the chain ends.
            if next <= at || !next.is_multiple_of(8) || images.len() >= MAX_ALTERNATIVES {
                return Err(damaged(format_args!("a further version of the model at {next}")));
            }
            let mut desc = read_desc(parts.data, next)?;
            (at, next) = (next, desc.alternative);
            (desc.manifest, desc.tokenizer, desc.text_config) = (first.manifest, first.tokenizer, first.text_config);
            let image = Image::check(parts, desc)?;
            if !image.is_like(&images[0]) {
                return Err(damaged("versions of different models"));
            }
            images.push(image);
        }
        Ok(images)
    }

    fn check(parts: &Parts, desc: ModelDesc) -> Result<Image> {
        let data = parts.data;
        let mut image = Image {
            desc,
            code: parts.code,
            data,
            weights: parts.weights,
            entries: Vec::new(),
            buffers: table(data, desc.buffers, "buffers")?,
            kernels: table(data, desc.kernels, "kernels")?,
            regimes: table(data, desc.regimes, "regimes")?,
            steps: table(data, desc.steps, "steps")?,
            operands: table(data, desc.operands, "operands")?,
            states: table(data, desc.states, "states")?,
            step_groups: Vec::new(),
            gpu: table(data, desc.gpu, "GPU kernels")?,
            mapped: parts.mapped,
            tokenizer: parts.tokenizer,
            root: parts.root,
            _side: parts.side.clone(),
        };
        image.check_all()?;
        let Image { desc, buffers, regimes, states, steps, .. } = &image;
        image.entries = Entry::read_all(&Tables { desc, data, buffers, regimes, states, steps })?;
        image.find_tracks()?;
        image.step_groups = image.steps.iter().map(|s| image.groups_of(s).next().unwrap_or(0)).collect();
        Ok(image)
    }

    /// Whether both are versions of one model.
    fn is_like(&self, other: &Image) -> bool {
        let sizes = |d: &ModelDesc| [d.vocab, d.max_context, d.hidden];
        sizes(&self.desc) == sizes(&other.desc)
            && self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(|(a, b)| a.is_like(b))
    }

    /// Hash of the artifact's bytes, weights included; `None`: it was not loaded from a file, or no hash covers its
    /// weights.
    pub fn root(&self) -> Option<Hash> {
        self.root
    }

    /// The entry that appends tokens: the first one.
    pub fn step(&self) -> &Entry {
        &self.entries[0]
    }

    /// The index of the first entry whose rows are pooled; `None`: the model describes no texts.
    pub fn pooled(&self) -> Option<usize> {
        self.entries.iter().position(Entry::is_pooled)
    }

    /// The index of the entry that stores what the first one reads of other tokens than its own: the source of a text.
    /// `None`: the model goes on with its prompt.
    pub fn source(&self) -> Option<usize> {
        let track = *self.step().reads.first()?;
        self.entries.iter().position(|e| e.track == track)
    }

    /// The index of the entry that makes rows of images; `None`: the model sees none.
    pub fn tower(&self) -> Option<usize> {
        self.entries.iter().position(|e| e.kind() == llmcc_abi::output::kind::IMAGE)
    }

    /// The descriptor of this version.
    pub fn desc(&self) -> &ModelDesc {
        &self.desc
    }

    /// Entry point of kernel `index`.
    pub fn kernel_entry(&self, index: usize) -> *const u8 {
        self.code.ptr.wrapping_add(self.kernels[index].code as usize)
    }

    /// Name of kernel `index`.
    pub fn kernel_name(&self, index: usize) -> &str {
        self.text(self.kernels[index].name)
    }

    /// Number of groups of states; the states of a group share a block table. At least one, though
    /// there may be no state.
    pub fn groups(&self) -> usize {
        self.states.iter().map(|s| s.group as usize + 1).max().unwrap_or(1)
    }

    /// The track of a sequence whose tokens the states of a group are of.
    pub fn track(&self, group: usize) -> usize {
        self.states.iter().find(|s| s.group as usize == group).map_or(0, |s| s.track as usize)
    }

    /// The tracks whose states an entry reads or updates.
    fn tracks_of(&self, entry: &Entry) -> BTreeSet<usize> {
        let steps = self.regimes[entry.regimes.clone()].iter();
        let steps = steps.flat_map(|r| &self.steps[r.first_step as usize..][..r.steps as usize]);
        let operands = steps.flat_map(|s| &self.operands[s.first_operand as usize..][..s.operands as usize]);
        let states = operands.filter(|o| o.kind == operand::STATE).map(|o| &self.states[o.index as usize]);
        states.filter(|s| s.kind != state::ADAPTER).map(|s| s.track as usize).collect()
    }

    /// Tells each entry which tracks it reads beside its own. Another one reads the track of an entry without output.
    fn find_tracks(&mut self) -> Result<()> {
        let tracks: Vec<BTreeSet<usize>> = self.entries.iter().map(|e| self.tracks_of(e)).collect();
        for (i, (entry, tracks)) in self.entries.iter_mut().zip(tracks).enumerate() {
            entry.remembers = i == 0 || !tracks.is_empty() || !entry.looks_ahead();
            entry.reads = tracks.into_iter().filter(|track| *track != entry.track).collect();
        }
        let is_read = |track: usize| self.entries.iter().any(|e| e.reads.contains(&track));
        match self.entries.iter().find(|e| !e.gives() && !is_read(e.track)) {
            Some(entry) => Err(damaged(format_args!("entry `{}` has no output", entry.name))),
            None => Ok(()),
        }
    }

    /// Group of the states that step `index` reads or writes.
    pub fn step_group(&self, index: usize) -> usize {
        self.step_groups[index] as usize
    }

    /// Groups of the states of `step`.
    fn groups_of(&self, step: &StepDesc) -> impl Iterator<Item = u32> {
        let operands = &self.operands[step.first_operand as usize..][..step.operands as usize];
        operands.iter().filter(|o| o.kind == operand::STATE).map(|o| self.states[o.index as usize].group)
    }

    /// Start of the weights.
    pub fn weights(&self) -> *const u8 {
        self.weights.ptr
    }

    /// Bytes of weights that this version of the model reads.
    pub fn weights_len(&self) -> u64 {
        self.desc.weights.len
    }

    /// The weights this version reads, which start [`ModelDesc::weights`]`.off` bytes into the
    /// segment.
    pub fn own_weights(&self) -> &[u8] {
        let Span { off, len } = self.desc.weights;
        if len == 0 {
            return &[];
        }
        // SAFETY: `check` proved that the span lies in the segment, which outlives the image and is
        // never written.
        unsafe { slice::from_raw_parts(self.weights.ptr.add(off as usize), len as usize) }
    }

    /// Asks the system to keep this version's weights in memory: to read them now and, where it
    /// can, to use huge pages. Failure changes nothing.
    pub fn keep_weights(&self) {
        self.advise(self.own_weights(), &[libc::MADV_HUGEPAGE, libc::MADV_WILLNEED]);
    }

    /// Asks the system to read `part` of the weights, which is needed soon and once. Failure
    /// changes nothing.
    pub fn prefetch_weights(&self, part: &[u8]) {
        self.advise(part, &[libc::MADV_WILLNEED]);
    }

    /// Tells the system that `part` of the weights is not needed in memory for now.
    pub fn release_weights(&self, part: &[u8]) {
        self.advise(part, &[libc::MADV_DONTNEED]);
    }

    fn advise(&self, part: &[u8], advices: &[i32]) {
        const PAGE: usize = 4096;
        if !self.mapped || part.is_empty() {
            // The memory is not ours to advise about: dropping pages of a caller's heap would clear
            // them.
            return;
        }
        let start = part.as_ptr() as usize & !(PAGE - 1);
        let len = part.as_ptr() as usize - start + part.len();
        for &advice in advices {
            // SAFETY: hints about read-only private mappings of a file; dropped pages are read
            // again from it.
            unsafe { libc::madvise(start as *mut libc::c_void, len, advice) };
        }
    }

    /// The GPU this version is for, by its compute capability times ten; `None` for a CPU.
    pub fn gpu_level(&self) -> Option<u32> {
        self.desc.isa.checked_sub(isa::SM)
    }

    /// Symbol of GPU kernel `index`.
    pub fn gpu_entry(&self, index: usize) -> &str {
        self.text(self.gpu[index].entry)
    }

    /// PTX of GPU kernel `index`.
    pub fn ptx(&self, index: usize) -> &CStr {
        CStr::from_bytes_with_nul(self.code_bytes(self.gpu[index].ptx)).unwrap_or_default()
    }

    /// Machine code of GPU kernel `index`; may be empty.
    pub fn cubin(&self, index: usize) -> &[u8] {
        self.code_bytes(self.gpu[index].cubin)
    }

    /// Bytes of a checked span of the code segment.
    fn code_bytes(&self, span: Span) -> &[u8] {
        if span.len == 0 {
            return &[];
        }
        // SAFETY: `check` proved the bounds, and the segment outlives the image.
        unsafe { slice::from_raw_parts(self.code.ptr.add(span.off as usize), span.len as usize) }
    }

    /// Bytes of generated code.
    pub fn code_len(&self) -> u64 {
        self.code.len
    }

    /// The JSON manifest.
    pub fn manifest(&self) -> &str {
        self.text(self.desc.manifest)
    }

    /// `tokenizer.json`, empty when the model has none.
    pub fn tokenizer(&self) -> &str {
        self.text(self.desc.tokenizer)
    }

    /// Compares the tokenizer with its hash, where the artifact has one: before it is read for the
    /// first time, since it may be large.
    ///
    /// # Errors
    /// Its bytes differ from the compiler's.
    pub fn check_tokenizer(&self) -> Result<()> {
        let Some(p) = &self.tokenizer else { return Ok(()) };
        integrity::compare(p, tree::part_of(p.kind, self.tokenizer().as_bytes()))
    }

    /// JSON object with special tokens and chat template, empty when the model has no tokenizer.
    pub fn text_config(&self) -> &str {
        self.text(self.desc.text_config)
    }

    /// Text of a checked span.
    fn text(&self, span: Span) -> &str {
        // `check` proved bounds and UTF-8 of every span.
        text_of(self.data, span)
    }
}
