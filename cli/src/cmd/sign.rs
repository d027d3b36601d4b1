//! `llmcc sign`: a signature for an artifact.

use crate::args::SignArgs;
use crate::{Error, signature};
use llmcc_codegen::sealed::Sealed;

/// Signs the root, after all bytes were compared with their hashes: a signature makes no damage right.
///
/// # Errors
/// No private key; no artifact, a damaged one, or one without hashes of its weights.
pub fn run(args: &SignArgs) -> Result<(), Error> {
    let key = signature::secret(&args.key)?;
    let sealed = Sealed::open(&args.artifact)?;
    if signature::damage(&args.artifact, &sealed)?.is_some() {
        return Err(Error::Failed(format!(
            "{}: it is damaged (`llmcc verify` says where), and was not signed",
            args.artifact.display()
        )));
    }
    let path = signature::write(&args.artifact, &sealed.root(), &key)?;
    super::print(&format!("{}\n", path.display()))
}
