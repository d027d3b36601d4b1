//! `llmcc inspect`

mod checkpoint;

use crate::Error;
use crate::advice::is_checkpoint;
use crate::args::InspectArgs;
use crate::digest::hex;
use crate::manifest::{GoldenRecord, Info, Manifest, Version};
use crate::predicted;
use crate::report::{bytes, count, plain};
use llmcc_abi::tree::part;
use llmcc_abi::{ABI_VERSION, PAGE_TOKENS, layout, pools};
use llmcc_codegen::locate;
use llmcc_codegen::sealed::Sealed;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Prints the manifest, in words or as JSON; for a checkpoint, its contents.
///
/// # Errors
/// Neither an artifact nor a checkpoint.
pub fn run(args: &InspectArgs) -> Result<(), Error> {
    if args.licenses {
        return super::print(&licenses(args)?);
    }
    if is_checkpoint(&args.artifact) {
        let about = checkpoint::describe(&args.artifact)?;
        return super::print(&if args.json { format!("{about:#}\n") } else { checkpoint::words(&about) });
    }
    // From the file: artifacts for other machines are described as well.
    let root = hex(&Sealed::open(&args.artifact)?.root());
    super::print(&match args.json {
        true => format!("{:#}\n", json(args, root)?),
        false => format!("root        {root}\n{}", describe(&Manifest::of(&args.artifact)?, args.tensors)),
    })
}

/// The licences of the software in an artifact's runtime.
fn licenses(args: &InspectArgs) -> Result<String, Error> {
    let path = &args.artifact;
    if is_checkpoint(path) {
        let what = format!("{}: --licenses is for artifacts; this is a checkpoint", path.display());
        return Err(Error::Usage(what));
    }
    let sealed = Sealed::open(path)?;
    if !sealed.parts.iter().any(|p| p.kind == part::NOTICES) {
        let message = "an llmcc that notes no licences made it; compile it again".into();
        return Err(Error::Artifact { path: path.clone(), message });
    }
    Ok(String::from_utf8_lossy(&sealed.bytes(part::NOTICES)?).into_owned())
}

/// The manifest as it stands in the artifact, including members this llmcc does not know, and the
/// root.
fn json(args: &InspectArgs, root: String) -> Result<Value, Error> {
    let text = locate::manifest(&args.artifact)?;
    let unreadable =
        |e| Error::Artifact { path: args.artifact.clone(), message: format!("its manifest is not JSON: {e}") };
    let mut manifest: Value = serde_json::from_slice(&text).map_err(unreadable)?;
    if let Some(all) = manifest.as_object_mut() {
        all.insert("root".into(), root.into());
    }
    Ok(manifest)
}

/// A version in words.
fn version(v: &Version) -> String {
    format!(
        "{}: activations {}, {}, {} on generic paths, {} predicted",
        v.target,
        v.activations,
        count(v.kernels.len(), "kernel"),
        v.generic.len(),
        predicted::in_words(v.predicted.text, v.predicted.decode_seconds)
    )
}

/// The memory a sequence keeps for the layers of each lifetime; empty where no layer has a window.
fn lifetimes(m: &Manifest) -> String {
    let groups = &m.memory.kv_groups;
    if groups.iter().all(|g| g.window.is_none() && g.every.is_none() && g.first.is_none()) {
        return String::new();
    }
    let mut s = String::new();
    let context = m.info.max_context;
    let (mut kept, mut all) = (0, 0);
    for g in groups {
        let (layers, per_token, size) = (count(g.layers, "layer"), g.per_token, |n: usize| bytes(n as f64));
        // (Manifests of older versions do not say it.)
        let of_window = |w| PAGE_TOKENS * layout::window_pages(w, pools::STEP_TOKENS);
        let most = g.most_tokens.or(g.window.map(of_window)).map_or(context, |most| context.min(most));
        kept += per_token * most;
        if let Some(first) = g.first {
            let (of, size) = (count(first, "token"), size(per_token * most));
            let _ = writeln!(s, "            {layers} with the first {of}: {size} per sequence");
            continue;
        }
        all += per_token * context;
        let _ = match (g.window, g.every) {
            (None, Some(every)) => {
                writeln!(s, "            {layers} with a row for {every} tokens: {} per token", size(per_token))
            }
            (None, None) => {
                writeln!(s, "            {layers} without a window: {} per token", size(per_token))
            }
            (Some(window), _) => writeln!(
                s,
                "            {layers} with a window of {window}: {} per token, {} per sequence at most",
                size(per_token),
                size(per_token * most)
            ),
        };
    }
    let (kept, all) = (bytes(kept as f64), bytes(all as f64));
    let _ = writeln!(s, "            a sequence of {context} tokens takes {kept}; without windows it would be {all}");
    s
}

