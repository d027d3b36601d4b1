//! `tokenizer.json` through the `tokenizers` crate, with the special-token habits of the model.

use crate::long::Long;
use crate::longest::Longest;
use crate::lossy::Lossy;
use crate::searches::{Trial, can_give_up};
use crate::{Config, Error, Kind, Result};
use std::sync::OnceLock;
use tokenizers::utils::truncation::truncate_encodings;
use tokenizers::{
    Encoding, ModelWrapper, PostProcessor, Token, TruncationDirection, TruncationParams, TruncationStrategy,
};

/// Bytes of a text for which the crate's tables are large.
const LONG: usize = 1 << 16;

/// A parsed tokenizer.
pub struct Tokenizer {
    pub(super) inner: tokenizers::Tokenizer,
    /// A vocabulary whose longest tokens are taken.
    longest: Option<Longest>,
    /// How long texts are walked; `None` inside: only the crate knows.
    long: OnceLock<Option<Long>>,
    /// A search in a text can give up, and the crate does not say so.
    searches: bool,
    /// Made for the first text that only the crate knows.
    trial: OnceLock<Trial>,
    /// A vocabulary that lacks bytes.
    lossy: Option<Lossy>,
    /// Spaces before punctuation are taken out of decoded texts.
    clean: bool,
    bos: Option<(u32, String)>,
    /// The post-processor puts BOS before a text.
    writes_bos: bool,
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
        let (longest, lossy) = (Longest::of(&inner), Lossy::of(&inner));
        let writes_bos = longest.is_none() && bos.as_ref().is_some_and(|(bos, _)| comes_first(&inner, *bos));
        let clean = config.clean.0 && (config.clean.1 || !matches!(inner.get_model(), ModelWrapper::BPE(_)));
        Ok(Tokenizer {
            searches: can_give_up(&inner),
            trial: OnceLock::new(),
            clean,
            inner,
            longest,
            long: OnceLock::new(),
            lossy,
            bos,
            writes_bos,
            add_bos: config.add_bos,
            add_eos: config.add_eos,
            untyped: config.untyped,
            prompt: config.prompt.clone(),
            most: config.most,
        })
    }

    /// Token ids of `text`. With `add_special`, the model's own start (and, for some, end) tokens
    /// are added as for a plain prompt; text that comes from a chat template already has them.
    /// Special tokens written out in `text` are recognised. An embedder's text gets its prompt,
    /// too, and is cut to the model's longest input.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<i32>> {
        match add_special && !self.prompt.is_empty() {
            true => self.encode_whole(&format!("{}{text}", self.prompt), add_special),
            false => self.encode_whole(text, add_special),
        }
    }

    /// As [`Tokenizer::encode`], of a text that has its prompt already.
    ///
    /// # Errors
    /// The tokenizer refuses the text.
    pub fn encode_whole(&self, text: &str, add_special: bool) -> Result<Vec<i32>> {
        let mut ids = self.ids(text, add_special)?;
        if let (true, Some((bos, bos_text))) = (add_special, &self.bos) {
            match self.add_bos {
                // Whatever the text itself begins with, as everywhere else.
                Some(true) if !self.writes_bos => ids.insert(0, *bos as i32),
                Some(false) if self.writes_bos && !text.starts_with(bos_text.as_str()) => {
                    ids = ids.into_iter().skip(1).collect();
                }
                _ => {}
            }
        }
        ids.extend(self.add_eos.filter(|_| add_special));
        Ok(ids)
    }

    fn ids(&self, text: &str, add_special: bool) -> Result<Vec<i32>> {
        if let Some(longest) = &self.longest {
            return longest.encode(&self.inner, text);
        }
        if let Some(ids) = self.walked(text)? {
            return if add_special { self.around(ids) } else { Ok(ids) };
        }
        let found = match (add_special, self.most) {
            (true, Some(most)) => {
                let (mut found, _) = cut(self.of_crate(text, false)?, None, self.room(most))?;
                found.take_overflowing();
                self.inner.post_process(found, None, true).map_err(refused)?
            }
            _ => self.of_crate(text, add_special)?,
        };
        Ok(signed(found.get_ids()))
    }

    /// Ids of a text, without the special tokens around it, where the crate would take much memory or does not say that
    /// a search gave up; `None`: only the crate knows.
    fn walked(&self, text: &str) -> Result<Option<Vec<i32>>> {
        if self.lossy.is_some() || text.len() <= LONG && !self.searches {
            return Ok(None);
        }
        let long = self.long.get_or_init(|| Long::of(&self.inner, None));
        long.as_ref().map_or(Ok(None), |long| long.encode(&self.inner, text))
    }

    /// A text without the special tokens around it.
    fn plain(&self, text: &str) -> Result<Encoding> {
        let Some(ids) = self.walked(text)? else { return self.of_crate(text, false) };
        let tokens = ids.iter().map(|id| Token::new(*id as u32, String::new(), (0, 0)));
        Ok(Encoding::from_tokens(tokens.collect(), 0))
    }

    /// A text as the crate encodes it.
    fn of_crate(&self, text: &str, add_special: bool) -> Result<Encoding> {
        if let Some(lossy) = &self.lossy {
            lossy.check(&self.inner, text)?;
        }
        if self.searches {
            self.trial.get_or_init(|| Trial::of(&self.inner)).check(&self.inner, text)?;
        }
        self.inner.encode_fast(text, add_special).map_err(refused)
    }

    /// Ids of a text with the tokenizer's special tokens around it, cut to the model's longest
    /// input.
    fn around(&self, mut ids: Vec<i32>) -> Result<Vec<i32>> {
        if let Some(most) = self.most {
            ids.truncate(self.room(most));
        }
        // One token stands for all.
        let one = Encoding::from_tokens(vec![Token::new(u32::MAX, "x".into(), (0, 1))], 0);
        let put = self.inner.post_process(one, None, true).map_err(refused)?;
        let at = put.get_ids().iter().position(|id| *id == u32::MAX);
        let at = at.ok_or_else(|| Error::new(Kind::Internal, "the post-processor leaves the text out"))?;
        ids.extend(signed(&put.get_ids()[at + 1..]));
        ids.splice(..0, signed(&put.get_ids()[..at]));
        Ok(ids)
    }

    /// Tokens of a text that fit beside the special tokens.
    fn room(&self, most: usize) -> usize {
        let added = self.added(false);
        // (Without a post-processor the start is added later, as the end may be.)
        let start = !self.writes_bos && self.add_bos == Some(true);
        most.saturating_sub(added + usize::from(start) + usize::from(self.add_eos.is_some()))
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
        let (mut a, mut b) = (self.plain(first)?, self.plain(second)?);
        if let Some(most) = most {
            let added = self.added(true);
            let max_length = most.checked_sub(added).filter(|n| *n > 0).ok_or_else(|| {
                let message = format!("no text fits into {most} tokens, since {added} of them are special; allow more");
                Error::new(Kind::Invalid, message)
            })?;
            let (first, second) = cut(a, Some(b), max_length)?;
            (a, b) = (first, second.unwrap_or_default());
            // The part cut off is dropped.
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
        let text = self.inner.decode(&ids, !show_special);
        let text = text.map_err(|e| Error::new(Kind::Internal, format!("detokenizing: {e}")))?;
        Ok(if self.clean { cleaned(text) } else { text })
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

/// A text without the spaces before punctuation, as Transformers has it where a model's settings ask for it.
fn cleaned(text: String) -> String {
    const PAIRS: [(&str, &str); 10] = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    PAIRS.iter().fold(text, |text, (from, to)| if text.contains(from) { text.replace(from, to) } else { text })
}

/// Whether the post-processor puts a token before a text.
fn comes_first(tokenizer: &tokenizers::Tokenizer, bos: u32) -> bool {
    // A token that no vocabulary has stands for the text.
    let text = Encoding::from_tokens(vec![Token::new(u32::MAX, String::new(), (0, 0))], 0);
    let whole = tokenizer.post_process(text, None, true);
    whole.is_ok_and(|whole| whole.get_ids().first() == Some(&bos))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As in Transformers: always for WordPiece, for BPE only where asked for.
    #[test]
    fn spaces_are_cleaned_up() {
        let file = |model: &str| {
            format!(
                r#"{{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
                    "pre_tokenizer":null,"post_processor":null,
                    "decoder":{{"type":"WordPiece","prefix":"Ġ","cleanup":false}},
                    "model":{model}}}"#
            )
        };
        let vocab = r#""unk_token":"it","vocab":{"it":0,"'s":1,".":2,"n't":3}"#;
        let words = file(&format!(
            r###"{{"type":"WordPiece","continuing_subword_prefix":"##","max_input_chars_per_word":9,{vocab}}}"###
        ));
        let bytes = file(&format!(r#"{{"type":"BPE","merges":[],{vocab}}}"#));
        for (json, clean, expected) in [
            (&words, (false, false), "it 's it . n't"),
            (&words, (true, false), "it's it.n't"),
            (&bytes, (true, false), "it 's it . n't"),
            (&bytes, (true, true), "it's it.n't"),
        ] {
            let config = Config { clean, ..Config::default() };
            let tokenizer = Tokenizer::new(json, &config).unwrap();
            assert_eq!(tokenizer.decode(&[0, 1, 0, 2, 3], false).unwrap(), expected, "{clean:?}");
        }
    }
}
