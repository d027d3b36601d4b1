//! `llmcc-cuda`: LLVM for an `llmcc` that was built without it. Serves requests to lower kernels
//! from its standard input until that ends ([`llmcc_gpu::worker`]).

#[cfg(feature = "static")]
mod alone;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

const ABOUT: &str = "llmcc-cuda lowers kernels for `llmcc compile --target sm90`, which starts it by itself.\n\
    usage: llmcc-cuda [--version | --licenses]";
/// The licences of the software in this program. `llmcc-dist notices` writes them from Cargo's graph.
const LICENSES: &str = include_str!("../../../../../python/cuda/THIRD-PARTY.txt");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--version"] => say(concat!("llmcc-cuda ", env!("CARGO_PKG_VERSION"), "\n")),
        ["--licenses"] => say(LICENSES),
        [] if !io::stdin().is_terminal() => serve(),
        _ => {
            eprintln!("{ABOUT}");
            ExitCode::from(2)
        }
    }
}

/// Prints a text; a reader that has enough of it is no fault.
fn say(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

fn serve() -> ExitCode {
    match llmcc_gpu::worker::serve(io::stdin().lock(), io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: cannot talk to llmcc: {e}");
            ExitCode::FAILURE
        }
    }
}
