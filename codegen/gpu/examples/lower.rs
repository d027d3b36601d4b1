//! Prints a stage of kernels' lowering: `cargo run -p llmcc-gpu --features llvm --example lower --
//! KERNELS.lir [--target sm90] [--stage mlir|lowered|llvm|ptx]`.
//!
//! `KERNELS.lir` holds one kernel or several (as `llmcc compile --emit=kernels` prints them); with
//! the extension `.mlir`, one module to lower.

use llmcc_gpu::llvm::lower;
use llmcc_gpu::worker::Stage;
use llmcc_ir::target;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, default: &str| -> String {
        let at = args.iter().position(|a| a == name);
        at.and_then(|i| args.get(i + 1)).map_or(default, |v| v).to_string()
    };
    let Some(path) = args.first() else { return Err("give a file of kernels".into()) };
    let stage = option("--stage", "ptx");
    let name = option("--target", "sm90");
    let target = target::find(&name).ok_or_else(|| format!("there is no target {name}"))?;
    let gpu = target.gpu().ok_or_else(|| format!("{name} is no GPU"))?;
    let text = std::fs::read_to_string(path)?;
    for mlir in modules(path, &text, target)? {
        let to = match stage.as_str() {
            "mlir" => None,
            "lowered" => Some(Stage::Lowered),
            "llvm" => Some(Stage::LlvmIr),
            "ptx" => Some(Stage::Ptx),
            other => return Err(format!("there is no stage {other}").into()),
        };
        let shown = to.map_or(Ok(mlir.clone()), |stage| lower(&mlir, gpu.processor, gpu.ptx, stage))?;
        println!("{shown}");
    }
    Ok(())
}

fn modules(path: &str, text: &str, target: &target::TargetSpec) -> Result<Vec<String>, Box<dyn Error>> {
    if path.ends_with(".mlir") {
        return Ok(vec![text.to_string()]);
    }
    let mut out = vec![];
    for kernel in split(text) {
        let kernel = llmcc_ir::text::parse_kernel(&kernel).map_err(|e| format!("{e:?}"))?;
        let wrong = llmcc_ir::verify::verify_kernel(&kernel);
        if !wrong.is_empty() {
            return Err(format!("{wrong:?}").into());
        }
        let source = llmcc_gpu::emit(&kernel, target)?;
        eprintln!("{}: threads {}, shared {}, grid {:?}", kernel.name, source.threads, source.shared, source.grid);
        out.push(source.mlir);
    }
    Ok(out)
}

/// Kernels of a file: each starts with `kernel` at the start of a line.
fn split(text: &str) -> Vec<String> {
    let mut out: Vec<String> = vec![];
    for line in text.lines() {
        if line.starts_with("kernel") {
            out.push(String::new());
        }
        if let Some(last) = out.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    out
}
