//! Long texts without the `tokenizers` crate's tables of them.
//!
//! The crate keeps some 150 bytes for each byte of a text: where each character came from, and a
//! copy of every piece. Here a text is normalized in parts and then walked piece by piece; the
//! crate's model takes each piece alone. The result is the same, because each step is the crate's
//! own on a part of the text that it treats apart: added tokens, matches of an expression, words,
//! and places that no merge of the vocabulary can cross. A tokenizer with a step not known to be
//! separable is left to the crate whole.

use crate::searches::{self, Search, WORDS};
use crate::{Result, alphabet, check};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::{LazyLock, OnceLock};
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    Model, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper, OffsetReferential, OffsetType,
    PreTokenizedString, PreTokenizer, PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer,
};

/// Bytes of a part that the crate gets whole.
const PART: usize = 1 << 14;

/// The expression by which `ByteLevel` cuts.
static OF_BYTES: LazyLock<Option<Search>> = LazyLock::new(|| Search::new(WORDS));

/// How long texts are walked.
pub(crate) struct Long {
    part: usize,
    normalizers: Vec<NormalizerWrapper>,
    /// Tokens cut out before and after texts are normalized.
    before: Added,
    after: Added,
    steps: Vec<Step>,
    /// Made when a piece is long itself.
    merges: OnceLock<Option<Merges>>,
}

/// A pre-tokenizer.
enum Step {
    Split(Box<Split>),
    /// One whose expression backtracks.
    Search(Box<Split>, Search),
    /// Each digit, or runs of them.
    Digits(bool),
    /// Between white space, then the crate's.
    Spaced(Box<PreTokenizerWrapper>),
    Words(Metaspace),
    /// Bytes as characters, the last step; with a space before, cut by GPT-2's expression.
    Bytes(bool, bool),
}

/// Ids of the tokens that are cut out of texts, by their first bytes, the longest first; `None` for one
/// with flags that look around it.
struct Added(Vec<Vec<(String, Option<u32>)>>);

/// Facts that tell whether merges can cross a place.
struct Merges {
    /// Characters that are tokens, and pairs of characters that are next to each other in one.
    known: HashSet<char>,
    pairs: HashSet<(char, char)>,
    /// Bytes of the longest token.
    longest: usize,
}

/// Sees a token, or the text between two of them (without an id), and where it stands.
type See<'s> = dyn FnMut(Option<u32>, usize, &str) -> Option<()> + 's;

impl Added {
    fn new(tokens: impl Iterator<Item = (String, Option<u32>)>) -> Added {
        let mut all: Vec<Vec<_>> = (0..256).map(|_| vec![]).collect();
        for token in tokens {
            if let Some(list) = token.0.bytes().next().and_then(|b| all.get_mut(usize::from(b))) {
                list.push(token);
            }
        }
        all.iter_mut().for_each(|list| list.sort_by_key(|(text, _)| std::cmp::Reverse(text.len())));
        Added(all)
    }

    /// Visits the tokens in a text and the texts between them, with their places.
    fn walk(&self, text: &str, see: &mut See<'_>) -> Option<()> {
        let (mut from, mut at) = (0, 0);
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let first = usize::from(rest.as_bytes()[0]);
            match self.0.get(first)?.iter().find(|(token, _)| rest.starts_with(token.as_str())) {
                Some((token, id)) => {
                    if from < at {
                        see(None, from, &text[from..at])?;
                    }
                    see(Some((*id)?), at, token)?;
                    at += token.len();
                    from = at;
                }
                None => at += rest.chars().next().map_or(1, char::len_utf8),
            }
        }
        if from < text.len() { see(None, from, &text[from..]) } else { Some(()) }
    }
}

impl Long {
    /// `None`: the tokenizer has a step that is not known to work on parts.
    pub fn of(tokenizer: &Tokenizer, part: Option<usize>) -> Option<Long> {
        let mut normalizers = vec![];
        flatten_normalizers(tokenizer.get_normalizer(), &mut normalizers)?;
        let steps = searches::steps(tokenizer).into_iter().map(step_of).collect::<Option<Vec<_>>>()?;
        let bytes = steps.iter().position(|s| matches!(s, Step::Bytes(..)));
        // Whether a piece begins the text is known where nothing moves.
        let moves = |s: &Step| matches!(s, Step::Words(m) if m.get_prepend_scheme() == PrependScheme::First);
        if bytes.is_some_and(|at| at + 1 != steps.len()) || !normalizers.is_empty() && steps.iter().any(moves) {
            return None;
        }
        let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        let plain = |t: &tokenizers::AddedToken| !t.single_word && !t.lstrip && !t.rstrip;
        let of = |normalized: bool| {
            let some = added.iter().filter(move |(_, t)| t.normalized == normalized);
            some.map(move |(id, t)| (t.content.clone(), plain(t).then_some(*id)))
        };
        let mut after = vec![];
        for (content, id) in of(true) {
            let mut text = NormalizedString::from(content.as_str());
            if let Some(normalizer) = tokenizer.get_normalizer() {
                normalizer.normalize(&mut text).ok()?;
            }
            after.push((text.get().to_string(), id));
        }
        let (before, after) = (Added::new(of(false)), Added::new(after.into_iter()));
        let part = part.unwrap_or(PART);
        Some(Long { part, normalizers, before, after, steps, merges: OnceLock::new() })
    }

