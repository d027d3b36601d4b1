//! `llmcc explain`: a page that needs nothing else.

use crate::common::{Folder, WITH_TOKENIZER};
use std::fs;

#[test]
fn a_page_has_the_figures_of_the_manifest() {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &["--error-budget", "0.05", "--no-golden"]);
    f.says(&[], &["explain", "m.so", "--html", "page.html"]);
    let page = fs::read_to_string(f.at("page.html")).expect("a page");
    assert_eq!(f.says(&[], &["explain", "m.so", "--html", "-"]), page);
    let manifest = f.manifest("m.so");
    for outside in ["http:", "https:", "src=", "href=", "<script", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    for tag in ["table", "svg", "details", "ul", "div", "tr", "td", "p"] {
        let opened = page.matches(&format!("<{tag} ")).count() + page.matches(&format!("<{tag}>")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    // A point for each rounded matrix, and rows for each decision and kernel.
    let tensors = manifest["weights"]["tensors"].as_array().expect("a list");
    let rounded = tensors.iter().filter(|t| t["relative_rms_error"].as_f64().is_some_and(|e| e > 0.0)).count();
    let errors = page.split("aria-label=\"Rounding errors by layer\"").nth(1).and_then(|s| s.split("</svg>").next());
    assert_eq!(errors.expect("a chart").matches("<circle").count(), rounded);
    assert!(rounded > 0 && !page.contains("NaN") && !page.contains("inf"), "{page}");
    for decision in manifest["certificate"]["budget"]["stored"].as_array().expect("a list") {
        let what = decision["what"].as_str().expect("a name");
        assert!(page.contains(&format!("<td>{what}</td>")), "{what}");
    }
    for lossy in manifest["certificate"]["lossy"].as_array().expect("a list") {
        let first = lossy.as_str().expect("text").split(['<', '&', '\'', '"', '/']).next().expect("text");
        assert!(page.contains(first), "{lossy}");
    }
    let root = f.root_of("m.so");
    assert!(page.contains(&root) && page.contains("Roofline of"), "{page}");
    let done = f.llmcc(&["explain", "page.html", "--html", "x.html"]);
    assert!(!done.status.success() && !f.at("x.html").exists());
}
