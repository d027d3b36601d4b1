//! From a checkpoint to machine code: a model and its versions, one for each target.

use crate::Error;
use crate::options::CompileOptions;
use crate::recipe::Choices;
use crate::requantized::{self, Requantized};
use crate::statistics::Statistics;
use llmcc_codegen::link::WeightsPlace;
use llmcc_codegen::{Backend, Object};
use llmcc_frontends::arch::Model;
use llmcc_frontends::slots::{AdapterSlots, AdapterTable};
use llmcc_frontends::tokenizer::TextAssets;
use llmcc_frontends::{Checkpoint, FrontendError};
use llmcc_ir::graph::Module;
use llmcc_ir::kv::KvDType;
use llmcc_ir::output::Output;
use llmcc_ir::quant::{Elem, FORMATS, Format, StoredRows};
use llmcc_ir::target::TargetSpec;
use llmcc_ir::ty::DType;
use llmcc_passes::measure::Measured;
use llmcc_passes::method::{Method, Moments, Moved, Pruning, move_scales};
use llmcc_passes::module::parts::{Part, divide};
use llmcc_passes::module::policy;
use llmcc_passes::pack::{TensorBytes, WeightSource};
use llmcc_passes::{ActPolicy, Compiled};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Formats that a mixture within an error budget is made of, besides the checkpoint's own. Each is
/// the smallest of its kind at some error: 4.125 bits per weight, 4.25, 4.5, 5, 8.125.
const MIXTURE: &[Format] = &[
    Format::new(Elem::W4, 128),
    Format::new(Elem::W4, 64),
    Format::new(Elem::W4, 32),
    Format::new(Elem::W4A, 32),
    Format::new(Elem::W8, 128),
];

/// Formats that a mixture of measured damage is made of, besides the checkpoint's own: 8.125 bits per weight, 6.56,
/// 5.5, 4.25, 4.125, 3.25, 3.06, 2.06. (`c4` has less damage than `w4g64` and `w4g32` of as many bytes, or more.)
const COMPRESSED: &[Format] = &[
    Format::new(Elem::W8, 128),
    Format::new(Elem::named("q6k"), 16),
    Format::new(Elem::named("q5k"), 32),
    Format::new(Elem::named("c4"), 32),
    Format::new(Elem::W4, 128),
    Format::new(Elem::named("c3"), 32),
    Format::new(Elem::named("t3"), 256),
    Format::new(Elem::named("t2"), 256),
];

/// Parts of a model's layers that may differ in their forms, where these are chosen by measured damage: each costs a
/// trial.
const PARTS: usize = 4;

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
    /// The weights, and what is known of them.
    pub origin: Origin,
    /// Tokenizer and special tokens.
    pub texts: TextAssets,
    /// Graph level.
    pub module: Module,
    /// Room for adapters that are loaded while the model runs.
    pub adapters: Option<AdapterTable>,
    /// Parts of the checkpoint that were ignored.
    pub warnings: Vec<String>,
    /// The longest sequence for which LongRoPE has its short factors, of models that have longer ones.
    pub original_context: Option<usize>,
    /// Format of the matrix weights; with an error budget, the checkpoint's own.
    pub format: Format,
    /// Formats of matrices that the checkpoint has as codes, which stay as they are.
    pub coded: Vec<Format>,
    /// Tensors that the checkpoint has as codes of these formats, which are rounded anew.
    pub requantized: Requantized,
    /// Scales that the method has moved, where it moves any.
    pub moved: Option<Scales>,
    /// Policies by which caches keep parts of sequences, a line each.
    pub policies: Vec<String>,
    /// One per target, in their order; at least one.
    pub versions: Vec<Version>,
    /// For each function the part of a model's layers that it computes, where forms are chosen by parts; else empty.
    pub parts: Vec<Part>,
    /// Errors of samples of weights, as far as they were measured.
    pub(crate) samples: Measured,
    /// Times.
    pub phases: Phases,
}

/// Where the weights of a model come from.
pub enum Origin {
    /// A checkpoint.
    Checkpoint(Box<Checkpoint>),
    /// An artifact of the same model.
    Artifact(Box<Remade>),
}

/// An artifact from which another one is made, with the same choices.
pub struct Remade {
    /// Its weights.
    pub weights: Box<dyn WeightSource>,
    /// Its manifest, as it stands there.
    pub manifest: Value,
    /// Its choices.
    pub choices: Choices,
}

