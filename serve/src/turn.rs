//! The beginning of a turn: its prompt, and the plan of its text.

use crate::app::blocking;
use crate::ask::Ask;
use crate::conversation::{Talk, prompt};
use crate::error::ApiError;
use crate::plan::Plan;
use crate::served::Served;
use llmcc_model::Token;
use std::sync::Arc;

/// Tokens of a conversation's prompt, the plan of its turns, and the request with their form. `special`: whether the
/// prompt gets special tokens; `reasoning`: whether the client gets reasoning.
///
/// # Errors
/// As [`prompt`] and [`Plan::new`].
pub(crate) async fn planned(
    served: &Arc<Served>,
    talk: Talk,
    mut ask: Ask,
    (special, reasoning): (bool, bool),
) -> Result<(Arc<[Token]>, Option<Plan>, Ask), ApiError> {
    let served = served.clone();
    blocking(move || {
        let model = served.hub.model();
        let (text, tokens) = prompt(model, &talk.json, special)?;
        let plan = Plan::new(model, &talk.toolbox, &text, &mut ask.params, reasoning)?;
        Ok((tokens.into(), plan, ask))
    })
    .await
}