    /// Ids of a text, without the special tokens around it; `None`: only the crate knows.
    ///
    /// # Errors
    /// A search gives up.
    pub fn encode(&self, tokenizer: &Tokenizer, text: &str) -> Result<Option<Vec<i32>>> {
        let gave_up = Cell::new(false);
        let mut walk = Walk { long: self, tokenizer, gave_up: &gave_up, ids: Vec::with_capacity(text.len() / 4) };
        let walked = self.walk(&mut walk, text);
        let ids = walk.ids;
        if gave_up.get() { Err(searches::gives_up()) } else { Ok(walked.map(|()| ids)) }
    }

    fn walk(&self, walk: &mut Walk<'_>, text: &str) -> Option<()> {
        self.before.walk(text, &mut |id, at, section| match id {
            Some(id) => walk.push(id),
            None => {
                let normalized = self.normalized(section)?;
                self.after.walk(&normalized, &mut |id, place, piece| match id {
                    Some(id) => walk.push(id),
                    None => walk.pieces(piece, 0, at + place == 0),
                })
            }
        })
    }

    /// A text normalized in parts, which begin between letters that no normalizer joins.
    fn normalized<'t>(&self, text: &'t str) -> Option<Cow<'t, str>> {
        let mut text = Cow::Borrowed(text);
        for normalizer in &self.normalizers {
            let mut out = String::with_capacity(text.len());
            match normalizer {
                NormalizerWrapper::Prepend(p) if !text.is_empty() => {
                    out.push_str(&p.prepend);
                    out.push_str(&text);
                }
                NormalizerWrapper::StripNormalizer(s) => {
                    let left = if s.strip_left { text.trim_start() } else { &text };
                    out.push_str(if s.strip_right { left.trim_end() } else { left });
                }
                _ => {
                    for part in parts(&text, self.part) {
                        let mut part = NormalizedString::from(part);
                        normalizer.normalize(&mut part).ok()?;
                        out.push_str(part.get());
                    }
                }
            }
            text = Cow::Owned(out);
        }
        Some(text)
    }
}

/// Normalizers of known kinds that work on each character, or on those that belong together.
fn flatten_normalizers(one: Option<&NormalizerWrapper>, out: &mut Vec<NormalizerWrapper>) -> Option<()> {
    match one {
        None => {}
        Some(NormalizerWrapper::Sequence(all)) => {
            all.as_ref().iter().try_for_each(|n| flatten_normalizers(Some(n), out))?;
        }
        Some(NormalizerWrapper::Replace(replace)) => {
            let json = serde_json::to_value(replace).ok()?;
            // One character: it cannot lie across a place.
            json["pattern"]["String"].as_str().filter(|text| text.chars().count() == 1)?;
            out.push(NormalizerWrapper::Replace(replace.clone()));
        }
        Some(other) => out.push(other.clone()),
    }
    Some(())
}

/// A pre-tokenizer as it is walked; `None`: it is not known to work on parts.
fn step_of(one: &PreTokenizerWrapper) -> Option<Step> {
    Some(match one {
        PreTokenizerWrapper::Split(split) => match &split.pattern {
            SplitPattern::Regex(regex) if check::backtracks(regex) => {
                Step::Search(Box::new(split.clone()), Search::new(regex)?)
            }
            _ => Step::Split(Box::new(split.clone())),
        },
        PreTokenizerWrapper::Digits(digits) => Step::Digits(digits.individual_digits),
        PreTokenizerWrapper::Metaspace(m) => Step::Words(m.clone()),
        PreTokenizerWrapper::ByteLevel(b) => Step::Bytes(b.add_prefix_space, b.use_regex),
        PreTokenizerWrapper::WhitespaceSplit(_)
        | PreTokenizerWrapper::Whitespace(_)
        | PreTokenizerWrapper::BertPreTokenizer(_) => Step::Spaced(Box::new(one.clone())),
        _ => return None,
    })
}

