//! The manifest of a model that was compiled.

use super::{
    Certificate, Code, FORMAT_VERSION, GoldenRecord, Info, LongRope, Manifest, Memory, MovedScales, Options,
    StateGroup, Tensor, Version, Weights,
};
use crate::certificate;
use crate::digest::SourceFile;
use crate::golden::{self, Outcome};
use crate::lowered::{self, Lowered, Origin};
use crate::measured::Measured;
use crate::memory::Need;
use crate::options::CompileOptions;
use crate::predicted;
use crate::pruned;
use crate::requantized;
use crate::shared::SharedWeights;
use crate::version;
use llmcc_abi::PAGE_TOKENS;
use llmcc_abi::layout::window_pages;
use llmcc_codegen::link::WeightsPlace;
use llmcc_frontends::arch::draft_kind;
use llmcc_ir::graph::Op;
use llmcc_ir::kv::{self, KvSpec};
use llmcc_ir::output::{Output, Rows, RowsName};
use llmcc_ir::plan::{PackedWeight, Plan, PlanEntry, Storage, WeightExpr};
use llmcc_ir::quant::Format;
use llmcc_ir::state::{Lifetime, StateSpec};
use llmcc_passes::ActPolicy;
use llmcc_passes::pack::PackReport;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Everything the manifest reports.
pub struct Facts<'a> {
    /// The compiled model.
    pub lowered: &'a Lowered,
    /// Options.
    pub options: &'a CompileOptions,
    /// Size of the code segment.
    pub code_bytes: usize,
    /// Where each version's weights are.
    pub shared: &'a SharedWeights,
    /// Measurements from packing each list of weights; that of the preferred version is the first.
    pub reports: &'a [PackReport],
    /// Source files.
    pub files: Vec<SourceFile>,
    /// The artifact's results on this machine.
    pub golden: Outcome,
}

impl Facts<'_> {
    fn packed(&self) -> &PackReport {
        &self.reports[0]
    }
}

impl Manifest {
    /// The facts about a compiled model. With several versions, facts not kept per version are the
    /// preferred one's.
    pub fn new(f: &Facts<'_>) -> Manifest {
        let own = Manifest::of_compiled(f);
        match &f.lowered.origin {
            Origin::Checkpoint(_) => own,
            Origin::Artifact(remade) => own.of_the_same(Manifest::deserialize(&remade.manifest).unwrap_or_default()),
        }
    }

    /// With the facts about checkpoint and choices that stand in another manifest.
    fn of_the_same(self, before: Manifest) -> Manifest {
        let (options, certificate) = (before.options, before.certificate);
        let names = self.versions.iter().map(|v| v.target.clone());
        let measured = certificate
            .measured
            .map(|m| Measured { not_measured: names.filter(|target| *target != m.target).collect(), ..m });
        Manifest {
            source: before.source,
            options: Options {
                weights: options.weights,
                method: options.method,
                pruned: options.pruned,
                calibration: options.calibration,
                scales: options.scales,
                ..self.options
            },
            certificate: Certificate { budget: certificate.budget, measured, ..self.certificate },
            info: Info { draft: before.info.draft, ..self.info },
            ..self
        }
    }

