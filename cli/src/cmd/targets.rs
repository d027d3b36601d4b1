//! `llmcc targets`

use crate::args::TargetsArgs;
use crate::{Error, json, lowering};
use llmcc_ir::target::{Family, TargetSpec, all, find};
use serde_json::{Value, json};
use std::fmt::Write;

/// Lists the targets.
///
/// # Errors
/// Output closed.
pub fn run(args: &TargetsArgs) -> Result<(), Error> {
    let native = find("native").map_or("", |t| t.name);
    let gpus = lowering::check("a GPU").is_ok();
    if args.json {
        let targets: Vec<Value> = all().map(|t| document(t, native, gpus)).collect();
        return json::print(&json!({ "targets": targets }));
    }
    let mut out = String::new();
    for t in all() {
        let mark = match t.family() {
            _ if t.name == native => "  (native)",
            Family::Nvidia if !gpus => "  (needs `pip install llmcc-aot-cuda`, or a build by `make GPU=1`)",
            _ => "",
        };
        let _ = writeln!(out, "{:<14} {}{mark}", t.name, t.about);
    }
    super::print(&out)
}

fn document(t: &TargetSpec, native: &str, gpus: bool) -> Value {
    let is_gpu = t.family() == Family::Nvidia;
    json!({
        "name": t.name, "about": t.about, "family": if is_gpu { "gpu" } else { "cpu" },
        "native": t.name == native, "available": gpus || !is_gpu,
    })
}
