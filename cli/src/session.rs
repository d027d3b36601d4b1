//! The compiler driver: checkpoint → graph → plan → machine code → artifact.

use crate::Error;
use crate::backends::HAS_LLVM;
use crate::certificate;
use crate::golden::{self, Outcome};
use crate::manifest::{self, Facts, SourceFile};
use crate::versions::SharedWeights;
use llmcc_abi::tree::Hash;
use llmcc_codegen::artifact::{self, Texts};
use llmcc_codegen::link::{Linker, Pending, WeightsPlace};
use llmcc_codegen::{Backend, Object};
use llmcc_frontends::tokenizer::TextAssets;
use llmcc_frontends::{Checkpoint, FrontendError};
use llmcc_ir::graph::Module;
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::{Elem, Format};
use llmcc_ir::target::{self, Family, TargetSpec};
use llmcc_ir::ty::DType;
use llmcc_passes::measure::Measured;
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
    /// Further targets, the most wanted first: the artifact has a version of the model for each.
    pub also: Vec<&'static TargetSpec>,
    /// Storage of the matrix weights; `None`: as in the checkpoint.
    pub weights: Option<Format>,
    /// Activations entering quantized products, on the targets that multiply such ones; `None` and elsewhere: what suits weights and target.
    pub act: Option<ActPolicy>,
    /// KV cache type; `None`: as [`Choose::kv`] finds, else f32 for f32 weights, else f16.
    pub kv: Option<KvDType>,
    /// What the compiler chooses by cost.
    pub choose: Choose,
    /// Longest sequence; `None`: the model's.
    pub max_context: Option<usize>,
    /// Embedded or external weights.
    pub place: WeightsPlace,
    /// Leave tensors aside that the model does not use, instead of refusing the checkpoint.
    pub ignore_unused: bool,
    /// Fail on generic kernels.
    pub deny_fallback: bool,
    /// The `llmcc` program, to run the finished artifact for its golden vectors; `None`: do not.
    pub golden: Option<PathBuf>,
}

/// What the compiler chooses by cost and error, where nothing is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choose {
    /// Choose weight formats, this being the largest root mean square relative error (see `llmcc_passes::Options::error_budget`).
    pub error_budget: Option<f64>,
    /// Choose the KV cache type.
    pub kv: bool,
    /// Find out what the next best choices would cost, for explanations.
    pub alternatives: bool,
}

/// Formats that a mixture within an error budget is made of, besides the checkpoint's own. Each is the smallest of its kind at some error: 4.125 bits per weight, 4.25,
/// 4.5, 5, 8.125.
const MIXTURE: &[Format] = &[
    Format::new(Elem::W4, 128),
    Format::new(Elem::W4, 64),
    Format::new(Elem::W4, 32),
    Format::new(Elem::W4A, 32),
    Format::new(Elem::W8, 128),
];

/// Cache types that are chosen from.
const CACHES: &[KvDType] = &[KvDType::F32, KvDType::F16, KvDType::Bf16, KvDType::Int8];

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
    /// What of the checkpoint was left aside.
    pub warnings: Vec<String>,
    /// Plan and what the passes report.
    pub compiled: Compiled,
    /// One per kernel of the plan.
    pub objects: Vec<Object>,
    /// Format of the matrix weights; with an error budget, the checkpoint's own.
    pub format: Format,
    /// Activations.
    pub act: ActPolicy,
    /// The versions for further targets.
    pub others: Vec<Version>,
    /// Times.
    pub phases: Phases,
}

/// The model compiled for one target.
pub struct Version {
    /// The target.
    pub target: &'static TargetSpec,
    /// Plan and what the passes report.
    pub compiled: Compiled,
    /// One per kernel of the plan.
    pub objects: Vec<Object>,
    /// Activations.
    pub act: ActPolicy,
}

/// A version, the first or a further one.
#[derive(Clone, Copy)]
pub struct VersionRef<'a> {
    /// The target.
    pub target: &'static TargetSpec,
    /// Plan and what the passes report.
    pub compiled: &'a Compiled,
    /// One per kernel of the plan.
    pub objects: &'a [Object],
    /// Activations.
    pub act: ActPolicy,
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
    /// Root of the hashes of all bytes ([`llmcc_abi::tree`]).
    pub root: Hash,
    /// Times.
    pub phases: Phases,
}