/// A checkpoint and its model.
pub struct Lifted {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Graph level.
    pub module: Module,
    /// Room for adapters.
    pub adapters: Option<AdapterTable>,
    /// Parts of the checkpoint that were ignored.
    pub warnings: Vec<String>,
    /// The longest sequence for which LongRoPE has its short factors, of models that have longer ones.
    pub original_context: Option<usize>,
    /// Tensors that the checkpoint has as codes of these formats, which are rounded anew.
    pub requantized: Requantized,
    /// Scales that the method has moved, where it moves any.
    pub moved: Option<Scales>,
    /// The policies for caches, and the caches that each has changed.
    pub policies: Vec<(policy::Given, policy::Applied)>,
}

/// Scales that a method has moved between the columns of products and the producers of their inputs.
#[derive(Clone, Copy, Debug)]
pub struct Scales {
    /// Groups of products.
    pub moved: Moved,
    /// Format whose rounding errors they are chosen by.
    pub format: Format,
}

/// Names shown in a warning that has many.
const SHOWN: usize = 4;

/// The model compiled for one target.
pub struct Version {
    /// The target.
    pub target: &'static TargetSpec,
    /// Plan and the passes' report.
    pub compiled: Compiled,
    /// One per kernel of the plan.
    pub objects: Vec<Object>,
    /// Activations.
    pub act: ActPolicy,
}

/// Opens the checkpoint and lifts it to the graph level.
///
/// # Errors
/// Whatever is wrong with the checkpoint.
pub fn lift(options: &CompileOptions) -> Result<Lifted, Error> {
    let checkpoint = match options.place {
        WeightsPlace::Absent => Checkpoint::open_without_data(&options.checkpoint, &options.adapters)?,
        WeightsPlace::Embed | WeightsPlace::External => Checkpoint::open_with(&options.checkpoint, &options.adapters)?,
    };
    let mut checkpoint = options.with_draft(checkpoint)?;
    let decoded = requantized::decode(options, &mut checkpoint)?;
    let model = llmcc_frontends::arch::config(&checkpoint)?;
    // With policies, sequences may outgrow the positions that the model has.
    let beyond = options.max_context.filter(|n| *n > model.facts().max_position && !options.policies.is_empty());
    let max_context = if beyond.is_some() { None } else { options.max_context };
    let lift_with = |kv_dtype| {
        llmcc_frontends::lift(
            &checkpoint,
            &llmcc_frontends::Options {
                kv_dtype,
                max_context,
                embed: options.embed,
                also_embed: options.also_embed,
                with_image: options.with_image,
                draft_heads: options.draft_heads,
                hidden_states: options.hidden_states,
            },
        )
    };
    let mut module = lift_with(options.kv.unwrap_or(KvDType::F16))?;
    let wide = coded(options, &module).is_empty() && weight_format(options, &module) == Format::F32;
    if options.kv.is_none() && !options.choose.kv && wide {
        module = lift_with(KvDType::F32)?;
    }
    let mut warnings = left_aside(options, &checkpoint, &model, &module)?;
    let policies = kept(&mut module, &options.policies, &mut warnings)?;
    if let Some(context) = beyond {
        policy::lengthen(&mut module, context)
            .map_err(|why| Error::Usage(format!("--max-context {context}: {why}")))?;
    }
    let adapters = match &options.slots {
        Some(slots) => {
            let slots = AdapterSlots { wide: Some(slots.wide.unwrap_or(wide)), ..slots.clone() };
            Some(room(&mut module, &slots, &mut warnings)?)
        }
        None => None,
    };
    if options.tap {
        warnings.extend(tap(&mut module)?);
    }
    let original_context = model.original_context;
    warnings.extend(long_factors(options, original_context, module.info.max_context));
    let requantized = requantized::of_model(decoded, &module);
    let moved = moved(options, &checkpoint, &mut module)?;
    Ok(Lifted { checkpoint, module, adapters, warnings, original_context, requantized, moved, policies })
}

/// Lets caches keep a part of a sequence.
fn kept(
    module: &mut Module,
    given: &[policy::Given],
    warnings: &mut Vec<String>,
) -> Result<Vec<(policy::Given, policy::Applied)>, Error> {
    let mut given = given.to_vec();
    for policy in &mut given {
        policy.load(llmcc_frontends::input::read_text)?;
    }
    let applied = policy::apply(module, &given).map_err(|why| Error::Usage(format!("--kv-policy {why}")))?;
    let all: Vec<_> = given.into_iter().zip(applied).collect();
    let left = all.iter().flat_map(|(_, applied)| &applied.left);
    for (layer, why) in left.clone().take(SHOWN) {
        warnings.push(format!("--kv-policy leaves the cache of layer {layer} as it is: {why}"));
    }
    if let Some(more) = left.count().checked_sub(SHOWN).filter(|more| *more > 0) {
        warnings.push(format!("--kv-policy leaves {more} more caches as they are"));
    }
    Ok(all)
}

