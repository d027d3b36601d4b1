//! Harness of the end-to-end tests: compile a checkpoint, open the artifact, compare logits.

pub mod adapters;
pub mod left_out;
pub mod policies;
pub mod sass;
pub mod taps;

use left_out::{Emulated, Kinds, Planned, Unless};
use llmcc_cli::loaded::{EngineOptions, GenOptions, Model};
use llmcc_cli::session::{self, CompileOptions};
use llmcc_codegen::Backend;
use llmcc_codegen::cpu::CpuBackend;
use llmcc_ir::kernel::Kernel;
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::Format;
use llmcc_passes::ActPolicy;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub use llmcc_test_support::fake_driver;

/// The workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A fixture of `tests/goldens`, with its weights.
pub fn golden(name: &str) -> PathBuf {
    llmcc_test_support::fixture(name)
}

/// Whether a fixture is wanted: any is, unless `LLMCC_GOLDENS` names some, with commas between.
fn wanted(name: &str) -> bool {
    std::env::var("LLMCC_GOLDENS").map_or(true, |some| some.split(',').any(|s| s == name))
}

/// All fixtures that hold architectures.
pub fn goldens() -> impl Iterator<Item = &'static str> {
    llmcc_frontends::arch::goldens().filter(|name| wanted(name))
}

/// One fixture of each architecture.
pub fn first_goldens() -> impl Iterator<Item = &'static str> {
    let first = llmcc_frontends::arch::ARCHS.iter().filter_map(|a| a.goldens.first()).copied();
    first.filter(|name| wanted(name))
}

/// A folder of the shared data beside the workspace, if there is one; says so when not.
pub fn shared(path: &str) -> Option<PathBuf> {
    let p = root().join("../shared/data").join(path);
    if p.exists() {
        return Some(p);
    }
    eprintln!("skipped: ../shared/data/{path} is not there");
    None
}

/// Options for a checkpoint: native target, as stored, f32 cache.
pub fn options(checkpoint: &Path) -> CompileOptions {
    let native = session::find_target("native").expect("native is a target");
    CompileOptions {
        act: Some(ActPolicy::F32),
        kv: Some(KvDType::F32),
        max_context: short_context(checkpoint),
        ..CompileOptions::new(checkpoint, vec![native])
    }
}

/// The context of fixtures whose reference has LongRoPE's short factors, as no sequence in it is longer than the
/// original context.
fn short_context(checkpoint: &Path) -> Option<usize> {
    let short = ["phi3-longrope", "phi4_multimodal", "minicpm3"];
    short.iter().any(|name| checkpoint.ends_with(name)).then_some(64)
}

/// The same with weights that are rounded to nearest, as the references of NumPy are.
pub fn nearest(checkpoint: &Path, format: &str, act: ActPolicy) -> CompileOptions {
    CompileOptions { method: &llmcc_passes::method::NEAREST, ..quantized(checkpoint, format, act) }
}

/// Options with quantized weights.
pub fn quantized(checkpoint: &Path, format: &str, act: ActPolicy) -> CompileOptions {
    CompileOptions {
        weights: Some(Format::parse(format).unwrap_or_else(|| panic!("{format} is not a format"))),
        act: Some(act),
        ..options(checkpoint)
    }
}

/// The configuration of a checkpoint.
pub fn config(folder: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(folder.join("config.json")).expect("a config")).expect("JSON")
}

/// The Qwen3 fixture with its two layers over and over, all but each `period`th with a window, for
/// contexts of `context` tokens.
pub fn windowed(layers: usize, period: usize, window: usize, context: usize) -> TempDir {
    let (from, to) = (golden("qwen3"), tempfile::tempdir().expect("temporary folder"));
    let mut config = config(&from);
    let kind = |i: usize| if (i + 1).is_multiple_of(period) { "full_attention" } else { "sliding_attention" };
    config["layer_types"] = (0..layers).map(kind).collect();
    config["num_hidden_layers"] = serde_json::json!(layers);
    config["use_sliding_window"] = serde_json::json!(true);
    config["sliding_window"] = serde_json::json!(window);
    config["max_position_embeddings"] = serde_json::json!(context);
    std::fs::write(to.path().join("config.json"), config.to_string()).expect("written");
    let bytes = std::fs::read(from.join("model.safetensors")).expect("weights");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let mut all: Vec<(String, safetensors::tensor::TensorView)> = vec![];
    for (name, tensor) in file.tensors() {
        match name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')) {
            Some((layer, rest)) => {
                let first: usize = layer.parse().expect("a number");
                all.extend((first..layers).step_by(2).map(|i| (format!("model.layers.{i}.{rest}"), tensor.clone())));
            }
            None => all.push((name, tensor)),
        }
    }
    safetensors::serialize_to_file(all, None, &to.path().join("model.safetensors")).expect("written");
    to
}

