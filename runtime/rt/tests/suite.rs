//! Tests of the crate in one program, which links faster than one for each file.

mod ahead;
#[path = "common/api.rs"]
mod api;
mod capi;
mod capi_batch;
mod common;
mod contract;
#[path = "common/cuda.rs"]
mod cuda;
mod embed;
mod engine;
mod entries;
mod gpu;
#[path = "common/gpu_model.rs"]
mod gpu_model;
mod guesses;
mod header;
mod heads;
mod lifetime;
mod mixture;
mod recurrent;
mod serve;
mod taps;
mod text;
