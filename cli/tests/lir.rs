//! `llmcc check` and `llmcc opt`: `.lir` text of the three levels, rewritten, compiled, drawn.

use crate::common::{Folder, text};
use llmcc_ir::text::Source;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A folder with the examples of all levels.
fn examples() -> Folder {
    let f = Folder::new();
    for name in ["module", "kernels", "plan"] {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../ir/tests/lir/{name}.lir"));
        fs::copy(from, f.at(&format!("{name}.lir"))).expect("copied");
    }
    f
}

const NORMED: &str = "func @f(%x: f32[T, 8], %g: f32[8] weight, %w: f32[4, 8] weight) -> (f32[T, 4]) {
  %h = mul(%x, %g) : f32[T, 8]
  %y = matmul(%h, %w) : f32[T, 4]
  return %y
}
";

#[test]
fn sound_text_of_every_level_passes() {
    let f = examples();
    let said = f.says(&[], &["check", "module.lir", "kernels.lir", "plan.lir"]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((lines[0], lines[2]), ("module.lir: 1 module; no findings", "plan.lir: 1 plan; 2 warnings"));
    assert!(lines[1].starts_with("kernels.lir: ") && lines[1].ends_with("kernels; no findings"), "{said}");
    let done = f.piped(&["check", "-"], NORMED);
    assert_eq!(text(&done.stdout), "<stdin>: 1 function; no findings\n");
}

/// Faults of each level, in their lines: of the text, and of the rules.
#[test]
fn faults_are_shown_in_their_places() {
    let f = examples();
    for (file, from, to, code, place) in [
        ("module", "%h = mul(%n, %attn.norm)", "%h = mull(%n, %attn.norm)", "unknown-op", ":53:10"),
        ("module", "%q0 = matmul(%h, %wq) : f32[T, 32]", "%q0 = matmul(%h, %wk) : f32[T, 32]", "", ":54:"),
        ("kernels", "rope_table inv_freq=%inv_freq", "rope_table inv_freq=%freq", "unknown-name", ":12:23"),
        ("plan", "call 1: @layer.qkv(%x, weight 2, %q)", "call 1: @layer.qkv(%x, weight 2, %x)", "", ":"),
    ] {
        let sound = fs::read_to_string(f.at(&format!("{file}.lir"))).expect("read");
        assert!(sound.contains(from), "{file}: {from}");
        fs::write(f.at("bad.lir"), sound.replacen(from, to, 1)).expect("written");
        let done = f.llmcc(&["check", "bad.lir"]);
        let shown = text(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{shown}");
        assert!(shown.contains(&format!("error[{code}")) && shown.contains(&format!("--> bad.lir{place}")), "{shown}");
        assert!(shown.contains('^') && !shown.contains("internal error"), "{shown}");
        // The line that was changed.
        let line = sound.lines().position(|l| l.contains(from)).expect("there") + 1;
        let json: Value = serde_json::from_str(&text(&f.llmcc(&["check", "bad.lir", "--json"]).stdout)).expect("JSON");
        let found = json["files"][0]["findings"].as_array().expect("a list");
        assert!(found.iter().any(|d| d["line"] == line), "{file}: line {line}: {json}");
        assert_eq!(json["errors"].as_u64(), Some(found.iter().filter(|d| d["severity"] == "error").count() as u64));
        // Nothing is made of it.
        let done = f.llmcc(&["opt", "bad.lir"]);
        assert!(done.status.code() == Some(1) && done.stdout.is_empty(), "{}", text(&done.stdout));
    }
}

#[test]
fn text_comes_back_as_it_was_read() {
    let f = examples();
    for name in ["module.lir", "kernels.lir", "plan.lir"] {
        let printed = f.says(&[], &["opt", name]);
        let original = fs::read_to_string(f.at(name)).expect("read");
        let (a, b) = (Source::parse(&original).expect("read"), Source::parse(&printed).expect("reads back"));
        assert_eq!(a.items, b.items, "{name}");
        fs::write(f.at("again.lir"), &printed).expect("written");
        assert_eq!(f.says(&[], &["opt", "again.lir"]), printed, "{name}");
    }
}

#[test]
fn rewrites_run_one_by_one_or_together() {
    let f = examples();
    let done = f.piped(&["opt", "-", "--pass", "gain-into-matrix"], NORMED);
    let (printed, said) = (text(&done.stdout), text(&done.stderr));
    assert!(printed.contains("scale_cols(%w, %g)") && !printed.contains(" mul("), "{printed}");
    assert_eq!(said, "gain-into-matrix: func @f: gain-into-matrix 1; 2 operations, now 2\n");
    assert!(f.piped(&["check", "-"], &printed).status.success(), "{printed}");
    assert_eq!(text(&f.piped(&["opt", "-", "--pass", "dedup,scale"], NORMED).stdout), printed);
    let whole = f.says(&[], &["opt", "module.lir", "--pass", "rewrite", "-o", "out.lir"]);
    assert!(whole.is_empty(), "{whole}");
    let out = fs::read_to_string(f.at("out.lir")).expect("written");
    assert!(out.starts_with("module \"tiny\"") && f.llmcc(&["check", "out.lir"]).status.success(), "{out}");
    let list = f.says(&[], &["opt", "--list-passes"]);
    for name in ["dedup ", "rewrite ", "scale ", "gain-into-matrix "] {
        assert!(list.lines().any(|l| l.starts_with(name)), "{name}: {list}");
    }
}

/// Each pass of the list keeps a module valid.
#[test]
fn every_pass_leaves_a_sound_module() {
    let f = examples();
    for line in f.says(&[], &["opt", "--list-passes"]).lines() {
        let name = line.split_whitespace().next().expect("a name");
        f.says(&[], &["opt", "module.lir", "--pass", name, "-o", "out.lir"]);
        assert!(f.llmcc(&["check", "out.lir"]).status.success(), "{name}");
    }
}

#[test]
fn modules_are_compiled_without_a_checkpoint() {
    let f = examples();
    let emit = |stage: &str, more: &[&str]| f.says(&[], &[&["opt", "module.lir", "--emit", stage], more].concat());
    let plan = emit("plan", &["--target", "x86-64", "--format", "w4g32"]);
    assert!(plan.starts_with("plan \"tiny\"") && plan.contains("w4g32["), "{plan}");
    let kernels = emit("kernels", &["--target", "sm90"]);
    assert!(kernels.starts_with("kernel @") && kernels.contains(".frag"), "{kernels}");
    for (name, content) in [("p.lir", &plan), ("k.lir", &kernels)] {
        fs::write(f.at(name), content).expect("written");
        assert!(f.llmcc(&["check", name]).status.success(), "{name}");
    }
    // After a rewrite the kernels have less to do.
    fs::write(f.at("once.lir"), f.says(&[], &["opt", "module.lir", "--pass", "rewrite"])).expect("written");
    let rewritten = f.says(&[], &["opt", "once.lir", "--emit", "plan", "--target", "x86-64", "--format", "w4g32"]);
    assert!(rewritten.starts_with("plan \"tiny\""), "{rewritten}");
    let egraph = emit("egraph", &["--target", "x86-64-v3"]);
    for part in ["func layer (", "; model", "; gain-into-matrix", "; epilogue: ", "*"] {
        assert!(egraph.contains(part), "{part}: {egraph}");
    }
}

/// Every launch of each regime that the plan has is marked once as the choice in the e-graph.
#[test]
fn e_graphs_mark_the_kernels_of_the_plan() {
    let f = examples();
    let opt = |stage: &str| f.says(&[], &["opt", "module.lir", "--emit", stage, "--target", "x86-64-v3"]);
    let (egraph, plan) = (opt("egraph"), opt("plan"));
    let Ok(source) = Source::parse(&plan) else { panic!("{plan}") };
    let [llmcc_ir::text::Item::Plan(plan)] = &source.items[..] else { panic!("one plan") };
    for (i, regime) in plan.regimes.iter().enumerate() {
        let launched = regime.launches.iter().filter(|l| l.call <= 1).count();
        let of = |func: &str| {
            let from = egraph.find(&format!("func {func} (")).expect("there");
            let rest = &egraph[from + 5..];
            rest[..rest.find("func ").unwrap_or(rest.len())].to_owned()
        };
        let chosen = |text: &str| {
            let costs = text
                .lines()
                .filter(|l| !l.contains("proj"))
                .filter_map(|l| Some(l.split_once("  ; ")?.1.split_once(": ")?.1));
            costs.filter(|c| c.split(' ').nth(i).is_some_and(|c| c.ends_with('*'))).count()
        };
        assert_eq!(chosen(&of("embed")) + chosen(&of("layer")), launched, "regime {i}: {egraph}");
    }
}

#[test]
fn graphs_are_drawn() {
    let f = examples();
    for (args, parts) in [
        (&["opt", "module.lir", "--dot"][..], &["digraph", "func @layer", "@head"][..]),
        (&["opt", "plan.lir", "--dot"], &["digraph", "@layer.qkv", "at most 1 tokens"]),
        (&["opt", "kernels.lir", "--dot"], &["kernel @embed.rope"]),
        (&["opt", "module.lir", "--emit", "plan", "--dot"], &["tiny, any number of tokens"]),
        (&["opt", "module.lir", "--emit", "kernels", "--dot"], &["kernel @layer."]),
        (&["opt", "module.lir", "--emit", "egraph", "--dot"], &["gain-into-matrix", "cluster_layer."]),
    ] {
        let graph = f.says(&[], args);
        assert!(graph.starts_with("digraph \"") && graph.ends_with("}\n"), "{args:?}: {graph}");
        assert_eq!(graph.matches('{').count(), graph.matches('}').count(), "{args:?}");
        parts.iter().for_each(|part| assert!(graph.contains(part), "{args:?}: {part}: {graph}"));
        let nodes: Vec<&str> =
            graph.lines().filter(|l| !l.contains(" -> ")).filter_map(|l| l.trim().split('"').nth(1)).collect();
        for edge in graph.lines().filter(|l| l.contains("\" -> \"")) {
            let ends: Vec<&str> = edge.trim().split('"').collect();
            assert!(nodes.contains(&ends[1]) && nodes.contains(&ends[3]), "{args:?}: {edge}");
        }
    }
}

#[test]
fn bad_requests_are_refused() {
    let f = examples();
    for (args, says) in [
        (&["opt", "module.lir", "--pass", "gain-in-matrix"][..], "did you mean `gain-into-matrix`?"),
        (&["opt", "plan.lir", "--pass", "dedup"], "plan `tiny` is below the graph level"),
        (&["opt", "kernels.lir", "--pass", "dedup"], "is below the graph level"),
        (&["opt", "kernels.lir", "--emit", "plan"], "--emit compiles modules"),
        (&["opt", "module.lir", "--emit", "plan", "--target", "z80"], "unknown target `z80`"),
        (&["opt", "module.lir", "--emit", "plan", "--format", "w3"], "--format"),
        (&["opt", "module.lir", "--target", "x86-64"], "--emit"),
        (&["opt", "nowhere.lir"], "nowhere.lir: cannot open"),
        (&["opt"], "<FILE>"),
        (&["check"], "<FILES>"),
        (&["check", "module.lir", "nowhere.lir"], "nowhere.lir: cannot open"),
    ] {
        let done = f.llmcc(args);
        let message = text(&done.stderr);
        assert!(!done.status.success() && done.stdout.is_empty(), "{args:?}: {message}");
        assert!(message.contains(says) && message.matches("error:").count() == 1, "{args:?}: {message}");
    }
}
