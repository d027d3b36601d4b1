//! Heads that see everything and heads that stream (DuoAttention, Xiao et al. 2024, arXiv 2410.10819): some KV heads
//! keep the whole sequence, the others its first tokens and its last ones.
//!
//! Which heads need everything stands in a file: a row for each layer, a number for each KV head, as the authors
//! publish them (`full_attention_heads.tsv`). The share of heads with the largest numbers keeps everything. Positions
//! are the places in the text, as in the authors' code.

use super::caches::fixed;
use super::given::{Given, LAYERS, Policy};
use super::kept::{Kept, Part};
use super::model::{Applied, Chosen, Model};
use super::work;
use llmcc_ir::graph::Module;

/// See the file's text.
pub(super) const HEADS: Policy = Policy {
    name: "heads",
    about: "all tokens in some KV heads; in the others the first tokens and the last ones",
    source: "DuoAttention, Xiao et al. 2024, arXiv 2410.10819",
    settings: &[
        ("mask", "file with a row for each layer and a number for each KV head; larger ones keep everything"),
        ("share", "share of heads that keep everything, as in 0.5"),
        ("first", "first tokens that stay in the others"),
        ("window", "last tokens that stay in them"),
        LAYERS,
    ],
    files: &["mask"],
    apply,
};

fn apply(model: &mut Model<'_>, given: &Given) -> Result<Applied, String> {
    let kept = Kept { first: given.count("first", 1 << 20)?, window: given.count("window", 1 << 30)?, places: false };
    let share = given.share("share")?;
    let mask = Mask::read(given)?;
    let Chosen { states, mut applied } =
        model.chosen(&given.layers()?, |m, state| fixed(m, state, kept.first + kept.window))?;
    mask.check(model.module, &states, applied.layers)?;
    let border = mask.border(&states, share);
    let mut parts = vec![];
    for (layer, state) in states {
        let streams: Vec<bool> = mask.rows[layer].iter().map(|x| border.is_none_or(|border| *x < border)).collect();
        match (streams.contains(&true), streams.contains(&false)) {
            (true, false) => parts.push((state, Part::All)),
            (true, true) => parts.push((state, Part::Heads(streams))),
            (false, _) => {}
        }
    }
    applied.changed = parts.len();
    work::apply(model.module, kept, parts).map_err(|mistake| mistake.to_string())?;
    Ok(applied)
}

/// How much each KV head needs the whole sequence.
struct Mask {
    path: String,
    rows: Vec<Vec<f64>>,
}

impl Mask {
    fn read(given: &Given) -> Result<Mask, String> {
        let (path, text) = (given.text("mask").to_string(), given.file("mask")?);
        let mut rows = vec![];
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
            let value = |(at, word): (usize, &str)| {
                let value: Option<f64> = word.parse().ok().filter(|x: &f64| x.is_finite());
                value.ok_or_else(|| format!("{path}, line {}: part {} is no number", i + 1, at + 1))
            };
            rows.push(words.enumerate().map(value).collect::<Result<_, _>>()?);
        }
        Ok(Mask { path, rows })
    }

    /// Whether it has a number for each head.
    fn check(&self, module: &Module, states: &[(usize, usize)], layers: usize) -> Result<(), String> {
        if self.rows.len() != layers {
            return Err(format!(
                "{} has {} rows, and the model {layers} layers with a cache",
                self.path,
                self.rows.len()
            ));
        }
        for (layer, state) in states {
            let heads = module.states[*state].paged().map_or(0, |kv| kv.kv_heads);
            let own = self.rows[*layer].len();
            if own != heads {
                let row = layer + 1;
                return Err(format!("{}, row {row}: {own} numbers, and the layer has {heads} KV heads", self.path));
            }
        }
        Ok(())
    }

    /// The least number of a head that keeps everything; `None`: no head does.
    fn border(&self, states: &[(usize, usize)], share: f64) -> Option<f64> {
        let mut all: Vec<f64> = states.iter().flat_map(|(layer, _)| self.rows[*layer].iter().copied()).collect();
        all.sort_by(|a, b| b.total_cmp(a));
        let whole = (share * all.len() as f64).round() as usize;
        whole.checked_sub(1).and_then(|last| all.get(last).copied())
    }
}
