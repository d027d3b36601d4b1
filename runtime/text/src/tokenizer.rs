//! `tokenizer.json` through the `tokenizers` crate, with the special-token habits of the model.

use crate::longest::Longest;
use crate::{Config, Error, Kind, Result};
use tokenizers::utils::truncation::truncate_encodings;
use tokenizers::{Encoding, PostProcessor, TruncationDirection, TruncationParams, TruncationStrategy};

/// A parsed tokenizer.
pub struct Tokenizer {
    pub(super) inner: tokenizers::Tokenizer,
    /// Of a vocabulary whose longest tokens are taken.
    longest: Option<Longest>,
    bos: Option<(u32, String)>,
    add_bos: Option<bool>,
    add_eos: Option<i32>,
    untyped: bool,
    prompt: String,
    most: Option<usize>,
}

impl Tokenizer {
    /// Parses `tokenizer.json`.
    pub fn new(json: &str, config: &Config) -> Result<Tokenizer> {
        let mut inner = tokenizers::Tokenizer::from_bytes(json).map_err(|e| {
            Error::new(Kind::Damaged, format!("the artifact's tokenizer cannot be read ({e}); compile it again"))
        })?;
        // One prompt at a time needs no thread pool of the crate's own, which would outlive the
        // model.
        tokenizers::parallelism::set_parallelism(false);
        // Settings of training runs that some tokenizer.json carry; they would cut or pad prompts.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|e| Error::new(Kind::Internal, format!("tokenizer: {e}")))?;
        let bos = config
            .bos_id
            .and_then(|id| Some((id as u32, config.bos_token.clone().or_else(|| inner.id_to_token(id as u32))?)));
        let longest = Longest::of(&inner);
        Ok(Tokenizer {
            inner,
            longest,
            bos,
            add_bos: config.add_bos,
            add_eos: config.add_eos,
            untyped: config.untyped,
            prompt: config.prompt.clone(),
            most: config.most,
        })
    }

