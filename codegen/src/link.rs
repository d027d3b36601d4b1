//! From runtime, code, weights and tables to one shared object.
//!
//! There is no linker: generated kernels need no relocations (they get every address as an
//! argument), so linking is appending. The output is the prebuilt runtime object, byte for byte,
//! followed by
//!
//! ```text
//! | runtime .so | code (R+X) | weights (R, 2 MiB aligned) | program headers + data + hashes (R) |
//! ```
//!
//! with a new program header table that maps the three segments after the runtime's own, and
//! [`ImageRef`] patched to say where they are, and the name for the system's loader put in or taken
//! out. Weights never pass through memory: they are streamed to their place, and hashed on the way.
//! The data comes last because its manifest reports on the packing; behind it stands the table of
//! hashes ([`llmcc_abi::tree`]), of every byte. Everything is written to a file in the destination's
//! folder that gets its name when complete. Before that it can be loaded and run
//! ([`Linker::temporary`]), and its data replaced by results of that run.

mod error;
mod hashes;
mod pending;
mod place;
mod soname;

use crate::artifact::{Data, bytes_of};
pub use error::LinkError;
use hashes::{Hashed, Range, Stream, descriptors, fill_gaps};
use llmcc_abi::tree::{self, Hash, part};
use llmcc_abi::{ABI_VERSION, FLAG_EXTERNAL_WEIGHTS, FLAG_UNHASHED_WEIGHTS, IMAGE_MAGIC, ImageRef, SEGMENT_ALIGN};
use llmcc_ir::target::Machine;
use llmcc_ir::threads::beside;
use object::elf::{FileHeader64, PF_R, PF_X, PT_LOAD, PT_PHDR, ProgramFlags, ProgramHeader64};
use object::endian::{LittleEndian as LE, U16, U32, U64};
use object::pod;
use object::read::elf::{FileHeader, ProgramHeader};
pub use pending::Pending;
pub(crate) use place::kind;
pub use place::remove_unfinished;
pub use soname::LONGEST as LONGEST_SONAME;
use soname::Patch;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Bytes of weights below which their segment is aligned to a page only.
const FEW_WEIGHTS: u64 = 16 * SEGMENT_ALIGN;

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

/// An artifact being written. Dropped before [`Linker::finish`], it leaves nothing behind.
pub struct Linker {
    out: Pending,
    external: Option<Pending>,
    /// Bytes of the weights that someone else makes.
    absent: u64,
    runtime: Runtime,
    image: ImageRef,
    code: Hashed,
    weights_at: u64,
    weights_align: u64,
    /// Hashes of the weights written so far.
    weights: Stream,
    /// Facts that are known once all weights are written.
    body: Option<Body>,
}

/// Code and weights, complete.
struct Body {
    /// End of the code or of the embedded weights in the artifact.
    end: u64,
    /// Parts of the weights, and the label of a side file.
    parts: Vec<Hashed>,
}

impl Body {
    /// The parts of a side file.
    fn on_side(&self) -> impl Iterator<Item = &Hashed> {
        self.parts.iter().filter(|p| p.desc.file == tree::SIDE)
    }
}

/// Where weights are written.
struct WeightsSink<'a> {
    out: &'a mut Pending,
    hashes: &'a mut Stream,
}