/// Letters that stand alone in every normal form, next to each other: nothing composes, reorders or
/// belongs together between two of them.
fn stands_alone(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, 'А'..='я' | 'ぁ'..='ん' | '一'..='鿿')
}

/// Parts of about so many bytes.
fn parts(text: &str, size: usize) -> impl Iterator<Item = &str> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from;
        let rest = text.get(start..).filter(|rest| !rest.is_empty())?;
        let mut last = None;
        let end = rest.char_indices().find(|(at, c)| {
            let before = last.replace(*c);
            *at >= size && stands_alone(*c) && before.is_some_and(stands_alone)
        });
        from = end.map_or(text.len(), |(at, _)| start + at);
        text.get(start..from)
    })
}

/// One text on its way.
struct Walk<'l> {
    long: &'l Long,
    tokenizer: &'l Tokenizer,
    gave_up: &'l Cell<bool>,
    ids: Vec<i32>,
}

impl Walk<'_> {
    fn push(&mut self, id: u32) -> Option<()> {
        self.ids.push(id as i32);
        Some(())
    }

    /// A piece of text through the steps from `step` on; `first`: it begins the whole text.
    fn pieces(&mut self, text: &str, step: usize, first: bool) -> Option<()> {
        let long = self.long;
        if text.is_empty() {
            return Some(());
        }
        match long.steps.get(step) {
            None => self.model(text),
            Some(Step::Split(split)) => self.split(text, split, split.regex.find_iter(text), step, first),
            Some(Step::Search(split, search)) => {
                let found = search.matches(text, self.gave_up);
                self.split(text, split, found, step, first)
            }
            Some(Step::Digits(each)) => {
                let behavior =
                    if *each { SplitDelimiterBehavior::Isolated } else { SplitDelimiterBehavior::Contiguous };
                let digits = text.char_indices().filter(|(_, c)| c.is_numeric());
                cut(text, digits.map(|(at, c)| (at, at + c.len_utf8())), false, behavior, &mut |at| {
                    self.pieces(&text[at.clone()], step + 1, first && at.start == 0)
                })
            }
            Some(Step::Spaced(words)) => {
                for word in text.split(char::is_whitespace).filter(|word| !word.is_empty()) {
                    let mut pieces = PreTokenizedString::from(word);
                    words.pre_tokenize(&mut pieces).ok()?;
                    for (piece, ..) in pieces.get_splits(OffsetReferential::Normalized, OffsetType::Byte) {
                        self.pieces(piece, step + 1, false)?;
                    }
                }
                Some(())
            }
            Some(Step::Words(words)) => self.words(text, words, step, first),
            Some(Step::Bytes(space, regex)) => self.bytes(text, *space, *regex),
        }
    }

    /// The pieces that a split leaves.
    fn split(
        &mut self,
        text: &str,
        split: &Split,
        matches: impl Iterator<Item = (usize, usize)>,
        step: usize,
        first: bool,
    ) -> Option<()> {
        let gave_up = self.gave_up;
        cut(text, matches, split.invert, split.behavior, &mut |at| {
            // The rest after a search gave up is no piece.
            let piece = text.get(at.clone()).filter(|_| !gave_up.get())?;
            self.pieces(piece, step + 1, first && at.start == 0)
        })
    }

    /// `Metaspace`.
    fn words(&mut self, text: &str, words: &Metaspace, step: usize, first: bool) -> Option<()> {
        let mark = words.get_replacement();
        let marked = |c: char| c == ' ' || c == mark;
        let put = match words.get_prepend_scheme() {
            PrependScheme::Always => !text.starts_with(marked),
            PrependScheme::First => first && !text.starts_with(marked),
            PrependScheme::Never => false,
        };
        let mut piece = String::new();
        if put {
            piece.push(mark);
        }
        for (at, c) in text.char_indices() {
            if words.get_split() && marked(c) && at > 0 {
                self.pieces(&piece, step + 1, false)?;
                piece.clear();
            }
            piece.push(if c == ' ' { mark } else { c });
        }
        self.pieces(&piece, step + 1, false)
    }

    /// `ByteLevel`, which comes last.
    fn bytes(&mut self, text: &str, space: bool, regex: bool) -> Option<()> {
        let spaced;
        let text = if space && !text.starts_with(' ') {
            spaced = format!(" {text}");
            &spaced
        } else {
            text
        };
        let gave_up = self.gave_up;
        let mut characters = String::new();
        let mut piece = |at: Range<usize>| {
            characters.clear();
            characters.extend(text[at].bytes().map(alphabet::character));
            self.model(&characters)
        };
        if !regex {
            return piece(0..text.len());
        }
        let found = OF_BYTES.as_ref()?.matches(text, gave_up);
        cut(text, found, false, SplitDelimiterBehavior::Isolated, &mut |at| {
            if gave_up.get() { None } else { piece(at) }
        })
    }

    /// The model's tokens of a piece, which is cut where no merge can cross.
    fn model(&mut self, piece: &str) -> Option<()> {
        let mut rest = piece;
        if rest.len() > self.long.part
            && let ModelWrapper::BPE(bpe) = self.tokenizer.get_model()
        {
            let whole = |text: &Option<String>| text.as_ref().is_none_or(String::is_empty);
            let apart = whole(&bpe.continuing_subword_prefix) && whole(&bpe.end_of_word_suffix);
            let merges = self.long.merges.get_or_init(|| apart.then(|| Merges::of(self.tokenizer)));
            while let Some(at) = merges.as_ref().and_then(|m| m.place(rest, self.long.part)) {
                self.tokens(&rest[..at])?;
                rest = &rest[at..];
            }
        }
        self.tokens(rest)
    }

    fn tokens(&mut self, piece: &str) -> Option<()> {
        if piece.is_empty() {
            return Some(());
        }
        let tokens = self.tokenizer.get_model().tokenize(piece).ok()?;
        self.ids.extend(tokens.iter().map(|t| t.id as i32));
        Some(())
    }
}

