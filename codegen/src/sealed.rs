//! The hashes of an artifact ([`llmcc_abi::tree`]), read from its file without loading it, and
//! checks of its bytes against them.
//!
//! A root says that nothing changed since it was computed. It does not say who computed it: whoever
//! can write the file can renew all hashes (as [`renew`] does), which only a root noted elsewhere
//! shows.

use crate::descriptor::{LocateError, find_image, open_regular, read_image};
use llmcc_abi::tree::{self, BLOCK, Hash, LABEL_LEN, PartDesc, part, part_hash};
use llmcc_abi::{ABI_VERSION, FLAG_EXTERNAL_WEIGHTS, FLAG_UNHASHED_WEIGHTS, ImageRef};
use llmcc_ir::threads::try_beside;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The largest data segment that is read.
const MOST_DATA: usize = 1 << 30;

/// An artifact's own account of its bytes, consistent in itself: the root follows from the parts,
/// and their hashes from the leaves.
pub struct Sealed {
    path: PathBuf,
    file: File,
    /// Where its segments are.
    pub image: ImageRef,
    /// Parts of the artifact, then of the side file.
    pub parts: Vec<PartDesc>,
    leaves: Vec<Hash>,
}

/// Bytes that are not those the compiler wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The part they are in.
    pub part: PartDesc,
    /// First byte in the file of the first block that differs.
    pub from: u64,
    /// End of the last block.
    pub to: u64,
}

impl Sealed {
    /// Reads the table of hashes of the artifact at `path` and compares root, parts and leaves with
    /// each other; nothing else is read.
    ///
    /// # Errors
    /// Not readable, not an artifact, of another version, longer or shorter than it should be, or
    /// these bytes are damaged.
    pub fn open(path: &Path) -> Result<Sealed, LocateError> {
        let io = |source| LocateError::Io { path: path.to_owned(), source };
        let not = |what: String| LocateError::NotAnArtifact { path: path.to_owned(), what };
        let file = open_regular(path)?;
        let len = file.metadata().map_err(io)?.len();
        let image = find_image(&file, path)?;
        if len != image.file_len {
            let how = if len < image.file_len { "cut short, or stripped" } else { "something was appended" };
            return Err(not(format!(
                "it has {len} bytes instead of {}: {how}; copy or compile it again",
                image.file_len
            )));
        }
        let damaged = |what: &str| {
            not(format!("its image descriptor or table of hashes is damaged ({what}); copy or compile it again"))
        };
        // Not more memory than the parts of files of these sizes can have leaves for.
        let each = image.parts.saturating_mul((size_of::<PartDesc>() + size_of::<Hash>()) as u64);
        let blocks = len.saturating_add(image.side_len()) / BLOCK as u64;
        let most = each.saturating_add(blocks.saturating_mul(size_of::<Hash>() as u64));
        let at = len
            .checked_sub(image.hashes_len)
            .filter(|_| image.hashes_len <= most)
            .ok_or_else(|| damaged("too long"))?;
        let mut table = vec![0; image.hashes_len as usize];
        file.read_exact_at(&mut table, at).map_err(io)?;
        let (parts, leaves) = parse(&image, at, &table).ok_or_else(|| damaged("parts do not cover the file"))?;
        if tree::root(&parts) != image.root {
            return Err(damaged("another root"));
        }
        let mut rest = &leaves[..];
        for p in &parts {
            let (own, next) = rest.split_at(p.leaves() as usize);
            rest = next;
            if part_hash(p.kind, p.len, own.iter().copied()) != p.hash {
                return Err(damaged(&format!("the hashes of the {}", part::name(p.kind))));
            }
        }
        Ok(Sealed { path: path.to_owned(), file, image, parts, leaves })
    }

    /// The root.
    pub fn root(&self) -> Hash {
        self.image.root
    }

    /// The file in which the weights are.
    pub fn weights_path(&self) -> PathBuf {
        if self.image.flags & FLAG_EXTERNAL_WEIGHTS != 0 {
            crate::link::weights_path(&self.path)
        } else {
            self.path.clone()
        }
    }

    /// Whether the root says nothing about the weights, because someone else made them.
    pub fn weights_unhashed(&self) -> bool {
        self.image.flags & FLAG_UNHASHED_WEIGHTS != 0
    }

