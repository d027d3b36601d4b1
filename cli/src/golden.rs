//! Golden vectors: an artifact's results where it was made, kept in its manifest, so that `llmcc
//! verify` can tell whether it still computes the same.
//!
//! The steps are fixed but for their token ids, which follow from a seed: the hash of code and
//! weights. So an artifact whose weights were changed together with all hashes of them is asked for
//! other tokens than its golden vectors are about, and fails. Logits are compared bit for bit: they
//! do not depend on threads or batching. They come from one version of the model, for a processor;
//! another version of the same artifact rounds elsewhere, and is compared with a tolerance
//! ([`Distance`]). Draft heads get rows that follow from the ids (`loaded::stand_ins`).
//! Each entry of the artifact has steps of its own.
//!
//! `llmcc compile` runs the finished artifact in a child process, under its temporary name:
//! generated code cannot take the compiler down. For small models it also evaluates the plan with
//! [`llmcc_ir::eval`], which shares no code with the artifact, and refuses to write an artifact
//! that is further from it than [`bound`].

mod oracle;
mod run;
mod steps;

pub use oracle::{Weights, bound, evaluate, multiply_adds, overflow, sensitivity};
pub use run::{Answer, Batching, OwnOrder, Ran, compute_in_child, device_of, inherit};
pub use steps::{Computed, Distance, SCHEME, Shape, Sizes, Step, compute, engine_options, entries, seed, steps};

use crate::Error;
use crate::lowered::{Lowered, Version};
use crate::options::CompileOptions;
use crate::shared::SharedWeights;
use llmcc_abi::Span;
use llmcc_codegen::link::WeightsPlace;
use llmcc_codegen::locate::locate;
use llmcc_ir::kv::KvDType;
use llmcc_ir::plan::Plan;
use llmcc_ir::quant::Format;
use llmcc_ir::target::Family;
use llmcc_passes::ActPolicy;
use serde::{Deserialize, Serialize};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Models whose steps take more multiply-adds than this are not evaluated: it would take more than
/// about a second.
const EVALUATED: u64 = 200_000_000;
/// How much further an artifact's logits may be from the evaluator's than those are from themselves
/// when weights change by some units in the last place.
const CONDITION: f64 = 4.0;

/// The golden vectors of an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Golden {
    /// [`SCHEME`] they were made by.
    pub scheme: u32,
    /// Target of the code that computed them.
    pub target: String,
    /// By step.
    pub steps: Vec<Computed>,
}

/// The compiler's knowledge of an artifact's results.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Golden vectors, and their largest relative difference to the evaluator's result where the
    /// model is small enough for that.
    Vectors(Golden, Option<f64>),
    /// None, and why.
    Absent(String),
}

/// The first logit that is not finite: step, row, entry, value.
fn not_finite(steps: &[Step], computed: &[Computed]) -> Option<(usize, usize, usize, f32)> {
    let all = steps.iter().zip(computed).enumerate();
    let rows = all.flat_map(|(i, (step, s))| (0..s.rows.len()).map(move |r| (i, r, step, s)));
    rows.flat_map(|(i, r, step, s)| entries(step.columns).zip(s.row(r)).map(move |(e, v)| (i, r, e, v)))
        .find(|(.., v)| !v.is_finite())
}

/// Runs the finished artifact at `path` for its golden vectors and holds them against the
/// evaluator.
///
/// # Errors
/// It does not run; logits that are not finite; a difference to the evaluator beyond [`bound`].
pub fn examine(
    l: &Lowered,
    shared: &SharedWeights,
    options: &CompileOptions,
    path: &Path,
    seed: u64,
) -> Result<Outcome, Error> {
    if options.place == WeightsPlace::Absent {
        return Ok(Outcome::Absent("compiled without its weights".into()));
    }
    let Some(program) = &options.golden else { return Ok(Outcome::Absent("compiled with --no-golden".into())) };
    let ran = match runs_here(&l.versions) {
        Ok(ran) => ran,
        Err(why) => return Ok(Outcome::Absent(why)),
    };
    let version = &l.versions[ran];
    let plan = &version.compiled.plan;
    let computed = compute_in_child(program, path, seed, "cpu", 0, false)
        .and_then(Answer::ran)
        .map(|ran| ran.steps)
        .map_err(|e| {
            Error::Failed(format!(
                "the artifact was compiled but does not run here, so nothing was written ({e})\nIf this machine \
                lacks a requirement (memory, a folder from which code may run), use --no-golden; else please \
                report this"
            ))
        })?;
    let steps = steps(seed, &Sizes::of_plan(plan));
    if let Some((step, row, entry, v)) = not_finite(&steps, &computed) {
        return Err(Error::Failed(format!(
            "the compiled model computes {v} (step {}, row {row}, entry {entry} of the logits), so nothing was \
                written: the checkpoint's values overflow on the way{}; --no-golden writes it anyway",
            step + 1,
            wider(l.format, version)
        )));
    }
    let difference = match multiply_adds(plan, &steps) <= EVALUATED {
        true => Some(hold_against_evaluator(plan, &shared.spans()[ran], path, &steps, &computed)?),
        false => None,
    };
    Ok(Outcome::Vectors(Golden { scheme: SCHEME, target: version.target.name.into(), steps: computed }, difference))
}

