//! `llmcc eval long`: texts that need facts from far before, by length.

mod filler;
mod probes;

use super::ppl::log_softmax;
use super::windows::{Window, check_logits, room};
use crate::args::LongArgs;
use crate::loaded::Model;
use crate::{Error, progress};
use filler::Random;
use indicatif::ProgressBar;
use probes::{PROBES, Parts, Probe};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// Tokens of a step at most.
const PART: usize = 256;
/// The shortest text, in tokens: probes and questions fit.
const LEAST: usize = 256;
/// The longest one by default.
const MOST: usize = 8192;

/// How a model does at a length.
#[derive(Clone, Debug, PartialEq)]
struct Score {
    probe: &'static str,
    length: usize,
    samples: usize,
    /// Texts whose answer the model gives, token by token.
    right: usize,
    /// Mean probability of a token of the answers, as a geometric mean.
    probability: f64,
    /// Bytes of cache that a text takes, on average.
    cache: f64,
}

/// `llmcc eval long`
///
/// # Errors
/// An artifact without a tokenizer or logits; an unknown probe; lengths that a model has no room for.
pub fn run(args: &LongArgs) -> Result<(), Error> {
    let probes = wanted(&args.probes)?;
    let mut all = vec![];
    for artifact in &args.artifacts {
        let model = args.engine.open(artifact)?;
        check_logits(&model)?;
        let lengths = lengths(&model, &args.lengths)?;
        all.push((artifact.as_path(), scores(&model, &probes, &lengths, args)?));
    }
    match args.json {
        true => crate::json::print(&document(&all, args)),
        false => crate::stdout::print(&table(&all, args)),
    }
}

/// The probes of these names; all, if there are none.
fn wanted(names: &[String]) -> Result<Vec<&'static Probe>, Error> {
    let find = |name: &String| {
        let known: Vec<&str> = PROBES.iter().map(|p| p.name).collect();
        let found = PROBES.iter().find(|p| p.name == name);
        found.ok_or_else(|| Error::Usage(format!("there is no probe `{name}`; use {}", known.join(", "))))
    };
    if names.is_empty() { Ok(PROBES.iter().collect()) } else { names.iter().map(find).collect() }
}

/// The lengths to measure: powers of two that the model has room for, unless they are given.
fn lengths(model: &Model, given: &[usize]) -> Result<Vec<usize>, Error> {
    let room = room(&model.info());
    if let Some(wrong) = given.iter().find(|n| !(LEAST..=room).contains(n)) {
        return Err(Error::Usage(format!(
            "--lengths {wrong}: {} takes texts of {LEAST} to {room} tokens",
            model.path().display()
        )));
    }
    if !given.is_empty() {
        return Ok(given.to_vec());
    }
    let powers: Vec<usize> = (0..).map(|i| LEAST << i).take_while(|n| *n <= room.min(MOST)).collect();
    match powers.is_empty() {
        true => Err(Error::Usage(format!("{}: the longest context is {room} tokens", model.path().display()))),
        false => Ok(powers),
    }
}

