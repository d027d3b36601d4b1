//! A real artifact, put together here without the compiler: the built runtime, kernels from C, the
//! tables of the hand-made model. Loads it with `dlopen`, as its users do, and refuses it when it
//! is damaged.

mod common;

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::{size_of, transmute_copy, zeroed};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::{null, null_mut};

use common::*;
use llmcc_abi::tree::{self, PartDesc, part};
use llmcc_abi::{ABI_VERSION, FLAG_EXTERNAL_WEIGHTS, IMAGE_MAGIC, ImageRef};
use llmcc_rt::Status;
use llmcc_rt::capi::types::*;

const PAGE: usize = 4096;

/// The runtime library that cargo built for this test.
fn runtime() -> Vec<u8> {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    std::fs::read(deps.join("libllmcc_rt.so")).unwrap()
}

/// Code of the kernels, and their offsets in the order of the kernel table; `None` without a C
/// compiler.
fn kernels(dir: &Path) -> Option<(Vec<u8>, Vec<u64>)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/kernels.c");
    let (object, binary) = (dir.join("k.o"), dir.join("k.bin"));
    let flags = [
        "-O1",
        "-fPIC",
        "-ffreestanding",
        "-fno-asynchronous-unwind-tables",
        "-fcf-protection=none",
        "-fno-tree-vectorize",
        "-c",
        "-o",
    ];
    let run = |program: &str, args: &[&std::ffi::OsStr]| {
        let done = Command::new(program).args(args).output().ok()?;
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Some(String::from_utf8(done.stdout).unwrap())
    };
    let compile: Vec<_> = flags.iter().map(|f| f.as_ref()).chain([object.as_os_str(), source.as_os_str()]).collect();
    run("cc", &compile)?;
    run(
        "objcopy",
        &["-O".as_ref(), "binary".as_ref(), "-j".as_ref(), ".text".as_ref(), object.as_os_str(), binary.as_os_str()],
    )?;
    let symbols = run("nm", &[object.as_os_str()])?;
    let offset = |name: &str| {
        let line = symbols.lines().find(|l| l.ends_with(&format!(" T {name}"))).unwrap();
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    };
    let names = ["embed", "append", "attend", "head_few", "head_many"];
    Some((std::fs::read(binary).unwrap(), names.map(offset).to_vec()))
}

/// The parts of an artifact before they are linked.
struct Parts {
    runtime: Vec<u8>,
    code: Vec<u8>,
    data: Vec<u8>,
    weights: Vec<u8>,
}

impl Parts {
    fn new(dir: &Path) -> Option<Parts> {
        let (code, offsets) = kernels(dir)?;
        let data = toy_data_at("{\"name\":\"linked\"}", "", "", &offsets);
        let weights = WEIGHTS.iter().flat_map(|w| w.to_le_bytes()).collect();
        Some(Parts { runtime: runtime(), code, data, weights })
    }

