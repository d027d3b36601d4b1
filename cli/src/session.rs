//! The compiler driver: checkpoint → graph → plan → machine code → artifact.

use crate::Error;
use crate::golden::{self, Outcome};
use crate::manifest::{self, Facts};
use llmcc_codegen::artifact::{self, Texts};
use llmcc_codegen::link::{Linker, WeightsPlace};
use llmcc_codegen::{Backend, Object};
use llmcc_frontends::Checkpoint;
use llmcc_frontends::tokenizer::TextAssets;
use llmcc_ir::graph::Module;
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::{Elem, Format};
use llmcc_ir::target::{self, Family, TargetSpec};
use llmcc_ir::ty::DType;
use llmcc_passes::pack::{PackReport, TensorBytes, WeightSource};
use llmcc_passes::{ActPolicy, Compiled};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What to compile and how.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// Folder or file.
    pub checkpoint: PathBuf,
    /// Target.
    pub target: &'static TargetSpec,
    /// Storage of the matrix weights; `None`: as in the checkpoint.
    pub weights: Option<Format>,
    /// Activations entering quantized products; `None`: int8 with quantized weights.
    pub act: Option<ActPolicy>,
    /// KV cache type; `None`: f32 for f32 weights, else f16.
    pub kv: Option<KvDType>,
    /// Longest sequence; `None`: the model's.
    pub max_context: Option<usize>,
    /// Embedded or external weights.
    pub place: WeightsPlace,
    /// Fail on generic kernels.
    pub deny_fallback: bool,
    /// The `llmcc` program, to run the finished artifact for its golden vectors; `None`: do not.
    pub golden: Option<PathBuf>,
}

