//! Weight expressions.
