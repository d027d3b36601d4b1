//! The closing report of `compile`.

mod document;

use crate::checked::Check;
use crate::digest::hex;
use crate::golden::Outcome;
use crate::lowered::{Lowered, Version};
use crate::memory::Need;
use crate::options::CompileOptions;
use crate::session::Finished;
use crate::statistics::Statistics;
use crate::{certificate, manifest, predicted, pruned, requantized};
use llmcc_codegen::link::WeightsPlace;
use llmcc_ir::plan::{PackedWeight, Plan, Storage};
use llmcc_ir::quant::{Elem, Format};
use llmcc_ir::target::Family;
use llmcc_passes::method::Moved;
use llmcc_passes::pack::TensorReport;
use llmcc_passes::regimes;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

pub use crate::units::{bytes, count};
pub use document::document;

/// The closing report.
pub fn closing(l: &Lowered, f: &Finished, options: &CompileOptions, out: &Path) -> String {
    let mut s = String::new();
    let preferred = l.preferred();
    let plan = &preferred.compiled.plan;
    let beside = match options.place {
        WeightsPlace::Embed => "",
        WeightsPlace::External => " (weights beside it)",
        WeightsPlace::Absent => " (without weights)",
    };
    let targets: Vec<_> = l.versions.iter().map(|v| v.target.name).collect();
    let _ = writeln!(s, "{}: {} for {}{beside}", out.display(), bytes(f.bytes as f64), targets.join(", "));
    let formats: Vec<_> =
        manifest::bytes_by_format(plan).into_iter().map(|(k, v)| format!("{k} {}", bytes(v as f64))).collect();
    let _ = writeln!(s, "  weights     {} ({})", bytes(plan.weight_bytes() as f64), formats.join(", "));
    for line in grouped(&other_formats(l, f)) {
        let _ = writeln!(s, "              {line}");
    }
    for line in requantized::lines(&l.requantized, l.format) {
        let _ = writeln!(s, "  requantized {line}");
    }
    let (runtime, runtime_bytes) = f.runtime;
    let (name, has) = runtime.described();
    let _ = writeln!(
        s,
        "  runtime     {} ({name}: {has}), code {}",
        bytes(runtime_bytes as f64),
        bytes(f.code_bytes as f64)
    );
    if let Some(worst) = manifest::largest_error(&f.packed).filter(|worst| *worst > 0.0) {
        let _ = writeln!(s, "  rounding    largest relative RMS error of a matrix {:.2} %", worst * 100.0);
    }
    s += &sparsity(plan, f, options);
    s += &calibration(l, f, options);
    if let Some(line) = certificate::describe(options, preferred, &f.packed) {
        let _ = writeln!(s, "  budget      {line}");
    }
    s += &measured(options);
    if let Some(line) = activations(l, options) {
        let _ = writeln!(s, "  activations {line}");
    }
    for v in &l.versions {
        let predicted = predicted::speed(v);
        let what = count(v.target.cores, if v.target.family() == Family::Cpu { "core" } else { "multiprocessor" });
        let _ = writeln!(s, "  predicted   {predicted} on {what} (roofline of {})", v.target.name);
    }
    let _ = writeln!(s, "  memory      {}", memory(preferred));
    for v in &l.versions {
        s += &kernels(v);
    }
    let _ = writeln!(s, "  golden      {}", golden(&f.golden, &targets));
    let _ = writeln!(s, "  root        {}", hex(&f.root));
    for warning in l.warnings.iter().cloned().chain(doubts(l, f, options)) {
        let _ = writeln!(s, "  warning     {warning}");
    }
    let times: Vec<_> = f.phases.0.iter().map(|(n, t)| format!("{n} {}", seconds(*t))).collect();
    let total: Duration = f.phases.0.iter().map(|(_, t)| *t).sum();
    let _ = writeln!(s, "  time        {} ({})", seconds(total), times.join(", "));
    s
}

/// The zeros of matrices that were pruned.
fn sparsity(plan: &Plan, f: &Finished, options: &CompileOptions) -> String {
    let all = pruned::zeros(plan, &f.packed).zip(pruned::options(options));
    all.map_or(String::new(), |(zeros, pruned)| format!("  sparsity    {}\n", zeros.line(&pruned)))
}

