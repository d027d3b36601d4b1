//! `/v1/responses`: OpenAI's Responses interface.
//!
//! A request becomes that of an answer in a conversation (`request.rs`, `items.rs`). A task takes its events from the
//! engine and keeps them in a log (`answer.rs`), from which documents and streams are made: so an answer that is
//! stored (`store.rs`) can be read, followed and cancelled by other requests (`stored.rs`) than the one that created
//! it (`create.rs`).

mod answer;
mod create;
mod follow;
mod items;
mod request;
mod store;
mod stored;

pub(crate) use create::{count, post};
pub(crate) use store::Store;
pub(crate) use stored::{cancel, delete, get, input_items};