    fn of_compiled(f: &Facts<'_>) -> Manifest {
        let version = f.lowered.preferred();
        let plan = &version.compiled.plan;
        let packed = f.packed();
        Manifest {
            manifest_version: FORMAT_VERSION,
            llmcc: version::VERSION.into(),
            abi: llmcc_model::Version::OWN.to_string(),
            model: plan.name.clone(),
            source: f.files.clone(),
            options: options(f),
            info: info(f, plan),
            code: Code { bytes: f.code_bytes, kernels: kernels(plan), generic: generic(version) },
            weights: Weights {
                bytes: plan.weight_bytes(),
                read_per_step: read_per_step(plan),
                parameters: plan.parameters().0,
                active_parameters: plan.parameters().1,
                by_format: bytes_by_format(plan),
                tensors: tensors(f, plan),
            },
            versions: f.lowered.versions.iter().map(|v| describe(f.lowered, v, f.options)).collect(),
            kv: plan
                .states
                .iter()
                .filter(|s| !matches!(s.lifetime(), Lifetime::Chosen(_)))
                .map(|s| s.to_string())
                .collect(),
            adapters: f.lowered.adapters.clone(),
            generation: f.lowered.texts.text_config["generation"].as_object().cloned().unwrap_or_default(),
            prompts: f.lowered.texts.prompts.clone(),
            default_prompt: f.lowered.texts.default_prompt.clone(),
            similarity: f.lowered.texts.similarity.clone(),
            classes: classes(f.lowered, plan),
            problem_type: f.lowered.texts.problem_type.clone(),
            pair_activation: f.lowered.texts.pair_activation.clone(),
            memory: memory(version),
            certificate: Certificate {
                largest_relative_rms_error: largest_error(packed),
                rms_error: certificate::measured_error(plan, packed),
                budget: certificate::budget(version, f.options, packed),
                lossy: lossy(f.lowered, version, f.options),
                zeros: pruned::zeros(plan, packed),
                measured: f.options.measured.clone(),
                golden_difference_to_evaluator: match f.golden {
                    Outcome::Vectors(_, difference) => difference,
                    Outcome::Absent(_) => None,
                },
            },
            golden: match &f.golden {
                Outcome::Vectors(g, _) => GoldenRecord::Vectors(g.clone()),
                Outcome::Absent(why) => GoldenRecord::Absent { absent: why.clone() },
            },
        }
    }
}

/// Sizes of a model.
fn info(f: &Facts<'_>, plan: &Plan) -> Info {
    Info {
        output: plan.output().to_string(),
        more_entries: more_entries(plan),
        draft: match &f.lowered.origin {
            Origin::Checkpoint(checkpoint) => draft_kind(checkpoint).map(String::from),
            Origin::Artifact(_) => None,
        },
        source: plan.source().and_then(|e| plan.entries.get(e)).map(|e| e.name.clone()),
        hears: f.lowered.texts.text_config["media"].get("audio").is_some(),
        vocab: plan.info.vocab,
        hidden: plan.info.hidden,
        max_context: plan.info.max_context,
        attention_layers: plan.kv().filter(|k| k.first.is_none()).count(),
        long_rope: f.lowered.original_context.map(|n| LongRope::choose(n, plan.info.max_context)),
    }
}

/// Outputs of all entries but the first; `states` where an entry only updates these.
fn more_entries(plan: &Plan) -> BTreeMap<String, String> {
    let taps = |e: &PlanEntry| (!e.taps.is_empty()).then(|| format!("inputs of products, {} of them", e.taps.len()));
    let outputs = |e: &PlanEntry| {
        let outputs = e.outputs.iter().map(|o| o.output.to_string()).chain(taps(e)).collect::<Vec<_>>();
        if outputs.is_empty() { "states".to_owned() } else { outputs.join(", ") }
    };
    plan.entries.iter().skip(1).map(|e| (e.name.clone(), outputs(e))).collect()
}

/// Names of the classes that are scored.
fn classes(l: &Lowered, plan: &Plan) -> Vec<String> {
    match plan.output() {
        Output::Rows(Rows { name: RowsName::Scores, width, .. }) if width == l.texts.classes.len() => {
            l.texts.classes.clone()
        }
        _ => vec![],
    }
}

