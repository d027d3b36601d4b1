//! Conversations with a model: lines that a user types or a program sends, and answers that appear as they are made.
//!
//! `llmcc run --chat` and `llmcc chat` are loops around [`answer`].

mod answering;
mod conversation;
mod interrupt;
mod lines;
mod made;
pub mod sampling;
mod speaker;

pub use answering::{Answer, Manner, answer, once};
pub use conversation::Conversation;
pub use interrupt::Interrupt;
pub use lines::{Line, Lines};
pub use made::Made;
pub use speaker::{Speaker, said, stats};