/// The calibration, and the check of its result.
fn calibration(l: &Lowered, f: &Finished, options: &CompileOptions) -> String {
    let Some(statistics) = options.statistics() else { return String::new() };
    let check = f.check.as_ref().map(|check| format!("              {}\n", check.line()));
    let head = format!("  calibrated  {}, {}\n", options.method.name, calibrated(statistics, l));
    head + &scales(l) + &check.unwrap_or_default()
}

/// The scales that the method moved.
fn scales(l: &Lowered) -> String {
    let Some(scales) = l.moved else { return String::new() };
    let Moved { moved, kept, left } = scales.moved;
    let ones = if kept > 0 { format!(", {kept} are best without") } else { String::new() };
    let alone = if left > 0 { format!(", {left} left alone") } else { String::new() };
    format!("              scales of {moved} of {} groups of products moved{ones}{alone}\n", moved + kept + left)
}

/// Measured bounds and domains, a line each.
fn measured(options: &CompileOptions) -> String {
    let lines = options.measured.iter().flat_map(|m| m.lines());
    lines.map(|line| format!("  measured    {line}\n")).collect()
}

/// The rounding error from which on a model hardly works: twice the error of 4 bits.
const MUCH: f64 = 0.2;

/// Doubts about the room that GPUs have, and about the format that was asked for.
fn doubts(l: &Lowered, f: &Finished, options: &CompileOptions) -> Vec<String> {
    let preferred = l.preferred();
    let mut out: Vec<String> = l.versions.iter().filter_map(no_room).collect();
    out.extend(f.check.as_ref().and_then(Check::doubt));
    let error = certificate::rms_error(&preferred.compiled.plan, &f.packed);
    let zeros = pruned::zeros(&preferred.compiled.plan, &f.packed);
    if options.pruning.is_some() && zeros.is_none() && !f.packed.tensors.is_empty() {
        out.push("--prune: no matrix of a layer was rounded to codes, so none was pruned".into());
    }
    if l.format.is_quantized() && error > MUCH && zeros.is_none() {
        out.push(format!(
            "rounding to {} changes the weights by {:.0} % (root mean square, relative): a model not trained \
                for it will hardly work; --w4 changes them by about 8 %",
            l.format,
            error * 100.0
        ));
    }
    let four = Format::new(Elem::W4, 128);
    let generic = preferred.objects.iter().any(|o| o.generic.is_some());
    if generic && takes_more(l.format, four) && l.format.def().bits() <= four.def().bits() && error > 0.0 {
        out.push(format!(
            "{} takes more bytes than --w4 --group 128 and has no fast kernels on {}: --w4 makes a smaller and faster \
             artifact",
            l.format, preferred.target.name
        ));
    }
    out
}

/// A warning where no GPU has the memory for a version.
fn no_room(v: &Version) -> Option<String> {
    Need::of(v).too_much(v.target, v.compiled.plan.info.max_context)
}

/// Whether long rows take more bytes in one format than in another.
fn takes_more(format: Format, other: Format) -> bool {
    const COLUMNS: usize = 1 << 13;
    format.is_quantized() && format.block_bytes(COLUMNS) > other.block_bytes(COLUMNS)
}

/// Matrices that are stored in other formats than the one asked for; not matrices that the
/// checkpoint has as codes: a warning says that they keep their bits.
fn other_formats<'a>(l: &Lowered, f: &'a Finished) -> Vec<(&'a str, Format)> {
    let asked = l.format;
    let weights = l.preferred().compiled.plan.weights.iter().zip(&f.packed.tensors);
    let other = |(w, t): (&PackedWeight, &'a TensorReport)| match w.storage {
        Storage::Matrix { format, .. } if asked.is_quantized() && format.def().name != asked.def().name => {
            let mut coded = false;
            w.expr.leaves(&mut |i| coded |= l.module.weights.get(i).is_some_and(|w| w.ty.dtype.coded().is_some()));
            (!coded).then_some((t.name.as_str(), format))
        }
        _ => None,
    };
    weights.filter_map(other).collect()
}