    /// Appends the segments, maps them by a new program header table, patches the reference to
    /// them.
    fn link(&self, external: bool, change: impl Fn(&mut ImageRef)) -> Vec<u8> {
        let mut file = self.runtime.clone();
        let word = |file: &[u8], at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
        let (table, count) = (word(&file, 32) as usize, u16::from_le_bytes(file[56..58].try_into().unwrap()) as usize);
        let mut headers = file[table..table + 56 * count].to_vec();
        let loads = (0..count).filter(|i| headers[56 * i] == 1 && headers[56 * i + 1..56 * i + 4] == [0; 3]);
        let end = loads.map(|i| word(&headers, 56 * i + 16) + word(&headers, 56 * i + 40)).max().unwrap() as usize;
        // File offsets and addresses differ by a whole number of pages.
        let shift = end.saturating_sub(file.len()).next_multiple_of(PAGE) + PAGE;
        let mut append = |bytes: &[u8], flags: u32| {
            file.resize(file.len().next_multiple_of(PAGE), 0);
            let offset = file.len();
            file.extend_from_slice(bytes);
            let (offset, address, len) = (offset as u64, (offset + shift) as u64, bytes.len() as u64);
            headers.extend([1, flags].iter().flat_map(|x| x.to_le_bytes()));
            headers.extend([offset, address, address, len, len, PAGE as u64].iter().flat_map(|x| x.to_le_bytes()));
            (address, len)
        };
        let (code_addr, code_len) = append(&self.code, 5);
        let code_at = (code_addr - shift as u64) as usize;
        let (weights_addr, weights_len) =
            if external { (0, self.weights.len() as u64) } else { append(&self.weights, 4) };
        // The table goes in front of the data, within its segment; behind it the table of hashes.
        let room = 56 * (count + 3);
        let hashes = (room + self.data.len()).next_multiple_of(8);
        let tail =
            (if external { code_at + self.code.len() } else { weights_addr as usize - shift + self.weights.len() })
                .next_multiple_of(PAGE);
        let places: Vec<usize> =
            self.runtime.windows(16).enumerate().filter(|(_, w)| **w == IMAGE_MAGIC).map(|(i, _)| i).collect();
        assert_eq!(places.len(), 1, "the magic must occur exactly once in the runtime");
        let (image_at, image_end) = (places[0], places[0] + size_of::<ImageRef>());
        let mut ranges =
            vec![(part::HEADERS, 0, 64), (part::RUNTIME, 64, image_at), (part::IMAGE, image_at, image_end)];
        ranges.extend([(part::RUNTIME, image_end, code_at), (part::CODE, code_at, code_at + self.code.len())]);
        if !external {
            let at = weights_addr as usize - shift;
            ranges
                .extend([(part::PADDING, code_at + self.code.len(), at), (part::WEIGHTS, at, at + self.weights.len())]);
        }
        ranges.extend([(part::PADDING, ranges.last().unwrap().2, tail), (part::HEADERS, tail, tail + room)]);
        ranges.extend([
            (part::TABLES, tail + room, tail + room + self.data.len()),
            (part::PADDING, tail + room + self.data.len(), tail + hashes),
        ]);
        let mut parts: Vec<PartDesc> =
            ranges.into_iter().flat_map(|(kind, from, to)| one_leaf_each(kind, from, to)).collect();
        let of_side = if external { 2 } else { 0 };
        let hashes_len = (parts.len() + of_side) * (size_of::<PartDesc>() + 32);
        let mut bytes = vec![0; hashes + hashes_len];
        bytes[room..room + self.data.len()].copy_from_slice(&self.data);
        let (tail_addr, _) = append(&bytes, 4);
        for i in 0..headers.len() / 56 {
            if headers[56 * i] == 6 {
                for (field, value) in
                    [(8, tail as u64), (16, tail_addr), (24, tail_addr), (32, room as u64), (40, room as u64)]
                {
                    headers[56 * i + field..][..8].copy_from_slice(&value.to_le_bytes());
                }
            }
        }
        let entries = headers.len() / 56;
        file[tail..tail + headers.len()].copy_from_slice(&headers);
        file[32..40].copy_from_slice(&(tail as u64).to_le_bytes());
        file[56..58].copy_from_slice(&(entries as u16).to_le_bytes());
        let mut image = ImageRef {
            magic: IMAGE_MAGIC,
            version: ABI_VERSION,
            flags: if external { FLAG_EXTERNAL_WEIGHTS } else { 0 },
            code_addr,
            code_len,
            data_addr: tail_addr + room as u64,
            data_len: self.data.len() as u64,
            weights_addr,
            weights_len,
            file_len: file.len() as u64,
            hashes_addr: tail_addr + hashes as u64,
            hashes_len: hashes_len as u64,
            parts: (parts.len() + of_side) as u64,
            root: [0; 32],
        };
        change(&mut image);
        put(&mut file, image_at, &image);
        let mut leaves: Vec<tree::Hash> =
            parts.iter().map(|p| tree::leaf(&file[p.off as usize..(p.off + p.len) as usize])).collect();
        if external {
            parts.push(PartDesc {
                kind: part::WEIGHTS,
                file: tree::SIDE,
                off: 0,
                len: weights_len,
                ..PartDesc::default()
            });
            leaves.push(tree::leaf(&self.weights));
        }
        let set = |p: &mut PartDesc, leaf: &tree::Hash| p.hash = tree::part_hash(p.kind, p.len, [*leaf]);
        parts.iter_mut().zip(&leaves).for_each(|(p, leaf)| set(p, leaf));
        if external {
            let label = label(&tree::weights(&parts));
            let mut p = PartDesc {
                kind: part::LABEL,
                file: tree::SIDE,
                off: weights_len,
                len: label.len() as u64,
                ..PartDesc::default()
            };
            leaves.push(tree::leaf(&label));
            set(&mut p, &leaves[leaves.len() - 1]);
            parts.push(p);
        }
        let table: Vec<u8> = parts.iter().flat_map(PartDesc::bytes).chain(leaves.into_iter().flatten()).collect();
        file[tail + hashes..].copy_from_slice(&table);
        image.root = tree::root(&parts);
        put(&mut file, image_at, &image);
        file
    }

