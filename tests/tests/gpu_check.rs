//! The script that checks kernels on a GPU, without one: `tools/gpu-check` launches kernels through
//! the fake CUDA driver and computes with NumPy in place of PyTorch on a GPU. So it is known to
//! work before it meets a GPU, and its own idea of the meaning of kernels is compared with their
//! results.

use llmcc_cli::backends::{Backends, HAS_LLVM};
use llmcc_cli::cmd::lower;
use llmcc_cli::session::{self, CompileOptions};
use llmcc_codegen::Backend;
use llmcc_gpu::backend::GpuBackend;
use llmcc_gpu::worker::Llvm;
use llmcc_ir::gpu::schedule::{self, Input};
use llmcc_ir::kernel::{Body, Kernel};
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::Format;
use llmcc_ir::target::{self, TargetSpec};
use llmcc_tests::{fake_driver, golden, options, root};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// The Python to run, if there is one with NumPy.
fn numpy() -> Option<OsString> {
    let python = std::env::var_os("LLMCC_PYTHON");
    if python.is_none() {
        eprintln!("skipped: LLMCC_PYTHON should name a Python with NumPy (`make test` makes one)");
    }
    python
}

/// The same, if this build can make PTX, too.
fn python() -> Option<OsString> {
    if !HAS_LLVM {
        eprintln!("skipped: built without the feature `gpu`");
        return None;
    }
    numpy()
}

