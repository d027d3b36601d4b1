//! `llmcc route`: a reverse proxy in front of several `llmcc serve` of the same artifact, whose streams outlive them.
//!
//! A text of llmcc depends on prompt, seed and parameters alone. So where a replica dies in the middle of a stream, the
//! router sends the request to another one, together with the tokens that were generated so far (`expected_token_ids`),
//! leaves out the events that the client has, and goes on (`relay.rs`). Which token belongs to which event the replicas
//! say in comments of their streams (the header `x-llmcc-trace`, `sse.rs`). Requests without a seed get one here
//! (`call.rs`), so that they can be repeated.
//!
//! `fleet.rs` chooses replicas, `health.rs` asks them how they are, `upstream.rs` sends requests to them over
//! connections that `pool.rs` keeps, `dispatch.rs` tries one after the other, and `proxy.rs` does that for a client.
//! `docs/routing.md` is the page for users.

mod app;
mod call;
mod dispatch;
mod error;
mod fleet;
mod health;
mod identity;
mod json;
mod metrics;
mod paths;
mod pool;
mod proxy;
mod race;
mod relay;
mod server;
mod settings;
mod sse;
mod upstream;

pub use llmcc_serve::Stopper;
pub use server::{RouteError, Router};
pub use settings::Settings;
