//! `llmcc compile`

use crate::args::{self, ActType, CompileArgs, FactorType, FloatType, KvType, Place, Stage};
use crate::backends::Backends;
use crate::budget::{self, Chosen, Job, Text};
use crate::lowered::int8_of_floats;
use crate::manifest::Manifest;
use crate::options::{Choose, CompileOptions, EVERY_PROCESSOR, check_llvm, find_targets, invariant};
use crate::session::{self, Finished, Lowered, Version};
use crate::{Error, advice, calib, json, output, program, pruned, report, runtimes, signature};
use ed25519_dalek::SigningKey;
use indicatif::{ProgressBar, ProgressStyle};
use llmcc_codegen::Object;
use llmcc_codegen::link::{WeightsPlace, weights_path};
use llmcc_frontends::Adapter;
use llmcc_frontends::slots::AdapterSlots;
use llmcc_ir::kernel::Kernel;
use llmcc_ir::quant::{Elem, Format};
use llmcc_ir::target::{Family, TARGETS, TargetSpec};
use llmcc_passes::method::LEAST_SQUARES;
use llmcc_passes::{ActPolicy, Explain};
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

/// Compiles, or prints a stage.
///
/// # Errors
/// Whatever is wrong with checkpoint, options or output.
pub fn run(args: &CompileArgs) -> Result<(), Error> {
    for checkpoint in std::iter::once(&args.checkpoint).chain(&args.base) {
        check_checkpoint(checkpoint)?;
    }
    if args.dot && !matches!(args.emit, Some(Stage::Graph | Stage::Egraph | Stage::Plan)) {
        return Err(Error::Usage("--dot is for --emit graph, egraph and plan; the other stages are no graphs".into()));
    }
    let mut options = options(args)?;
    let key = signing_key(args)?;
    let output = match (&args.output, args.emit) {
        (Some(path), _) => Some(path.clone()),
        (None, Some(_)) => None,
        (None, None) => Some(output::default_name(&args.checkpoint)?),
    };
    options.soname = soname(args, output.as_deref())?;
    if let Some(out) = &output {
        prepare_output(args, &options, out)?;
    }
    if args.emit == Some(Stage::Graph) {
        // (Scales of a method are part of the graph.)
        let options = if options.method.moves.is_some() { calib::collected(&options)?.0 } else { options };
        let session::Lifted { module, warnings, .. } = session::lift(&options)?;
        warn(args, &warnings);
        let text = if args.dot { llmcc_ir::text::dot::module(&module) } else { llmcc_ir::text::print_module(&module) };
        return show(output.as_deref(), &text);
    }
    if args.emit.is_none_or(|s| matches!(s, Stage::Llvm | Stage::Ptx | Stage::Sass)) {
        check_llvm(&options)?;
    }
    if args.emit.is_none() {
        runtimes::check(&options.targets)?;
    }
    let program = program::this()?;
    let backends = Backends::new(Some(program.clone()));
    let (options, reference) = calib::collected(&options)?;
    let (options, mut lowered) = match output.as_deref().filter(|_| !args.budget.is_empty()) {
        Some(out) => within_bounds(args, &options, &backends, (out, &program))?,
        None => {
            let lowered = session::lower(&options, &backends)?;
            (options, lowered)
        }
    };
    warn(args, &lowered.texts.warnings);
    warn(args, &backends.gpu.warnings());
    // A document has the explanations.
    if args.explain && !args.json {
        eprint!("{}", report::explain(&lowered));
    }
    let Some(out) = output.as_deref().filter(|_| args.emit.is_none()) else {
        return emit_stage(args, &lowered, &backends);
    };
    let finished = write(args, &options, &mut lowered, (&backends, reference), out)?;
    key.map_or(Ok(()), |key| signature::write(out, &finished.root, &key).map(|_| ()))
}

/// Chooses the forms of weights such that the bounds hold as measured.
fn within_bounds(
    args: &CompileArgs,
    options: &CompileOptions,
    backends: &Backends,
    (out, program): (&Path, &Path),
) -> Result<(CompileOptions, Lowered), Error> {
    let say = |line: &str| {
        if !args.quiet {
            eprintln!("{line}");
        }
    };
    let texts = Text::read(&args.budget_text)?;
    let (bounds, texts) = (&args.budget[..], &texts[..]);
    let start = Instant::now();
    let Chosen { options, mut lowered } =
        budget::choose(&Job { options, bounds, texts, backends, out, program, say: &say })?;
    lowered.phases.0.push(("trials", start.elapsed()));
    Ok((options, lowered))
}

