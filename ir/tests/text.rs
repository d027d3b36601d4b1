//! Snapshots of printed text and of the errors of malformed text.

use llmcc_ir::diag::Diagnostic;
use llmcc_ir::text::{Source, render};

fn parse(text: &str) -> Source {
    match Source::parse(text) {
        Ok(source) => source,
        Err(errors) => panic!("{}", shown(text, &errors)),
    }
}

fn shown(text: &str, errors: &[Diagnostic]) -> String {
    errors.iter().map(|e| render(e, text, "bad.lir")).collect::<Vec<_>>().join("\n")
}

fn printed(text: &str) -> String {
    let source = parse(text);
    let printed: Vec<String> = source.items.iter().map(ToString::to_string).collect();
    let printed = printed.join("\n");
    assert_eq!(parse(&printed).items, source.items, "the printed text reads back");
    printed
}

#[test]
fn module() {
    insta::assert_snapshot!(printed(include_str!("lir/module.lir")));
}

#[test]
fn kernels() {
    insta::assert_snapshot!(printed(include_str!("lir/kernels.lir")));
}

#[test]
fn plan() {
    insta::assert_snapshot!(printed(include_str!("lir/plan.lir")));
}

/// Each text of `lir/malformed.txt`, separated by lines of `-----`, with its errors.
#[test]
fn malformed() {
    let mut all = String::new();
    for text in include_str!("lir/malformed.txt").split("-----\n") {
        let Err(errors) = Source::parse(text) else { panic!("accepted:\n{text}") };
        all.push_str(text);
        all.push('\n');
        all.push_str(&shown(text, &errors));
        all.push_str("-----\n");
    }
    insta::assert_snapshot!(all);
}
