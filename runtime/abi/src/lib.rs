//! The contract between compiled artifacts and the runtime inside them.
//!
//! An artifact is a copy of the prebuilt runtime shared object (`llmcc-rt`) with three page-aligned
//! segments appended and mapped by extra `PT_LOAD` headers: **code** (the generated kernels,
//! position independent, no relocations), **data** (one [`ModelDesc`] and the tables it points to
//! by byte offset) and **weights** (packed tensors, read in place). The compiler patches
//! [`ImageRef`], a static of the runtime, so that the runtime finds them relative to its own ELF
//! header.
//!
//! Everything here is `#[repr(C)]`, little endian, made of fixed-width integers, and read as bytes
//! from a file: the runtime checks magic, version and bounds before it trusts an offset.
//!
//! Shapes: `T` = tokens in a step, `R` = rows for which output is wanted, `S` = sequences in a
//! step.
#![no_std]
#![warn(missing_docs)]

mod attend;
pub mod capi;
pub mod encoding;
mod entry;
pub mod evict;
mod inputs;
pub mod isa;
pub mod layout;
pub mod math;
pub mod output;
pub mod pools;
pub mod recur;
pub mod route;
mod select;
mod spans;
pub mod tree;
mod uk;
mod windows;

pub use attend::*;
pub use entry::*;
pub use inputs::*;
pub use select::*;
pub use spans::*;
pub use uk::*;
pub use windows::*;

/// Version of every structure in this crate; a runtime refuses an image of another version.
pub const ABI_VERSION: u32 = 14;
/// First bytes of [`ImageRef`], by which the compiler finds it inside the runtime object.
pub const IMAGE_MAGIC: [u8; 16] = *b"llmcc-image-ref\0";
/// First bytes of [`ModelDesc`].
pub const MODEL_MAGIC: [u8; 8] = *b"llmccmdl";
/// Tokens in one page of the KV cache.
pub const PAGE_TOKENS: usize = 16;
/// "No index" in `u32` fields.
pub const NONE: u32 = u32::MAX;
/// The segment of weights is aligned to this many bytes, unless they are few, so that the kernel may
/// use huge pages.
pub const SEGMENT_ALIGN: u64 = 2 << 20;

/// Where the appended segments are, relative to the runtime's ELF header (`__ehdr_start`). All zero
/// (but for the magic) in a runtime without a model.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ImageRef {
    /// [`IMAGE_MAGIC`].
    pub magic: [u8; 16],
    /// [`ABI_VERSION`] of the compiler.
    pub version: u32,
    /// Bit 0: weights are in a side file ([`FLAG_EXTERNAL_WEIGHTS`]); bit 1: made by someone else
    /// ([`FLAG_UNHASHED_WEIGHTS`]).
    pub flags: u32,
    /// Address of the code segment relative to the ELF header.
    pub code_addr: u64,
    /// Bytes of code.
    pub code_len: u64,
    /// Address of the data segment (a [`ModelDesc`] first).
    pub data_addr: u64,
    /// Bytes of data.
    pub data_len: u64,
    /// Address of the weights segment; 0 when external.
    pub weights_addr: u64,
    /// Bytes of weights, also when external.
    pub weights_len: u64,
    /// Bytes the file must have: a stripped artifact is shorter, and is refused in words.
    pub file_len: u64,
    /// Address of the table of hashes ([`tree`]), which is the end of the file.
    pub hashes_addr: u64,
    /// Bytes of that table.
    pub hashes_len: u64,
    /// [`tree::PartDesc`] in it.
    pub parts: u64,
    /// [`tree::root`] of them.
    pub root: tree::Hash,
}

/// [`ImageRef::flags`]: the weights lie beside the artifact in `<artifact file name>.weights`, before a [label](tree::LABEL_MAGIC).
pub const FLAG_EXTERNAL_WEIGHTS: u32 = 1;
/// [`ImageRef::flags`], with [`FLAG_EXTERNAL_WEIGHTS`]: the side file was not there when the
/// artifact was made. No hash covers it, and it has no label.
pub const FLAG_UNHASHED_WEIGHTS: u32 = 2;