/// Moves scales, if that is the method. Formats of a mixture are not chosen yet: errors are measured in its smallest.
fn moved(options: &CompileOptions, checkpoint: &Checkpoint, module: &mut Module) -> Result<Option<Scales>, Error> {
    if !options.moves_scales() {
        return Ok(None);
    }
    let format = if options.has_budget() { MIXTURE[0] } else { weight_format(options, module) };
    let moved = move_scales(module, &Source::new(checkpoint, options), format)?;
    Ok(Some(Scales { moved, format }))
}

/// A warning about a context that nobody asked for, and that gives short sequences other positions
/// than they were trained with.
fn long_factors(options: &CompileOptions, original: Option<usize>, context: usize) -> Option<String> {
    let original = original.filter(|n| options.max_context.is_none() && context > *n)?;
    Some(format!(
        "positions use the long factors of LongRoPE, as the context is {context} tokens; Transformers uses the \
            short ones for sequences of at most {original} tokens: --max-context {original} compiles those"
    ))
}

/// Adds the entry that shows the inputs of products. Returns a warning where it does not show all.
fn tap(module: &mut Module) -> Result<Option<String>, Error> {
    let left = llmcc_passes::module::tap::add(module).map_err(|e| Error::Usage(format!("--tap: {e}")))?;
    let few = left.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    let more = if left.len() > SHOWN { format!(" and {} more", left.len() - SHOWN) } else { String::new() };
    Ok((!left.is_empty()).then(|| {
        format!(
            "--tap shows no inputs of {few}{more}: the model multiplies matrices that are computed from these, or \
                parts of them for each head"
        )
    }))
}

/// Makes room for adapters.
fn room(module: &mut Module, slots: &AdapterSlots, warnings: &mut Vec<String>) -> Result<AdapterTable, Error> {
    let (table, left) = llmcc_frontends::slots::reserve(module, slots).map_err(Error::Usage)?;
    if !left.is_empty() {
        warnings.push(format!(
            "no room for adapters of {}: the model multiplies these matrices together with others",
            left.join(", ")
        ));
    }
    Ok(table)
}

