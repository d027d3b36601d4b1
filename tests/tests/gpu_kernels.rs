//! Every kernel of a model for every GPU target, assembled by `ptxas`: registers, no spills, as
//! many blocks on a multiprocessor as its schedule counts on, tensor-core instructions where they
//! are promised, no warnings; no register of an asynchronous product written while it reads it. And
//! the instructions in the hot loops of the most important kernels.

use llmcc_cli::backends::{Backends, HAS_LLVM};
use llmcc_cli::session::{self, CompileOptions};
use llmcc_codegen::Backend;
use llmcc_gpu::assembler::{Ptxas, disassemble, wanted_resident};
use llmcc_ir::gpu::schedule;
use llmcc_ir::kernel::{Body, Kernel, RowElem};
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::Format;
use llmcc_ir::target::{Family, TARGETS, TargetSpec};
use llmcc_tests::sass::{Instruction, Listing, count, flight, listings};
use llmcc_tests::{golden, options};
use std::fmt::Write;
use std::thread;

/// `ptxas`, where this build can make PTX and it is installed; `make test` installs it and names
/// it.
fn ptxas() -> Option<Ptxas> {
    if !HAS_LLVM {
        eprintln!("skipped: built without the feature `gpu`");
        return None;
    }
    let found = Ptxas::find();
    if found.is_none() {
        eprintln!("skipped: no ptxas");
    }
    found
}

fn gpu_options(target: &'static TargetSpec, format: &str) -> CompileOptions {
    CompileOptions {
        targets: vec![target],
        weights: Some(Format::parse(format).expect("a format")),
        kv: Some(KvDType::F16),
        act: (format == "fp8").then_some(llmcc_passes::ActPolicy::Fp8),
        ..options(&golden("llama3"))
    }
}

/// Whether the kernel multiplies rows of 16 or 8 bits.
fn multiplies_halves(k: &Kernel) -> bool {
    use llmcc_ir::kernel::ParamKind;
    let half = |p: usize| {
        matches!(&k.params[p].kind, ParamKind::Rows { elem: RowElem::F16 | RowElem::Bf16 | RowElem::Fp8, .. })
    };
    match &k.body {
        Body::Matmul(m) => half(m.x) || m.prologue.is_some_and(|p| p.elem.is_half()),
        _ => false,
    }
}

/// One line per kernel: threads and registers, shared memory, blocks on a multiprocessor (and how
/// many the schedule counts on), instructions.
fn table(ptxas: &Ptxas, target: &'static TargetSpec, format: &str, wrong: &mut Vec<String>) -> String {
    let lowered = session::lower(&gpu_options(target, format), &Backends::new(None))
        .unwrap_or_else(|e| panic!("{} {format}: {e}", target.name));
    let version = lowered.preferred();
    let mut out = String::new();
    for (k, o) in version.compiled.plan.kernels.iter().zip(&version.objects) {
        let gpu = o.gpu().expect("a GPU kernel");
        let arch = target.gpu().expect("a GPU");
        let done = ptxas
            .assemble(&gpu.ptx, arch.processor)
            .unwrap_or_else(|e| panic!("{} {format} {}: {e}", target.name, k.name));
        let place = || format!("{} for {} in {format}", k.name, target.name);
        if done.spills != [0; 3] {
            wrong.push(format!("{} spills (stack, stores, loads): {:?}", place(), done.spills));
        }
        if !done.warnings.is_empty() {
            wrong.push(format!("{}: {:?}", place(), done.warnings));
        }
        let (resident, wanted) = (done.resident(arch, gpu.threads, gpu.shared), wanted_resident(&gpu.ptx));
        if resident < wanted.max(1) {
            wrong.push(format!(
                "{}: {resident} blocks fit where {wanted} should, {} registers",
                place(),
                done.registers
            ));
        }
        let sass = disassemble(&done.cubin).unwrap_or_else(|e| panic!("{e}"));
        for listing in listings(&sass).unwrap_or_else(|e| panic!("{}: {e}", place())).values() {
            let found = flight::overwritten(listing).unwrap_or_else(|e| panic!("{}: {e}", place()));
            wrong.extend(found.iter().map(|f| format!("{}: {f}", place())));
        }
        let matrix: Vec<&str> =
            ["HGMMA", "HMMA", "QGMMA", "QMMA", "IMMA"].into_iter().filter(|i| sass.contains(i)).collect();
        if multiplies_halves(k) && matrix.is_empty() {
            wrong.push(format!("{} has no tensor-core instruction", place()));
        }
        let _ = writeln!(
            out,
            "{:<28} {:>4} threads {:>4} registers {:>7} shared {:>3} blocks of {:>2}  {}",
            k.name,
            gpu.threads,
            done.registers,
            gpu.shared,
            resident,
            wanted,
            matrix.join(" ")
        );
    }
    out
}

