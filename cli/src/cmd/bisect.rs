//! `llmcc bisect`

use crate::args::{BisectArgs, KvType};
use crate::lowered::{Source, pass_options};
use crate::options::{Choose, CompileOptions, find_target};
use crate::report::{count, plain};
use crate::session::{self, Lifted};
use crate::{Error, advice, json, output};
use llmcc_frontends::Checkpoint;
use llmcc_frontends::tokenizer::{Reader, TextAssets};
use llmcc_ir::eval::Batch;
use llmcc_ir::graph::Module;
use llmcc_ir::kv::KvDType;
use llmcc_ir::state::StateSpec;
use llmcc_ir::target::Family;
use llmcc_ir::text::{print_func, print_kernel};
use llmcc_passes::bisect::{self, Cause, Found, Job, Place, Suspect};
use serde_json::{Value, json};
use std::fmt::Write;

/// Suspects that are named beside the cause.
const SHOWN: usize = 5;

/// Finds the part of a compilation behind a difference, and writes the function and the kernels in which it begins.
///
/// # Errors
/// Whatever is wrong with the checkpoint; a model that takes more than tokens; [`Error::Findings`] where there is a
/// difference, which has been shown.
pub fn run(args: &BisectArgs) -> Result<(), Error> {
    let target = find_target(&args.target)?;
    if target.family() != Family::Cpu {
        return Err(Error::Usage(format!(
            "--target {}: programs for GPUs are not evaluated; give a processor of `llmcc targets`",
            target.name
        )));
    }
    if !args.checkpoint.exists() {
        let what = advice::missing(&args.checkpoint);
        return Err(Error::Usage(format!("{}: {what}", args.checkpoint.display())));
    }
    if let Some(path) = &args.output {
        output::spare_checkpoint(path, &args.checkpoint)?;
    }
    let options = CompileOptions {
        weights: args.format,
        act: args.act.map(Into::into),
        kv: args.kv.and_then(Into::into),
        choose: Choose { error_budget: None, kv: args.kv == Some(KvType::Auto) },
        ..CompileOptions::new(&args.checkpoint, vec![target])
    };
    let own = lift(&options)?.module;
    // The graph rounds no keys and values.
    let Lifted { checkpoint, module, .. } = lift(&CompileOptions { kv: Some(KvDType::F32), ..options.clone() })?;
    let batch = Batch::single(&tokens(args, &checkpoint, &module)?, 0);
    let mut passes = pass_options(&options, target, (checkpoint.rounds_inputs(), &module));
    if passes.kv.is_empty() {
        passes.kv.extend(own.states.iter().filter_map(StateSpec::paged).map(|kv| kv.dtype).next());
    }
    let source = Source::new(&checkpoint, &options);
    let job = Job { module: &module, options: &passes, source: &source, batch: &batch };
    let quiet = args.quiet || args.json;
    let found = bisect::find(&job, args.tolerance, &mut |what| {
        if !quiet {
            eprintln!("with {}", plain(what));
        }
    });
    let found = found.map_err(|e| Error::Failed(format!("{}: {e}", args.checkpoint.display())))?;
    match args.json {
        true => json::print(&document(&found, &module))?,
        false => super::print(&words(&found, &module))?,
    }
    let Some(cause) = &found.cause else { return Ok(()) };
    if let Some(path) = &args.output {
        output::write_text(path, &lir(cause, &found, &module))?;
    }
    Err(Error::Findings(names(&cause.suspects)))
}

/// The model with an entry for the inputs of products, where it can have one.
fn lift(options: &CompileOptions) -> Result<Lifted, Error> {
    let tapped = CompileOptions { tap: true, ..options.clone() };
    session::lift(&tapped).or_else(|_| session::lift(options))
}

/// The tokens to evaluate.
fn tokens(args: &BisectArgs, checkpoint: &Checkpoint, module: &Module) -> Result<Vec<i32>, Error> {
    let bad = |message: String| Error::Artifact { path: args.checkpoint.clone(), message };
    let mut tokens = match &args.input {
        None => args.ids.clone(),
        Some(text) => {
            let reader = Reader::of(&TextAssets::load(checkpoint)?).map_err(|e| bad(e.to_string()))?;
            let reader = reader.ok_or_else(|| bad("it has no tokenizer: give --ids ID,ID...".into()))?;
            reader.encode(text, true).map_err(|e| bad(e.to_string()))?
        }
    };
    tokens.truncate((args.tokens as usize).min(module.info.max_context));
    let known = |id: &i32| usize::try_from(*id).is_ok_and(|id| id < module.info.vocab);
    if let Some(id) = tokens.iter().find(|id| !known(id)) {
        let most = module.info.vocab.saturating_sub(1);
        return Err(Error::Usage(format!("token {id} is none of this model: its tokens are 0 to {most}")));
    }
    if tokens.is_empty() {
        return Err(Error::Usage("--input: the text has no tokens; give a longer one".into()));
    }
    Ok(tokens)
}

