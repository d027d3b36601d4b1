//! `llmcc retarget`

use crate::args::{Kept, RetargetArgs};
use crate::backends::Backends;
use crate::carried::Carried;
use crate::options::{CompileOptions, check_llvm, find_targets, invariant};
use crate::{Error, advice, json, output, program, progress, report, retarget, runtimes, session, signature};
use indicatif::ProgressBar;
use llmcc_codegen::link::{WeightsPlace, weights_path};
use std::fs;
use std::path::Path;

/// Makes an artifact for other machines of an artifact.
///
/// # Errors
/// No artifact, or one that cannot be used; a target that is not known or that needs weights in other forms; the output
/// cannot be written.
pub fn run(args: &RetargetArgs) -> Result<(), Error> {
    let targets = find_targets(&args.target)?;
    let key = args.sign.as_deref().map(signature::secret).transpose()?;
    check_paths(&args.artifact, &args.output)?;
    output::clean_up_on_signals();
    let carried = Carried::open(&args.artifact)?;
    let program = program::this()?;
    let same_bits = args.invariant || carried.manifest.options.invariant;
    let own = retarget::options(&carried, if same_bits { invariant(targets) } else { targets })?;
    let options = CompileOptions {
        place: match args.weights {
            Some(Kept::Embed) => WeightsPlace::Embed,
            Some(Kept::External) => WeightsPlace::External,
            None => own.place,
        },
        deny_fallback: args.deny_fallback,
        golden: (!args.no_golden).then(|| program.clone()),
        ..own
    };
    check_llvm(&options)?;
    runtimes::check(&options.targets)?;
    let backends = Backends::new(Some(program));
    let mut lowered = retarget::lower(carried, &options, &backends)?;
    let bar = if args.quiet { ProgressBar::hidden() } else { progress::bytes("packing weights") };
    let finished = session::finish(&mut lowered, &options, &backends, &args.output, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let finished = finished?;
    let said = backends.gpu.warnings();
    if args.json {
        let said = [&said[..], &lowered.warnings].concat();
        json::print(&report::document(&lowered, &finished, &options, &args.output, &said))?;
    } else if !args.quiet {
        for warning in &said {
            eprintln!("warning: {}", report::message(warning));
        }
        eprint!("{}", report::closing(&lowered, &finished, &options, &args.output));
    }
    key.map_or(Ok(()), |key| signature::write(&args.output, &finished.root, &key).map(|_| ()))
}

/// Refuses a path where no artifact is, and an output that is the artifact or its weights.
fn check_paths(artifact: &Path, out: &Path) -> Result<(), Error> {
    if !artifact.exists() && !artifact.is_symlink() {
        return Err(Error::Usage(format!("{}: {}", artifact.display(), advice::missing(artifact))));
    }
    let read = [artifact.to_owned(), weights_path(artifact)].map(fs::canonicalize);
    for written in [out.to_owned(), weights_path(out)] {
        let Ok(full) = fs::canonicalize(&written) else { continue };
        if read.iter().flatten().any(|path| *path == full) {
            return Err(Error::Usage(format!(
                "-o {} would replace {}, which is read: give another name",
                out.display(),
                written.display()
            )));
        }
    }
    Ok(())
}
