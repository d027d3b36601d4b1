//! The model inside the artifact: where its segments are, and whether they can be trusted.
//!
//! The compiler patches [`IMAGE_REF`] in its copy of this library. Nothing read through it is believed before it has been
//! checked: after [`Image::load`], every index, offset and span lies inside what it points into, so the engine needs no checks.

use std::ffi::CStr;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::{fs, io, ptr, slice};

use llmcc_abi::{
    ABI_VERSION, BufferDesc, FLAG_EXTERNAL_WEIGHTS, IMAGE_MAGIC, ImageRef, KernelDesc, KvDesc, MODEL_MAGIC, ModelDesc, NONE, OperandDesc,
    RegimeDesc, Span, StepDesc, Table, isa, kv_dtype, layout, operand, rows,
};

use crate::error::{Error, Result, Status};

/// The patched static. `repr(transparent)` over uninitialised-looking storage so that the compiler of this crate can neither
/// fold its zeros nor move it to read-only data.
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
}));

unsafe extern "C" {
    /// The linker's name for the ELF header of the object this code is linked into.
    #[link_name = "__ehdr_start"]
    static EHDR_START: u8;
}

/// A checked model: owned copies of the tables, and addresses of the segments.
pub struct Image {
    desc: ModelDesc,
    code: Segment,
    data: Segment,
    weights: Segment,
    /// Activation slots.
    pub buffers: Vec<BufferDesc>,
    /// Generated kernels.
    pub kernels: Vec<KernelDesc>,
    /// Kernel sequences, ascending by number of tokens.
    pub regimes: Vec<RegimeDesc>,
    /// Kernel invocations of all regimes.
    pub steps: Vec<StepDesc>,
    /// Pointers of all steps.
    pub operands: Vec<OperandDesc>,
    /// Attention states.
    pub kv: Vec<KvDesc>,
    /// The side file's mapping, when the weights lie there.
    _side: Option<Mapping>,
}

/// A byte range in memory that lives as long as the library (or as the caller of [`Image::from_parts`] promised).
#[derive(Clone, Copy)]
struct Segment {
    ptr: *const u8,
    len: u64,
}