fn scores(model: &Model, probes: &[&'static Probe], lengths: &[usize], args: &LongArgs) -> Result<Vec<Score>, Error> {
    let bar = progress::steps(probes.len() * lengths.len() * args.samples, "answering questions");
    let mut all = vec![];
    for probe in probes {
        for &length in lengths {
            all.push(score(model, probe, length, args, &bar)?);
        }
    }
    bar.finish_and_clear();
    Ok(all)
}

fn score(
    model: &Model,
    probe: &'static Probe,
    length: usize,
    args: &LongArgs,
    bar: &ProgressBar,
) -> Result<Score, Error> {
    let (mut right, mut log, mut tokens, mut cache) = (0, 0.0, 0, 0.0);
    for sample in 0..args.samples {
        let depth = (sample as f64 + 0.5) / args.samples as f64;
        let parts = probe.parts(args.seed, sample, depth);
        let text = fitted(model, &parts, length, args.seed ^ sample as u64)?;
        let found = answer(model, &text, &parts.answer)?;
        right += usize::from(found.right);
        (log, tokens, cache) = (log + found.log_likelihood, tokens + found.tokens, cache + found.cache);
        bar.inc(1);
    }
    Ok(Score {
        probe: probe.name,
        length,
        samples: args.samples,
        right,
        probability: (log / tokens.max(1) as f64).exp(),
        cache: cache / args.samples.max(1) as f64,
    })
}

/// The text of a probe with as many other sentences as fit into `length` tokens, the answer included.
fn fitted(model: &Model, parts: &Parts, length: usize, seed: u64) -> Result<String, Error> {
    let tokens = |sentences: usize| -> Result<usize, Error> {
        let text = written(parts, sentences, seed) + &parts.answer;
        Ok(model.tokenize(&text, true)?.len())
    };
    // `from` sentences fit; `to` sentences do not.
    let (mut from, mut to) = (0, length);
    if tokens(0)? > length {
        return Err(Error::Usage(format!("--lengths {length}: the question alone is longer; give more")));
    }
    while from + 1 < to {
        let middle = from.midpoint(to);
        if tokens(middle)? <= length { from = middle } else { to = middle }
    }
    Ok(written(parts, from, seed))
}

/// The text up to the answer, with this many other sentences.
fn written(parts: &Parts, sentences: usize, seed: u64) -> String {
    let mut random = Random::new(seed ^ 0x5eed);
    let mut text = parts.task.clone();
    let mut facts = parts.facts.iter().peekable();
    for i in 0..=sentences {
        while let Some((_, fact)) = facts.next_if(|(place, _)| i == sentences || *place * sentences as f64 <= i as f64)
        {
            add(&mut text, fact);
        }
        if i < sentences {
            add(&mut text, &(parts.other)(&mut random));
        }
    }
    text + &parts.question
}

fn add(text: &mut String, sentence: &str) {
    if !text.ends_with('\n') && !sentence.starts_with('\n') {
        text.push(' ');
    }
    text.push_str(sentence);
}

/// A model's answer.
struct Found {
    /// Whether each token of the answer is the most probable one.
    right: bool,
    /// Sum over the answer's tokens, in nats.
    log_likelihood: f64,
    tokens: usize,
    /// Bytes of cache that the text takes.
    cache: f64,
}

fn answer(model: &Model, text: &str, answer: &str) -> Result<Found, Error> {
    let ids = model.tokenize(&format!("{text}{answer}"), true)?;
    // Tokens may join the text's end and the answer's beginning: the answer begins where both differ.
    let before = model.tokenize(text, true)?;
    let first = ids.iter().zip(&before).take_while(|(a, b)| a == b).count().max(1);
    let (seq, vocab) = (model.seq_new()?, model.info().vocab);
    let mut found = Found { right: true, log_likelihood: 0.0, tokens: 0, cache: 0.0 };
    for part in (Window { ids, first }).parts(PART) {
        let logits = model.step(part.tokens, &vec![seq; part.tokens.len()], &part.rows)?;
        for (row, next) in logits.chunks_exact(vocab).zip(part.next) {
            found.right &= argmax(row) == Some(*next as usize);
            found.log_likelihood += log_softmax(row, *next as usize);
            found.tokens += 1;
        }
    }
    let stats: Value = serde_json::from_str(&model.stats()?).unwrap_or_default();
    found.cache = stats["kv_bytes_used"].as_f64().unwrap_or(0.0);
    model.seq_free(seq)?;
    Ok(found)
}

/// The first of the largest logits.
fn argmax(row: &[f32]) -> Option<usize> {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter().position(|x| *x == most)
}

fn document(all: &[(&Path, Vec<Score>)], args: &LongArgs) -> Value {
    let score = |s: &Score| {
        json!({
            "probe": s.probe, "length": s.length, "samples": s.samples, "right": s.right,
            "probability": s.probability, "cache_bytes": s.cache,
        })
    };
    let models = all.iter().map(|(path, scores)| {
        json!({ "artifact": path.display().to_string(), "scores": scores.iter().map(score).collect::<Vec<_>>() })
    });
    let probes = PROBES.iter().map(|p| json!({ "name": p.name, "about": p.about, "source": p.source }));
    json!({
        "seed": args.seed,
        "probes": probes.collect::<Vec<_>>(),
        "models": models.collect::<Vec<_>>(),
    })
}

/// A line for each artifact and probe, a column for each length.
fn table(all: &[(&Path, Vec<Score>)], args: &LongArgs) -> String {
    let mut lengths: Vec<usize> = all.iter().flat_map(|(_, scores)| scores).map(|s| s.length).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let names: Vec<String> = all.iter().map(|(path, _)| path.display().to_string()).collect();
    let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0).max("artifact".len());
    let mut s = format!("{:width$}  {:9}", "artifact", "probe");
    lengths.iter().for_each(|n| _ = write!(s, "  {n:>10}"));
    s.push('\n');
    for ((_, scores), name) in all.iter().zip(&names) {
        let mut probes: Vec<&str> = scores.iter().map(|s| s.probe).collect();
        probes.dedup();
        for probe in probes {
            let _ = write!(s, "{name:width$}  {probe:9}");
            for length in &lengths {
                let of = scores.iter().find(|s| s.probe == probe && s.length == *length);
                let cell = of.map_or("-".into(), |s| format!("{:.0} % {:.2}", share(s), s.probability));
                let _ = write!(s, "  {cell:>10}");
            }
            s.push('\n');
        }
        rows(&mut s, &format!("{name:width$}"), scores, (&all[0].1, &lengths));
    }
    let samples = args.samples;
    s + &format!(
        "right answers of {samples}, token by token, and the mean probability of an answer's token; `of first`: the \
         cache's share of the first artifact's\n"
    )
}