/// A script of the tool, on a folder.
fn script(python: &OsString, name: &str, folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(python);
    command.arg(root().join("tools/gpu-check").join(name)).arg(folder).args(args);
    command.env("LLMCC_CUDA_LIBRARY", fake_driver()).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Whether it found everything right, and its output.
fn run(mut command: Command) -> (bool, String) {
    let out = command.output().expect("Python runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.success(), text)
}

/// `gpu_check.py` on a folder, and its rows by name.
fn check(python: &OsString, folder: &Path, args: &[&str], inject: &str) -> (bool, String, BTreeMap<String, Value>) {
    let out = folder.join("rows.jsonl");
    let mut command = script(python, "gpu_check.py", folder, args);
    command.arg("--out").arg(&out).env("LLMCC_FAKE_CUDA_INJECT", inject);
    let (right, text) = run(command);
    let lines = std::fs::read_to_string(&out).unwrap_or_else(|e| panic!("{e}: {text}"));
    let rows = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    (right, text, rows.map(|row| (row["id"].as_str().expect("a name").to_owned(), row)).collect())
}

fn kernels_of(name: &str, format: &str, kv: KvDType, backend: &dyn Backend) -> Vec<Kernel> {
    let options = CompileOptions {
        targets: vec![target::find("sm90").expect("a target")],
        weights: Some(Format::parse(format).expect("a format")),
        kv: Some(kv),
        act: None,
        ..options(&golden(name))
    };
    let lowered = session::lower(&options, backend).unwrap_or_else(|e| panic!("{name} {format}: {e}"));
    let mut kernels = lowered.preferred().compiled.plan.kernels.clone();
    kernels.iter_mut().for_each(|k| k.name = format!("{format}.{}", k.name));
    kernels
}

fn write(kernels: &[Kernel], folder: &Path, backend: &dyn Backend) {
    lower::write(kernels, target::find("sm90").expect("a target"), backend, folder).unwrap_or_else(|e| panic!("{e}"));
}

/// Small kernels whose speed is measured, in `folder/speed`.
fn write_shapes(python: &OsString, folder: &Path, backend: &dyn Backend) {
    let (written, text) = run(script(python, "shapes.py", &folder.join("speed"), &["--small"]));
    assert!(written, "{text}");
    let kernels = lower::read(&folder.join("speed/kernels.lir")).unwrap_or_else(|e| panic!("{e}"));
    write(&kernels, &folder.join("speed"), backend);
}

/// All kernels of models in several formats; and one with a wrong description is detected.
#[test]
fn kernels_of_models() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    let formats = [
        ("llama3", "w4g32", KvDType::F16),
        ("qwen3", "bf16", KvDType::Bf16),
        ("mistral", "w8g64", KvDType::Int8),
        ("qwen2", "w4ag32", KvDType::F16),
        ("llama3", "fp8", KvDType::F16),
    ];
    let ptx = Backends::ptx();
    let kernels: Vec<Kernel> =
        formats.into_iter().flat_map(|(name, format, kv)| kernels_of(name, format, kv, &ptx)).collect();
    write(&kernels, &dir.path().join("kernels"), &ptx);
    let (right, text, rows) = check(&python, dir.path(), &["--only", "kernel", "--repeats", "2"], "");
    assert!(right, "{text}");
    assert_eq!(
        rows.values()
            .filter(|r| r["kind"] == "kernel" && r["status"] == "ok" && r["resident"].as_u64() > Some(0))
            .count(),
        kernels.len()
    );
    let file = dir.path().join("kernels/kernels.json");
    let mut described: Value = serde_json::from_slice(&std::fs::read(&file).expect("written")).expect("JSON");
    let all = described["kernels"].as_array_mut().expect("kernels");
    all.retain(|k| k["body"]["family"] == "attention");
    all.truncate(1);
    all[0]["body"]["scale"] = serde_json::json!(0.5);
    std::fs::write(&file, described.to_string()).expect("written");
    let (right, text, rows) = check(&python, dir.path(), &["--only", "kernel", "--repeats", "1"], "");
    assert!(!right && rows.values().any(|r| r["status"] == "wrong"), "{text}");
    let old = dir.path().join("rows.jsonl.1");
    assert!(old.exists(), "the rows of an earlier call are put aside");
}

/// Kernels that no Llama has: recurrences, convolutions over time, experts and their router, latent
/// attention.
#[test]
fn kernels_of_sequences_and_experts() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    let formats = [
        ("qwen3_5", "w4g32"),
        ("mamba2", "bf16"),
        ("mamba", "bf16"),
        ("rwkv", "bf16"),
        ("rwkv7_paper", "bf16"),
        ("gpt_oss", "bf16"),
        ("deepseek_v2_lite", "w8g32"),
    ];
    let ptx = Backends::ptx();
    let mut kernels: Vec<Kernel> = vec![];
    for (name, format) in formats {
        let mut mine = kernels_of(name, format, KvDType::Bf16, &ptx);
        mine.iter_mut().for_each(|k| k.name = format!("{name}.{}", k.name));
        kernels.extend(
            mine.into_iter()
                .filter(|k| !matches!(k.body.name(), "matmul" | "row_norm" | "embed" | "rope_table" | "top_k")),
        );
    }
    write(&kernels, &dir.path().join("kernels"), &ptx);
    let (right, text, rows) = check(&python, dir.path(), &["--only", "kernel", "--repeats", "2"], "");
    assert!(right, "{text}");
    let checked = |family: &str| rows.values().filter(|r| r["family"] == family && r["status"] == "ok").count();
    for family in ["recurrence", "causal_conv", "wkv", "route", "expert_matmul", "attention", "pointwise"] {
        assert!(checked(family) > 0, "no {family}: {text}");
    }
    assert_eq!(rows.values().filter(|r| r["kind"] == "kernel" && r["status"] == "ok").count(), kernels.len(), "{text}");
}

/// The kernels whose speed is measured, smaller; and in another schedule.
#[test]
fn timed_kernels() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    write_shapes(&python, dir.path(), &Backends::ptx());
    let (right, text, rows) = check(&python, dir.path(), &["--repeats", "2"], "");
    assert!(right, "{text}");
    assert!(
        rows["machine"]["copy"].as_f64() > Some(0.0) && rows["machine"]["launch_us"].as_f64() > Some(0.0),
        "{text}"
    );
    let speeds: Vec<&Value> = rows.values().filter(|r| r["kind"] == "speed").collect();
    assert!(speeds.len() == 14 && speeds.iter().all(|r| r["us"].as_f64() > Some(0.0) && r["status"] == "ok"), "{text}");
    // Without PyTorch there is nothing to compare with.
    assert!(rows.values().filter(|r| r["kind"] == "peer").all(|r| r["status"] == "skipped"), "{text}");
    let tables = std::fs::read_to_string(dir.path().join("rows.md")).expect("tables");
    assert!(
        tables.contains("Everything that ran is right.") && tables.contains("| w4 product, 1 token, 64×256 |"),
        "{tables}"
    );
}

