//! `llmcc eval`: quality.

use crate::Error;
use crate::args::PplArgs;
use crate::loaded::Model;
use serde_json::json;

/// How a text is cut.
#[derive(Clone, Debug, Default)]
pub struct PplOptions {
    /// Documents end at this string; without one the text is a single document.
    pub separator: Option<String>,
    /// Documents to use at most.
    pub documents: Option<usize>,
    /// Tokens per window; `None`: the longest context.
    pub window: Option<usize>,
}

/// Perplexity of a text.
#[derive(Clone, Copy, Debug)]
pub struct Perplexity {
    /// `e^(mean negative log likelihood)`.
    pub perplexity: f64,
    /// Mean negative log likelihood of the predicted tokens, in nats.
    pub mean_nll: f64,
    /// Tokens predicted.
    pub tokens: usize,
    /// Documents.
    pub documents: usize,
}

/// `llmcc eval ppl`
///
/// # Errors
/// An artifact without a tokenizer; files that cannot be read.
pub fn ppl(args: &PplArgs) -> Result<(), Error> {
    let text = llmcc_frontends::input::read_text(&args.file)?;
    let model = Model::open(&args.artifact, args.engine.options())?;
    let options = PplOptions { separator: args.separator.clone(), documents: args.documents, window: args.window };
    let p = perplexity(&model, &text, &options)?;
    if args.json {
        let v = json!({ "perplexity": p.perplexity, "mean_nll": p.mean_nll, "tokens": p.tokens, "documents": p.documents });
        return super::print(&format!("{v}\n"));
    }
    super::print(&format!(
        "perplexity {:.4}  (mean NLL {:.5}, {} tokens in {} documents)\n",
        p.perplexity, p.mean_nll, p.tokens, p.documents
    ))
}

/// Each document (trimmed of white space) is a sequence of its own, beginning with the beginning-of-text token if the model has one; every
/// token but the first is predicted from those before it. A document longer than the context is cut off there, as the reference
/// figures of `tests/goldens` do; with a window asked for it is cut into windows that start afresh.
///
/// # Errors
/// No tokenizer; text without tokens.
pub fn perplexity(model: &Model, text: &str, options: &PplOptions) -> Result<Perplexity, Error> {
    let documents: Vec<&str> = match &options.separator {
        Some(s) if !s.is_empty() => text.split(s.as_str()).map(str::trim).collect(),
        _ => vec![text.trim()],
    };
    let context = model.info().max_context;
    let window = options.window.unwrap_or(context).min(context);
    if window < 2 {
        return Err(Error::Usage("a window needs at least 2 tokens".into()));
    }
    let (mut nll, mut tokens, mut used) = (0.0, 0, 0);
    for document in documents.into_iter().filter(|d| !d.is_empty()).take(options.documents.unwrap_or(usize::MAX)) {
        used += 1;
        let ids = model.tokenize(document, true)?;
        let windows = if options.window.is_some() { ids.len().div_ceil(window) } else { 1 };
        for w in ids.chunks(window).take(windows) {
            let (sum, n) = window_nll(model, w)?;
            nll += sum;
            tokens += n;
        }
    }
    if tokens == 0 {
        return Err(Error::Usage("the text has no tokens to predict".into()));
    }
    let mean = nll / tokens as f64;
    Ok(Perplexity { perplexity: mean.exp(), mean_nll: mean, tokens, documents: used })
}

/// Sum of negative log likelihoods of tokens `1..` and their number.
fn window_nll(model: &Model, ids: &[i32]) -> Result<(f64, usize), Error> {
    if ids.len() < 2 {
        return Ok((0.0, 0));
    }
    let vocab = model.info().vocab;
    let seq = model.seq_new()?;
    let mut nll = 0.0;
    // Chunks keep the logits small whatever the window.
    const CHUNK: usize = 128;
    let inputs = &ids[..ids.len() - 1];
    for (c, chunk) in inputs.chunks(CHUNK).enumerate() {
        let rows: Vec<u32> = (0..chunk.len() as u32).collect();
        let logits = model.step(chunk, &vec![seq; chunk.len()], &rows)?;
        for (i, row) in logits.chunks_exact(vocab).enumerate() {
            nll -= log_softmax(row, ids[c * CHUNK + i + 1] as usize);
        }
    }
    model.seq_free(seq)?;
    Ok((nll, inputs.len()))
}

fn log_softmax(row: &[f32], at: usize) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|v| f64::from(v - max).exp()).sum();
    f64::from(row[at] - max) - sum.ln()
}