    /// Token ids of `text`. With `add_special`, the model's own start (and, for some, end) tokens
    /// are added as for a plain prompt; text that comes from a chat template already has them.
    /// Special tokens written out in `text` are recognised. An embedder's text gets its prompt, too,
    /// and loses what is more than the model takes.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<i32>> {
        let prompted = if add_special { format!("{}{text}", self.prompt) } else { String::new() };
        self.encode_whole(if prompted.is_empty() { text } else { &prompted }, add_special)
    }

    /// As [`Tokenizer::encode`], of a text that has its prompt already.
    ///
    /// # Errors
    /// The tokenizer refuses the text.
    pub fn encode_whole(&self, text: &str, add_special: bool) -> Result<Vec<i32>> {
        let mut ids = self.ids(text, add_special)?;
        if let (true, Some((bos, bos_text))) = (add_special, &self.bos) {
            let has = ids.first() == Some(&(*bos as i32));
            match self.add_bos {
                Some(true) if !has => ids.insert(0, *bos as i32),
                Some(false) if has && !text.starts_with(bos_text.as_str()) => drop(ids.remove(0)),
                _ => {}
            }
        }
        if let (true, Some(eos)) = (add_special, self.add_eos)
            && ids.last() != Some(&eos)
        {
            ids.push(eos);
        }
        Ok(ids)
    }

    fn ids(&self, text: &str, add_special: bool) -> Result<Vec<i32>> {
        if let Some(longest) = &self.longest {
            return Ok(longest.encode(&self.inner, text));
        }
        Ok(signed(self.encoding(text, add_special)?.get_ids()))
    }

    fn encoding(&self, text: &str, add_special: bool) -> Result<Encoding> {
        let Some(most) = self.most.filter(|_| add_special) else {
            return self.inner.encode_fast(text, add_special).map_err(refused);
        };
        let found = self.inner.encode_fast(text, false).map_err(refused)?;
        let added = self.added(false);
        // (Without a post-processor the start is added later, as the end may be.)
        let start = added == 0 && self.add_bos == Some(true);
        let room = most.saturating_sub(added + usize::from(start) + usize::from(self.add_eos.is_some()));
        let (mut found, _) = cut(found, None, room)?;
        found.take_overflowing();
        self.inner.post_process(found, None, true).map_err(refused)
    }

    /// Special tokens that a text, or a pair of texts, gets.
    fn added(&self, pair: bool) -> usize {
        self.inner.get_post_processor().map_or(0, |p| p.added_tokens(pair))
    }

    /// Ids and types of two texts as the tokenizer puts them together for a model that compares
    /// texts: with its special tokens, the second text mostly of type 1. With `most`, the longer
    /// text loses tokens at its end until both have no more than so many together (as with
    /// `longest_first` of Hugging Face's tokenizers).
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for a vocabulary without a form for pairs; [`Kind::Invalid`] if `most`
    /// leaves no room for texts, or the tokenizer refuses them.
    pub fn encode_pair(&self, first: &str, second: &str, most: Option<usize>) -> Result<(Vec<i32>, Vec<i32>)> {
        if self.longest.is_some() {
            return Err(no_pairs());
        }
        let (mut a, mut b) = (self.encoding(first, false)?, self.encoding(second, false)?);
        if let Some(most) = most {
            let added = self.added(true);
            let max_length = most.checked_sub(added).filter(|n| *n > 0).ok_or_else(|| {
                let message = format!("no text fits into {most} tokens, of which {added} are special; allow more");
                Error::new(Kind::Invalid, message)
            })?;
            let (first, second) = cut(a, Some(b), max_length)?;
            (a, b) = (first, second.unwrap_or_default());
            // What was cut off is not wanted.
            (_, _) = (a.take_overflowing(), b.take_overflowing());
        }
        let texts = a.len() + b.len();
        let both = self.inner.post_process(a, Some(b), true).map_err(refused)?;
        if both.len() < texts {
            return Err(no_pairs());
        }
        let types = if self.untyped { vec![0; both.len()] } else { signed(both.get_type_ids()) };
        Ok((signed(both.get_ids()), types))
    }

    /// Text of `ids`, all at once; invalid UTF-8 becomes U+FFFD. Ids the tokenizer does not know
    /// have no text.
    pub fn decode(&self, ids: &[i32], show_special: bool) -> Result<String> {
        let known = |id: i32| u32::try_from(id).ok().filter(|&id| self.inner.id_to_token(id).is_some());
        // A model's vocabulary may be padded beyond its tokenizer's: such tokens have no text.
        let ids: Vec<u32> = ids.iter().filter_map(|&id| known(id)).collect();
        self.inner.decode(&ids, !show_special).map_err(|e| Error::new(Kind::Internal, format!("detokenizing: {e}")))
    }

    /// Entries of the vocabulary, added tokens included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Id of the token written exactly `text`.
    pub fn token_id(&self, text: &str) -> Option<i32> {
        self.inner.token_to_id(text).map(|id| id as i32)
    }
}

/// A text, or two, of no more than `max_length` tokens.
fn cut(first: Encoding, second: Option<Encoding>, max_length: usize) -> Result<(Encoding, Option<Encoding>)> {
    let strategy = TruncationStrategy::LongestFirst;
    let cut = TruncationParams { max_length, stride: 0, strategy, direction: TruncationDirection::Right };
    truncate_encodings(first, second, &cut).map_err(refused)
}

fn signed(numbers: &[u32]) -> Vec<i32> {
    numbers.iter().map(|&n| n as i32).collect()
}

fn no_pairs() -> Error {
    Error::new(Kind::Unsupported, "this model's tokenizer has no form for pairs of texts; give tokens instead")
}

fn refused(e: tokenizers::Error) -> Error {
    Error::new(Kind::Invalid, format!("the tokenizer refused the text: {e}"))
}
