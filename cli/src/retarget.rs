//! Another machine's artifact from an artifact: the same module, choices and weights, other kernels.
//!
//! The module is compiled as `compile` does with the one format that the artifact was made with. Weights are taken as
//! they are packed, and brought into the order of the new target; nothing is quantized again. Targets may join matrices
//! and fold gains otherwise. Where that would need weights that are not inside, and that cannot be computed without
//! loss from those inside, the module is compiled with these alone, as it is where each matrix has a format of its
//! own.

use crate::Error;
use crate::carried::Carried;
use crate::lowered::{Lowered, Origin, Phases, Remade, Version, coded, deny_fallback, pass_options};
use crate::options::CompileOptions;
use crate::recipe;
use llmcc_codegen::Backend;
use llmcc_codegen::link::WeightsPlace;
use llmcc_ir::kv::KvDType;
use llmcc_ir::target::TargetSpec;
use llmcc_passes::measure::Measured;
use llmcc_passes::{Compiled, Options, PassError};

/// Names of weights in a message that has many.
const SHOWN: usize = 3;

/// The options for another artifact of a model: its choices, for other targets.
///
/// # Errors
/// Choices that this llmcc does not know.
pub fn options(carried: &Carried, targets: Vec<&'static TargetSpec>) -> Result<CompileOptions, Error> {
    let bad = |message: String| Error::Artifact { path: carried.path().to_owned(), message };
    let choices = &carried.recipe.choices;
    let before = &carried.manifest.options;
    Ok(CompileOptions {
        weights: choices.asked.as_deref().map(recipe::format).transpose().map_err(bad)?,
        act: choices.act().map_err(bad)?,
        place: if before.place == "external" { WeightsPlace::External } else { WeightsPlace::Embed },
        soname: before.soname.clone(),
        ..CompileOptions::new(carried.path(), targets)
    })
}

/// Compiles the module of an artifact for all targets.
///
/// # Errors
/// A target that needs weights in forms that are not inside.
pub fn lower(carried: Carried, options: &CompileOptions, backend: &dyn Backend) -> Result<Lowered, Error> {
    let bad = |message: String| Error::Artifact { path: carried.path().to_owned(), message };
    let (mut phases, mut warnings) = (Phases::default(), vec![]);
    let mut versions = vec![];
    for target in &options.targets {
        versions.push(version(&carried, target, options, backend, (&mut phases, &mut warnings))?);
    }
    let choices = carried.recipe.choices.clone();
    let format = recipe::format(&choices.format).map_err(bad)?;
    let requantized = choices.requantized().map_err(bad)?;
    let module = carried.recipe.module.clone();
    Ok(Lowered {
        texts: carried.texts.clone(),
        adapters: carried.manifest.adapters.clone(),
        warnings,
        original_context: carried.manifest.info.long_rope.as_ref().map(|l| l.original_context),
        format,
        coded: coded(options, &module).into_keys().collect(),
        requantized,
        moved: None,
        policies: choices.policies.clone(),
        module,
        versions,
        parts: vec![],
        samples: Measured::new(),
        phases,
        origin: Origin::Artifact(Box::new(Remade {
            manifest: carried.document.clone(),
            weights: Box::new(carried),
            choices,
        })),
    })
}

fn version(
    carried: &Carried,
    target: &'static TargetSpec,
    options: &CompileOptions,
    backend: &dyn Backend,
    (phases, warnings): (&mut Phases, &mut Vec<String>),
) -> Result<Version, Error> {
    let wanted = passes(carried, target, options)?;
    let mixture = carried.recipe.choices.mixture;
    let (compiled, restricted) = phases.time("rewrite", || compile(carried, &wanted, mixture))?;
    if restricted && !mixture {
        warnings.push(format!(
            "{} would join or scale some matrices otherwise than the artifact has them: they stay as they are inside, \
             so that kernels may be others than for the checkpoint",
            target.name
        ));
    }
    if carried.recipe.lists.first().is_some_and(|list| list.states != compiled.plan.states) {
        return Err(refused(carried, target, "its caches would be of other types"));
    }
    let objects = phases.time("codegen", || backend.lower_all(&compiled.plan.kernels, target))?;
    if options.deny_fallback {
        deny_fallback(&compiled, &objects)?;
    }
    Ok(Version { target, compiled, objects, act: wanted.act })
}

/// The options of passes by the choices of the artifact.
fn passes(carried: &Carried, target: &'static TargetSpec, options: &CompileOptions) -> Result<Options, Error> {
    let choices = &carried.recipe.choices;
    let mut options = options.clone();
    // Any budget will do: each matrix has one form.
    options.choose.error_budget = choices.mixture.then_some(f64::INFINITY);
    let mut passes = pass_options(&options, target, (choices.rounds_inputs, &carried.recipe.module));
    passes.keep_scales = choices.keep_scales;
    passes.kv = choices.cache.iter().filter_map(|name| KvDType::parse(name)).collect();
    Ok(passes)
}

/// The plan, and whether only weights could be used that are inside.
fn compile(carried: &Carried, wanted: &Options, mixture: bool) -> Result<(Compiled, bool), Error> {
    let module = &carried.recipe.module;
    if !mixture {
        let compiled = llmcc_passes::compile(module, wanted)?;
        if carried.missing(&compiled.plan.weights, wanted.target).is_empty() {
            return Ok((compiled, false));
        }
    }
    let alone = Options { inside: Some(carried.inside(wanted.target)), ..wanted.clone() };
    let compiled = llmcc_passes::compile(module, &alone).map_err(|e| match e {
        PassError::Extract(_) => refused(carried, wanted.target, &no_program(carried, wanted.target)),
        other => other.into(),
    })?;
    let missing = carried.missing(&compiled.plan.weights, wanted.target);
    if missing.is_empty() {
        return Ok((compiled, true));
    }
    let more = missing.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let named = missing.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    Err(refused(carried, wanted.target, &format!("it needs {named}{more} in forms that are not inside")))
}

/// Why no program can be made of the weights inside.
fn no_program(carried: &Carried, target: &TargetSpec) -> String {
    match carried.fixed(target) {
        Some(format) => {
            format!(
                "it has matrices as {format}, in an order for GPUs that does not keep the codes which processors read"
            )
        }
        None => "it needs matrices in other forms than those inside".into(),
    }
}

fn refused(carried: &Carried, target: &TargetSpec, why: &str) -> Error {
    let message =
        format!("no version for {} can be made of it: {why}; compile the checkpoint for {}", target.name, target.name);
    Error::Artifact { path: carried.path().to_owned(), message }
}
