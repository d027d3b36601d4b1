//! `llmcc tap`: moments of the inputs of a model's products, of a text.

mod file;

use crate::args::TapArgs;
use crate::calib::{self, Chosen};
use crate::loaded::Model;
use crate::manifest::Manifest;
use crate::report::count;
use crate::statistics::{FORMAT, Sample};
use crate::{Error, progress, sets, texts};
use file::{Contents, Item};
use llmcc_model::taps::{Moments, Tap};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The taps of a weight, and the only expert of each that it belongs to.
type OfWeight = Vec<(usize, Option<usize>)>;

/// The same by weight.
type Uses = BTreeMap<String, OfWeight>;

/// Tokens of a sequence, unless the user or the model's context wants fewer.
const WINDOW: usize = 2048;

/// `llmcc tap`
///
/// # Errors
/// An artifact without taps or tokenizer; files that cannot be read or written; a text without tokens.
pub fn run(args: &TapArgs) -> Result<(), Error> {
    let model = args.engine.open(&args.artifact)?;
    let taps = model.taps()?;
    if taps.is_empty() {
        return Err(Error::Artifact {
            path: args.artifact.clone(),
            message: "it does not show the inputs of its products: compile the model with --tap".into(),
        });
    }
    let chosen = (!args.calib.sources.is_empty()).then(|| calibration(&model, &taps, args)).transpose()?;
    let own = if chosen.is_none() { rows(&model, &given(args)?, args)? } else { vec![] };
    let rows = chosen.as_ref().map_or(&own, |chosen| &chosen.rows);
    let tokens = rows.iter().map(Vec::len).sum::<usize>();
    let mut weights = by_weight(&args.artifact, &taps)?;
    let all = weights.len();
    let shared = if args.once { take_shared(&mut weights) } else { BTreeMap::new() };
    let mut contents = contents(&model, &taps, &weights, (args.full, tokens));
    if !shared.is_empty() {
        contents.note("shared", serde_json::to_string(&shared).unwrap_or_default());
    }
    if let Some(chosen) = &chosen {
        contents.note("calibration", serde_json::to_string(&chosen.record).unwrap_or_default());
        contents.note("sample", serde_json::to_string(&sample(chosen)).unwrap_or_default());
    }
    let groups = groups(&taps, &weights, args.full.then_some(args.full_memory * f64::from(1 << 30)));
    let mut out = contents.start(&args.output)?;
    let bar = progress::steps(groups.len() * rows.len(), "tokens of sequences");
    for group in &groups {
        let mut moments: Vec<Moments> = group.iter().map(|tap| Moments::new(*tap, &taps[*tap], args.full)).collect();
        for part in parts(rows) {
            model.add_moments(part, &mut moments)?;
            bar.inc(part.len() as u64);
        }
        let of_tap: BTreeMap<usize, &Moments> = moments.iter().map(|m| (m.tap, m)).collect();
        for (name, uses) in weights.iter().filter(|(_, uses)| group.contains(&uses[0].0)) {
            let merged = merged(uses.iter().filter_map(|(tap, expert)| Some((*of_tap.get(tap)?, *expert))));
            for (part, bytes) in merged.parts() {
                out.write(&format!("{name}.{part}"), &bytes)?;
            }
        }
    }
    bar.finish_and_clear();
    out.finish()?;
    super::print(&format!(
        "{}: moments of {} from {} in {}\n",
        args.output.display(),
        count(all, "weight"),
        count(tokens, "token"),
        count(rows.len(), "sequence")
    ))
}

/// The text of an option, or of a file.
fn given(args: &TapArgs) -> Result<String, Error> {
    match (&args.prompt, &args.file) {
        (Some(text), _) => Ok(text.clone()),
        (None, Some(file)) => texts::read(file),
        (None, None) => Err(Error::Usage("give a file with text, or -p TEXT".into())),
    }
}

/// The sequences of calibration.
fn calibration(model: &Model, taps: &[Tap], args: &TapArgs) -> Result<Chosen, Error> {
    let window = window(model, args)?;
    let tokenize = |text: &str, chat: bool| match chat {
        true => model.tokenize(&model.apply_chat_template(text)?, false),
        false => model.tokenize(text, true),
    };
    let sizes = (args.calib.calib_tokens, window, args.calib.calib_seed);
    let mut chosen = calib::choose(&args.calib.sources, sizes, &tokenize)?;
    if !chosen.held_out.is_empty() {
        let (own, other) = (diagonals(model, taps, &chosen.rows)?, diagonals(model, taps, &chosen.held_out)?);
        chosen.record.drift = calib::drift(&own, &other);
    }
    Ok(chosen)
}