/// The target called `name`.
///
/// # Errors
/// [`Error::Usage`] listing the targets.
pub fn find_target(name: &str) -> Result<&'static TargetSpec, Error> {
    target::find(name).ok_or_else(|| {
        let names: Vec<_> = target::TARGETS.iter().map(|t| t.name).collect();
        Error::Usage(format!("unknown target `{name}`; targets: native, {}", names.join(", ")))
    })
}

/// The targets in a list of names with commas, without repetitions.
///
/// # Errors
/// [`Error::Usage`] listing the targets, or naming two that the runtime could not choose between: those of one instruction-set level.
pub fn find_targets(names: &str) -> Result<Vec<&'static TargetSpec>, Error> {
    let mut found: Vec<(&str, &TargetSpec)> = vec![];
    for name in names.split(',').map(str::trim) {
        let target = find_target(name)?;
        match found.iter().find(|(_, t)| artifact::isa(t) == artifact::isa(target)) {
            None => found.push((name, target)),
            Some((_, same)) if same.name == target.name => {}
            Some(other) => return Err(one_level(names, *other, (name, target))),
        }
    }
    Ok(found.into_iter().map(|(_, target)| target).collect())
}

/// Two targets, each as it was called and found, whose code the same machines run.
fn one_level(list: &str, first: (&str, &TargetSpec), second: (&str, &TargetSpec)) -> Error {
    let called = |(name, target): (&str, &TargetSpec)| match name == target.name {
        true => format!("`{name}`"),
        false => format!("`{name}` (`{}` on this machine)", target.name),
    };
    Error::Usage(format!(
        "--target {list}: {} and {} are of one instruction-set level and only tuned for different processors, so an artifact with both would always run the first: \
         leave one of them out (`llmcc targets` says what each is tuned for)",
        called(first),
        called(second)
    ))
}

/// Refuses targets that need LLVM when this compiler is built without it.
///
/// # Errors
/// [`Error::Usage`] saying how to get it.
pub fn check_llvm(options: &CompileOptions) -> Result<(), Error> {
    let gpu = std::iter::once(&options.target).chain(&options.also).find(|t| t.family() == Family::Gpu);
    match gpu {
        Some(t) if !HAS_LLVM => Err(Error::Usage(format!(
            "target `{}` needs an llmcc with LLVM: build it with `make GPU=1` (cargo feature `gpu`; Debian packages llvm-22-dev and libmlir-22-dev)",
            t.name
        ))),
        _ => Ok(()),
    }
}

/// Opens the checkpoint and lifts it to the graph level. Also returns what of the checkpoint was left aside.
///
/// # Errors
/// Whatever is wrong with the checkpoint.
pub fn lift(options: &CompileOptions) -> Result<(Checkpoint, Module, Vec<String>), Error> {
    let checkpoint = Checkpoint::open(&options.checkpoint)?;
    let lift_with = |kv_dtype| llmcc_frontends::lift(&checkpoint, &llmcc_frontends::Options { kv_dtype, max_context: options.max_context });
    let mut module = lift_with(options.kv.unwrap_or(KvDType::F16))?;
    if options.kv.is_none() && !options.choose.kv && weight_format(options, &module) == Format::F32 {
        module = lift_with(KvDType::F32)?;
    }
    let warnings = left_aside(options, &checkpoint, &module)?;
    Ok((checkpoint, module, warnings))
}

