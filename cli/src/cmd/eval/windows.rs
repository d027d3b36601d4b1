//! Windows of a text: the parts of its documents that a model sees at once.

use crate::args::CutArgs;
use crate::loaded::{Info, Model};
use crate::{Error, texts};
use serde_json::{Map, Value, json};

/// Refuses a model that predicts no tokens.
///
/// # Errors
/// [`Error::Usage`] naming it.
pub(super) fn check_logits(model: &Model) -> Result<(), Error> {
    match model.info().output {
        llmcc_model::sys::LLMCC_OUTPUT_LOGITS => Ok(()),
        _ => Err(Error::Usage(format!(
            "{}: this model has no logits, so it has no perplexity; give a model that writes text",
            model.path().display()
        ))),
    }
}

/// A part of a document that the model sees at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) ids: Vec<i32>,
    /// The first of them that is predicted; those before are context, or (0 excepted) have been predicted.
    pub(super) first: usize,
}

/// Tokens of a window that go through the model at once.
pub(super) struct Part<'a> {
    /// The tokens.
    pub(super) tokens: &'a [i32],
    /// Rows after which a token is predicted.
    pub(super) rows: Vec<u32>,
    /// The tokens that are predicted.
    pub(super) next: &'a [i32],
    /// The place in the window of the first token after which one is predicted.
    pub(super) first: usize,
}

impl Window {
    /// Its tokens but the last, in parts of at most `size`: few logits at once, whatever the window.
    pub(super) fn parts(&self, size: usize) -> impl Iterator<Item = Part<'_>> {
        let predicts = self.ids.len() > self.first;
        let inputs = &self.ids[..self.ids.len().saturating_sub(1)];
        inputs.chunks(size).enumerate().filter(move |_| predicts).map(move |(c, tokens)| {
            let (at, end) = (c * size, c * size + tokens.len());
            let first = (self.first - 1).clamp(at, end);
            let rows = (first - at) as u32..tokens.len() as u32;
            Part { tokens, rows: rows.collect(), next: &self.ids[first + 1..end + 1], first }
        })
    }
}

impl Cut {
    /// The members about it of a document.
    pub(super) fn members(&self) -> Map<String, Value> {
        let left = json!({ "documents": self.other_documents, "beyond": self.beyond, "tokens": self.unpredicted });
        let all = [
            ("documents", self.documents.into()),
            ("windows", self.windows.len().into()),
            ("window", self.size.0.into()),
            ("stride", self.size.1.into()),
            ("left_out", left),
        ];
        all.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
    }
}

/// A text as it is evaluated.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    /// Its windows, in order.
    pub(super) windows: Vec<Window>,
    /// Tokens that are predicted.
    pub(super) tokens: usize,
    /// Documents that were used.
    pub(super) documents: usize,
    /// Documents that were left out, because there were enough.
    pub(super) other_documents: usize,
    /// Tokens behind the first window of a document, where only that counts.
    pub(super) beyond: usize,
    /// Tokens that nothing predicts.
    pub(super) unpredicted: usize,
    /// Tokens of a window, and from one's beginning to that of the next.
    pub(super) size: (usize, usize),
}

/// Cuts a text, for models with sizes `infos` (the first one's tokenizer is taken).
///
/// Each document (trimmed of white space) is a sequence of its own, beginning with the
/// beginning-of-text token if the model has one; every token but the first is predicted once, from
/// those before it. A document longer than the context is cut into windows that overlap, as in
/// Hugging Face's guide to perplexity. With a window asked for, but no stride, it is cut into windows
/// that start afresh, each with the beginning-of-text token, as llama.cpp's are.
///
/// # Errors
/// No tokenizer; text without tokens; windows that the models have no room for.
pub(super) fn cut(model: &Model, infos: &[Info], text: &str, options: &CutArgs) -> Result<Cut, Error> {
    let documents = texts::documents(text, options.separator.as_deref());
    let used = options.documents.unwrap_or(usize::MAX).min(documents.len());
    let size @ (window, stride) = sizes(infos, options)?;
    let (mut windows, mut beyond) = (vec![], 0);
    for document in documents.iter().take(used) {
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
    let tokens: usize = windows.iter().map(|w| w.ids.len().saturating_sub(w.first)).sum();
    if tokens == 0 {
        return Err(Error::Usage("the text has no tokens to predict".into()));
    }
    let unpredicted = windows.iter().filter(|w| w.first == 1).count() - begun(model, &windows)?;
    let other_documents = documents.len() - used;
    Ok(Cut { windows, tokens, documents: used, other_documents, beyond, unpredicted, size })
}

/// Sequences, each as a window.
pub(super) fn of_sequences(sequences: Vec<Vec<i32>>) -> Cut {
    let longest = sequences.iter().map(Vec::len).max().unwrap_or(0);
    let documents = sequences.len();
    let windows: Vec<Window> = sequences.into_iter().map(|ids| Window { ids, first: 1 }).collect();
    let tokens = windows.iter().map(|w| w.ids.len().saturating_sub(w.first)).sum();
    let size = (longest, longest);
    Cut { windows, tokens, documents, other_documents: 0, beyond: 0, unpredicted: documents, size }
}

/// How many windows begin with a token that is none of the text.
fn begun(model: &Model, windows: &[Window]) -> Result<usize, Error> {
    // That of an empty text, if it has one.
    let bos = model.tokenize("", true)?.first().copied();
    Ok(windows.iter().filter(|w| w.first == 1 && bos.is_some() && w.ids.first().copied() == bos).count())
}

/// The longest sequence that a model has room for, in tokens.
pub(super) fn room(info: &Info) -> usize {
    match info.cache_tokens {
        0 => info.max_context,
        tokens => info.max_context.min(tokens),
    }
}

/// Tokens of a window, and from one's beginning to that of the next.
fn sizes(infos: &[Info], options: &CutArgs) -> Result<(usize, usize), Error> {
    let room = infos.iter().map(room).min().unwrap_or_default();
    let context = infos.iter().map(|info| info.max_context).min().unwrap_or_default();
    if let Some(window) = options.window.filter(|w| *w > context) {
        return Err(Error::Usage(format!(
            "--window {window}: the longest context is {context} tokens; give at most that many"
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
}
