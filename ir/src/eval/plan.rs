//! Plan level.
