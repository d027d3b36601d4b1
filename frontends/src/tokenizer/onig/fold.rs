//! Letters of either case.

use super::{Node, names};
use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

// Characters whose full case folding has several characters, by these (CaseFolding.txt, status F).
include!("folds.rs");

/// Characters that are `c` in either case.
pub(super) fn of_char(c: char) -> ClassUnicode {
    let mut set = names::one(c);
    close(&mut set);
    set
}

/// Adds to a set the letters of the other case.
pub(super) fn close(set: &mut ClassUnicode) {
    // With the tables of the crate this cannot fail.
    let _ = set.try_case_fold_simple();
}

/// The least of the characters that are the same in either case.
fn key(c: char) -> char {
    of_char(c).ranges().first().map_or(c, ClassUnicodeRange::start)
}

/// The folding of a character that has several.
fn several(c: char) -> Option<&'static str> {
    FOLDS.iter().find(|(from, _)| *from == c).map(|(_, to)| *to)
}

/// Characters of a class in either case: itself, then the sequences that its members fold to.
pub(super) fn of_class(set: &ClassUnicode, source: &str, negated: bool) -> Node {
    let mut closed = set.clone();
    if negated {
        closed.negate();
    }
    let inner = closed.clone();
    close(&mut closed);
    for (from, to) in FOLDS.iter().filter(|(from, _)| has(&inner, *from)) {
        // Characters with one folding are the same letter.
        let same = FOLDS.iter().filter(|(other, text)| text == to && other != from);
        closed.union(&ClassUnicode::new(same.map(|(other, _)| ClassUnicodeRange::new(*other, *other))));
    }
    if negated {
        closed.negate();
        return Node::Set(closed, source.into());
    }
    let sequence =
        |text: &str| Node::Concat(text.chars().map(|c| Node::Set(of_char(c), String::new())).collect::<Vec<_>>());
    let mut texts: Vec<&str> = Vec::new();
    for (_, text) in FOLDS.iter().filter(|(from, _)| has(&inner, *from)) {
        if !texts.contains(text) {
            texts.push(text);
        }
    }
    let mut all = vec![Node::Set(closed, source.into())];
    all.extend(texts.into_iter().map(sequence));
    if all.len() == 1 { all.remove(0) } else { Node::Alt(all) }
}

fn has(set: &ClassUnicode, c: char) -> bool {
    set.ranges().iter().any(|r| r.start() <= c && c <= r.end())
}

/// A run of characters in either case.
///
/// # Errors
/// Ligatures can stand for it in more than one way.
pub(super) fn of_run(run: &[(char, String)]) -> Result<Vec<Node>, String> {
    // Characters with several become these first.
    let mut folded: Vec<(char, String)> = Vec::new();
    for (c, source) in run {
        match several(*c) {
            Some(text) => folded.extend(text.chars().map(|c| (c, String::new()))),
            None => folded.push((*c, source.clone())),
        }
    }
    let keys: Vec<char> = folded.iter().map(|(c, _)| key(*c)).collect();
    let mut found: Vec<(usize, usize, Vec<char>)> = Vec::new();
    for at in 0..keys.len() {
        let mut lengths: Vec<usize> = Vec::new();
        for (from, text) in FOLDS {
            let length = text.chars().count();
            if keys[at..].len() < length || !text.chars().zip(&keys[at..]).all(|(c, k)| key(c) == *k) {
                continue;
            }
            match lengths.contains(&length) {
                true => found.iter_mut().filter(|f| f.0 == at && f.1 == length).for_each(|f| f.2.push(*from)),
                false => {
                    lengths.push(length);
                    found.push((at, length, vec![*from]));
                }
            }
        }
    }
    let overlap = found.windows(2).any(|two| two[0].0 + two[0].1 > two[1].0);
    if overlap {
        return Err("ignores case where several ligatures overlap".into());
    }
    let mut out = Vec::new();
    let mut at = 0;
    while let Some((c, source)) = folded.get(at) {
        let single = |(c, source): &(char, String)| Node::Set(of_char(*c), source.clone());
        match found.iter().find(|f| f.0 == at) {
            Some((_, length, others)) => {
                let apart = folded[at..at + length].iter().map(single).collect();
                let one = ClassUnicode::new(others.iter().map(|c| ClassUnicodeRange::new(*c, *c)));
                out.push(Node::Alt(vec![Node::Concat(apart), Node::Set(one, String::new())]));
                at += length;
            }
            None => {
                out.push(single(&(*c, source.clone())));
                at += 1;
            }
        }
    }
    Ok(out)
}
