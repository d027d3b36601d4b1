//! Parts of the weights of a row that become zero.

use std::fmt;

/// Tuples of columns that a part may be stated for.
const TUPLES: [usize; 2] = [4, 8];

/// The part of the weights of a row that becomes zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sparsity {
    /// So many of a hundred, from 1 to 99, wherever they lie.
    Percent(u8),
    /// `kept` of each `of` adjacent columns stay, `N:M` in the literature (Mishra et al. 2021, arXiv 2104.08378).
    Tuples {
        /// Columns that stay, from 1 to `of − 1`.
        kept: usize,
        /// Columns of a tuple: 4 or 8.
        of: usize,
    },
}

impl Sparsity {
    /// Half of the weights.
    pub const HALF: Sparsity = Sparsity::Percent(50);

    /// Whether no more than two of each four adjacent columns stay.
    pub fn leaves_pairs(self) -> bool {
        matches!(self, Sparsity::Tuples { kept: 1 | 2, of: 4 })
    }

    /// Reads `50%` or `2:4`.
    ///
    /// # Errors
    /// A message with the fault and the values that there are.
    pub fn parse(text: &str) -> Result<Sparsity, String> {
        if let Some((kept, of)) = text.split_once(':') {
            return match (kept.parse(), of.parse()) {
                (Ok(kept), Ok(of)) if TUPLES.contains(&of) && (1..of).contains(&kept) => {
                    Ok(Sparsity::Tuples { kept, of })
                }
                _ => Err("of 4 or 8 adjacent columns at least one stays and one does not: 2:4, 1:4, 4:8...".into()),
            };
        }
        match text.strip_suffix('%').map(str::parse) {
            Some(Ok(percent @ 1..=99)) => Ok(Sparsity::Percent(percent)),
            _ => Err("give a share of the weights in whole percent, from 1% to 99%, or columns that stay: 2:4".into()),
        }
    }

    /// Columns among which weights are compared: a tuple, or at most `all`.
    pub(super) fn compared(self, all: usize) -> usize {
        match self {
            Sparsity::Percent(_) => all.max(1),
            Sparsity::Tuples { of, .. } => of,
        }
    }

    /// Weights that become zero among the columns `from..to` of a row, which are compared: over adjacent ranges, the
    /// share of their sum. An incomplete tuple keeps as many columns as a whole one.
    pub(super) fn zeros(self, from: usize, to: usize) -> usize {
        match self {
            Sparsity::Percent(percent) => {
                let before = |end: usize| end * usize::from(percent) / 100;
                before(to) - before(from)
            }
            Sparsity::Tuples { kept, .. } => (to - from).saturating_sub(kept),
        }
    }
}

impl fmt::Display for Sparsity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sparsity::Percent(percent) => write!(f, "{percent}%"),
            Sparsity::Tuples { kept, of } => write!(f, "{kept}:{of}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_a_round_trip() {
        for text in ["50%", "1%", "99%", "2:4", "1:4", "3:4", "4:8", "7:8"] {
            assert_eq!(Sparsity::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "50", "0%", "100%", "0.5", "4:4", "0:4", "2:5", "2:", ":4", "-2:4", "300%", "1:16"] {
            assert!(Sparsity::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn zeros_are_the_share_of_a_row_however_it_is_divided() {
        for percent in [1, 33, 50, 70, 99] {
            let part = Sparsity::Percent(percent);
            let sum: usize = (0..300).step_by(128).map(|from| part.zeros(from, (from + 128).min(300))).sum();
            assert_eq!(sum, 300 * usize::from(percent) / 100);
        }
        let pairs = Sparsity::Tuples { kept: 2, of: 4 };
        assert_eq!([pairs.zeros(0, 4), pairs.zeros(4, 7), pairs.zeros(4, 6), pairs.zeros(4, 5)], [2, 1, 0, 0]);
    }
}
