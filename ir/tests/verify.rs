//! The verifier's findings on functions and kernels, beside the lines that have them: the files of
//! `lir/verify`. Their items are apart by empty lines; a comment at the end of a line has all
//! findings there, `; error[code]` or `; warning[code]`. Items without one are valid.
//! `LLMCC_WRITE_FINDINGS=1` writes the comments: read the difference.

use llmcc_ir::diag::{Diagnostic, Place, Severity};
use llmcc_ir::eval::{Batch, OperandData, eval_kernel};
use llmcc_ir::kernel::Kernel;
use llmcc_ir::text::{Item, Source, render};
use llmcc_ir::verify::{RULES, verify_func, verify_kernel};
use std::collections::BTreeSet;
use std::path::PathBuf;

fn files() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/lir/verify");
    let mut files: Vec<PathBuf> = folder.read_dir().expect("the folder").map(|f| f.expect("a file").path()).collect();
    files.sort();
    files
}

fn findings(item: &Item) -> Vec<Diagnostic> {
    match item {
        Item::Func(f) => verify_func(f),
        Item::Kernel(k) => verify_kernel(k),
        Item::Module(_) | Item::Plan(_) => panic!("too long to be read beside its findings"),
    }
}

/// The text of an item with correct comments in place of its own.
fn annotated(text: &str, codes: &mut BTreeSet<&'static str>) -> String {
    let bare: String = text.lines().map(|l| format!("{}\n", l.split(" ; ").next().unwrap_or(l))).collect();
    let source = Source::parse(&bare).unwrap_or_else(|errors| {
        panic!("{}", errors.iter().map(|e| render(e, &bare, "verify.lir")).collect::<String>())
    });
    let mut comments = vec![String::new(); bare.lines().count()];
    for item in &source.items {
        let found = findings(item);
        if let (Item::Kernel(k), true) = (item, found.iter().any(|d| d.severity == Severity::Error)) {
            the_evaluator_refuses(k);
        }
        for d in found {
            codes.insert(d.code);
            let word = if d.severity == Severity::Error { "error" } else { "warning" };
            let code = d.code;
            let Place::Text(at) = source.locate(d).place else { panic!("`{code}` is nowhere in\n{bare}") };
            comments[bare[..at.start].matches('\n').count()] += &format!(" {word}[{code}]");
        }
    }
    let line = |(l, c): (&str, &String)| if c.is_empty() { format!("{l}\n") } else { format!("{l} ;{c}\n") };
    bare.lines().zip(&comments).map(line).collect()
}

/// An error, not a panic.
fn the_evaluator_refuses(k: &Kernel) {
    let mut operands: Vec<OperandData<'_>> = k.params.iter().map(|_| OperandData::Matrix(vec![].into())).collect();
    assert!(eval_kernel(k, &Batch::single(&[0], 0), &mut operands).is_err(), "{} is evaluated", k.name);
}

#[test]
fn findings_stand_beside_their_lines() {
    let mut codes = BTreeSet::new();
    for path in files() {
        let text = std::fs::read_to_string(&path).expect("a file");
        let (title, items) = text.split_once("\n\n").expect("a title and items");
        assert!(title.starts_with("; "), "{}: begins with what it is about", path.display());
        let made: Vec<String> = items.trim_end().split("\n\n").map(|item| annotated(item, &mut codes)).collect();
        let made = format!("{title}\n\n{}", made.join("\n"));
        if std::env::var_os("LLMCC_WRITE_FINDINGS").is_some() {
            std::fs::write(&path, &made).expect("the file is written");
            continue;
        }
        let differs = text.lines().zip(made.lines()).enumerate().find(|(_, (a, b))| a != b);
        assert!(text == made, "{}: {differs:?}", path.display());
    }
    let known: BTreeSet<&str> = RULES.iter().map(|(code, _)| *code).collect();
    assert!(codes.is_subset(&known), "{codes:?}");
    assert!(codes.len() >= 40, "{} rules are shown", codes.len());
}
