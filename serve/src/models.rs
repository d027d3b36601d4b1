//! The models of a server: found by their names, loaded, unloaded and replaced while it runs.

use crate::error::ApiError;
use crate::hub::Hub;
use crate::log::Log;
use crate::model::Model;
use crate::served::Served;
use axum::http::StatusCode;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use tokio::sync::Mutex;

/// A model with its name for clients.
pub type Named = (String, Arc<dyn Model>);

/// Where models are opened while the server runs.
pub trait Source: Send + Sync + 'static {
    /// Names of the models that clients may load and unload; `None`: they may not.
    fn loadable(&self) -> Option<Vec<String>>;
    /// Opens the model of a name anew: its file may have been replaced.
    ///
    /// # Errors
    /// There is no such model, or it cannot be opened.
    fn open(&self, name: &str) -> llmcc_model::Result<Arc<dyn Model>>;
}

/// The models of a server, in the order in which they came.
pub(crate) struct Models {
    all: RwLock<Vec<Arc<Served>>>,
    source: Option<Arc<dyn Source>>,
    log: Arc<Log>,
    /// Most models at once.
    most: usize,
    /// Whether any name stands for the only model.
    any: bool,
    /// Models that are served no longer and may have requests under way.
    retired: std::sync::Mutex<Vec<Weak<Hub>>>,
    /// Held while a model is opened, so that none is opened twice.
    changing: Mutex<()>,
}

impl Models {
    /// Serves these models: `most` at once; `any`: whether any name stands for the only one.
    ///
    /// # Errors
    /// The system has no threads to give.
    pub(crate) fn new(
        models: Vec<Named>,
        source: Option<Arc<dyn Source>>,
        log: Arc<Log>,
        (most, any): (usize, bool),
    ) -> std::io::Result<Models> {
        let served = models.into_iter().map(|(name, model)| Served::new(name, model).map(Arc::new));
        let all = RwLock::new(served.collect::<Result<_, _>>()?);
        Ok(Models { all, source, log, most, any, retired: std::sync::Mutex::default(), changing: Mutex::new(()) })
    }

    /// The models of this moment.
    pub(crate) fn all(&self) -> Vec<Arc<Served>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Names of models that clients may load and unload.
    ///
    /// # Errors
    /// They may not.
    pub(crate) fn loadable(&self) -> Result<Vec<String>, ApiError> {
        self.source.as_ref().and_then(|source| source.loadable()).ok_or_else(|| {
            let message = "models of this server cannot be loaded or unloaded: start it with --model-dir";
            ApiError::new(StatusCode::FORBIDDEN, "invalid_request_error", message).code("loading_disabled")
        })
    }

    /// The model of a name.
    ///
    /// # Errors
    /// It is not served.
    pub(crate) fn named(&self, name: &str) -> Result<Arc<Served>, ApiError> {
        let all = self.all();
        all.iter().find(|served| served.name == name).cloned().ok_or_else(|| {
            let message = format!("there is no model `{name}`: this server has {}", listed(&all));
            let error = ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", message);
            error.code("model_not_found").about("model")
        })
    }

    /// The model of a name; without one, the only model.
    ///
    /// # Errors
    /// It is not served, or there are several to choose from.
    pub(crate) fn named_or_only(&self, name: Option<String>) -> Result<Arc<Served>, ApiError> {
        let all = self.all();
        if let Some(name) = name.filter(|_| !self.any || all.len() != 1) {
            return self.named(&name);
        }
        match &all[..] {
            [only] => Ok(only.clone()),
            [] => {
                let message = "no model is loaded: load one by POST /models/load";
                Err(ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", message).code("model_not_found"))
            }
            all => Err(ApiError::of_param("model", format!("`model` is missing: this server has {}", listed(all)))),
        }
    }

    /// Opens the model of a name that clients may load. Returns whether it was not there before.
    ///
    /// # Errors
    /// They may not load it; it cannot be opened; there are as many as there may be.
    pub(crate) async fn load(&self, name: &str) -> Result<bool, ApiError> {
        self.check_loadable(name)?;
        let _one = self.changing.lock().await;
        let all = self.all();
        if all.iter().any(|served| served.name == name) {
            return Ok(false);
        }
        if all.len() >= self.most {
            let message = format!(
                "{} models are loaded, and there may be {} at once: unload one of {}",
                all.len(),
                self.most,
                listed(&all)
            );
            return Err(ApiError::new(StatusCode::CONFLICT, "invalid_request_error", message).code("too_many_models"));
        }
        let served = self.open(name).await?;
        self.all.write().unwrap_or_else(PoisonError::into_inner).push(served);
        Ok(true)
    }

    /// Serves the model of a name no longer; its requests under way go on.
    ///
    /// # Errors
    /// Clients may not unload it, or it is not there.
    pub(crate) async fn unload(&self, name: &str) -> Result<(), ApiError> {
        self.check_loadable(name)?;
        let _one = self.changing.lock().await;
        let old = self.named(name)?;
        self.retire(&old);
        self.all.write().unwrap_or_else(PoisonError::into_inner).retain(|served| served.name != name);
        Ok(())
    }

    /// Opens all models anew. Requests under way go on with the model that they began with. Returns the names of
    /// models, with the errors of those that could not be opened and stay as they are.
    pub(crate) async fn reload(&self) -> Vec<(String, Result<(), ApiError>)> {
        let _one = self.changing.lock().await;
        let mut results = vec![];
        for old in self.all() {
            let opened = self.open(&old.name).await.map(|new| {
                self.retire(&old);
                let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
                if let Some(place) = all.iter_mut().find(|served| served.name == old.name) {
                    *place = new;
                }
            });
            results.push((old.name.clone(), opened));
        }
        results
    }

    fn retire(&self, served: &Served) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.retain(|hub| hub.strong_count() > 0);
        retired.push(Arc::downgrade(&served.hub));
    }

    /// Ends all requests, without waiting for them.
    pub(crate) fn close(&self) {
        self.all().iter().for_each(|served| served.hub.close());
        let retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.iter().filter_map(Weak::upgrade).for_each(|hub| hub.close());
    }

    /// Waits for the models' threads after [`Models::close`].
    pub(crate) fn join(&self) {
        self.all().iter().for_each(|served| served.join());
    }

    fn check_loadable(&self, name: &str) -> Result<(), ApiError> {
        let names = self.loadable()?;
        if names.iter().any(|known| known == name) {
            return Ok(());
        }
        let message = format!("there is no model `{name}` to load: there are {}", names.join(", "));
        let error = ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", message);
        Err(error.code("model_not_found").about("model"))
    }

    async fn open(&self, name: &str) -> Result<Arc<Served>, ApiError> {
        let Some(source) = self.source.clone() else {
            return Err(ApiError::unfinished(format!("`{name}` has no file to be opened from again")));
        };
        let (own, log) = (name.to_owned(), self.log.clone());
        let opened = tokio::task::spawn_blocking(move || {
            // Whoever serves sees the whole error, clients the name only.
            let model = source.open(&own).map_err(|e| {
                log.say(&format!("`{own}` cannot be opened: {e}"));
                let message = format!("`{own}` cannot be opened: the server's messages say why");
                ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message).code("model_not_opened")
            })?;
            Served::new(own, model).map(Arc::new).map_err(|e| ApiError::unfinished(format!("cannot start: {e}")))
        });
        opened.await.unwrap_or_else(|e| {
            let message = format!("internal error: {e}");
            Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message))
        })
    }
}

/// Names of models, for messages.
fn listed(all: &[Arc<Served>]) -> String {
    let names: Vec<String> = all.iter().map(|served| format!("`{}`", served.name)).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