/// Sizes in words.
fn sizes(i: &Info) -> String {
    let layers = count(i.attention_layers, "attention layer");
    let mut s =
        format!("sizes       vocabulary {}, hidden {}, context {}, {layers}\n", i.vocab, i.hidden, i.max_context);
    if let Some(rope) = &i.long_rope {
        let (factors, original) = (&rope.factors, rope.original_context);
        let than = if factors == "long" { "longer than" } else { "at most" };
        let _ = writeln!(
            s,
            "positions   {factors} factors of LongRoPE for all, as the context is {than} the original {original}"
        );
    }
    // (Manifests of older versions do not say it.)
    if !i.output.is_empty() {
        let _ = writeln!(s, "output      {}", i.output);
    }
    if let Some(entry) = &i.source {
        let what = if i.hears { "a clip of sound (`run --audio`)" } else { "the prompt" };
        let _ = writeln!(s, "source      an encoder (`{entry}`) reads {what}, a decoder writes a text about it");
    }
    if let Some(kind) = &i.draft {
        let _ = writeln!(s, "draft       {kind} (its files are the sources `draft/...`)");
    }
    for (name, output) in &i.more_entries {
        let _ = writeln!(s, "entry       {name}: {output}");
    }
    s
}

/// A manifest in words.
pub fn describe(m: &Manifest, tensors: bool) -> String {
    let (o, i, w) = (&m.options, &m.info, &m.weights);
    let targets: Vec<&str> = std::iter::once(&o.target).chain(&o.also).map(String::as_str).collect();
    let wanted = o.activations_wanted.as_deref().unwrap_or("as suits weights and target");
    let formats: Vec<_> = w.by_format.iter().map(|(k, v)| format!("{k} {}", size(*v))).collect();
    let kv: BTreeSet<&str> = m.kv.iter().map(String::as_str).collect();
    let invariant = if o.invariant { ", the same bits in any batch" } else { "" };
    let mut s = String::new();
    let _ = writeln!(s, "model       {} (llmcc {})", m.model, m.llmcc);
    let _ = writeln!(
        s,
        "options     target {}, weights {} ({}), activations {wanted}{invariant}",
        targets.join(", "),
        o.weights,
        o.place
    );
    // (Nor this.)
    if !m.abi.is_empty() {
        let name = o.soname.as_ref().map_or(String::new(), |name| format!(", soname {name}"));
        let _ = writeln!(s, "abi         C API {}, format {ABI_VERSION}{name}", m.abi);
    }
    s += &sizes(i);
    for f in &m.source {
        let _ = writeln!(s, "source      {} {} sha256 {}", f.file, bytes(f.bytes as f64), f.sha256);
    }
    let _ = writeln!(s, "weights     {} ({})", size(w.bytes), formats.join(", "));
    // (Nor this.)
    if w.parameters > 0 {
        let millions = |n: usize| n as f64 / 1e6;
        let (all, active) = (millions(w.parameters), millions(w.active_parameters));
        let _ = writeln!(s, "parameters  {all:.1} M in matrices, {active:.1} M of them multiplied for a token");
    }
    let _ = writeln!(s, "code        {}", size(m.code.bytes));
    for v in &m.versions {
        let _ = writeln!(s, "version     {}", version(v));
    }
    let _ = writeln!(s, "cache       {}", kv.into_iter().collect::<Vec<_>>().join(", "));
    s += &lifetimes(m);
    s += &needs(m);
    s += &(texts(m) + &exactness(m));
    for t in w.tensors.iter().filter(|_| tensors) {
        let share = |what: &str, x: Option<f64>| x.map_or(String::new(), |x| format!("  {what} {:.2} %", x * 100.0));
        let (error, zeros) = (share("error", t.relative_rms_error), share("zeros", t.zeros));
        let _ = writeln!(s, "{:>12}  {:<24} {}{error}{zeros}", t.offset, t.storage, t.name);
    }
    s
}