impl ImageRef {
    /// Bytes of the side file; 0 without one that the hashes cover.
    pub const fn side_len(&self) -> u64 {
        if self.flags & (FLAG_EXTERNAL_WEIGHTS | FLAG_UNHASHED_WEIGHTS) == FLAG_EXTERNAL_WEIGHTS {
            self.weights_len.saturating_add(tree::LABEL_LEN as u64)
        } else {
            0
        }
    }
}

/// The root of the data segment, and of each further version of the model in a fat artifact
/// ([`ModelDesc::alternative`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelDesc {
    /// [`MODEL_MAGIC`].
    pub magic: [u8; 8],
    /// [`ABI_VERSION`].
    pub version: u32,
    /// Instruction-set level the code needs: see [`isa`].
    pub isa: u32,
    /// Vocabulary size.
    pub vocab: u64,
    /// Model width.
    pub hidden: u64,
    /// Longest sequence, in tokens.
    pub max_context: u64,
    /// [`EntryDesc`] per entry; at least one. The first is the one that appends tokens.
    pub entries: Table,
    /// [`BufferDesc`] per activation slot.
    pub buffers: Table,
    /// [`KernelDesc`] per generated kernel.
    pub kernels: Table,
    /// [`RegimeDesc`] of all entries.
    pub regimes: Table,
    /// [`StepDesc`] of all regimes.
    pub steps: Table,
    /// [`OperandDesc`] of all steps.
    pub operands: Table,
    /// [`StateDesc`] per state of a sequence: one per attention layer, any number per other layer.
    pub states: Table,
    /// [`GpuKernelDesc`] per entry of `kernels`; empty for a CPU.
    pub gpu: Table,
    /// JSON manifest (UTF-8). Like the other texts in the first descriptor only, for all of them.
    pub manifest: Span,
    /// `tokenizer.json` (UTF-8); empty when the checkpoint has none.
    pub tokenizer: Span,
    /// JSON object with `bos_token`, `eos_token_ids`, `chat_template`, `add_bos`...; empty when
    /// there is no tokenizer.
    pub text_config: Span,
    /// The part of the weights segment that this version of the model reads (offsets from the start
    /// of that segment).
    pub weights: Span,
    /// Offset in the data segment, a multiple of 8, of the [`ModelDesc`] of the next version of the
    /// same model, for another machine; always larger than this one's own. 0: this is the last.
    pub alternative: u64,
}

/// One activation slot. Slots are reused by buffers whose lives do not overlap; a slot's size is
/// linear in the step's size.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BufferDesc {
    /// Bytes per token of the step (`T`).
    pub per_token: u64,
    /// Bytes per requested logits row (`R`).
    pub per_row: u64,
    /// Bytes in any case.
    pub fixed: u64,
}

/// One generated kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelDesc {
    /// Offset of the code in the code segment, by the kind of machine that [`ModelDesc::isa`]
    /// names. A processor: the entry of native code ([`KernelFn`]). A GPU: the first byte of its
    /// PTX, the same as in [`GpuKernelDesc::ptx`], which the runtime reads.
    pub code: u64,
    /// Name, in the data segment.
    pub name: Span,
    /// Bytes of memory of its own, by the kind of machine. A processor: scratch for each thread. A
    /// GPU: its workspace in device memory (see [`GpuKernelDesc`]).
    pub scratch: u64,
    /// Further such bytes per token or row of the step (`m`).
    pub scratch_per_m: u64,
    /// Processors only, 0 elsewhere: bytes of [`StepCtx::shared`] that a pair of neighbouring
    /// threads needs for each [`ATTEND_BLOCK`] tokens of context; 0: none at all.
    pub shared_per_block: u64,
}

/// The first compute capability (`10 major + minor`) whose kernels wait themselves for the kernels
/// before them: every thread executes `griddepcontrol.wait` before it touches memory that kernels
/// write, and in each launch some thread does.
pub const GPU_OVERLAPS: u32 = 90;