/// A kernel that stores to a wild address ends its process, one that hangs is killed; those before
/// and after them are measured, and all rows are on the disk.
#[test]
fn faults_and_hangs_cost_one_row_each() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    write_shapes(&python, dir.path(), &Backends::ptx());
    let described: Value =
        serde_json::from_slice(&std::fs::read(dir.path().join("speed/kernels.json")).expect("written")).expect("JSON");
    let entry = |name: &str| {
        let all = described["kernels"].as_array().expect("kernels");
        all.iter().find(|k| k["name"] == name).and_then(|k| k["entry"].as_str()).expect("a kernel").to_owned()
    };
    let inject = format!("fault:{},hang:{}", entry("s.bf16"), entry("s.decode"));
    let args = ["--only", "speed", "--repeats", "2", "--limit", "12"];
    let (right, text, rows) = check(&python, dir.path(), &args, &inject);
    assert!(!right, "{text}");
    let status = |rows: &BTreeMap<String, Value>| -> BTreeMap<String, String> {
        let named = rows.values().filter(|r| r["kind"] == "speed");
        named
            .map(|r| {
                (r["id"].as_str().unwrap_or_default()[8..].into(), r["status"].as_str().unwrap_or_default().into())
            })
            .collect()
    };
    let fine =
        ["conv", "decode8", "delta", "erase", "experts", "fp8", "latent", "means", "plain", "prompt", "route", "w4"];
    let wanted = [("bf16", "error"), ("decode", "timeout")].into_iter().chain(fine.map(|name| (name, "ok")));
    let wanted: BTreeMap<String, String> = wanted.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    assert_eq!(status(&rows), wanted, "{text}");
    assert!(rows["speed:s.bf16"]["said"].as_str().is_some_and(|s| s.contains("illegal memory access")), "{text}");
    assert!(rows["speed:s.decode"]["said"].as_str().is_some_and(|s| s.contains("killed after 12 s")), "{text}");
    let tables = std::fs::read_to_string(dir.path().join("rows.md")).expect("tables");
    assert!(tables.contains("**2 wrong.**"), "{tables}");

    // A call that was killed while it wrote a row: only that item is done again.
    let file = dir.path().join("rows.jsonl");
    let lines = std::fs::read_to_string(&file).expect("rows");
    let (kept, last) = lines.split_once("{\"id\": \"speed:s.prompt\"").expect("a row");
    std::fs::write(&file, format!("{kept}{{\"id\": \"speed:s.prompt\"{}", &last[..20])).expect("written");
    let (right, text, rows) = check(&python, dir.path(), &[&args[..], &["--resume"]].concat(), "");
    assert!(!right, "the faults are still in the report: {text}");
    assert_eq!(status(&rows), wanted, "{text}");
    assert_eq!(text.matches("speed:").count(), 1, "{text}");

    // Checks that do not fit into the time are named, and are no failure.
    let (right, text, rows) = check(&python, dir.path(), &[&args[..], &["--deadline", "0.5"]].concat(), "");
    assert!(right && text.contains("15 not run"), "{text}");
    assert_eq!(rows["plan"]["not_run"].as_array().map(Vec::len), Some(15));
    // In the process of the caller, as profilers and sanitizers need it.
    let (right, text, rows) = check(&python, dir.path(), &["--filter", "s.w4$", "--repeats", "1"], "");
    assert!(right && rows["speed:s.w4"]["status"] == "ok" && rows.len() == 5, "{text}");
}

/// A dead worker takes nothing from the others; a signature with two hanging kernels is left out.
#[test]
fn workers_fail_alone() {
    let Some(python) = numpy() else { return };
    let (right, text) = run(script(&python, "workers_test.py", Path::new(""), &[]));
    assert!(right && text.contains("all right"), "{text}");
}

/// An architecture's model, compiled as `architectures.py` would.
fn write_architecture(python: &OsString, folder: &Path, name: &str) {
    let options = CompileOptions {
        targets: vec![target::find("sm90").expect("a target")],
        weights: Some(Format::F32),
        kv: Some(KvDType::F32),
        act: None,
        ..options(&golden(name))
    };
    let backends = Backends::ptx();
    let mut lowered = session::lower(&options, &backends).unwrap_or_else(|e| panic!("{name}: {e}"));
    let artifact = folder.join(format!("{name}.f32.so"));
    session::finish(&mut lowered, &options, &backends, &artifact, &mut |_, _| {})
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut packing = script(python, "architectures.py", folder, &["--forms", "f32", "--only", name]);
    packing.env("LLMCC", "/nothing/is/compiled/again");
    let (packed, text) = run(packing);
    assert!(packed && text.contains("f32: 1 models"), "{text}");
}