/// Fields that nobody knows, and with [`CompileOptions::ignore_unused`] the tensors without a use.
fn left_aside(options: &CompileOptions, checkpoint: &Checkpoint, module: &Module) -> Result<Vec<String>, Error> {
    let unread = llmcc_frontends::arch::config(checkpoint)?.unread;
    let mut warnings: Vec<String> = unread.into_iter().map(|field| format!("config.json: {field}, which is not read")).collect();
    match llmcc_frontends::unused::find(checkpoint, module)? {
        Some(unused) if options.ignore_unused => warnings.push(unused.to_string()),
        Some(unused) => return Err(FrontendError::UnusedTensors(unused).into()),
        None => {}
    }
    Ok(warnings)
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
    let (checkpoint, module, warnings) = phases.time("read", || lift(options))?;
    let texts = phases.time("tokenizer", || TextAssets::load(&checkpoint))?;
    let format = weight_format(options, &module);
    // What is not packed is not measured by packing either.
    let mut whole = (options.place == WeightsPlace::Absent && options.choose.error_budget.is_some()).then(Measured::new);
    let mut make = |target| version(options, target, (&checkpoint, &module), backend, whole.as_mut(), &mut phases);
    let Version { compiled, objects, act, .. } = make(options.target)?;
    let others = options.also.iter().copied().map(make).collect::<Result<_, _>>()?;
    Ok(Lowered { checkpoint, texts, module, warnings, compiled, objects, format, act, others, phases })
}

impl Lowered {
    /// All versions, the most wanted first: target, plan with what the passes report, code, activations.
    pub fn versions<'a>(&'a self, options: &CompileOptions) -> Vec<VersionRef<'a>> {
        let first = VersionRef { target: options.target, compiled: &self.compiled, objects: &self.objects, act: self.act };
        let other = |v: &'a Version| VersionRef { target: v.target, compiled: &v.compiled, objects: &v.objects, act: v.act };
        std::iter::once(first).chain(self.others.iter().map(other)).collect()
    }

    /// Compiles all versions again, with errors of whole weights instead of samples.
    fn choose_again(
        &mut self,
        options: &CompileOptions,
        backend: &dyn Backend,
        mut whole: Measured,
        phases: &mut Phases,
    ) -> Result<(), Error> {
        let mut again = |target| version(options, target, (&self.checkpoint, &self.module), backend, Some(&mut whole), phases);
        let first = again(options.target)?;
        let others = options.also.iter().copied().map(again).collect::<Result<_, _>>()?;
        (self.compiled, self.objects, self.act, self.others) = (first.compiled, first.objects, first.act, others);
        Ok(())
    }
}

/// Compiles the model for one target. With `whole`, an error budget is kept by errors of whole weights, which are added there; else by samples.
fn version(
    options: &CompileOptions,
    target: &'static TargetSpec,
    (checkpoint, module): (&Checkpoint, &Module),
    backend: &dyn Backend,
    whole: Option<&mut Measured>,
    phases: &mut Phases,
) -> Result<Version, Error> {
    let pass_options = pass_options(options, target, module);
    let compiled = phases.time("rewrite", || match whole {
        Some(whole) => llmcc_passes::budget::compile_exactly(module, &pass_options, &Source(checkpoint), whole),
        None => llmcc_passes::compile_measured(module, &pass_options, &Source(checkpoint)),
    })?;
    let objects = phases.time("codegen", || backend.lower_all(&compiled.plan.kernels, target))?;
    if options.deny_fallback {
        deny_fallback(&compiled, &objects)?;
    }
    Ok(Version { target, compiled, objects, act: pass_options.act })
}

fn pass_options(options: &CompileOptions, target: &'static TargetSpec, module: &Module) -> llmcc_passes::Options {
    let mut o = match options.choose.error_budget {
        Some(budget) => llmcc_passes::Options::within(target, [MIXTURE, &stored_formats(module)].concat(), budget),
        None => llmcc_passes::Options::new(target, weight_format(options, module)),
    };
    if let Some(act) = options.act.filter(|a| a.runs_on(target)) {
        o.act = act;
    }
    if options.choose.kv && options.kv.is_none() {
        o.kv = CACHES.to_vec();
    }
    o.alternatives = options.choose.alternatives;
    o
}

