//! `llmcc eval ppl`: perplexity.

use super::windows::{Cut, Window, cut};
use crate::args::{CutArgs, PplArgs};
use crate::loaded::Model;
use crate::report::count;
use crate::{Error, progress};
use indicatif::ProgressBar;
use serde_json::{Map, Value};

/// Perplexity of a text.
#[derive(Clone, Debug)]
pub struct Perplexity {
    /// `e^(mean negative log likelihood)`.
    pub perplexity: f64,
    /// Mean negative log likelihood of the predicted tokens, in nats.
    pub mean_nll: f64,
    cut: Cut,
}

/// `llmcc eval ppl`
///
/// # Errors
/// An artifact without a tokenizer; files that cannot be read.
pub fn ppl(args: &PplArgs) -> Result<(), Error> {
    let text = crate::texts::read(&args.file)?;
    let model = args.engine.open(&args.artifact)?;
    super::windows::check_logits(&model)?;
    let p = perplexity(&model, &text, &args.cut)?;
    if args.json { crate::json::print(&p.document()) } else { crate::stdout::print(&p.text()) }
}

impl Perplexity {
    /// Tokens that were predicted.
    pub fn tokens(&self) -> usize {
        self.cut.tokens
    }

    /// As JSON.
    fn document(&self) -> Value {
        let mut all = Map::new();
        all.insert("perplexity".into(), self.perplexity.into());
        all.insert("mean_nll".into(), self.mean_nll.into());
        all.insert("tokens".into(), self.cut.tokens.into());
        all.extend(self.cut.members());
        all.into()
    }

    /// In words, with the omitted parts.
    fn text(&self) -> String {
        let Cut { windows, tokens, documents: used, other_documents, beyond, unpredicted, size } = &self.cut;
        let (tokens, documents) = (count(*tokens, "token"), count(*used, "document"));
        let mut s =
            format!("perplexity {:.4}  (mean NLL {:.5}, {tokens} in {documents})\n", self.perplexity, self.mean_nll);
        let (window, stride) = *size;
        if windows.len() > *used {
            let windows = count(windows.len(), "window");
            let overlap = match stride < window {
                true => format!(", {stride} apart: a token in two windows is predicted in the first"),
                false => String::new(),
            };
            s += &format!("cut into {windows} of up to {window} tokens{overlap}\n");
        }
        let others = (*other_documents > 0).then(|| format!("{} (--documents)", count(*other_documents, "document")));
        let first = (*unpredicted > 0).then(|| format!("{} without a context", count(*unpredicted, "token")));
        let beyond =
            (*beyond > 0).then(|| format!("{} behind the first window (--first-window)", count(*beyond, "token")));
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
pub fn perplexity(model: &Model, text: &str, options: &CutArgs) -> Result<Perplexity, Error> {
    let cut = cut(model, &[model.info()], text, options)?;
    let bar = progress::steps(cut.tokens, "predicting tokens");
    let nll = cut.windows.iter().map(|w| window_nll(model, w, &bar)).sum::<Result<f64, Error>>();
    bar.finish_and_clear();
    let mean = nll? / cut.tokens as f64;
    Ok(Perplexity { perplexity: mean.exp(), mean_nll: mean, cut })
}

/// Tokens of a step at most.
const PART: usize = 128;

/// Sum of negative log likelihoods of the tokens that a window predicts.
fn window_nll(model: &Model, window: &Window, bar: &ProgressBar) -> Result<f64, Error> {
    let vocab = model.info().vocab;
    let seq = model.seq_new()?;
    let mut nll = 0.0;
    for part in window.parts(PART) {
        let logits = model.step(part.tokens, &vec![seq; part.tokens.len()], &part.rows)?;
        for (row, next) in logits.chunks_exact(vocab).zip(part.next) {
            nll -= log_softmax(row, *next as usize);
        }
        bar.inc(part.rows.len() as u64);
    }
    model.seq_free(seq)?;
    Ok(nll)
}

/// The logarithm of the probability of token `at`, by a row of logits.
pub(super) fn log_softmax(row: &[f32], at: usize) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|v| f64::from(v - max).exp()).sum();
    f64::from(row[at] - max) - sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_said() {
        let windows = vec![Window { ids: vec![1, 2], first: 1 }; 3];
        let cut = Cut { windows, tokens: 1, documents: 1, other_documents: 2, beyond: 0, unpredicted: 1, size: (8, 4) };
        let p = Perplexity { perplexity: 2.0, mean_nll: 0.7, cut };
        let text = p.text();
        assert!(text.contains("1 token in 1 document)") && text.contains("3 windows of up to 8 tokens"), "{text}");
        assert!(text.contains("left out: 2 documents (--documents), 1 token without a context"), "{text}");
        let windows = p.cut.windows[..1].to_vec();
        let whole = Perplexity { cut: Cut { windows, other_documents: 0, unpredicted: 0, ..p.cut }, ..p };
        assert_eq!(whole.text().lines().count(), 1);
    }
}
