//! Tests of the crate in one program, which links faster than one for each file.

mod aarch64;
mod audio;
mod bad_inputs;
mod bisect;
mod budget;
mod calib;
mod chat;
#[path = "../../serve/tests/client/mod.rs"]
mod client;
mod common;
mod compressed;
mod damage;
mod drafts;
mod emit;
mod eval;
mod explain;
mod files;
mod frontier;
mod golden;
mod gpu_check;
mod handed_out;
mod help;
mod hub;
mod images;
mod integrity;
mod json;
mod levels;
mod lir;
mod output;
mod programs;
mod prompts;
mod pruning;
mod retarget;
mod route;
mod run;
mod serve;
mod serve_cache;
mod serve_models;
mod served;
#[path = "../../frontends/hub/tests/server/mod.rs"]
mod server;
mod shipping;
mod signatures;
mod simulate;
mod taps;
mod tokenize;
