//! `llmcc verify --certificate`: measuring again what a certificate says.
//!
//! On the text of the certificate the measurements must be the same bits, where the same kind of processor computes. On
//! another text, and on another kind of processor, the measured bounds must hold within their intervals.

use super::said::Said;
use crate::args::VerifyArgs;
use crate::bounds::Bound;
use crate::budget::{Meter, Part, Text, value};
use crate::manifest::Manifest;
use crate::measured::{Domain, Measured};
use crate::reference::Reference;
use crate::{Error, program};
use serde_json::json;
use std::fmt::Write;
use std::path::Path;

/// Largest relative difference of a mean divergence that another order of sums explains.
const ROUNDING: f64 = 1e-3;

/// Measures an artifact on a text against a reference, and compares with its certificate.
///
/// # Errors
/// No certificate; [`Error::Failed`] where another divergence is found, or a bound does not hold.
pub fn measure(args: &VerifyArgs, manifest: &Manifest, text: &Path, given: &Path) -> Result<Said, Error> {
    let Some(certificate) = &manifest.certificate.measured else {
        return Err(Error::Usage(format!(
            "{}: it has no certificate to measure again: `llmcc compile --budget` writes one; `llmcc eval kl` compares \
             any artifact with its checkpoint",
            args.artifact.display()
        )));
    };
    let text = Text::of_file(text)?;
    let program = program::this()?;
    let reference = Reference::open(given, Some(manifest.info.max_context))?;
    let meter = Meter { program: &program, reference: reference.path(), threads: args.threads };
    let found = meter.domains(&args.artifact, std::slice::from_ref(&text), Part::Kept)?;
    let mut said = Said { text: String::new(), facts: json!([]) };
    for domain in &found {
        compare(args, certificate, domain, &mut said)?;
    }
    Ok(said)
}

/// Compares the measurements of a domain with the certificate.
fn compare(args: &VerifyArgs, certificate: &Measured, found: &Domain, said: &mut Said) -> Result<(), Error> {
    let failed = |what: String| Error::Failed(format!("{}: its certificate: {what}", args.artifact.display()));
    let kept = certificate.domains.iter().find(|d| d.sha256 == found.sha256);
    let how = match kept {
        Some(kept) if kept.found == found.found => "the same as in the certificate, bit for bit".to_owned(),
        Some(kept) if close(kept, found) => "the same as in the certificate, except for rounding".to_owned(),
        Some(kept) => {
            return Err(failed(format!(
                "on the text `{}` the divergence was {:.9} when it was compiled, and is {:.9}: the artifact or the \
                 reference is another one",
                found.name, kept.found.kl.mean.mean, found.found.kl.mean.mean
            )));
        }
        None => "another text than the certificate has".to_owned(),
    };
    for held in &certificate.bounds {
        let Ok(bound) = Bound::parse(&held.bound) else { continue };
        let Some(mean) = value(bound, found).filter(|m| bound.load(m.least()) > 1.0) else { continue };
        let words = bound.words(mean.mean);
        return Err(failed(format!("on the text `{}` it has {words}, which breaks {}", found.name, held.bound)));
    }
    let _ = writeln!(said.text, "certificate  {how}\n             {}", found.line());
    if let Some(all) = said.facts.as_array_mut() {
        all.push(json!({ "how": how, "found": found }));
    }
    Ok(())
}

/// Whether two measurements of a text differ by rounding at most.
fn close(kept: &Domain, found: &Domain) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= ROUNDING * a.abs().max(b.abs()).max(1e-6);
    let (a, b) = (&kept.found, &found.found);
    a.tokens == b.tokens && near(a.kl.mean.mean, b.kl.mean.mean) && near(a.perplexity, b.perplexity)
}
