//! From runtime, code, weights and tables to one shared object.
//!
//! There is no linker: generated kernels need no relocations (they get every address as an argument), so linking is appending. The output is the prebuilt
//! runtime object, byte for byte, followed by
//!
//! ```text
//! | runtime .so | code (R+X) | weights (R, 2 MiB aligned) | program headers + data (R) |
//! ```
//!
//! with a new program header table that maps the three segments after the runtime's own, and [`ImageRef`] patched to say where they are.
//! Weights never pass through memory: they are streamed to their place. The data comes last because its manifest reports on the packing.
//! Everything is written to a temporary file in the destination's folder and renamed when complete. Before that it can be loaded and run under its
//! temporary name ([`Linker::seal`]), and its data replaced by what that run taught.

mod pending;
mod place;

use crate::artifact::bytes_of;
use llmcc_abi::{ABI_VERSION, FLAG_EXTERNAL_WEIGHTS, IMAGE_MAGIC, ImageRef, SEGMENT_ALIGN};
use object::elf::{FileHeader64, PF_R, PF_X, PT_LOAD, PT_PHDR, ProgramFlags, ProgramHeader64};
use object::endian::{LittleEndian as LE, U16, U32, U64};
use object::pod;
use object::read::elf::{FileHeader, ProgramHeader};
pub use pending::Pending;
pub use place::remove_unfinished;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const PAGE: u64 = 4096;

/// Where the weights go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightsPlace {
    /// A segment of the artifact.
    Embed,
    /// `<artifact>.weights` beside it.
    External,
    /// As [`WeightsPlace::External`], but someone else makes that file.
    Absent,
}

/// Why an artifact could not be written.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The runtime inside the compiler is not what it should be.
    #[error("internal error: the runtime object is unusable ({0}); please report this")]
    Runtime(String),
    /// The output could not be written.
    #[error("cannot write {path}: {source}")]
    Io {
        /// File.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
}

/// An artifact being written. Dropped before [`Linker::finish`], it leaves nothing behind.
pub struct Linker {
    out: Pending,
    external: Option<Pending>,
    /// Bytes of the weights that someone else makes.
    absent: u64,
    runtime: Runtime,
    image: ImageRef,
    weights_at: u64,
    /// End of the code or of the embedded weights, once all are written.
    body_end: Option<u64>,
}

/// What the runtime object tells about itself.
struct Runtime {
    headers: Vec<ProgramHeader64<LE>>,
    image_at: u64,
    end_addr: u64,
}

impl Linker {
    /// Starts an artifact at `out`: runtime and code.
    ///
    /// # Errors
    /// [`LinkError`] when the file cannot be created or written.
    pub fn start(out: &Path, runtime: &[u8], code: &[u8], place: WeightsPlace) -> Result<Linker, LinkError> {
        let parsed = parse_runtime(runtime).map_err(LinkError::Runtime)?;
        let code_off = (runtime.len() as u64).next_multiple_of(PAGE);
        let code_addr = parsed.end_addr.next_multiple_of(PAGE);
        let image = ImageRef {
            magic: IMAGE_MAGIC,
            version: ABI_VERSION,
            flags: if place == WeightsPlace::Embed { 0 } else { FLAG_EXTERNAL_WEIGHTS },
            code_addr,
            code_len: code.len() as u64,
            ..ImageRef::default()
        };
        let mut out = Pending::create(out)?;
        out.append(runtime)?;
        out.pad_to(code_off)?;
        out.append(code)?;
        let mut external = None;
        let mut weights_at = code_off;
        if place == WeightsPlace::External {
            // The runtime looks for the weights beside the artifact: under the temporary name, too.
            external = Some(Pending::create_as(&weights_path(out.path()), weights_path(out.temporary()))?);
        } else if place == WeightsPlace::Embed {
            weights_at = out.pos().next_multiple_of(SEGMENT_ALIGN);
            out.pad_to(weights_at)?;
        }
        let mut runtime = parsed;
        runtime.headers.push(load(PF_R | PF_X, code_off, code_addr, code.len() as u64, PAGE));
        Ok(Linker { out, external, absent: 0, runtime, image, weights_at, body_end: None })
    }

    /// The sink for the packed weights, to be written from start to end before [`Linker::seal`].
    pub fn weights(&mut self) -> &mut dyn Write {
        self.external.as_mut().unwrap_or(&mut self.out)
    }

    /// Says how many bytes of weights there will be, in place of writing them ([`WeightsPlace::Absent`]).
    pub fn leave_out(&mut self, bytes: u64) {
        self.absent = bytes;
    }

    /// Bytes of weights written so far.
    pub fn weights_written(&self) -> u64 {
        self.external.as_ref().map_or(self.body_end.unwrap_or(self.out.pos()) - self.weights_at, Pending::pos)
    }