fn options(f: &Facts<'_>) -> Options {
    let names = || f.lowered.versions.iter().map(|v| v.target.name.to_owned());
    Options {
        target: names().next().unwrap_or_default(),
        weights: match f.options.choose.error_budget {
            Some(budget) => format!("within an error of {budget}"),
            None if f.options.measured.is_some() => {
                let bounds = f.options.measured.iter().flat_map(|m| &m.bounds);
                format!("within {}", words(bounds.map(|held| held.bound.clone())))
            }
            None if f.lowered.coded.is_empty() => f.lowered.format.to_string(),
            None => {
                let own: Vec<String> = f.lowered.coded.iter().map(ToString::to_string).collect();
                format!("{} as in the checkpoint, others {}", own.join(", "), f.lowered.format)
            }
        },
        method: if f.options.rounds() { f.options.method.name.into() } else { String::new() },
        pruned: pruned::options(f.options),
        calibration: f.options.statistics().map(|s| s.record.clone()),
        scales: scales(f),
        activations: f.lowered.preferred().act.to_string(),
        activations_wanted: f.options.act.map(|a| a.to_string()),
        also: names().skip(1).collect(),
        invariant: f.lowered.versions.iter().any(|v| v.target.wish.invariant),
        requantized: f.lowered.requantized.iter().map(|(from, names)| (from.to_string(), names.len())).collect(),
        place: match f.options.place {
            WeightsPlace::Embed => "embed",
            WeightsPlace::External => "external",
            WeightsPlace::Absent => "absent",
        }
        .into(),
        soname: f.options.soname.clone(),
    }
}

/// The scales that the method moved.
fn scales(f: &Facts<'_>) -> Option<MovedScales> {
    let (scales, moves) = f.lowered.moved.zip(f.options.method.moves)?;
    Some(MovedScales {
        moved: scales.moved.moved,
        ones: scales.moved.kept,
        left_alone: scales.moved.left,
        inputs: if moves.ranges { "largest magnitudes" } else { "root mean squares" }.into(),
        format: (!moves.ranges).then(|| scales.format.to_string()),
    })
}

/// The weights of the preferred version's plan.
fn tensors(f: &Facts<'_>, plan: &Plan) -> Vec<Tensor> {
    let offsets = f.shared.spans().into_iter().next().map(|(_, offsets)| offsets).unwrap_or_default();
    let tensor = |(i, (w, offset)): (usize, (&PackedWeight, u64))| Tensor {
        name: weight_name(&w.expr, f.lowered),
        storage: storage_name(&w.storage),
        offset,
        bytes: w.storage.bytes(),
        relative_rms_error: f.packed().tensors.get(i).and_then(|t| t.error).map(|e| e.relative_rms),
        zeros: f.packed().tensors.get(i).and_then(|t| t.zeros),
    };
    plan.weights.iter().zip(offsets).enumerate().map(tensor).collect()
}

/// Description of one version of the model.
fn describe(l: &Lowered, v: &lowered::Version, options: &CompileOptions) -> Version {
    let plan = &v.compiled.plan;
    Version {
        target: v.target.name.into(),
        activations: v.act.to_string(),
        weights: plan.weight_bytes(),
        read_per_step: read_per_step(plan),
        kernels: kernels(plan),
        generic: generic(v),
        lossy: lossy(l, v, options),
        tolerance: golden::bound(plan),
        predicted: predicted::predict(v),
    }
}

fn memory(v: &lowered::Version) -> Memory {
    let (plan, need) = (&v.compiled.plan, Need::of(v));
    let (per_token, per_row) = plan.arena();
    let fixed = plan.states.iter().filter(|s| s.lifetime() == Lifetime::Last);
    let per_sequence: usize = fixed.map(StateSpec::bytes).sum();
    let room = if need.adapters > 0 { " + adapters" } else { "" };
    let groups = kv_groups(plan, need.step_tokens);
    let windows = match groups.iter().any(|g| g.most_tokens.is_some()) {
        true => "Σ over kv_groups per_token·min(cached tokens, most_tokens)",
        false => "kv_per_token·cached tokens",
    };
    let sequences = if per_sequence > 0 { " + per_sequence·(sequences and their snapshots)" } else { "" };
    Memory {
        formula: format!(
            "weights + {windows}{sequences}{room} + per_token·T + per_row·R  (T tokens and R logits rows in a step)"
        ),
        weights: plan.weight_bytes(),
        kv_per_token: kv_bytes_per_token(plan),
        kv_groups: groups,
        per_sequence,
        adapters: need.adapters,
        per_token,
        per_row,
        sequence: need.sequence,
        step_tokens: need.step_tokens,
        step: need.step,
        total: need.total(),
    }
}