    /// The side file.
    fn side(&self) -> Vec<u8> {
        let len = self.weights.len() as u64;
        let hash = tree::part_of(part::WEIGHTS, &self.weights);
        let weights = tree::weights(&[PartDesc { kind: part::WEIGHTS, file: tree::SIDE, off: 0, len, hash }]);
        [&self.weights[..], &label(&weights)].concat()
    }
}

fn label(weights: &tree::Hash) -> Vec<u8> {
    [&tree::LABEL_MAGIC[..], weights].concat()
}

/// Parts of one leaf for a range of the artifact.
fn one_leaf_each(kind: u32, from: usize, to: usize) -> impl Iterator<Item = PartDesc> {
    let part = move |at: usize| PartDesc {
        kind,
        off: at as u64,
        len: (to - at).min(tree::BLOCK) as u64,
        ..PartDesc::default()
    };
    (from..to).step_by(tree::BLOCK).map(part)
}

fn put(file: &mut [u8], at: usize, image: &ImageRef) {
    // SAFETY: integers and bytes without padding.
    let bytes = unsafe { std::slice::from_raw_parts((&raw const *image).cast::<u8>(), size_of::<ImageRef>()) };
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A library opened with `dlopen`.
struct Library(*mut c_void);

impl Library {
    fn open(path: &Path) -> Library {
        let name = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: the library has only the initialisers of Rust's std.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        // SAFETY: dlerror is set after a failure.
        assert!(!handle.is_null(), "{}", unsafe { CStr::from_ptr(libc::dlerror()).to_string_lossy() });
        Library(handle)
    }

    /// Function `name` of type `F`.
    fn get<F: Copy>(&self, name: &CStr) -> F {
        // SAFETY: every exported function has the type the tests ask for, by `llmcc.h`.
        unsafe {
            let address = libc::dlsym(self.0, name.as_ptr());
            assert!(!address.is_null());
            transmute_copy(&address)
        }
    }

    /// Opens the model; on failure its status and message.
    fn model(&self) -> Result<*mut c_void, (i32, String)> {
        let open: unsafe extern "C" fn(*const llmcc_options, *mut *mut c_void) -> i32 = self.get(c"llmcc_open");
        let message: unsafe extern "C" fn() -> *const c_char = self.get(c"llmcc_last_error");
        let mut model = null_mut();
        // SAFETY: valid arguments.
        unsafe {
            match open(null(), &mut model) {
                0 => Ok(model),
                status => Err((status, CStr::from_ptr(message()).to_str().unwrap().to_owned())),
            }
        }
    }

    fn close(self, model: *mut c_void) {
        let close: unsafe extern "C" fn(*mut c_void) = self.get(c"llmcc_close");
        // SAFETY: used by nobody any more; no thread of the library is left.
        unsafe { close(model) };
        // SAFETY: the same.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }

    /// Logits after `tokens`.
    fn logits(&self, model: *mut c_void, tokens: &[i32]) -> Vec<f32> {
        let new: unsafe extern "C" fn(*mut c_void, *mut i32) -> i32 = self.get(c"llmcc_seq_new");
        let step: unsafe extern "C" fn(*mut c_void, *const llmcc_batch, *mut f32, usize) -> i32 =
            self.get(c"llmcc_step");
        let (mut seq, mut logits) = (-1, vec![0f32; VOCAB]);
        // SAFETY: valid arguments.
        unsafe {
            assert_eq!(new(model, &mut seq), 0);
            let (seqs, last) = (vec![seq; tokens.len()], tokens.len() as u32 - 1);
            let batch = llmcc_batch {
                size: size_of::<llmcc_batch>(),
                n_tokens: tokens.len(),
                tokens: tokens.as_ptr(),
                seqs: seqs.as_ptr(),
                n_out: 1,
                out_rows: &last,
                hidden: null(),
                hidden_out: null_mut(),
                positions: null(),
            };
            assert_eq!(step(model, &batch, logits.as_mut_ptr(), VOCAB), 0);
        }
        logits
    }
}

/// A directory for one test, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("llmcc-artifact-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // Best effort.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn parts(dir: &Dir) -> Option<Parts> {
    let parts = Parts::new(&dir.0);
    if parts.is_none() {
        eprintln!("skipped: needs cc, objcopy and nm");
    }
    parts
}

#[test]
fn two_artifacts_run_in_one_process() {
    let dir = Dir::new("two");
    let Some(parts) = parts(&dir) else { return };
    let (a, b) = (dir.write("a.so", &parts.link(false, |_| ())), dir.write("b.so", &parts.link(true, |_| ())));
    dir.write("b.so.weights", &parts.side());
    for _ in 0..3 {
        let (a, b) = (Library::open(&a), Library::open(&b));
        let (ma, mb) = (a.model().unwrap(), b.model().unwrap());
        for tokens in [&[3][..], &[1, 2, 3, 4, 5, 6], &[2; 40]] {
            let regime = if tokens.len() <= 4 { 1.0 } else { 2.0 };
            let expected = [expected(tokens), vec![regime]].concat();
            assert_eq!((a.logits(ma, tokens), b.logits(mb, tokens)), (expected.clone(), expected));
        }
        let manifest: unsafe extern "C" fn(*mut c_void) -> *const c_char = a.get(c"llmcc_manifest");
        // SAFETY: valid while the model is open.
        assert_eq!(unsafe { CStr::from_ptr(manifest(ma)) }, c"{\"name\":\"linked\"}");
        a.close(ma);
        b.close(mb);
    }
}

/// Whether the file at `path`, or one that lay there, is mapped.
fn mapped(path: &Path) -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains(path.to_str().unwrap())
}