/// The GPU's additions to a [`KernelDesc`].
///
/// The kernel is `.entry NAME(u64 operand0, ..., u64 operandN-1, u64 ctx, u64 workspace)`: device
/// addresses, one per [`OperandDesc`] of the step in order, then the address of the [`GpuCtx`] and
/// of the kernel's workspace: at least `scratch + m * scratch_per_m` bytes of device memory,
/// aligned to 256, that no other kernel of the table uses. It is zeroed once, when the model is
/// opened; afterwards a kernel finds the contents its last launch left (counters have to be left
/// zero).
///
/// Kernels for compute capability [`GPU_OVERLAPS`] and later may be launched before those before them
/// have ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GpuKernelDesc {
    /// Symbol of the entry, in the data segment.
    pub entry: Span,
    /// PTX text with its final NUL, as offset from the start of the **code** segment.
    pub ptx: Span,
    /// Machine code (cubin) for this very architecture, in the **code** segment; empty: none.
    pub cubin: Span,
    /// Threads per block, 1 to [`GPU_MAX_THREADS`].
    pub threads: u32,
    /// Bytes of dynamic shared memory per block, at most [`GPU_MAX_SHARED`].
    pub shared: u32,
    /// Blocks in x, y and z.
    pub grid: [GpuDim; 3],
}

/// One dimension of a grid: `fixed * (per_m == 0 ? 1 : ceil(m / per_m))` blocks, where `m` is `T`
/// or `R` by [`StepDesc::rows`].
///
/// A grid may be launched for a larger `m` than the step has (a captured graph serves all steps of
/// its regime): kernels read the true sizes from [`GpuCtx`], and blocks beyond them return at once.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuDim {
    /// Blocks, or blocks per `per_m` rows; at least 1.
    pub fixed: u32,
    /// Rows that one block (of `fixed`) covers; 0: the dimension does not depend on the number of
    /// rows.
    pub per_m: u32,
}

impl GpuDim {
    /// Blocks for `m` rows.
    pub const fn blocks(self, m: u64) -> u64 {
        if self.per_m == 0 {
            self.fixed as u64
        } else {
            (self.fixed as u64).saturating_mul(m.div_ceil(self.per_m as u64))
        }
    }
}

/// Most threads of a block.
pub const GPU_MAX_THREADS: u32 = 1024;
/// Most dynamic shared memory of a block on any supported GPU (227 KiB).
pub const GPU_MAX_SHARED: u32 = 227 << 10;

/// A kernel sequence for steps of up to `max_tokens` tokens.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RegimeDesc {
    /// Largest `T` this sequence serves; [`NONE`] = any.
    pub max_tokens: u32,
    /// First entry in the step table.
    pub first_step: u32,
    /// Number of steps.
    pub steps: u32,
    /// Zero.
    pub reserved: u32,
}

/// One kernel invocation. Between two steps all threads meet at a barrier.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StepDesc {
    /// Index in the kernel table.
    pub kernel: u32,
    /// Meaning of `m`: [`rows::TOKENS`] or [`rows::OUT`].
    pub rows: u32,
    /// Work items: `items * (items_per_m ? m : 1)`.
    pub items: u32,
    /// 1 when `items` counts per row.
    pub items_per_m: u32,
    /// 0: each thread gets one contiguous range of items; else items are dealt round-robin in
    /// chunks of this many.
    pub chunk: u32,
    /// First entry in the operand table.
    pub first_operand: u32,
    /// Number of operands.
    pub operands: u32,
    /// Index of the layer for profiles, [`NONE`] outside layers.
    pub layer: u32,
}

pub mod rows;

/// One pointer handed to a kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct OperandDesc {
    /// See [`operand`].
    pub kind: u32,
    /// Buffer or state index.
    pub index: u32,
    /// Byte offset (weights: from the start of the weights segment).
    pub offset: u64,
}

