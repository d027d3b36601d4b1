//! Cases of policies for caches, with golden values by NumPy (`tests/goldens/policies.py`).

use crate::golden;
use llmcc_frontends::Checkpoint;
use llmcc_passes::module::policy::{self, Given};
use std::path::Path;

/// Policies for the fixture `llama`, each with the name of its golden logits: one of each kind first. Files that they
/// name are written to `folder`.
///
/// # Panics
/// When that cannot be written.
pub fn policies(folder: &Path) -> Vec<(String, &'static str)> {
    let of_heads = |name: &str, numbers: &str, rest: &str| {
        let mask = folder.join(name);
        std::fs::write(&mask, numbers).expect("a file");
        format!("heads:mask={},share=0.5,{rest}", mask.display())
    };
    vec![
        ("sinks:first=3,window=9".into(), "sinks.3.9"),
        (of_heads("mixed", "0.9\t0.2\n0.1\t0.7\n", "first=3,window=9"), "heads"),
        ("shared:pairs=1:0".into(), "shared"),
        ("sinks:first=20,window=5".into(), "sinks.20.5"),
        ("sinks:first=1,window=1".into(), "sinks.1.1"),
        ("sinks:first=3,window=9,layers=1".into(), "sinks.3.9.layers.1"),
        (of_heads("whole", "0.9 0.8\n0.1 -1e9\n", "first=2,window=6"), "heads.0"),
    ]
}

/// Policies by which a cache chooses tokens, as [`policies`].
pub const SCORED: &[(&str, &str)] = &[
    ("h2o:budget=10,recent=4", "h2o"),
    ("h2o:budget=7,recent=1,layers=1", "h2o.layers.1"),
    ("tova:budget=8", "tova"),
    ("scissorhands:budget=12,recent=3,drop=4,window=3", "scissorhands"),
    ("caote:budget=9,recent=2", "caote"),
    ("gkv:budget=12,drop=5,window=3,decay=0.8", "gkv"),
    ("lazy:budget=13,window=4,threshold=0.1", "lazy"),
    ("quest:budget=32", "quest"),
];

/// A policy of an option.
///
/// # Panics
/// When it cannot be read.
pub fn given(text: &str) -> Given {
    policy::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The largest difference of logits from the golden ones of this name.
///
/// # Panics
/// When there are none, or they are fewer or more.
pub fn error(name: &str, logits: &[f32]) -> f64 {
    let file = Checkpoint::open(&golden("llama").join("policies.safetensors")).expect("goldens");
    difference(logits, &file.tensor(name).expect(name).to_f32())
}

/// The largest difference.
///
/// # Panics
/// When one has more numbers.
pub fn difference(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max)
}
