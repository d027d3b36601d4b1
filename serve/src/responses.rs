//! `/v1/responses`: OpenAI's Responses interface.
//!
//! A request becomes that of an answer in a conversation (`request.rs`, `items.rs`, `messages.rs`). A task takes its
//! events from the engine and keeps them in a log (`answer.rs`, `progress.rs`), from which documents and streams are
//! made: so an answer that is stored (`store.rs`) can be read, followed and cancelled by other requests (`stored.rs`)
//! than the one that created it (`create.rs`).

mod answer;
mod birth;
mod create;
mod follow;
mod items;
mod messages;
mod progress;
mod request;
mod store;
mod stored;

pub(crate) use create::{count, post};
pub(crate) use store::Store;
pub(crate) use stored::{cancel, delete, get, input_items};