fn names(suspects: &[Suspect]) -> String {
    suspects.iter().map(ToString::to_string).collect::<Vec<_>>().join(", with ")
}

/// The result in words.
fn words(found: &Found, module: &Module) -> String {
    let mut s = String::new();
    let Some(cause) = &found.cause else {
        let _ = writeln!(
            s,
            "no difference: {:.1e} of the largest output of a token, where {:.1e} are allowed ({})",
            found.whole,
            found.tolerance,
            count(found.programs, "program")
        );
        return s;
    };
    let _ = writeln!(
        s,
        "difference  {:.1e} of the largest output of a token, where {:.1e} are allowed",
        found.whole, found.tolerance
    );
    let _ = writeln!(s, "cause       {} ({:.1e} by itself)", plain(&names(&cause.suspects)), cause.difference);
    if let Some(place) = &cause.first {
        let _ = writeln!(s, "begins      {}", plain(&where_it_begins(place, module)));
    }
    let others = found.alone.iter().filter(|(suspect, _)| !cause.suspects.contains(suspect));
    for (suspect, difference) in others.take(SHOWN) {
        let _ = writeln!(s, "next        {} ({difference:.1e} by itself)", plain(&suspect.to_string()));
    }
    let _ = writeln!(s, "evaluated   {}", count(found.programs, "program"));
    s
}

fn where_it_begins(place: &Place, module: &Module) -> String {
    let Place { call, func, weights, at: (row, column), values: (graph, program) } = place;
    let name = module.funcs.get(*func).map_or("?", |f| &f.name);
    format!(
        "in the input of {}, call {call} (@{name}): token {row}, column {column} is {program:.7} instead of {graph:.7}",
        weights.join(" and ")
    )
}

/// The result as a document.
fn document(found: &Found, module: &Module) -> Value {
    let first = |p: &Place| {
        json!({
            "call": p.call, "function": module.funcs.get(p.func).map(|f| f.name.clone()), "weights": p.weights,
            "row": p.at.0, "column": p.at.1, "graph": p.values.0, "program": p.values.1,
        })
    };
    let alone =
        |(suspect, difference): &(Suspect, f64)| json!({ "suspect": suspect.to_string(), "difference": difference });
    let cause = found.cause.as_ref().map(|cause| {
        json!({
            "suspects": cause.suspects.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "difference": cause.difference,
            "first": cause.first.as_ref().map(first),
        })
    });
    json!({
        "difference": found.whole, "plain": found.plain, "tolerance": found.tolerance, "programs": found.programs,
        "cause": cause, "alone": found.alone.iter().map(alone).collect::<Vec<_>>(),
    })
}

/// The function in which the difference begins, as text of the IR, and the kernels that the program has there where not
/// only rewrites are the cause.
fn lir(cause: &Cause, found: &Found, module: &Module) -> String {
    let mut s = format!("; llmcc bisect: {}\n", line(&names(&cause.suspects)));
    let _ = writeln!(s, "; difference {:e} by itself, {:e} are allowed", cause.difference, found.tolerance);
    if let Some(place) = &cause.first {
        let _ = writeln!(s, "; begins {}", line(&where_it_begins(place, module)));
    }
    let rewrites: Option<Vec<&str>> = cause.suspects.iter().map(rewrite).collect();
    if let Some(rewrites) = &rewrites {
        let _ = writeln!(s, "; llmcc opt FILE --pass {}", rewrites.join(","));
    }
    let of_place = |i: usize| cause.first.as_ref().is_none_or(|p| p.func == i);
    for (_, func) in module.funcs.iter().enumerate().filter(|(i, _)| of_place(*i)) {
        let _ = writeln!(s, "\n{}", print_func(func));
    }
    // Rewrites apply to files without kernels.
    for kernel in cause.kernels.iter().filter(|_| rewrites.is_none()) {
        let _ = writeln!(s, "{}", print_kernel(kernel));
    }
    s
}

/// A text on one line.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The name of a rewrite.
fn rewrite(suspect: &Suspect) -> Option<&str> {
    match suspect {
        Suspect::Rewrite(name) => Some(name),
        Suspect::Kernels(_) | Suspect::Stored(..) | Suspect::Activations(_) | Suspect::Cache(_) => None,
    }
}
