//! Help of every command fits a terminal of 80 columns, and lists say the same as documents.

use crate::common::Folder;
use serde_json::Value;

const COMMANDS: [&str; 25] = [
    "compile", "run", "chat", "pull", "serve", "route", "tokenize", "inspect", "bench", "eval", "targets", "models",
    "health", "check", "opt", "lower", "verify", "tap", "diff", "frontier", "sign", "simulate", "explain", "bisect",
    "help",
];

#[test]
fn help_fits_eighty_columns() {
    let f = Folder::new();
    let wide: [(&str, &std::ffi::OsStr); 1] = [("COLUMNS", "200".as_ref())];
    let all = f.says(&[], &["--help"]);
    for command in COMMANDS {
        assert!(all.lines().any(|l| l.trim_start().starts_with(&format!("{command} "))), "{command}: {all}");
        for environment in [&[][..], &wide] {
            for how in [&[command, "--help"][..], &[command, "-h"]] {
                let how = if command == "help" { &how[1..] } else { how };
                let help = f.says(environment, how);
                let wide = help.lines().find(|l| l.chars().count() > 80);
                assert!(wide.is_none() && help.lines().count() > 5, "{how:?}: {wide:?}");
                assert!(help.lines().all(|l| !l.ends_with('-')), "a broken word: {help}");
            }
        }
    }
    let ppl = f.says(&[], &["eval", "ppl", "--help"]);
    assert!(ppl.lines().all(|l| l.chars().count() <= 80), "{ppl}");
}

#[test]
fn lists_are_documents_too() {
    let f = Folder::new();
    for (command, list, name) in [("targets", "targets", "name"), ("models", "models", "model_type")] {
        let document: Value = serde_json::from_str(&f.says(&[], &[command, "--json"])).expect("JSON");
        let entries = document[list].as_array().expect("a list");
        let text = f.says(&[], &[command]);
        assert!(entries.len() > 5, "{document}");
        for entry in entries {
            let name = entry[name].as_str().expect("a name");
            assert!(text.lines().any(|l| l.split_whitespace().next() == Some(name)), "{name}: {text}");
        }
    }
    let native: Value = serde_json::from_str(&f.says(&[], &["targets", "--json"])).expect("JSON");
    let natives = native["targets"].as_array().expect("a list").iter().filter(|t| t["native"] == true).count();
    assert_eq!(natives, 1, "{native}");
}
