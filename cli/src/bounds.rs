//! Bounds that a compilation keeps (`--budget`), as text and as values.

use crate::units::bytes;
use std::fmt;

/// A bound. Its text is the option's value, in one spelling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Most mean divergence from the checkpoint's own predictions, nats for a token.
    Kl(f64),
    /// Most growth of perplexity, as a share: 0.01 is one hundredth.
    Perplexity(f64),
    /// Most bytes of the artifact, its weights included.
    Bytes(f64),
    /// Most bytes of memory with one sequence of so many tokens; `None`: of the longest context.
    Memory(f64, Option<usize>),
    /// Least predicted tokens per second, one sequence at a time.
    Speed(f64),
}

/// Units of bytes: decimal ones, and the binary ones that end in `i`.
const UNITS: &[(&str, f64)] = &[
    ("", 1.0),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
];

const KNOWN: &str = "kl=0.01, ppl=+1%, bytes=700M, memory=1G@8192 and tokens/s=60";

impl Bound {
    /// Reads `KEY=VALUE`.
    ///
    /// # Errors
    /// An unknown key, or a value that is not positive.
    pub fn parse(text: &str) -> Result<Bound, String> {
        let (key, value) = text.split_once('=').ok_or_else(|| format!("it has no value; bounds are {KNOWN}"))?;
        match key.trim() {
            "kl" => Ok(Bound::Kl(positive(value)?)),
            "ppl" => {
                let share = value.trim().strip_suffix('%').ok_or("give the growth in percent: ppl=+1%")?;
                Ok(Bound::Perplexity(positive(share.trim_start_matches('+'))? / 100.0))
            }
            "bytes" => Ok(Bound::Bytes(size(value)?)),
            "memory" => match value.split_once('@') {
                None => Ok(Bound::Memory(size(value)?, None)),
                Some((most, tokens)) => match tokens.trim().parse() {
                    Ok(n @ 1..) => Ok(Bound::Memory(size(most)?, Some(n))),
                    _ => Err(format!("`{tokens}` is no length of a sequence in tokens; give memory=1G@8192")),
                },
            },
            "tokens/s" => Ok(Bound::Speed(positive(value)?)),
            other => Err(format!("`{other}` is unknown; bounds are {KNOWN}")),
        }
    }

    /// Whether an artifact has to be run to know its value.
    pub fn is_measured(self) -> bool {
        matches!(self, Bound::Kl(_) | Bound::Perplexity(_))
    }

    /// Whether it bounds the size of weights, among others.
    pub fn is_size(self) -> bool {
        matches!(self, Bound::Bytes(_) | Bound::Memory(..))
    }

    /// A value of the bound's kind, in words.
    pub fn words(self, value: f64) -> String {
        match self {
            Bound::Kl(_) => format!("a divergence of {value:.6} nats"),
            Bound::Perplexity(_) => format!("a perplexity {:+.3} % larger", value * 100.0),
            Bound::Bytes(_) => format!("{} ({value:.0} bytes)", bytes(value)),
            Bound::Memory(..) => format!("{} of memory", bytes(value)),
            Bound::Speed(_) => format!("{value:.1} tokens/s"),
        }
    }

    /// How much of the bound a value takes: more than 1 breaks it.
    pub fn load(self, value: f64) -> f64 {
        match self {
            Bound::Kl(most) | Bound::Bytes(most) | Bound::Memory(most, _) => value / most,
            // In nats, in which damages add up.
            Bound::Perplexity(most) => value.ln_1p() / most.ln_1p(),
            Bound::Speed(least) => least / value,
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(x) if x > 0.0 && x.is_finite() => Ok(x),
        _ => Err(format!("`{text}` must be a positive number")),
    }
}

fn size(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.strip_suffix('B').unwrap_or(unit);
    match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => Ok(positive(digits)? * factor),
        None => {
            let names: Vec<&str> = UNITS.iter().map(|(name, _)| *name).filter(|name| !name.is_empty()).collect();
            Err(format!("`{unit}` is no unit of bytes; units are {}", names.join(", ")))
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Bound::Kl(most) => write!(f, "kl={most}"),
            // (More digits are rounding: the text was a percentage.)
            Bound::Perplexity(most) => write!(f, "ppl=+{}%", (most * 100.0 * 1e9).round() / 1e9),
            Bound::Bytes(most) => write!(f, "bytes={most}"),
            Bound::Memory(most, None) => write!(f, "memory={most}"),
            Bound::Memory(most, Some(tokens)) => write!(f, "memory={most}@{tokens}"),
            Bound::Speed(least) => write!(f, "tokens/s={least}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_read_back() {
        for (text, bound, canonical) in [
            ("kl=0.01", Bound::Kl(0.01), "kl=0.01"),
            ("ppl=+1%", Bound::Perplexity(0.01), "ppl=+1%"),
            ("ppl=0.7%", Bound::Perplexity(0.007), "ppl=+0.7%"),
            ("bytes=700M", Bound::Bytes(7e8), "bytes=700000000"),
            ("bytes=1.5GiB", Bound::Bytes(1.5 * 1_073_741_824.0), "bytes=1610612736"),
            ("memory=1G@8192", Bound::Memory(1e9, Some(8192)), "memory=1000000000@8192"),
            ("memory=2Mi", Bound::Memory(2_097_152.0, None), "memory=2097152"),
            ("tokens/s=60", Bound::Speed(60.0), "tokens/s=60"),
        ] {
            let read = Bound::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert!((read.load(1.0) / bound.load(1.0) - 1.0).abs() < 1e-12, "{text}: {read:?}");
            assert_eq!(read.to_string(), canonical);
            assert_eq!(Bound::parse(canonical).map(|b| b.to_string()), Ok(canonical.into()));
        }
        for (text, says) in [
            ("kl", "no value"),
            ("kl=0", "positive"),
            ("kl=nan", "positive"),
            ("kl=-1", "positive"),
            ("ppl=+1", "percent"),
            ("bytes=7X", "no unit of bytes"),
            ("memory=1G@0", "no length of a sequence"),
            ("speed=3", "`speed` is unknown"),
        ] {
            let found = Bound::parse(text).expect_err("no bound");
            assert!(found.contains(says), "{text}: {found}");
        }
    }

    #[test]
    fn loads_beyond_one_break_a_bound() {
        assert_eq!(Bound::Kl(0.02).load(0.01), 0.5);
        assert_eq!(Bound::Speed(60.0).load(30.0), 2.0);
        assert!(Bound::Perplexity(0.01).load(0.01) == 1.0 && Bound::Perplexity(0.01).load(-0.02) < 0.0);
        assert!(Bound::Kl(0.01).is_measured() && !Bound::Bytes(1.0).is_measured());
        assert!(Bound::Bytes(1.0).is_size() && !Bound::Speed(1.0).is_size());
    }
}
