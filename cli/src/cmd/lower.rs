//! `llmcc lower`: single kernels, given as text, to code with a description of how to launch them.
//!
//! `tools/gpu-check` runs kernels from this output, without an artifact. The text of a kernel comes
//! from `compile --emit=kernels`, or is written by hand.

use crate::Error;
use crate::args::LowerArgs;
use crate::backends::Backends;
use crate::lowering;
use crate::options;
use crate::program;

use llmcc_codegen::link::Pending;
use llmcc_codegen::{Backend, GpuCode, Object};
use llmcc_ir::gpu;
use llmcc_ir::gpu::schedule::{self, Input, MatmulSchedule, Phase};
use llmcc_ir::gpu::wish::Wish;
use llmcc_ir::kernel::{Body, Expr, Field, Kernel, Norm, Param, ParamKind, Prologue, RowElem, Segment, Store};
use llmcc_ir::quant::Format;
use llmcc_ir::state::StateSpec;
use llmcc_ir::target::{Family, RowKind, TargetSpec};
use llmcc_ir::ty::Env;
use llmcc_passes::cost;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Lowers the kernels of a file into a folder.
///
/// # Errors
/// Whatever is wrong with the text, the target or the folder.
pub fn run(args: &LowerArgs) -> Result<(), Error> {
    let found = options::find_target(&args.target)?;
    let target = &with_wish(found, args.schedule.unwrap_or_default());
    if target.family() != Family::Nvidia {
        return Err(Error::Usage(format!("`lower` is for GPU targets; `{}` is not one", target.name)));
    }
    lowering::check("`lower`")?;
    let program = program::this()?;
    let backends = Backends::new(Some(program));
    let mut kernels = read(&args.kernels)?;
    let unfit: Vec<(String, String)> =
        kernels.iter().filter_map(|k| Some((k.name.clone(), unfit(k, target)?))).collect();
    match (&unfit[..], args.where_fits) {
        ([], _) => {}
        ([(name, why), ..], false) => return Err(Error::Usage(format!("--schedule: kernel @{name} {why}"))),
        (all, true) => {
            all.iter().for_each(|(name, why)| eprintln!("left out: kernel @{name} {why}"));
            kernels.retain(|k| !unfit.iter().any(|(name, _)| *name == k.name));
        }
    }
    write(&kernels, target, &backends, &args.output)?;
    for warning in backends.gpu.warnings() {
        eprintln!("warning: {warning}");
    }
    Ok(())
}

/// A target whose products have another schedule than the one chosen.
#[must_use]
pub fn with_wish(target: &TargetSpec, wish: Wish) -> TargetSpec {
    TargetSpec { wish, ..*target }
}

/// Why a kernel has no schedule that satisfies the target's wish, and the schedules it can have;
/// `None` if it has one, or there is no wish.
#[must_use]
pub fn unfit(kernel: &Kernel, target: &TargetSpec) -> Option<String> {
    let wished = target.wish != Wish::NONE;
    if !wished || schedule::matmul(kernel, target).is_some() {
        return None;
    }
    if !matches!(kernel.body, Body::Matmul(_)) {
        return Some("is not a product; only products have schedules".into());
    }
    // Stages by the rest of the schedule.
    let mut fits: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for s in schedule::fitting(kernel, target) {
        let place = match s.input {
            Input::Whole => ",input=whole",
            Input::Global => ",input=global",
            Input::Fitting(_) => ",input=fitting",
            Input::Tiles => "",
        };
        let stages = s.phases.iter().map(|p| p.stages).max().unwrap_or(0);
        fits.entry(format!("resident={},warps={}{place}", s.resident, s.warps)).or_default().push(stages);
    }
    let line = |(how, stages): (&String, &Vec<usize>)| {
        let (least, most) = (stages.iter().min().unwrap_or(&0), stages.iter().max().unwrap_or(&0));
        format!("{how} with stages={least} to {most}")
    };
    let all: Vec<String> = fits.iter().map(line).collect();
    Some(match all.is_empty() {
        true => "has no schedule at all on this target".into(),
        false => format!("has no such schedule; possible are {}", all.join("; ")),
    })
}

/// The kernels of a file, verified.
///
/// # Errors
/// A file that cannot be read, or the first kernel that is wrong.
pub fn read(path: &Path) -> Result<Vec<Kernel>, Error> {
    let text = llmcc_frontends::input::read_text(path)?;
    let mut texts: Vec<(usize, String)> = vec![];
    for (i, line) in text.lines().enumerate() {
        if line.starts_with("kernel") {
            texts.push((i + 1, String::new()));
        }
        match texts.last_mut() {
            Some((_, last)) => last.extend([line, "\n"]),
            None if line.trim().is_empty() || line.starts_with("//") => {}
            None => return Err(Error::Failed(format!("{}:{}: expected `kernel`", path.display(), i + 1))),
        }
    }
    let wrong = |line: usize, what: &dyn std::fmt::Display| {
        Error::Failed(format!("{}: kernel at line {line}: {what}", path.display()))
    };
    let mut kernels = vec![];
    for (line, text) in texts {
        let kernel = llmcc_ir::text::parse_kernel(&text);
        let kernel =
            kernel.map_err(|e| e.first().map_or_else(|| wrong(line, &"is not a kernel"), |d| wrong(line, d)))?;
        if let Some(d) = llmcc_ir::verify::verify_kernel(&kernel).first() {
            return Err(wrong(line, d));
        }
        kernels.push(kernel);
    }
    Ok(kernels)
}