/// Everything that a call needs is in one file, which runs where it is unpacked; parts that do not
/// fit are left out, with a message.
#[test]
fn one_file_is_enough() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    let (folder, architectures, there) = (dir.path().join("check"), dir.path().join("all"), dir.path().join("there"));
    [&folder, &architectures, &there].into_iter().for_each(|d| std::fs::create_dir(d).expect("a folder"));
    write_shapes(&python, &folder, &Backends::ptx());
    write_architecture(&python, &architectures, "llama3");
    let (measured, text) = run(script(&python, "models_test.py", &architectures.join("llama3.f32.so"), &[]));
    assert!(measured && text.contains("all right"), "{text}");
    let file = dir.path().join("call.tar");
    let pack = |options: &[&str]| {
        let mut command = Command::new("sh");
        command.arg(root().join("tools/gpu-check/one-call.sh")).args(options).env("PYTHON", &python);
        command.arg("--folder").arg(&folder).arg("--architectures").arg(&architectures).arg("--out").arg(&file);
        run(command)
    };
    let (packed, text) = pack(&["--seconds", "480", "--results", "here", "--at", "/somewhere"]);
    let command = "gpu_check.py /somewhere/llmcc-gpu-call/check --seconds 480 --results here";
    assert!(packed && text.contains(command) && !text.contains("left out"), "{text}");
    let unpacked = Command::new("tar").arg("-xf").arg(&file).arg("-C").arg(&there).status().expect("tar runs");
    assert!(unpacked.success());
    let call = there.join("llmcc-gpu-call");
    let checked = |options: &[&str]| {
        let mut command = Command::new(&python);
        command.arg(call.join("tools/gpu-check/gpu_check.py")).arg(call.join("check")).args(options);
        command.arg("--results").arg(there.join("results")).env("LLMCC_CUDA_LIBRARY", fake_driver());
        run(command)
    };
    let (right, text) = checked(&["--only", "architecture", "--workers", "2"]);
    let tables = std::fs::read_to_string(there.join("results/results.md")).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert!(right && tables.contains("f32: 1 right, 0 wrong, 1 in all."), "{text}\n{tables}");
    let (right, text) = checked(&["--only", "speed", "--resume", "--quick"]);
    assert!(right && text.contains("speed:s.w4  ok") && text.contains("0 not run"), "{text}");
    // Without the architecture it fits; no size is small enough for nothing at all.
    let most = std::fs::metadata(&file).expect("a file").len() - 1;
    let (packed, text) = pack(&["--mib", &format!("{}", most as f64 / f64::from(1 << 20))]);
    assert!(packed && text.contains("left out, for want of room: architectures-f32.tar.xz"), "{text}");
    let (packed, text) = pack(&["--mib", "0.01"]);
    assert!(!packed && text.contains("more than the 0 that may travel") && !file.exists(), "{text}");
}

/// The constants of the cost model come back from speeds that it made; and the script's model is
/// the compiler's.
#[test]
fn constants_are_recovered() {
    let Some(python) = numpy() else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    // Descriptions only: no code is needed.
    let backend = GpuBackend::new(Llvm::Absent, None);
    let (written, text) = run(script(&python, "shapes.py", dir.path(), &[]));
    assert!(written, "{text}");
    let mut kernels = lower::read(&dir.path().join("kernels.lir")).unwrap_or_else(|e| panic!("{e}"));
    kernels.extend(kernels_of("llama3", "w4g32", KvDType::F16, &backend));
    // Output tiles in parts.
    let mut parts = product("w4g128", "bf16", (4096, 4096), (64, 128));
    parts.name = "parts".into();
    let Body::Matmul(body) = &mut parts.body else { unreachable!() };
    body.k_parts = 4;
    kernels.push(parts);
    write(&kernels, dir.path(), &backend);
    let (right, text) = run(script(&python, "fit_test.py", dir.path(), &[]));
    assert!(right, "{text}");
}