// SAFETY: segments are read-only memory.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Image {
    /// The model of the artifact this code runs in. Fails when there is none, when the file was damaged or stripped, when it is
    /// of another ABI version, when this processor cannot run it, or when its weights file is missing.
    pub fn load() -> Result<Image> {
        // SAFETY: initialised static; volatile because the file on disk, not this source, has the values.
        let at = unsafe { IMAGE_REF.0.get().read_volatile() };
        if at.version == 0 || at.data_addr == 0 {
            return Err(Error::artifact(
                "this is the bare llmcc runtime: no model was compiled into it. Use the .so written by `llmcc compile`",
            ));
        }
        if at.version != ABI_VERSION {
            return Err(version_error(at.version));
        }
        let path = own_path();
        check_length(path.as_deref(), at.file_len)?;
        let base = &raw const EHDR_START;
        let segment = |addr: u64, len: u64| Segment { ptr: base.wrapping_add(addr as usize), len };
        let (weights, side) = if at.flags & FLAG_EXTERNAL_WEIGHTS != 0 {
            let side = side_file(path.as_deref(), at.weights_len)?;
            (Segment { ptr: side.ptr, len: at.weights_len }, Some(side))
        } else {
            (segment(at.weights_addr, at.weights_len), None)
        };
        hint(weights);
        let (code, data) = (segment(at.code_addr, at.code_len), segment(at.data_addr, at.data_len));
        Image::check(code, data, weights, side)
    }

    /// An image whose segments lie anywhere in memory: for tests and for running freshly generated code in the compiler's own
    /// process.
    ///
    /// # Safety
    /// `code` holds valid machine code (or, in tests, the kernel offsets are relative to it), and the three ranges outlive the image.
    pub unsafe fn from_parts(code: *const u8, code_len: u64, data: &[u8], weights: *const u8, weights_len: u64) -> Result<Image> {
        let data = Segment { ptr: data.as_ptr(), len: data.len() as u64 };
        Image::check(Segment { ptr: code, len: code_len }, data, Segment { ptr: weights, len: weights_len }, None)
    }

    fn check(code: Segment, data: Segment, weights: Segment, side: Option<Mapping>) -> Result<Image> {
        let desc = read_desc(data)?;
        check_isa(desc.isa)?;
        let image = Image {
            desc,
            code,
            data,
            weights,
            buffers: table(data, desc.buffers, "buffers")?,
            kernels: table(data, desc.kernels, "kernels")?,
            regimes: table(data, desc.regimes, "regimes")?,
            steps: table(data, desc.steps, "steps")?,
            operands: table(data, desc.operands, "operands")?,
            kv: table(data, desc.kv, "kv")?,
            _side: side,
        };
        image.check_sizes()?;
        image.check_kernels()?;
        image.check_regimes()?;
        image.check_steps()?;
        image.check_operands()?;
        image.check_kv()?;
        for (span, what) in [(desc.manifest, "manifest"), (desc.tokenizer, "tokenizer"), (desc.text_config, "text config")] {
            check_text(data, span, what)?;
        }
        Ok(image)
    }

    fn check_sizes(&self) -> Result<()> {
        let d = &self.desc;
        let small = |x: u64| x > 0 && x <= i32::MAX as u64;
        if !small(d.vocab) || !small(d.max_context) || !small(d.hidden) {
            return Err(damaged(format_args!("sizes: vocabulary {}, context {}, width {}", d.vocab, d.max_context, d.hidden)));
        }
        let logits = usize::try_from(d.logits_buffer).ok().and_then(|i| self.buffers.get(i));
        match logits {
            Some(b) if b.per_row.saturating_add(b.fixed) >= d.vocab * 4 => Ok(()),
            Some(_) => Err(damaged("logits buffer too small")),
            None => Err(damaged("no such logits buffer")),
        }
    }

    fn check_kernels(&self) -> Result<()> {
        for (i, kernel) in self.kernels.iter().enumerate() {
            if kernel.code >= self.code.len {
                return Err(damaged(format_args!("kernel {i} starts outside the code")));
            }
            check_text(self.data, kernel.name, "kernel name")?;
        }
        Ok(())
    }

    fn check_regimes(&self) -> Result<()> {
        let mut below = 0;
        for (i, r) in self.regimes.iter().enumerate() {
            if r.max_tokens <= below {
                return Err(damaged(format_args!("regime {i} is out of order")));
            }
            below = r.max_tokens;
            if u64::from(r.first_step) + u64::from(r.steps) > self.steps.len() as u64 {
                return Err(damaged(format_args!("regime {i} has steps outside the table")));
            }
        }
        if below != NONE {
            return Err(damaged("no regime serves steps of any size"));
        }
        Ok(())
    }

    fn check_steps(&self) -> Result<()> {
        for (i, s) in self.steps.iter().enumerate() {
            let end = u64::from(s.first_operand) + u64::from(s.operands);
            let known = s.rows == rows::TOKENS || s.rows == rows::OUT;
            if s.kernel as usize >= self.kernels.len() || end > self.operands.len() as u64 || !known || s.items_per_m > 1 {
                return Err(damaged(format_args!("step {i}: {s:?}")));
            }
        }
        Ok(())
    }

    fn check_operands(&self) -> Result<()> {
        for (i, o) in self.operands.iter().enumerate() {
            let index = o.index as usize;
            let good = match o.kind {
                operand::BUFFER => index < self.buffers.len() && o.offset == 0,
                operand::WEIGHT => o.offset < self.weights.len,
                operand::KV => index < self.kv.len() && o.offset == 0,
                _ => false,
            };
            if !good {
                return Err(damaged(format_args!("operand {i}: {o:?}")));
            }
        }
        Ok(())
    }

    fn check_kv(&self) -> Result<()> {
        for (i, kv) in self.kv.iter().enumerate() {
            let elem = match kv.dtype {
                kv_dtype::F32 => 4,
                kv_dtype::F16 | kv_dtype::BF16 => 2,
                kv_dtype::INT8 => 1,
                _ => return Err(damaged(format_args!("attention state {i} has element type {}", kv.dtype))),
            };
            let good = kv.kv_heads > 0 && kv.head_dim > 0 && kv.kv_heads <= 1 << 16 && kv.head_dim <= 1 << 16;
            if !good || kv.page_bytes != layout::page(kv.kv_heads as usize, kv.head_dim as usize, elem).bytes as u64 {
                return Err(damaged(format_args!("attention state {i}: {kv:?}")));
            }
        }
        Ok(())
    }

    /// The root descriptor.
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

    /// Start of the weights.
    pub fn weights(&self) -> *const u8 {
        self.weights.ptr
    }

    /// Bytes of weights.
    pub fn weights_len(&self) -> u64 {
        self.weights.len
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

    /// JSON object with special tokens and chat template, empty when the model has no tokenizer.
    pub fn text_config(&self) -> &str {
        self.text(self.desc.text_config)
    }

    /// Text of a checked span.
    fn text(&self, span: Span) -> &str {
        // SAFETY: `check` proved bounds and UTF-8 of every span, and the segment outlives the image.
        unsafe {
            let bytes = slice::from_raw_parts(self.data.ptr.add(span.off as usize), span.len as usize);
            std::str::from_utf8_unchecked(bytes)
        }
    }
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::artifact(format!("the artifact is damaged ({what}); compile it again"))
}

