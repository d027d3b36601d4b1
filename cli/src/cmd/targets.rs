//! `llmcc targets`

use crate::Error;
use crate::lowering;
use llmcc_ir::target::{Family, all, find};
use std::fmt::Write;

/// Lists the targets.
///
/// # Errors
/// Output closed.
pub fn run() -> Result<(), Error> {
    let native = find("native").map_or("", |t| t.name);
    let gpus = lowering::check("a GPU").is_ok();
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
