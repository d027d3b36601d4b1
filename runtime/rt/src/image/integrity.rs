//! Whether the artifact's bytes are as the compiler wrote them: its table of hashes
//! ([`llmcc_abi::tree`]) against the mapped bytes.
//!
//! Checked when a model is opened: headers, the runtime itself, code, tables, manifest, chat
//! template. The tokenizer is checked when text is first needed, with its reading; weights are left
//! to `llmcc verify`, since opening a model must not read them. Read-only segments are hashed in
//! memory; segments that the loader relocates are read from the file, as long as it is still the
//! one that was loaded.

use std::ffi::c_void;
use std::fs::File;
use std::mem::{offset_of, size_of};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::slice;

use llmcc_abi::ImageRef;
use llmcc_abi::tree::{self, Hash, LABEL_LEN, LABEL_MAGIC, PartDesc, part, part_of};

use super::file::Mapping;
use super::segment::{Segment, damaged};
use crate::error::Result;
use crate::reserve::need;

/// A `PT_LOAD` segment of this library.
#[derive(Clone, Copy)]
struct Load {
    /// First byte in memory.
    at: *const u8,
    /// First byte in the file, and bytes of the file.
    off: u64,
    len: u64,
    writable: bool,
}

/// The library as it was mapped, and the hashes in it.
pub struct Sealed {
    loads: Vec<Load>,
    base: *const u8,
    image: ImageRef,
    parts: Vec<PartDesc>,
}

impl Sealed {
    /// Opens the seals of the library around `image` (at `at`, ELF header at `base`). Checks the
    /// table of hashes: that it covers the file, and its root.
    pub fn new(at: *const u8, base: *const u8, image: &ImageRef) -> Result<Sealed> {
        let mut sealed = Sealed { loads: loads_around(at), base, image: *image, parts: vec![] };
        if sealed.loads.iter().any(|l| l.off.checked_add(l.len).is_none_or(|end| end > image.file_len)) {
            // Touching pages behind the end of the file would kill the process.
            return Err(damaged("a segment reaches beyond the end of the file"));
        }
        let table = sealed.segment(image.hashes_addr, image.hashes_len, "table of hashes")?;
        need(table.len as usize)?;
        let wrong = || damaged("its image descriptor or table of hashes has changed");
        let descriptors =
            image.parts.checked_mul(size_of::<PartDesc>() as u64).filter(|len| *len <= table.len).ok_or_else(wrong)?;
        // SAFETY: `segment` found the table in a mapped segment, which this is the beginning of.
        let bytes = unsafe { slice::from_raw_parts(table.ptr, descriptors as usize) };
        sealed.parts = bytes.as_chunks().0.iter().map(PartDesc::from_bytes).collect();
        let covered = image
            .file_len
            .checked_sub(image.hashes_len)
            .is_some_and(|end| tree::covers(&sealed.parts, end, image.side_len()));
        if !covered
            || tree::table_len(&sealed.parts) != Some(image.hashes_len)
            || tree::root(&sealed.parts) != image.root
        {
            return Err(wrong());
        }
        Ok(sealed)
    }

    /// `len` bytes at `addr` from the ELF header, which must lie in one segment that nobody writes.
    pub fn segment(&self, addr: u64, len: u64, what: &str) -> Result<Segment> {
        let ptr = self.base.wrapping_add(addr as usize);
        let inside = |l: &Load| {
            let skip = (ptr as u64).checked_sub(l.at as u64);
            !l.writable && skip.and_then(|s| s.checked_add(len)).is_some_and(|end| end <= l.len)
        };
        if len > isize::MAX as u64 || !(len == 0 || self.loads.iter().any(inside)) {
            return Err(damaged(format_args!("the {what} is in the wrong place")));
        }
        Ok(Segment { ptr, len })
    }

