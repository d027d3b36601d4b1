//! `llmcc opt`: rewrites and passes on `.lir` text, without a checkpoint.

use super::check::Checked;
use crate::args::{OptArgs, OptStage};
use crate::{Error, advice, options, output};
use llmcc_ir::graph::{Func, Module};
use llmcc_ir::text::{Item, dot, print_kernel, print_plan};
use llmcc_passes::rewrite::{Pass, find, passes, rewrite};
use llmcc_passes::{Compiled, Explain, Options};
use std::fmt::Write;

/// Runs passes on a file, and prints the result as text that can be read again.
///
/// # Errors
/// Unknown passes; a file with errors, which are shown; items that a pass is not for.
pub fn run(args: &OptArgs) -> Result<(), Error> {
    if args.list_passes {
        return super::print(&list());
    }
    let wanted: Vec<Pass> = args.passes.iter().map(|name| pass(name)).collect::<Result<_, _>>()?;
    let Some(file) = &args.file else { return Err(Error::Usage("give a file of .lir text, or - ".into())) };
    let checked = Checked::read(file)?;
    eprint!("{}", checked.shown());
    if checked.errors() > 0 {
        return Err(Error::Findings(format!("errors in {}", checked.name)));
    }
    let mut items = checked.items;
    for pass in &wanted {
        for item in &mut items {
            apply(pass, item)?;
        }
    }
    let text = match args.emit {
        Some(stage) => compiled(&items, stage, args)?,
        None if args.dot => dot::items(&items),
        None => items.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    };
    match &args.output {
        Some(path) => output::write_text(path, &text),
        None => super::print(&text),
    }
}

/// The names of all passes, with a line about each.
fn list() -> String {
    passes().fold(String::new(), |mut all, (pass, about)| {
        let _ = writeln!(all, "{:<28} {about}", pass.name);
        all
    })
}

fn pass(name: &str) -> Result<Pass, Error> {
    find(name).ok_or_else(|| {
        let meant = advice::nearest(name, passes().map(|(pass, _)| pass.name));
        let meant = meant.map_or(String::new(), |meant| format!(" (did you mean `{meant}`?)"));
        Error::Usage(format!("--pass {name}: there is no such pass{meant}; --list-passes lists them"))
    })
}

/// Applies a pass to an item, and says what it did.
fn apply(pass: &Pass, item: &mut Item) -> Result<(), Error> {
    match item {
        Item::Module(m) => m.funcs.iter_mut().try_for_each(|f| apply_to(pass, f)),
        Item::Func(f) => apply_to(pass, f),
        Item::Kernel(k) => Err(not_graph(pass, "kernel", &k.name)),
        Item::Plan(p) => Err(not_graph(pass, "plan", &p.name)),
    }
}

fn not_graph(pass: &Pass, what: &str, name: &str) -> Error {
    Error::Usage(format!(
        "--pass {}: {what} `{name}` is below the graph level, where passes work; leave it out, or give no pass",
        pass.name
    ))
}

fn apply_to(pass: &Pass, func: &mut Func) -> Result<(), Error> {
    let done = rewrite(func, pass)?;
    let rules: Vec<String> = done.applied.iter().map(|(rule, n)| format!("{rule} {n}")).collect();
    let rules = if rules.is_empty() { "nothing to rewrite".into() } else { rules.join(", ") };
    let limit = if done.saturated { "" } else { " (until a limit of the e-graph)" };
    let (before, after) = (func.nodes.len(), done.func.nodes.len());
    eprintln!("{}: func @{}: {rules}{limit}; {before} operations, now {after}", pass.name, func.name);
    *func = done.func;
    Ok(())
}

/// A stage of the modules, compiled.
fn compiled(items: &[Item], stage: OptStage, args: &OptArgs) -> Result<String, Error> {
    let module = |item: &'_ Item| -> Result<Compiled, Error> {
        match item {
            Item::Module(m) => compile(m, stage, args),
            Item::Func(_) | Item::Kernel(_) | Item::Plan(_) => Err(Error::Usage(
                "--emit compiles modules; a function alone has no step, and kernels and plans are compiled already"
                    .into(),
            )),
        }
    };
    let all: Vec<Compiled> = items.iter().map(module).collect::<Result<_, _>>()?;
    Ok(match (stage, args.dot) {
        (OptStage::Egraph, false) => all.iter().map(|c| c.egraph.as_str()).collect(),
        (OptStage::Egraph, true) => all.iter().map(|c| c.egraph_dot.as_str()).collect(),
        (OptStage::Plan, false) => all.iter().map(|c| print_plan(&c.plan)).collect::<Vec<_>>().join("\n"),
        (OptStage::Plan, true) => dot::items(&all.into_iter().map(|c| Item::Plan(c.plan)).collect::<Vec<_>>()),
        (OptStage::Kernels, false) => {
            all.iter().flat_map(|c| &c.plan.kernels).map(print_kernel).collect::<Vec<_>>().join("\n")
        }
        (OptStage::Kernels, true) => {
            dot::items(&all.into_iter().flat_map(|c| c.plan.kernels).map(Item::Kernel).collect::<Vec<_>>())
        }
    })
}

fn compile(module: &Module, stage: OptStage, args: &OptArgs) -> Result<Compiled, Error> {
    let target = options::find_target(&args.target)?;
    let explain = Explain { alternatives: false, egraph: stage == OptStage::Egraph };
    Ok(llmcc_passes::compile(module, &Options { explain, ..Options::new(target, args.format) })?)
}