    /// Checks that a side file is there, as long as it must be, and labelled as this artifact's;
    /// reads its last bytes only.
    ///
    /// # Errors
    /// The fault, naming both files.
    pub fn check_side_file(&self) -> Result<(), LocateError> {
        if self.image.flags & FLAG_EXTERNAL_WEIGHTS == 0 {
            return Ok(());
        }
        let side = self.weights_path();
        let io = |source| LocateError::Io { path: side.clone(), source };
        let not = |what: String| Err(LocateError::NotAnArtifact { path: side.clone(), what });
        let file = open_regular(&side)?;
        let found = file.metadata().map_err(io)?.len();
        let expected = if self.weights_unhashed() { self.image.weights_len } else { self.image.side_len() };
        if found != expected {
            return not(format!(
                "it has {found} bytes but {} was made with {expected}: it belongs to another artifact or is damaged; keep the two files together",
                self.path.display()
            ));
        }
        if self.weights_unhashed() {
            return Ok(());
        }
        let mut label = [0; LABEL_LEN];
        file.read_exact_at(&mut label, self.image.weights_len).map_err(io)?;
        if label != label_of(&self.parts)[..] {
            return not(format!("these are not the weights of {}; keep the two files together", self.path.display()));
        }
        Ok(())
    }

    /// Hashes the parts for which `wanted` and returns the blocks that have changed, in order.
    /// Reads them with `threads` threads, a megabyte of memory each.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn check(&self, wanted: impl Fn(&PartDesc) -> bool, threads: usize) -> Result<Vec<Damage>, LocateError> {
        let side = match self.parts.iter().any(|p| p.file == tree::SIDE && wanted(p)) {
            true => Some(open_regular(&self.weights_path())?),
            false => None,
        };
        let mut blocks = vec![];
        let mut first = 0;
        for p in &self.parts {
            if wanted(p) {
                blocks.extend((0..p.leaves()).map(|i| (*p, i * BLOCK as u64, first + i as usize)));
            }
            first += p.leaves() as usize;
        }
        let (next, bad) = (AtomicUsize::new(0), Mutex::new(vec![]));
        let work = &|| -> io::Result<()> {
            let mut buffer = vec![0; BLOCK];
            while let Some((p, at, leaf)) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) {
                let bytes = &mut buffer[..(p.len - at).min(BLOCK as u64) as usize];
                side.as_ref()
                    .filter(|_| p.file == tree::SIDE)
                    .unwrap_or(&self.file)
                    .read_exact_at(bytes, p.off + at)?;
                if p.kind == part::IMAGE {
                    clear_root(bytes);
                }
                if Some(&tree::leaf(bytes)) != self.leaves.get(*leaf) {
                    let from = p.off + at;
                    bad.lock().unwrap_or_else(|e| e.into_inner()).push(Damage {
                        part: *p,
                        from,
                        to: from + bytes.len() as u64,
                    });
                }
            }
            Ok(())
        };
        let read: io::Result<Vec<()>> = std::thread::scope(|s| {
            // As many as there are.
            let others: Vec<_> =
                (1..threads.clamp(1, blocks.len().max(1))).map_while(|_| try_beside(s, work).ok()).collect();
            let mine = work();
            let joined = others.into_iter().map(|t| t.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
            joined.chain([mine]).collect()
        });
        read.map_err(|source| LocateError::Io { path: self.path.clone(), source })?;
        Ok(join(bad.into_inner().unwrap_or_else(|e| e.into_inner())))
    }

    /// Checks all that the loader and the runtime's own start read, which must be sound before the
    /// file is loaded: headers, runtime, descriptor.
    ///
    /// # Errors
    /// Not readable, or damaged: which part, where.
    pub fn check_loadable(&self) -> Result<(), LocateError> {
        let bad = self.check(|p| matches!(p.kind, part::HEADERS | part::RUNTIME | part::IMAGE), 1)?;
        bad.first().map_or(Ok(()), |d| Err(self.damaged(d)))
    }

    /// The bytes of the first part of a kind; none if there is no such part.
    ///
    /// # Errors
    /// Not readable, or damaged.
    pub fn bytes(&self, kind: u32) -> Result<Vec<u8>, LocateError> {
        let Some(p) = self.parts.iter().find(|p| p.kind == kind) else { return Ok(vec![]) };
        if let Some(d) = self.check(|q| q == p, 1)?.first() {
            return Err(self.damaged(d));
        }
        let mut bytes = vec![0; p.len as usize];
        self.file
            .read_exact_at(&mut bytes, p.off)
            .map_err(|source| LocateError::Io { path: self.path.clone(), source })?;
        Ok(bytes)
    }

    /// The data segment: tables, and the texts between them.
    ///
    /// # Errors
    /// Not readable, or its tables are damaged.
    pub fn data(&self) -> Result<Vec<u8>, LocateError> {
        if let Some(d) = self.check(|p| p.kind == part::TABLES, 1)?.first() {
            return Err(self.damaged(d));
        }
        let at = self.parts.iter().find(|p| p.kind == part::TABLES).map_or(0, |p| p.off);
        let mut bytes = vec![0; usize::try_from(self.image.data_len).unwrap_or(usize::MAX).min(MOST_DATA)];
        self.file
            .read_exact_at(&mut bytes, at)
            .map_err(|source| LocateError::Io { path: self.path.clone(), source })?;
        Ok(bytes)
    }

    fn damaged(&self, d: &Damage) -> LocateError {
        let what = format!(
            "{}: changed in bytes {} to {} since it was compiled; copy or compile it again",
            part::name(d.part.kind),
            d.from,
            d.to
        );
        LocateError::NotAnArtifact { path: self.path.clone(), what }
    }
}