    /// Writes tables and headers: the artifact is complete, under its [temporary name](Linker::temporary). May be called again with other data, which
    /// replaces the former. Returns the artifact's size in bytes.
    ///
    /// # Errors
    /// [`LinkError::Io`].
    pub fn seal(&mut self, data: &[u8]) -> Result<u64, LinkError> {
        let body_end = *self.body_end.get_or_insert(self.out.pos());
        self.out.rewind(body_end)?;
        let mut headers = self.runtime.headers.clone();
        let code_end = self.image.code_addr + self.image.code_len;
        let mut next_addr = code_end.next_multiple_of(SEGMENT_ALIGN);
        match &mut self.external {
            Some(side) => {
                self.image.weights_len = side.pos();
                side.settle()?;
            }
            None if self.image.flags & FLAG_EXTERNAL_WEIGHTS != 0 => self.image.weights_len = self.absent,
            None => {
                let len = body_end - self.weights_at;
                self.image.weights_addr = next_addr;
                self.image.weights_len = len;
                if len > 0 {
                    headers.push(load(PF_R, self.weights_at, next_addr, len, SEGMENT_ALIGN));
                }
                next_addr += len;
            }
        }
        // The last segment starts with the program headers, so that the loader finds them mapped.
        let tables_off = body_end.next_multiple_of(PAGE);
        let tables_addr = next_addr.next_multiple_of(PAGE);
        let count = headers.len() + 1;
        let header_bytes = ((count * size_of::<ProgramHeader64<LE>>()) as u64).next_multiple_of(64);
        let len = header_bytes + data.len() as u64;
        headers.push(load(PF_R, tables_off, tables_addr, len, PAGE));
        for h in &mut headers {
            if h.p_type.get(LE) == PT_PHDR {
                *h = ProgramHeader64 { p_type: U32::new(LE, PT_PHDR), ..load(PF_R, tables_off, tables_addr, header_bytes, 8) };
            }
        }
        self.image.data_addr = tables_addr + header_bytes;
        self.image.data_len = data.len() as u64;
        self.image.file_len = tables_off + len;
        self.out.pad_to(tables_off)?;
        self.out.append(pod::bytes_of_slice(&headers))?;
        self.out.pad_to(tables_off + header_bytes)?;
        self.out.append(data)?;
        self.out.patch(std::mem::offset_of!(FileHeader64<LE>, e_phoff) as u64, &tables_off.to_le_bytes())?;
        self.out.patch(std::mem::offset_of!(FileHeader64<LE>, e_phnum) as u64, &(count as u16).to_le_bytes())?;
        self.out.patch(self.runtime.image_at, bytes_of(std::slice::from_ref(&self.image)))?;
        self.out.settle()?;
        Ok(self.image.file_len)
    }

    /// The file that [`Linker::seal`] completes and [`Linker::finish`] renames.
    pub fn temporary(&self) -> &Path {
        self.out.temporary()
    }

    /// Moves the sealed artifact to its name.
    ///
    /// # Errors
    /// [`LinkError::Io`].
    pub fn finish(mut self) -> Result<(), LinkError> {
        if let Some(side) = self.external.take() {
            side.commit(0o644)?;
        }
        self.out.commit(0o755)
    }
}

/// Name of the side file of an artifact with external weights.
pub fn weights_path(artifact: &Path) -> PathBuf {
    let mut name = artifact.as_os_str().to_owned();
    name.push(".weights");
    name.into()
}

fn load(flags: ProgramFlags, off: u64, addr: u64, len: u64, align: u64) -> ProgramHeader64<LE> {
    ProgramHeader64 {
        p_type: U32::new(LE, PT_LOAD),
        p_flags: U32::new(LE, flags),
        p_offset: U64::new(LE, off),
        p_vaddr: U64::new(LE, addr),
        p_paddr: U64::new(LE, addr),
        p_filesz: U64::new(LE, len),
        p_memsz: U64::new(LE, len),
        p_align: U64::new(LE, align),
    }
}

fn parse_runtime(bytes: &[u8]) -> Result<Runtime, String> {
    let header = FileHeader64::<LE>::parse(bytes).map_err(|e| e.to_string())?;
    let headers = header.program_headers(LE, bytes).map_err(|e| e.to_string())?.to_vec();
    if header.e_phentsize != U16::new(LE, size_of::<ProgramHeader64<LE>>() as u16) {
        return Err("unexpected program header size".into());
    }
    let end_addr =
        headers.iter().filter(|h| h.p_type(LE) == PT_LOAD).map(|h| h.p_vaddr(LE) + h.p_memsz(LE)).max().ok_or("no loadable segment")?;
    let mut found = bytes.windows(IMAGE_MAGIC.len()).enumerate().filter(|(_, w)| *w == IMAGE_MAGIC).map(|(i, _)| i as u64);
    // The magic also occurs where the runtime compares it: the descriptor is the one place followed by zeros.
    let zeros = size_of::<ImageRef>() - IMAGE_MAGIC.len();
    let image_at = found
        .find(|i| {
            let at = *i as usize + IMAGE_MAGIC.len();
            bytes.get(at..at + zeros).is_some_and(|z| z.iter().all(|b| *b == 0))
        })
        .ok_or("no image descriptor")?;
    Ok(Runtime { headers, image_at, end_addr })
}