/// Time spent in each phase of a compilation, in order.
#[derive(Clone, Debug, Default)]
pub struct Phases(pub Vec<(&'static str, Duration)>);

impl Phases {
    /// Runs `f` as phase `name`.
    pub fn time<T>(&mut self, name: &'static str, f: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let out = f();
        self.0.push((name, start.elapsed()));
        out
    }
}

/// A model after the passes and code generation, before weights are packed.
pub struct Lowered {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Tokenizer and special tokens.
    pub texts: TextAssets,
    /// Graph level.
    pub module: Module,
    /// Plan and what the passes report.
    pub compiled: Compiled,
    /// One per kernel of the plan.
    pub objects: Vec<Object>,
    /// Format of the matrix weights.
    pub format: Format,
    /// Activations.
    pub act: ActPolicy,
    /// Times.
    pub phases: Phases,
}

/// A finished artifact.
pub struct Finished {
    /// Bytes of the artifact file.
    pub bytes: u64,
    /// Bytes of the runtime in it.
    pub runtime_bytes: usize,
    /// Bytes of generated code.
    pub code_bytes: usize,
    /// What packing measured.
    pub packed: PackReport,
    /// Golden vectors.
    pub golden: Outcome,
    /// Times.
    pub phases: Phases,
}

/// The target called `name`.
///
/// # Errors
/// [`Error::Usage`] listing the targets.
pub fn find_target(name: &str) -> Result<&'static TargetSpec, Error> {
    let target = target::find(name).ok_or_else(|| {
        let names: Vec<_> = target::TARGETS.iter().map(|t| t.name).collect();
        Error::Usage(format!("unknown target `{name}`; targets: native, {}", names.join(", ")))
    })?;
    if target.family() == Family::Gpu {
        return Err(Error::Usage(format!("target `{name}` needs a compiler built with GPU support (cargo feature `gpu`)")));
    }
    Ok(target)
}

/// Opens the checkpoint and lifts it to the graph level.
///
/// # Errors
/// Whatever is wrong with the checkpoint.
pub fn lift(options: &CompileOptions) -> Result<(Checkpoint, Module), Error> {
    let checkpoint = Checkpoint::open(&options.checkpoint)?;
    let lift_with = |kv_dtype| llmcc_frontends::lift(&checkpoint, &llmcc_frontends::Options { kv_dtype, max_context: options.max_context });
    let mut module = lift_with(options.kv.unwrap_or(KvDType::F16))?;
    if options.kv.is_none() && weight_format(options, &module) == Format::F32 {
        module = lift_with(KvDType::F32)?;
    }
    Ok((checkpoint, module))
}

/// The storage of the matrices: as asked for, else as in the checkpoint.
fn weight_format(options: &CompileOptions, module: &Module) -> Format {
    options.weights.unwrap_or_else(|| stored_format(module))
}

/// The storage most matrices of the checkpoint have.
pub fn stored_format(module: &Module) -> Format {
    let count = |t: DType| module.weights.iter().filter(|w| w.ty.shape.len() == 2 && w.ty.dtype == t).count();
    [(DType::F32, Format::F32), (DType::F16, Format::F16), (DType::Bf16, Format::BF16)]
        .into_iter()
        .max_by_key(|(t, _)| count(*t))
        .map_or(Format::F32, |(_, f)| f)
}

/// Everything up to machine code.
///
/// # Errors
/// Whatever is wrong with the checkpoint; [`Error::Failed`] for generic kernels with `deny_fallback`.
pub fn lower(options: &CompileOptions, backend: &dyn Backend) -> Result<Lowered, Error> {
    let mut phases = Phases::default();
    let (checkpoint, module) = phases.time("read", || lift(options))?;
    let texts = phases.time("tokenizer", || TextAssets::load(&checkpoint))?;
    let format = weight_format(options, &module);
    let mut pass_options = llmcc_passes::Options::new(options.target, format);
    if let Some(act) = options.act {
        pass_options.act = act;
    }
    let compiled = phases.time("rewrite", || llmcc_passes::compile(&module, &pass_options))?;
    let objects: Vec<Object> =
        phases.time("codegen", || compiled.plan.kernels.iter().map(|k| backend.lower(k, options.target)).collect::<Result<_, _>>())?;
    if options.deny_fallback {
        deny_fallback(&compiled, &objects)?;
    }
    Ok(Lowered { checkpoint, texts, module, compiled, objects, format, act: pass_options.act, phases })
}

fn deny_fallback(compiled: &Compiled, objects: &[Object]) -> Result<(), Error> {
    let slow: Vec<String> =
        compiled.plan.kernels.iter().zip(objects).filter_map(|(k, o)| o.generic.map(|why| format!("  {}: {why}", k.name))).collect();
    if slow.is_empty() {
        return Ok(());
    }
    Err(Error::Failed(format!("{} kernels take a generic path (--deny-fallback):\n{}", slow.len(), slow.join("\n"))))
}

/// Packs the weights, writes the artifact and, if asked for, runs it before it gets its name. `progress` hears bytes of packed weights done, of the total.
///
/// # Errors
/// Bad values in the checkpoint; the output cannot be written; the artifact does not compute what it should. Nothing is left behind.
pub fn finish(lowered: &Lowered, options: &CompileOptions, out: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Finished, Error> {
    let mut phases = lowered.phases.clone();
    let plan = &lowered.compiled.plan;
    let runtime = if lowered.texts.tokenizer_json.is_some() { llmcc_rt_image::FULL } else { llmcc_rt_image::CORE };
    let code = artifact::layout_code(&[&lowered.objects]);
    let total = plan.weight_bytes() as u64;
    let source = Source(&lowered.checkpoint);
    let mut linker = Linker::start(out, runtime, &code.bytes, options.place)?;
    let (packed, sha, files) = phases.time("pack weights", || {
        std::thread::scope(|s| {
            let hashes = s.spawn(|| manifest::hash_sources(&lowered.checkpoint));
            let mut sink = manifest::HashingWriter::new(linker.weights());
            let packed = llmcc_passes::pack::pack(plan, &lowered.module, &source, &mut sink, &mut |done| progress(done, total));
            let files = hashes.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
            (packed, sink.finish(), files)
        })
    });
    let packed = packed?;
    let mut facts = Facts {
        lowered,
        options,
        code_sha256: manifest::sha256(&code.bytes),
        code_bytes: code.bytes.len(),
        packed: &packed,
        files: files?,
        weights_sha256: sha,
        weight_offsets: llmcc_passes::pack::weight_offsets(plan),
        golden: Outcome::Absent("not run yet".into()),
    };
    let weights = llmcc_abi::Span { off: 0, len: linker.weights_written() };
    let data = |facts: &Facts<'_>| {
        let texts = Texts {
            manifest: manifest::build(facts),
            tokenizer: lowered.texts.tokenizer_json.clone().unwrap_or_default(),
            text_config: serde_json::to_vec(&lowered.texts.text_config).unwrap_or_default(),
        };
        let weight_offsets = &facts.weight_offsets;
        let alternative = artifact::Alternative { plan, target: options.target, objects: &lowered.objects, weight_offsets, weights };
        artifact::data_segment(&[alternative], &code, &texts)
    };
    phases.time("write", || linker.seal(&data(&facts)))?;
    facts.golden = phases.time("run", || golden::examine(lowered, options, linker.temporary(), facts.golden_seed()))?;
    let bytes = phases.time("finish", || {
        let bytes = linker.seal(&data(&facts))?;
        linker.finish().map(|()| bytes)
    })?;
    let golden = facts.golden;
    Ok(Finished { bytes, runtime_bytes: runtime.len(), code_bytes: code.bytes.len(), packed, golden, phases })
}

/// Tensors of a checkpoint for packing.
struct Source<'a>(&'a Checkpoint);

impl WeightSource for Source<'_> {
    fn tensor(&self, name: &str) -> Option<TensorBytes<'_>> {
        let t = self.0.tensor(name)?;
        Some(TensorBytes { dtype: t.dtype, shape: t.shape.clone(), data: t.data })
    }
    fn release(&self, name: &str) {
        self.0.release(name);
    }
}

/// The format asked for by `--w4`, `--w8`, `--dtype`.
pub fn format_option(args: &crate::args::CompileArgs) -> Option<Format> {
    use crate::args::FloatType;
    let quantized = |elem| Some(Format::new(elem, args.group));
    match args.dtype {
        _ if args.w4 => quantized(Elem::W4),
        _ if args.w4a => quantized(Elem::W4a),
        _ if args.w8 => quantized(Elem::W8),
        Some(FloatType::F32) => Some(Format::F32),
        Some(FloatType::F16) => Some(Format::F16),
        Some(FloatType::Bf16) => Some(Format::BF16),
        None => None,
    }
}
