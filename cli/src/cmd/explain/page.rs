//! The content of the page: the manifest's figures as texts, shares and charts.

use crate::chart::{self, Axes, Chart, Scale, color};
use crate::digest::SourceFile;
use crate::manifest::{Manifest, Tensor, Version};
use crate::measured::Domain;
use crate::predicted::{KernelCost, Machine, Point};
use crate::report::{bytes, count, plain};
use serde::Serialize;
use std::collections::BTreeMap;

/// Everything that the template shows.
#[derive(Debug, Serialize)]
pub struct Page {
    title: String,
    root: String,
    facts: Vec<Fact>,
    formats: Vec<FormatShare>,
    errors: Chart,
    tensors: Vec<Matrix>,
    bounds: Vec<String>,
    reference: String,
    domains: Vec<Text>,
    decisions: Vec<Decision>,
    has_kl: bool,
    versions: Vec<Kernels>,
    lossy: Vec<String>,
    rewrites: Vec<String>,
    sources: Vec<SourceFile>,
}

#[derive(Debug, Serialize)]
struct Fact {
    name: &'static str,
    value: String,
}

#[derive(Debug, Serialize)]
struct FormatShare {
    name: String,
    bytes: String,
    percent: f64,
    color: &'static str,
}

#[derive(Debug, Serialize)]
struct Matrix {
    name: String,
    storage: String,
    bytes: String,
    error: String,
}

#[derive(Debug, Serialize)]
struct Text {
    name: String,
    kl: String,
    p99: String,
    largest: String,
    top1: String,
    perplexity: String,
    reference: String,
    tokens: usize,
}

#[derive(Debug, Serialize)]
struct Decision {
    what: String,
    form: String,
    error: String,
    kl: String,
    percent: f64,
}

#[derive(Debug, Serialize)]
struct Kernels {
    target: String,
    about: String,
    many: String,
    roofline: Chart,
    kernels: Vec<Kernel>,
}

#[derive(Debug, Serialize)]
struct Kernel {
    name: String,
    us: String,
    bytes: String,
    macs: String,
    bound: &'static str,
    percent: f64,
}

/// The page of an artifact.
pub fn page(m: &Manifest, root: &str, size: u64) -> Page {
    let formats = formats(m);
    let color_of = |storage: &str| formats.iter().find(|f| f.name == format_of(storage)).map_or("#888", |f| f.color);
    let measured = m.certificate.measured.as_ref();
    let kl: BTreeMap<&str, f64> =
        measured.iter().flat_map(|c| &c.decisions).map(|d| (d.what.as_str(), d.predicted_kl)).collect();
    Page {
        title: format!("{} for {}", plain(&m.model), m.options.target),
        root: format!("root {root}"),
        facts: facts(m, size),
        errors: errors(&m.weights.tensors, &color_of),
        tensors: tensors(&m.weights.tensors),
        formats,
        bounds: measured.map(|c| c.lines()[..c.bounds.len()].to_vec()).unwrap_or_default(),
        reference: measured.map(|c| format!("Reference: {}", c.reference)).unwrap_or_default(),
        domains: measured.iter().flat_map(|c| &c.domains).map(text).collect(),
        decisions: decisions(m, &kl),
        has_kl: !kl.is_empty(),
        versions: m.versions.iter().filter(|v| !v.predicted.kernels.is_empty()).map(kernels).collect(),
        lossy: m.certificate.lossy.clone(),
        rewrites: measured.map(|c| c.rewrites.clone()).unwrap_or_default(),
        sources: m.source.clone(),
    }
}

fn facts(m: &Manifest, size: u64) -> Vec<Fact> {
    let speed = |v: &Version| format!("{:.0} tokens/s on {}", 1.0 / v.predicted.decode_seconds, v.target);
    let speeds = m.versions.iter().filter(|v| v.predicted.decode_seconds > 0.0).map(speed).collect::<Vec<_>>();
    let error = |e: f64| format!("{:.2} % on average, {:.2} % at most", e * 100.0, largest(m) * 100.0);
    let all = [
        ("size", Some(bytes(size as f64))),
        ("parameters", Some(format!("{:.1} million", m.weights.parameters as f64 / 1e6))),
        ("weights", Some(format!("{}, {}", bytes(m.weights.bytes as f64), m.options.weights))),
        ("method", (!m.options.method.is_empty()).then(|| m.options.method.clone())),
        ("rounding", m.certificate.rms_error.map(error)),
        ("activations", Some(m.options.activations.clone())),
        ("memory", Some(format!("{} with a sequence of {} tokens", bytes(m.memory.total as f64), m.info.max_context))),
        ("predicted", (!speeds.is_empty()).then(|| speeds.join("; "))),
        ("compiler", Some(format!("llmcc {}, C API {}", m.llmcc, m.abi))),
    ];
    all.into_iter().filter_map(|(name, value)| Some(Fact { name, value: value? })).collect()
}

