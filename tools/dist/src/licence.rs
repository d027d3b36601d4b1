//! Licences of crates: which of those offered is taken, and what its notices say.

use crate::Failure;
use crate::closure::Package;
use spdx::{Expression, Licensee, ParseMode};
use std::collections::BTreeSet;
use std::path::Path;

/// The licences under which others' code may be linked, the most wanted first. None obliges the
/// programs that artifacts are linked into. Behind each are words by which its text is known.
pub const ALLOWED: [(&str, &str); 9] = [
    ("MIT", "permission is hereby granted free of charge to any person"),
    ("Apache-2.0 WITH LLVM-exception", "llvm exceptions to the apache 2 0 license"),
    ("Apache-2.0", "apache license version 2 0"),
    ("BSD-2-Clause", "redistribution and use in source and binary forms"),
    ("BSD-3-Clause", "redistribution and use in source and binary forms"),
    ("ISC", "permission to use copy modify and or distribute this software"),
    ("Zlib", "the origin of this software must not be misrepresented"),
    ("BSL-1.0", "boost software license"),
    ("Unicode-3.0", "unicode license v3"),
];

/// A licence of a crate that is taken.
#[derive(Clone, Debug)]
pub struct Taken {
    /// SPDX identifier, of [`ALLOWED`].
    pub id: String,
    /// Lines of copyright, as the crate's file has them.
    pub copyright: Vec<String>,
    /// The crate's own text, where it differs from the licence's.
    pub own_text: Option<String>,
    /// `NOTICE` of the crate (Apache-2.0, section 4 d).
    pub notice: Option<String>,
}

/// The licences that a crate is taken under; several where it is made of parts.
///
/// # Errors
/// An expression that none of [`ALLOWED`] satisfies; files that cannot be read.
pub fn taken(package: &Package) -> Result<Vec<Taken>, Failure> {
    let called = format!("{} {}", package.name, package.version);
    let expression = expression(package);
    let parsed = Expression::parse_mode(&expression, ParseMode::LAX).map_err(|e| format!("{called}: {e}"))?;
    let accepted = ALLOWED.iter().map(|(id, _)| Licensee::parse(id)).collect::<Result<Vec<_>, _>>()?;
    let wanted = parsed.minimized_requirements(&accepted).map_err(|_| {
        let allowed = ALLOWED.map(|(id, _)| id).join(", ");
        format!("{called} is under {expression}, which is not allowed; allowed are {allowed}")
    })?;
    let files = files(&package.folder)?;
    Ok(wanted.iter().map(|requirement| of(package, &requirement.to_string(), &files)).collect())
}

/// The expression of a crate; of those that name a file instead, by its text.
fn expression(package: &Package) -> String {
    match (package.license.as_str(), package.name.as_str()) {
        ("", "mlir-sys") => "Apache-2.0".into(),
        (expression, _) => expression.into(),
    }
}

fn of(package: &Package, id: &str, files: &[(String, String)]) -> Taken {
    let sign = ALLOWED.iter().find(|(name, _)| *name == id).map_or("", |(_, sign)| sign);
    let file = files.iter().find(|(_, text)| words(text).contains(sign)).map(|(_, text)| text);
    let mut copyright: Vec<String> = file.map_or(vec![], |text| copyright(text));
    if copyright.is_empty() {
        let authors: BTreeSet<&str> =
            package.authors.iter().filter_map(|a| Some(a.split('<').next()?.trim())).collect();
        let authors: Vec<&str> = authors.into_iter().filter(|a| !a.is_empty()).collect();
        copyright = match authors.is_empty() {
            true => vec!["(its files name no holder of the copyright)".into()],
            false => vec![format!("Authors: {}", authors.join(", "))],
        };
    }
    let own_text = file.filter(|text| terms(text) != terms(&standard(id))).filter(|_| !id.starts_with("Apache"));
    let notice = files.iter().find(|(name, _)| name.starts_with("NOTICE")).map(|(_, text)| text.clone());
    Taken { id: id.into(), copyright, own_text: own_text.cloned(), notice: notice.filter(|_| id.starts_with("Apache")) }
}

/// Files of a folder about its licence, with their texts, by name.
fn files(folder: &Path) -> Result<Vec<(String, String)>, Failure> {
    let mut found = vec![];
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().map(|n| n.to_string_lossy().to_uppercase()).unwrap_or_default();
        let about = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
        if path.is_file() && about.iter().any(|word| name.contains(word)) {
            found.push((name, String::from_utf8_lossy(&std::fs::read(&path)?).into_owned()));
        }
    }
    found.sort();
    Ok(found)
}

/// The text of a licence as SPDX has it, without a line of copyright.
pub fn standard(id: &str) -> String {
    let mut parts = id.split(" WITH ");
    let license = parts.next().and_then(spdx::license_id).map_or("", |l| l.text());
    let exception = parts.next().and_then(spdx::exception_id).map_or("", |e| e.text());
    let kept: Vec<&str> = license.lines().filter(|line| !is_copyright(line)).map(str::trim_end).collect();
    let text = kept.join("\n");
    let text = text.trim_matches('\n');
    if exception.is_empty() { format!("{text}\n") } else { format!("{text}\n\n{}\n", exception.trim()) }
}

/// Lines of copyright of a text.
fn copyright(text: &str) -> Vec<String> {
    let mut lines: Vec<String> =
        text.lines().filter(|line| is_copyright(line)).map(|line| bare(line).trim().to_owned()).collect();
    lines.dedup();
    lines
}

/// A line without marks of comments and lists before it.
fn bare(line: &str) -> &str {
    line.trim().trim_start_matches(['*', '#', '/', ';', ' '])
}

fn is_copyright(line: &str) -> bool {
    let line = bare(line).to_lowercase();
    let year =
        |start: &str| line.strip_prefix(start).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let begins = ["copyright (c)", "copyright ©", "copyright the ", "copyright <", "all rights reserved."];
    // A list of clauses has a `(c)`, too.
    begins.iter().any(|mark| line.starts_with(mark)) || ["copyright ", "(c) ", "© "].iter().any(|mark| year(mark))
}

/// Words of a text in lower case, a space between each.
fn words(text: &str) -> String {
    let split = text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty());
    split.map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

/// Words of the terms alone: from the sentence in which they begin, without lines of copyright.
fn terms(text: &str) -> String {
    let kept: Vec<&str> = text.lines().filter(|line| !is_copyright(line)).collect();
    let all = words(&kept.join("\n"));
    let begin = ALLOWED.iter().filter_map(|(_, sign)| all.find(sign)).min().unwrap_or(0);
    all[begin..].to_owned()
}
