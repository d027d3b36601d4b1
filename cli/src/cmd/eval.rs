//! `llmcc eval`: quality.

use crate::args::PplArgs;
use crate::loaded::Model;
use crate::report::count;
use crate::{Error, progress};
use indicatif::ProgressBar;
use serde_json::json;

/// How a text is cut.
#[derive(Clone, Debug, Default)]
pub struct PplOptions {
    /// Documents end at this string; without one the text is a single document.
    pub separator: Option<String>,
    /// Documents to use at most.
    pub documents: Option<usize>,
    /// Tokens per window; `None`: the longest context, or the size of the cache.
    pub window: Option<usize>,
    /// Tokens from a window's beginning to that of the next; `None`: half a window, or with
    /// [`PplOptions::window`] windows that do not overlap.
    pub stride: Option<usize>,
    /// Only the first window of each document counts.
    pub first_window: bool,
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
    if model.info().output != llmcc_model::sys::LLMCC_OUTPUT_LOGITS {
        return Err(Error::Usage(format!(
            "{}: this model has no logits, so it has no perplexity; give a model that writes text",
            args.artifact.display()
        )));
    }
    let options = PplOptions {
        separator: args.separator.clone(),
        documents: args.documents,
        window: args.window,
        stride: args.stride,
        first_window: args.first_window,
    };
    let p = perplexity(&model, &text, &options)?;
    if args.json {
        let v = json!({
            "perplexity": p.perplexity, "mean_nll": p.mean_nll, "tokens": p.tokens, "documents": p.documents,
            "windows": p.windows, "window": p.cut.0, "stride": p.cut.1,
            "left_out": { "documents": p.other_documents, "beyond": p.beyond, "tokens": p.unpredicted },
        });
        return crate::json::print(&v);
    }
    super::print(&p.text())
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

/// A part of a document that the model sees at once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    ids: Vec<i32>,
    /// The first of them that is predicted; those before are context, or (0 excepted) have been predicted.
    first: usize,
}

/// Each document (trimmed of white space) is a sequence of its own, beginning with the
/// beginning-of-text token if the model has one; every token but the first is predicted once, from
/// those before it. A document longer than the context is cut into windows that overlap, as in
/// Hugging Face's guide to perplexity. With a window asked for, but no stride, it is cut into windows
/// that start afresh, each with the beginning-of-text token, as llama.cpp's are.
///
/// # Errors
/// No tokenizer; text without tokens.
pub fn perplexity(model: &Model, text: &str, options: &PplOptions) -> Result<Perplexity, Error> {
    let documents: Vec<&str> = match &options.separator {
        Some(s) if !s.is_empty() => text.split(s.as_str()).map(str::trim).collect(),
        _ => vec![text.trim()],
    };
    let documents: Vec<&str> = documents.into_iter().filter(|d| !d.is_empty()).collect();
    let used = options.documents.unwrap_or(usize::MAX).min(documents.len());
    let cut @ (window, stride) = cut(model, options)?;
    let (mut windows, mut beyond) = (vec![], 0);
    for document in &documents[..used] {
        let ids = model.tokenize(document, true)?;
        match options.window.is_some() && options.stride.is_none() {
            _ if options.first_window => {
                let end = ids.len().min(window);
                beyond += ids.len() - end;
                windows.push(Window { ids: ids[..end].to_vec(), first: 1.min(end) });
            }
            true => {
                let bos = leading(&ids, &model.tokenize(document, false)?);
                windows.extend(afresh(&ids, bos, window));
            }
            false => windows.extend(overlapping(&ids, window, stride)),
        }
    }
    let tokens: usize = windows.iter().map(|w| w.ids.len() - w.first).sum();
    if tokens == 0 {
        return Err(Error::Usage("the text has no tokens to predict".into()));
    }
    let bar = progress::steps(tokens, "predicting tokens");
    let nll = windows.iter().map(|w| window_nll(model, w, &bar)).sum::<Result<f64, Error>>();
    bar.finish_and_clear();
    let mean = nll? / tokens as f64;
    let unpredicted = windows.iter().filter(|w| w.first == 1).count() - begun(model, &windows)?;
    Ok(Perplexity {
        perplexity: mean.exp(),
        mean_nll: mean,
        tokens,
        documents: used,
        windows: windows.len(),
        cut,
        other_documents: documents.len() - used,
        beyond,
        unpredicted,
    })
}

/// How many windows begin with a token that is none of the text.
fn begun(model: &Model, windows: &[Window]) -> Result<usize, Error> {
    // That of an empty text, if it has one.
    let bos = model.tokenize("", true)?.first().copied();
    Ok(windows.iter().filter(|w| w.first == 1 && bos.is_some() && w.ids.first().copied() == bos).count())
}

