//! Kept answers: `GET` and `DELETE /v1/responses/ID`, `POST /v1/responses/ID/cancel`,
//! `GET /v1/responses/ID/input_items`.

use crate::app::App;
use crate::error::{ApiError, answer as document};
use crate::responses::answer::{Answer, conversation_of};
use crate::responses::follow::follow;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// Most items of a page.
const MOST_ITEMS: usize = 100;
/// Items of a page, if the client does not say.
const ITEMS: usize = 20;

type Id = Result<Path<String>, PathRejection>;
type Pairs = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// The answer that a path names.
fn of_path(app: &App, headers: &HeaderMap, id: Id) -> Result<Arc<Answer>, ApiError> {
    // (A name that is not UTF-8 is nobody's.)
    let id = id.map_or_else(|_| "\u{FFFD}".to_owned(), |Path(id)| id);
    app.responses.get(&id, app.owner(headers), "response_id")
}

fn pairs(query: Pairs) -> Result<Vec<(String, String)>, ApiError> {
    let Query(pairs) = query.map_err(|e| ApiError::invalid(format!("the query cannot be read: {e}")))?;
    // (Lists are given by several members of the same name.)
    let twice = |(i, (name, _)): &(usize, &(String, String))| {
        !matches!(name.as_str(), "include" | "include[]") && pairs[..*i].iter().any(|(other, _)| other == name)
    };
    match pairs.iter().enumerate().find(twice) {
        Some((_, (name, _))) => Err(ApiError::of_param(name, format!("`{name:.40}` is given twice: give it once"))),
        None => Ok(pairs),
    }
}

/// Reads a value of the query.
fn read<T: std::str::FromStr>(name: &str, value: &str, wanted: &str) -> Result<T, ApiError> {
    value.parse().map_err(|_| ApiError::of_param(name, format!("`{name}` is `{value:.40}`: give {wanted}")))
}

fn unknown(name: &str) -> ApiError {
    ApiError::of_param(name, format!("`{name:.40}` is unknown: leave it out")).code("unknown_parameter")
}

/// Answers `GET /v1/responses/ID`.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    id: Id,
    headers: HeaderMap,
    query: Pairs,
) -> Result<Response, ApiError> {
    let (mut stream, mut after) = (false, None);
    for (name, value) in pairs(query)? {
        match name.as_str() {
            "stream" => stream = read(&name, &value, "true or false")?,
            "starting_after" => after = Some(read::<u32>(&name, &value, "the sequence number of an event")?),
            // Log-probabilities are there if they were when the answer was created.
            "include" | "include[]" if value == "message.output_text.logprobs" => {}
            // Padding of events changes no text.
            "include_obfuscation" => drop(read::<bool>(&name, &value, "true or false")?),
            _ => return Err(unknown(&name)),
        }
    }
    if after.is_some() && !stream {
        return Err(ApiError::of_param("starting_after", "`starting_after` is for streams: set `stream` to true"));
    }
    let answer = of_path(&app, &headers, id)?;
    if stream {
        return Ok(follow(answer, after.map_or(0, |after| after as usize + 1), None));
    }
    Ok(document(StatusCode::OK, &answer.document()))
}

/// Answers `DELETE /v1/responses/ID`.
pub(crate) async fn delete(State(app): State<Arc<App>>, id: Id, headers: HeaderMap) -> Result<Response, ApiError> {
    let answer = of_path(&app, &headers, id)?;
    app.responses.remove(&answer.id, app.owner(&headers))?;
    Ok(document(StatusCode::OK, &json!({ "id": answer.id, "object": "response", "deleted": true })))
}

/// Answers `POST /v1/responses/ID/cancel`.
pub(crate) async fn cancel(State(app): State<Arc<App>>, id: Id, headers: HeaderMap) -> Result<Response, ApiError> {
    let answer = of_path(&app, &headers, id)?;
    if !answer.background {
        let message = "only responses with `background` can be cancelled: others end when their client goes away";
        return Err(ApiError::of_param("response_id", message));
    }
    answer.cancel();
    Ok(document(StatusCode::OK, &answer.document()))
}

/// Answers `GET /v1/responses/ID/input_items`: all items before the answer.
pub(crate) async fn input_items(
    State(app): State<Arc<App>>,
    id: Id,
    headers: HeaderMap,
    query: Pairs,
) -> Result<Response, ApiError> {
    let (mut descending, mut limit, mut after) = (true, ITEMS, None);
    for (name, value) in pairs(query)? {
        match name.as_str() {
            "order" if value == "asc" || value == "desc" => descending = value == "desc",
            "order" => return Err(ApiError::of_param("order", "`order` is neither \"asc\" nor \"desc\"")),
            "limit" => limit = read(&name, &value, "a whole number from 1 to 100")?,
            "after" => after = Some(value),
            "include" | "include[]" if value == "message.output_text.logprobs" => {}
            _ => return Err(unknown(&name)),
        }
    }
    if !(1..=MOST_ITEMS).contains(&limit) {
        return Err(ApiError::of_param("limit", format!("`limit` is {limit}: give a whole number from 1 to 100")));
    }
    let answer = of_path(&app, &headers, id)?;
    let mut items = conversation_of(&answer.history, &answer.input);
    if descending {
        items.reverse();
    }
    if let Some(after) = after {
        let place = items.iter().position(|item| item["id"] == after.as_str());
        let place = place.ok_or_else(|| ApiError::of_param("after", "`after` is the identifier of no item"))?;
        items.drain(..=place);
    }
    let more = items.len() > limit;
    items.truncate(limit);
    let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    let (first, last) = (id(items.first()), id(items.last()));
    let list = json!({ "object": "list", "data": items, "first_id": first, "last_id": last, "has_more": more });
    Ok(document(StatusCode::OK, &list))
}