/// An artifact in a temporary folder that lives as long as this.
pub struct Artifact {
    /// The folder.
    pub dir: TempDir,
    /// The shared object.
    pub path: PathBuf,
}

impl Artifact {
    /// Compiles with the given options.
    pub fn compile(options: &CompileOptions) -> Artifact {
        Artifact::of(options, &CpuBackend::default(), || false).expect("nothing is left out")
    }

    /// The artifact for any target; none if `leave_out` says so of the kernels of its plan, before code is made of
    /// them.
    pub fn compile_unless(options: &CompileOptions, leave_out: impl Fn(&[Kernel]) -> bool) -> Option<Artifact> {
        let backends = Unless::new(leave_out);
        Artifact::of(options, &backends, || backends.left_out())
    }

    /// The artifact with PTX alone for an emulator; `ptxas` is shown kernels of kinds that are not in `assembled`.
    pub fn compile_for_emulator(options: &CompileOptions, assembled: &Kinds) -> Artifact {
        Artifact::of(options, &Emulated::new(assembled), || false).expect("nothing is left out")
    }

    fn of(options: &CompileOptions, backend: &dyn Backend, left_out: impl Fn() -> bool) -> Option<Artifact> {
        let dir = tempfile::tempdir().expect("temporary folder");
        let (path, name) = (dir.path().join("m.so"), options.checkpoint.display());
        let mut lowered = match session::lower(options, backend) {
            Err(_) if left_out() => return None,
            lowered => lowered.unwrap_or_else(|e| panic!("{name}: {e}")),
        };
        session::finish(&mut lowered, options, backend, &path, &mut |_, _| {})
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        Some(Artifact { dir, path })
    }

    /// Opens it with a number of threads.
    pub fn open(&self, threads: u32) -> Model {
        Model::open(&self.path, EngineOptions { threads, ..EngineOptions::default() }).unwrap_or_else(|e| panic!("{e}"))
    }
}

/// The kernels of a model's plan, of which no code is made; none if they are to be left out.
pub fn planned(options: &CompileOptions, leave_out: impl Fn(&[Kernel]) -> bool) -> Planned {
    let found = RefCell::default();
    let note = |kernels: &[Kernel]| {
        if !leave_out(kernels) {
            *found.borrow_mut() = Planned::of(kernels);
        }
        true
    };
    assert!(Artifact::compile_unless(options, note).is_none(), "left out");
    found.into_inner()
}

/// Perplexity of stories260K with quantized weights and exact activations by Transformers in f64,
/// from the table that `python tests/goldens/quantized.py ppl … --table` prints (norm gains folded
/// for w8, not for 4 bits: as the compiler does).
pub const REFERENCE_PERPLEXITY: &[(&str, f64)] =
    &[("w8g32", 3.671743), ("w4g32", 4.149953), ("w4g128", 4.358859), ("w4ag32", 4.071343)];

/// Transformers' results for a fixture.
pub struct Golden {
    /// Tokens that the model reads first, of a model that writes about a source; else none.
    pub source: Vec<i32>,
    /// Frames of a spectrogram `[frames, mels]` that the model hears first; else none.
    pub features: Vec<f32>,
    /// The tokens that a text about these begins with.
    pub starts: Vec<i32>,
    /// Prompt; with a source the beginning of a text about it.
    pub tokens: Vec<i32>,
    /// The tokens whose rows are kept.
    pub at: Vec<usize>,
    /// Their rows of the reference's output `[at, columns]`, computed in f64 and rounded once: logits, or rows of
    /// an embedder; a classifier has none.
    pub rows: Vec<f64>,
    /// How far off Transformers is at most in each row, in f32.
    pub f32: Vec<f64>,
    /// The same in bf16.
    pub bf16: Vec<f64>,
    /// Greedy continuation of the reference; none where it has no logits.
    pub greedy: Vec<i32>,
    /// Columns.
    pub columns: usize,
    /// Texts and the pooled row of each.
    pub pooled: Option<Pooled>,
}

