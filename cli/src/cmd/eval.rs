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
    if model.info().output != llmcc_abi::capi::LLMCC_OUTPUT_LOGITS {
        return Err(Error::Usage(format!(
            "{}: this model writes no text, so it predicts no tokens: perplexity is measured of models with logits",
            args.artifact.display()
        )));
    }
    let options = PplOptions { separator: args.separator.clone(), documents: args.documents, window: args.window };
    let p = perplexity(&model, &text, &options)?;
    if args.json {
        let v =
            json!({ "perplexity": p.perplexity, "mean_nll": p.mean_nll, "tokens": p.tokens, "documents": p.documents });
        return super::print(&format!("{v}\n"));
    }
    super::print(&format!(
        "perplexity {:.4}  (mean NLL {:.5}, {} tokens in {} documents)\n",
        p.perplexity, p.mean_nll, p.tokens, p.documents
    ))
}

/// Each document (trimmed of white space) is a sequence of its own, beginning with the
/// beginning-of-text token if the model has one; every token but the first is predicted from those
/// before it. A document longer than the context is cut off there, as the reference figures of
/// `tests/goldens` do; with a window asked for it is cut into windows that start afresh, each with
/// the beginning-of-text token, as llama.cpp's are: so every token of the text is predicted once,
/// and none without what the model was trained to see first.
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
        let bos = leading(&ids, &model.tokenize(document, false)?);
        let cut = if options.window.is_some() {
            windows(&ids, bos, window)
        } else {
            vec![ids[..ids.len().min(window)].to_vec()]
        };
        for w in cut {
            let (sum, n) = window_nll(model, &w)?;
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

/// The token in front of `plain` in `ids`, if there is one.
fn leading(ids: &[i32], plain: &[i32]) -> Option<i32> {
    let (first, rest) = ids.split_first()?;
    (ids.len() > plain.len() && rest.starts_with(plain)).then_some(*first)
}

/// `ids` in windows of `window` tokens, at least 2, that all begin with `bos`.
fn windows(ids: &[i32], bos: Option<i32>, window: usize) -> Vec<Vec<i32>> {
    let head: &[i32] = bos.as_slice();
    ids[head.len()..].chunks(window - head.len()).map(|w| [head, w].concat()).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// With a beginning-of-text token every window has it, and every other token is in one window,
    /// where it is predicted.
    #[test]
    fn windows_begin_as_the_text_does() {
        assert_eq!(leading(&[1, 7, 8], &[7, 8]), Some(1));
        assert_eq!(leading(&[1, 7, 8, 2], &[7, 8]), Some(1));
        assert_eq!(leading(&[7, 8], &[7, 8]), None);
        assert_eq!(leading(&[7, 8, 2], &[7, 8]), None);
        assert_eq!(leading(&[], &[]), None);
        assert_eq!(windows(&[1, 5, 6, 7, 8, 9], Some(1), 3), [vec![1, 5, 6], vec![1, 7, 8], vec![1, 9]]);
        assert_eq!(windows(&[5, 6, 7, 8, 9], None, 3), [vec![5, 6, 7], vec![8, 9]]);
        assert_eq!(windows(&[1], Some(1), 3), Vec::<Vec<i32>>::new());
    }
}
