//! `llmcc eval ppl`: perplexity.

use super::windows::{Cut, PplOptions, Window, cut};
use crate::args::PplArgs;
use crate::loaded::Model;
use crate::report::count;
use crate::{Error, progress};
use indicatif::ProgressBar;
use serde_json::json;

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
    /// Windows that they were cut into.
    pub windows: usize,
    /// Tokens of a window, and from one's beginning to that of the next.
    pub cut: (usize, usize),
    /// Documents that were left out, because there were enough.
    pub other_documents: usize,
    /// Tokens behind the first window of a document, where only that counts.
    pub beyond: usize,
    /// Tokens that nothing predicts: the first of a document, or of a window that begins afresh.
    pub unpredicted: usize,
}

/// `llmcc eval ppl`
///
/// # Errors
/// An artifact without a tokenizer; files that cannot be read.
pub fn ppl(args: &PplArgs) -> Result<(), Error> {
    let text = crate::texts::read(&args.file)?;
    let model = Model::open(&args.artifact, args.engine.options())?;
    super::windows::check_logits(&model)?;
    let p = perplexity(&model, &text, &PplOptions::from(&args.cut))?;
    if args.json {
        let v = json!({
            "perplexity": p.perplexity, "mean_nll": p.mean_nll, "tokens": p.tokens, "documents": p.documents,
            "windows": p.windows, "window": p.cut.0, "stride": p.cut.1,
            "left_out": { "documents": p.other_documents, "beyond": p.beyond, "tokens": p.unpredicted },
        });
        return crate::json::print(&v);
    }
    crate::stdout::print(&p.text())
}

impl Perplexity {
    /// In words, with the omitted parts.
    fn text(&self) -> String {
        let (tokens, documents) = (count(self.tokens, "token"), count(self.documents, "document"));
        let mut s =
            format!("perplexity {:.4}  (mean NLL {:.5}, {tokens} in {documents})\n", self.perplexity, self.mean_nll);
        let (window, stride) = self.cut;
        if self.windows > self.documents {
            let windows = count(self.windows, "window");
            let overlap = match stride < window {
                true => format!(", {stride} apart: a token in two windows is predicted in the first"),
                false => String::new(),
            };
            s += &format!("cut into {windows} of up to {window} tokens{overlap}\n");
        }
        let others =
            (self.other_documents > 0).then(|| format!("{} (--documents)", count(self.other_documents, "document")));
        let first = (self.unpredicted > 0).then(|| format!("{} without a context", count(self.unpredicted, "token")));
        let beyond = (self.beyond > 0)
            .then(|| format!("{} behind the first window (--first-window)", count(self.beyond, "token")));
        let left: Vec<String> = others.into_iter().chain(beyond).chain(first).collect();
        if !left.is_empty() {
            s += &format!("left out: {}\n", left.join(", "));
        }
        s
    }
}

/// The perplexity of a text, cut into windows.
///
/// # Errors
/// No tokenizer; text without tokens.
pub fn perplexity(model: &Model, text: &str, options: &PplOptions) -> Result<Perplexity, Error> {
    let Cut { windows, tokens, documents, other_documents, beyond, unpredicted, size } =
        cut(model, &[model.info()], text, options)?;
    let bar = progress::steps(tokens, "predicting tokens");
    let nll = windows.iter().map(|w| window_nll(model, w, &bar)).sum::<Result<f64, Error>>();
    bar.finish_and_clear();
    let mean = nll? / tokens as f64;
    Ok(Perplexity {
        perplexity: mean.exp(),
        mean_nll: mean,
        tokens,
        documents,
        windows: windows.len(),
        cut: size,
        other_documents,
        beyond,
        unpredicted,
    })
}

/// Sum of negative log likelihoods of the tokens that a window predicts.
fn window_nll(model: &Model, window: &Window, bar: &ProgressBar) -> Result<f64, Error> {
    if window.ids.len() <= window.first {
        return Ok(0.0);
    }
    let vocab = model.info().vocab;
    let seq = model.seq_new()?;
    let mut nll = 0.0;
    // Chunks keep the logits small whatever the window.
    const CHUNK: usize = 128;
    let inputs = &window.ids[..window.ids.len() - 1];
    for (c, chunk) in inputs.chunks(CHUNK).enumerate() {
        let at = c * CHUNK;
        let known = (window.first - 1).saturating_sub(at).min(chunk.len());
        let rows: Vec<u32> = (known as u32..chunk.len() as u32).collect();
        let logits = model.step(chunk, &vec![seq; chunk.len()], &rows)?;
        for (i, row) in logits.chunks_exact(vocab).enumerate() {
            nll -= log_softmax(row, window.ids[at + known + i + 1] as usize);
        }
        bar.inc(rows.len() as u64);
    }
    model.seq_free(seq)?;
    Ok(nll)
}

fn log_softmax(row: &[f32], at: usize) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|v| f64::from(v - max).exp()).sum();
    f64::from(row[at] - max) - sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_said() {
        let p = Perplexity {
            perplexity: 2.0,
            mean_nll: 0.7,
            tokens: 1,
            documents: 1,
            windows: 3,
            cut: (8, 4),
            other_documents: 2,
            beyond: 0,
            unpredicted: 1,
        };
        let text = p.text();
        assert!(text.contains("1 token in 1 document)") && text.contains("3 windows of up to 8 tokens"), "{text}");
        assert!(text.contains("left out: 2 documents (--documents), 1 token without a context"), "{text}");
        let whole = Perplexity { windows: 1, other_documents: 0, unpredicted: 0, ..p };
        assert_eq!(whole.text().lines().count(), 1);
    }
}
