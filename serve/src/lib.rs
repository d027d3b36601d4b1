//! `llmcc serve`: an HTTP server for models, with OpenAI's interface.
//!
//! [`Server`] has one thread for all connections, one that takes the engine's events ([`hub`](crate)), and some for
//! tokens of prompts. A request is read member by member, so that nothing in it is without effect unless it asks for
//! nothing (`fields.rs`, `ask.rs`); its prompt goes to the engine (`completions.rs`, `chat.rs`, `prompts.rs`), and the
//! events come back as a document or a stream (`reply.rs`, `stream.rs`). `docs/serving.md` is the page for users.

mod access;
mod admin;
mod app;
mod ask;
mod body;
mod chat;
mod completions;
mod conversation;
mod count;
mod defaults;
mod embeddings;
mod ending;
mod error;
mod fields;
mod fill;
mod form;
pub mod fuzz;
mod gbnf;
mod given_default;
mod guard;
mod hub;
mod json;
mod key;
mod llama;
mod log;
mod logprobs;
mod messages;
mod metrics;
mod model;
mod models;
mod net;
mod page;
mod pairs;
mod plan;
mod prompts;
mod quiet;
mod reply;
mod rerank;
mod responses;
mod routes;
mod served;
mod server;
mod settings;
mod shape;
mod silence;
mod spelling;
mod state;
mod stream;
mod timings;
mod tls;
mod tokens;
mod toolbox;
mod turn;
mod work;

/// Connections of clients and their checks, for a router in front of servers.
pub mod front {
    pub use crate::ask::unforeseen;
    pub use crate::body::{BODY, BodyError, read_body};
    pub use crate::ending::{Front, serve_until};
    pub use crate::guard::is_own;
    pub use crate::key::{given_key, key_of};
    pub use crate::net::Limits;
    pub use crate::tls::Tls;
    pub use crate::work::{Busy, Work};
}

pub use ending::Stopper;
pub use given_default::parse_default;
pub use log::LogForm;
pub use model::{Artifact, Facts, Model};
pub use models::{Named, Source};
pub use server::{ServeError, Server};
pub use settings::Settings;
pub use tls::TlsFiles;
