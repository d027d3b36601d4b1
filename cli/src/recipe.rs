//! The recipe in an artifact: its module, the choices made for it and the weights that it has, from which `llmcc
//! retarget` makes an artifact for other machines.
//!
//! A line of JSON ([`Choices`] and the errors of storing), then `.lir` text: the module, and a plan with nothing but
//! weights for each order in which the artifact has them. Errors are written as bits, since they must come back as
//! they were.

use crate::requantized::Requantized;
use llmcc_ir::diag::{Diagnostic, Severity};
use llmcc_ir::graph::{Module, STEP};
use llmcc_ir::plan::{Plan, PlanEntry, Storage};
use llmcc_ir::quant::Format;
use llmcc_ir::text::{Item, Source, print_module, print_plan};
use llmcc_ir::verify::{verify_module, verify_packed};
use llmcc_passes::ActPolicy;
use llmcc_passes::pack::{PackReport, TensorReport};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the recipe's own layout.
const VERSION: u32 = 1;

/// Choices that hold for any target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Choices {
    /// Format of the matrices; with a budget, the checkpoint's own.
    pub format: String,
    /// The format that was asked for.
    pub asked: Option<String>,
    /// Whether each matrix has a format of its own.
    pub mixture: bool,
    /// Whether forms were chosen at all.
    pub chosen: bool,
    /// Activations that were asked for.
    pub activations: Option<String>,
    /// Types of keys and values, where they were chosen.
    pub cache: Vec<String>,
    /// Whether matrices do not take gains of their inputs.
    pub keep_scales: bool,
    /// Whether the checkpoint rounds the inputs of products itself.
    pub rounds_inputs: bool,
    /// Tensors that the checkpoint has as codes of these formats, which were rounded anew.
    pub requantized: BTreeMap<String, Vec<String>>,
    /// How caches keep parts of sequences, a line each.
    pub policies: Vec<String>,
}

/// A recipe.
pub struct Recipe {
    /// Choices for any target.
    pub choices: Choices,
    /// Graph level.
    pub module: Module,
    /// Plans of nothing but weights and states, in the order in which the weights lie.
    pub lists: Vec<Plan>,
    /// For each of them the errors of its weights, and their shares of zeros.
    pub figures: Vec<Vec<Figures>>,
}

/// Error and share of zeros of a packed weight, as they were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Relative root mean square error, where storing was not exact.
    pub error: Option<f64>,
    /// Share of zeros, where it was pruned.
    pub zeros: Option<f64>,
}

/// The first line.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Head {
    version: u32,
    choices: Choices,
    /// By list and weight: bits of the error, and of the share of zeros.
    figures: Vec<Vec<[Option<u64>; 2]>>,
}

impl Choices {
    /// The activations that were asked for.
    ///
    /// # Errors
    /// An unknown word.
    pub fn act(&self) -> Result<Option<ActPolicy>, String> {
        let named = |name: &String| ActPolicy::parse(name).ok_or_else(|| format!("unknown activations `{name}`"));
        self.activations.as_ref().map(named).transpose()
    }

    /// Tensors that were rounded anew.
    ///
    /// # Errors
    /// An unknown format.
    pub fn requantized(&self) -> Result<Requantized, String> {
        self.requantized.iter().map(|(name, tensors)| Ok((format(name)?, tensors.clone()))).collect()
    }
}

/// The format of a name.
///
/// # Errors
/// There is none.
pub fn format(name: &str) -> Result<Format, String> {
    Format::parse(name).ok_or_else(|| format!("unknown format `{name}`"))
}

/// The text of a recipe for an artifact with these lists of weights; empty where nothing was packed.
pub fn text(module: &Module, choices: Choices, lists: &[Plan], reports: &[PackReport]) -> Vec<u8> {
    if reports.iter().all(|r| r.tensors.is_empty()) {
        return vec![];
    }
    let bits = |t: &TensorReport| [t.error.map(|e| e.relative_rms.to_bits()), t.zeros.map(f64::to_bits)];
    let figures = reports.iter().map(|r| r.tensors.iter().map(bits).collect()).collect();
    let head = Head { version: VERSION, choices, figures };
    let mut out = serde_json::to_string(&head).unwrap_or_default();
    out.push('\n');
    out += &print_module(module);
    for list in lists {
        out += &print_plan(&weights_of(list));
    }
    out.into_bytes()
}

/// A plan without all but weights and states, and an entry that computes nothing.
fn weights_of(plan: &Plan) -> Plan {
    let entry = PlanEntry { name: STEP.into(), outputs: vec![], candidates: None, taps: vec![], context: None };
    let mut bare = Plan { kernels: vec![], entries: vec![entry], regimes: vec![], ..plan.clone() };
    bare.slots.clear();
    bare
}

impl Recipe {
    /// Reads the recipe of an artifact with so many bytes of weights.
    ///
    /// # Errors
    /// The first fault.
    pub fn read(text: &[u8], weights_len: u64) -> Result<Recipe, String> {
        let text = std::str::from_utf8(text).map_err(|_| "it is no text".to_owned())?;
        let (head, lir) = text.split_once('\n').ok_or("it has no module")?;
        let Head { version, choices, figures } = serde_json::from_str(head).map_err(|e| e.to_string())?;
        if version != VERSION {
            return Err(format!("it has layout {version}, this llmcc reads {VERSION}"));
        }
        let mut items = Source::parse(lir).map_err(first)?.items.into_iter();
        let Some(Item::Module(module)) = items.next() else { return Err("it has no module".into()) };
        sound(verify_module(&module))?;
        let mut lists = vec![];
        for item in items {
            let Item::Plan(plan) = item else { return Err("it has more than one module".into()) };
            check_sizes(&plan, weights_len)?;
            sound(verify_packed(&plan, &module.weights))?;
            lists.push(plan);
        }
        if lists.iter().map(|l| l.weights.len()).ne(figures.iter().map(Vec::len)) {
            return Err("its errors belong to other weights".into());
        }
        let float = |bits: Option<u64>| bits.map(f64::from_bits).filter(|x| x.is_finite());
        let read = |[error, zeros]: [Option<u64>; 2]| Figures { error: float(error), zeros: float(zeros) };
        let figures = figures.into_iter().map(|list| list.into_iter().map(read).collect()).collect();
        Ok(Recipe { choices, module, lists, figures })
    }
}

/// Refuses sizes that `bytes` cannot hold: no format takes less than a bit for an element.
fn check_sizes(plan: &Plan, bytes: u64) -> Result<(), String> {
    let most = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_mul(8);
    for w in &plan.weights {
        let elements = match w.storage {
            Storage::Matrix { n, k, .. } if n > 0 && k > 0 => n.checked_mul(k),
            Storage::Matrix { .. } => None,
            Storage::Vector { len } => Some(len),
        };
        if elements.is_none_or(|n| n > most) {
            return Err("it has weights of impossible sizes".into());
        }
    }
    Ok(())
}

fn first(found: Vec<Diagnostic>) -> String {
    found.first().map_or_else(|| "it cannot be read".into(), ToString::to_string)
}

fn sound(findings: Vec<Diagnostic>) -> Result<(), String> {
    let bad = findings.into_iter().find(|d| d.severity == Severity::Error);
    bad.map_or(Ok(()), |d| Err(d.to_string()))
}
