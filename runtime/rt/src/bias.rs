//! Values that the caller adds to logits before a token is chosen.
//!
//! They come first of all filters, before the repetition penalty and the temperature, as in Hugging
//! Face Transformers (`sequence_bias`) and in OpenAI's and vLLM's `logit_bias`.

use std::borrow::Cow;

use llmcc_abi::capi::llmcc_logit_bias;

use crate::error::{Error, Result};
use crate::reserve::need;

/// Token ids with the values added to their logits. A token listed twice gets both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bias(Vec<llmcc_logit_bias>);

impl Bias {
    /// Checks the entries for a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// A token outside the vocabulary; a value that is neither finite nor -infinity.
    pub fn new(entries: &[llmcc_logit_bias], vocab: usize) -> Result<Bias> {
        for entry in entries {
            if usize::try_from(entry.token).is_ok_and(|t| t < vocab) {
                if !entry.value.is_finite() && entry.value != f32::NEG_INFINITY {
                    let message = format!(
                        "the logit bias of token {} is {}; use a finite number, or -infinity to ban it",
                        entry.token, entry.value
                    );
                    return Err(Error::invalid(message));
                }
            } else {
                return Err(Error::invalid(format!(
                    "the logit bias names token {}, outside the vocabulary of {vocab}",
                    entry.token
                )));
            }
        }
        Ok(Bias(entries.to_vec()))
    }

    /// Whether nothing is added.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sums, f32 `[vocab]`.
    ///
    /// # Errors
    /// A sum that overflows; all tokens banned.
    pub fn apply<'a>(&self, logits: &'a [f32]) -> Result<Cow<'a, [f32]>> {
        if self.is_empty() {
            return Ok(Cow::Borrowed(logits));
        }
        need(size_of_val(logits))?;
        let mut sums = logits.to_vec();
        for entry in &self.0 {
            let Some(sum) = sums.get_mut(entry.token as usize) else { continue };
            let before = *sum;
            *sum += entry.value;
            if before.is_finite() && *sum == f32::INFINITY {
                return Err(Error::invalid(format!(
                    "the logit bias of token {} is {}, and its logit overflows with it; use a smaller number",
                    entry.token, entry.value
                )));
            }
        }
        // Where there was nothing to choose before, the error is another one.
        let banned = |row: &[f32]| row.iter().all(|x| *x == f32::NEG_INFINITY);
        if banned(&sums) && !banned(logits) {
            return Err(Error::invalid("the logit bias bans every token that the model could choose"));
        }
        Ok(Cow::Owned(sums))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sampling, sample};

    fn entry(token: i32, value: f32) -> llmcc_logit_bias {
        llmcc_logit_bias { token, value }
    }

    #[test]
    fn values_are_added_before_everything_else() {
        let logits = [1.0, 2.0, 3.0];
        let bias = Bias::new(&[entry(0, 0.5), entry(2, f32::NEG_INFINITY), entry(0, 1.0)], 3).unwrap();
        assert_eq!(bias.apply(&logits).unwrap()[..], [2.5, 2.0, f32::NEG_INFINITY]);
        assert_eq!(sample(&bias.apply(&logits).unwrap(), &Sampling::default(), &[], 0).unwrap(), 0);
        // The penalty divides the sum: 2.5 / 2 is less than 2, while 1 / 2 + 1.5 would be equal to
        // it.
        let penalty = Sampling { repetition_penalty: 2.0, ..Sampling::default() };
        assert_eq!(sample(&bias.apply(&logits).unwrap(), &penalty, &[0], 0).unwrap(), 1);
        assert!(matches!(Bias::default().apply(&logits).unwrap(), Cow::Borrowed(_)));
    }

    #[test]
    fn bad_values_are_refused() {
        for bad in [entry(3, 1.0), entry(-1, 1.0), entry(0, f32::NAN), entry(0, f32::INFINITY)] {
            assert!(Bias::new(&[bad], 3).is_err());
        }
        let none = Bias::new(&[entry(0, f32::NEG_INFINITY), entry(1, f32::NEG_INFINITY)], 2).unwrap();
        assert!(none.apply(&[1.0, 2.0]).unwrap_err().message.contains("bans every token"));
        let huge = Bias::new(&[entry(0, 3e38)], 1).unwrap();
        assert!(huge.apply(&[3e38]).unwrap_err().message.contains("and its logit overflows with it"));
    }
}
