//! `llmcc verify`: is the artifact what the compiler wrote, and does it compute here?

use crate::Error;
use crate::args::{GoldenArgs, VerifyArgs};
use crate::golden::{self, Golden};
use crate::loaded::{Info, Model, Part, segments};
use crate::manifest::hex;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::io::{Read, Seek, SeekFrom};

/// Checks hashes of code and weights, then computes with it.
///
/// # Errors
/// [`Error::Failed`] saying what differs.
pub fn run(args: &VerifyArgs) -> Result<(), Error> {
    let model = Model::open(&args.artifact, args.engine.options())?;
    let manifest: Value = serde_json::from_str(&model.manifest())
        .map_err(|e| Error::Artifact { path: args.artifact.clone(), message: format!("its manifest is not JSON: {e}") })?;
    let parts = segments(&args.artifact)?;
    let mut hashes = vec![];
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
        hashes.push(got);
    }
    let said = golden_vectors(args, model.info(), &manifest["golden"], golden::seed(&hashes[0], &hashes[1]))?;
    super::print(&format!("golden       {said}\n"))?;
    let n = computes(&model)?;
    super::print(&format!("computation  {n} tokens in one step equal the same tokens one by one, bit for bit\n"))
}

/// Compares what the artifact computes with what it computed when it was compiled; returns what there was to compare.
fn golden_vectors(args: &VerifyArgs, info: Info, kept: &Value, seed: u64) -> Result<String, Error> {
    if let Some(why) = kept["absent"].as_str() {
        return Ok(format!("none: {why}"));
    }
    let broken = |message: String| Error::Artifact { path: args.artifact.clone(), message };
    let kept: Golden = serde_json::from_value(kept.clone()).map_err(|e| broken(format!("its golden vectors are unreadable: {e}")))?;
    if kept.scheme != golden::SCHEME {
        return Ok(format!("not compared: made by scheme {}, this llmcc knows {}", kept.scheme, golden::SCHEME));
    }
    let program = std::env::current_exe().map_err(|e| Error::io("find", "the llmcc program", e))?;
    let got = golden::compute_in_child(&program, &args.artifact, seed, args.engine.threads)
        .map_err(|e| broken(format!("its code for processors does not run here ({e})")))?;
    let steps = golden::steps(seed, info.vocab, info.max_context);
    match golden::difference(&kept.steps, &got, info.vocab, &steps) {
        Some(what) => Err(Error::Failed(format!(
            "{}: it does not compute what it did when it was compiled: {what}; it was altered, or this machine computes differently",
            args.artifact.display()
        ))),
        None => {
            let tokens: usize = got.iter().map(|s| s.tokens).sum();
            Ok(format!("{tokens} tokens in {} steps give the logits of when it was compiled, bit for bit", got.len()))
        }
    }
}

/// `llmcc golden`: the other end of [`golden::compute_in_child`].
///
/// # Errors
/// Not an artifact, or it fails.
pub fn golden(args: &GoldenArgs) -> Result<(), Error> {
    let model = Model::open(&args.artifact, golden::engine_options(args.threads))?;
    let computed = golden::compute(&model, args.seed)?;
    super::print(&serde_json::to_string(&computed).unwrap_or_default())
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