/// Why matrices are stored in other formats than the one asked for, a line for each format.
fn grouped(others: &[(&str, Format)]) -> Vec<String> {
    let mut groups: Vec<(&str, Format, usize)> = vec![];
    for (tensor, format) in others {
        match groups.iter_mut().find(|(_, of, _)| of == format) {
            Some((.., count)) => *count += 1,
            None => groups.push((tensor, *format, 1)),
        }
    }
    let line = |(tensor, format, count): (&str, Format, usize)| {
        let (like_it, [its, chooses]) = match count {
            1 => (String::new(), ["its rows are", "it chooses experts or rows, and is"]),
            _ => (format!(" and {} more", count - 1), ["their rows are", "they choose experts or rows, and are"]),
        };
        let why = match format.is_quantized() {
            true => format!("{its} looked up, not multiplied, so fewer bits would save no time"),
            false => format!("{chooses} kept as stored"),
        };
        format!("{tensor}{like_it} as {format}: {why}")
    };
    groups.into_iter().map(line).collect()
}

/// How many kernels a version has, and which are slow.
fn kernels(v: &Version) -> String {
    let kernels = &v.compiled.plan.kernels;
    let generic: Vec<_> = kernels.iter().zip(&v.objects).filter_map(|(k, o)| Some((&k.name, o.generic?))).collect();
    let mut s = format!("  kernels     {} for {}, {} on generic paths\n", kernels.len(), v.target.name, generic.len());
    for (name, why) in generic {
        let _ = writeln!(s, "              {name}: {why}");
    }
    s
}

/// Which activations each version has, where some were asked for or versions differ.
fn activations(l: &Lowered, options: &CompileOptions) -> Option<String> {
    let differ = l.versions.iter().any(|v| v.act != l.preferred().act);
    if options.act.is_none() && !differ {
        return None;
    }
    let each = |v: &Version| match options.act.filter(|a| !v.target.multiplies(*a)) {
        Some(wanted) => format!("{} on {}, which does not multiply {wanted}", v.act, v.target.name),
        None => format!("{} on {}", v.act, v.target.name),
    };
    Some(l.versions.iter().map(each).collect::<Vec<_>>().join("; "))
}

/// Whether `llmcc verify` will be able to tell a change of results.
fn golden(outcome: &Outcome, targets: &[&str]) -> String {
    match outcome {
        Outcome::Absent(why) => format!("no golden vectors: {why}"),
        Outcome::Vectors(g, difference) => {
            let tokens: usize = g.steps.iter().map(|s| s.tokens).sum();
            let second = difference.map_or(String::new(), |d| format!("; within {d:.1e} of the evaluator"));
            let others: Vec<_> = targets.iter().copied().filter(|t| *t != g.target).collect();
            let which = match others.is_empty() {
                true => String::new(),
                false => format!(", by the version for {} ({} not run)", g.target, others.join(", ")),
            };
            format!("vectors of {} in {}{which}{second}", count(tokens, "token"), count(g.steps.len(), "step"))
        }
    }
}

/// Memory with one sequence of the full context.
fn memory(v: &Version) -> String {
    let (context, need) = (v.compiled.plan.info.max_context, Need::of(v));
    let mut parts = vec![format!("weights {}", bytes(need.weights as f64))];
    if need.sequence > 0 {
        parts.push(format!("cache {}", bytes(need.sequence as f64)));
    }
    if need.adapters > 0 {
        parts.push(format!("adapters {}", bytes(need.adapters as f64)));
    }
    parts.push(format!("steps of {} {}", count(need.step_tokens, "token"), bytes(need.step as f64)));
    format!("{} with a sequence of the full context of {context}: {}", bytes(need.total() as f64), parts.join(", "))
}

/// For each stored form and each kernel that was chosen: the choice, the runner-up, the difference.
pub fn explain(l: &Lowered) -> String {
    let mut s = String::new();
    for v in &l.versions {
        if l.versions.len() > 1 {
            let _ = writeln!(s, "for {}:", v.target.name);
        }
        s += &legend(v);
        v.compiled.stored.iter().for_each(|c| s += &format!("{c}\n"));
        v.compiled.explain.iter().for_each(|c| s += &format!("{c}\n"));
    }
    s
}