/// Kinds of [`OperandDesc`].
pub mod operand {
    /// Start of activation slot `index`.
    pub const BUFFER: u32 = 0;
    /// `offset` bytes into the weights segment.
    pub const WEIGHT: u32 = 1;
    /// Pool of state `index` (a `*mut u8`; page or slot `p` lies at `p * bytes`).
    pub const STATE: u32 = 2;
}

/// One state of every sequence, in a pool of its own.
///
/// *Paged*: keys and values of an attention layer, in pages of [`PAGE_TOKENS`] tokens. A page is
/// `K` then `V` then, for int8 and int4, the scales; each part is rounded up to 64 bytes: `K:
/// [kv_heads][key_dim][16 tokens]`, `V: [kv_heads][16 tokens][value_dim]`, scales `K: f32
/// [kv_heads][16]`, `V: f32 [kv_heads][16]`. Where codes have 4 bits, a byte has two of a token:
/// elements `2j` and `2j + 1` of a key, `j` and `j + value_dim/2` of a value, the first one in the
/// lower half. In a latent cache, whose keys end with the values, `K` is the part before them.
/// *Strided*: the same, the last of each `window` tokens of a sequence storing a row; a page has 16
/// rows.
///
/// *Fixed*: a number of bytes that does not grow with the sequence (the matrix of a recurrence, the
/// last inputs of a convolution): a slot, which the block table names in its only entry. It is zero
/// before the first token. A kernel takes the tokens of a sequence in order, one after the other,
/// so that it does not matter how they were cut into steps.
///
/// *Adapter*: a matrix of adapters that are loaded while the model runs, bf16 in panels of 16 rows: a
/// slot for each of `window` adapters after the first, which nobody reads. The block table names the
/// slot of the sequence's adapter in its only entry; 0: it has none. No step writes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StateDesc {
    /// See [`state`].
    pub kind: u32,
    /// Group of states that share a block table: groups count up from 0, states of a group have one
    /// kind and window. A step's states are of one group.
    pub group: u32,
    /// Key/value heads; 0 where fixed, as the next three.
    pub kv_heads: u32,
    /// Elements of a head that are stored as keys.
    pub key_dim: u16,
    /// Elements of a value; 0 = as many.
    pub value_dim: u16,
    /// See [`kv_dtype`].
    pub dtype: u32,
    /// Sliding window in tokens, 0 = none; tokens of a row, if strided; how many tokens have rows, where it is the
    /// first ones; how many adapters there is room for.
    pub window: u32,
    /// Bytes of a page, or of a slot: a multiple of 64.
    pub bytes: u64,
    /// The track of a sequence whose tokens it is of; states of a group are of one track.
    pub track: u32,
    /// Zero.
    pub reserved: u32,
}

/// Kinds of [`StateDesc`].
pub mod state {
    /// Keys and values in pages.
    pub const PAGED: u32 = 0;
    /// So many bytes.
    pub const FIXED: u32 = 1;
    /// A matrix of adapters.
    pub const ADAPTER: u32 = 2;
    /// Keys and values in pages, a row for several tokens.
    pub const STRIDED: u32 = 3;
    /// Keys and values of the first tokens of a sequence, in pages.
    pub const FIRST: u32 = 4;
}

/// Element types of the KV cache.
pub mod kv_dtype {
    /// IEEE binary32.
    pub const F32: u32 = 0;
    /// IEEE binary16.
    pub const F16: u32 = 1;
    /// bfloat16.
    pub const BF16: u32 = 2;
    /// int8 with one f32 scale per token and head.
    pub const INT8: u32 = 3;
    /// int4 with one f32 scale per token and head; heads have an even number of elements.
    pub const INT4: u32 = 4;

    /// Bits of an element; none if there is no such type.
    pub const fn bits(dtype: u32) -> Option<usize> {
        match dtype {
            F32 => Some(32),
            F16 | BF16 => Some(16),
            INT8 => Some(8),
            INT4 => Some(4),
            _ => None,
        }
    }

