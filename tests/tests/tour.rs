//! `docs/tour.md` shows the compiler's output: every listing there, made again.
//!
//! A listing follows a comment that names its source: `<!-- TARGET STAGE "TEXT" N -->`, the `N`
//! lines of that stage from the first that contains `TEXT`. `LLMCC_WRITE_TOUR=1` writes them.

use llmcc_cli::args::Stage;
use llmcc_cli::backends::{Backends, HAS_LLVM};
use llmcc_cli::cmd::compile::emit;
use llmcc_cli::session::{self, Lowered};
use llmcc_ir::quant::Format;
use llmcc_tests::{golden, options, root};
use std::collections::BTreeMap;

/// A listing of the page.
struct Listing<'a> {
    target: &'a str,
    stage: &'a str,
    from: &'a str,
    lines: usize,
}

fn listing(comment: &str) -> Option<Listing<'_>> {
    let (head, rest) = comment.strip_prefix("<!-- ")?.strip_suffix(" -->")?.split_once(" \"")?;
    let (from, lines) = rest.rsplit_once("\" ")?;
    let (target, stage) = head.split_once(' ')?;
    Some(Listing { target, stage, from, lines: lines.parse().ok()? })
}

impl Listing<'_> {
    /// The compiler's output there.
    fn text(&self, model: &Lowered) -> String {
        let whole = match self.stage {
            "graph" => emit(Stage::Graph, model),
            "egraph" => emit(Stage::Egraph, model),
            "kernels" => emit(Stage::Kernels, model),
            "plan" => emit(Stage::Plan, model),
            "clif" | "mlir" => self.of_kernels(model, |o| o.intermediate()),
            "asm" | "ptx" => self.of_kernels(model, |o| o.listing()),
            other => panic!("no stage {other}"),
        };
        let lines: Vec<&str> = whole.lines().skip_while(|l| !l.contains(self.from)).take(self.lines).collect();
        assert_eq!(lines.len(), self.lines, "{} for {}: from {:?}", self.stage, self.target, self.from);
        lines.iter().map(|l| format!("{}\n", l.trim_end())).collect()
    }

    fn of_kernels(&self, model: &Lowered, text: impl Fn(&llmcc_codegen::Object) -> &str) -> String {
        let v = model.preferred();
        v.compiled.plan.kernels.iter().zip(&v.objects).map(|(k, o)| format!("{}\n{}\n", k.name, text(o))).collect()
    }
}

/// The model compiled by the page's command.
fn lowered(target: &str) -> Lowered {
    let mut o = options(&golden("mistral"));
    o.targets = vec![session::find_target(target).unwrap_or_else(|e| panic!("{e}"))];
    o.weights = Format::parse("w4g32");
    // As by default.
    (o.act, o.kv) = (None, None);
    o.explain.egraph = true;
    session::lower(&o, &Backends::ptx()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn the_tour_shows_what_the_compiler_prints() {
    let path = root().join("docs/tour.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let mut models: BTreeMap<&str, Lowered> = BTreeMap::new();
    let (mut made, mut lines, mut count) = (String::new(), page.lines(), 0);
    while let Some(line) = lines.next() {
        made += &format!("{line}\n");
        let Some(listing) = listing(line) else { continue };
        let fence = lines.next().unwrap_or_default();
        assert!(fence.starts_with("```"), "{line}: no listing follows");
        let shown: String = lines.by_ref().take_while(|l| *l != "```").map(|l| format!("{l}\n")).collect();
        let text = match listing.target.starts_with("sm") && !HAS_LLVM {
            true => shown,
            false => listing.text(models.entry(listing.target).or_insert_with(|| lowered(listing.target))),
        };
        made += &format!("{fence}\n{text}```\n");
        count += 1;
    }
    assert!(count >= 8, "{count} listings");
    if std::env::var_os("LLMCC_WRITE_TOUR").is_some() {
        std::fs::write(&path, &made).expect("the page is written");
        return;
    }
    let differs = page.lines().zip(made.lines()).find(|(a, b)| a != b);
    assert!(page == made, "docs/tour.md is not what the compiler prints (LLMCC_WRITE_TOUR=1 writes it): {differs:?}");
}
