//! Instructions of kernels' hot loops: `cargo run -p llmcc-tests --features llmcc/gpu --example
//! sass-count -- KERNELS.lir [TARGET]`.
//!
//! `KERNELS.lir` comes from `llmcc compile --emit kernels`, or is written by hand. Needs `ptxas`
//! and `nvdisasm` (`LLMCC_PTXAS`, `LLMCC_NVDISASM`).

use llmcc_cli::backends::Backends;
use llmcc_cli::cmd::lower;
use llmcc_codegen::Backend;
use llmcc_gpu::assembler::Ptxas;
use llmcc_ir::kernel::Body;
use llmcc_ir::target;
use llmcc_tests::sass::{count, flight};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let path = args.first().ok_or("give a file of kernels, and a target if it is not sm90")?;
    let name = args.get(1).map_or("sm90", String::as_str);
    let target = target::find(name).ok_or_else(|| format!("there is no target {name}"))?;
    let ptxas = Ptxas::find().ok_or("there is no ptxas: name it with LLMCC_PTXAS")?;
    for kernel in lower::read(path.as_ref())? {
        if !matches!(kernel.body, Body::Matmul(_) | Body::Attention(_)) {
            continue;
        }
        let listing = count::assemble(&ptxas, Backends::ptx().lower(&kernel, target)?.listing(), target)?;
        print!("{}", count::report(&kernel, target, &listing)?);
        for wrong in flight::overwritten(&listing)? {
            println!("  {wrong}");
        }
    }
    Ok(())
}