/// A line for each regime of a version: the steps it covers, and the step at which its kernels were compared.
fn legend(v: &Version) -> String {
    let mut s =
        format!("Kernels are chosen for each regime, a range of steps by their tokens, on {}:\n", v.target.name);
    let mut from = 1;
    for (i, regime) in regimes(v.target).iter().enumerate() {
        let steps = match regime.max_tokens {
            Some(1) => "1 token".into(),
            Some(most) => format!("{from} to {most} tokens"),
            None => format!("{from} tokens and more"),
        };
        let (tokens, rows) = (count(regime.env.tokens, "token"), count(regime.env.rows, "row"));
        let _ = writeln!(s, "  regime {i}: steps of {steps}; costs are for {tokens} with {rows} of output");
        from = regime.max_tokens.map_or(from, |most| most + 1);
    }
    s
}

/// A text from files of strangers, for a terminal: its control characters are shown, not obeyed.
pub fn plain(text: &str) -> String {
    let shown =
        |c: char| if c.is_control() && !matches!(c, '\n' | '\t') { c.escape_default().to_string() } else { c.into() };
    text.chars().map(shown).collect()
}

/// The same, of messages: names in files may be very long.
pub fn message(text: &str) -> String {
    const MOST: usize = 8000;
    match text.char_indices().nth(MOST) {
        Some((cut, _)) => format!("{} ... ({} bytes in all)", plain(&text[..cut]), text.len()),
        None => plain(text),
    }
}

fn seconds(t: Duration) -> String {
    if t < Duration::from_secs(1) { format!("{} ms", t.as_millis()) } else { format!("{:.1} s", t.as_secs_f64()) }
}

/// The texts by which errors were weighed, and the matrices without statistics.
fn calibrated(statistics: &Statistics, l: &Lowered) -> String {
    let record = &statistics.record;
    let mut s = format!("{} in {}", count(record.tokens, "token"), count(record.sequences, "sequence"));
    if let Some([median, most]) = record.drift {
        let _ = write!(s, "; texts held out differ by {:.0} % (median), {:.0} % at most", median * 100.0, most * 100.0);
    }
    let matrices = || l.module.weights.iter().filter(|w| w.ty.shape.len() >= 2 && w.data.is_none());
    let unknown = matrices().filter(|w| statistics.moments(&w.name).is_none()).count();
    if unknown > 0 {
        let _ = write!(s, "; {} of {} without statistics", count(unknown, "tensor"), matrices().count());
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line covers many matrices with one reason.
    #[test]
    fn other_formats_are_said_once() {
        let of = |names: &[&'static str], format| names.iter().map(|name| (*name, format)).collect::<Vec<_>>();
        let tables = of(&["embed", "positions"], Format::FP8);
        let routers: Vec<(String, Format)> = (0..32).map(|i| (format!("layers.{i}.gate"), Format::BF16)).collect();
        let routers = routers.iter().map(|(name, format)| (name.as_str(), *format));
        let all: Vec<_> = tables[..1].iter().copied().chain(routers).chain(tables[1..].iter().copied()).collect();
        assert_eq!(
            grouped(&all),
            [
                "embed and 1 more as fp8: their rows are looked up, not multiplied, so fewer bits would save no time",
                "layers.0.gate and 31 more as bf16: they choose experts or rows, and are kept as stored",
            ]
        );
        assert_eq!(grouped(&[]), Vec::<String>::new());
    }

    #[test]
    fn names_from_files_do_not_steer_terminals() {
        assert_eq!(plain("a\u{1b}[31mb\nc\r\u{9b}é\t"), "a\\u{1b}[31mb\nc\\r\\u{9b}é\t");
        let long = "é".repeat(9000);
        assert_eq!(message(&long), format!("{} ... (18000 bytes in all)", "é".repeat(8000)));
        assert_eq!(message(&long[..200]), long[..200]);
    }

    #[test]
    fn numbers_of_things_and_bytes() {
        assert_eq!([0, 1, 2].map(|n| count(n, "layer")), ["0 layers", "1 layer", "2 layers"]);
        assert_eq!([31.000000000000004, 2048.0].map(bytes), ["31 B", "2.0 KiB"]);
    }
}
