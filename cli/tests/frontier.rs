//! `llmcc frontier`: sizes and their divergences.

use crate::common::{Folder, WITH_TOKENIZER, fixture};
use serde_json::Value;
use std::fs;

#[test]
fn mixtures_keep_to_their_bytes_and_beat_uniform_formats() {
    let f = Folder::new();
    let folder = fixture(WITH_TOKENIZER).join("../../python");
    let text = fs::read_to_string(folder.join("chat.py")).expect("an example");
    let documents: Vec<String> = (0..10).map(|i| text.replace("def ", &format!("def n{i}"))).collect();
    fs::write(f.at("text"), documents.join("\n<|document|>\n")).expect("written");
    let model = fixture(WITH_TOKENIZER);
    let options = ["--text", "text", "--points", "3", "--svg", "out.svg", "--json", "--quiet"];
    let said = f.says(&[], &[&["frontier", &model.to_string_lossy()], &options[..]].concat());
    let said: Value = serde_json::from_str(&said).expect("a document");
    assert_eq!(f.names("."), ["out.svg", "text"]);
    let points = said["points"].as_array().expect("a list");
    let number = |p: &Value, name: &str| p[name].as_f64().unwrap_or_else(|| panic!("{name}: {p}"));
    let kl = |p: &Value| p["domains"][0]["kl"]["mean"].as_f64().expect("a divergence");
    assert!(points.is_sorted_by_key(|p| number(p, "bytes")), "{said}");
    let (mixtures, uniform): (Vec<_>, Vec<_>) = points.iter().partition(|p| p["uniform"].is_null());
    assert_eq!(mixtures.len(), 3);
    for p in &uniform {
        let name = p["uniform"].as_str().expect("a name");
        assert!(p["by_format"].as_object().is_some_and(|all| all.len() == 1 && all.contains_key(name)), "{p}");
    }
    let bits = |name: &str| number(uniform.iter().find(|p| p["uniform"] == name).expect("a format"), "bits");
    assert!((bits("c4") - 4.25).abs() < 1e-9 && bits("t2") > 2.0 && bits("t2") < bits("t3"), "{said}");
    for p in &mixtures {
        assert!(number(p, "bytes") <= number(p, "budget") && number(p, "predicted") > 0.0, "{p}");
        let within = uniform.iter().filter(|u| number(u, "bytes") <= number(p, "budget"));
        let best = within.map(|u| kl(u)).fold(f64::INFINITY, f64::min);
        assert!((number(p, "to_best_uniform") - kl(p) / best).abs() < 1e-12, "{p}");
    }
    // The smallest mixture has the smallest format everywhere; larger ones do less damage than any uniform format.
    assert!(mixtures[1..].iter().all(|p| number(p, "to_best_uniform") < 1.0), "{said}");
    let picture = fs::read_to_string(f.at("out.svg")).expect("a picture");
    let dots = picture.matches("<circle").count();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n") && dots == points.len(), "{picture}");
}
