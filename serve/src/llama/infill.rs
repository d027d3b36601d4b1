//! `POST /infill`: texts between a beginning and an end, with other files for context.

use crate::app::{App, blocking};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::fill::{gap, is_token};
use crate::json::Json;
use crate::llama::completion::{Prompt, send};
use crate::llama::native::Native;
use crate::model::Model;
use axum::extract::{Request, State};
use axum::response::Response;
use std::sync::Arc;

/// Marks of a repository and of its files, for models that were trained with them.
const REPOSITORY: &str = "<|repo_name|>";
const FILE: &str = "<|file_sep|>";

/// Another file that tells what the text is about.
struct File {
    name: String,
    text: String,
}

/// Answers `POST /infill`.
pub(crate) async fn infill(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let busy = app.begin()?;
    let (mut fields, headers) = app.read(request).await?;
    let served = app.choose(&mut fields)?;
    let own = served.clone();
    let (native, prompt) = blocking(move || {
        let model = own.hub.model();
        let files = files(&mut fields)?;
        let before: String = fields.require("input_prefix")?;
        let after: String = fields.require("input_suffix")?;
        let begun: String = fields.take("prompt")?.unwrap_or_default();
        let native = Native::take(&mut fields, &headers, model)?;
        fields.finish()?;
        let before = context(model, &files) + &before + &begun;
        let tokens = gap(model, &before, &after, true).map_err(|error| error.about("input_suffix"))?;
        Ok((native, Prompt::of(tokens, &own)?))
    })
    .await?;
    send(&served, native, vec![prompt], busy).await
}

/// Takes `input_extra`.
fn files(fields: &mut Fields) -> Result<Vec<File>, ApiError> {
    let all = match fields.json("input_extra") {
        None => return Ok(vec![]),
        Some(Json::List(all)) => all,
        Some(other) => return Err(ApiError::of_type("input_extra", "a list", other.kind())),
    };
    let file = |(i, json): (usize, Json)| {
        let at = format!("input_extra[{i}]");
        let mut members = Fields::of_json(json, &at)?;
        let wrong = |error: ApiError| {
            let message = format!("`{at}` is no object with the texts `text` and `filename`: {}", error.message);
            ApiError::of_param(&at, message)
        };
        let text = members.require("text").map_err(wrong)?;
        let name = members.take("filename").map_err(wrong)?.unwrap_or_else(|| "tmp".to_owned());
        members.finish().map(|()| File { name, text })
    };
    all.into_iter().enumerate().map(file).collect()
}

/// The text of files before a gap.
fn context(model: &dyn Model, files: &[File]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let marked = is_token(model, REPOSITORY) && is_token(model, FILE);
    let mut text = String::new();
    for File { name, text: own } in files {
        text += &if marked { format!("{FILE}{name}\n{own}") } else { format!("\n\n--- {name} ---\n\n{own}") };
    }
    if marked { format!("{REPOSITORY}project\n{text}{FILE}file\n") } else { text + "\n\n--- file ---\n\n" }
}