fn largest(m: &Manifest) -> f64 {
    m.certificate.largest_relative_rms_error.unwrap_or(0.0)
}

fn tenths(share: f64) -> f64 {
    (share * 1000.0).round() / 10.0
}

fn formats(m: &Manifest) -> Vec<FormatShare> {
    let all: usize = m.weights.by_format.values().sum();
    let mut formats: Vec<(&String, usize)> = m.weights.by_format.iter().map(|(name, n)| (name, *n)).collect();
    formats.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let share = |(i, (name, n)): (usize, (&String, usize))| FormatShare {
        name: name.clone(),
        bytes: bytes(n as f64),
        percent: tenths(n as f64 / all.max(1) as f64),
        color: color(i),
    };
    formats.into_iter().enumerate().map(share).collect()
}

/// The format in `w4g32[512, 256]`.
fn format_of(storage: &str) -> &str {
    storage.split('[').next().unwrap_or(storage)
}

/// The layer that a tensor's name has: its first part that is a number.
fn layer(name: &str) -> i64 {
    name.split('.').find_map(|part| part.parse::<u32>().ok()).map_or(-1, i64::from)
}

/// Tensors with an error, and that.
fn rounded(tensors: &[Tensor]) -> impl Iterator<Item = (&Tensor, f64)> {
    tensors.iter().filter_map(|t| Some((t, t.relative_rms_error.filter(|e| *e > 0.0)?)))
}

fn errors<'a>(tensors: &'a [Tensor], color_of: &dyn Fn(&str) -> &'static str) -> Chart {
    let rounded = || rounded(tensors);
    if rounded().next().is_none() {
        return Chart::default();
    }
    let ends = rounded().fold((0, 0), |(low, high), (t, _)| (low.min(layer(&t.name)), high.max(layer(&t.name))));
    let named = |n: i64| if n < 0 { "none".to_owned() } else { n.to_string() };
    let axes = Axes { x: Scale::whole(ends.0, ends.1, named), y: Scale::log(rounded().map(|(_, e)| e)) };
    let dot = |(t, e): (&'a Tensor, f64)| {
        let label = format!("{}: {}, {:.2} %", plain(&t.name), t.storage, e * 100.0);
        let at = (layer(&t.name) as f64, e);
        chart::Point { at, color: color_of(&t.storage), label, name: String::new() }
    };
    axes.chart(rounded().map(dot), &[])
}

fn tensors(tensors: &[Tensor]) -> Vec<Matrix> {
    let mut rounded: Vec<(&Tensor, f64)> = rounded(tensors).collect();
    rounded.sort_by(|a, b| b.1.total_cmp(&a.1));
    let matrix = |(t, e): (&Tensor, f64)| Matrix {
        name: plain(&t.name),
        storage: t.storage.clone(),
        bytes: bytes(t.bytes as f64),
        error: format!("{:.3} %", e * 100.0),
    };
    rounded.into_iter().map(matrix).collect()
}

fn text(d: &Domain) -> Text {
    let f = &d.found;
    Text {
        name: plain(&d.name),
        kl: format!("{:.6}{}", f.kl.mean.mean, f.kl.mean.interval(6, 1.0)),
        p99: format!("{:.5}", f.kl.p99),
        largest: format!("{:.4}", f.kl.largest),
        top1: format!("{:.2} %", f.top1.mean * 100.0),
        perplexity: format!("{:.4}", f.perplexity),
        reference: format!("{:.4}", f.reference_perplexity),
        tokens: f.tokens,
    }
}

/// The decisions of a budget, those with the largest damage first.
fn decisions(m: &Manifest, kl: &BTreeMap<&str, f64>) -> Vec<Decision> {
    let mut all: Vec<_> = m.certificate.budget.iter().flat_map(|b| &b.stored).collect();
    let of = |what: &str| kl.get(what).copied().unwrap_or(0.0);
    let sum: f64 = all.iter().map(|d| of(&d.what)).sum();
    all.sort_by(|a, b| {
        let errors = b.relative_rms_error.total_cmp(&a.relative_rms_error);
        of(&b.what).total_cmp(&of(&a.what)).then(errors)
    });
    let decision = |d: &crate::certificate::StoredAs| Decision {
        what: plain(&d.what),
        form: d.form.clone(),
        error: format!("{:.3} %", d.relative_rms_error * 100.0),
        kl: format!("{:.6}", of(&d.what)),
        percent: if sum > 0.0 { tenths(of(&d.what) / sum) } else { 0.0 },
    };
    all.into_iter().map(decision).collect()
}