/// The memory that it needs.
fn needs(m: &Manifest) -> String {
    let (i, y, mut s) = (&m.info, &m.memory, String::new());
    let _ = writeln!(s, "memory      {}", y.formula);
    let _ = writeln!(
        s,
        "            weights {}, kv_per_token {}, per_token {}, per_row {}",
        size(y.weights),
        size(y.kv_per_token),
        size(y.per_token),
        size(y.per_row)
    );
    // (Nor this.)
    if y.total > 0 {
        let (total, sequence, step) = (size(y.total), size(y.sequence), size(y.step));
        let (context, tokens) = (i.max_context, count(y.step_tokens, "token"));
        let _ = writeln!(
            s,
            "            {total} with a sequence of {context} tokens, which takes {sequence}; a step of {tokens} {step}"
        );
    }
    if y.per_sequence > 0 {
        let _ = writeln!(s, "            per_sequence {}, however long the sequence", size(y.per_sequence));
    }
    s
}

/// The model's settings for texts: defaults of generations, prompts, names of classes.
fn texts(m: &Manifest) -> String {
    let mut s = String::new();
    let shown = |v: &Value| {
        let text = v.to_string();
        match text.char_indices().nth(60) {
            Some((cut, _)) => format!("{}...", &text[..cut]),
            None => text,
        }
    };
    if !m.generation.is_empty() {
        let all: Vec<String> = m.generation.iter().map(|(name, v)| format!("{name} {}", shown(v))).collect();
        let _ = writeln!(s, "generation  {}", all.join(", "));
    }
    for (name, prompt) in &m.prompts {
        let default = if m.default_prompt.as_ref() == Some(name) { " (default)" } else { "" };
        let _ = writeln!(s, "prompt      {name}{default}: {prompt:?}");
    }
    if !m.classes.is_empty() {
        let _ = writeln!(s, "classes     {}", m.classes.join(", "));
    }
    let chosen = [("similarity", &m.similarity), ("problem", &m.problem_type), ("activation", &m.pair_activation)];
    for (name, value) in chosen.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        let _ = writeln!(s, "{name:<11} {value}");
    }
    plain(&s)
}

/// How exact an artifact is, and the means to check that.
fn exactness(m: &Manifest) -> String {
    let c = &m.certificate;
    let mut s = String::new();
    if c.lossy.is_empty() {
        let _ = writeln!(s, "exactness   as the checkpoint");
    } else {
        let worst = c.largest_relative_rms_error.map_or_else(
            || "errors not measured".into(),
            |worst| format!("largest relative RMS error of a matrix {:.2} %", worst * 100.0),
        );
        let _ = writeln!(s, "exactness   {}; {worst}", c.lossy.join("; "));
    }
    if let Some((zeros, pruned)) = c.zeros.zip(m.options.pruned.as_ref()) {
        let _ = writeln!(s, "sparsity    {}", zeros.line(pruned));
    }
    if let Some(b) = &c.budget {
        if let Some(most) = b.error_budget {
            let (used, by) = match (b.rms_error, b.predicted_rms_error) {
                (Some(used), _) => (used, ""),
                (None, predicted) => (predicted.unwrap_or_default(), " (by samples)"),
            };
            let _ =
                writeln!(s, "budget      RMS error of all matrices {:.3} %{by} of {:.3} %", used * 100.0, most * 100.0);
        }
        for c in &b.stored {
            let _ = writeln!(s, "            {} as {}, error {:.3} %", c.what, c.form, c.relative_rms_error * 100.0);
        }
    }
    if let Some(measured) = &c.measured {
        let _ = writeln!(s, "certificate {} (measured by the version for {})", measured.reference, measured.target);
        for line in measured.lines() {
            let _ = writeln!(s, "            {line}");
        }
        for d in &measured.decisions {
            let (what, form, kl) = (&d.what, &d.form, d.predicted_kl);
            let _ = writeln!(s, "            {what} as {form}: predicted KL {kl:.6}");
        }
    }
    let _ = match &m.golden {
        GoldenRecord::Vectors(g) => {
            let tokens: usize = g.steps.iter().map(|s| s.tokens).sum();
            let (tokens, steps) = (count(tokens, "token"), count(g.steps.len(), "step"));
            writeln!(s, "golden      {tokens} in {steps}, computed by the code for {}", g.target)
        }
        GoldenRecord::Absent { absent } => writeln!(s, "golden      none: {absent}"),
    };
    if let Some(d) = c.golden_difference_to_evaluator {
        let _ = writeln!(
            s,
            "evaluator   golden logits within {d:.1e} of an f64 evaluation of the plan, relative to the largest logit"
        );
    }
    s
}

/// Bytes in binary units.
fn size(n: usize) -> String {
    bytes(n as f64)
}
