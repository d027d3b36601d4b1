//! The `llmcc` command line: `compile` makes artifacts, everything else uses them through the C API
//! inside.
//!
//! [`session`] is the compiler driver (a library, so that tests and tools can call it); [`loaded`]
//! opens an artifact; [`cmd`] has a file per subcommand. Errors are values of [`Error`], printed
//! once, here.

#[macro_use]
mod say;

pub mod advice;
pub mod args;
pub mod backends;
pub mod bounds;
pub mod budget;
pub mod builtin;
pub mod calib;
pub mod carried;
pub mod certificate;
pub mod chart;
pub mod checked;
pub mod cmd;
pub mod compared;
pub mod compressed;
pub mod digest;
pub mod divergence;
pub mod documents;
pub mod error;
pub mod golden;
pub mod hub;
pub mod json;
mod listening;
pub mod loaded;
pub mod lowered;
pub mod lowering;
pub mod machines;
pub mod manifest;
pub mod measured;
pub mod memory;
mod numbers;
pub mod options;
pub mod output;
pub mod predicted;
pub mod program;
pub mod progress;
pub mod pruned;
pub mod reading;
pub mod recipe;
pub mod reference;
pub mod report;
pub mod requantized;
pub mod retarget;
pub mod runtimes;
pub mod session;
mod sets;
pub mod shared;
pub mod signature;
pub mod simulate;
mod stamp;
pub mod statistics;
pub mod stdout;
pub mod talk;
mod template;
pub mod texts;
pub mod units;
pub mod version;
pub mod workload;

pub use error::Error;

use std::process::ExitCode;

/// Runs the command line. Exit status: 0 success, 1 failure, 2 wrong usage.
pub fn main() -> ExitCode {
    report_panics();
    let args = args::Args::read();
    match cmd::run(args.command) {
        Ok(()) | Err(Error::ClosedPipe) => ExitCode::SUCCESS,
        Err(e) => {
            failed(&e);
            ExitCode::from(json::status(&e))
        }
    }
}

/// Says why a command failed: in words on standard error, or as a document on standard output.
fn failed(e: &Error) {
    // Findings have been shown in their places.
    if matches!(e, Error::Findings(_)) {
        return;
    }
    if json::wanted() {
        // Where it cannot be written, the status remains.
        let _ = json::print(&json::error(e));
        return;
    }
    let (said, causes) = json::chain(e);
    eprintln!("error: {}", report::message(&said));
    for cause in causes {
        eprintln!("  caused by: {}", report::message(&cause));
    }
    if matches!(e, Error::Usage(_)) {
        eprintln!("see `llmcc --help`");
    }
}

/// A panic is a bug of llmcc, never the user's fault: say so, and how to report it.
fn report_panics() {
    std::panic::set_hook(Box::new(|info| {
        // A closed stdout (`llmcc inspect m.so | head`) panics inside `println!`; that is the
        // reader's choice.
        if info.to_string().contains("Broken pipe") {
            std::process::exit(0);
        }
        eprintln!("internal error: {info}");
        eprintln!(
            "This is a bug in llmcc {}. Please report it with the command line and this message.",
            version::VERSION
        );
    }));
}
