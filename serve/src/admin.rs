//! Models that clients load and unload: `GET /models`, `POST /models/load` and `/models/unload`, as llama.cpp has them.

use crate::app::App;
use crate::error::{ApiError, answer};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// Answers `GET /models`: the models that are loaded, and those that could be.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Response {
    let loaded: Vec<String> = app.models.all().iter().map(|served| served.name.clone()).collect();
    let known = app.models.loadable().unwrap_or_default();
    let others = known.into_iter().filter(|name| !loaded.contains(name));
    let model = |name: &str, state: &str| json!({ "id": name, "object": "model", "status": { "value": state } });
    let mut data: Vec<Value> = loaded.iter().map(|name| model(name, "loaded")).collect();
    data.extend(others.map(|name| model(&name, "unloaded")));
    answer(StatusCode::OK, &json!({ "object": "list", "data": data }))
}

/// Answers `POST /models/load`: when the model is there.
pub(crate) async fn load(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let _busy = app.begin()?;
    let name = name(&app, request).await?;
    let new = app.models.load(&name).await?;
    Ok(answer(StatusCode::OK, &json!({ "success": true, "model": name, "already_loaded": !new })))
}

/// Answers `POST /models/unload`. Requests under way go on.
pub(crate) async fn unload(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let _busy = app.begin()?;
    let name = name(&app, request).await?;
    app.models.unload(&name).await?;
    Ok(answer(StatusCode::OK, &json!({ "success": true, "model": name })))
}

async fn name(app: &App, request: Request) -> Result<String, ApiError> {
    // Whether it is allowed does not depend on the body.
    app.models.loadable()?;
    let (mut fields, _) = app.read(request).await?;
    let name = fields.require("model")?;
    fields.finish().map(|()| name)
}