/// Fields that nobody knows, and with [`CompileOptions::ignore_unused`] the tensors without a use.
fn left_aside(
    options: &CompileOptions,
    checkpoint: &Checkpoint,
    model: &Model,
    module: &Module,
) -> Result<Vec<String>, Error> {
    let file = checkpoint.config_path().file_name().unwrap_or_default().to_string_lossy();
    let mut warnings: Vec<String> = vec![];
    for field in &model.unread {
        let sees = field.starts_with("`vision_config`") && llmcc_frontends::arch::has_tower(checkpoint.config());
        match (sees, options.with_image) {
            (true, true) => {}
            (true, false) => warnings.push(format!("{file}: {field}, which --with-image reads")),
            (false, _) => warnings.push(format!("{file}: {field}, which is not read")),
        }
    }
    warnings.extend(own_bits(options, module)?);
    warnings.extend(checkpoint.notes().iter().cloned());
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

/// The formats of the matrices that the checkpoint has as codes, and how many there are of each; none
/// where they are to be floats.
pub fn coded(options: &CompileOptions, module: &Module) -> BTreeMap<Format, usize> {
    let mut out = BTreeMap::new();
    if options.weights.is_none_or(|f| f.is_quantized()) {
        for format in module.weights.iter().filter_map(|w| w.ty.dtype.coded()) {
            *out.entry(format).or_insert(0) += 1;
        }
    }
    out
}

/// A note about matrices that keep their own bits, where a format was asked for.
///
/// # Errors
/// [`Error::Usage`] when there are no others, so that the format asked for is of nothing.
fn own_bits(options: &CompileOptions, module: &Module) -> Result<Option<String>, Error> {
    let coded = coded(options, module);
    if coded.is_empty() {
        return Ok(None);
    }
    let list: Vec<_> = coded.iter().map(|(format, n)| format!("{n} as {format}")).collect();
    let list = list.join(", ");
    let plain = module.weights.iter().any(|w| w.ty.shape.len() == 2 && w.ty.dtype.coded().is_none());
    match options.weights {
        Some(wanted) if !plain && options.keep_quantized.is_some() => Err(Error::Usage(format!(
            "--keep-quantized keeps all matrices as they are ({list}), so nothing would be {wanted}: leave one of \
             the options out, or name fewer"
        ))),
        Some(_) => Ok(Some(format!("matrices that are quantized already keep their own bits ({list})"))),
        None => Ok(None),
    }
}

/// The storage most matrices of the checkpoint have that are floats.
pub fn stored_format(module: &Module) -> Format {
    let count = |t: DType| module.weights.iter().filter(|w| w.ty.shape.len() == 2 && w.ty.dtype == t).count();
    let floats = [(DType::F32, Format::F32), (DType::F16, Format::F16), (DType::Bf16, Format::BF16)];
    let most = floats.into_iter().max_by_key(|(t, _)| count(*t));
    most.filter(|(t, _)| count(*t) > 0).map_or(Format::F32, |(_, f)| f)
}

/// Everything up to machine code.
///
/// # Errors
/// Whatever is wrong with the checkpoint; [`Error::Failed`] for generic kernels with
/// `deny_fallback`.
pub fn lower(options: &CompileOptions, backend: &dyn Backend) -> Result<Lowered, Error> {
    let mut phases = Phases::default();
    let Lifted { checkpoint, mut module, adapters, warnings, original_context, requantized, moved, policies } =
        phases.time("read", || lift(options))?;
    let parts = if options.damage.is_some() { divide(&mut module, PARTS) } else { vec![] };
    let mut texts = phases.time("tokenizer", || TextAssets::load(&checkpoint))?;
    if let (false, Some(config)) = (module.output() == Output::Logits, texts.text_config.as_object_mut()) {
        // It generates nothing.
        config.remove("generation");
    }
    if let (true, Some(config)) = (options.with_image, texts.text_config.as_object_mut()) {
        let own = llmcc_frontends::image_document(&checkpoint)?;
        let media = config.entry("media").or_insert_with(|| serde_json::json!({}));
        if let (Some(media), Some(own)) = (media.as_object_mut(), own.as_object()) {
            media.extend(own.clone());
        }
    }
    let format = weight_format(options, &module);
    // Packing measures only the tensors it packs.
    let whole = options.place == WeightsPlace::Absent && options.choose.error_budget.is_some();
    let (mut errors, mut samples) = (Measured::new(), Measured::new());
    let source = Source::new(&checkpoint, options);
    let known = if whole { Known::Whole(&mut errors) } else { Known::Samples(&mut samples) };
    let versions = versions(options, (&source, &module), backend, known, &mut phases)?;
    check_ranges(options, &versions)?;
    let coded = coded(options, &module).into_keys().collect();
    let policies = policies.iter().map(|(policy, applied)| kept_line(policy, applied)).collect();
    Ok(Lowered {
        origin: Origin::Checkpoint(Box::new(checkpoint)),
        texts,
        module,
        adapters,
        warnings,
        original_context,
        format,
        coded,
        requantized,
        moved,
        policies,
        versions,
        parts,
        samples,
        phases,
    })
}

/// A line about a policy for caches.
fn kept_line(policy: &policy::Given, applied: &policy::Applied) -> String {
    format!("{} of {} caches keep a part of a sequence ({policy})", applied.changed, applied.layers)
}

/// Refuses a method for inputs that are rounded to int8 where none are.
fn check_ranges(options: &CompileOptions, versions: &[Version]) -> Result<(), Error> {
    let ranges = options.method.moves.is_some_and(|m| m.ranges);
    match versions.first().filter(|_| ranges && !versions.iter().any(|v| v.act == ActPolicy::Int8)) {
        None => Ok(()),
        Some(v) => Err(Error::Usage(format!(
            "--method {} is for products of int8 activations, and here they have {} ones: give --act int8 with integer \
                weights and a target that multiplies them, or --method awq",
            options.method.name, v.act
        ))),
    }
}

impl Lowered {
    /// The choices that hold for any target.
    pub fn choices(&self, options: &CompileOptions) -> Choices {
        let checkpoint = match &self.origin {
            Origin::Checkpoint(checkpoint) => checkpoint,
            Origin::Artifact(remade) => return remade.choices.clone(),
        };
        let preferred = &self.preferred().compiled;
        let chooses_cache = options.choose.kv && options.kv.is_none();
        let cache: BTreeSet<KvDType> = preferred.plan.kv().filter(|_| chooses_cache).map(|kv| kv.dtype).collect();
        Choices {
            format: self.format.to_string(),
            asked: options.weights.map(|f| f.to_string()),
            mixture: options.has_budget(),
            chosen: preferred.error.is_some(),
            activations: options.act.map(|a| a.to_string()),
            cache: cache.iter().map(ToString::to_string).collect(),
            keep_scales: options.moves_scales(),
            rounds_inputs: checkpoint.rounds_inputs(),
            requantized: self.requantized.iter().map(|(f, names)| (f.to_string(), names.clone())).collect(),
            policies: self.policies.clone(),
        }
    }

    /// The version for the most wanted target: facts about a model as a whole (its plan, its
    /// predicted speed) come from this one.
    pub fn preferred(&self) -> &Version {
        &self.versions[0]
    }

    /// Compiles all versions again, by other options for the same checkpoint. The time that takes is not noted.
    ///
    /// # Errors
    /// As [`lower`].
    pub fn recompile(&mut self, options: &CompileOptions, backend: &dyn Backend) -> Result<(), Error> {
        let mut phases = Phases::default();
        let Origin::Checkpoint(checkpoint) = &self.origin else { return Err(no_checkpoint()) };
        let source = Source::new(checkpoint, options);
        self.versions =
            versions(options, (&source, &self.module), backend, Known::Samples(&mut self.samples), &mut phases)?;
        Ok(())
    }

    /// Compiles all versions again, with errors of whole weights instead of samples.
    ///
    /// # Errors
    /// As [`lower`].
    pub fn choose_again(
        &mut self,
        options: &CompileOptions,
        backend: &dyn Backend,
        mut whole: Measured,
        phases: &mut Phases,
    ) -> Result<(), Error> {
        let Origin::Checkpoint(checkpoint) = &self.origin else { return Err(no_checkpoint()) };
        let source = Source::new(checkpoint, options);
        self.versions = versions(options, (&source, &self.module), backend, Known::Whole(&mut whole), phases)?;
        Ok(())
    }
}

/// The error where choices are to be made again without the checkpoint.
fn no_checkpoint() -> Error {
    Error::Failed("internal error: forms are chosen again without a checkpoint; please report this".into())
}

/// The error where int8 rows have nothing to be multiplied with.
pub(crate) fn int8_of_floats() -> Error {
    let integers = FORMATS.iter().flat_map(|d| d.formats()).filter(|f| f.encoding().integer_group().is_some());
    let names: Vec<String> = integers.map(|f| f.to_string()).collect();
    Error::Usage(format!(
        "--act int8 needs integer weights: give --w4, --w4a, --w8, --error-budget, or --format with one of {}",
        names.join(", ")
    ))
}

/// Errors of weights that were measured before; those measured now are added.
enum Known<'a> {
    /// Errors of samples.
    Samples(&'a mut Measured),
    /// Errors of whole weights, by which an error budget is kept.
    Whole(&'a mut Measured),
}

/// Compiles the model for all targets; see [`version`].
fn versions(
    options: &CompileOptions,
    model: (&Source<'_>, &Module),
    backend: &dyn Backend,
    mut known: Known<'_>,
    phases: &mut Phases,
) -> Result<Vec<Version>, Error> {
    if options.targets.is_empty() {
        return Err(Error::Usage("name at least one target (`llmcc targets` lists them)".into()));
    }
    options.targets.iter().map(|target| version(options, target, model, backend, &mut known, phases)).collect()
}

/// Compiles the model for one target.
fn version(
    options: &CompileOptions,
    target: &'static TargetSpec,
    (source, module): (&Source<'_>, &Module),
    backend: &dyn Backend,
    known: &mut Known<'_>,
    phases: &mut Phases,
) -> Result<Version, Error> {
    if options.act == Some(ActPolicy::Int8) && !options.converts() && coded(options, module).is_empty() {
        return Err(int8_of_floats());
    }
    let pass_options = pass_options(options, target, (source.checkpoint.rounds_inputs(), module));
    let compiled = phases.time("rewrite", || match known {
        Known::Whole(errors) => llmcc_passes::budget::compile_exactly(module, &pass_options, source, errors),
        Known::Samples(errors) => llmcc_passes::compile_by_samples(module, &pass_options, source, errors),
    })?;
    let objects = phases.time("codegen", || backend.lower_all(&compiled.plan.kernels, target))?;
    if options.deny_fallback {
        deny_fallback(&compiled, &objects)?;
    }
    Ok(Version { target, compiled, objects, act: pass_options.act })
}

/// The options of passes for a module, whose checkpoint may round the inputs of products itself.
pub(crate) fn pass_options(
    options: &CompileOptions,
    target: &'static TargetSpec,
    (rounds_inputs, module): (bool, &Module),
) -> llmcc_passes::Options {
    let mixture = |of: &[Format]| [of, &exact_formats(options, module)].concat();
    let mut o = match (options.choose.error_budget, &options.damage) {
        (Some(budget), _) => llmcc_passes::Options::within(target, mixture(MIXTURE), budget),
        (None, Some(damage)) => llmcc_passes::Options::damaged(target, mixture(COMPRESSED), damage.clone()),
        (None, None) => llmcc_passes::Options::new(target, weight_format(options, module)),
    };
    let coded = coded(options, module);
    // Codes of a checkpoint are multiplied as those that are made here.
    if options.weights.is_none() && !coded.is_empty() {
        o.act = llmcc_passes::of_codes(target);
    }
    // Activations that the checkpoint rounds are not rounded again, unless that is asked for.
    if rounds_inputs && o.act == ActPolicy::Int8 {
        o.act = ActPolicy::F32;
    }
    o.keep_codes = !coded.is_empty();
    o.keep_types = !options.converts();
    o.keep_scales = options.moves_scales();
    if let Some(act) = options.act.filter(|a| target.multiplies(*a)) {
        o.act = act;
    }
    if options.choose.kv && options.kv.is_none() {
        o.kv = KvDType::ALL.iter().map(|(dtype, _)| *dtype).collect();
    }
    o.explain = options.explain;
    o
}

/// Storages in which nothing of a mixture's matrices is lost: products of weights and scales are f32.
fn exact_formats(options: &CompileOptions, module: &Module) -> Vec<Format> {
    let mut found = stored_formats(module);
    if options.moves_scales() && !found.contains(&Format::F32) {
        found.push(Format::F32);
    }
    found
}

/// The storages that matrices of the checkpoint have: nothing is lost in them.
fn stored_formats(module: &Module) -> Vec<Format> {
    let matrices = || module.weights.iter().filter(|w| w.ty.shape.len() == 2);
    let all = [(DType::F32, Format::F32), (DType::F16, Format::F16), (DType::Bf16, Format::BF16)];
    let mut found: Vec<Format> =
        all.into_iter().filter(|(t, _)| matrices().any(|w| w.ty.dtype == *t)).map(|(_, f)| f).collect();
    if found.is_empty() {
        found.push(Format::F32);
    }
    found
}

/// Refuses kernels that take a generic path.
pub(crate) fn deny_fallback(compiled: &Compiled, objects: &[Object]) -> Result<(), Error> {
    let slow: Vec<String> = compiled
        .plan
        .kernels
        .iter()
        .zip(objects)
        .filter_map(|(k, o)| o.generic.map(|why| format!("  {}: {why}", k.name)))
        .collect();
    if slow.is_empty() {
        return Ok(());
    }
    Err(Error::Failed(format!("{} kernels take a generic path (--deny-fallback):\n{}", slow.len(), slow.join("\n"))))
}

/// Tensors of a checkpoint for packing, and how they become codes.
pub(crate) struct Source<'a> {
    checkpoint: &'a Checkpoint,
    statistics: Option<&'a Statistics>,
    method: &'static Method,
    pruning: Option<Pruning>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(checkpoint: &'a Checkpoint, options: &'a CompileOptions) -> Source<'a> {
        Source { checkpoint, statistics: options.statistics(), method: options.method, pruning: options.pruning }
    }
}

impl WeightSource for Source<'_> {
    fn tensor(&self, name: &str) -> Option<TensorBytes<'_>> {
        let t = self.checkpoint.tensor(name)?;
        Some(TensorBytes { dtype: t.dtype, shape: t.shape.clone(), data: t.data })
    }
    fn rows(&self, name: &str) -> Option<Box<dyn StoredRows + '_>> {
        self.checkpoint.rows(name)
    }
    fn moments(&self, name: &str) -> Option<Moments<'_>> {
        self.statistics?.moments(name)
    }
    fn method(&self) -> &'static Method {
        self.method
    }
    fn pruning(&self) -> Option<Pruning> {
        self.pruning
    }
    fn release(&self, name: &str) {
        self.checkpoint.release(name);
    }
}
