//! `llmcc verify`: is the artifact what the compiler wrote, and does it compute here?

use crate::Error;
use crate::args::VerifyArgs;
use crate::loaded::{EngineOptions, Model, Part, segments};
use crate::manifest::hex;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::io::{Read, Seek, SeekFrom};

/// Checks hashes of code and weights, then computes with it.
///
/// # Errors
/// [`Error::Failed`] saying what differs.
pub fn run(args: &VerifyArgs) -> Result<(), Error> {
    let model = Model::open(&args.artifact, EngineOptions { threads: args.engine.threads, ..EngineOptions::default() })?;
    let manifest: Value = serde_json::from_str(&model.manifest())
        .map_err(|e| Error::Artifact { path: args.artifact.clone(), message: format!("its manifest is not JSON: {e}") })?;
    let parts = segments(&args.artifact)?;
    for (name, part) in [("code", &parts.code), ("weights", &parts.weights)] {
        let want = manifest[name]["sha256"].as_str().unwrap_or_default();
        let got = sha256(part)?;
        if got != want {
            return Err(Error::Failed(format!(
                "{}: the {name} are not what the compiler wrote (SHA-256 {got}, manifest says {want}); copy or compile it again",
                args.artifact.display()
            )));
        }
        super::print(&format!("{name:<12} {} bytes, SHA-256 as in the manifest\n", part.len))?;
    }
    let n = computes(&model)?;
    super::print(&format!("computation  {n} tokens in one step equal the same tokens one by one, bit for bit\n"))
}

/// The same tokens in one step and one by one must give the same finite logits.
fn computes(model: &Model) -> Result<usize, Error> {
    let info = model.info();
    let n = 24.min(info.max_context);
    let ids: Vec<i32> = (0..n).map(|i| ((i * 7919 + 13) % info.vocab) as i32).collect();
    let rows: Vec<u32> = (0..n as u32).collect();
    let seq = model.seq_new()?;
    let together = model.step(&ids, &vec![seq; n], &rows)?;
    model.seq_free(seq)?;
    let seq = model.seq_new()?;
    for (i, id) in ids.iter().enumerate() {
        let row = model.step(&[*id], &[seq], &[0])?;
        let want = &together[i * info.vocab..(i + 1) * info.vocab];
        if row.iter().any(|v| !v.is_finite()) {
            return Err(Error::Failed(format!("logits after {} tokens are not finite", i + 1)));
        }
        if row.iter().map(|v| v.to_bits()).ne(want.iter().map(|v| v.to_bits())) {
            return Err(Error::Failed(format!("logits after {} tokens depend on how they were batched; please report this", i + 1)));
        }
    }
    model.seq_free(seq)?;
    Ok(n)
}

/// SHA-256 of a part of a file, read in pieces, hex.
fn sha256(part: &Part) -> Result<String, Error> {
    let fail = |e| Error::io("read", &part.path, e);
    let mut file = std::fs::File::open(&part.path).map_err(fail)?;
    file.seek(SeekFrom::Start(part.offset)).map_err(fail)?;
    let mut hash = Sha256::new();
    let mut left = part.len;
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let n = buffer.len().min(left.try_into().unwrap_or(usize::MAX));
        file.read_exact(&mut buffer[..n]).map_err(fail)?;
        hash.update(&buffer[..n]);
        left -= n as u64;
    }
    Ok(hex(&hash.finalize()))
}