/// The version that the runtime takes on this machine's processor, that for its highest level; else
/// why there is none.
fn runs_here(versions: &[Version]) -> Result<usize, String> {
    let cpus = || versions.iter().enumerate().filter(|(_, v)| v.target.family() == Family::Cpu);
    if let Some((ran, _)) = cpus().filter(|(_, v)| v.target.runs_here()).max_by_key(|(_, v)| v.target.cpu()) {
        return Ok(ran);
    }
    Err(match (cpus().next(), versions.first()) {
        (Some((_, v)), _) => format!("the compiling machine's processor cannot run code for {}", v.target.name),
        (None, wanted) => format!(
            "a processor computes them, and there is no version for one (`--target {},x86-64-v3` adds it)",
            wanted.map_or("native", |v| v.target.name)
        ),
    })
}

/// How far a version's result is from the evaluator's, relative to the largest logit. `weights` is
/// its part of the weights segment of the artifact at `path`.
fn hold_against_evaluator(
    plan: &Plan,
    (span, offsets): &(Span, Vec<u64>),
    path: &Path,
    steps: &[Step],
    computed: &[Computed],
) -> Result<f64, Error> {
    let places: Vec<u64> = offsets.iter().map(|at| span.off + at).collect();
    let packed = read(path)?;
    let weights = Weights { bytes: &packed, offsets: &places };
    let evaluated = evaluate(plan, weights, steps, computed)?;
    if !evaluated.finite {
        return Err(Error::Failed(
            "the model overflows: evaluated with f32 between its operations, its logits are not all finite, so \
                nothing was written: the checkpoint's values are too large; --no-golden writes it anyway"
                .into(),
        ));
    }
    let (found, mut allowed) = (evaluated.difference, bound(plan));
    if found > allowed {
        if let Some((kernel, value)) = overflow(plan, weights, steps)? {
            return Err(Error::Failed(format!(
                "the model's values are too large for f32: `{kernel}` computes {value:e}, and the sum of squares in the norm after it overflows, so that logits are wrong; nothing \
                 was written: scale the checkpoint's weights down (trained models have no such values); \
                 --no-golden writes it anyway"
            )));
        }
        // The size of rounding errors depends on the model: one with huge weights may turn on the
        // last bits of a score.
        let enough = found / CONDITION;
        allowed = allowed.max(CONDITION * sensitivity(plan, weights, steps, (&evaluated, enough))?);
    }
    if found > allowed {
        return Err(Error::Failed(format!(
            "internal error: the artifact's logits differ from the evaluator's by {found:.1e} of the largest \
                logit; rounding explains at most {allowed:.0e}; nothing was written; please report this with \
                the command line",
        )));
    }
    Ok(found)
}

/// The next format with larger values than the one chosen for a version.
fn wider(format: Format, v: &Version) -> String {
    let mut wider = vec![];
    if v.compiled.plan.kv().any(|k| k.dtype == KvDType::F16) {
        wider.push("--kv bf16");
    }
    if v.act != ActPolicy::F32 && format.is_quantized() {
        wider.push("--act f32");
    }
    if format != Format::F32 {
        wider.push("--dtype f32");
    }
    if wider.is_empty() { ", in f32: scale its weights down".into() } else { format!(" (try {})", wider.join(", ")) }
}

/// The packed weights of the artifact at `path`.
fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let part = locate(path)?.weights;
    let mut bytes = vec![0; part.len as usize];
    let read = |bytes: &mut [u8]| -> std::io::Result<()> {
        let mut file = std::fs::File::open(&part.path)?;
        file.seek(SeekFrom::Start(part.offset))?;
        file.read_exact(bytes)
    };
    read(&mut bytes).map_err(|e| Error::io("read", &part.path, e))?;
    Ok(bytes)
}

/// The first difference between golden vectors and results, in words.
pub fn difference(want: &[Computed], got: &[Computed], steps: &[Step]) -> Option<String> {
    if want.len() != got.len()
        || want.iter().zip(got).any(|(w, g)| w.tokens != g.tokens || w.rows.len() != g.rows.len())
    {
        return Some("its golden vectors belong to other steps than this llmcc computes".into());
    }
    let (i, (w, g)) = want.iter().zip(got).enumerate().find(|(_, (w, g))| w != g)?;
    let place = format!("step {} of {} ({} tokens)", i + 1, want.len(), w.tokens);
    for row in 0..w.rows.len() {
        let token = steps.get(i).and_then(|s| s.out_rows.get(row)).copied().unwrap_or_default();
        let columns = steps.get(i).map_or(0, |s| s.columns);
        for (entry, (a, b)) in entries(columns).zip(w.row(row).into_iter().zip(g.row(row))) {
            if a.to_bits() != b.to_bits() {
                return Some(format!(
                    "{place}: logit {entry} after token {token} is {b:?}, when compiled it was {a:?}"
                ));
            }
        }
    }
    Some(format!(
        "{place}: logits differ from when it was compiled (SHA-256 {}, was {}), in entries whose values are not kept",
        g.sha256, w.sha256
    ))
}

#[cfg(test)]
mod tests;
