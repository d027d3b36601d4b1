//! Manual pages and completions, from the definition of the command line.

use crate::Failure;
use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use llmcc_cli::args::Args;
use llmcc_cli::version::VERSION;
use std::fs;
use std::path::{Path, PathBuf};

/// The command line; its version is without commit and features, on which no page depends.
fn command() -> clap::Command {
    Args::command().long_version(VERSION)
}

/// Writes manual pages of the program and of its subcommands to `<share>/man/man1`.
///
/// # Errors
/// The folder cannot be written.
pub fn manual(share: &Path) -> Result<(), Failure> {
    let folder = folder(share.join("man/man1"))?;
    Ok(clap_mangen::generate_to(command(), folder)?)
}

/// The command line without the subcommands that are hidden: generators of completions take all.
fn shown() -> clap::Command {
    let all = command();
    let shown = all.get_subcommands().filter(|c| !c.is_hide_set()).cloned();
    clap::Command::new("llmcc").version(VERSION).long_version(VERSION).subcommand_required(true).subcommands(shown)
}

/// Writes completions below `share`, where Bash, Zsh and fish look for them.
///
/// # Errors
/// The folders cannot be written.
pub fn completions(share: &Path) -> Result<(), Failure> {
    for (shell, at, name) in [
        (Shell::Bash, "bash-completion/completions", "llmcc"),
        (Shell::Zsh, "zsh/site-functions", "_llmcc"),
        (Shell::Fish, "fish/vendor_completions.d", "llmcc.fish"),
    ] {
        let folder = folder(share.join(at))?;
        let written = generate_to(shell, &mut shown(), "llmcc", &folder)?;
        fs::rename(written, folder.join(name))?;
    }
    Ok(())
}

fn folder(path: PathBuf) -> Result<PathBuf, Failure> {
    fs::create_dir_all(&path)?;
    Ok(path)
}
