//! `llmcc compile`

use crate::args::{ActType, CompileArgs, KvType, Place, Stage};
use crate::session::{self, CompileOptions, Lowered};
use crate::{Error, report};
use indicatif::{ProgressBar, ProgressStyle};
use llmcc_codegen::cpu::CpuBackend;
use llmcc_codegen::link::WeightsPlace;
use llmcc_ir::kv::KvDType;
use llmcc_passes::ActPolicy;
use std::fmt::Write;
use std::path::Path;

/// Compiles, or prints a stage.
///
/// # Errors
/// Whatever is wrong with checkpoint, options or output.
pub fn run(args: &CompileArgs) -> Result<(), Error> {
    let options = options(args)?;
    if args.emit == Some(Stage::Graph) {
        let (_, module) = session::lift(&options)?;
        return output(args.output.as_deref(), &llmcc_ir::text::print_module(&module));
    }
    let backend = CpuBackend::default();
    let lowered = session::lower(&options, &backend)?;
    if args.explain {
        eprint!("{}", report::explain(&lowered));
    }
    if let Some(stage) = args.emit {
        return output(args.output.as_deref(), &emit(stage, &lowered));
    }
    let Some(out) = args.output.as_deref() else {
        return Err(Error::Usage("give the output file with -o".into()));
    };
    let bar = progress_bar(args.quiet);
    let finished = session::finish(&lowered, &options, out, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let finished = finished?;
    if !args.quiet {
        eprint!("{}", report::closing(&lowered, &finished, &options, out));
    }
    Ok(())
}

fn options(args: &CompileArgs) -> Result<CompileOptions, Error> {
    Ok(CompileOptions {
        checkpoint: args.checkpoint.clone(),
        target: session::find_target(&args.target)?,
        weights: session::format_option(args),
        act: args.act.map(|a| match a {
            ActType::F32 => ActPolicy::F32,
            ActType::Int8 => ActPolicy::Int8,
        }),
        kv: args.kv.map(|k| match k {
            KvType::F32 => KvDType::F32,
            KvType::F16 => KvDType::F16,
            KvType::Bf16 => KvDType::Bf16,
            KvType::Int8 => KvDType::Int8,
        }),
        max_context: args.max_context,
        place: match args.weights {
            Place::Embed => WeightsPlace::Embed,
            Place::External => WeightsPlace::External,
        },
        deny_fallback: args.deny_fallback,
        golden: match args.no_golden {
            true => None,
            false => Some(std::env::current_exe().map_err(|e| Error::io("find", "the llmcc program", e))?),
        },
    })
}

/// The text of a stage after the graph.
pub fn emit(stage: Stage, l: &Lowered) -> String {
    let plan = &l.compiled.plan;
    let mut out = String::new();
    match stage {
        Stage::Graph => out = llmcc_ir::text::print_module(&l.module),
        Stage::Egraph => out.clone_from(&l.compiled.egraph),
        Stage::Kernels => {
            for k in &plan.kernels {
                let _ = writeln!(out, "{}", llmcc_ir::text::print_kernel(k));
            }
        }
        Stage::Plan => out = llmcc_ir::text::print_plan(plan),
        Stage::Clif | Stage::Asm => {
            for (k, o) in plan.kernels.iter().zip(&l.objects) {
                let text = if stage == Stage::Clif { &o.clif } else { &o.listing };
                let _ = writeln!(out, "; {}\n{text}", k.name);
            }
        }
    }
    out
}

fn output(path: Option<&Path>, text: &str) -> Result<(), Error> {
    match path {
        Some(path) => std::fs::write(path, text).map_err(|e| Error::io("write", path, e)),
        None => super::print(text),
    }
}

fn progress_bar(quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1);
    if let Ok(style) = ProgressStyle::with_template("packing weights {bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec}") {
        bar.set_style(style);
    }
    bar
}
