//! `llmcc eval kl`: how far a model's predictions are from a reference's.

use super::windows::{Cut, Window, check_logits, cut, of_sequences};
use crate::args::{CutArgs, KlArgs, PplArgs};
use crate::divergence::{Divergence, Token};
use crate::loaded::Model;
use crate::reference::Reference;
use crate::report::count;
use crate::{Error, progress};
use indicatif::ProgressBar;
use serde_json::Value;

/// A comparison of two models on a text.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Measurements over all predicted tokens.
    pub divergence: Divergence,
    cut: Cut,
}

/// `llmcc eval kl`
///
/// # Errors
/// Artifacts without a tokenizer or with different ones; files that cannot be read; a checkpoint that cannot be
/// compiled.
pub fn run(args: &KlArgs) -> Result<(), Error> {
    let PplArgs { artifact, file, cut, json, engine } = &args.measured;
    let text = crate::texts::read(file)?;
    let reference = Reference::open(&args.reference, None)?;
    let opened = match &reference {
        Reference::Artifact(path) => engine.open(path)?,
        Reference::Checkpoint(made) => Model::open(made.path(), engine.options())?,
    };
    let models = [opened, engine.open(artifact)?];
    let c = if args.ids { compare_sequences(&models, &text)? } else { compare(&models, &text, cut)? };
    if *json { crate::json::print(&c.document()) } else { crate::stdout::print(&c.text()) }
}

/// Compares a model, the second one, with the first one, the reference, on a text that is cut into windows.
///
/// # Errors
/// No logits or no tokenizer; models of different vocabularies or tokens; logits that are no distribution.
pub fn compare(models: &[Model; 2], text: &str, options: &CutArgs) -> Result<Comparison, Error> {
    check_alike(models, text)?;
    let [reference, other] = models;
    compared(models, cut(reference, &[reference.info(), other.info()], text, options)?)
}

/// The same on sequences of token ids, as JSON.
fn compare_sequences(models: &[Model; 2], sequences: &str) -> Result<Comparison, Error> {
    check_alike(models, "")?;
    let unreadable = |e| Error::Usage(format!("--ids: the file has no lists of token ids: {e}"));
    let sequences: Vec<Vec<i32>> = serde_json::from_str(sequences).map_err(unreadable)?;
    compared(models, of_sequences(sequences))
}

/// Refuses models that cannot be compared on a text.
fn check_alike(models: &[Model; 2], text: &str) -> Result<(), Error> {
    let [reference, other] = models;
    models.iter().try_for_each(check_logits)?;
    let unlike = |what: String| {
        Error::Usage(format!(
            "{} and {} cannot be compared: {what}; give two artifacts of the same model",
            reference.path().display(),
            other.path().display()
        ))
    };
    let (a, b) = (reference.info().vocab, other.info().vocab);
    if a != b {
        return Err(unlike(format!("one predicts {a} tokens, the other {b}")));
    }
    if reference.tokenize(text, true)? != other.tokenize(text, true)? {
        return Err(unlike("their tokenizers cut the text differently".into()));
    }
    Ok(())
}

fn compared(models: &[Model; 2], cut: Cut) -> Result<Comparison, Error> {
    let bar = progress::steps(cut.tokens, "comparing tokens");
    let all = cut.windows.iter().map(|w| window(models, w, &bar)).collect::<Result<Vec<_>, Error>>();
    bar.finish_and_clear();
    let divergence = Divergence::of(&all?).ok_or_else(|| Error::Usage("the text has no tokens to predict".into()))?;
    Ok(Comparison { divergence, cut })
}

/// Tokens of a step at most.
const PART: usize = 64;

/// The tokens that a window predicts, compared.
fn window(models: &[Model; 2], window: &Window, bar: &ProgressBar) -> Result<Vec<Token>, Error> {
    let vocab = models[0].info().vocab;
    let seqs = [models[0].seq_new()?, models[1].seq_new()?];
    let mut out = vec![];
    for part in window.parts(PART) {
        let step = |i: usize| models[i].step(part.tokens, &vec![seqs[i]; part.tokens.len()], &part.rows);
        let (p, q) = (step(0)?, step(1)?);
        for (i, (p, q)) in p.chunks_exact(vocab).zip(q.chunks_exact(vocab)).enumerate() {
            let compared = Token::compare(p, q, part.next[i] as usize);
            out.push(compared.ok_or_else(|| no_distribution(models, part.first + i))?);
        }
        bar.inc(part.rows.len() as u64);
    }
    models.iter().zip(seqs).try_for_each(|(model, seq)| model.seq_free(seq))?;
    Ok(out)
}

fn no_distribution(models: &[Model; 2], token: usize) -> Error {
    Error::Failed(format!(
        "{}: its logits after token {token} of a window cannot be compared with those of {}: one of them is not a \
            number, or it excludes a token that the reference does not; `--dtype f32` and `--kv f32` have the largest \
            range",
        models[1].path().display(),
        models[0].path().display()
    ))
}

impl Comparison {
    /// As JSON: divergences in nats.
    pub fn document(&self) -> Value {
        let mut all = serde_json::to_value(self.divergence).unwrap_or_default();
        if let Some(all) = all.as_object_mut() {
            all.extend(self.cut.members());
        }
        all
    }

    /// In words.
    pub fn text(&self) -> String {
        let (d, c) = (&self.divergence, &self.cut);
        let (tokens, documents) = (count(d.tokens, "token"), count(c.documents, "document"));
        let mut s = in_words(d);
        s += &format!("tokens       {tokens} in {documents}; intervals are 95 %, from {}\n", count(d.blocks, "block"));
        if c.other_documents + c.beyond + c.unpredicted > 0 {
            s += &format!(
                "left out     {} (--documents), {} behind first windows (--first-window), {} without a context\n",
                count(c.other_documents, "document"),
                count(c.beyond, "token"),
                count(c.unpredicted, "token")
            );
        }
        s
    }
}

/// Measurements in words, a line for each.
pub fn in_words(d: &Divergence) -> String {
    let ratio = (d.nll_difference.mean.exp() - 1.0) * 100.0;
    format!(
        "KL           mean {:.6} nats{}, 99th percentile {:.6}, largest {:.6}\n\
         top-1        {:.2} % the same token{}\n\
         perplexity   {:.4}, reference {:.4} ({ratio:+.3} %)\n",
        d.kl.mean.mean,
        d.kl.mean.interval(6, 1.0),
        d.kl.p99,
        d.kl.largest,
        d.top1.mean * 100.0,
        d.top1.interval(2, 100.0),
        d.perplexity,
        d.reference_perplexity,
    )
}