impl Write for WeightsSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.hashes.update(&bytes[..n]);
        Ok(n)
    }

    /// Hashes much at once while it is written: the two take about as long.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() < AT_ONCE {
            self.out.write_all(bytes)?;
            self.hashes.update(bytes);
            return Ok(());
        }
        let (out, hashes) = (&mut *self.out, &mut *self.hashes);
        std::thread::scope(|s| {
            let hashed = beside(s, || hashes.update(bytes));
            let written = out.write_all(bytes);
            hashed.join();
            written
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Bytes that take longer to hash than a thread to start.
const AT_ONCE: usize = 1 << 17;

/// The runtime object, and its tables.
struct Runtime {
    /// Architecture that it is built for.
    machine: Machine,
    bytes: Vec<u8>,
    headers: Vec<ProgramHeader64<LE>>,
    image_at: u64,
    end_addr: u64,
    /// Bytes that give an artifact its name, or take the entry for one out.
    name: Vec<Patch>,
}

impl Linker {
    /// Starts an artifact at `out`: runtime and code. `expected` bytes of weights or so will follow.
    /// `soname`: its name for the system's loader (`DT_SONAME`), at most [`LONGEST_SONAME`] bytes.
    ///
    /// # Errors
    /// [`LinkError`] when the file cannot be created or written.
    pub fn start(
        out: &Path,
        soname: Option<&str>,
        runtime: &[u8],
        code: &[u8],
        place: WeightsPlace,
        expected: u64,
    ) -> Result<Linker, LinkError> {
        let parsed = parse_runtime(runtime, soname).map_err(LinkError::Runtime)?;
        let page = parsed.machine.page();
        // With few weights, alignment would take more space than they do.
        let weights_align = if expected < FEW_WEIGHTS { page } else { SEGMENT_ALIGN };
        let code_off = (runtime.len() as u64).next_multiple_of(page);
        let code_addr = parsed.end_addr.next_multiple_of(page);
        let image = ImageRef {
            magic: IMAGE_MAGIC,
            version: ABI_VERSION,
            flags: match place {
                WeightsPlace::Embed => 0,
                WeightsPlace::External => FLAG_EXTERNAL_WEIGHTS,
                WeightsPlace::Absent => FLAG_EXTERNAL_WEIGHTS | FLAG_UNHASHED_WEIGHTS,
            },
            code_addr,
            code_len: code.len() as u64,
            ..ImageRef::default()
        };
        // The runtime looks for external weights beside the artifact: also before it has its name.
        let mut out = match place {
            WeightsPlace::Embed => Pending::create(out)?,
            _ => Pending::create_named(out)?,
        };
        out.append(runtime)?;
        out.pad_to(code_off)?;
        out.append(code)?;
        let mut external = None;
        let mut weights_at = code_off;
        if place == WeightsPlace::External {
            external = Some(Pending::create_as(&weights_path(out.path()), weights_path(out.temporary()))?);
        } else if place == WeightsPlace::Embed {
            weights_at = out.pos().next_multiple_of(weights_align);
            out.pad_to(weights_at)?;
        }
        let (file, from) = if place == WeightsPlace::Embed { (tree::ARTIFACT, weights_at) } else { (tree::SIDE, 0) };
        let mut runtime = parsed;
        runtime.headers.push(load(PF_R | PF_X, code_off, code_addr, code.len() as u64, page));
        Ok(Linker {
            out,
            external,
            absent: 0,
            runtime,
            image,
            code: Hashed::of(part::CODE, code_off, code),
            weights_at,
            weights_align,
            weights: Stream::new(file, from),
            body: None,
        })
    }

    /// The sink for the packed weights, to be written from start to end before [`Linker::seal`].
    /// Each tensor gets a hash of its own: `tensors` are the offsets, ascending, at which they
    /// begin.
    pub fn weights(&mut self, tensors: Vec<u64>) -> impl Write {
        self.weights.cut_at(tensors);
        WeightsSink { out: self.external.as_mut().unwrap_or(&mut self.out), hashes: &mut self.weights }
    }

    /// Says how many bytes of weights there will be, in place of writing them
    /// ([`WeightsPlace::Absent`]).
    pub fn leave_out(&mut self, bytes: u64) {
        self.absent = bytes;
    }

    /// The error of weights whose write failed with `source`: it names their file.
    pub fn weights_failed(&self, source: io::Error) -> LinkError {
        self.external.as_ref().unwrap_or(&self.out).fail(source)
    }

    /// Seals the weights. Returns the identity of the computation: the hashes of code and weights
    /// (zeros for weights that someone else makes).
    ///
    /// # Errors
    /// [`LinkError::Io`].
    pub fn end_weights(&mut self) -> Result<(Hash, Hash), LinkError> {
        if self.body.is_none() {
            let mut parts = std::mem::replace(&mut self.weights, Stream::new(tree::SIDE, 0)).finish();
            let end = self.out.pos();
            self.image.weights_len = match &mut self.external {
                Some(side) => {
                    let len = side.pos();
                    let label = label(&parts);
                    parts.push(Hashed::label(len, &label));
                    side.append(&label)?;
                    side.settle()?;
                    len
                }
                None if self.image.flags & FLAG_EXTERNAL_WEIGHTS != 0 => self.absent,
                None => end - self.weights_at,
            };
            self.body = Some(Body { end, parts });
        }
        let parts = self.body.as_ref().map_or(&[][..], |b| &b.parts);
        let absent = self.image.flags & FLAG_UNHASHED_WEIGHTS != 0;
        Ok((self.code.desc.hash, if absent { Hash::default() } else { tree::weights(&descriptors(parts)) }))
    }

    /// Writes tables, headers and hashes: the artifact is complete, but for its name
    /// ([`Linker::temporary`]). May be called again with other data, which replaces the former.
    /// Returns its size in bytes and the root of its hashes.
    ///
    /// # Errors
    /// [`LinkError::Io`].
    pub fn seal(&mut self, data: &Data) -> Result<(u64, Hash), LinkError> {
        self.end_weights()?;
        let body = self.body.take().unwrap_or(Body { end: self.out.pos(), parts: vec![] });
        let sealed = self.seal_behind(&body, data);
        self.body = Some(body);
        sealed
    }

    fn seal_behind(&mut self, body: &Body, data: &Data) -> Result<(u64, Hash), LinkError> {
        self.out.rewind(body.end)?;
        let mut headers = self.runtime.headers.clone();
        let code_end = self.image.code_addr + self.image.code_len;
        let mut next_addr = code_end.next_multiple_of(self.weights_align);
        if self.image.flags & FLAG_EXTERNAL_WEIGHTS == 0 {
            let len = self.image.weights_len;
            self.image.weights_addr = next_addr;
            if len > 0 {
                headers.push(load(PF_R, self.weights_at, next_addr, len, self.weights_align));
            }
            next_addr += len;
        }
        // The last segment starts with the program headers, so that the loader finds them mapped.
        let page = self.runtime.machine.page();
        let tables_off = body.end.next_multiple_of(page);
        let tables_addr = next_addr.next_multiple_of(page);
        let count = headers.len() + 1;
        let header_bytes = ((count * size_of::<ProgramHeader64<LE>>()) as u64).next_multiple_of(64);
        let hashes_at = (header_bytes + data.bytes.len() as u64).next_multiple_of(8);
        let ranges = self.ranges(body, tables_off, header_bytes, data, tables_off + hashes_at);
        let hashes_len = hashes_len(&ranges, body);
        let len = hashes_at + hashes_len;
        headers.push(load(PF_R, tables_off, tables_addr, len, page));
        for h in &mut headers {
            if h.p_type.get(LE) == PT_PHDR {
                *h = ProgramHeader64 {
                    p_type: U32::new(LE, PT_PHDR),
                    ..load(PF_R, tables_off, tables_addr, header_bytes, 8)
                };
            }
        }
        self.image.data_addr = tables_addr + header_bytes;
        self.image.data_len = data.bytes.len() as u64;
        self.image.file_len = tables_off + len;
        self.image.hashes_addr = tables_addr + hashes_at;
        self.image.hashes_len = hashes_len;
        self.image.parts = (ranges.len() + body.on_side().count()) as u64;
        self.image.root = Hash::default();

        let mut head = self.runtime.bytes.clone();
        for (at, bytes) in self.runtime.patches(tables_off, count, &self.image) {
            head[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        let mut tail = pod::bytes_of_slice(&headers).to_vec();
        tail.resize(header_bytes as usize, 0);
        tail.extend_from_slice(&data.bytes);
        tail.resize(hashes_at as usize, 0);
        let parts = self.hash(&ranges, body, &head, (tables_off, &tail));
        self.image.root = tree::root(&descriptors(&parts));
        self.out.pad_to(tables_off)?;
        self.out.append(&tail)?;
        self.out.append(&hashes::table(&parts))?;
        for (at, bytes) in self.runtime.patches(tables_off, count, &self.image) {
            self.out.patch(at, &bytes)?;
        }
        self.out.settle()?;
        Ok((self.image.file_len, self.image.root))
    }

    /// All parts of the artifact up to the table of hashes, which starts at `end`.
    fn ranges(&self, body: &Body, tables_off: u64, header_bytes: u64, data: &Data, end: u64) -> Vec<Range> {
        let of = |p: &Hashed| (p.desc.kind, p.desc.off, p.desc.len);
        let mut ranges = self.runtime.ranges();
        ranges.push(of(&self.code));
        ranges.extend(body.parts.iter().filter(|p| p.desc.file == tree::ARTIFACT).map(of));
        ranges.push((part::HEADERS, tables_off, header_bytes));
        // Tables lie between the texts.
        let start = tables_off + header_bytes;
        let mut at = 0;
        for (kind, span) in &data.texts {
            ranges
                .extend([(part::TABLES, start + at, span.off.saturating_sub(at)), (*kind, start + span.off, span.len)]);
            at = span.off + span.len;
        }
        ranges.push((part::TABLES, start + at, (data.bytes.len() as u64).saturating_sub(at)));
        fill_gaps(ranges, end)
    }

    /// Hashes ranges of the artifact: the runtime from `head`, the part after code and weights from
    /// `tail`. Appends the parts of a side file.
    fn hash(&self, ranges: &[Range], body: &Body, head: &[u8], (tail_at, tail): (u64, &[u8])) -> Vec<Hashed> {
        let mut weights = body.parts.iter().filter(|p| p.desc.file == tree::ARTIFACT);
        let of = |(kind, off, len): &Range| match *kind {
            part::CODE => Some(self.code.clone()),
            part::WEIGHTS => weights.next().cloned(),
            part::PADDING => Some(Hashed::of(*kind, *off, &vec![0; *len as usize])),
            _ if *off >= tail_at => tail
                .get((off - tail_at) as usize..)
                .and_then(|b| Some(Hashed::of(*kind, *off, b.get(..*len as usize)?))),
            _ => head.get(*off as usize..(off + len) as usize).map(|b| Hashed::of(*kind, *off, b)),
        };
        ranges.iter().filter_map(of).chain(body.on_side().cloned()).collect()
    }

    /// Where this process can open the file that [`Linker::seal`] completes and [`Linker::finish`] gives
    /// its name: perhaps `/proc/self/fd/N`.
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

/// The label at the end of a side file: it identifies the weights before it.
fn label(parts: &[Hashed]) -> Vec<u8> {
    [&tree::LABEL_MAGIC[..], &tree::weights(&descriptors(parts))].concat()
}

/// Bytes of the table of hashes for these parts and the side file's.
fn hashes_len(ranges: &[Range], body: &Body) -> u64 {
    let all = ranges.iter().map(|(_, _, len)| *len).chain(body.on_side().map(|p| p.desc.len));
    all.map(|len| size_of::<tree::PartDesc>() as u64 + len.div_ceil(tree::BLOCK as u64) * size_of::<Hash>() as u64)
        .sum()
}

impl Runtime {
    /// Its parts: the ELF header, [`ImageRef`], and the rest, cut where it is mapped differently.
    fn ranges(&self) -> Vec<Range> {
        let image_end = self.image_at + size_of::<ImageRef>() as u64;
        let segments =
            self.headers.iter().filter(|h| h.p_type(LE) == PT_LOAD).map(|h| (h.p_offset(LE), h.p_filesz(LE)));
        let mut cuts: Vec<u64> = segments.flat_map(|(off, len)| [off, off + len]).collect();
        let (header, end) = (size_of::<FileHeader64<LE>>() as u64, self.bytes.len() as u64);
        cuts.extend([0, header, self.image_at, image_end, end]);
        cuts.sort_unstable();
        cuts.dedup();
        // The code's program header may be among them already, behind the runtime's end.
        cuts.retain(|c| *c <= end);
        let kind = |from: u64| match from {
            0 => part::HEADERS,
            _ if from == self.image_at => part::IMAGE,
            _ => part::RUNTIME,
        };
        cuts.windows(2).map(|w| (kind(w[0]), w[0], w[1] - w[0])).collect()
    }

    /// Differences of an artifact's copy of the runtime: the place of the program headers, the
    /// descriptor, and the name.
    fn patches(&self, headers_at: u64, headers: usize, image: &ImageRef) -> Vec<Patch> {
        let own = [
            (std::mem::offset_of!(FileHeader64<LE>, e_phoff) as u64, headers_at.to_le_bytes().to_vec()),
            (std::mem::offset_of!(FileHeader64<LE>, e_phnum) as u64, (headers as u16).to_le_bytes().to_vec()),
            (self.image_at, bytes_of(std::slice::from_ref(image)).to_vec()),
        ];
        own.into_iter().chain(self.name.iter().cloned()).collect()
    }
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

fn parse_runtime(bytes: &[u8], soname: Option<&str>) -> Result<Runtime, String> {
    let header = FileHeader64::<LE>::parse(bytes).map_err(|e| e.to_string())?;
    let headers = header.program_headers(LE, bytes).map_err(|e| e.to_string())?.to_vec();
    if header.e_phentsize != U16::new(LE, size_of::<ProgramHeader64<LE>>() as u16) {
        return Err("unexpected program header size".into());
    }
    let elf = header.e_machine(LE).0;
    let machine = Machine::of_elf(elf).ok_or_else(|| format!("unexpected machine {elf}"))?;
    let end_addr = headers
        .iter()
        .filter(|h| h.p_type(LE) == PT_LOAD)
        .map(|h| h.p_vaddr(LE) + h.p_memsz(LE))
        .max()
        .ok_or("no loadable segment")?;
    let mut found =
        bytes.windows(IMAGE_MAGIC.len()).enumerate().filter(|(_, w)| *w == IMAGE_MAGIC).map(|(i, _)| i as u64);
    // The magic also occurs where the runtime compares it: the descriptor is the one place followed
    // by zeros.
    let zeros = size_of::<ImageRef>() - IMAGE_MAGIC.len();
    let image_at = found
        .find(|i| {
            let at = *i as usize + IMAGE_MAGIC.len();
            bytes.get(at..at + zeros).is_some_and(|z| z.iter().all(|b| *b == 0))
        })
        .ok_or("no image descriptor")?;
    let name = soname::patches(bytes, &headers, soname)?;
    Ok(Runtime { machine, bytes: bytes.to_vec(), headers, image_at, end_addr, name })
}