/// Writes `kernels.json` and a file of code for each kernel: machine code where the backend has
/// `ptxas`, else PTX.
///
/// # Errors
/// Kernels that cannot be lowered, a folder that cannot be written.
pub fn write(kernels: &[Kernel], target: &TargetSpec, backend: &dyn Backend, folder: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    let put = |name: &str, bytes: &[u8]| Pending::write_file(&folder.join(name), bytes).map_err(Error::from);
    let mut all = vec![];
    for (i, (kernel, object)) in kernels.iter().zip(backend.lower_all(kernels, target)?).enumerate() {
        let Some(gpu) = object.gpu() else { continue };
        let file = match gpu.cubin.is_empty() {
            true => format!("{i:03}.ptx"),
            false => format!("{i:03}.cubin"),
        };
        put(&file, if gpu.cubin.is_empty() { gpu.ptx.as_bytes() } else { &gpu.cubin })?;
        all.push(describe(kernel, target, &object, gpu, &file));
    }
    let text = format!("{:#}\n", json!({ "target": target.name, "machine": machine(target), "kernels": all }));
    put("kernels.json", text.as_bytes())
}

/// The cost model's figures for the machine, in units per second, seconds and cycles.
fn machine(t: &TargetSpec) -> Value {
    let Some(g) = t.gpu() else { return Value::Null };
    let flops = |kind| g.flops(kind);
    let mut rates: serde_json::Map<String, Value> =
        cost::constants(g).into_iter().map(|(n, v)| (n.into(), json!(v))).collect();
    let peaks = [
        ("l2", g.l2_bandwidth),
        ("f16", flops(RowKind::F16)),
        ("fp8", flops(RowKind::Fp8)),
        ("f32", flops(RowKind::F32)),
    ];
    rates.extend(peaks.map(|(n, v)| (n.into(), json!(v))));
    json!({ "memory": t.memory, "launch": t.launch, "sms": g.sms, "fp8_mma": g.has_fp8_mma(), "rates": rates })
}

/// Sizes of steps for which predictions are written: tokens, and tokens of context.
const PREDICTED: [(usize, usize); 6] = [(1, 512), (1, 4096), (8, 512), (64, 512), (512, 256), (8192, 4096)];

/// Seconds that the cost model predicts.
fn predicted(k: &Kernel, t: &TargetSpec) -> Vec<Value> {
    let at = |(m, context)| json!({ "m": m, "context": context, "seconds": cost::seconds_at(k, t, Env { tokens: m, rows: m }, context) });
    PREDICTED.into_iter().map(at).collect()
}

/// How a product is spread over the machine.
fn spread(k: &Kernel, s: &MatmulSchedule) -> Value {
    let Body::Matmul(body) = &k.body else { return Value::Null };
    let formats = |p: &Phase| -> Vec<Format> {
        let of = |w: &usize| {
            let ParamKind::Matrix { format, .. } = k.params[*w].kind else { return None };
            Some(format)
        };
        body.segments[p.first].weights.iter().filter_map(of).collect()
    };
    let input = match s.input {
        Input::Whole => json!("whole"),
        Input::Global => json!("global"),
        // So many rows of it.
        Input::Fitting(rows) => json!(rows),
        Input::Tiles => json!("tiles"),
    };
    let phases: Vec<Value> = s
        .phases
        .iter()
        .map(|p| {
            json!({
                "tiles": p.tiles, "strips": p.strips, "columns": p.columns, "parts": p.parts, "cut": p.cut, "stages": p.stages,
                "tile_n": body.segments[p.first].tile_n, "formats": formats(p).iter().map(|f| f.def().name).collect::<Vec<_>>(),
                // Bytes of a lane's part of a unit, and instructions to multiply it.
                "unit_bytes": formats(p).into_iter().map(schedule::unit_bytes).collect::<Vec<_>>(),
                "unit_instructions": formats(p).into_iter().map(gpu::cost::decoding).collect::<Vec<_>>(),
                "quantized": formats(p).first().is_some_and(|f| f.is_quantized()),
            })
        })
        .collect();
    json!({
        "variant": format!("{:?}", s.variant).to_lowercase(),
        "rows": s.rows, "warps": s.warps, "resident": s.resident, "blocks": s.blocks,
        "input": input, "k": s.k, "depth": s.depth, "direct": s.direct, "apart": s.apart, "units": s.variant.stage_units(), "phases": phases,
    })
}

