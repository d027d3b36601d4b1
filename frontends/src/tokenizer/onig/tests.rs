use super::{translate, translated};
use serde_json::{Value, json};
use tokenizers::utils::SysRegex;

/// Made by tests/goldens/tokenizer_patterns.py with the wheel of `tokenizers`, which has Oniguruma.
const GOLDENS: &str = include_str!("../../../../tests/goldens/tokenizer_patterns.json");

/// Lengths of pieces in characters, of those that match below zero.
fn cut(regex: &SysRegex, text: &str) -> Vec<i64> {
    let length = |from: usize, to: usize| text[from..to].chars().count() as i64;
    let (mut cuts, mut at) = (vec![], 0);
    for (from, to) in regex.find_iter(text) {
        cuts.extend([length(at, from), -length(from, to)]);
        at = to;
    }
    cuts.push(length(at, text.len()));
    cuts.retain(|n| *n != 0);
    cuts
}

#[test]
fn expressions_cut_as_oniguruma_does() {
    let goldens: Value = serde_json::from_str(GOLDENS).unwrap();
    let texts: Vec<&str> = goldens["texts"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    let (mut compared, mut untranslated) = (0, 0);
    for golden in goldens["patterns"].as_array().unwrap() {
        let (pattern, cuts) = (golden[0].as_str().unwrap(), golden[1].as_array());
        let usable = translated(pattern).ok().and_then(|new| Some((SysRegex::new(&new).ok()?, new)));
        // An expression that Oniguruma refuses has no meaning to compare.
        let Some(cuts) = cuts else { continue };
        let Some((regex, new)) = usable else {
            untranslated += 1;
            continue;
        };
        for (text, wanted) in texts.iter().zip(cuts) {
            let wanted: Vec<i64> = serde_json::from_value(wanted.clone()).unwrap();
            assert_eq!(cut(&regex, text), wanted, "{pattern:?} as {new:?} on {text:?}");
            compared += 1;
        }
    }
    assert!(compared > 1500 && untranslated < 12, "{compared} compared, {untranslated} without translation");
}

/// Released models' expressions stay as they are written.
#[test]
fn expressions_that_mean_the_same_stay() {
    for cut in super::super::cuts::CUTS {
        for pattern in cut.patterns.iter().filter(|p| !p.contains(r"\b") && !p.contains('$') && !p.contains('(')) {
            assert!(translated(pattern).unwrap().len() <= pattern.len(), "{pattern}");
        }
    }
    for same in [
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        r"[!-/:-~\x{FF01}-\x{FF0F}]+|[一-龥]+",
        r"\p{L}++|a?+",
    ] {
        assert_eq!(translated(same).as_deref(), Ok(same));
    }
    assert_eq!(translated(r"\p{Nd}{3}+\z").as_deref(), Ok(r"(?:\p{Nd}{3})+\z"));
    assert_eq!(translated("[[:punct:]]").as_deref(), Ok(r"[\p{P}\p{S}]"));
}

#[test]
fn what_has_no_translation_is_named() {
    for (pattern, what) in [
        (r"a\K", r"\K"),
        (r"\X", r"\X"),
        ("(?~ab)", "absent"),
        (r"(?<n>a)\g<n>", r"\g"),
        ("(?(<n>)a|b)", "condition"),
        (r"\G|a", r"\G"),
        ("(?W:a)", "(?W)"),
        (r"(?i:(a)\1)", "either case"),
        ("(?i:ffi)", "ligatures"),
        ("(?:a?|b)*", "empty"),
        (r"(a|b\1)+", "itself"),
        (r"\p{In_Basic_Latin}", "In_Basic_Latin"),
        ("[a", "without an end"),
        ("(a", "without an end"),
        ("a)", "not open"),
        ("a**{", ""),
        ("*", "repeats nothing"),
        (r"(a)\2", "group 2"),
        (r"\xE9", "not a character"),
    ] {
        if what.is_empty() {
            assert!(translated(pattern).is_ok(), "{pattern}");
            continue;
        }
        let refused = translated(pattern).unwrap_err();
        assert!(refused.contains(what), "{pattern}: {refused}");
    }
    // However deep, it says no.
    assert!(translated(&"(".repeat(100_000)).is_err() && translated(&"[".repeat(100_000)).is_err());
    assert!(translated(&"a*".repeat(1000)).is_ok());
    assert!(translated(&format!("a{}", "{2}*".repeat(1000))).is_err());
}

#[test]
fn files_change_only_where_expressions_do() {
    let file = |regex: &str| {
        let split = json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
        json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split]}, "model": {}}).to_string().into_bytes()
    };
    let mut same = [b" ".to_vec(), file(r"\s+")].concat();
    let before = same.clone();
    translate(&mut same).unwrap();
    assert_eq!(same, before);
    let mut other = file("a{3}+");
    translate(&mut other).unwrap();
    assert_eq!(other, file("(?:a{3})+"));
    let refused = translate(&mut file(r"\X")).unwrap_err();
    assert!(refused.contains("pre_tokenizer.pretokenizers[0].pattern") && refused.contains(r"\\X"), "{refused}");
}
