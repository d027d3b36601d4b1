//! The formats as a table for people: `docs/formats.md` has it, and a test compares.

use super::{Code, FORMATS, Float, FormatDef, Per, Scale, ScaleKind};
use std::fmt::Write;

/// A table in Markdown with a line per format.
pub fn markdown() -> String {
    let mut out = String::from("| name | codes | scales | bits per weight, as panels |\n|---|---|---|---|\n");
    for d in FORMATS {
        let _ = writeln!(out, "| `{}` | {} | {} | {} |", d.name, code(d.encoding.code), scales(d), bits(d));
    }
    out
}

fn code(code: Code) -> String {
    match code {
        Code::Float(Float::F32) => "f32".into(),
        Code::Float(Float::F16) => "f16".into(),
        Code::Float(Float::Bf16) => "bf16".into(),
        Code::Float(Float::E4m3) => "e4m3".into(),
        Code::Int { bits, zero: 0 } => format!("`u`, {bits} bits"),
        Code::Int { bits, zero } => format!("`u − {zero}`, {bits} bits"),
        Code::Signed { bits } => format!("{bits} bits, two's complement"),
        Code::Table { bits, .. } => format!("`values[u]`, {bits} bits"),
        Code::Pairs => "`u − 8`, 4 bits, two of each four columns".into(),
        Code::Trellis(of) => format!("trellis of {} bits", of.bits),
    }
}

fn scales(d: &FormatDef) -> String {
    let level = |s: Scale, groups: &[usize]| {
        let kind = match s.kind {
            ScaleKind::F32 => "f32".into(),
            ScaleKind::F16 => "f16".into(),
            ScaleKind::Bf16 => "bf16".into(),
            ScaleKind::E8m0 => "power of two".into(),
            ScaleKind::E4m3 => "e4m3".into(),
            ScaleKind::Unsigned { bits } => format!("{bits}-bit code"),
            ScaleKind::Signed { bits } => format!("{bits}-bit code, signed,"),
            ScaleKind::Six => "6-bit code, signed, tight,".into(),
        };
        let per = match s.per {
            Per::Row => "a row".into(),
            Per::TokenHead => "a head of a token".into(),
            Per::Group(0) => groups.iter().map(usize::to_string).collect::<Vec<_>>().join(", ") + " columns",
            Per::Group(n) => format!("{n} columns"),
        };
        format!("{kind} for {per}{}", if s.minimum { ", and a minimum" } else { "" })
    };
    let levels: Vec<String> = d.encoding.scales.iter().flatten().map(|s| level(*s, d.groups)).collect();
    levels.join("; times ")
}

/// Bits of a weight in long rows, for each group.
fn bits(d: &'static FormatDef) -> String {
    const K: usize = 1 << 20;
    let of = |f: super::Format| (f.block_bytes(K) * 8) as f64 / (16 * K) as f64;
    let all: Vec<String> = d.formats().map(|f| format!("{}", (of(f) * 1e4).round() / 1e4)).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/formats.md");
        let page = std::fs::read_to_string(path).unwrap();
        let table = markdown();
        assert!(page.contains(&table), "docs/formats.md must have this table:\n{table}");
    }
}
