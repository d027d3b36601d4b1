//! Text of outputs, in modules and plans: `logits %x`, `embedding %x width=384 pool=mean normalize`.

use super::parse::{Parsed, Parser};
use crate::output::{Output, Pool, Rows, RowsName};

/// Words that an output begins with.
pub(super) const WORDS: &[&str] = &["logits", "embedding", "scores"];

/// `word place`, and the properties of rows.
pub(super) fn print(out: &mut String, output: Output, place: &str) {
    match output {
        Output::Logits => put!(out, "logits {place}\n"),
        Output::Rows(rows) => put!(out, "{} {place} {rows}\n", rows.name),
    }
}

/// An output and where it is, which `place` reads.
pub(super) fn parse<'a>(
    p: &mut Parser<'a>,
    place: impl FnOnce(&mut Parser<'a>) -> Parsed<usize>,
) -> Parsed<(Output, usize)> {
    let name = RowsName::ALL.iter().find(|(_, word)| p.peek_word() == *word);
    if name.is_none() && p.peek_word() != "logits" {
        return Err(p.one_of("the output", WORDS));
    }
    p.next();
    let place = place(p)?;
    let output = match name {
        None => Output::Logits,
        Some((name, _)) => Output::Rows(rows(p, *name)?),
    };
    Ok((output, place))
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