    /// Checks the parts that opening a model reads; `path` is the file, if it can still be found.
    pub fn check(&self, path: Option<&Path>) -> Result<()> {
        let file = path.and_then(|p| File::open(p).ok()).filter(|f| self.is_loaded_from(f));
        let wanted = |p: &&PartDesc| {
            p.file == tree::ARTIFACT && !matches!(p.kind, part::WEIGHTS | part::TOKENIZER | part::PADDING)
        };
        for p in self.parts.iter().filter(wanted) {
            let mapped = match p.kind {
                part::IMAGE => Some(part_of(p.kind, &image_bytes(ImageRef { root: Hash::default(), ..self.image }))),
                kind => self.mapped(p).map(|bytes| part_of(kind, bytes)),
            };
            // Memory may differ from the file where a debugger or tracer has put its breakpoints.
            match (mapped, &file) {
                (Some(hash), _) if hash == p.hash => {}
                (_, Some(file)) => compare(p, hash_in(file, p, self.image)?)?,
                (Some(hash), None) => compare(p, hash)?,
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// The part of this kind, if there is one.
    pub fn part(&self, kind: u32) -> Option<PartDesc> {
        self.parts.iter().find(|p| p.kind == kind).copied()
    }

    /// Whether `side`, of the right length, holds this artifact's weights: by its label.
    pub fn check_label(&self, side: &Mapping, path: &Path) -> Result<()> {
        let label = [&LABEL_MAGIC[..], &tree::weights(&self.parts)].concat();
        if side.bytes().last_chunk::<LABEL_LEN>().is_some_and(|found| found[..] == label) {
            return Ok(());
        }
        Err(crate::error::Error::artifact(format!(
            "{} holds the weights of another artifact: keep the two files that were compiled together",
            path.display()
        )))
    }

    /// The bytes of a part, if a segment that nobody writes holds it whole.
    fn mapped(&self, p: &PartDesc) -> Option<&[u8]> {
        self.loads.iter().filter(|l| !l.writable).find_map(|l| {
            let skip = p.off.checked_sub(l.off)?;
            // SAFETY: within a mapped segment of a library that cannot be unloaded while its code
            // runs.
            (skip.checked_add(p.len)? <= l.len)
                .then(|| unsafe { slice::from_raw_parts(l.at.add(skip as usize), p.len as usize) })
        })
    }

    /// Whether `file` has the descriptor that was loaded: it may have been replaced since.
    fn is_loaded_from(&self, file: &File) -> bool {
        let mut found = [0; size_of::<ImageRef>()];
        let at = self.part(part::IMAGE).map(|p| p.off);
        at.is_some_and(|at| file.read_exact_at(&mut found, at).is_ok()) && found == image_bytes(self.image)
    }
}

/// Compares the hash of a part with that in its descriptor.
pub fn compare(p: &PartDesc, hash: Hash) -> Result<()> {
    if hash == p.hash {
        return Ok(());
    }
    let (name, end) = (part::name(p.kind), p.off + p.len);
    Err(damaged(format_args!(
        "bytes {} to {end} of the file, in the {name}, have changed since it was compiled",
        p.off
    )))
}

/// Hash of a part as the file has it.
fn hash_in(file: &File, p: &PartDesc, image: ImageRef) -> Result<Hash> {
    if p.kind == part::IMAGE {
        // The file was found to have this very descriptor.
        return Ok(part_of(p.kind, &image_bytes(ImageRef { root: Hash::default(), ..image })));
    }
    need(p.len as usize)?;
    let mut bytes = vec![0; p.len as usize];
    let read = file.read_exact_at(&mut bytes, p.off);
    read.map_err(|e| damaged(format_args!("the {} cannot be read: {e}", part::name(p.kind))))?;
    Ok(part_of(p.kind, &bytes))
}

fn image_bytes(image: ImageRef) -> [u8; size_of::<ImageRef>()] {
    const { assert!(offset_of!(ImageRef, root) + size_of::<Hash>() == size_of::<ImageRef>()) };
    // SAFETY: `repr(C)`, integers and bytes without padding.
    unsafe { std::mem::transmute(image) }
}

/// The segments of the library that has `address`, as the loader mapped them.
fn loads_around(address: *const u8) -> Vec<Load> {
    struct Search {
        address: u64,
        found: Vec<Load>,
    }
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: libc::size_t, data: *mut c_void) -> libc::c_int {
        // SAFETY: the loader passes a valid description, and `data` is the search below.
        let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: as many headers as the loader says.
        let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let loads = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
        let start = |h: &libc::Elf64_Phdr| info.dlpi_addr.wrapping_add(h.p_vaddr);
        if !loads.clone().any(|h| search.address.checked_sub(start(h)).is_some_and(|skip| skip < h.p_memsz)) {
            return 0;
        }
        let load = |h: &libc::Elf64_Phdr| Load {
            at: start(h) as *const u8,
            off: h.p_offset,
            // For a lying header: no more than the loader maps from the file.
            len: h.p_filesz.min(h.p_memsz),
            writable: h.p_flags & libc::PF_W != 0 || h.p_flags & libc::PF_R == 0,
        };
        search.found = loads.map(load).collect();
        1
    }
    let mut search = Search { address: address as u64, found: vec![] };
    // SAFETY: `visit` accepts every argument, and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}