/// Prints a stage, or writes it to the output.
fn emit_stage(args: &CompileArgs, lowered: &Lowered, backends: &Backends) -> Result<(), Error> {
    let Some(stage) = args.emit else { return Ok(()) };
    warn(args, &lowered.warnings);
    if args.dot {
        let compiled = &lowered.preferred().compiled;
        let text = if stage == Stage::Plan { &llmcc_ir::text::dot::plan(&compiled.plan) } else { &compiled.egraph_dot };
        return show(args.output.as_deref(), text);
    }
    if let Some((folder, ending)) = args.output.as_deref().filter(|p| is_folder(p)).zip(stage.ending()) {
        return show_each(folder, ending, &parts(stage, lowered.preferred(), backends)?);
    }
    let text = match stage {
        Stage::Mlir | Stage::Llvm | Stage::Ptx | Stage::Sass => emit_gpu(stage, lowered.preferred(), backends)?,
        _ => emit(stage, lowered),
    };
    show(args.output.as_deref(), &text)
}

/// Packs the weights and writes the artifact, then reports.
fn write(
    args: &CompileArgs,
    options: &CompileOptions,
    lowered: &mut Lowered,
    (backends, reference): (&Backends, calib::Reference),
    out: &Path,
) -> Result<Finished, Error> {
    let bar = progress_bar(args.quiet);
    let stored = |l: &Lowered| l.versions.iter().map(|v| v.compiled.stored.clone()).collect::<Vec<_>>();
    let chosen = stored(lowered);
    let finished = session::finish(lowered, options, backends, out, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let mut finished = finished?;
    let start = Instant::now();
    finished.check = calib::check(options, lowered, reference, out);
    if finished.check.is_some() {
        finished.phases.0.push(("check", start.elapsed()));
    }
    if args.json {
        let said = [&lowered.texts.warnings[..], &backends.gpu.warnings(), &lowered.warnings].concat();
        json::print(&report::document(lowered, &finished, options, out, &said))?;
        return Ok(finished);
    }
    if args.explain && stored(lowered) != chosen {
        eprint!("chosen again by the errors of whole tensors:\n{}", report::explain(lowered));
    }
    if !args.quiet {
        eprint!("{}", report::closing(lowered, &finished, options, out));
    }
    Ok(finished)
}

/// The key of --sign, before anything takes time.
fn signing_key(args: &CompileArgs) -> Result<Option<SigningKey>, Error> {
    if args.sign.is_some() && args.weights == Place::Absent {
        return Err(Error::Usage("--sign covers the weights, which --weights absent leaves out".into()));
    }
    args.sign.as_deref().map(signature::secret).transpose()
}

/// Refuses an output that is a file of the input, and has signals remove unfinished files.
fn prepare_output(args: &CompileArgs, options: &CompileOptions, out: &Path) -> Result<(), Error> {
    let adapters = options.adapters.iter().map(|a| &a.path);
    for files in adapters.chain([&options.checkpoint]).chain(&options.draft) {
        output::spare_checkpoint(out, files)?;
        output::spare_checkpoint(&weights_path(out), files)?;
    }
    output::clean_up_on_signals();
    args.emit.map_or(Ok(()), |stage| check_output(stage, out))
}

/// Refuses an artifact, or a path where nothing is.
fn check_checkpoint(path: &Path) -> Result<(), Error> {
    let name = path.display();
    // (A link that leads nowhere is read, and its error says so.)
    if !path.exists() && !path.is_symlink() {
        return Err(Error::Usage(format!("{name}: {}", advice::missing(path))));
    }
    if !advice::is_elf(path) {
        return Ok(());
    }
    Err(Error::Usage(match Manifest::of(path) {
        Ok(manifest) => format!(
            "{name}: it is already an artifact, made from {}: run it with `llmcc run {name} -p TEXT`, or give \
                the checkpoint to compile",
            manifest.model
        ),
        Err(_) => {
            format!("{name}: it is a program or library; give a checkpoint: a folder with config.json, or a GGUF file")
        }
    }))
}

/// Warns of parts of the checkpoint that were ignored or read differently, unless a closing report
/// has them.
fn warn(args: &CompileArgs, warnings: &[String]) {
    for warning in warnings.iter().filter(|_| !args.quiet && !args.json) {
        eprintln!("warning: {}", report::message(warning));
    }
}

fn options(args: &CompileArgs) -> Result<CompileOptions, Error> {
    let targets = find_targets(target_names(args))?;
    check_activations(args, &targets)?;
    let targets = if args.invariant { invariant(targets) } else { targets };
    let program = program::this()?;
    let options = CompileOptions {
        checkpoint: args.base.as_ref().unwrap_or(&args.checkpoint).clone(),
        adapters: adapters(args),
        slots: adapter_room(args),
        targets,
        weights: format_option(args),
        keep_quantized: args.keep_quantized.clone(),
        act: args.act.map(Into::into),
        kv: args.kv.and_then(Into::into),
        choose: Choose {
            error_budget: args.error_budget,
            kv: args.kv == Some(KvType::Auto) || args.kv.is_none() && args.error_budget.is_some(),
        },
        method: args.calib.method.unwrap_or(&LEAST_SQUARES),
        pruning: args.prune.pruning(),
        calibration: args.calib.calibration(program.clone()),
        damage: None,
        explain: Explain { alternatives: args.explain, egraph: args.emit == Some(Stage::Egraph) },
        max_context: args.max_context,
        policies: args.kv_policy.clone(),
        embed: args.embed,
        also_embed: args.also_embed,
        with_image: args.with_image,
        draft_heads: args.draft_head.unwrap_or_default(),
        draft: args.draft.clone(),
        tap: args.tap,
        hidden_states: args.hidden_states,
        place: match args.weights {
            Place::Embed => WeightsPlace::Embed,
            Place::External => WeightsPlace::External,
            Place::Absent => WeightsPlace::Absent,
        },
        // (By the output's name, which may follow from the checkpoint's.)
        soname: None,
        ignore_unused: args.ignore_unused,
        deny_fallback: args.deny_fallback,
        measured: None,
        golden: match args.no_golden || args.weights == Place::Absent {
            true => None,
            false => Some(program),
        },
    };
    check_method(args, &options)?;
    Ok(options)
}

/// Refuses methods without the statistics they need, and statistics that nothing uses.
fn check_method(args: &CompileArgs, options: &CompileOptions) -> Result<(), Error> {
    let texts = options.calibration.is_some();
    args.prune.check(texts)?;
    args.calib.check(args.prune.uses_texts())?;
    pruned::check(options)?;
    let rounds = options.rounds() || !args.budget.is_empty();
    let asked = if texts { "--calib" } else { "--method" };
    if (texts || args.calib.method.is_some()) && !rounds {
        return Err(Error::Usage(format!("{asked} is for weights that are rounded: give --w4, --w8 or --format, too")));
    }
    if options.method.moves.is_some() && args.tap {
        return Err(Error::Usage(format!(
            "--tap shows the inputs of products, which --method {} divides: leave one of them out",
            options.method.name
        )));
    }
    if texts && args.weights == Place::Absent {
        return Err(Error::Usage("--calib runs the model, whose weights --weights absent does not read".into()));
    }
    Ok(())
}

/// The targets asked for. A stage is printed of one version: by default of this machine's.
fn target_names(args: &CompileArgs) -> &str {
    match args.target.as_ref() {
        Some(Some(names)) => names,
        None if args.emit.is_some() => "native",
        None | Some(None) => EVERY_PROCESSOR,
    }
}

/// The name asked for. `auto`: of the output's, and the version of the C API that programs depend on.
fn soname(args: &CompileArgs, output: Option<&Path>) -> Result<Option<String>, Error> {
    let Some(name) = args.soname.as_deref() else { return Ok(None) };
    if name != "auto" {
        return Ok(Some(name.to_owned()));
    }
    let file = output.and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let versioned = file.split_once(".so.").map(|(stem, _)| stem);
    let stem = versioned.unwrap_or_else(|| file.strip_suffix(".so").unwrap_or(&file));
    let name = format!("lib{}.so.{}", stem.strip_prefix("lib").unwrap_or(stem), llmcc_model::Version::OWN.major);
    let named = args::parse_soname(&name).map_err(|e| Error::Usage(format!("--soname auto gives `{name}`: {e}")))?;
    Ok(Some(named))
}

/// Room for adapters that are loaded while the model runs.
fn adapter_room(args: &CompileArgs) -> Option<AdapterSlots> {
    Some(AdapterSlots {
        count: args.lora_slots?,
        rank: args.lora_rank,
        wide: args.lora_dtype.map(|t| t == FactorType::F32),
        targets: args.lora_targets.clone(),
    })
}

/// The adapters to merge: the one that stands for the checkpoint first.
fn adapters(args: &CompileArgs) -> Vec<Adapter> {
    let own = args.base.as_ref().map(|_| Adapter { path: args.checkpoint.clone(), scale: 1.0 });
    own.into_iter().chain(args.lora.iter().cloned()).collect()
}

/// The format asked for by `--w4`, `--w8`, `--fp8`, `--dtype`.
fn format_option(args: &CompileArgs) -> Option<Format> {
    let quantized = |elem| Some(Format::new(elem, args.group));
    match args.dtype {
        _ if args.w4 && stores_pairs(args) => quantized(Elem::W4S),
        _ if args.w4 => quantized(Elem::W4),
        _ if args.w4a => quantized(Elem::W4A),
        _ if args.w8 => quantized(Elem::W8),
        _ if args.fp8 => Some(Format::FP8),
        _ if args.stored_as.is_some() => args.stored_as,
        Some(FloatType::F32) => Some(Format::F32),
        Some(FloatType::F16) => Some(Format::F16),
        Some(FloatType::Bf16) => Some(Format::BF16),
        None => None,
    }
}

/// Whether two of each four columns stay, and products with int8 rows read them so.
fn stores_pairs(args: &CompileArgs) -> bool {
    args.prune.pruning().is_some_and(|p| p.sparsity.leaves_pairs()) && args.act.is_none_or(|act| act == ActType::Int8)
}

/// Activations that the weights or all targets do not go with.
fn check_activations(args: &CompileArgs, targets: &[&TargetSpec]) -> Result<(), Error> {
    let Some(act) = args.act else { return Ok(()) };
    if act == ActType::Int8 && args.fp8 {
        return Err(Error::Usage(
            "--act int8 is for integer weights (--w4, --w4a, --w8); with --fp8 give --act fp8, or leave --act out"
                .into(),
        ));
    }
    let integers = args.stored_as.is_some_and(|f| f.encoding().integer_group().is_some());
    let quantized = args.w4 || args.w4a || args.w8 || integers || args.error_budget.is_some();
    // The checkpoint's own weights may be quantized already, which is seen when it is read.
    if act == ActType::Int8 && !quantized && format_option(args).is_some() {
        return Err(int8_of_floats());
    }
    if act == ActType::Fp8 && !args.fp8 {
        return Err(Error::Usage("--act fp8 needs 8-bit float weights: give --fp8, too".into()));
    }
    let act = ActPolicy::from(act);
    if targets.iter().any(|t| t.multiplies(act)) {
        return Ok(());
    }
    let names: Vec<_> = targets.iter().map(|t| t.name).collect();
    let who = if names.len() == 1 {
        format!("`{}` multiplies no", names[0])
    } else {
        format!("none of {} multiplies", names.join(", "))
    };
    let those = TARGETS.iter().filter(|t| t.multiplies(act)).map(|t| t.name).collect::<Vec<_>>().join(", ");
    Err(Error::Usage(format!("{who} {act} activations ({those} do): leave out --act {act}, or choose another target")))
}

/// The text of a stage after the graph, of the preferred version.
pub fn emit(stage: Stage, l: &Lowered) -> String {
    let v = l.preferred();
    let plan = &v.compiled.plan;
    let mut out = String::new();
    match stage {
        Stage::Graph => out = llmcc_ir::text::print_module(&l.module),
        Stage::Egraph => out.clone_from(&v.compiled.egraph),
        Stage::Kernels => {
            for k in &plan.kernels {
                let _ = writeln!(out, "{}", llmcc_ir::text::print_kernel(k));
            }
        }
        Stage::Plan => out = llmcc_ir::text::print_plan(plan),
        Stage::Clif | Stage::Asm => {
            for (k, o) in plan.kernels.iter().zip(&v.objects) {
                let text = if stage == Stage::Clif { o.intermediate() } else { o.listing() };
                let _ = writeln!(out, "; {}\n{text}", k.name);
            }
        }
        // These stages need more than the plan: see `emit_gpu`.
        Stage::Mlir | Stage::Llvm | Stage::Ptx | Stage::Sass => {}
    }
    out
}

/// The text of a stage that only GPU kernels have, of a version for one. PTX is one module.
fn emit_gpu(stage: Stage, v: &Version, backends: &Backends) -> Result<String, Error> {
    let parts = parts(stage, v, backends)?;
    if stage == Stage::Ptx {
        let parts: Vec<_> = parts.iter().map(|(name, text)| (*name, text.as_str())).collect();
        return llmcc_gpu::module::join(&parts).map_err(Error::Failed);
    }
    // How LLVM IR marks comments, and how the others do.
    let mark = if stage == Stage::Llvm { ";" } else { "//" };
    Ok(parts.into_iter().fold(String::new(), |out, (name, text)| out + &format!("{mark} {name}\n{text}\n")))
}

/// The text of each kernel at a stage that has one, with its name.
fn parts<'v>(stage: Stage, v: &'v Version, backends: &Backends) -> Result<Vec<(&'v str, String)>, Error> {
    let target = v.target;
    if matches!(stage, Stage::Mlir | Stage::Llvm | Stage::Ptx | Stage::Sass) && target.family() != Family::Nvidia {
        return Err(Error::Usage(format!("{} is not a GPU: its stages are clif and asm", target.name)));
    }
    let text = |(k, o): (&'v Kernel, &Object)| {
        let text = match stage {
            Stage::Kernels => llmcc_ir::text::print_kernel(k),
            Stage::Mlir | Stage::Clif => o.intermediate().to_owned(),
            Stage::Llvm => backends.gpu.text(k, target, llmcc_gpu::worker::Stage::LlvmIr)?,
            Stage::Sass => sass(o)?,
            Stage::Ptx | Stage::Asm => o.listing().to_owned(),
            Stage::Graph | Stage::Egraph | Stage::Plan => String::new(),
        };
        Ok((k.name.as_str(), text))
    };
    v.compiled.plan.kernels.iter().zip(&v.objects).map(text).collect()
}

