//! Open, close, `dlclose`: nothing stays, however many artifacts come and go, and whatever threads
//! used them.
//!
//! One test alone in its process, so that nobody else changes the measured values.
//! `LLMCC_UNLOAD=1000` in the environment sets the number of artifacts.

use llmcc_cli::loaded::{EngineOptions, GenOptions, Model};
use llmcc_passes::ActPolicy;
use llmcc_tests::{Artifact, quantized, root};
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

unsafe extern "C" {
    fn pthread_key_create(key: *mut u32, destructor: Option<extern "C" fn(*mut c_void)>) -> c_int;
    fn pthread_key_delete(key: u32) -> c_int;
    fn malloc_trim(pad: usize) -> c_int;
    fn mallinfo2() -> Mallinfo;
}

#[repr(C)]
struct Mallinfo {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

/// Resources of the process.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    mappings: usize,
    descriptors: usize,
    threads: usize,
    /// The number of the next free pthread key.
    key: u32,
    /// Bytes allocated from the C library.
    heap: usize,
    /// Bytes in memory.
    resident: usize,
}

fn held() -> Held {
    let count = |dir: &str| std::fs::read_dir(dir).expect("proc").count();
    let mut key = 0;
    // SAFETY: the key is writable, and deleted at once; the others have no preconditions.
    let heap = unsafe {
        assert_eq!(pthread_key_create(&mut key, None), 0);
        pthread_key_delete(key);
        malloc_trim(0);
        let info = mallinfo2();
        info.uordblks + info.hblkhd
    };
    // After free memory has gone back to the system.
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let resident =
        status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    Held {
        mappings: std::fs::read_to_string("/proc/self/maps").expect("proc").lines().count(),
        descriptors: count("/proc/self/fd"),
        threads: count("/proc/self/task"),
        key,
        heap,
        resident: 1024 * resident.expect("VmRSS"),
    }
}

/// Everything a program does with a model.
fn work(model: &Model) -> String {
    let ids = model.tokenize("def read_file(path):\n    return", true).expect("tokens");
    let chat = model.apply_chat_template(r#"[{"role":"user","content":"Hi, what is 2 + 2?"}]"#).expect("a prompt");
    let stop = vec!["\n\n\n\n".to_owned()];
    let options = GenOptions { max_tokens: 4, temperature: 1.0, top_p: 0.9, seed: 1, stop, ..GenOptions::default() };
    let text: String =
        model.generate(None, &ids, &options).expect("generation").map(|p| p.expect("piece").text).collect();
    // A failure, whose message is kept per thread.
    assert!(model.step(&[-1], &[0], &[]).is_err());
    chat + &text
}

fn open(path: &Path) -> Model {
    Model::open(path, EngineOptions { threads: 3, max_tokens: 256, ..EngineOptions::default() }).expect("opens")
}

struct Shared(Model);

// SAFETY: the C API may be called from any thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn work(&self) -> String {
        work(&self.0)
    }
}

/// Artifact number `i`, from this thread, a thread of its own, or several.
fn visit(path: &Path, i: usize, helper: &(mpsc::Sender<&'static Shared>, mpsc::Receiver<String>)) -> String {
    match i % 4 {
        0 => work(&open(path)),
        1 => thread::scope(|s| s.spawn(|| work(&open(path))).join().expect("thread")),
        2 => {
            // Opened here, used by short-lived threads, closed by another.
            let model = Shared(open(path));
            let texts: Vec<String> = thread::scope(|s| {
                let running: Vec<_> = (0..3).map(|_| s.spawn(|| model.work())).collect();
                running.into_iter().map(|t| t.join().expect("thread")).collect()
            });
            thread::spawn(move || drop(model)).join().expect("thread");
            assert!(texts.iter().all(|t| *t == texts[0]));
            texts[0].clone()
        }
        _ => {
            // Used by a thread that lives as long as the test.
            let model = Box::into_raw(Box::new(Shared(open(path))));
            // SAFETY: the helper has answered before the box is freed.
            unsafe {
                helper.0.send(&*model).expect("helper");
                let text = helper.1.recv().expect("helper");
                drop(Box::from_raw(model));
                text
            }
        }
    }
}

#[test]
fn nothing_stays_of_artifacts_that_were_closed() {
    let Some(artifact) = std::env::var_os("LLMCC_UNLOAD_ARTIFACT") else {
        // In a process of its own, without the compiler's leftovers in the heap.
        let artifact =
            Artifact::compile(&quantized(&root().join("examples/tiny-llama/model"), "w4g32", ActPolicy::Int8));
        let me = std::env::current_exe().expect("this program");
        let mut child = Command::new(me);
        // Whole files that this program reads go back to the system at once, instead of staying in
        // some thread's heap.
        child.arg("--nocapture").env("MALLOC_MMAP_THRESHOLD_", "131072").env("LLMCC_UNLOAD_ARTIFACT", &artifact.path);
        let done = child.output().expect("runs");
        let said = String::from_utf8_lossy(&done.stdout);
        println!("{said}");
        assert!(done.status.success() && said.contains("artifacts:"), "{}", String::from_utf8_lossy(&done.stderr));
        return;
    };
    visit_all(Path::new(&artifact));
}

fn visit_all(artifact: &Path) {
    let count: usize = std::env::var("LLMCC_UNLOAD").ok().and_then(|n| n.parse().ok()).unwrap_or(48);
    let folder = artifact.parent().expect("a folder");
    let (to_helper, jobs) = mpsc::channel::<&Shared>();
    let (answers, from_helper) = mpsc::channel();
    let helper = thread::spawn(move || jobs.into_iter().for_each(|m| answers.send(m.work()).expect("test")));
    let channels = (to_helper, from_helper);
    let visits = |from: usize, to: usize| {
        let mut first = None;
        for i in from..to {
            // Another file each time, but for every eighth, which replaces the one before.
            let path = folder.join(format!("{}.so", if i % 8 == 7 { i - 1 } else { i }));
            let new = folder.join("new");
            std::fs::copy(artifact, &new).and_then(|_| std::fs::rename(&new, &path)).expect("copied");
            let text = visit(&path, i, &channels);
            assert_eq!(first.get_or_insert_with(|| text.clone()), &text);
            let maps = std::fs::read_to_string("/proc/self/maps").expect("proc");
            let left: Vec<&str> = maps.lines().filter(|l| l.contains(&*folder.to_string_lossy())).collect();
            assert!(left.is_empty(), "still mapped after visit {i}: {left:#?}");
            if i % 8 != 6 {
                std::fs::remove_file(&path).expect("removed");
            }
        }
    };
    // Until allocators, thread stacks and tables of the loader have the size they need.
    visits(0, 16);
    let before = held();
    visits(16, 16 + count);
    let after = held();
    println!("{count} artifacts: {before:?}\n  -> {after:?}");
    assert_eq!((after.descriptors, after.threads, after.key), (before.descriptors, before.threads, before.key));
    assert!(after.mappings <= before.mappings + 8, "{before:?} -> {after:?}");
    // The C library counts blocks its threads keep for reuse, up to some 200 KB each, as allocated.
    assert!(after.heap <= before.heap + (256 << 10), "{before:?} -> {after:?}");
    assert!(after.resident <= before.resident + (4 << 20), "{before:?} -> {after:?}");
    drop(channels);
    helper.join().expect("helper");
}