fn version_error(found: u32) -> Error {
    Error::artifact(format!(
        "the artifact has format version {found}, its runtime reads version {ABI_VERSION}; compile it again with one llmcc"
    ))
}

fn read_desc(data: Segment) -> Result<ModelDesc> {
    if data.len < size_of::<ModelDesc>() as u64 {
        return Err(damaged("data segment too short"));
    }
    // SAFETY: the bytes are there, and any bytes are a valid ModelDesc.
    let desc = unsafe { data.ptr.cast::<ModelDesc>().read_unaligned() };
    if desc.magic != MODEL_MAGIC {
        return Err(damaged("data segment does not start with a model descriptor"));
    }
    if desc.version != ABI_VERSION {
        return Err(version_error(desc.version));
    }
    Ok(desc)
}

/// Copies a table out of the data segment.
fn table<T: Copy>(data: Segment, table: Table, what: &str) -> Result<Vec<T>> {
    let bytes = table.count.checked_mul(size_of::<T>() as u64);
    let inside = bytes.and_then(|b| b.checked_add(table.off)).is_some_and(|end| end <= data.len);
    if !inside || table.count >= u64::from(NONE) {
        return Err(damaged(format_args!("table of {what} lies outside the data segment")));
    }
    let mut out = vec![MaybeUninit::<T>::uninit(); table.count as usize];
    // SAFETY: the range was checked; all table types are plain integers, for which any bytes are valid.
    unsafe {
        let from = data.ptr.add(table.off as usize);
        ptr::copy_nonoverlapping(from, out.as_mut_ptr().cast::<u8>(), table.count as usize * size_of::<T>());
        Ok(out.iter().map(|x| x.assume_init()).collect())
    }
}

fn check_text(data: Segment, span: Span, what: &str) -> Result<()> {
    if span.off.checked_add(span.len).is_none_or(|end| end > data.len) {
        return Err(damaged(format_args!("{what} lies outside the data segment")));
    }
    // SAFETY: just checked.
    let bytes = unsafe { slice::from_raw_parts(data.ptr.add(span.off as usize), span.len as usize) };
    std::str::from_utf8(bytes).map(|_| ()).map_err(|_| damaged(format_args!("{what} is not UTF-8")))
}

/// Whether this processor runs code of `level`.
fn check_isa(level: u32) -> Result<()> {
    let name = match level {
        isa::X86_64 => "x86-64",
        isa::X86_64_V3 => "x86-64-v3 (AVX2, FMA, F16C, BMI)",
        isa::X86_64_V4 => "x86-64-v4 (AVX-512 F/BW/CD/DQ/VL)",
        isa::AARCH64 => "aarch64 (NEON)",
        _ => return Err(damaged(format_args!("instruction set {level}"))),
    };
    if supports(level) {
        return Ok(());
    }
    let message = format!("this processor cannot run the artifact, which needs {name}; compile with `--target native` on this machine");
    Err(Error::new(Status::Cpu, message))
}