/// Pooled rows of texts by Transformers and sentence-transformers.
pub struct Pooled {
    /// Tokens of each text, or pair of texts.
    pub texts: Vec<Vec<i32>>,
    /// Types of these tokens; none where all are 0.
    pub types: Vec<Vec<i32>>,
    /// The reference `[texts, columns]`.
    pub f64: Vec<f64>,
    /// The same in f32.
    pub f32: Vec<f64>,
}

impl Pooled {
    /// The largest error of rows, and of the reference in f32.
    pub fn errors(&self, rows: &[f32]) -> (f64, f64) {
        let error = |x: &mut dyn Iterator<Item = f64>| x.zip(&self.f64).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert_eq!(rows.len(), self.f64.len());
        (error(&mut rows.iter().map(|x| f64::from(*x))), error(&mut self.f32.iter().copied()))
    }
}

impl Golden {
    /// Reads `golden.safetensors` of a fixture.
    pub fn load(name: &str) -> Golden {
        let bytes = std::fs::read(golden(name).join("golden.safetensors")).unwrap_or_else(|e| panic!("{name}: {e}"));
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        let raw = |n: &str| file.tensor(n).unwrap_or_else(|e| panic!("{name}: {n}: {e}"));
        let ints = |n: &str| -> Vec<i32> {
            raw(n).data().chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        };
        let floats = |n: &str| -> Vec<f64> {
            let data = raw(n).data().chunks_exact(4);
            data.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into()).collect()
        };
        let doubles = |n: &str| -> Vec<f64> {
            raw(n)
                .data()
                .chunks_exact(8)
                .map(|b| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
                .collect()
        };
        let tokens = ints("tokens");
        let has = |n: &str| file.tensor(n).is_ok();
        let pooled = has("texts").then(|| {
            let lengths = ints("lengths");
            let cut = |mut rest: &[i32]| -> Vec<Vec<i32>> {
                let lengths = lengths.iter();
                lengths.map(|n| rest.split_off(..*n as usize).expect("as long as said").to_vec()).collect()
            };
            let types = if has("types") { cut(&ints("types")) } else { vec![] };
            Pooled { texts: cut(&ints("texts")), types, f64: doubles("pooled_f64"), f32: floats("pooled_f32") }
        });
        let own = |ty: &str| if has(ty) { floats(ty) } else { vec![] };
        let rows = own(if has("hidden") { "hidden" } else { "logits" });
        let at: Vec<usize> = if has("at") { ints("at").iter().map(|i| *i as usize).collect() } else { vec![] };
        let columns = rows.len().checked_div(at.len()).unwrap_or(0);
        let greedy = if has("greedy") { ints("greedy") } else { vec![] };
        let [source, starts] = ["source", "starts"].map(|n| if has(n) { ints(n) } else { vec![] });
        let features = own("features").into_iter().map(|x| x as f32).collect();
        let (f32, bf16) = (own("error_f32"), own("error_bf16"));
        Golden { f32, bf16, source, features, starts, greedy, tokens, at, rows, columns, pooled }
    }

    /// Logits of every token, given in pieces as for [`logits_in_pieces`], after the source, if there is one.
    pub fn logits(&self, model: &Model, sizes: &[usize]) -> Vec<f32> {
        logits_about(model, &|seq| self.give_source(model, seq), &self.tokens, sizes)
    }

    /// Gives a sequence the source, if there is one.
    pub fn give_source(&self, model: &Model, seq: i32) {
        if !self.source.is_empty() {
            model.seq_encode(seq, &self.source).unwrap_or_else(|e| panic!("{e}"));
        }
        if !self.features.is_empty() {
            model.seq_encode_rows(seq, &self.sound_rows(model)).unwrap_or_else(|e| panic!("{e}"));
        }
    }

