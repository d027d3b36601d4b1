//! Tests of the crate in one program, which links faster than one for each file.

mod client;
mod echo;
mod http;
mod llama;
mod models;
mod openapi;
mod page;
mod reload;
mod rerank;
mod responses;
mod resume;
mod security;
mod stand_in;
mod tools;