#[test]
fn every_kernel_assembles_for_every_target() {
    let Some(ptxas) = ptxas() else { return };
    let of = |target: &'static TargetSpec| {
        let (mut all, mut wrong) = (String::new(), vec![]);
        let fp8 = target.multiplies(RowElem::Fp8);
        for format in ["w4g32", "bf16"].into_iter().chain(fp8.then_some("fp8")) {
            let _ = write!(all, "{} {format}\n{}\n", target.name, table(&ptxas, target, format, &mut wrong));
        }
        (all, wrong)
    };
    // The assembler works on one kernel at a time, so targets are taken side by side.
    let found: Vec<(String, Vec<String>)> = thread::scope(|scope| {
        let running: Vec<_> =
            TARGETS.iter().filter(|t| t.family() == Family::Nvidia).map(|target| scope.spawn(|| of(target))).collect();
        running.into_iter().map(|r| r.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    });
    let all: String = found.iter().map(|(all, _)| all.as_str()).collect();
    let wrong: Vec<&str> = found.iter().flat_map(|(_, wrong)| wrong.iter().map(String::as_str)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    insta::assert_snapshot!(all);
}

/// A product of `rows` rows of the element type with an `n × k` matrix, in the tiles that plans
/// take.
fn product(name: &str, format: &str, elem: &str, (n, k): (usize, usize), rows: usize, target: &TargetSpec) -> Kernel {
    let text = format!(
        "kernel @{name} rows T {{\n  param %x: rows {elem}[T, {k}]\n  \
         param %w: matrix {format}.frag[{n}, {k}]\n  param %y: rows bf16[T, {n}]\n  \
         matmul x=%x tile_m=8 {{\n    segment n={n} tile_n=16 weights(%w): %y[0..] = acc0\n  }}\n}}\n"
    );
    let mut kernel = llmcc_ir::text::parse_kernel(&text).unwrap_or_else(|e| panic!("{text}{e:?}"));
    let tiles = schedule::matmul_tiles(&kernel, target, rows).expect("tiles");
    let Body::Matmul(body) = &mut kernel.body else { unreachable!() };
    tiles.set(body);
    kernel
}

fn attention(name: &str, (heads, d): (usize, usize), tile_m: usize) -> Kernel {
    let (width, scale) = (heads * d, (d as f64).powf(-0.5));
    let tile = if tile_m == 1 { String::new() } else { format!(" tile_m={tile_m}") };
    let text = format!(
        "kernel @{name} rows T {{\n  param %q: rows bf16[T, {width}]\n  \
         param %kv: kv<bf16, 8x{d}>\n  param %y: rows bf16[T, {width}]\n  \
         attention q=%q kv=%kv heads={heads} scale={scale}{tile} out=%y\n}}\n"
    );
    llmcc_ir::text::parse_kernel(&text).unwrap_or_else(|e| panic!("{text}{e:?}"))
}

/// The kernels that a token and a prompt spend their time in, at the sizes of a model of 8 billion
/// parameters.
fn hot_kernels(target: &TargetSpec) -> Vec<Kernel> {
    let (down, gate) = ((4096, 14336), (14336, 4096));
    let mut all: Vec<Kernel> = ["w4g128", "w4g32", "w4ag32", "w8g128", "bf16", "fp8"]
        .map(|f| product(&format!("decode.{f}"), f, "bf16", down, 1, target))
        .into();
    all.push(product("decode.f16.w4g128", "w4g128", "f16", down, 1, target));
    all.extend([16, 32, 64].map(|rows| product(&format!("few{rows}.w4g128"), "w4g128", "bf16", gate, rows, target)));
    all.push(product("few16.bf16", "bf16", "bf16", gate, 16, target));
    if target.multiplies(RowElem::Fp8) {
        all.push(product("few16.fp8", "fp8", "fp8", gate, 1, target));
        all.push(product("many.fp8", "fp8", "fp8", gate, 512, target));
    }
    all.extend(["w4g128", "bf16"].map(|f| product(&format!("many.{f}"), f, "bf16", gate, 512, target)));
    all.push(attention("attention.decode", (32, 128), 1));
    all.push(attention("attention.prompt", (32, 128), 32));
    all
}

fn listing(ptxas: &Ptxas, kernel: &Kernel, target: &TargetSpec) -> Listing {
    let object = Backends::ptx().lower(kernel, target).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
    count::assemble(ptxas, object.listing(), target).unwrap_or_else(|e| panic!("{}: {e}", kernel.name))
}

/// A change of the instructions shows here; `cargo run --example sass-count` prints the same for
/// any kernel.
#[test]
fn what_hot_loops_issue() {
    let Some(ptxas) = ptxas() else { return };
    for name in ["sm80", "sm90"] {
        let target = llmcc_ir::target::find(name).expect("a target");
        let of = |k: &Kernel| {
            count::report(k, target, &listing(&ptxas, k, target)).unwrap_or_else(|e| panic!("{}: {e}", k.name))
        };
        insta::assert_snapshot!(format!("hot_loops_{name}"), hot_kernels(target).iter().map(of).collect::<String>());
    }
}

/// Recurrences and convolutions at the sizes of models: states stay in registers, on every target.
/// (In the snapshot: threads and registers of each.)
#[test]
fn states_stay_in_registers() {
    let Some(ptxas) = ptxas() else { return };
    // Heads, rows and columns of Qwen3-Next, Mamba-2 of 2.7B, gated linear attention and a small
    // model; groups; decays per row; the delta rule.
    let recurrences = [
        ("delta", [32, 128, 128], 16, false, true),
        ("mamba2", [80, 128, 64], 1, false, false),
        ("gla", [4, 256, 512], 4, true, false),
        ("kimi", [32, 128, 128], 32, true, true),
        ("small", [8, 64, 64], 8, false, true),
        ("odd", [6, 50, 37], 3, false, true),
        ("most", [1, 1024, 64], 1, false, true),
    ];
    let mut kernels: Vec<Kernel> = recurrences
        .map(|(name, state, groups, per_row, delta)| recurrence(name, state, groups, (per_row, delta)))
        .into();
    kernels.extend(
        [("lfm2", 2048, 3), ("conv", 8192, 4), ("odd_conv", 1001, 16)]
            .map(|(name, channels, width)| convolution(name, channels, width)),
    );
    let (mut all, mut wrong) = (String::new(), vec![]);
    for target in TARGETS.iter().filter(|t| t.family() == Family::Nvidia) {
        let arch = target.gpu().expect("a GPU");
        let _ = writeln!(all, "{}", target.name);
        for k in &kernels {
            let object = Backends::ptx().lower(k, target).unwrap_or_else(|e| panic!("{}: {e}", k.name));
            let gpu = object.gpu().expect("a GPU kernel");
            let done = ptxas.assemble(&gpu.ptx, arch.processor).unwrap_or_else(|e| panic!("{}: {e}", k.name));
            if done.spills != [0; 3] || !done.warnings.is_empty() {
                wrong.push(format!("{} {}: {:?} {:?}", target.name, k.name, done.spills, done.warnings));
            }
            let _ = writeln!(all, "{:<12} {:>4} threads {:>4} registers", k.name, gpu.threads, done.registers);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    insta::assert_snapshot!(all);
}

fn parsed(text: &str) -> Kernel {
    llmcc_ir::text::parse_kernel(text).unwrap_or_else(|e| panic!("{text}{e:?}"))
}

fn recurrence(name: &str, [heads, rows, cols]: [usize; 3], groups: usize, (per_row, delta): (bool, bool)) -> Kernel {
    let (keys, width) = (groups * rows, heads * cols);
    let (v, decays) = (2 * keys, if per_row { heads * rows } else { heads });
    let (all, update) = (v + width, if delta { "delta" } else { "plain" });
    parsed(&format!(
        "kernel @{name} rows T {{
  param %x: rows f32[T, {all}]
  param %decay: rows f32[T, {decays}]
  param %rate: rows f32[T, {heads}]
  param %s: state<f32, {heads}x{rows}x{cols}>
  param %y: rows f32[T, {width}]
  recurrence q=%x q_start=0 k=%x k_start={keys} groups={groups} v=%x v_start={v} decay=%decay update={update} with=%rate
    state=%s out=%y
}}
"
    ))
}

fn convolution(name: &str, channels: usize, width: usize) -> Kernel {
    let (taps, kept) = (channels * width, width - 1);
    parsed(&format!(
        "kernel @{name} rows T {{
  param %x: rows f32[T, {channels}]
  param %taps: vector f32[{taps}]
  param %s: state<f32, 1x{kept}x{channels}>
  param %y: rows f32[T, {channels}]
  causal_conv x=%x start=0 taps=%taps width={width} state=%s out=%y
}}
"
    ))
}

