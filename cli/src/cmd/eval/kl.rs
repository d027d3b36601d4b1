//! `llmcc eval kl`: how far a model's predictions are from a reference's.

use super::windows::{Cut, PplOptions, Window, check_logits, cut};
use crate::advice::is_checkpoint;
use crate::args::KlArgs;
use crate::divergence::{Divergence, Mean, Token};
use crate::loaded::Model;
use crate::report::count;
use crate::{Error, progress, reference};
use indicatif::ProgressBar;
use serde_json::{Value, json};

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
    let text = crate::texts::read(&args.file)?;
    let engine = args.engine.options();
    let made = match is_checkpoint(&args.reference) {
        true => Some(reference::compile(&reference::options(&args.reference)?, &std::env::temp_dir().join("llmcc"))?),
        false => None,
    };
    let path = made.as_ref().map_or(args.reference.as_path(), |made| made.path());
    let models = [Model::open(path, engine)?, Model::open(&args.artifact, engine)?];
    let c = compare(&models, &text, &PplOptions::from(&args.cut))?;
    if args.json { crate::json::print(&c.document()) } else { crate::stdout::print(&c.text()) }
}

/// Compares a model, the second one, with the first one, the reference, on a text that is cut into windows.
///
/// # Errors
/// No logits or no tokenizer; models of different vocabularies or tokens; logits that are no distribution.
pub fn compare(models: &[Model; 2], text: &str, options: &PplOptions) -> Result<Comparison, Error> {
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
    let cut = cut(reference, &[reference.info(), other.info()], text, options)?;
    let bar = progress::steps(cut.tokens, "comparing tokens");
    let all = cut.windows.iter().map(|w| window(models, w, &bar)).collect::<Result<Vec<_>, Error>>();
    bar.finish_and_clear();
    let divergence = Divergence::of(&all?).ok_or_else(|| Error::Usage("the text has no tokens to predict".into()))?;
    Ok(Comparison { divergence, cut })
}

/// The tokens that a window predicts, compared.
fn window(models: &[Model; 2], window: &Window, bar: &ProgressBar) -> Result<Vec<Token>, Error> {
    if window.ids.len() <= window.first {
        return Ok(vec![]);
    }
    let vocab = models[0].info().vocab;
    let seqs = [models[0].seq_new()?, models[1].seq_new()?];
    let mut out = vec![];
    // Chunks keep the logits small whatever the window.
    const CHUNK: usize = 64;
    let inputs = &window.ids[..window.ids.len() - 1];
    for (c, chunk) in inputs.chunks(CHUNK).enumerate() {
        let at = c * CHUNK;
        let known = (window.first - 1).saturating_sub(at).min(chunk.len());
        let rows: Vec<u32> = (known as u32..chunk.len() as u32).collect();
        let step = |i: usize| models[i].step(chunk, &vec![seqs[i]; chunk.len()], &rows);
        let (p, q) = (step(0)?, step(1)?);
        for (i, (p, q)) in p.chunks_exact(vocab).zip(q.chunks_exact(vocab)).enumerate() {
            let next = window.ids[at + known + i + 1] as usize;
            out.push(Token::compare(p, q, next).ok_or_else(|| no_distribution(models, at + known + i))?);
        }
        bar.inc(rows.len() as u64);
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
        let Cut { windows, documents, other_documents, beyond, unpredicted, size, .. } = &self.cut;
        if let Some(all) = all.as_object_mut() {
            all.insert("documents".into(), (*documents).into());
            all.insert("windows".into(), windows.len().into());
            all.insert("window".into(), size.0.into());
            all.insert("stride".into(), size.1.into());
            let left = json!({ "documents": other_documents, "beyond": beyond, "tokens": unpredicted });
            all.insert("left_out".into(), left);
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
    let range = |m: &Mean, digits: usize, factor: f64| match (m.low, m.high) {
        (Some(low), Some(high)) => format!(" ({:.digits$} to {:.digits$})", low * factor, high * factor),
        _ => String::new(),
    };
    let ratio = (d.nll_difference.mean.exp() - 1.0) * 100.0;
    format!(
        "KL           mean {:.6} nats{}, 99th percentile {:.6}, largest {:.6}\n\
         top-1        {:.2} % the same token{}\n\
         perplexity   {:.4}, reference {:.4} ({ratio:+.3} %)\n",
        d.kl.mean.mean,
        range(&d.kl.mean, 6, 1.0),
        d.kl.p99,
        d.kl.largest,
        d.top1.mean * 100.0,
        range(&d.top1, 2, 100.0),
        d.perplexity,
        d.reference_perplexity,
    )
}
