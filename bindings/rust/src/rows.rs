//! Models that give a row of numbers for a text: embeddings, and scores of classes.

use crate::Token;
use crate::capi::*;
use crate::error::{Error, Result, Status};
use crate::model::Model;
use std::ptr;

/// The lengths of embeddings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Normalize {
    /// As the model says.
    #[default]
    Own,
    /// 1.
    Yes,
    /// As computed.
    No,
}

impl Model {
    /// A row of the output for each row of tokens: `[rows.len(), embed_columns]`. A row does not depend on the
    /// others.
    ///
    /// # Errors
    /// A model that writes text, an empty row, a token outside the vocabulary.
    pub fn embed<R: AsRef<[Token]>>(&self, rows: &[R], normalize: Normalize) -> Result<Vec<f32>> {
        let rows = TokenRows::new(rows);
        let given = rows.raw(match normalize {
            Normalize::Own => 0,
            Normalize::Yes => LLMCC_EMBED_NORMALIZE,
            Normalize::No => LLMCC_EMBED_RAW,
        });
        let mut out = vec![0f32; given.n_rows * self.info().embed_columns];
        // SAFETY: the arrays have these lengths.
        self.check(unsafe { (self.api().llmcc_embed)(self.handle(), &given, out.as_mut_ptr(), out.len()) })?;
        Ok(out)
    }

    /// The embeddings, or scores of classes, of texts: `[texts.len(), embed_columns]`.
    ///
    /// # Errors
    /// As [`Model::embed`] and [`Model::tokenize`].
    pub fn embed_texts(&self, texts: &[&str]) -> Result<Vec<f32>> {
        let rows = texts.iter().map(|text| self.tokenize(text)).collect::<Result<Vec<_>>>()?;
        self.embed(&rows, Normalize::Own)
    }

    /// Tokens of a pair of texts as the tokenizer puts them together for the model, with special tokens.
    ///
    /// # Errors
    /// A model that compares no texts, or no tokenizer in the artifact.
    pub fn tokenize_pair(&self, texts: (&str, &str)) -> Result<Vec<Token>> {
        let given = pair(&texts);
        self.fetch((texts.0.len() + texts.1.len()) / 2 + 16, |out, capacity, needed| {
            let (handle, types) = (self.handle(), ptr::null_mut());
            // SAFETY: the texts have their lengths, `out` room for `capacity` tokens.
            unsafe { (self.api().llmcc_tokenize_pair)(handle, &given, 0, out, types, capacity, needed) }
        })
    }

    /// Scores of pairs of texts before any activation: `[pairs.len(), embed_columns]`. `truncate`: pairs that
    /// are too long for the model are cut, the longer text first; else they are an error.
    ///
    /// # Errors
    /// A model that does not score pairs, or a pair that is too long.
    pub fn score_pairs(&self, pairs: &[(&str, &str)], truncate: bool) -> Result<Vec<f32>> {
        let given: Vec<llmcc_pair> = pairs.iter().map(pair).collect();
        let flags = if truncate { LLMCC_PAIR_TRUNCATE } else { 0 };
        let mut out = vec![0f32; pairs.len() * self.info().embed_columns];
        // SAFETY: the arrays and texts have these lengths.
        self.check(unsafe {
            let (start, n) = (given.as_ptr(), given.len());
            (self.api().llmcc_score_pairs)(self.handle(), start, n, flags, out.as_mut_ptr(), out.len())
        })?;
        Ok(out)
    }

    /// The documents from the best for a query to the worst: their indices, with their scores before any
    /// activation. Documents that are too long are cut.
    ///
    /// # Errors
    /// A model that gives a pair other than one score.
    pub fn rank(&self, query: &str, documents: &[&str]) -> Result<Vec<(usize, f32)>> {
        let columns = self.info().embed_columns;
        if columns != 1 {
            return Err(Error::new(
                Status::Unsupported,
                format!("the model gives a pair {columns} scores, and order needs one; use score_pairs"),
            ));
        }
        let pairs: Vec<(&str, &str)> = documents.iter().map(|d| (query, *d)).collect();
        let mut order: Vec<(usize, f32)> = self.score_pairs(&pairs, true)?.into_iter().enumerate().collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        Ok(order)
    }
}

/// Rows of tokens as the C API has them.
pub(crate) struct TokenRows {
    lengths: Vec<usize>,
    tokens: Vec<Token>,
}

impl TokenRows {
    pub(crate) fn new<R: AsRef<[Token]>>(rows: &[R]) -> TokenRows {
        TokenRows {
            lengths: rows.iter().map(|r| r.as_ref().len()).collect(),
            tokens: rows.iter().flat_map(|r| r.as_ref().iter().copied()).collect(),
        }
    }

    /// The structure, which is valid as long as `self`.
    pub(crate) fn raw(&self, flags: u32) -> llmcc_embed_rows {
        llmcc_embed_rows {
            size: size_of::<llmcc_embed_rows>(),
            n_rows: self.lengths.len(),
            lengths: self.lengths.as_ptr(),
            tokens: self.tokens.as_ptr(),
            flags,
            pool: 0,
            types: ptr::null(),
        }
    }
}

/// Two texts as the C API has them.
fn pair((first, second): &(&str, &str)) -> llmcc_pair {
    llmcc_pair {
        first: first.as_ptr().cast(),
        first_len: first.len(),
        second: second.as_ptr().cast(),
        second_len: second.len(),
    }
}