fn sass(o: &Object) -> Result<String, Error> {
    match o.gpu().filter(|g| !g.cubin.is_empty()) {
        Some(gpu) => llmcc_gpu::assembler::disassemble(&gpu.cubin).map_err(Error::Failed),
        None => Err(Error::Failed(
            "SASS needs ptxas (PyPI: nvidia-cuda-nvcc-cu12) on the search path, or named by LLMCC_PTXAS".into(),
        )),
    }
}

/// Whether the output is to be a folder: there is one, or the name ends as that of one.
fn is_folder(path: &Path) -> bool {
    path.is_dir() || path.as_os_str().as_encoded_bytes().last().is_some_and(|c| std::path::is_separator(char::from(*c)))
}

/// Refuses, before anything is compiled, a folder for a stage that is one text.
fn check_output(stage: Stage, path: &Path) -> Result<(), Error> {
    match stage.ending() {
        None if is_folder(path) => Err(Error::Usage(format!(
            "{} is a folder, but this stage is a single text: name a file (--emit fills a folder with a file \
                for each kernel)",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// A file for each kernel.
fn show_each(folder: &Path, ending: &str, parts: &[(&str, String)]) -> Result<(), Error> {
    std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    parts.iter().try_for_each(|(name, text)| show(Some(&folder.join(format!("{name}.{ending}"))), text))
}

/// Writes a stage to its file, or prints it.
fn show(path: Option<&Path>, text: &str) -> Result<(), Error> {
    match path {
        Some(path) => output::write_text(path, text),
        None => super::print(text),
    }
}

fn progress_bar(quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1);
    if let Ok(style) =
        ProgressStyle::with_template("packing weights {bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec}")
    {
        bar.set_style(style);
    }
    bar
}