/// As many tokens of the sequences that are used as of those that are kept out.
fn sample(chosen: &Chosen) -> Sample {
    let used = calib::first_tokens(&chosen.rows, chosen.record.held_out_tokens);
    Sample { used, held_out: chosen.held_out.clone() }
}

/// Mean squares of the inputs of each tap, of all experts together.
fn diagonals(model: &Model, taps: &[Tap], rows: &[Vec<i32>]) -> Result<Vec<Vec<f64>>, Error> {
    let mut moments: Vec<Moments> = taps.iter().enumerate().map(|(i, tap)| Moments::new(i, tap, false)).collect();
    parts(rows).try_for_each(|part| model.add_moments(part, &mut moments))?;
    let mean = |(m, tap): (&Moments, &Tap)| {
        let count = m.count.iter().sum::<u64>().max(1) as f64;
        let column = |c: usize| m.squares.iter().skip(c).step_by(tap.columns.max(1)).sum::<f64>() / count;
        (0..tap.columns).map(column).collect()
    };
    Ok(moments.iter().zip(taps).map(mean).collect())
}

/// The sequences of a text: its documents (trimmed of white space), each beginning with the special tokens that the
/// model expects, cut to windows.
fn rows(model: &Model, text: &str, args: &TapArgs) -> Result<Vec<Vec<i32>>, Error> {
    let window = window(model, args)?;
    let (mut rows, mut left) = (vec![], args.tokens.unwrap_or(usize::MAX));
    for document in texts::documents(text, args.separator.as_deref()) {
        for part in model.tokenize(document, true)?.chunks(window) {
            let part = &part[..part.len().min(left)];
            left -= part.len();
            rows.extend((!part.is_empty()).then(|| part.to_vec()));
        }
    }
    if rows.is_empty() { Err(Error::Usage("the text has no tokens".into())) } else { Ok(rows) }
}

/// Tokens of a sequence at most.
fn window(model: &Model, args: &TapArgs) -> Result<usize, Error> {
    let info = model.info();
    let most = info.max_context.min(info.cache_tokens);
    let most = if info.whole { most.min(info.max_batch_tokens) } else { most };
    let window = args.window.unwrap_or(WINDOW.min(most));
    if window == 0 || window > most {
        return Err(Error::Usage(format!("--window {window}: sequences of this model have 1 to {most} tokens")));
    }
    Ok(window)
}

/// Takes out the weights whose moments another weight has, too, and returns them with that one: the first by name.
fn take_shared(weights: &mut Uses) -> BTreeMap<String, String> {
    let mut first: BTreeMap<OfWeight, String> = BTreeMap::new();
    let mut out = BTreeMap::new();
    weights.retain(|name, uses| match first.get(uses) {
        Some(other) => {
            out.insert(name.clone(), other.clone());
            false
        }
        None => {
            first.insert(uses.clone(), name.clone());
            true
        }
    });
    out
}

/// Sequences that go through the model together: as many as a step has room for. (Sums do not depend on it.)
fn parts(rows: &[Vec<i32>]) -> impl Iterator<Item = &[Vec<i32>]> {
    let mut left = rows;
    std::iter::from_fn(move || {
        let mut tokens = 0;
        let fits = |row: &&Vec<i32>| {
            tokens += row.len();
            tokens <= WINDOW
        };
        let n = left.iter().take_while(fits).count().max(1).min(left.len());
        let (part, rest) = left.split_at(n);
        left = rest;
        (n > 0).then_some(part)
    })
}

/// The taps of each weight, in their order, and the only expert of each that it belongs to.
///
/// # Errors
/// A weight that multiplies inputs of several shapes.
fn by_weight(path: &Path, taps: &[Tap]) -> Result<Uses, Error> {
    let mut weights = Uses::new();
    for (i, tap) in taps.iter().enumerate() {
        for (name, expert) in &tap.weights {
            weights.entry(name.clone()).or_default().push((i, *expert));
        }
    }
    let shape = |(tap, expert): &(usize, Option<usize>)| (taps[*tap].columns, expert.map_or(taps[*tap].experts, |_| 0));
    match weights.iter().find(|(_, uses)| uses.iter().any(|u| shape(u) != shape(&uses[0]))) {
        None => Ok(weights),
        Some((name, _)) => Err(Error::Artifact {
            path: path.to_owned(),
            message: format!("`{name}` multiplies inputs of several shapes, whose moments do not add up"),
        }),
    }
}

