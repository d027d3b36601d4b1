//! The notices of third parties: for each licence its crates with their copyright, and its text once.

use crate::closure::{self, Package, Root};
use crate::{Failure, licence};
use llmcc_cli::backends::HAS_LLVM;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Code that Cargo's graph does not show: Rust's own libraries, which are linked into everything.
const STANDARD: &str = "the Rust standard library (core, alloc, std; in it addr2line, adler2, cfg-if, \
    compiler_builtins, gimli, hashbrown, libc, memchr, miniz_oxide, object, rustc-demangle)";
/// Their copyright.
const STANDARD_COPYRIGHT: &str = "Copyright (c) The Rust Project Contributors (https://thanks.rust-lang.org)";

/// A file of notices: whose, and where it lies in the repository.
pub struct Notices {
    /// The program or library.
    pub root: Root,
    /// Its name in the first line.
    pub of: &'static str,
    /// Path in the repository.
    pub path: &'static str,
    /// Licences of what is linked beside crates: name, SPDX identifier, copyright.
    pub beside: &'static [(&'static str, &'static str, &'static str)],
}

/// The disassembler inside the crate `capstone-sys`, which names its own licence only.
const CAPSTONE: &[(&str, &str, &str)] = &[
    ("Capstone", "BSD-3-Clause", "Copyright (c) 2013, COSEINC. All rights reserved."),
    ("parts of LLVM in Capstone", "NCSA", "Copyright (c) 2003-2013 University of Illinois at Urbana-Champaign."),
];
/// The same, LLVM and MLIR, and the libraries that they use.
const LLVM: &[(&str, &str, &str)] = &[
    CAPSTONE[0],
    CAPSTONE[1],
    (
        "LLVM and MLIR 22",
        "Apache-2.0 WITH LLVM-exception",
        "Copyright (c) 2003-2026 University of Illinois at Urbana-Champaign and the LLVM contributors",
    ),
    ("zlib", "Zlib", "Copyright (C) 1995-2022 Jean-loup Gailly and Mark Adler"),
    ("Zstandard", "BSD-3-Clause", "Copyright (c) Meta Platforms, Inc. and affiliates. All rights reserved."),
    (
        "libstdc++ 12, C++'s library of GCC",
        "GPL-3.0-or-later WITH GCC-exception-3.1",
        "Copyright (C) 1997-2022 Free Software Foundation, Inc.; section 1 of the exception permits this program \
            to be passed on under the terms above and below, and its sources are those of Debian's package gcc-12",
    ),
];

/// All files of notices.
pub const ALL: [Notices; 3] = [
    Notices {
        root: closure::RUNTIME,
        of: "the runtime inside artifacts of llmcc",
        path: "runtime/image/third-party.txt",
        beside: &[],
    },
    Notices { root: closure::COMPILER, of: "the compiler llmcc", path: "cli/third-party.txt", beside: CAPSTONE },
    Notices { root: closure::GPU, of: "the program llmcc-cuda", path: "python/cuda/THIRD-PARTY.txt", beside: LLVM },
];

/// Everything under one licence.
#[derive(Default)]
struct Under {
    /// A crate and its lines of copyright each.
    crates: Vec<(String, Vec<String>)>,
    /// Texts of crates that differ from the licence's, and of files `NOTICE`.
    further: Vec<(String, String)>,
}

impl Notices {
    /// Whether this build can write them: Cargo has the crates around LLVM only where they are built.
    pub fn known(&self) -> bool {
        HAS_LLVM || self.root.package != closure::GPU.package
    }

    /// Writes them from Cargo's graph.
    ///
    /// # Errors
    /// Cargo fails; a crate has no licence that is allowed.
    pub fn text(&self, workspace: &Path) -> Result<String, Failure> {
        let mut under: BTreeMap<String, Under> = BTreeMap::new();
        let standard = vec![STANDARD_COPYRIGHT.to_owned()];
        under.entry("MIT".into()).or_default().crates.push((STANDARD.into(), standard));
        for (name, id, copyright) in self.beside {
            let entry = ((*name).to_owned(), vec![(*copyright).to_owned()]);
            under.entry((*id).into()).or_default().crates.push(entry);
        }
        let (ours, others): (Vec<_>, Vec<_>) =
            closure::packages(workspace, self.root)?.into_iter().partition(|p| p.ours);
        for package in &others {
            add(&mut under, package)?;
        }
        let own = std::fs::read_to_string(workspace.join("LICENSE"))?;
        let mut text = format!("Software in {}, and its licences.\n\n", self.of);
        let names: Vec<&str> = ours.iter().map(|p| p.name.as_str()).collect();
        let _ = writeln!(text, "======== llmcc itself ({})\n\n{}", names.join(", "), own.trim());
        for (id, under) in &under {
            section(&mut text, id, under);
        }
        Ok(text)
    }
}

fn add(under: &mut BTreeMap<String, Under>, package: &Package) -> Result<(), Failure> {
    let called = format!("{} {}", package.name, package.version);
    for taken in licence::taken(package)? {
        let under = under.entry(taken.id).or_default();
        under.crates.push((called.clone(), taken.copyright));
        under.further.extend(taken.own_text.into_iter().chain(taken.notice).map(|text| (called.clone(), text)));
    }
    Ok(())
}

fn section(text: &mut String, id: &str, under: &Under) {
    let _ = writeln!(text, "\n======== {id}\n");
    // Crates of the same people are listed together.
    let mut by: BTreeMap<&[String], Vec<&str>> = BTreeMap::new();
    for (name, copyright) in &under.crates {
        by.entry(copyright).or_default().push(name);
    }
    for (copyright, names) in by {
        let _ = writeln!(text, "{}\n    {}", names.join(", "), copyright.join("\n    "));
    }
    let _ = writeln!(text, "\n{}", licence::standard(id).trim_end());
    let mut further: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, own) in &under.further {
        further.entry(own.trim()).or_default().push(name);
    }
    for (own, names) in further {
        let _ = writeln!(text, "\n-------- {}\n\n{own}", names.join(", "));
    }
}
