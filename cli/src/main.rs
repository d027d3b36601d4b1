//! The `llmcc` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    llmcc_cli::main()
}
