//! One file per subcommand.

pub mod bench;
pub mod bisect;
pub mod chat;
pub mod check;
pub mod compile;
pub mod diff;
pub mod eval;
pub mod explain;
pub mod frontier;
pub mod health;
pub mod inspect;
pub mod lower;
pub mod models;
pub mod opt;
pub mod pull;
pub mod retarget;
pub mod route;
pub mod run;
pub mod serve;
pub mod sign;
pub mod simulate;
pub mod tap;
pub mod targets;
pub mod tokenize;
pub mod verify;

pub use crate::stdout::print;

use crate::Error;
use crate::args::Command;
use crate::{hub, version};

/// Runs a subcommand.
///
/// # Errors
/// Whatever it reports.
pub fn run(command: Command) -> Result<(), Error> {
    match command {
        Command::Compile(args) => compile::run(&hub::resolved(*args)?),
        Command::Chat(args) => chat::run(&args).map_err(Error::in_options),
        Command::Pull(args) => pull::run(&args),
        Command::Run(args) => run::run(&args).map_err(Error::in_options),
        Command::Serve(args) => serve::run(&args).map_err(Error::in_options),
        Command::Route(args) => route::run(&args).map_err(Error::in_options),
        Command::Health(args) => health::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Retarget(args) => retarget::run(&args),
        Command::Sign(args) => sign::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Tap(args) => tap::run(&args).map_err(Error::in_options),
        Command::Bench(args) => bench::run(&args).map_err(Error::in_options),
        Command::Simulate(args) => simulate::run(&args).map_err(Error::in_options),
        Command::Eval(command) => eval::run(&command).map_err(Error::in_options),
        Command::Explain(args) => explain::run(&args),
        Command::Frontier(args) => frontier::run(&args),
        Command::Targets(args) => targets::run(&args),
        Command::Licenses => print(version::LICENSES),
        Command::Models(args) => models::run(&args),
        Command::Tokenize(args) => tokenize::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Opt(args) => opt::run(&args),
        Command::Bisect(args) => bisect::run(&args),
        Command::Lower(args) => lower::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Golden(args) => verify::golden(&args),
        Command::LlvmWorker => llvm_worker(),
    }
}

#[cfg(feature = "gpu")]
fn llvm_worker() -> Result<(), Error> {
    let done = llmcc_gpu::worker::serve(std::io::stdin().lock(), std::io::stdout().lock());
    done.map_err(|e| Error::io("talk to", "the compiling llmcc", e))
}

#[cfg(not(feature = "gpu"))]
fn llvm_worker() -> Result<(), Error> {
    Err(Error::Usage("this llmcc was built without LLVM".into()))
}
