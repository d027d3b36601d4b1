//! Text of outputs, in modules and plans: `logits %x`, `embedding %x width=384 pool=mean normalize`.

use super::parse::{Parsed, Parser, fault};
use crate::output::{EntryOutput, Output, Pool, Rows, RowsName};

/// Words that an output begins with.
pub(super) const WORDS: &[&str] = &["logits", "embedding", "scores", "hidden", "image"];

/// `word place`, and the properties of rows.
pub(super) fn print(out: &mut String, output: Output, place: &str) {
    put!(out, "{} {place}", output.word());
    if let Output::Rows(rows) = output {
        put!(out, " {rows}");
    }
    out.push('\n');
}

/// Adds an output and its place, which `place` reads, to those of an entry.
pub(super) fn parse<'a>(
    p: &mut Parser<'a>,
    outputs: &mut Vec<EntryOutput>,
    place: impl FnOnce(&mut Parser<'a>) -> Parsed<usize>,
) -> Parsed<()> {
    let first = p.peek().range();
    let word = p.peek_word();
    if !WORDS.contains(&word) {
        return Err(p.one_of("an output", WORDS));
    }
    p.next();
    let at = place(p)?;
    let output = match RowsName::ALL.iter().find(|(_, name)| *name == word) {
        Some((name, _)) => Output::Rows(rows(p, *name)?),
        None if word == "hidden" => Output::Hidden,
        None if word == "image" => Output::Image,
        None => Output::Logits,
    };
    let again = outputs.iter().any(|o| o.output.is_requested() == output.is_requested());
    outputs.push(EntryOutput { output, at });
    let what = if output.is_requested() { "the output that has the rows asked for is" } else { "this output is" };
    if again { Err(fault("duplicate-name", first, format!("{what} given twice"))) } else { Ok(()) }
}

fn rows(p: &mut Parser, name: RowsName) -> Parsed<Rows> {
    let width = p.field_size("width")?;
    p.expect_word("pool")?;
    p.expect(b'=')?;
    let Some((pool, _)) = Pool::ALL.iter().find(|(_, word)| p.peek_word() == *word) else {
        return Err(p.one_of("how rows become one", &["mean", "first", "last"]));
    };
    p.next();
    Ok(Rows { name, width, pool: *pool, normalize: p.eat_word("normalize") })
}