/// The kernels of a step of one token, and a roofline of these and of the kernels of the largest steps.
fn kernels(v: &Version) -> Kernels {
    let predicted = &v.predicted;
    let machine = &predicted.machine;
    // Regimes follow each other: the first serves single tokens, the last the largest steps.
    let regime = |k: Option<&KernelCost>| k.map_or(0, |k| k.regime);
    let (first, last) = (regime(predicted.kernels.first()), regime(predicted.kernels.last()));
    let of = move |regime: i64| predicted.kernels.iter().filter(move |k| k.regime == regime);
    let largest = of(last).flat_map(|k| &k.points).map(|p| p.m).fold(1.0, f64::max);
    let single: Vec<(&KernelCost, Point)> = of(first).map(|k| (k, k.at(1.0))).collect();
    let many: Vec<(&KernelCost, Point)> =
        of(last).map(|k| (k, k.at(if k.of_logits { 1.0 } else { largest }))).collect();
    let sum: f64 = single.iter().map(|(_, p)| p.us).sum();
    let kernel = |(k, p): &(&KernelCost, Point)| Kernel {
        name: k.kernel.clone(),
        us: format!("{:.2}", p.us),
        bytes: bytes(p.bytes),
        macs: format!("{:.0}", p.macs),
        bound: bound(machine, k, p),
        percent: if sum > 0.0 { tenths(p.us / sum) } else { 0.0 },
    };
    Kernels {
        target: v.target.clone(),
        about: format!(
            "{}, {} on slow paths. Predicted for {} with {:.0} GB/s of memory, at a step of one token.",
            count(v.kernels.len(), "kernel"),
            v.generic.len(),
            count(machine.cores, "core"),
            machine.memory / 1e9
        ),
        many: count(largest as usize, "token"),
        kernels: single.iter().map(kernel).collect(),
        roofline: roofline(machine, &single, &many),
    }
}

/// The resource that a launch needs for longest.
fn bound(machine: &Machine, k: &KernelCost, p: &Point) -> &'static str {
    let (memory, macs) = (p.bytes / machine.memory, p.macs / (k.peak * machine.cores as f64));
    match () {
        () if p.us <= 0.0 || !memory.is_finite() || !macs.is_finite() => "",
        // (Launches and dependencies take the rest of the time.)
        () if memory.max(macs) < 0.25e-6 * p.us => "its launch",
        () if memory >= macs => "memory",
        () => "multiplication",
    }
}

fn roofline(machine: &Machine, single: &[(&KernelCost, Point)], many: &[(&KernelCost, Point)]) -> Chart {
    let rate = |p: &Point| p.macs / (p.us * 1e-6);
    let all = || single.iter().chain(many).map(|(_, p)| p).filter(|p| p.macs > 0.0 && p.us > 0.0 && p.bytes > 0.0);
    let peak = machine.f32_macs.max(machine.int8_macs) * machine.cores as f64;
    let x = Scale::log(all().map(|p| p.macs / p.bytes).chain([0.1, 2.0 * peak / machine.memory]));
    let axes = Axes { x, y: Scale::log(all().map(rate).chain([peak])) };
    let dots = |of: &[(&KernelCost, Point)], i: usize| -> Vec<_> {
        let shown = of.iter().filter(|(_, p)| p.macs > 0.0 && p.us > 0.0 && p.bytes > 0.0);
        let dot = |(k, p): &(&KernelCost, Point)| {
            let label =
                format!("{}: {:.2} µs, {} read, {:.3e} multiply-adds/s", k.kernel, p.us, bytes(p.bytes), rate(p));
            chart::Point { at: (p.macs / p.bytes, rate(p)), color: color(i), label, name: String::new() }
        };
        shown.map(dot).collect()
    };
    let points = dots(many, 1).into_iter().chain(dots(single, 0));
    let knee = peak / machine.memory;
    axes.chart(points, &[(1e-3, 1e-3 * machine.memory), (knee, peak), (1e9, peak)])
}