/// The storages that matrices of the checkpoint have: nothing is lost in them.
fn stored_formats(module: &Module) -> Vec<Format> {
    let matrices = || module.weights.iter().filter(|w| w.ty.shape.len() == 2);
    let all = [(DType::F32, Format::F32), (DType::F16, Format::F16), (DType::Bf16, Format::BF16)];
    let mut found: Vec<Format> = all.into_iter().filter(|(t, _)| matrices().any(|w| w.ty.dtype == *t)).map(|(_, f)| f).collect();
    if found.is_empty() {
        found.push(Format::F32);
    }
    found
}

fn deny_fallback(compiled: &Compiled, objects: &[Object]) -> Result<(), Error> {
    let slow: Vec<String> =
        compiled.plan.kernels.iter().zip(objects).filter_map(|(k, o)| o.generic.map(|why| format!("  {}: {why}", k.name))).collect();
    if slow.is_empty() {
        return Ok(());
    }
    Err(Error::Failed(format!("{} kernels take a generic path (--deny-fallback):\n{}", slow.len(), slow.join("\n"))))
}

/// Runtime, code and weights in a file without a name yet.
struct Linked {
    linker: Linker,
    code: artifact::Code,
    runtime_bytes: usize,
    shared: SharedWeights,
    packed: Packed,
}

/// Writes runtime and code, and packs the weights.
fn link(
    l: &Lowered,
    options: &CompileOptions,
    out: &Path,
    progress: &mut dyn FnMut(u64, u64),
    phases: &mut Phases,
) -> Result<Linked, Error> {
    let runtime = if l.texts.tokenizer_json.is_some() { llmcc_rt_image::FULL } else { llmcc_rt_image::CORE };
    let versions = l.versions(options);
    let code = artifact::layout_code(&versions.iter().map(|v| v.objects).collect::<Vec<_>>());
    let shared = SharedWeights::new(&versions.iter().map(|v| (&v.compiled.plan, v.target)).collect::<Vec<_>>());
    let mut linker = Linker::start(out, runtime, &code.bytes, options.place)?;
    let packed = match options.place {
        WeightsPlace::Absent => leave_out(&shared, &mut linker),
        _ => phases.time("pack weights", || pack_all(l, &shared, &mut linker, progress))?,
    };
    Ok(Linked { linker, code, runtime_bytes: runtime.len(), shared, packed })
}

/// As [`link`]; where what was packed breaks the error budget, since the forms were chosen by samples, they are chosen again, by what is known now.
fn link_within_budget(
    l: &mut Lowered,
    options: &CompileOptions,
    backend: &dyn Backend,
    (out, progress): (&Path, &mut dyn FnMut(u64, u64)),
    phases: &mut Phases,
) -> Result<Linked, Error> {
    let linked = link(l, options, out, progress, phases)?;
    let Some(whole) = certificate::excess(l, options, &linked.shared, &linked.packed.reports) else { return Ok(linked) };
    drop(linked);
    l.choose_again(options, backend, whole, phases)?;
    let linked = link(l, options, out, progress, phases)?;
    match certificate::excess(l, options, &linked.shared, &linked.packed.reports) {
        None => Ok(linked),
        Some(_) => Err(Error::Failed(format!(
            "internal error: the packed weights break the error budget although they were measured before ({}); nothing was written, please report this",
            certificate::largest(&linked.packed.reports)
        ))),
    }
}