/// Taps whose sums are in memory together: all of a weight's, and as many as fit `memory` bytes (without it: all).
fn groups(taps: &[Tap], weights: &Uses, memory: Option<f64>) -> Vec<BTreeSet<usize>> {
    let Some(memory) = memory else { return vec![(0..taps.len()).collect()] };
    let bytes = |tap: &usize| (taps[*tap].experts.max(1) * taps[*tap].columns * taps[*tap].columns * 8) as f64;
    // Taps with a weight in common belong together.
    let of_weights = weights.values().map(|uses| uses.iter().map(|u| u.0).collect());
    let together = sets::joined((0..taps.len()).map(|tap| BTreeSet::from([tap])).chain(of_weights));
    let (mut groups, mut room) = (vec![], 0.0);
    for set in together {
        let needed: f64 = set.iter().map(bytes).sum();
        match groups.last_mut() {
            Some(last) if needed <= room => {
                BTreeSet::extend(last, set);
                room -= needed;
            }
            _ => {
                groups.push(set);
                room = memory - needed;
            }
        }
    }
    groups
}

/// Sums for a weight.
struct Merged {
    count: Vec<u64>,
    squares: Vec<f64>,
    min: Vec<f32>,
    max: Vec<f32>,
    products: Vec<f64>,
}

/// The moments of all inputs of a weight: of one expert, or of all.
fn merged<'a>(uses: impl Iterator<Item = (&'a Moments, Option<usize>)>) -> Merged {
    let of = |(m, expert): (&Moments, Option<usize>)| {
        let experts = m.count.len();
        let own = expert.map_or(0..experts, |e| e..e + 1);
        let (columns, size) = (m.squares.len() / experts, m.products.len() / experts);
        let part = |n: usize| own.start * n..own.end * n;
        Merged {
            count: m.count[own.clone()].to_vec(),
            squares: m.squares[part(columns)].to_vec(),
            min: m.min[part(columns)].to_vec(),
            max: m.max[part(columns)].to_vec(),
            products: m.products[part(size)].to_vec(),
        }
    };
    let join = |mut a: Merged, b: Merged| {
        a.count.iter_mut().zip(b.count).for_each(|(a, b)| *a += b);
        a.squares.iter_mut().zip(b.squares).for_each(|(a, b)| *a += b);
        a.min.iter_mut().zip(b.min).for_each(|(a, b)| *a = a.min(b));
        a.max.iter_mut().zip(b.max).for_each(|(a, b)| *a = a.max(b));
        a.products.iter_mut().zip(b.products).for_each(|(a, b)| *a += b);
        a
    };
    let empty = Merged { count: vec![], squares: vec![], min: vec![], max: vec![], products: vec![] };
    uses.map(of).reduce(join).unwrap_or(empty)
}

impl Merged {
    /// Names of the parts and their bytes.
    fn parts(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mut parts = vec![
            ("count", self.count.iter().flat_map(|n| n.to_le_bytes()).collect()),
            ("squares", self.squares.iter().flat_map(|x| x.to_le_bytes()).collect()),
            ("min", self.min.iter().flat_map(|x| x.to_le_bytes()).collect()),
            ("max", self.max.iter().flat_map(|x| x.to_le_bytes()).collect()),
        ];
        if !self.products.is_empty() {
            parts.push(("products", self.products.iter().flat_map(|x| x.to_le_bytes()).collect()));
        }
        parts
    }
}

/// The tensors of the file, and its notes: the text's tokens, and the checkpoint's files.
fn contents(model: &Model, taps: &[Tap], weights: &Uses, (full, tokens): (bool, usize)) -> Contents {
    let manifest: Manifest = serde_json::from_str(&model.manifest()).unwrap_or_default();
    let source = manifest.source.iter().map(|f| format!("{} {}", f.sha256, f.file)).collect::<Vec<_>>().join("\n");
    let mut contents = Contents::new([
        ("format", FORMAT.to_string()),
        ("model", manifest.model),
        ("source", source),
        ("tokens", tokens.to_string()),
    ]);
    for (name, uses) in weights {
        let (tap, expert) = uses[0];
        let columns = taps[tap].columns;
        let experts: Vec<usize> =
            if expert.is_none() && taps[tap].experts > 0 { vec![taps[tap].experts] } else { vec![] };
        let shape = |rest: &[usize]| [&experts[..], rest].concat();
        contents.add(format!("{name}.count"), Item::U64, shape(&[]));
        contents.add(format!("{name}.squares"), Item::F64, shape(&[columns]));
        contents.add(format!("{name}.min"), Item::F32, shape(&[columns]));
        contents.add(format!("{name}.max"), Item::F32, shape(&[columns]));
        if full {
            contents.add(format!("{name}.products"), Item::F64, shape(&[columns, columns]));
        }
    }
    contents
}
