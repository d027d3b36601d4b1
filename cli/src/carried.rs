//! An artifact's own weights, texts and choices: all that another artifact of the same model is made from.
//!
//! Everything is read from the file, after its hashes were checked; nothing of it is run.

use crate::manifest::Manifest;
use crate::recipe::{Figures, Recipe};
use crate::{Error, json, signature};
use llmcc_abi::tree::part;
use llmcc_codegen::locate::locate;
use llmcc_codegen::sealed::Sealed;
use llmcc_frontends::input;
use llmcc_frontends::tokenizer::TextAssets;
use llmcc_ir::graph::{Module, Op, picked_row};
use llmcc_ir::plan::{PackedWeight, Storage, WeightExpr, weight_type};
use llmcc_ir::quant::{self, CodedRow, Format, StoredRows};
use llmcc_ir::target::TargetSpec;
use llmcc_passes::inside::Inside;
use llmcc_passes::pack::{PackedBefore, TensorBytes, WeightSource, lossless, reorders, weight_offsets};
use memmap2::Mmap;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// An artifact from which another one is made.
pub struct Carried {
    path: PathBuf,
    /// Its manifest.
    pub manifest: Manifest,
    /// The manifest as it stands in the artifact.
    pub document: Value,
    /// Its recipe.
    pub recipe: Recipe,
    /// Tokenizer and templates.
    pub texts: TextAssets,
    map: Mmap,
    /// Where the weights begin in the map.
    start: usize,
    /// All packed weights.
    packed: Vec<Stored>,
    /// The packed weights of an expression.
    by_expr: BTreeMap<WeightExpr, Vec<usize>>,
    /// Places of all rows of weights of the module, by name, where every row is known.
    rows: BTreeMap<String, Vec<Place>>,
}

/// A packed weight.
struct Stored {
    weight: PackedWeight,
    /// From the start of the weights.
    offset: usize,
    figures: Figures,
}

/// A row: packed weight, row in it.
type Place = (u32, u32);

impl Carried {
    /// Opens an artifact, and checks every byte of it.
    ///
    /// # Errors
    /// No artifact, a damaged one, one of another version, without its weights, or made by an llmcc that kept no
    /// recipe.
    pub fn open(path: &Path) -> Result<Carried, Error> {
        let bad = |message: String| Error::Artifact { path: path.to_owned(), message };
        let sealed = Sealed::open(path)?;
        if sealed.weights_unhashed() {
            return Err(bad("it was compiled with --weights absent, so its weights are not inside: compile the \
                 checkpoint for the other targets"
                .into()));
        }
        if let Some(damage) = signature::damage(path, &sealed)? {
            return Err(bad(format!(
                "{}: bytes {} to {} changed since it was compiled (`llmcc verify` says more); copy or compile it again",
                part::name(damage.part.kind),
                damage.from,
                damage.to
            )));
        }
        let text = sealed.bytes(part::RECIPE)?;
        if text.is_empty() {
            return Err(bad(
                "an older llmcc made it, which kept no module in artifacts: compile its checkpoint again, \
                 for the other targets"
                    .into(),
            ));
        }
        let unreadable = |what: &str, why: String| bad(format!("its {what} is unreadable: {why}"));
        let recipe =
            Recipe::read(&text, sealed.image.weights_len).map_err(|why| unreadable(part::name(part::RECIPE), why))?;
        let parse = |kind: u32| -> Result<Value, Error> {
            json::exact(&sealed.bytes(kind)?).map_err(|e| unreadable(part::name(kind), e.to_string()))
        };
        let document = parse(part::MANIFEST)?;
        let manifest =
            Manifest::deserialize(&document).map_err(|e| unreadable(part::name(part::MANIFEST), e.to_string()))?;
        let texts = texts(&manifest, sealed.bytes(part::TOKENIZER)?, parse(part::TEXT_CONFIG)?);
        let weights = locate(path)?.weights;
        let file = input::open(&weights.path)?;
        // SAFETY: as for checkpoints, nobody changes the file while it is read.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io("map", &weights.path, e))?;
        let packed =
            packed(&recipe, weights.len).ok_or_else(|| bad("its weights are not as its recipe says".into()))?;
        let start = usize::try_from(weights.offset).unwrap_or(usize::MAX);
        if start.saturating_add(weights.len as usize) > map.len() {
            return Err(bad("it is cut short".into()));
        }
        let mut by_expr: BTreeMap<WeightExpr, Vec<usize>> = BTreeMap::new();
        for (i, stored) in packed.iter().enumerate() {
            by_expr.entry(stored.weight.expr.clone()).or_default().push(i);
        }
        let rows = known_rows(&recipe.module, &packed);
        Ok(Carried { path: path.to_owned(), manifest, document, recipe, texts, map, start, packed, by_expr, rows })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The weights that versions for a target may have.
    pub fn inside(&self, target: &TargetSpec) -> Inside {
        let mut inside = Inside::default();
        for stored in &self.packed {
            let Storage::Matrix { format, .. } = stored.weight.storage else { continue };
            let wanted = format.with_packing(target.packing());
            if reorders(format, wanted) {
                let error = stored.figures.error.unwrap_or(0.0);
                inside.matrices.entry(stored.weight.expr.clone()).or_default().insert(wanted, error);
            }
        }
        let weights = self.recipe.module.weights.iter().enumerate();
        inside.whole = weights.filter(|(_, w)| self.rows.contains_key(&w.name)).map(|(i, _)| i).collect();
        inside
    }

    /// A format of weights inside that cannot be brought into the order of a target.
    pub fn fixed(&self, target: &TargetSpec) -> Option<Format> {
        let fixed = |stored: &Stored| match stored.weight.storage {
            Storage::Matrix { format, .. } => {
                (!reorders(format, format.with_packing(target.packing()))).then_some(format)
            }
            Storage::Vector { .. } => None,
        };
        self.packed.iter().find_map(fixed)
    }

    /// The weights of a plan that cannot be had, by name.
    pub fn missing(&self, weights: &[PackedWeight], target: &TargetSpec) -> Vec<String> {
        let (module, inside) = (&self.recipe.module, self.inside(target));
        let there = |w: &PackedWeight| match w.storage {
            _ if self.packed(w).is_some() => true,
            Storage::Matrix { format, .. } => {
                (!format.is_quantized() || lossless(&w.expr, format, module)) && inside.knows(&w.expr, module)
            }
            Storage::Vector { .. } => inside.knows(&w.expr, module),
        };
        let mut names = BTreeSet::new();
        for w in weights.iter().filter(|w| !there(w)) {
            let mut leaves = vec![];
            w.expr.leaves(&mut |i| leaves.extend(module.weights.get(i).map(|w| w.name.clone())));
            names.insert(leaves.join(" + "));
        }
        names.into_iter().collect()
    }

    fn bytes(&self, i: usize) -> &[u8] {
        let stored = &self.packed[i];
        &self.map[self.start + stored.offset..][..stored.weight.storage.bytes()]
    }

    fn before(&self, i: usize) -> PackedBefore<'_> {
        let Stored { weight, figures, .. } = &self.packed[i];
        let bytes = match weight.storage {
            Storage::Vector { len } => &self.bytes(i)[..len * 4],
            Storage::Matrix { .. } => self.bytes(i),
        };
        PackedBefore { storage: weight.storage, bytes, error: figures.error, zeros: figures.zeros }
    }
}