/// Asynchronous products keep their registers until they are waited for, in every kernel of the
/// sort; and a kernel with a write put in their way is found out.
#[test]
fn registers_of_products_in_flight_are_left_alone() {
    let Some(ptxas) = ptxas() else { return };
    let target = llmcc_ir::target::find("sm90").expect("a target");
    let mut products = vec![];
    for format in ["w4g128", "w4g32", "w4ag32", "w8g128", "bf16", "f16", "fp8", "fp8 rows"] {
        // Products of fp8 rows have two sets of sums, for which 256 rows leave no registers.
        for rows in [128, 256].into_iter().filter(|rows| format != "fp8 rows" || *rows == 128) {
            let elem = if format == "fp8 rows" {
                "fp8"
            } else if format == "f16" {
                "f16"
            } else {
                "bf16"
            };
            let stored = format.split(' ').next().unwrap_or(format);
            let mut kernel = product(&format!("{stored}.{elem}.{rows}"), stored, elem, (1024, 1024), rows, target);
            let Body::Matmul(body) = &mut kernel.body else { unreachable!() };
            body.tile_m = rows;
            body.segments.iter_mut().for_each(|s| s.tile_n = 128);
            products.push(kernel);
        }
    }
    products.extend([64, 128].map(|d| attention(&format!("attention{d}"), (32, d), 32)));
    for kernel in products {
        let code = listing(&ptxas, &kernel, target);
        assert!(flight::products(&code) > 0, "{} has no weights in registers", kernel.name);
        assert_eq!(flight::overwritten(&code).expect("read"), Vec::<String>::new(), "{}", kernel.name);
        // A write to one of its operands behind each product.
        let mut found = 0;
        for i in (0..code.code.len()).filter(|i| code.code[*i].class().ends_with("GMMA")) {
            let Some(register) = llmcc_tests::sass::register(&code.code[i].operands[1]) else { continue };
            let mut wrong = code.clone();
            let write = Instruction {
                name: "MOV".into(),
                guard: String::new(),
                operands: vec![format!("R{}", register + 3), "RZ".into()],
                ..code.code[i].clone()
            };
            wrong.insert_after(i, write);
            found += usize::from(flight::overwritten(&wrong).is_ok_and(|f| f.len() == 1));
        }
        assert_eq!(found, flight::products(&code), "{}", kernel.name);
    }
}
