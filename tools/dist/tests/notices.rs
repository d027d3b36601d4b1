//! The committed notices match Cargo.lock, and no licence obliges whoever links an artifact.

use llmcc_dist::closure::{self, Package};
use llmcc_dist::licence::{self, ALLOWED};
use llmcc_dist::{notices, sbom};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_notices_are_those_of_the_lock_file() {
    for notices in notices::ALL.iter().filter(|n| n.known()) {
        let committed = fs::read_to_string(workspace().join(notices.path)).expect("committed");
        let now = notices.text(&workspace()).expect("allowed licences");
        let differs = committed.lines().zip(now.lines()).find(|(a, b)| a != b);
        assert!(committed == now, "{} is not of this Cargo.lock: run `make notices`; {differs:?}", notices.path);
    }
}

/// The text that artifacts carry names each crate of the runtime, and the whole text of its licence.
#[test]
fn the_runtime_is_noticed_crate_by_crate() {
    let text = fs::read_to_string(workspace().join(notices::ALL[0].path)).expect("committed");
    let packages = closure::packages(&workspace(), closure::RUNTIME).expect("a graph");
    assert!(packages.iter().any(|p| p.name == "tokenizers") && packages.iter().all(|p| p.name != "cranelift-codegen"));
    for p in packages.iter().filter(|p| !p.ours) {
        assert!(text.contains(&format!("{} {}", p.name, p.version)), "{} {}", p.name, p.version);
        for taken in licence::taken(p).expect("allowed") {
            assert!(ALLOWED.iter().any(|(id, _)| *id == taken.id), "{}: {}", p.name, taken.id);
            assert!(text.contains(licence::standard(&taken.id).trim()), "{}: {}", p.name, taken.id);
        }
    }
    // All of the text, in artifacts that may be small.
    assert!(text.len() < 40 << 10, "{} bytes", text.len());
    assert!(text.contains("(c) You must retain, in the Source form"), "a clause is taken for a copyright");
}

#[test]
fn licences_that_oblige_others_are_refused() {
    for (id, _) in ALLOWED {
        let id = id.split(' ').next().and_then(spdx::license_id).expect("an identifier");
        assert!(!id.is_copyleft() && !id.is_gnu(), "{id:?}");
    }
    let package = |license: &str| Package {
        name: "x".into(),
        version: "1.0.0".into(),
        license: license.into(),
        authors: vec!["Ada <ada@example.org>".into()],
        folder: Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        ours: false,
        needs: BTreeSet::new(),
        checksum: None,
    };
    for refused in ["GPL-3.0-only", "LGPL-2.1-or-later", "MIT AND AGPL-3.0-only", "MPL-2.0", "", "Nonsense-1.0"] {
        let said = licence::taken(&package(refused)).expect_err(refused).to_string();
        assert!(said.starts_with("x 1.0.0"), "{refused}: {said}");
    }
    let taken = |license: &str| {
        let all = licence::taken(&package(license)).expect(license);
        all.into_iter().map(|t| (t.id, t.copyright.join("; "))).collect::<Vec<_>>()
    };
    let ada = || "Authors: Ada".to_owned();
    assert_eq!(taken("GPL-2.0-only OR MIT"), [("MIT".to_owned(), ada())]);
    assert_eq!(taken("Apache-2.0/MIT"), [("MIT".to_owned(), ada())]);
    assert_eq!(taken("(MIT OR Apache-2.0) AND Unicode-3.0").len(), 2);
}

#[test]
fn the_bill_of_materials_has_every_crate() {
    let text = sbom::text(&workspace(), closure::COMPILER).expect("a graph");
    let bill: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(bill["metadata"]["component"]["name"], "llmcc");
    let components = bill["components"].as_array().expect("components");
    let packages = closure::packages(&workspace(), closure::COMPILER).expect("a graph");
    assert_eq!(components.len() + 1, packages.len());
    for p in packages.iter().filter(|p| !p.ours) {
        let found = components.iter().find(|c| c["name"] == p.name.as_str() && c["version"] == p.version.as_str());
        let found = found.unwrap_or_else(|| panic!("{} {} is missing", p.name, p.version));
        assert_eq!(found["hashes"][0]["content"].as_str(), p.checksum.as_deref(), "{}", p.name);
        assert!(p.checksum.is_some() && found["licenses"][0]["expression"].is_string(), "{found}");
    }
    let of = |name: &str| {
        let all = bill["dependencies"].as_array().expect("dependencies").iter();
        let one = all.clone().find(|d| d["ref"].as_str().is_some_and(|r| r.starts_with(&format!("pkg:cargo/{name}@"))));
        one.unwrap_or_else(|| panic!("{name} is missing"))["dependsOn"].to_string()
    };
    assert!(of("llmcc-codegen").contains("pkg:cargo/cranelift-codegen@"), "{}", of("llmcc-codegen"));
    // The runtime is inside, with crates that the compiler itself does not call.
    assert!(of("llmcc").contains("pkg:cargo/llmcc-rt@"), "{}", of("llmcc"));
    assert!(of("llmcc-media").contains("pkg:cargo/hound@"), "{}", of("llmcc-media"));
}
