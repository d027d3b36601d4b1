//! Defaults of a model's generations (`generation_config.json`): how tokens are chosen where the
//! caller gives no settings, and the changes to logits before a token is chosen, as in Hugging Face
//! Transformers.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::sample::Sampling;

/// A model's defaults for its generations.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Changes to logits before sampling.
    pub rules: Arc<Rules>,
    /// Most tokens to generate; 0: any number.
    pub max_new_tokens: usize,
    /// Longest sequence, prompt included; 0: the model's.
    pub max_length: usize,
    /// Texts that end a generation.
    pub stop: Vec<String>,
    /// Tokens that a text about a source begins with.
    pub starts: Vec<i32>,
}

/// Changes to logits before a token is chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Sequences of tokens with a value: it is added to the logit of the last token where the text
    /// ends with the others.
    pub sequences: Vec<(Vec<i32>, f32)>,
    /// Tokens that are never chosen.
    pub suppressed: Vec<i32>,
    /// Tokens that are not chosen first.
    pub suppressed_first: Vec<i32>,
    /// No so many tokens in a row occur twice; 0: they may.
    pub no_repeat: usize,
    /// Tokens before which a generation does not end.
    pub min_new: usize,
    /// Length of the sequence before which it does not end.
    pub min_length: usize,
    /// Taken from the logit of a token that was generated.
    pub presence: f32,
    /// Taken from it for each time that it was generated.
    pub frequency: f32,
}

/// Where a token is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The tokens so far.
    pub history: &'a [i32],
    /// How many of them were generated.
    pub generated: u64,
    /// Tokens that end texts of the model.
    pub ends: &'a [i32],
    /// Tokens that end this text besides.
    pub stops: &'a [i32],
}

impl Rules {
    /// Whether nothing is done.
    pub fn is_empty(&self) -> bool {
        *self == Rules::default()
    }

    /// The logits as the rules change them.
    ///
    /// # Errors
    /// All tokens are banned.
    pub fn apply<'a>(&self, logits: Cow<'a, [f32]>, at: Place) -> Result<Cow<'a, [f32]>> {
        if self.is_empty() {
            return Ok(logits);
        }
        let banned = |row: &[f32]| row.iter().all(|x| *x == f32::NEG_INFINITY);
        // Where there was nothing to choose before, the error is another one.
        let had_some = !banned(&logits);
        let mut row = logits.into_owned();
        let mut add = |token: i32, value: f32| {
            if let Some(x) = usize::try_from(token).ok().and_then(|t| row.get_mut(t)) {
                *x += value;
            }
        };
        for (sequence, value) in &self.sequences {
            if let Some((last, before)) = sequence.split_last()
                && at.history.ends_with(before)
            {
                add(*last, *value);
            }
        }
        let mut ban = |token: &i32| add(*token, f32::NEG_INFINITY);
        self.repeated(at.history).iter().for_each(&mut ban);
        if (at.generated as usize) < self.min_new || at.history.len() < self.min_length {
            at.ends.iter().chain(at.stops).for_each(&mut ban);
        }
        if self.presence != 0.0 || self.frequency != 0.0 {
            let generated = at.history.len().saturating_sub(usize::try_from(at.generated).unwrap_or(usize::MAX));
            for (token, count) in counted(&at.history[generated..]) {
                add(token, -(self.presence + self.frequency * count as f32));
            }
        }
        let mut ban = |token: &i32| add(*token, f32::NEG_INFINITY);
        self.suppressed.iter().for_each(&mut ban);
        if at.generated == 0 {
            self.suppressed_first.iter().for_each(&mut ban);
        }
        if had_some && banned(&row) {
            return Err(Error::invalid(
                "bad words, or the model's own settings (generation_config.json), ban every token that could be chosen \
                 here; generate without these settings (`--greedy`, `greedy=True`, LLMCC_GEN_NO_DEFAULTS)",
            ));
        }
        Ok(Cow::Owned(row))
    }

    /// Tokens that would end a sequence of `no_repeat` tokens that there is already.
    fn repeated(&self, history: &[i32]) -> Vec<i32> {
        let n = self.no_repeat;
        if n == 0 || history.len() < n {
            return vec![];
        }
        let last = &history[history.len() + 1 - n..];
        history.windows(n).filter(|w| w[..n - 1] == *last).map(|w| w[n - 1]).collect()
    }
}

