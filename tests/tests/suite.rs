//! Tests of the crate in one program, which links faster than one for each file.

mod adapters;
mod bindings;
mod compress;
mod drafts;
mod entries;
mod fuzz_corpus;
mod goldens;
mod gpu_check;
mod gpu_kernels;
mod latent;
mod models;
mod newcomers;
mod policies;
mod quantized;
mod real_sizes;
mod reproducible;
mod requantized;
mod rwkv;
mod scales;
mod snapshots;
mod sources;
mod stories;
mod taps;
mod tiny_llama;
mod tour;
mod windows;
