//! Answers that are kept, in memory: so many and so many bytes, the oldest give way.

use crate::error::ApiError;
use crate::responses::answer::Answer;
use axum::http::StatusCode;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The place of a client's key among the server's keys; `None`: the server has none.
pub(crate) type Owner = Option<usize>;

/// Kept answers.
pub(crate) struct Store {
    /// Most answers; 0: none are kept.
    pub(crate) most: usize,
    most_bytes: usize,
    /// Bytes of all answers that are in memory, also of those that others go on from.
    bytes: Arc<AtomicUsize>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    known: HashMap<String, (Owner, Arc<Answer>)>,
    /// The oldest first.
    order: VecDeque<String>,
}

impl Store {
    /// A store without answers.
    pub(crate) fn new(most: usize, most_bytes: usize) -> Store {
        Store { most, most_bytes, bytes: Arc::default(), kept: Mutex::default() }
    }

    /// The sum to which kept answers add their bytes.
    pub(crate) fn sum(&self) -> Arc<AtomicUsize> {
        self.bytes.clone()
    }

    /// Keeps an answer; one of the same identifier, which only a router can have given it, gives way.
    ///
    /// # Errors
    /// An answer for another key has the identifier.
    pub(crate) fn keep(&self, owner: Owner, answer: &Arc<Answer>) -> Result<(), ApiError> {
        let mut kept = self.lock();
        if kept.known.get(&answer.id).is_some_and(|(of, _)| *of != owner) {
            let message = format!("the response `{:.80}` is there already: give it another identifier", answer.id);
            return Err(ApiError::new(StatusCode::CONFLICT, "invalid_request_error", message));
        }
        kept.order.retain(|id| *id != answer.id);
        kept.order.push_back(answer.id.clone());
        let before = kept.known.insert(answer.id.clone(), (owner, answer.clone()));
        drop(kept);
        before.iter().for_each(|(_, before)| before.cancel());
        self.trim();
        Ok(())
    }

    /// Drops the oldest answers while there are too many, but none that has not ended.
    pub(crate) fn trim(&self) {
        let mut kept = self.lock();
        while kept.order.len() > self.most || self.bytes.load(Ordering::Relaxed) > self.most_bytes {
            let ended = |id: &String| kept.known.get(id).is_none_or(|(_, answer)| answer.has_ended());
            let Some(at) = kept.order.iter().position(ended) else { break };
            // (The sum falls when the last answer that goes on from it is dropped, too.)
            let oldest = kept.order.remove(at);
            oldest.map(|id| kept.known.remove(&id));
        }
    }

    /// The answer of an identifier.
    ///
    /// # Errors
    /// It is not kept, or for another key.
    pub(crate) fn get(&self, id: &str, owner: Owner, param: &str) -> Result<Arc<Answer>, ApiError> {
        let kept = self.lock();
        let own = kept.known.get(id).filter(|(of, _)| *of == owner);
        own.map(|(_, answer)| answer.clone()).ok_or_else(|| missing(id, param))
    }

    /// Forgets an answer, and cancels it if it has not ended.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub(crate) fn remove(&self, id: &str, owner: Owner) -> Result<(), ApiError> {
        let answer = self.get(id, owner, "response_id")?;
        let mut kept = self.lock();
        kept.known.remove(id);
        kept.order.retain(|other| other != id);
        drop(kept);
        answer.cancel();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn missing(id: &str, param: &str) -> ApiError {
    let message = format!("there is no response `{id:.80}`: it was not stored, was deleted, or gave way to newer ones");
    let error = ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", message);
    error.code("response_not_found").about(param)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::responses::birth::Birth;
    use serde_json::{Map, json};

    fn answer(store: &Store, bytes: usize, history: Vec<Arc<Answer>>) -> Arc<Answer> {
        let input = vec![json!("x".repeat(bytes))];
        let answer = Answer::new(Birth::now(false), Map::new(), input, history, store.sum());
        answer.cancel();
        Arc::new(answer)
    }

    fn has(store: &Store, answer: &str) -> bool {
        store.get(answer, None, "response_id").is_ok()
    }

    #[test]
    fn the_oldest_give_way() {
        let store = Store::new(2, 100_000);
        let ids: Vec<String> = (0..3)
            .map(|_| {
                let new = answer(&store, 2_000, vec![]);
                store.keep(None, &new).unwrap();
                new.id.clone()
            })
            .collect();
        assert_eq!(ids.iter().map(|id| has(&store, id)).collect::<Vec<_>>(), [false, true, true]);
        assert!(store.get(&ids[2], Some(0), "response_id").is_err(), "another key's");
        let large = answer(&store, 99_000, vec![]);
        store.keep(None, &large).unwrap();
        assert_eq!((has(&store, &ids[2]), has(&store, &large.id)), (false, true));
        drop(large);
        let other = answer(&store, 50_000, vec![]);
        store.keep(None, &other).unwrap();
        assert!(has(&store, &other.id));
    }

    #[test]
    fn beginnings_of_conversations_count() {
        let store = Store::new(100, 60_000);
        let mut history = vec![];
        for _ in 0..10 {
            let next = answer(&store, 10_000, history.clone());
            history.push(next.clone());
            store.keep(None, &next).unwrap();
        }
        assert!(!has(&store, &history[0].id));
        let last = history.pop().unwrap();
        drop(history);
        store.trim();
        let id = last.id.clone();
        drop(last);
        store.trim();
        assert!(!has(&store, &id), "it holds all others");
        assert_eq!(store.bytes.load(Ordering::Relaxed), 0);
    }
}
