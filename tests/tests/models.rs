//! `docs/models.md` has the table of `llmcc models --markdown`, and which kernels of each architecture
//! take a generic path; `LLMCC_WRITE_MODELS=1` writes them.

use llmcc_cli::cmd::models::markdown;
use llmcc_cli::session::{self, find_target};
use llmcc_codegen::cpu::CpuBackend;
use llmcc_frontends::arch::ARCHS;
use llmcc_tests::{golden, options, root};
use std::collections::BTreeMap;

const BEGIN: &str = "<!-- printed -->\n";
const END: &str = "<!-- end -->\n";

/// By architecture: kernels of its first fixture, and the ones that take a generic path, with the
/// reason.
fn kernels() -> String {
    let mut out = "| `model_type` | kernels | on generic paths |\n|---|---|---|\n".to_string();
    for a in ARCHS {
        let mut o = options(&golden(a.goldens[0]));
        o.targets = vec![find_target("x86-64-v4").expect("a target")];
        let lowered = session::lower(&o, &CpuBackend::default()).unwrap_or_else(|e| panic!("{}: {e}", a.model_type));
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        let objects = &lowered.versions[0].objects;
        objects.iter().filter_map(|o| o.generic).for_each(|why| *reasons.entry(why).or_default() += 1);
        let reasons: Vec<String> = reasons.iter().map(|(why, n)| format!("{n}: {why}")).collect();
        let reasons = if reasons.is_empty() { "none".to_string() } else { reasons.join("; ") };
        out += &format!("| `{}` | {} | {reasons} |\n", a.model_type, objects.len());
    }
    out
}

#[test]
fn the_page_of_models_is_what_the_compiler_prints() {
    let path = root().join("docs/models.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let mut tables = [markdown(), kernels()].into_iter();
    let mut made = String::new();
    let mut rest = page.as_str();
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (_, after) = after.split_once(END).expect("an end for each begin");
        made += &format!("{before}{BEGIN}{}{END}", tables.next().expect("two tables"));
        rest = after;
    }
    made += rest;
    assert!(tables.next().is_none(), "two tables");
    if std::env::var_os("LLMCC_WRITE_MODELS").is_some() {
        std::fs::write(&path, &made).expect("the page is written");
        return;
    }
    let differs = page.lines().zip(made.lines()).find(|(a, b)| a != b);
    assert!(
        page == made,
        "docs/models.md is not what the compiler prints (LLMCC_WRITE_MODELS=1 writes it): {differs:?}"
    );
}