fn product(format: &str, elem: &str, (n, k): (usize, usize), (tile_m, tile_n): (usize, usize)) -> Kernel {
    let text = format!(
        "kernel @k rows T {{\n  param %x: rows {elem}[T, {k}]\n  param %w: matrix {format}.frag[{n}, {k}]\n  \
         param %y: rows bf16[T, {n}]\n  matmul x=%x tile_m={tile_m} {{\n    \
         segment n={n} tile_n={tile_n} weights(%w): %y[0..] = acc0\n  }}\n}}\n"
    );
    llmcc_ir::text::parse_kernel(&text).unwrap_or_else(|e| panic!("{e:?}"))
}

fn wishing(wish: &str) -> TargetSpec {
    let wish = llmcc_cli::args::parse_wish(wish).unwrap_or_else(|e| panic!("{e}"));
    lower::with_wish(target::find("sm90").expect("a target"), wish)
}

/// A schedule has the properties that are wished for; text that is no wish is refused.
#[test]
fn schedules_may_be_given() {
    let kernel = product("w4g128", "bf16", (4096, 4096), (8, 16));
    let of = |wish: &str| schedule::matmul(&kernel, &wishing(wish));
    let facts = |s: schedule::MatmulSchedule| (s.resident, s.warps, s.phases[0].stages, s.input);
    assert_eq!(of("resident=1,warps=16,stages=3,input=whole").map(facts), Some((1, 16, 3, Input::Whole)));
    assert_eq!(of("resident=4,warps=4,stages=2,input=global").map(facts), Some((4, 4, 2, Input::Global)));
    assert_eq!(of("resident=3,stages=7").map(|s| (s.resident, s.phases[0].stages)), Some((3, 7)));
    for cut in ["yes", "no"] {
        let found = of(&format!("resident=2,warps=8,cut={cut}")).expect("a schedule");
        assert_eq!(found.phases[0].cut, cut == "yes");
    }
    for bad in ["warps", "warps=0", "warps=17", "input=tiles", "cut=maybe", "rows=8"] {
        assert!(llmcc_cli::args::parse_wish(bad).is_err(), "{bad}");
    }
}

/// A schedule for which there is no room is never replaced by another, and the message names one
/// that fits.
#[test]
fn schedules_that_do_not_fit_are_refused() {
    let large = product("bf16", "bf16", (14336, 4096), (256, 128));
    let few = product("w4g128", "bf16", (4096, 14336), (8, 16));
    for (kernel, wish, fits) in [
        (&large, "resident=1,stages=5", "possible are resident=1,warps=8 with stages=2 to 4"),
        (&large, "resident=2", "possible are resident=1,warps=8 with stages=2 to 4"),
        (&large, "warps=4", "resident=1,warps=8"),
        (&large, "input=whole", "resident=1,warps=8"),
        (&few, "resident=2,warps=16,stages=16", "resident=1,warps=16,input=global with stages=2 to 16"),
        // Eight rows of 14336 halves are more than there is.
        (&few, "input=whole,stages=4", "input=global with stages="),
    ] {
        assert!(schedule::matmul(kernel, &wishing(wish)).is_none(), "{wish}");
        let said = lower::unfit(kernel, &wishing(wish)).unwrap_or_default();
        assert!(said.contains(fits), "{wish}: {said}");
    }
    assert_eq!(lower::unfit(&large, &wishing("resident=1,stages=4")), None);
    assert_eq!(lower::unfit(&large, target::find("sm90").expect("a target")), None);
}

/// Files that are too large to travel are refused.
#[test]
fn sizes_are_bounded() {
    let Some(python) = numpy() else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    std::fs::write(dir.path().join("large"), vec![0; 1 << 20]).expect("written");
    let (right, text) = run(script(&python, "prepare.py", dir.path(), &["--check"]));
    assert!(right && text.contains("1.0 MB, with the repository"), "{text}");
    let (right, text) = run(script(&python, "prepare.py", dir.path(), &["--check", "--most", "1048577"]));
    assert!(!right && text.contains("may travel"), "{text}");
    // Nor is a folder emptied that this script has not made.
    let (right, text) = run(script(&python, "prepare.py", dir.path(), &[]));
    assert!(!right && text.contains("has other things in it") && dir.path().join("large").exists(), "{text}");
}
