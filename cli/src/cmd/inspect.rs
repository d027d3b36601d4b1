//! `llmcc inspect`

use crate::Error;
use crate::args::InspectArgs;
use crate::loaded::{manifest_of, sealed};
use crate::manifest::hex;
use crate::report::bytes;
use llmcc_abi::{PAGE_TOKENS, layout};
use serde_json::Value;
use std::fmt::Write;

/// Tokens that a prompt is cut into where nothing else is said.
const CHUNK: usize = 512;

/// Prints the manifest, in words or as JSON.
///
/// # Errors
/// Not an artifact.
pub fn run(args: &InspectArgs) -> Result<(), Error> {
    // From the file: artifacts for other machines are described as well.
    let mut m = manifest_of(&args.artifact)?;
    let root = hex(&sealed(&args.artifact)?.root());
    super::print(&if args.json {
        if let Some(all) = m.as_object_mut() {
            all.insert("root".into(), root.into());
        }
        format!("{m:#}\n")
    } else {
        format!("root        {root}\n{}", describe(&m, args.tensors))
    })
}

/// A version in words.
fn version(v: &Value) -> String {
    let kernels = v["kernels"].as_array().map_or(0, Vec::len);
    let generic = v["generic"].as_object().map_or(0, serde_json::Map::len);
    format!(
        "{}: activations {}, {kernels} kernels, {generic} on generic paths, {:.1} tokens/s at batch 1 predicted",
        v["target"].as_str().unwrap_or("?"),
        v["activations"].as_str().unwrap_or("?"),
        1.0 / v["predicted"]["decode_seconds"].as_f64().unwrap_or(0.0)
    )
}

/// What a sequence keeps of the layers of each lifetime; nothing where no layer has a window.
fn lifetimes(m: &Value) -> String {
    let groups: Vec<&Value> = m["memory"]["kv_groups"].as_array().into_iter().flatten().collect();
    let number = |v: &Value| v.as_u64().unwrap_or(0) as usize;
    if groups.iter().all(|g| number(&g["window"]) == 0) {
        return String::new();
    }
    let mut s = String::new();
    let context = number(&m["info"]["max_context"]);
    let (mut kept, mut all) = (0, 0);
    for g in groups {
        let (window, layers, per_token) = (number(&g["window"]), number(&g["layers"]), number(&g["per_token"]));
        let plural = if layers == 1 { "" } else { "s" };
        let most = context.min(PAGE_TOKENS * layout::window_pages(window, CHUNK));
        (kept, all) = (kept + per_token * if window == 0 { context } else { most }, all + per_token * context);
        let _ = match window {
            0 => writeln!(s, "            {layers} layer{plural} without a window: {} per token", bytes(per_token as f64)),
            _ => writeln!(
                s,
                "            {layers} layer{plural} with a window of {window}: {} per token, {} per sequence at most",
                bytes(per_token as f64),
                bytes((per_token * most) as f64)
            ),
        };
    }
    let (kept, all) = (bytes(kept as f64), bytes(all as f64));
    let _ = writeln!(s, "            a sequence of {context} tokens takes {kept}; without windows it would be {all}");
    s
}

/// A manifest in words; absent members show as `?`, 0 or nothing.
pub fn describe(m: &Value, tensors: bool) -> String {
    let mut s = String::new();
    let text = |v: &Value| v.as_str().unwrap_or("?").to_owned();
    let number = |v: &Value| v.as_f64().unwrap_or(0.0);
    let _ = writeln!(s, "model       {} (llmcc {})", text(&m["model"]), text(&m["llmcc"]));
    let o = &m["options"];
    let targets: Vec<String> = std::iter::once(&o["target"]).chain(o["also"].as_array().into_iter().flatten()).map(text).collect();
    let _ = writeln!(
        s,
        "options     target {}, weights {} ({}), activations {}",
        targets.join(", "),
        text(&o["weights"]),
        text(&o["place"]),
        o["activations_wanted"].as_str().unwrap_or("as suits weights and target")
    );
    let i = &m["info"];
    let _ = writeln!(
        s,
        "sizes       vocabulary {}, hidden {}, context {}, {} attention layers",
        i["vocab"], i["hidden"], i["max_context"], i["attention_layers"]
    );
    for f in m["source"].as_array().into_iter().flatten() {
        let _ = writeln!(s, "source      {} {} sha256 {}", text(&f["file"]), bytes(number(&f["bytes"])), text(&f["sha256"]));
    }
    let w = &m["weights"];
    let formats: Vec<_> = w["by_format"].as_object().into_iter().flatten().map(|(k, v)| format!("{k} {}", bytes(number(v)))).collect();
    let _ = writeln!(s, "weights     {} ({})", bytes(number(&w["bytes"])), formats.join(", "));
    let _ = writeln!(s, "code        {}", bytes(number(&m["code"]["bytes"])));
    for v in m["versions"].as_array().into_iter().flatten() {
        let _ = writeln!(s, "version     {}", version(v));
    }
    let mut kv: Vec<String> = m["kv"].as_array().into_iter().flatten().map(text).collect();
    kv.sort();
    kv.dedup();
    let _ = writeln!(s, "cache       {}", kv.join(", "));
    s += &lifetimes(m);
    let y = &m["memory"];
    let _ = writeln!(s, "memory      {}", text(&y["formula"]));
    let _ = writeln!(
        s,
        "            weights {}, kv_per_token {}, per_token {}, per_row {}",
        bytes(number(&y["weights"])),
        bytes(number(&y["kv_per_token"])),
        bytes(number(&y["per_token"])),
        bytes(number(&y["per_row"]))
    );
    let lossy: Vec<String> = m["certificate"]["lossy"].as_array().into_iter().flatten().map(text).collect();
    if lossy.is_empty() {
        let _ = writeln!(s, "exactness   as the checkpoint");
    } else {
        let worst = number(&m["certificate"]["largest_relative_rms_error"]) * 100.0;
        let _ = writeln!(s, "exactness   {}; largest relative RMS error of a matrix {worst:.2} %", lossy.join("; "));
    }
    let b = &m["certificate"]["budget"];
    if let Some(most) = b["error_budget"].as_f64() {
        let _ = writeln!(s, "budget      RMS error of all matrices {:.3} % of {:.3} %", number(&b["rms_error"]) * 100.0, most * 100.0);
    }
    for c in b["stored"].as_array().into_iter().flatten() {
        let _ =
            writeln!(s, "            {} as {}, error {:.3} %", text(&c["what"]), text(&c["as"]), number(&c["relative_rms_error"]) * 100.0);
    }
    match m["golden"]["steps"].as_array() {
        Some(steps) => {
            let tokens: f64 = steps.iter().map(|s| number(&s["tokens"])).sum();
            let _ = writeln!(
                s,
                "golden      {tokens} tokens in {} steps, computed by the code for {}",
                steps.len(),
                text(&m["golden"]["target"])
            );
        }
        None => {
            let _ = writeln!(s, "golden      none: {}", text(&m["golden"]["absent"]));
        }
    }
    if let Some(d) = m["certificate"]["golden_difference_to_evaluator"].as_f64() {
        let _ = writeln!(s, "evaluator   golden logits within {d:.1e} of an f64 evaluation of the plan, relative to the largest logit");
    }
    if tensors {
        for t in w["tensors"].as_array().into_iter().flatten() {
            let error = t["relative_rms_error"].as_f64().map_or(String::new(), |e| format!("  error {:.2} %", e * 100.0));
            let _ = writeln!(s, "{:>12}  {:<24} {}{error}", t["offset"], text(&t["storage"]), text(&t["name"]));
        }
    }
    s
}