/// Joins blocks of a part that follow each other.
fn join(mut bad: Vec<Damage>) -> Vec<Damage> {
    bad.sort_by_key(|d| (d.part.file, d.from));
    let mut all: Vec<Damage> = vec![];
    for d in bad {
        match all.last_mut() {
            Some(last) if last.part == d.part && last.to == d.from => last.to = d.to,
            _ => all.push(d),
        }
    }
    all
}

/// Descriptors and leaves of a table of hashes that begins at `at` in the artifact. `None` unless
/// they cover both files.
fn parse(image: &ImageRef, at: u64, table: &[u8]) -> Option<(Vec<PartDesc>, Vec<Hash>)> {
    let descriptors = usize::try_from(image.parts).ok()?.checked_mul(size_of::<PartDesc>())?;
    let (descriptors, leaves) = table.split_at_checked(descriptors)?;
    let parts: Vec<PartDesc> = descriptors.as_chunks().0.iter().map(PartDesc::from_bytes).collect();
    let whole = tree::covers(&parts, at, image.side_len()) && tree::table_len(&parts) == Some(table.len() as u64);
    // One descriptor, and it is in the artifact: its root is left out when it is hashed.
    let mut images = parts.iter().filter(|p| p.kind == part::IMAGE);
    let one = images.next().is_some_and(|p| p.file == tree::ARTIFACT && p.len == size_of::<ImageRef>() as u64)
        && images.next().is_none();
    (whole && one).then(|| (parts, leaves.as_chunks().0.to_vec()))
}

fn label_of(parts: &[PartDesc]) -> Vec<u8> {
    [&tree::LABEL_MAGIC[..], &tree::weights(parts)].concat()
}

fn clear_root(image: &mut [u8]) {
    let at = offset_of!(ImageRef, root);
    if let Some(root) = image.get_mut(at..at + size_of::<Hash>()) {
        root.fill(0);
    }
}

/// Renews all hashes of an artifact, in memory, whose bytes were changed: for tests of the checks
/// behind the hashes. Returns the root; `None` if the parts do not cover the file. `side` is the
/// side file, empty if there is none.
#[doc(hidden)]
pub fn renew(file: &mut [u8], side: &mut [u8]) -> Option<Hash> {
    let (image_at, image) = read_image(file)?;
    let at = usize::try_from((file.len() as u64).checked_sub(image.hashes_len)?).ok()?;
    let (mut parts, mut leaves) = parse(&image, at as u64, &file[at..])?;
    let described = parts.iter().any(|p| p.kind == part::IMAGE && p.off == image_at as u64);
    if !described
        || image.version != ABI_VERSION
        || image.side_len() != side.len() as u64
        || image.file_len != file.len() as u64
    {
        return None;
    }
    file[image_at + offset_of!(ImageRef, root)..][..size_of::<Hash>()].fill(0);
    let mut rest = &mut leaves[..];
    for i in 0..parts.len() {
        if parts[i].kind == part::LABEL {
            let label = label_of(&parts);
            side.get_mut(parts[i].off as usize..)?.get_mut(..label.len())?.copy_from_slice(&label);
        }
        let p = parts[i];
        let bytes = if p.file == tree::SIDE { &*side } else { &*file }.get(p.off as usize..(p.off + p.len) as usize)?;
        let (own, next) = std::mem::take(&mut rest).split_at_mut(p.leaves() as usize);
        rest = next;
        own.iter_mut().zip(bytes.chunks(BLOCK)).for_each(|(leaf, block)| *leaf = tree::leaf(block));
        parts[i].hash = part_hash(p.kind, p.len, own.iter().copied());
    }
    let table: Vec<u8> = parts.iter().flat_map(PartDesc::bytes).chain(leaves.into_iter().flatten()).collect();
    file[at..].copy_from_slice(&table);
    let root = tree::root(&parts);
    file[image_at + offset_of!(ImageRef, root)..][..root.len()].copy_from_slice(&root);
    Some(root)
}
