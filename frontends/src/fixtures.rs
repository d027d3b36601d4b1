//! Writing small checkpoints.