    /// Whether elements are codes, of a scale per token and head.
    #[inline(always)]
    pub const fn has_scales(dtype: u32) -> bool {
        matches!(dtype, INT8 | INT4)
    }
}

/// The view every kernel has of the step. All arrays are owned by the runtime and constant during
/// the step. There is one per group of states ([`StateDesc::group`]): they differ in the block
/// tables and in the lengths of sequences only, and a kernel gets the one of its states' group.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StepCtx {
    /// `i32 [T]` token ids, checked against the vocabulary.
    pub tokens: *const i32,
    /// `i32 [T]` position of each token in its sequence.
    pub positions: *const i32,
    /// `i32 [T]` row of the block table of each token's sequence.
    pub seqs: *const i32,
    /// `i32 [R]` token rows whose logits are wanted.
    pub out_rows: *const i32,
    /// `u32 [S, block_stride]` page numbers of each sequence, in the pools of the group's states;
    /// of fixed states the slot first, and nothing else.
    pub block_tables: *const u32,
    /// Entries per row of `block_tables`.
    pub block_stride: u64,
    /// `T`.
    pub n_tokens: u64,
    /// `R`.
    pub n_rows: u64,
    /// `S`.
    pub n_seqs: u64,
    /// Microkernels for the machine at hand, indexed by [`Uk`].
    pub uk: *const UkTable,
    /// Threads among which the work items of a kernel are divided: thread `t` has those from
    /// `items * t / threads` on.
    pub threads: u64,
    /// Memory through which threads exchange data within a kernel: a slot for each boundary between
    /// two threads, the first 64 bytes of each zero between kernels.
    pub shared: *mut u8,
    /// Bytes of a slot: 64, and [`KernelDesc::shared_per_block`] for each block of the longest
    /// context of the step and one more.
    pub shared_stride: u64,
    /// `i32 [T]` length of each token's sequence after the step, in the track of the group; in that of an entry with
    /// [`entry_flags::RUNS`] where what the token sees ends.
    pub ends: *const i32,
    /// Arrays that the entry takes beside these; null: there is none.
    pub arrays: Arrays<*const u8>,
}

/// [`StepCtx`] for GPU kernels, in device memory: device addresses, all fields 8 bytes. One per
/// group, as there.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuCtx {
    /// `i32 [T]` token ids.
    pub tokens: u64,
    /// `i32 [T]` positions.
    pub positions: u64,
    /// `i32 [T]` rows of the block table.
    pub seqs: u64,
    /// `i32 [R]` token rows whose logits are wanted.
    pub out_rows: u64,
    /// `u32 [S, block_stride]` page numbers, in the pools of the group's states.
    pub block_tables: u64,
    /// Entries per row of `block_tables`.
    pub block_stride: u64,
    /// `T`.
    pub n_tokens: u64,
    /// `R`.
    pub n_rows: u64,
    /// `S`.
    pub n_seqs: u64,
    /// `i32 [R]` how many of its most probable tokens are wanted of each logits row: 0, 1, or more,
    /// which means all that the artifact finds ([`EntryDesc::candidates`]).
    pub wanted: u64,
    /// `f32 [R]` `log2(e)` divided by the temperature at which the exponentials of a row are
    /// summed.
    pub scales: u64,
    /// `i32 [T]` length of each token's sequence after the step, in the track of the group; in that of an entry with
    /// [`entry_flags::RUNS`] where what the token sees ends.
    pub ends: u64,
    /// Arrays that the entry takes beside these; those that are not there are not read.
    pub arrays: Arrays<u64>,
}

/// A generated kernel: computes work items `lo..hi`.
///
/// `operands`: one pointer per [`OperandDesc`] of the step; `m`: rows (`T` or `R`); `scratch`: this
/// thread's own memory, 64-byte aligned, of `scratch + m * scratch_per_m` bytes, contents undefined
/// on entry.
pub type KernelFn =
    unsafe extern "C" fn(operands: *const *mut u8, ctx: *const StepCtx, m: u64, lo: u64, hi: u64, scratch: *mut u8);