impl Merges {
    fn of(tokenizer: &Tokenizer) -> Merges {
        let mut merges = Merges { known: HashSet::new(), pairs: HashSet::new(), longest: 0 };
        for token in tokenizer.get_vocab(false).into_keys() {
            merges.longest = merges.longest.max(token.len());
            let mut chars = token.chars();
            let Some(mut last) = chars.next() else { continue };
            if chars.as_str().is_empty() {
                merges.known.insert(last);
            }
            for c in chars {
                merges.pairs.insert((last, c));
                last = c;
            }
        }
        merges
    }

    /// A place behind the first `size` bytes: both characters beside it are tokens and no token has
    /// them in this order. The parts before and behind it are longer than a token, as some
    /// vocabularies take a whole token at once.
    fn place(&self, text: &str, size: usize) -> Option<usize> {
        let (from, to) = (size.max(self.longest + 1), text.len().checked_sub(self.longest + 1)?);
        let mut last = None;
        for (at, c) in text.char_indices() {
            if at > to {
                return None;
            }
            let before: Option<char> = last.replace(c);
            let apart = |b: char| self.known.contains(&b) && self.known.contains(&c) && !self.pairs.contains(&(b, c));
            if at >= from && before.is_some_and(apart) {
                return Some(at);
            }
        }
        None
    }
}

/// Visits the pieces that a pre-tokenizer makes of a text with these matches: the crate's `split`,
/// piece by piece.
fn cut(
    text: &str,
    matches: impl Iterator<Item = (usize, usize)>,
    invert: bool,
    behavior: SplitDelimiterBehavior,
    see: &mut dyn FnMut(Range<usize>) -> Option<()>,
) -> Option<()> {
    let mut at = 0;
    let all = matches.map(Some).chain([None]).flat_map(|found| {
        let (from, to) = found.unwrap_or((text.len(), text.len()));
        let gap = (at != from).then_some((at..from, invert));
        at = to;
        gap.into_iter().chain(found.map(|_| (from..to, !invert)))
    });
    // The last piece, which may grow, and whether it was a match.
    let (mut open, mut matched): (Option<Range<usize>>, bool) = (None, false);
    for (piece, is_match) in all {
        let joins = match behavior {
            SplitDelimiterBehavior::Isolated | SplitDelimiterBehavior::Removed => false,
            SplitDelimiterBehavior::Contiguous => is_match == matched,
            SplitDelimiterBehavior::MergedWithPrevious => is_match && !matched,
            SplitDelimiterBehavior::MergedWithNext => !is_match && matched,
        };
        matched = is_match;
        match open.as_mut().filter(|_| joins) {
            Some(before) => before.end = piece.end,
            None => {
                let done = open.replace(piece);
                done.filter(|p| !p.is_empty()).map_or(Some(()), &mut *see)?;
            }
        }
        if is_match && behavior == SplitDelimiterBehavior::Removed {
            open = None;
        }
    }
    open.filter(|p| !p.is_empty()).map_or(Some(()), see)
}

#[cfg(test)]
#[path = "long_tests.rs"]
mod tests;
