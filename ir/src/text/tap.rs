//! Text of taps, in modules and plans: `tap %5 call=1 rows=T columns=64 ["q.weight", "k.weight"]`; of rows for experts
//! `tap %5 call=1 rows=T columns=64 routes %6 experts=4 top=2 apart ["e0.weight" of 0, "e1.weight" of 1]`.

use super::names::{List, Quoted};
use super::parse::{Parsed, Parser};
use crate::tap::{Routes, Tap, TappedWeight};
use std::fmt;

/// The word that a tap begins with.
pub(super) const WORD: &str = "tap";

struct WeightText<'a>(&'a TappedWeight);

impl fmt::Display for WeightText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Quoted(&self.0.name).fmt(f)?;
        self.0.expert.map_or(Ok(()), |e| write!(f, " of {e}"))
    }
}

/// A tap; `place` writes a value or a slot.
pub(super) fn print(out: &mut String, tap: &Tap, place: impl Fn(usize) -> String) {
    put!(out, "{WORD} {} call={} rows={} columns={}", place(tap.at), tap.call, tap.rows, tap.columns);
    if let Some(r) = &tap.routes {
        let apart = if r.apart { " apart" } else { "" };
        put!(out, " routes {} experts={} top={}{apart}", place(r.at), r.experts, r.top);
    }
    put!(out, " [{}]\n", List(tap.weights.iter().map(WeightText)));
}

/// Reads a tap, whose places `place` reads.
pub(super) fn parse<'a>(p: &mut Parser<'a>, mut place: impl FnMut(&mut Parser<'a>) -> Parsed<usize>) -> Parsed<Tap> {
    p.expect_word(WORD)?;
    let at = place(p)?;
    let call = p.field_size("call")?;
    p.expect_word("rows")?;
    p.expect(b'=')?;
    let rows = p.dim()?;
    let columns = p.field_size("columns")?;
    let routes = if p.eat_word("routes") {
        let at = place(p)?;
        let (experts, top) = (p.field_size("experts")?, p.field_size("top")?);
        Some(Routes { at, experts, top, apart: p.eat_word("apart") })
    } else {
        None
    };
    p.expect(b'[')?;
    let weights = p.list(b']', weight)?;
    Ok(Tap { at, call, rows, columns, routes, weights })
}

fn weight(p: &mut Parser) -> Parsed<TappedWeight> {
    let name = p.string("the name of a weight in quotes")?;
    let expert = if p.eat_word("of") { Some(p.size("the number of the expert")?) } else { None };
    Ok(TappedWeight { name, expert })
}