/// The largest relative RMS error that storing made in a matrix; 0 when nothing was quantized, `None` when nothing
/// was packed.
pub fn largest_error(packed: &PackReport) -> Option<f64> {
    let errors = packed.tensors.iter().filter_map(|t| t.error).map(|e| e.relative_rms);
    (!packed.tensors.is_empty()).then(|| errors.fold(0.0, f64::max))
}

/// Everything in a version that is an approximation of the checkpoint.
fn lossy(l: &Lowered, v: &lowered::Version, options: &CompileOptions) -> Vec<String> {
    let (compiled, act) = (&v.compiled, v.act);
    let mut list = vec![];
    let quantized: Vec<Format> = formats(&compiled.plan).into_iter().filter(|f| f.is_quantized()).collect();
    let chosen = match &l.origin {
        Origin::Checkpoint(_) => compiled.error.is_some(),
        Origin::Artifact(remade) => remade.choices.chosen,
    };
    if chosen {
        if !quantized.is_empty() {
            list.push(format!("matrices stored as {}", words(quantized.iter().map(ToString::to_string))));
            if act == ActPolicy::Int8 {
                let groups: BTreeSet<u16> = quantized.iter().map(|f| f.group).collect();
                list.push(format!(
                    "activations entering them as int8 in groups of {}",
                    words(groups.iter().map(ToString::to_string))
                ));
            }
        }
    } else if l.format.is_quantized() {
        list.push(format!("matrices stored as {}", l.format));
        if act == ActPolicy::Int8 {
            list.push(format!("activations entering them as int8 in groups of {}", l.format.group));
        }
        if act == ActPolicy::Fp8 {
            list.push("activations entering them as fp8, a scale per token".into());
        }
    } else if l.format != lowered::stored_format(&l.module) {
        list.push(format!("matrices rounded to {}", l.format));
    }
    if act == ActPolicy::Int8 && !chosen {
        let own: BTreeSet<usize> = l.coded.iter().filter_map(|f| f.encoding().integer_group()).collect();
        if !own.is_empty() && !l.format.is_quantized() {
            let groups = words(own.iter().map(ToString::to_string));
            list.push(format!("activations entering quantized matrices as int8 in groups of {groups}"));
        }
    }
    let pruned = match &l.origin {
        Origin::Checkpoint(_) => pruned::options(options),
        Origin::Artifact(remade) => Option::deserialize(&remade.manifest["options"]["pruned"]).unwrap_or_default(),
    };
    list.extend(pruned.map(|p| format!("weights of the layers' matrices pruned ({} by {})", p.sparsity, p.by)));
    list.extend(requantized::lines(&l.requantized, l.format).into_iter().map(|line| format!("rounded anew: {line}")));
    if let Some(kv) = compiled.plan.kv().next().filter(|k| k.dtype != kv::KvDType::F32) {
        list.push(format!("keys and values cached as {}", kv.dtype));
    }
    list.extend(l.policies.iter().cloned());
    list
}

/// Formats of the matrices of a plan.
fn formats(plan: &Plan) -> BTreeSet<Format> {
    plan.weights
        .iter()
        .filter_map(|w| if let Storage::Matrix { format, .. } = w.storage { Some(format) } else { None })
        .collect()
}

fn words(list: impl Iterator<Item = String>) -> String {
    list.collect::<Vec<_>>().join(", ")
}