/// Each token once, with how often it occurs.
fn counted(tokens: &[i32]) -> Vec<(i32, usize)> {
    let mut sorted = tokens.to_vec();
    sorted.sort_unstable();
    sorted.chunk_by(|a, b| a == b).map(|same| (same[0], same.len())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(rules: &Rules, history: &[i32], generated: u64) -> Vec<f32> {
        let logits = vec![1.0; 6];
        rules.apply(Cow::Owned(logits), Place { history, generated, ends: &[5], stops: &[] }).unwrap().into_owned()
    }

    /// The tokens that are banned.
    fn banned(rules: &Rules, history: &[i32], generated: u64) -> Vec<usize> {
        let row = after(rules, history, generated);
        (0..row.len()).filter(|i| row[*i] == f32::NEG_INFINITY).collect()
    }

    #[test]
    fn sequences_count_where_all_but_their_last_token_stands() {
        let never = f32::NEG_INFINITY;
        let rules =
            Rules { sequences: vec![(vec![0], never), (vec![1, 2], never), (vec![3], 0.5)], ..Rules::default() };
        assert_eq!(banned(&rules, &[4], 0), [0]);
        assert_eq!(banned(&rules, &[4, 1], 1), [0, 2]);
        assert_eq!(after(&rules, &[], 0)[3], 1.5);
        assert_eq!(banned(&rules, &[], 0), [0], "a text shorter than the sequence");
    }

    #[test]
    fn some_tokens_are_never_chosen_or_not_first_or_not_yet() {
        let rules = Rules { suppressed: vec![1, 99], suppressed_first: vec![2], ..Rules::default() };
        assert_eq!(banned(&rules, &[0, 0], 0), [1, 2]);
        assert_eq!(banned(&rules, &[0, 0], 1), [1]);
        let late = Rules { min_new: 2, min_length: 5, ..Rules::default() };
        assert_eq!(banned(&late, &[0; 9], 1), [5]);
        assert_eq!(banned(&late, &[0; 4], 2), [5]);
        assert_eq!(banned(&late, &[0; 5], 2), Vec::<usize>::new());
    }

    #[test]
    fn no_sequence_comes_twice() {
        let twice = Rules { no_repeat: 2, ..Rules::default() };
        assert_eq!(banned(&twice, &[1, 2, 3, 1], 0), [2]);
        assert_eq!(banned(&twice, &[1, 1], 0), [1]);
        assert_eq!(banned(&twice, &[1], 0), Vec::<usize>::new());
        assert_eq!(banned(&Rules { no_repeat: 1, ..Rules::default() }, &[1, 3], 0), [1, 3]);
        assert_eq!(banned(&Rules { no_repeat: 3, ..Rules::default() }, &[1, 2, 3, 1, 2], 0), [3]);
    }

    #[test]
    fn generated_tokens_become_less_probable() {
        let rules = Rules { presence: 0.5, frequency: 0.25, ..Rules::default() };
        // The first two tokens are the prompt's.
        assert_eq!(after(&rules, &[0, 1, 2, 3, 3], 3), [1.0, 1.0, 0.25, 0.0, 1.0, 1.0]);
        let more = Rules { presence: -1.0, ..Rules::default() };
        assert_eq!(after(&more, &[2, 2], 1), [1.0, 1.0, 2.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn a_ban_of_everything_is_said() {
        let all = Rules { suppressed: (0..6).collect(), ..Rules::default() };
        let place = Place { history: &[], generated: 0, ends: &[], stops: &[] };
        assert!(all.apply(Cow::Owned(vec![0.0; 6]), place).unwrap_err().message.contains("ban every token"));
        assert!(all.apply(Cow::Owned(vec![f32::NEG_INFINITY; 6]), place).is_ok(), "not the rules' doing");
    }
}
