//! The `llmcc` command.
fn main() {}
