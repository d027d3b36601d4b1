//! The closing report of `compile` as a JSON document (`--json`).

use super::doubts;
use crate::checked::Check;
use crate::digest::hex;
use crate::golden::Outcome;
use crate::lowered::{Lowered, Version};
use crate::memory::Need;
use crate::options::CompileOptions;
use crate::predicted::{self, Text};
use crate::session::Finished;
use crate::{certificate, manifest, pruned};
use llmcc_codegen::link::{WeightsPlace, weights_path};
use llmcc_passes::{Choice, Stored, regimes};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The closing report: sizes in bytes, times in seconds, errors as shares of 1. `said` are warnings that were printed
/// before.
pub fn document(l: &Lowered, f: &Finished, options: &CompileOptions, out: &Path, said: &[String]) -> Value {
    let plan = &l.preferred().compiled.plan;
    let (per_token, per_row) = plan.arena();
    let need = Need::of(l.preferred());
    let beside = options.place != WeightsPlace::Embed;
    let warnings: Vec<String> = said.iter().cloned().chain(doubts(l, f, options)).collect();
    let seconds: Map<String, Value> = f.phases.0.iter().fold(Map::new(), |mut all, (name, t)| {
        // A phase may run again.
        let before = all.get(*name).and_then(Value::as_f64).unwrap_or(0.0);
        all.insert((*name).into(), (before + t.as_secs_f64()).into());
        all
    });
    json!({
        "artifact": out.display().to_string(),
        "bytes": f.bytes,
        "weights_file": beside.then(|| weights_path(out).display().to_string()),
        "model": l.module.name,
        "root": hex(&f.root),
        "runtime": { "kind": f.runtime.0.described().0, "bytes": f.runtime.1 },
        "code_bytes": f.code_bytes,
        "weights": {
            "bytes": plan.weight_bytes(),
            "by_format": manifest::bytes_by_format(plan),
            "largest_relative_rms_error": manifest::largest_error(&f.packed),
        },
        "requantized": l.requantized.iter().map(|(from, tensors)| {
            json!({ "from": from.to_string(), "to": l.format.to_string(), "tensors": tensors })
        }).collect::<Vec<_>>(),
        "zeros": pruned::zeros(plan, &f.packed),
        "budget": certificate::budget(l.preferred(), options, &f.packed),
        "measured": options.measured,
        "memory": {
            "total": need.total(),
            "weights": need.weights,
            "sequence": need.sequence,
            "adapters": need.adapters,
            "step": need.step,
            "step_tokens": need.step_tokens,
            "max_context": plan.info.max_context,
            "kv_per_token": manifest::kv_bytes_per_token(plan),
            "per_token": per_token,
            "per_row": per_row,
        },
        "versions": l.versions.iter().map(version).collect::<Vec<_>>(),
        "golden": golden(&f.golden),
        "calibration_check": f.check.as_ref().map(Check::document),
        "warnings": warnings,
        "seconds": seconds,
    })
}

/// A version: its target, kernels and predicted speed; with --explain, the choices.
fn version(v: &Version) -> Value {
    let kernels = v.compiled.plan.kernels.iter().zip(&v.objects);
    let generic: Map<String, Value> = kernels.filter_map(|(k, o)| Some((k.name.clone(), o.generic?.into()))).collect();
    let mut all = json!({
        "target": v.target.name,
        "activations": v.act.to_string(),
        "kernels": v.compiled.plan.kernels.len(),
        "generic": generic,
        "predicted_tokens_per_second": 1.0 / v.compiled.predicted_decode_seconds(),
    });
    if let Some(Text { tokens, seconds }) = predicted::text(v) {
        all["predicted_tokens_per_second"] = (tokens as f64 / seconds).into();
        all["predicted_texts_per_second"] = (1.0 / seconds).into();
        all["predicted_text_tokens"] = tokens.into();
    }
    if !v.compiled.explain.is_empty() {
        all["regimes"] = regimes(v.target)
            .iter()
            .map(|r| {
                json!({
                    "max_tokens": r.max_tokens, "costed_at": { "tokens": r.env.tokens, "rows": r.env.rows },
                })
            })
            .collect();
        all["choices"] = v.compiled.explain.iter().map(choice).collect();
        all["stored"] = v.compiled.stored.iter().map(stored).collect();
    }
    all
}

fn choice(c: &Choice) -> Value {
    let next = (!c.runner_up.is_empty()).then(|| json!({ "kernels": c.runner_up, "slower_by_seconds": c.gap }));
    json!({ "func": c.func, "regime": c.regime, "kernel": c.chosen, "seconds": c.seconds, "next": next })
}

fn stored(s: &Stored) -> Value {
    let next = (!s.runner_up.is_empty()).then(|| json!({ "forms": s.runner_up, "slower_by_seconds": s.gap }));
    json!({ "subject": s.subject, "form": s.form, "relative_rms_error": s.error, "next": next })
}

fn golden(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Absent(why) => json!({ "absent": why }),
        Outcome::Vectors(g, difference) => json!({
            "target": g.target,
            "steps": g.steps.len(),
            "tokens": g.steps.iter().map(|s| s.tokens).sum::<usize>(),
            "difference_to_evaluator": difference,
        }),
    }
}
