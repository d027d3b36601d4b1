//! Models from the Hugging Face hub, fetched into the hub's own cache, where other programs of this hub find them.
//!
//! [`Client::plan`] asks for the files of a revision and chooses those that compiling needs, [`Client::fetch`] fetches
//! them: broken downloads go on where they ended, and a file gets its name when its size and its hash are right.
//! Nothing that a server says is trusted: neither names nor sizes nor texts.

mod cache;
mod choose;
mod client;
mod digest;
mod error;
mod fetch;
pub mod fuzz;
mod gguf;
mod http;
mod listing;
mod names;
mod reference;
mod refused;
mod settings;
mod watch;

pub use choose::{Why, Wishes};
pub use client::{Client, Left, Plan, Wanted, cached};
pub use error::HubError;
pub use glob::Pattern;
pub use listing::{Listing, Remote};
pub use reference::{Part, Reference};
pub use settings::{Settings, Token};
pub use watch::{Unwatched, Watch};
