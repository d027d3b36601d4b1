//! Implementations: kernels join the classes of the values they compute, after the equalities have
//! saturated.
//!
//! [`PHASES`] is the table. Every operation first gets a kernel of its own; then generic
//! absorptions make larger kernels out of the kernels found in the operand classes. Nothing here
//! knows of layers or attention blocks: that QKV, RoPE and the cache update end in one launch
//! follows from the absorptions. Phases run once each, in order (those that feed themselves, to a
//! bounded fixpoint), so no kernel is ever built on an approximation except through its `quant` and
//! `store` operands. A kernel reads matrices of one format only: more would multiply its variants.

mod adapters;
mod context;
mod elementwise;
mod embed;
mod evict;
mod experts;
mod fragment;
mod generic;
mod merge;
mod prologue;
mod quantize;
mod readers;
mod recurrent;
mod rownorm;
mod select;
mod way;
mod windows;

pub use readers::read_often;

use crate::Options;
use crate::egraph::{Graph, provenance};
use crate::storage::Storages;
use context::{Context, KernelNode, MAX_EXPR, OpNode};
use egg::Id;

/// One phase: a name, whether to repeat until nothing changes, and its function of a class and an
/// operation in it.
pub struct Phase {
    /// Name in reports.
    pub name: &'static str,
    repeat: bool,
    run: Run,
}

/// The classes or operations a phase looks at.
enum Run {
    /// Operations that happen at run time.
    Operations(fn(&mut Context<'_>, Id, &OpNode)),
    /// Rows stored in fewer bits: the class, the storage and the value.
    Quant(fn(&mut Context<'_>, Id, [Id; 2])),
    /// Classes of either.
    Classes(fn(&mut Context<'_>, Id)),
}

/// All phases in order.
pub const PHASES: &[Phase] = &[
    Phase { name: "generic", repeat: false, run: Run::Operations(way::run) },
    Phase { name: "look-up", repeat: true, run: Run::Operations(embed::run) },
    Phase { name: "row-norm", repeat: true, run: Run::Operations(rownorm::run) },
    Phase { name: "epilogue", repeat: true, run: Run::Operations(elementwise::run) },
    Phase { name: "quantize", repeat: false, run: Run::Quant(quantize::run) },
    Phase { name: "store", repeat: false, run: Run::Operations(elementwise::run_stores) },
    Phase { name: "horizontal", repeat: false, run: Run::Operations(merge::run) },
    Phase { name: "prologue", repeat: false, run: Run::Classes(prologue::run) },
];

/// Rounds of a repeated phase.
const MAX_ROUNDS: usize = 8;

/// Adds kernels to every class, for the target of the options, without the phases that a trial leaves out. `storages`
/// are the ways in which weights and states may be stored; `read_often` are classes of values whose kernels are not
/// absorbed ([`read_often`]).
pub fn implement(graph: &mut Graph, opts: &Options, storages: &Storages, read_often: &[Id]) {
    let mut cx = Context::new(graph, opts.act, opts.target, storages, read_often);
    provenance::note(cx.graph, "stored form");
    for phase in PHASES.iter().filter(|phase| !opts.trial.leaves_out(phase.name)) {
        for _ in 0..if phase.repeat { MAX_ROUNDS } else { 1 } {
            let before = cx.graph.total_number_of_nodes();
            match phase.run {
                Run::Operations(run) => cx.operations().iter().for_each(|(class, op)| run(&mut cx, *class, op)),
                Run::Quant(run) => cx.quants().into_iter().for_each(|(class, of)| run(&mut cx, class, of)),
                Run::Classes(run) => cx.computed().into_iter().for_each(|class| run(&mut cx, class)),
            }
            provenance::note(cx.graph, phase.name);
            cx.graph.rebuild();
            if cx.graph.total_number_of_nodes() == before {
                break;
            }
        }
    }
}