/// Texts of an artifact as a checkpoint has them.
fn texts(manifest: &Manifest, tokenizer: Vec<u8>, text_config: Value) -> TextAssets {
    TextAssets {
        tokenizer_json: (!tokenizer.is_empty()).then_some(tokenizer),
        text_config,
        prompts: manifest.prompts.clone(),
        default_prompt: manifest.default_prompt.clone(),
        similarity: manifest.similarity.clone(),
        classes: manifest.classes.clone(),
        problem_type: manifest.problem_type.clone(),
        pair_activation: manifest.pair_activation.clone(),
        warnings: vec![],
    }
}

/// The packed weights of all lists; `None` if they do not fill `len` bytes.
fn packed(recipe: &Recipe, len: u64) -> Option<Vec<Stored>> {
    let (mut out, mut start) = (vec![], 0u64);
    for (list, figures) in recipe.lists.iter().zip(&recipe.figures) {
        let mut end = start;
        for ((weight, at), figures) in list.weights.iter().zip(weight_offsets(list)).zip(figures) {
            let offset = start.checked_add(at)?;
            end = offset.checked_add(weight.storage.bytes() as u64)?.checked_next_multiple_of(64)?;
            if end > len {
                return None;
            }
            out.push(Stored { weight: weight.clone(), offset: offset as usize, figures: *figures });
        }
        start = end;
    }
    (start == len).then_some(out)
}

/// Places of the rows of weights of the module, where every row is stored without loss.
fn known_rows(module: &Module, packed: &[Stored]) -> BTreeMap<String, Vec<Place>> {
    let mut found: BTreeMap<usize, Vec<Option<Place>>> = BTreeMap::new();
    for (i, Stored { weight, .. }) in packed.iter().enumerate() {
        let rows = match weight.storage {
            Storage::Matrix { n, format, .. } if lossless(&weight.expr, format, module) => n,
            Storage::Matrix { .. } => continue,
            Storage::Vector { len } => len,
        };
        for row in 0..rows {
            let Some((leaf, at)) = row_of(&weight.expr, row, weight.storage, module) else { continue };
            let places = found.entry(leaf).or_insert_with(|| vec![None; height(module, leaf)]);
            if let Some(place) = places.get_mut(at) {
                *place = Some((i as u32, row as u32));
            }
        }
    }
    let whole = |(leaf, places): (usize, Vec<Option<Place>>)| {
        Some((module.weights.get(leaf)?.name.clone(), places.into_iter().collect::<Option<Vec<_>>>()?))
    };
    found.into_iter().filter_map(whole).collect()
}