#[test]
fn replaced_files_are_noticed_and_loaded_after_dlclose() {
    let dir = Dir::new("replaced");
    let Some(parts) = parts(&dir) else { return };
    let bytes = parts.link(false, |_| ());
    let path = dir.write("m.so", &bytes);
    let library = Library::open(&path);
    let model = library.model().unwrap();
    std::fs::rename(dir.write("new.so", &bytes), &path).unwrap();
    // The loader knows this path, so it gives the old library, which knows that the file there has
    // changed.
    let again = Library::open(&path);
    for library in [&library, &again] {
        let (status, message) = library.model().unwrap_err();
        assert!(status == Status::Artifact as i32 && message.contains("m.so was replaced"), "{message}");
    }
    assert_eq!(library.logits(model, &[1, 2])[..VOCAB - 1], expected(&[1, 2])[..], "the open model stays usable");
    // By another spelling both are there.
    let beside = Library::open(&path.parent().unwrap().join("./m.so"));
    let new = beside.model().unwrap();
    assert_eq!(beside.logits(new, &[1, 2]), library.logits(model, &[1, 2]));
    beside.close(new);
    again.close(model);
    library.close(null_mut());
    assert!(!mapped(&path));
    let library = Library::open(&path);
    let model = library.model().unwrap();
    // Deleted, and nothing in its place: the mapped file is all there is.
    std::fs::remove_file(&path).unwrap();
    let second = library.model().unwrap();
    library.logits(second, &[1]);
    let close: unsafe extern "C" fn(*mut c_void) = library.get(c"llmcc_close");
    // SAFETY: any value may be passed.
    unsafe { close(second) };
    library.close(model);
    assert!(!mapped(&path));
}

