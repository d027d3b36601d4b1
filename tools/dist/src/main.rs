//! `llmcc-dist`: makes the files around the program, and checks the program. `make dist` calls it.

use clap::{Parser, Subcommand};
use llmcc_dist::platform::Needs;
use llmcc_dist::{Failure, closure, notices, pages, paths, sbom};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Makes and checks what packages of llmcc hold.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the notices of third parties again, after Cargo.lock has changed
    Notices,
    /// Write manual pages and completions below a folder `share`
    Pages { share: PathBuf },
    /// Print the bill of materials of the compiler
    Sbom,
    /// Check that binaries need nothing beyond glibc 2.34, and name no folder of the machine that built them
    Check { binaries: Vec<PathBuf> },
    /// Check that the runtimes that this build's compiler carries are small
    Runtimes,
}

fn main() -> ExitCode {
    match run(&Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match command {
        Command::Notices => write_notices(&workspace),
        Command::Pages { share } => pages::manual(share).and_then(|()| pages::completions(share)),
        Command::Sbom => {
            print!("{}", sbom::text(&workspace, closure::COMPILER)?);
            Ok(())
        }
        Command::Check { binaries } => binaries.iter().try_for_each(|b| check(b, &workspace)),
        Command::Runtimes => check_runtimes(),
    }
}

fn write_notices(workspace: &Path) -> Result<(), Failure> {
    for notices in &notices::ALL {
        if !notices.known() {
            eprintln!("{}: left as it is; `--features llmcc/gpu` writes it", notices.path);
            continue;
        }
        std::fs::write(workspace.join(notices.path), notices.text(workspace)?)?;
        println!("{}", notices.path);
    }
    Ok(())
}

/// How many paths a message names.
const NAMED: usize = 3;

/// Holds the sizes of the runtimes to their limits.
fn check_runtimes() -> Result<(), Failure> {
    let sizes = [("full", llmcc_rt_image::FULL.len()), ("core", llmcc_rt_image::CORE.len())];
    for ((name, size), limit) in sizes.into_iter().zip(llmcc_rt_image::LIMITS) {
        if size > limit {
            let what = format!("the runtime `{name}` has {size} bytes, {limit} at most are meant for artifacts");
            return Err(format!("{what}: find out by which change, or raise LIMITS in runtime/image/src/lib.rs").into());
        }
    }
    Ok(())
}

fn check(binary: &Path, workspace: &Path) -> Result<(), Failure> {
    let needs = Needs::of(binary)?;
    let beyond = needs.beyond();
    if !beyond.is_empty() {
        return Err(format!("{} needs more than glibc 2.34 has: {}", binary.display(), beyond.join(", ")).into());
    }
    let paths = paths::inside(&std::fs::read(binary)?, &paths::private(workspace)?);
    if !paths.is_empty() {
        let some: Vec<&str> = paths.iter().take(NAMED).map(String::as_str).collect();
        let what = format!("{} names {} paths of this machine: {}", binary.display(), paths.len(), some.join(", "));
        return Err(format!("{what}; build it with the RUSTFLAGS of tools/dist/flags.sh").into());
    }
    let newest = needs.newest().map(|(major, minor)| format!("; glibc {major}.{minor}")).unwrap_or_default();
    let libraries: Vec<_> = needs.libraries.into_iter().collect();
    println!("{}: {}{newest}", binary.display(), libraries.join(" "));
    Ok(())
}