/// Rows of a weight of the module, all matrices of a stack together; of a vector its elements.
fn height(module: &Module, leaf: usize) -> usize {
    let dims: Vec<usize> = module.weights[leaf].ty.shape.iter().filter_map(|d| d.known()).collect();
    match dims[..] {
        [] => 1,
        [n] => n,
        [.., _] => dims[..dims.len() - 1].iter().product(),
    }
}

/// The weight of the module, and its row, that row `row` of an expression is; `None` where elements are computed or
/// come from several rows.
fn row_of(e: &WeightExpr, row: usize, storage: Storage, module: &Module) -> Option<(usize, usize)> {
    let (op, args) = match e {
        WeightExpr::Weight(i) => {
            let vector = module.weights.get(*i)?.ty.shape.len() < 2;
            return (vector == matches!(storage, Storage::Vector { .. })).then_some((*i, row));
        }
        WeightExpr::Op(op, args) => (op, args),
    };
    if *op == Op::ConcatRows {
        return row_of_parts(args, row, storage, module);
    }
    let at = if let Op::SliceRows { start, .. } = op {
        start + row
    } else if let Op::PickRows { run, start, len, pairs } = op {
        picked_row([*run, *start, *len, *pairs], row)
    } else if let Op::FillRows { run, to } = op
        && row % to < *run
    {
        row / to * run + row % to
    } else if *op == Op::Flatten {
        // (A stack becomes one matrix: the rows stay.)
        row
    } else {
        return None;
    };
    row_of(args.first()?, at, storage, module)
}

/// The same of parts one below the other.
fn row_of_parts(parts: &[WeightExpr], mut row: usize, storage: Storage, module: &Module) -> Option<(usize, usize)> {
    for part in parts {
        let rows = weight_type(part, &module.weights).ok()?.shape.first()?.known()?;
        match row.checked_sub(rows) {
            Some(rest) => row = rest,
            None => return row_of(part, row, storage, module),
        }
    }
    None
}

/// Rows of a weight of the module that are stored here and there.
struct Scattered<'a> {
    carried: &'a Carried,
    places: &'a [Place],
}

impl StoredRows for Scattered<'_> {
    fn values(&self, from: usize, out: &mut [f32]) {
        let mut at = from;
        let mut rest = out;
        while let (Some((i, row)), false) = (self.places.get(at).copied(), rest.is_empty()) {
            let (i, row) = (i as usize, row as usize);
            let bytes = self.carried.bytes(i);
            let width = match self.carried.packed[i].weight.storage {
                Storage::Matrix { k, format, .. } => {
                    quant::unpack_row(format, bytes, k, row, rest);
                    k
                }
                Storage::Vector { .. } => {
                    rest[0] = f32::from_le_bytes([0, 1, 2, 3].map(|b| bytes[row * 4 + b]));
                    1
                }
            };
            rest = rest.get_mut(width..).unwrap_or_default();
            at += 1;
        }
    }

    fn codes(&self, row: usize, out: &mut CodedRow) {
        let Some((i, row)) = self.places.get(row) else { return };
        if let Storage::Matrix { k, format, .. } = self.carried.packed[*i as usize].weight.storage
            && let Some(codes) = quant::unpack_codes(format, self.carried.bytes(*i as usize), k, *row as usize)
        {
            *out = codes;
        }
    }
}

impl WeightSource for Carried {
    fn tensor(&self, _: &str) -> Option<TensorBytes<'_>> {
        None
    }
    fn rows(&self, name: &str) -> Option<Box<dyn StoredRows + '_>> {
        Some(Box::new(Scattered { carried: self, places: self.rows.get(name)? }))
    }
    fn packed(&self, weight: &PackedWeight) -> Option<PackedBefore<'_>> {
        let all = self.by_expr.get(&weight.expr)?;
        let same = all.iter().find(|i| self.packed[**i].weight.storage == weight.storage);
        let other = || {
            all.iter().find(|i| match (self.packed[**i].weight.storage, weight.storage) {
                (Storage::Matrix { format: from, .. }, Storage::Matrix { format: to, .. }) => reorders(from, to),
                _ => false,
            })
        };
        same.or_else(other).map(|i| self.before(*i))
    }
    fn was_packed(&self) -> bool {
        true
    }
    fn release(&self, _: &str) {}
}