#[test]
fn files_changed_in_place_are_noticed() {
    let dir = Dir::new("changed");
    let Some(parts) = parts(&dir) else { return };
    let path = dir.write("m.so", &parts.link(false, |_| ()));
    let library = Library::open(&path);
    let model = library.model().unwrap();
    std::fs::File::open(&path).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let (status, message) = library.model().unwrap_err();
    assert!(status == Status::Artifact as i32 && message.contains("was changed after it had been loaded"), "{message}");
    library.close(model);
    let library = Library::open(&path);
    let model = library.model().unwrap();
    library.close(model);
}

#[test]
fn unusable_artifacts_say_why() {
    let dir = Dir::new("bad");
    let Some(parts) = parts(&dir) else { return };
    let good = parts.link(false, |_| ());
    let mut longer = good.clone();
    longer.push(0);
    let external = parts.link(true, |_| ());
    let mut other_side = parts.side();
    *other_side.last_mut().unwrap() ^= 1;
    type Case<'a> = (&'a str, Vec<u8>, Option<&'a [u8]>, Status, &'a str);
    let cases: [Case; 8] = [
        ("bare", parts.runtime.clone(), None, Status::Artifact, "bare llmcc runtime"),
        ("longer", longer, None, Status::Artifact, "stripped, truncated or edited"),
        ("version", parts.link(false, |i| i.version = 99), None, Status::Artifact, "format version 99"),
        ("shorter_data", parts.link(false, |i| i.data_len = 50), None, Status::Artifact, "data segment too short"),
        ("no_side_file", external.clone(), None, Status::Artifact, ".weights"),
        ("wrong_side_file", external.clone(), Some(&[0; 8]), Status::Artifact, "has 8 bytes instead of 84"),
        (
            "other_side_file",
            external.clone(),
            Some(&other_side),
            Status::Artifact,
            "holds the weights of another artifact",
        ),
        ("weights_len", parts.link(false, |i| i.weights_len = 8), None, Status::Artifact, "weights outside"),
    ];
    for (name, bytes, side, status, part) in cases {
        let path = dir.write(&format!("{name}.so"), &bytes);
        if let Some(side) = side {
            dir.write(&format!("{name}.so.weights"), side);
        }
        let (got, message) = Library::open(&path).model().unwrap_err();
        assert_eq!(got, status as i32, "{name}: {message}");
        assert!(message.contains(part), "{name}: {message}");
    }
}

