//! `llmcc models`

use crate::args::ModelsArgs;
use crate::report::count;
use crate::{Error, advice, json};
use llmcc_frontends::arch::{ARCHS, Arch, by_model_type, reference};
use llmcc_frontends::checkpoint::gguf;
use serde_json::{Value, json};
use std::fmt::Write;

/// Lists the architectures: `model_type` and class in config.json, names in GGUF files, and the
/// references they were checked against.
///
/// # Errors
/// Output closed; a filter that nothing passes.
pub fn run(args: &ModelsArgs) -> Result<(), Error> {
    if args.markdown {
        return super::print(&markdown());
    }
    let filter = args.filter.as_deref().unwrap_or_default();
    let found = found(filter);
    if found.is_empty() {
        let names = ARCHS.iter().flat_map(|a| [a.model_type, a.class]);
        let meant = advice::nearest(filter, names).map_or(String::new(), |n| format!(": did you mean `{n}`?"));
        return Err(Error::Failed(format!(
            "no architecture has `{filter}` in its name{meant}; `llmcc models` lists all of them"
        )));
    }
    if args.json {
        let models: Vec<Value> = found.iter().map(|a| document(a)).collect();
        return json::print(&json!({ "models": models }));
    }
    super::print(&table(&found))
}

/// The table of `docs/models.md`.
pub fn markdown() -> String {
    let mut out: String =
        "| `model_type` | class | in GGUF | checked against | by `tests/goldens` |\n|---|---|---|---|---|\n".into();
    for a in ARCHS {
        let names = |of: &mut dyn Iterator<Item = &str>| of.map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
        let (files, fixtures) = (names(&mut in_gguf(a)), names(&mut a.goldens.iter().copied()));
        out += &format!("| `{}` | {} | {files} | {} | {fixtures} |\n", a.model_type, a.class, reference(a));
    }
    out
}

/// How the classes of models end that write text.
const WRITE: [&str; 5] = ["ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel", "Decoder"];

/// Names of an architecture in GGUF files. Where two architectures have one `model_type`, files have the first.
fn in_gguf(a: &Arch) -> impl Iterator<Item = &'static str> {
    let first = by_model_type(a.model_type).is_some_and(|first| first.class == a.class);
    gguf::architectures(a.model_type).filter(move |_| first)
}

/// The same in one text.
fn files(a: &Arch) -> String {
    in_gguf(a).collect::<Vec<_>>().join(", ")
}

/// Whether the models of an architecture write text.
fn writes(a: &Arch) -> bool {
    WRITE.iter().any(|end| a.class.ends_with(end))
}

fn document(a: &Arch) -> Value {
    json!({
        "model_type": a.model_type, "class": a.class, "gguf": in_gguf(a).collect::<Vec<_>>(),
        "checked_against": reference(a), "writes_text": writes(a),
    })
}

/// The architectures with `filter` in a name, by their types.
fn found(filter: &str) -> Vec<&'static Arch> {
    let filter = filter.to_lowercase();
    let named = |a: &Arch| [a.model_type, a.class, &files(a)].iter().any(|n| n.to_lowercase().contains(&filter));
    let mut found: Vec<&Arch> = ARCHS.iter().copied().filter(|a| named(a)).collect();
    found.sort_by_key(|a| a.model_type);
    found
}

/// Architectures, those that write text apart from the others.
fn table(found: &[&Arch]) -> String {
    let width =
        |of: &dyn Fn(&Arch) -> usize, title: &str| found.iter().map(|a| of(a)).max().unwrap_or(0).max(title.len());
    let (kinds, classes) = (width(&|a| a.model_type.len(), "MODEL_TYPE"), width(&|a| a.class.len(), "CLASS"));
    let against = width(&|a| reference(a).len(), "CHECKED AGAINST");
    let (text, rows): (Vec<&Arch>, Vec<&Arch>) = found.iter().copied().partition(|a| writes(a));
    let mut out = String::new();
    for (title, group) in
        [("that write text (of most also embeddings, with --embed)", text), ("that embed or score texts", rows)]
    {
        if group.is_empty() {
            continue;
        }
        let _ = writeln!(out, "{} {title}\n", count(group.len(), "architecture"));
        let _ = writeln!(
            out,
            "  {:<kinds$}  {:<classes$}  {:<against$}  IN GGUF",
            "MODEL_TYPE", "CLASS", "CHECKED AGAINST"
        );
        for a in group {
            let _ = writeln!(
                out,
                "  {:<kinds$}  {:<classes$}  {:<against$}  {}",
                a.model_type,
                a.class,
                reference(a),
                files(a)
            );
        }
        out.push('\n');
    }
    out + "Another one is a file and a line: docs/adding-architecture.md\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_is_listed_with_its_checks() {
        let text = table(&found(""));
        for a in ARCHS {
            let has = |line: &str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.first() == Some(&a.model_type) && words.get(1) == Some(&a.class) && line.contains(reference(a))
            };
            assert_eq!(text.lines().filter(|line| has(line)).count(), 1, "{}\n{text}", a.model_type);
        }
        // Columns begin at the same place in all lines.
        let places = |name: &str| text.lines().filter_map(|l| l.find(name)).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(places(&format!("  {}", llmcc_frontends::arch::REFERENCE)).len(), 1, "{text}");
    }

    #[test]
    fn a_filter_looks_at_all_names() {
        let lines = |filter: &str| table(&found(filter)).lines().filter(|l| l.starts_with("  ")).count() - 1;
        assert!(lines("qwen3") > 3 && lines("QWEN3") == lines("qwen3") && lines("") > lines("qwen"));
        let bert = table(&found("bert"));
        assert!(bert.contains("that embed or score") && !bert.contains("LlamaForCausalLM"));
        assert!(found("no such thing").is_empty());
    }
}
