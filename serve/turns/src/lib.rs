//! The format of a model's turns: how it calls tools, and how it reasons.
//!
//! Chat templates print conversations with calls and reasoning as models write them. [`derive`](fn@derive) renders a
//! template with known conversations and compares the texts: whatever surrounds the known names and values is the
//! [`Format`]. One [`Parser`] reads it and splits any stream of text into [`Event`]s. A [`grammar`] of the same format
//! makes a model call tools in the right form. No code here knows a model by its name.

mod body;
mod boundary;
mod channels;
mod derive;
mod describe;
mod event;
mod format;
pub mod fuzz;
pub mod grammar;
mod harmony;
mod parse;
mod probe;
mod scan;
mod tools;
mod values;

pub use derive::derive;
pub use event::{Event, merged};
pub use format::{Calls, Form, Format, Mid, Piece, Span, ValueKind};
pub use parse::Parser;
pub use tools::Tools;
