//! The bill of materials: the crates in a program, as CycloneDX 1.5. It names no date and no machine.

use crate::Failure;
use crate::closure::{self, Package, Root};
use serde_json::{Value, json};
use std::path::Path;

/// The bill of the program `root`.
///
/// # Errors
/// Cargo fails.
pub fn text(workspace: &Path, root: Root) -> Result<String, Failure> {
    let packages = closure::packages(workspace, root)?;
    let (subject, others): (Vec<_>, Vec<_>) = packages.iter().partition(|p| p.name == root.package);
    let subject = subject.first().ok_or_else(|| format!("there is no package {}", root.package))?;
    let mut main = component(subject);
    main["type"] = "application".into();
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": main },
        "components": others.iter().map(|p| component(p)).collect::<Vec<_>>(),
        "dependencies": packages.iter().map(dependencies).collect::<Vec<_>>(),
    });
    Ok(format!("{bill:#}\n"))
}

fn url(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{version}")
}

fn component(p: &Package) -> Value {
    let url = url(&p.name, &p.version);
    let mut component = json!({ "type": "library", "bom-ref": url, "name": p.name, "version": p.version });
    // Our own crates are in no registry.
    if !p.ours {
        component["purl"] = url.into();
    }
    if !p.license.is_empty() {
        component["licenses"] = json!([{ "expression": p.license.replace(" / ", " OR ").replace('/', " OR ") }]);
    }
    if let Some(checksum) = &p.checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

fn dependencies(p: &Package) -> Value {
    let needs: Vec<String> = p.needs.iter().map(|(name, version)| url(name, version)).collect();
    json!({ "ref": url(&p.name, &p.version), "dependsOn": needs })
}
