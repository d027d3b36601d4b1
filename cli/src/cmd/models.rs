//! `llmcc models`

use crate::Error;
use crate::args::ModelsArgs;
use llmcc_frontends::arch::{ARCHS, reference};
use llmcc_frontends::checkpoint::gguf;
use std::fmt::Write;

/// Lists the architectures: `model_type` and class in config.json, and the fixtures that hold the
/// compiler against another implementation.
///
/// # Errors
/// Output closed.
pub fn run(args: &ModelsArgs) -> Result<(), Error> {
    super::print(&if args.markdown { markdown() } else { table() })
}

/// The table of `docs/models.md`.
pub fn markdown() -> String {
    let mut out: String =
        "| `model_type` | class | in GGUF | checked against | by `tests/goldens` |\n|---|---|---|---|---|\n".into();
    for a in ARCHS {
        let names = |of: &mut dyn Iterator<Item = &str>| of.map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
        let (files, fixtures) = (names(&mut gguf::architectures(a.model_type)), names(&mut a.goldens.iter().copied()));
        out += &format!("| `{}` | {} | {files} | {} | {fixtures} |\n", a.model_type, a.class, reference(a));
    }
    out
}

fn table() -> String {
    let mut out = String::new();
    for a in ARCHS {
        let _ =
            writeln!(out, "{:<12} {:<22} {}, in f64: {}", a.model_type, a.class, reference(a), a.goldens.join(", "));
    }
    out + "\nAnother one is a file and a line: docs/adding-architecture.md\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_is_listed_with_its_checks() {
        let text = table();
        assert_eq!(text.lines().count(), ARCHS.len() + 2, "{text}");
        let lines = text.lines().zip(ARCHS);
        lines.for_each(|(line, a)| {
            assert!(line.contains(a.class) && line.contains(reference(a)) && line.contains(a.goldens[0]), "{line}")
        });
    }
}