/// A figure of an artifact at a length, beside the first artifact.
type Cell = fn(&[Score], &[Score], usize) -> Option<String>;

/// Lines about all probes: right answers, the cache, and its share of the first artifact's.
fn rows(s: &mut String, name: &str, scores: &[Score], (first, lengths): (&[Score], &[usize])) {
    let lines: [(&str, Cell); 3] = [
        ("all", |own, _, length| Some(format!("{:.0} %", share_of_all(own, length)?))),
        ("cache MiB", |own, _, length| Some(format!("{:.2}", cache(own, length)? / f64::from(1 << 20)))),
        ("of first", |own, first, length| {
            let share = 100.0 * cache(own, length)? / cache(first, length).filter(|bytes| *bytes > 0.0)?;
            Some(format!("{share:.0} %"))
        }),
    ];
    for (title, cell) in lines {
        let _ = write!(s, "{name}  {title:9}");
        for length in lengths {
            let _ = write!(s, "  {:>10}", cell(scores, first, *length).unwrap_or("-".into()));
        }
        s.push('\n');
    }
}

/// The largest cache of a text of a length.
fn cache(scores: &[Score], length: usize) -> Option<f64> {
    scores.iter().filter(|s| s.length == length).map(|s| s.cache).max_by(f64::total_cmp)
}

/// Percent of right answers to all probes of a length.
fn share_of_all(scores: &[Score], length: usize) -> Option<f64> {
    let of: Vec<f64> = scores.iter().filter(|s| s.length == length).map(share).collect();
    (!of.is_empty()).then(|| of.iter().sum::<f64>() / of.len() as f64)
}

fn share(s: &Score) -> f64 {
    100.0 * s.right as f64 / s.samples.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every text has its facts in their order, whatever its length, and its answer in a fact.
    #[test]
    fn texts_have_their_facts() {
        for probe in PROBES {
            for sample in 0..20 {
                let parts = probe.parts(7, sample, sample as f64 / 19.0);
                let words: Vec<&str> =
                    parts.answer.split_whitespace().map(|word| word.trim_matches(['.', ':'])).collect();
                let said = |word: &&str| parts.facts.iter().any(|(_, fact)| fact.contains(word));
                assert!(words.iter().all(said) && !parts.question.contains(parts.answer.trim()), "{}", probe.name);
                for sentences in [0, 1, 7, 100] {
                    let text = written(&parts, sentences, sample as u64);
                    let at: Vec<usize> =
                        parts.facts.iter().map(|(_, fact)| text.find(fact.as_str()).unwrap()).collect();
                    assert!(at.is_sorted(), "{}: {at:?}", probe.name);
                    assert_eq!(text, written(&parts, sentences, sample as u64));
                }
            }
        }
    }

    /// A fact stands where it is asked to.
    #[test]
    fn facts_stand_at_their_depth() {
        for depth in [0.0, 0.25, 0.5, 1.0] {
            let parts = PROBES[0].parts(1, 3, depth);
            let text = written(&parts, 400, 5);
            let at = text.find(&parts.facts[0].1).unwrap() as f64 / (text.len() - parts.question.len()) as f64;
            assert!((at - depth).abs() < 0.05, "{at} for {depth}");
        }
    }
}