fn describe(k: &Kernel, t: &TargetSpec, object: &Object, gpu: &GpuCode, file: &str) -> Value {
    json!({
        "name": k.name,
        "file": file,
        "entry": gpu.entry,
        "threads": gpu.threads,
        "shared": gpu.shared,
        // Blocks: as many for every so many rows (0: altogether).
        "grid": gpu.grid.map(|d| [d.fixed, d.per_m]),
        // Bytes, and bytes per row.
        "workspace": [object.scratch, object.scratch_per_m],
        "generic": object.generic,
        "schedule": schedule::matmul(k, t).map(|s| spread(k, &s)),
        "predicted": predicted(k, t),
        "rows": k.rows.to_string(),
        "params": k.params.iter().map(param).collect::<Vec<_>>(),
        "body": body(&k.body),
        "text": llmcc_ir::text::print_kernel(k),
    })
}

fn param(p: &Param) -> Value {
    match &p.kind {
        ParamKind::Rows { rows, cols, elem } => {
            json!({ "kind": "rows", "rows": rows.to_string(), "cols": cols, "elem": elem_name(*elem) })
        }
        ParamKind::Matrix { n, k, format } => {
            json!({ "kind": "matrix", "n": n, "k": k, "format": format.def().name, "group": format.group, "bytes": format.packed_bytes(*n, *k) })
        }
        ParamKind::Vector { len } => json!({ "kind": "vector", "len": len }),
        ParamKind::State(s) => state(s),
    }
}

fn state(s: &StateSpec) -> Value {
    if let Some(s) = s.paged() {
        let (elem, heads, head_dim) = (s.dtype.to_string(), s.kv_heads, s.key_dim);
        let mut kv = json!({ "kind": "kv", "elem": elem, "heads": heads, "head_dim": head_dim, "window": s.window });
        if !s.uniform() {
            kv["value_dim"] = s.value_dim.into();
            kv["latent"] = s.latent.into();
        }
        return kv;
    }
    if let Some(s) = s.fixed() {
        return json!({ "kind": "state", "heads": s.heads, "rows": s.rows, "cols": s.cols });
    }
    if let Some(s) = s.adapter() {
        return json!({ "kind": "adapter", "n": s.n, "k": s.k, "slots": s.slots });
    }
    json!({ "kind": s.word(), "text": s.to_string() })
}

fn elem_name(elem: RowElem) -> String {
    elem.to_string()
}

fn norm(n: &Norm) -> Value {
    json!({ "eps": n.eps.get(), "width": n.width, "center": n.center })
}

/// The family and its fields under the names that they have in text.
fn body(body: &Body) -> Value {
    let field = |field: Field<'_>| match field {
        Field::Operand(p) => json!(p),
        Field::Optional(p) => json!(p),
        Field::Size(n) | Field::SizeOr1(n) => json!(n),
        Field::Sizes(sizes) => json!(sizes),
        Field::SizeIf(n) => json!(n),
        Field::Real(x) | Field::RealOr1(x) => json!(x.get()),
        Field::RealIf(x) => json!(x.map(|x| x.get())),
        Field::Flag(b) => json!(b),
        Field::Word(word) => json!(word),
        Field::Norm(n) => n.as_ref().map_or(Value::Null, norm),
        Field::Prologue(p) => p.map_or(Value::Null, prologue),
        Field::Segments(all) => all.iter().map(segment).collect(),
    };
    let family = ("family".to_string(), json!(body.name()));
    let fields = body.fields().into_iter().map(|(name, value)| (name.to_string(), field(value)));
    Value::Object(std::iter::once(family).chain(fields).collect())
}

fn prologue(p: &Prologue) -> Value {
    json!({ "norm": p.norm.as_ref().map(norm), "gain": p.gain, "bias": p.bias, "elem": elem_name(p.elem) })
}

fn segment(s: &Segment) -> Value {
    let store = match s.store {
        Store::Rows { param, start } => json!(["rows", param, start]),
        Store::KvKey(param) => json!(["key", param]),
        Store::KvValue(param) => json!(["value", param]),
    };
    json!({ "n": s.n, "weights": s.weights, "expr": expr(&s.expr), "store": store })
}

/// An expression as a list: its name, its numbers, its parts.
fn expr(e: &Expr) -> Value {
    match e {
        Expr::Acc(lane) => json!(["acc", lane]),
        Expr::Rows { param, start } => json!(["rows", param, start]),
        Expr::Vector(param) => json!(["vector", param]),
        Expr::Const(x) => json!(["const", x.get()]),
        Expr::Expert { vector, routes, top } => json!(["expert", vector, routes, top]),
        Expr::Pick { rows, order } => json!(["pick", rows, order]),
        Expr::Combine { weights, from, y, count } => json!(["combine", weights, from, y, count]),
        Expr::Unary(op, x) => json!([op.name(), expr(x)]),
        Expr::Binary(op, a, b) => json!([op.name(), expr(a), expr(b)]),
        Expr::Normalize(n, x) => json!(["norm", norm(n), expr(x)]),
        Expr::Rope { head_dim, table, x } => json!(["rope", head_dim, table, expr(x)]),
    }
}