/// Packs the weights, writes the artifact and, if asked for, runs it before it gets its name. `progress` hears bytes of packed weights done, of the total. Where the packed weights break the
/// error budget, `lowered` is compiled again with `backend`.
///
/// # Errors
/// Bad values in the checkpoint; a budget that cannot be kept; the output cannot be written; the artifact does not compute what it should. Nothing is left behind.
pub fn finish(
    lowered: &mut Lowered,
    options: &CompileOptions,
    backend: &dyn Backend,
    out: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Finished, Error> {
    let mut phases = lowered.phases.clone();
    let linked = link_within_budget(lowered, options, backend, (out, progress), &mut phases)?;
    let lowered = &*lowered;
    let Linked { mut linker, code, runtime_bytes, shared, packed: Packed { reports: packed, files } } = linked;
    let plan = &lowered.compiled.plan;
    let versions = lowered.versions(options);
    let mut facts = Facts {
        lowered,
        options,
        code_bytes: code.bytes.len(),
        packed: &packed[0],
        files,
        weight_offsets: llmcc_passes::pack::weight_offsets(plan),
        golden: Outcome::Absent("not run yet".into()),
    };
    let data = |facts: &Facts<'_>| {
        let texts = Texts {
            manifest: manifest::build(facts),
            tokenizer: lowered.texts.tokenizer_json.clone().unwrap_or_default(),
            text_config: serde_json::to_vec(&lowered.texts.text_config).unwrap_or_default(),
        };
        let spans = shared.spans();
        let alternatives: Vec<_> = versions
            .iter()
            .zip(&spans)
            .map(|(v, (weights, weight_offsets))| artifact::Alternative {
                plan: &v.compiled.plan,
                target: v.target,
                objects: v.objects,
                weight_offsets,
                weights: *weights,
            })
            .collect();
        artifact::data_segment(&alternatives, &code, &texts)
    };
    let seed = golden::seed(linker.end_weights()?);
    phases.time("write", || linker.seal(&data(&facts)))?;
    facts.golden = phases.time("run", || golden::examine(lowered, options, linker.temporary(), seed))?;
    let (bytes, root) = phases.time("finish", || {
        let sealed = linker.seal(&data(&facts))?;
        linker.finish().map(|()| sealed)
    })?;
    if options.place == WeightsPlace::Absent {
        let path = PathBuf::from(format!("{}.json", out.display()));
        Pending::write_file(&path, &manifest::build(&facts))?;
    }
    let golden = facts.golden;
    Ok(Finished {
        bytes,
        runtime_bytes,
        code_bytes: code.bytes.len(),
        packed: packed.into_iter().next().unwrap_or_default(),
        golden,
        root,
        phases,
    })
}

/// The packed weights of all versions, a report per list.
struct Packed {
    reports: Vec<PackReport>,
    files: Vec<SourceFile>,
}

/// Packs the weights of all versions, list after list, while the checkpoint's files are hashed.
fn pack_all(lowered: &Lowered, shared: &SharedWeights, linker: &mut Linker, progress: &mut dyn FnMut(u64, u64)) -> Result<Packed, Error> {
    let source = Source(&lowered.checkpoint);
    let total = shared.bytes().iter().sum();
    std::thread::scope(|s| {
        let hashes = s.spawn(|| manifest::hash_sources(&lowered.checkpoint));
        let mut sink = linker.weights(shared.offsets());
        let mut before = 0;
        let reports: Result<Vec<PackReport>, llmcc_passes::pack::PackError> = shared
            .lists
            .iter()
            .map(|plan| {
                let mut report = |done| progress(before + done, total);
                let packed = llmcc_passes::pack::pack(plan, &lowered.module, &source, &mut sink, &mut report)?;
                before += packed.bytes;
                Ok(packed)
            })
            .collect();
        let files = hashes.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
        Ok(Packed { reports: reports?, files: files? })
    })
}

/// Only says how large the weights are: neither they nor the checkpoint's tensors are read.
fn leave_out(shared: &SharedWeights, linker: &mut Linker) -> Packed {
    let bytes = shared.bytes();
    linker.leave_out(bytes.iter().sum());
    let reports = bytes.into_iter().map(|bytes| PackReport { bytes, ..PackReport::default() }).collect();
    Packed { reports, files: vec![] }
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

/// The format asked for by `--w4`, `--w8`, `--fp8`, `--dtype`.
pub fn format_option(args: &crate::args::CompileArgs) -> Option<Format> {
    use crate::args::FloatType;
    let quantized = |elem| Some(Format::new(elem, args.group));
    match args.dtype {
        _ if args.w4 => quantized(Elem::W4),
        _ if args.w4a => quantized(Elem::W4A),
        _ if args.w8 => quantized(Elem::W8),
        _ if args.fp8 => Some(Format::FP8),
        Some(FloatType::F32) => Some(Format::F32),
        Some(FloatType::F16) => Some(Format::F16),
        Some(FloatType::Bf16) => Some(Format::BF16),
        None => None,
    }
}