    /// The rows of the encoder that the features become: the frames `2i - 2` to `2i + 2`, zeros outside.
    pub fn sound_rows(&self, model: &Model) -> Vec<f32> {
        let clip = model.clip().unwrap_or_else(|e| panic!("{e}"));
        let mels = clip.columns / 5;
        let frame = |at: usize| match at.checked_sub(2).and_then(|at| self.features.get(at * mels..(at + 1) * mels)) {
            Some(frame) => frame.to_vec(),
            None => vec![0.0; mels],
        };
        (0..clip.rows).flat_map(|row| (0..5).flat_map(move |j| frame(2 * row + j))).collect()
    }

    /// Largest error of the output after each token against the rows of the reference.
    pub fn error(&self, output: &[f32]) -> f64 {
        assert_eq!(output.len(), self.tokens.len() * self.columns, "a row for each token");
        let mut worst = 0f64;
        for (at, want) in self.at.iter().zip(self.rows.chunks_exact(self.columns)) {
            let got = &output[at * self.columns..(at + 1) * self.columns];
            let errors = want.iter().zip(got).map(|(w, g)| (w - f64::from(*g)).abs());
            worst = errors.map(|e| if e.is_nan() { f64::INFINITY } else { e }).fold(worst, f64::max);
        }
        worst
    }

    /// Largest error of Transformers in f32 (`own_f32`) or bf16.
    pub fn reference_error(&self, own_f32: bool) -> f64 {
        let own = if own_f32 { &self.f32 } else { &self.bf16 };
        own.iter().copied().fold(0.0, f64::max)
    }
}

/// Logits of every token of a prompt given in pieces of the given sizes (the last size repeats), as
/// one sequence.
pub fn logits_in_pieces(model: &Model, tokens: &[i32], sizes: &[usize]) -> Vec<f32> {
    logits_about(model, &|_| (), tokens, sizes)
}

/// The same of a sequence that was given its source.
fn logits_about(model: &Model, give_source: &dyn Fn(i32), tokens: &[i32], sizes: &[usize]) -> Vec<f32> {
    let seq = model.seq_new().unwrap_or_else(|e| panic!("{e}"));
    give_source(seq);
    let mut out = vec![];
    let (mut at, mut i) = (0, 0);
    while at < tokens.len() {
        let n = sizes[i.min(sizes.len() - 1)].min(tokens.len() - at);
        let rows: Vec<u32> = (0..n as u32).collect();
        out.extend(model.step(&tokens[at..at + n], &vec![seq; n], &rows).unwrap_or_else(|e| panic!("{e}")));
        at += n;
        i += 1;
    }
    model.seq_free(seq).unwrap_or_else(|e| panic!("{e}"));
    out
}

/// The greedy continuation of a fixture's prompt, as long as the reference's.
pub fn greedy(model: &Model, g: &Golden) -> Vec<i32> {
    if !g.source.is_empty() || !g.features.is_empty() {
        return written(model, g);
    }
    let seq = model.seq_new().unwrap_or_else(|e| panic!("{e}"));
    let n = g.tokens.len();
    let mut logits = model.step(&g.tokens, &vec![seq; n], &[n as u32 - 1]).unwrap_or_else(|e| panic!("{e}"));
    let mut ids = vec![];
    for _ in 0..g.greedy.len() {
        let next = argmax(&logits);
        ids.push(next);
        logits = model.step(&[next], &[seq], &[0]).unwrap_or_else(|e| panic!("{e}"));
    }
    ids
}

/// The tokens that a model writes by itself about a golden's source, as many as the reference wrote.
fn written(model: &Model, g: &Golden) -> Vec<i32> {
    let options = GenOptions { max_tokens: g.greedy.len() as u32, no_text: true, ..GenOptions::default() };
    let pieces = match g.features.is_empty() {
        true => model.generate(None, &g.source, &options),
        false => {
            let seq = model.seq_new().unwrap_or_else(|e| panic!("{e}"));
            g.give_source(model, seq);
            // The model's own rules count: tokens that are never chosen, or not first.
            model.generate(Some(seq), &g.starts, &GenOptions { defaults: true, ..options })
        }
    };
    let pieces = pieces.unwrap_or_else(|e| panic!("{e}"));
    pieces.map(|piece| piece.unwrap_or_else(|e| panic!("{e}")).token).collect()
}

/// Index of the largest element, the first of equals.
pub fn argmax(x: &[f32]) -> i32 {
    x.iter().enumerate().fold((0, f32::NEG_INFINITY), |b, (i, v)| if *v > b.1 { (i, *v) } else { b }).0 as i32
}