/// One bit of each kind of hashed bytes when a model is opened: mapped ones, ones that the loader
/// writes to, the hashes.
#[test]
fn a_changed_bit_is_found_when_a_model_is_opened() {
    let dir = Dir::new("bits");
    let Some(parts) = parts(&dir) else { return };
    let good = parts.link(false, |_| ());
    let find = |what: &[u8]| good.windows(what.len()).rposition(|w| w == what).unwrap();
    let image = find(&IMAGE_MAGIC);
    let first = PartDesc { kind: part::HEADERS, len: 64, ..PartDesc::default() };
    let cases = [
        // The entry point; a library has none.
        ("entry", 29, "ELF headers"),
        ("runtime", parts.runtime.len() - 1, "runtime"),
        ("code", find(&parts.code) + parts.code.len() - 1, "the code"),
        ("tables", find(&parts.data) + 8 * 20, "the tables"),
        ("manifest", find(b"{\"name\":\"linked\"}") + 3, "the tables"),
        ("descriptor", image + 16 + 8 + 6 * 8 - 1, "image descriptor"),
        ("root", image + size_of::<ImageRef>() - 1, "table of hashes"),
        ("hashes", find(&first.bytes()[..24]) + 30, "table of hashes"),
    ];
    for (name, at, says) in cases {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let (status, message) = Library::open(&dir.write(&format!("{name}.so"), &bad)).model().unwrap_err();
        assert_eq!(status, Status::Artifact as i32, "{name}: {message}");
        assert!(message.contains("damaged") && message.contains(says), "{name}: {message}");
    }
}

#[test]
fn stripped_artifacts_are_refused_or_do_not_load() {
    let dir = Dir::new("strip");
    let Some(parts) = parts(&dir) else { return };
    let path = dir.write("s.so", &parts.link(false, |_| ()));
    let Ok(done) = Command::new("strip").arg(&path).output() else {
        eprintln!("skipped: no strip");
        return;
    };
    let name = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the library has only the initialisers of Rust's std.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !done.status.success() || handle.is_null() {
        return;
    }
    let (status, message) = Library(handle).model().unwrap_err();
    assert_eq!(status, Status::Artifact as i32);
    assert!(message.contains("stripped"), "{message}");
}

#[test]
fn relative_paths_survive_a_change_of_directory() {
    let dir = Dir::new("cwd");
    let Some(parts) = parts(&dir) else { return };
    let path = dir.write("r.so", &parts.link(true, |_| ()));
    dir.write("r.so.weights", &parts.side());
    // In a child, because the working directory belongs to the whole process.
    let me = std::env::current_exe().unwrap();
    let done = Command::new(me)
        .args(["--exact", "child_with_relative_path", "--ignored", "--nocapture"])
        .env("ARTIFACT", &path)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
#[ignore = "run by relative_paths_survive_a_change_of_directory"]
fn child_with_relative_path() {
    let path = PathBuf::from(std::env::var_os("ARTIFACT").unwrap());
    std::env::set_current_dir(path.parent().unwrap()).unwrap();
    let library = Library::open(Path::new("./r.so"));
    std::env::set_current_dir("/").unwrap();
    let model = library.model().unwrap();
    assert_eq!(library.logits(model, &[1, 2])[..VOCAB - 1], expected(&[1, 2])[..]);
    library.close(model);
}

#[test]
fn a_forked_child_is_told_to_open_its_own() {
    let dir = Dir::new("fork");
    let Some(parts) = parts(&dir) else { return };
    let path = dir.write("f.so", &parts.link(false, |_| ()));
    let library = Library::open(&path);
    let model = library.model().unwrap();
    let step: unsafe extern "C" fn(*mut c_void, *const llmcc_batch, *mut f32, usize) -> i32 =
        library.get(c"llmcc_step");
    let new: unsafe extern "C" fn(*mut c_void, *mut i32) -> i32 = library.get(c"llmcc_seq_new");
    let close: unsafe extern "C" fn(*mut c_void) = library.get(c"llmcc_close");
    // SAFETY: the child only calls the library and `_exit`.
    unsafe {
        let mut seq = -1;
        assert_eq!(new(model, &mut seq), 0);
        let child = libc::fork();
        if child == 0 {
            let (token, mut batch): (i32, llmcc_batch) = (1, zeroed());
            (batch.size, batch.n_tokens, batch.tokens, batch.seqs) = (size_of::<llmcc_batch>(), 1, &token, &seq);
            let status = step(model, &batch, null_mut(), 0);
            close(model);
            libc::_exit(if status == Status::Invalid as i32 { 0 } else { 1 + status });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "child: {status:#x}");
    }
    library.close(model);
}
