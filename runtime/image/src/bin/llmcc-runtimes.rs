//! `llmcc-runtimes aarch64 FOLDER`: builds the runtimes of another architecture, from which `llmcc` makes artifacts for
//! it.
//!
//! The compiler of Rust needs that architecture's standard library (`rustup target add aarch64-unknown-linux-gnu`, or
//! another compiler in `LLMCC_CROSS_RUSTC` and its library in `LLMCC_CROSS_SYSROOT`). A C compiler links
//! (`LLMCC_CROSS_CC`; by default Debian's `aarch64-linux-gnu-gcc`). `make runtimes` has both.

#[path = "../../recipe.rs"]
mod recipe;

use recipe::{KINDS, Recipe};
use std::env;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: llmcc-runtimes MACHINE FOLDER [--quick] [KIND...]
MACHINE is aarch64 or x86_64; KIND is core, full or media (all, if none is given)
--quick: without optimisation at link time";

fn main() -> ExitCode {
    match run(&env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), String> {
    let (options, names): (Vec<&str>, Vec<&str>) =
        args.iter().map(String::as_str).partition(|arg| arg.starts_with('-'));
    let [machine, folder, wanted @ ..] = &names[..] else { return Err(USAGE.into()) };
    let known = |kind: &&str| KINDS.iter().any(|(name, _)| name == kind);
    if !matches!(*machine, "aarch64" | "x86_64") || !wanted.iter().all(known) || options.iter().any(|o| *o != "--quick")
    {
        return Err(USAGE.into());
    }
    let triple = format!("{machine}-unknown-linux-gnu");
    let cc = env::var_os("LLMCC_CROSS_CC").unwrap_or_else(|| format!("{machine}-linux-gnu-gcc").into());
    let folder = Path::new(folder);
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let folder = std::path::absolute(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let recipe = Recipe {
        workspace: &workspace,
        target: &folder.join("target"),
        scratch: &folder,
        other: Some((&triple, &cc)),
        lto: options.is_empty(),
    };
    for (kind, features) in KINDS.iter().filter(|(kind, _)| wanted.is_empty() || wanted.contains(kind)) {
        let built = recipe.build(kind, features)?;
        let to = folder.join(llmcc_rt_image::file_name(machine, kind));
        std::fs::copy(&built, &to).map_err(|e| format!("{}: {e}", to.display()))?;
        println!("{}", to.display());
    }
    Ok(())
}
