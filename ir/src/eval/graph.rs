//! Graph level.
