//! `llmcc-cuda`: LLVM for an `llmcc` that was built without it. Serves requests to lower kernels
//! from its standard input until that ends ([`llmcc_gpu::worker`]).

#[cfg(feature = "static")]
mod alone;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

const ABOUT: &str = "llmcc-cuda lowers kernels for `llmcc compile --target sm90`, which starts it by itself.\n\
    usage: llmcc-cuda [--version | --licenses]";
/// The licences of the software in this program. `llmcc-dist notices` writes them from Cargo's graph.
const LICENSES: &str = include_str!("../../../../../python/cuda/THIRD-PARTY.txt");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--version"] => println!("llmcc-cuda {}", env!("CARGO_PKG_VERSION")),
        ["--licenses"] => print!("{LICENSES}"),
        [] if !io::stdin().is_terminal() => return serve(),
        _ => {
            eprintln!("{ABOUT}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
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