/// Tokens of a window, and from one's beginning to that of the next.
fn cut(model: &Model, options: &PplOptions) -> Result<(usize, usize), Error> {
    let info = model.info();
    let room = if info.cache_tokens > 0 { info.max_context.min(info.cache_tokens) } else { info.max_context };
    if let Some(window) = options.window.filter(|w| *w > info.max_context) {
        return Err(Error::Usage(format!(
            "--window {window}: the longest context is {} tokens; give at most that many",
            info.max_context
        )));
    }
    let window = options.window.unwrap_or(room).min(room);
    if window < 2 {
        return Err(Error::Usage("a window needs at least 2 tokens".into()));
    }
    let usual = if options.window.is_some() { window } else { window / 2 };
    match options.stride.unwrap_or(usual) {
        0 => Err(Error::Usage("--stride 0: windows would never get to the end; give a positive number".into())),
        stride if stride > window => Err(Error::Usage(format!(
            "--stride {stride}: a window has {window} tokens, so the tokens between windows would be left out; \
                give at most {window}"
        ))),
        stride => Ok((window, stride)),
    }
}

/// The token in front of `plain` in `ids`, if there is one.
fn leading(ids: &[i32], plain: &[i32]) -> Option<i32> {
    let (first, rest) = ids.split_first()?;
    (ids.len() > plain.len() && rest.starts_with(plain)).then_some(*first)
}

/// `ids` in windows of `window` tokens, at least 2, that all begin with `bos`.
fn afresh(ids: &[i32], bos: Option<i32>, window: usize) -> Vec<Window> {
    let head: &[i32] = bos.as_slice();
    let windows = ids[head.len()..].chunks(window - head.len()).map(|w| [head, w].concat());
    windows.map(|ids| Window { ids, first: 1 }).collect()
}

/// `ids` in windows of `window` tokens that begin `stride` tokens apart; each predicts the tokens
/// that windows before it have not.
fn overlapping(ids: &[i32], window: usize, stride: usize) -> Vec<Window> {
    let (mut windows, mut done) = (vec![], 0);
    for begin in (0..ids.len()).step_by(stride) {
        let end = ids.len().min(begin + window);
        // (Without overlap, nothing stands before the first token of a window.)
        windows.push(Window { ids: ids[begin..end].to_vec(), first: (done - begin).max(1) });
        done = end;
        if end == ids.len() {
            break;
        }
    }
    windows
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

    /// With a beginning-of-text token every window has it, and every other token is in one window,
    /// where it is predicted.
    #[test]
    fn windows_begin_as_the_text_does() {
        assert_eq!(leading(&[1, 7, 8], &[7, 8]), Some(1));
        assert_eq!(leading(&[1, 7, 8, 2], &[7, 8]), Some(1));
        assert_eq!(leading(&[7, 8], &[7, 8]), None);
        assert_eq!(leading(&[7, 8, 2], &[7, 8]), None);
        assert_eq!(leading(&[], &[]), None);
        let windows = |ids: &[i32], bos| afresh(ids, bos, 3).into_iter().map(|w| w.ids).collect::<Vec<_>>();
        assert_eq!(windows(&[1, 5, 6, 7, 8, 9], Some(1)), [vec![1, 5, 6], vec![1, 7, 8], vec![1, 9]]);
        assert_eq!(windows(&[5, 6, 7, 8, 9], None), [vec![5, 6, 7], vec![8, 9]]);
        assert_eq!(windows(&[1], Some(1)), Vec::<Vec<i32>>::new());
    }

    /// As in Hugging Face's guide: every token but the first is predicted once, after as many as there is room for.
    #[test]
    fn overlapping_windows_predict_every_token_once() {
        let ids: Vec<i32> = (0..10).collect();
        let window = |ids: std::ops::Range<i32>, first| Window { ids: ids.collect(), first };
        assert_eq!(overlapping(&ids, 4, 2), [window(0..4, 1), window(2..6, 2), window(4..8, 2), window(6..10, 2)]);
        assert_eq!(overlapping(&ids, 6, 3), [window(0..6, 1), window(3..9, 3), window(6..10, 3)]);
        assert_eq!(overlapping(&ids, 10, 5), [window(0..10, 1)]);
        assert_eq!(overlapping(&ids, 5, 5), [window(0..5, 1), window(5..10, 1)]);
        assert_eq!(overlapping(&ids[..1], 4, 2), [window(0..1, 1)]);
        for (n, size, stride) in [(100, 7, 3), (33, 16, 15), (50, 8, 1), (17, 16, 8)] {
            let ids: Vec<i32> = (0..n).collect();
            let predicted = overlapping(&ids, size, stride).into_iter().flat_map(|w| w.ids[w.first..].to_vec());
            assert_eq!(predicted.collect::<Vec<_>>(), ids[1..], "{n} {size} {stride}");
        }
    }

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