/// Kernels that take a slow path, and why.
fn generic(v: &lowered::Version) -> BTreeMap<String, String> {
    v.compiled
        .plan
        .kernels
        .iter()
        .zip(&v.objects)
        .filter_map(|(k, o)| Some((k.name.clone(), o.generic?.into())))
        .collect()
}

fn kernels(plan: &Plan) -> Vec<String> {
    plan.kernels.iter().map(|k| k.name.clone()).collect()
}

/// Bytes of the packed weights by storage format.
pub fn bytes_by_format(plan: &Plan) -> BTreeMap<String, usize> {
    let mut by = BTreeMap::new();
    for w in &plan.weights {
        let format = match w.storage {
            Storage::Matrix { format, .. } => format.to_string(),
            Storage::Vector { .. } => "f32".into(),
        };
        *by.entry(format).or_default() += w.storage.bytes();
    }
    by
}

/// Bytes of weights that a step of one token reads: all but tables that are only looked up; of
/// experts, only the chosen ones.
pub fn read_per_step(plan: &Plan) -> usize {
    let bytes = |(w, share): (&PackedWeight, f64)| (w.storage.bytes() as f64 * share).round() as usize;
    plan.weights.iter().zip(plan.shares()).map(bytes).sum()
}

/// Bytes of cached keys and values per token, over all layers.
pub fn kv_bytes_per_token(plan: &Plan) -> usize {
    per_token(plan.kv().filter(|k| k.first.is_none()))
}

/// Bytes of these states for each token, rounded up.
fn per_token<'a>(states: impl Iterator<Item = &'a KvSpec>) -> usize {
    let page_of_tokens = |k: &KvSpec| k.page().bytes.div_ceil(k.every.max(1));
    states.map(page_of_tokens).sum::<usize>().div_ceil(PAGE_TOKENS)
}

fn kv_groups(plan: &Plan, step_tokens: usize) -> Vec<StateGroup> {
    let groups = plan.groups();
    let members =
        |g: usize| plan.states.iter().zip(&groups).filter(move |(_, of)| **of == g).filter_map(|(s, _)| s.paged());
    let group = |g: usize| StateGroup {
        window: members(g).next().and_then(|k| k.window),
        layers: members(g).count(),
        every: members(g).next().map(|k| k.every).filter(|every| *every > 1),
        first: members(g).next().and_then(|k| k.first).map(|first| first.rows),
        per_token: per_token(members(g)),
        most_tokens: members(g).next().and_then(|k| match (k.window, k.first) {
            (Some(window), _) => Some(PAGE_TOKENS * window_pages(window, step_tokens)),
            (None, first) => first.map(|first| first.rows.next_multiple_of(PAGE_TOKENS)),
        }),
    };
    (0..groups.iter().max().map_or(0, |g| g + 1)).filter(|g| members(*g).next().is_some()).map(group).collect()
}

fn storage_name(s: &Storage) -> String {
    match s {
        Storage::Matrix { n, k, format } => format!("{format}[{n}, {k}]"),
        Storage::Vector { len } => format!("f32[{len}]"),
    }
}

/// A weight expression with tensor names, e.g. `scale_cols(model.layers.0.mlp.up_proj.weight, …)`.
fn weight_name(expr: &WeightExpr, l: &Lowered) -> String {
    match expr {
        WeightExpr::Weight(i) => l.module.weights.get(*i).map_or_else(|| "?".into(), |w| w.name.clone()),
        WeightExpr::Op(Op::Const { value }, _) => value.to_string(),
        WeightExpr::Op(op, args) => {
            let attributes: Vec<String> = op.attributes().iter().map(|(_, value)| value.to_string()).collect();
            let attributes =
                if attributes.is_empty() { String::new() } else { format!("{{{}}}", attributes.join(", ")) };
            let args: Vec<String> = args.iter().map(|x| weight_name(x, l)).collect();
            format!("{}{attributes}({})", op.name(), args.join(", "))
        }
    }
}