#[cfg(target_arch = "x86_64")]
fn supports(level: u32) -> bool {
    use std::arch::is_x86_feature_detected as has;
    let v3 = || has!("avx2") && has!("fma") && has!("f16c") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("movbe");
    let v4 = || has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl");
    match level {
        isa::X86_64 => true,
        isa::X86_64_V3 => v3(),
        isa::X86_64_V4 => v3() && v4(),
        _ => false,
    }
}

#[cfg(target_arch = "aarch64")]
fn supports(level: u32) -> bool {
    level == isa::AARCH64
}

/// The file this code was loaded from, when the system still knows it.
fn own_path() -> Option<PathBuf> {
    // SAFETY: dladdr fills `info` when it succeeds; the name is a C string owned by the loader.
    unsafe {
        let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
        if libc::dladdr((&raw const IMAGE_REF).cast(), info.as_mut_ptr()) == 0 {
            return None;
        }
        let name = info.assume_init().dli_fname;
        if name.is_null() {
            return None;
        }
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(CStr::from_ptr(name).to_bytes()));
        if path.is_absolute() && path.exists() {
            return Some(path.to_path_buf());
        }
    }
    // Loaded by a relative path: the working directory may have changed since, so ask the kernel.
    mapped_path((&raw const IMAGE_REF) as usize)
}

/// The file mapped at `address`, according to `/proc/self/maps`.
fn mapped_path(address: usize) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let (from, to) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
        let path = PathBuf::from(rest.get(rest.find('/')?..)?);
        ((from..to).contains(&address) && path.exists()).then_some(path)
    })
}

/// Refuses a file that lost its appended segments. A file that can no longer be found (deleted after loading) is not checked.
fn check_length(path: Option<&Path>, expected: u64) -> Result<()> {
    let Some((path, found)) = path.and_then(|p| fs::metadata(p).ok().map(|m| (p, m.len()))) else {
        return Ok(());
    };
    if found == expected {
        return Ok(());
    }
    Err(Error::artifact(format!(
        "{} has {found} bytes instead of {expected}: it was stripped, truncated or edited. Artifacts must not be stripped; copy or compile it again",
        path.display()
    )))
}

/// A file mapped read-only.
struct Mapping {
    ptr: *const u8,
    len: usize,
}

// SAFETY: read-only memory.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `side_file`.
        unsafe { libc::munmap(self.ptr.cast_mut().cast(), self.len) };
    }
}

/// Maps `<artifact>.weights`.
fn side_file(artifact: Option<&Path>, expected: u64) -> Result<Mapping> {
    let Some(artifact) = artifact else {
        return Err(Error::artifact("cannot tell where the artifact lies, so its .weights file cannot be found beside it"));
    };
    let mut path = artifact.as_os_str().to_owned();
    path.push(".weights");
    let path = PathBuf::from(path);
    let failed = |cause: io::Error| {
        let hint = "the weights of this artifact are in a side file, which must lie beside it";
        Error::artifact(format!("cannot open {}: {cause}; {hint}", path.display()))
    };
    let file = fs::File::open(&path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?.len();
    let len = usize::try_from(found).unwrap_or(0);
    if found != expected || len == 0 {
        let message = format!("{} has {found} bytes instead of {expected}: it belongs to another artifact or is damaged", path.display());
        return Err(Error::artifact(message));
    }
    // SAFETY: a fresh read-only mapping; the descriptor may be closed afterwards.
    let at = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED {
        return Err(Error::system(format_args!("cannot map {}", path.display()), io::Error::last_os_error()));
    }
    Ok(Mapping { ptr: at.cast(), len })
}

/// Asks the kernel to read the weights ahead and, where it can, to use huge pages. Failure changes nothing.
fn hint(weights: Segment) {
    const PAGE: usize = 4096;
    let start = weights.ptr as usize & !(PAGE - 1);
    let len = weights.ptr as usize - start + weights.len as usize;
    for advice in [libc::MADV_HUGEPAGE, libc::MADV_WILLNEED] {
        // SAFETY: hints about read-only mappings.
        unsafe { libc::madvise(start as *mut libc::c_void, len, advice) };
    }
}
