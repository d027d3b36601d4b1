//! Scores of pairs of texts: by a model that compares them, or by the angle between their embeddings.

use crate::app::blocking;
use crate::embeddings::{TOGETHER, embedded};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::model::{Facts, Model};
use crate::served::Served;
use std::sync::Arc;

/// Most pairs of a request.
pub(crate) const MOST_PAIRS: usize = 2048;

/// Pairs of texts, and how their scores are wanted.
pub(crate) struct Pairs {
    /// One text for all of the others, or one for each.
    pub(crate) first: Vec<String>,
    pub(crate) second: Vec<String>,
    /// Whether pairs that are too long are cut.
    truncate: bool,
    /// Whether scores go through the model's activation.
    activate: bool,
}

impl Pairs {
    /// Takes the members that say how scores are wanted; `param`: the member with the second texts.
    ///
    /// # Errors
    /// A model that compares no texts; numbers of texts that do not fit; a member that is wrong or not supported.
    pub(crate) fn take(
        fields: &mut Fields,
        facts: &Facts,
        first: Vec<String>,
        second: Vec<String>,
        param: &str,
    ) -> Result<Pairs, ApiError> {
        check_model(facts)?;
        let counts = (first.len(), second.len());
        if counts.1 == 0 || (counts.0 != 1 && counts.0 != counts.1) {
            let message =
                format!("`{param}` has {} texts for {}: give one for each, or a single first one", counts.1, counts.0);
            return Err(ApiError::of_param(param, message));
        }
        if counts.1 > MOST_PAIRS {
            return Err(ApiError::of_param(
                param,
                format!("`{param}` has {} texts: give up to {MOST_PAIRS}", counts.1),
            ));
        }
        let truncate = match fields.take::<i64>("truncate_prompt_tokens")? {
            None => false,
            Some(-1) if facts.score_columns > 0 => true,
            Some(_) => {
                let message = "`truncate_prompt_tokens` cuts pairs of models that compare texts to the longest that \
                               they take, by -1: leave it out otherwise";
                return Err(ApiError::of_param("truncate_prompt_tokens", message).code("unsupported_parameter"));
            }
        };
        let (new, old) = (fields.take::<bool>("use_activation")?, fields.take::<bool>("activation")?);
        Ok(Pairs { first, second, truncate, activate: new.or(old).unwrap_or(true) })
    }

    /// The scores of the pairs, and how many tokens they have.
    ///
    /// # Errors
    /// A pair that is too long; an activation that is not known.
    pub(crate) fn scores(&self, served: &Served) -> Result<(Vec<f32>, usize), ApiError> {
        let model = served.hub.model();
        if model.facts().score_columns > 0 { self.compared(model) } else { self.by_angle(model) }
    }

    fn compared(&self, model: &dyn Model) -> Result<(Vec<f32>, usize), ApiError> {
        let facts = model.facts();
        let activate = self.activate && activates(facts)?;
        let seconds = self.second.iter().enumerate();
        let pairs: Vec<(&str, &str)> =
            seconds.map(|(i, second)| (self.first[self.partner(i)].as_str(), second.as_str())).collect();
        let (mut scores, mut tokens) = (vec![], 0);
        for pairs in pairs.chunks(TOGETHER) {
            for pair in pairs {
                let length = model.pair_tokens(*pair)?;
                tokens += if self.truncate { length.min(facts.max_context) } else { length };
            }
            scores.extend(model.score_pairs(pairs, self.truncate)?);
        }
        if activate {
            scores.iter_mut().for_each(|x| *x = 1.0 / (1.0 + (-*x).exp()));
        }
        Ok((scores, tokens))
    }

    fn by_angle(&self, model: &dyn Model) -> Result<(Vec<f32>, usize), ApiError> {
        let (mut tokens, columns) = (0, model.facts().embed_columns);
        let mut embeddings = |texts: &[String]| -> Result<Vec<f32>, ApiError> {
            let rows = texts.iter().map(|text| model.tokenize(text, true)).collect::<Result<Vec<_>, _>>()?;
            tokens += rows.iter().map(Vec::len).sum::<usize>();
            embedded(model, &rows)
        };
        let (first, second) = (embeddings(&self.first)?, embeddings(&self.second)?);
        let first: Vec<&[f32]> = first.chunks(columns).collect();
        let second = second.chunks(columns).enumerate();
        let scores = second.map(|(i, row)| cosine(first[self.partner(i)], row));
        Ok((scores.collect(), tokens))
    }

    /// The index of the first text of pair `i`.
    fn partner(&self, i: usize) -> usize {
        if self.first.len() == 1 { 0 } else { i }
    }
}

/// Scores away from the thread that talks with clients, one request at a time.
///
/// # Errors
/// As [`Pairs::scores`].
pub(crate) async fn scored(served: &Arc<Served>, pairs: Arc<Pairs>) -> Result<(Vec<f32>, usize), ApiError> {
    let own = served.clone();
    // (Never closed.)
    let _turn = served.embeds.acquire().await.ok();
    blocking(move || pairs.scores(&own)).await
}

fn check_model(facts: &Facts) -> Result<(), ApiError> {
    match (facts.score_columns, facts.embed_columns) {
        (0, 0) => {
            let message = "the model compares no texts: serve a reranker, or an embedder (compile with --embed or \
                           --also-embed)";
            Err(ApiError::invalid(message).code("unsupported"))
        }
        (0 | 1, _) => Ok(()),
        (classes, _) => {
            let message = format!("the model gives a pair {classes} scores, and this path needs one");
            Err(ApiError::invalid(message).code("unsupported"))
        }
    }
}

/// Whether the model's activation is the sigmoid, and not none: as sentence-transformers' `CrossEncoder` has it.
fn activates(facts: &Facts) -> Result<bool, ApiError> {
    match facts.pair_activation.as_deref() {
        None | Some("sigmoid") => Ok(true),
        Some("identity") => Ok(false),
        Some(other) => {
            let message = format!(
                "the model's activation is `{other}`, which the server does not know: set `use_activation` to false"
            );
            Err(ApiError::of_param("use_activation", message).code("unsupported"))
        }
    }
}

/// The cosine of the angle between two rows; 0 where one has no length.
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths > 0.0 { (dot(a, b) / lengths) as f32 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosines_are_those_of_angles() {
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 2.0]), 0.0);
        assert_eq!(cosine(&[1.0, 1.0], &[-2.0, -2.0]), -1.0);
        assert_eq!(cosine(&[3.0, 4.0], &[3.0, 4.0]), 1.0);
        assert_eq!(cosine(&[0.0, 0.0], &[1.0, 0.0]), 0.0);
    }
}
